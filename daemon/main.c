/* main.c: the program seqd. It has the REST interface, the queue, the scheduler and the state of a
 * cluster. It makes all decisions, and computes nothing of a job itself. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/notify.h"
#include "api/core/process.h"
#include "daemon/access/auth.h"
#include "daemon/access/join.h"
#include "daemon/access/secret.h"
#include "daemon/access/token_file.h"
#include "daemon/http/batch.h"
#include "daemon/http/follow.h"
#include "daemon/http/http.h"
#include "daemon/http/listen.h"
#include "daemon/http/openai.h"
#include "daemon/http/routes.h"
#include "daemon/http/trail.h"
#include "daemon/http/transfer.h"
#include "daemon/loop/control.h"
#include "daemon/loop/orders.h"
#include "daemon/loop/plan_cache.h"
#include "daemon/loop/planner.h"
#include "daemon/mailbox/link.h"
#include "daemon/options.h"
#include "daemon/run/dev.h"
#include "daemon/run/run.h"
#include "daemon/spec/json.h"
#include "daemon/upload/uploads.h"

enum {
    QUIT_MS = 20000, /* time for the nodes of a run to end */
    QUIT_LOOK_MS = 20
};

struct seqd {
    struct options o;
    unsigned char secret[SECRET_SIZE];
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct auth *auth;
    struct control *control;
    struct pki *pki; /* NULL if sessions of nodes are not encrypted */
    struct join_key key;
    struct loop_timer *quit; /* runs while nodes are told to end */
    int64_t quit_ms;         /* time at which seqd ends without them */
    struct joins *joins;
    struct links *link;
    struct routes routes;
    struct http_server *http;
    struct dev *dev;
    struct notify *notify;
};

static int send_to_node(void *arg, const char *node, const struct msg *m)
{
    struct seqd *d = arg;
    return d->link ? link_send(d->link, node, m) : -1;
}

static size_t queued_to_node(void *arg, const char *node)
{
    struct seqd *d = arg;
    return d->link ? link_queued(d->link, node) : 0;
}

static uint32_t quit_node(void *arg, const char *node)
{
    struct seqd *d = arg;
    const struct msg m = {.type = MSG_QUIT, .reason = "seqd ends"};
    link_send(d->link, node, &m);
    return link_abi(d->link, node);
}

static void node_died(void *arg, const char *why)
{
    control_no_node(((struct seqd *)arg)->control, why);
}

static void answer_join(void *arg, int64_t session, const struct msg *m)
{
    link_answer(((struct seqd *)arg)->link, session, m);
}

static void close_node(void *arg, const char *node, const char *why)
{
    link_close(((struct seqd *)arg)->link, node, why);
}

static int64_t utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Creates the joins. Must be called before the first commit, because joins_create() loads
 * tables. */
static int create_joins(struct seqd *d, struct err *e)
{
    const struct options *o = &d->o;
    char dir[FILE_PATH_SIZE];
    if (address_is_plain(o->node_address)) return 0;
    if (file_join(dir, e, "%s/pki", o->state_dir)) return -1;
    if (!(d->pki = pki_open(dir, utc_ms() / 1000, e))) return -1;
    const bool keyed = *o->join_key;
    if (keyed && join_key_read(o->join_key, &d->key, e)) return -1;
    const struct joins_options j = {
        d->store,   d->pki, o->cert_ttl_s,          utc_ms,           answer_join,
        close_node, d,      keyed ? &d->key : NULL, o->join_key_nodes};
    if (!(d->joins = joins_create(&j, e))) return -1;
    d->routes.joins = d->joins;
    log_info("seqd.authority", "dir=%s fingerprint=%s", dir, pki_fingerprint(d->pki));
    return 0;
}

static int create_link(struct seqd *d, struct err *e)
{
    const char *address = d->o.node_address;
    const struct link_options l = {address, d->pki, &joins_gate, d->joins};
    if (address_target(address) != address)
        log_warn("seqd.insecure",
                 "address=%s text=\"sessions of nodes are neither encrypted nor authenticated: a "
                 "machine that reaches the port can take any node's name and start programs on the "
                 "nodes\"",
                 address);
    d->link = link_create(d->loop, &l, &control_link_calls, d->control, e);
    return d->link ? 0 : -1;
}

static void on_gone(void *arg)
{
    loop_stop(((struct seqd *)arg)->loop);
}

/* Tells whether the store's writer has made progress. The loop needs no check, because it makes
 * the call. */
static bool on_tick(void *arg, char *status, size_t size)
{
    struct seqd *d = arg;
    const struct nodes *t = control_nodes(d->control);
    int up = 0;
    for (int i = 0; i < t->n; i++) up += t->node[i].up;
    const bool moved = store_moved(d->store);
    snprintf(status, size, "%s; %d jobs, %d nodes up%s", http_url(d->http),
             control_n_live(d->control), up, moved ? "" : "; the store's writer stands");
    return moved;
}

static void on_reload(struct seqd *d)
{
    struct err e;
    notify_reloading(d->notify);
    if (options_reload(&d->o, &e))
        log_error("settings.kept", "text=\"%s; the options stay as they were\"", e.text);
    else
        log_info("settings.read", "signal=SIGHUP");
    control_users(d->control)->limits = d->o.user;
    if (d->http) http_reload(d->http);
    notify_ready(d->notify);
}

/* ---- the nodes of a run ---------------------------------------------------------------------- */

/* Reads the exit code that `seqd run` has left in the file that SEQD_RUN names. */
static int run_code(void)
{
    const char *path = getenv("SEQD_RUN");
    struct err e;
    char *text = path && *path == '/' ? file_read(path, 16, NULL, &e) : NULL;
    const int code = text ? atoi(text) : 1; /* the run was killed */
    free(text);
    return code;
}

/* Stops the loop as soon as no node has a session. */
static void quit_look(void *arg)
{
    struct seqd *d = arg;
    const struct nodes *t = control_nodes(d->control);
    int up = 0;
    for (int i = 0; i < t->n; i++) up += t->node[i].up;
    if (!up || loop_now_ms(d->loop) >= d->quit_ms)
        loop_stop(d->loop);
    else
        loop_timer_set(d->quit, QUIT_LOOK_MS);
}

/* Tells the nodes of a `seqd run` to end with the run's exit code. */
static void quit_nodes(struct seqd *d)
{
    const struct msg m = {.type = MSG_QUIT, .reason = "the run ends", .code = run_code()};
    const struct nodes *t = control_nodes(d->control);
    for (int i = 0; i < t->n; i++)
        if (t->node[i].up) link_send(d->link, t->node[i].name, &m);
    d->quit_ms = loop_now_ms(d->loop) + QUIT_MS;
    if (!d->quit) d->quit = loop_timer_create(d->loop, quit_look, d);
    quit_look(d);
}

static void on_signal(void *arg, int signo)
{
    struct seqd *d = arg;
    if (signo == SIGCHLD) { /* in a container, process 1 becomes the parent of every orphan */
        while (waitpid(-1, NULL, WNOHANG) > 0) continue;
        return;
    }
    if (signo == SIGHUP && !d->o.dev) { /* with --dev, SIGHUP means that the terminal is gone */
        on_reload(d);
        return;
    }
    /* this is a child of `seqd run`; RUN_END ends it instead */
    if (signo == SIGTERM && getenv("SEQD_RUN")) {
        log_info("seqd.stay", "signal=%d text=\"seqd run says when\"", signo);
        return;
    }
    log_info("seqd.stop", "signal=%d", signo);
    notify_stopping(d->notify);
    control_pause(d->control);
    if (d->dev)
        dev_stop(d->dev, on_gone, d);
    else if (*d->o.join_key && getenv("SEQD_RUN") && !d->quit)
        quit_nodes(d);
    else
        loop_stop(d->loop);
}

static int open_uploads(struct seqd *d, struct err *e)
{
    struct options *o = &d->o;
    const struct upload_dir_options u = {o->uploads_dir, o->uploads_bytes, o->user_uploads_bytes,
                                         UPLOADS_EXPIRE_MS};
    if (!*o->uploads_dir) return 0;
    if (!(d->routes.uploads = uploads_open(d->loop, &u, e))) return -1;
    if (o->dev && o->n_roots < RANK_ROOTS)
        o->roots[o->n_roots++] = uploads_files(d->routes.uploads);
    return 0;
}

/* If the agents' socket is in the directory that systemd has made, lets the group use the socket,
 * so that an agent can run as a different user. */
static int share_socket(const struct options *o, struct err *e)
{
    const char *dir = getenv("RUNTIME_DIRECTORY"), *path = o->node_address + strlen("unix:");
    const size_t n = dir ? strlen(dir) : 0;
    if (!n || strncmp(o->node_address, "unix:", 5) || strncmp(path, dir, n) || path[n] != '/')
        return 0;
    return chmod(path, 0660) ? err_errno(e, "chmod %s", path) : 0;
}

static int create_http(struct seqd *d, struct err *e)
{
    const struct options *o = &d->o;
    struct http_options h = {.listen = o->listen,
                             .socket = o->socket_path,
                             .local_only = options_local_only(o),
                             .metrics_listen = *o->metrics_listen ? o->metrics_listen : NULL,
                             .metrics_local_only = listen_is_loopback(o->metrics_listen) == 1,
                             .tls_cert = *o->tls_cert ? o->tls_cert : NULL,
                             .tls_key = o->tls_key,
                             .by_proxy = o->tls_by_proxy};
    if (o->tls_by_proxy)
        log_warn("http.plain", "listen=%s text=\"plain HTTP: a proxy before it must speak TLS\"",
                 o->listen);
    return (d->http = http_create(d->loop, &h, routes_handle, &d->routes, e)) ? 0 : -1;
}

static int create_dev(struct seqd *d, struct err *e)
{
    const struct options *o = &d->o;
    struct dev_options dev = {.state_dir = o->state_dir,
                              .node_address = o->node_address,
                              .n_slots = o->n_slots,
                              .no_pin = o->no_pin,
                              .sandbox = o->sandbox,
                              .roots = o->roots,
                              .n_roots = o->n_roots,
                              .writable = &o->writable,
                              .quit = quit_node,
                              .died = node_died,
                              .arg = d};
    return (d->dev = dev_start(d->loop, &dev, e)) ? 0 : -1;
}

static int create(struct seqd *d, struct err *e)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
    struct options *o = &d->o;
    if (o->n_mended)
        log_warn("seqd.mode", "state=%s mended=%d text=\"others could read it: 0700 and 0600 now\"",
                 o->state_dir, o->n_mended);
    d->loop = loop_create(NULL, NULL, e);
    if (!d->loop || loop_signals(d->loop, signals, getpid() == 1 ? 4 : 3, on_signal, d, e))
        return -1;
    /* call it before any child is started, because it unsets variables */
    d->notify = notify_open(d->loop, on_tick, d);
    if (beneath_mark(o->state_dir, e)) return -1;
    if (!(d->store = store_open(d->loop, o->state_dir, e))) return -1;
    if (o->backup_ms &&
        backups_every(store_backups(d->store), o->backup_ms, o->backup_dir, (int)o->backup_keep, e))
        return -1;
    if (create_joins(d, e) || secret_open(o->state_dir, d->secret, e)) return -1;
    if (!(d->logs = logs_open(o->state_dir, e))) return -1;
    if (!(d->auth = auth_create(d->store, NULL, e))) return -1;
    d->routes.auth = d->auth;
    d->routes.state_dir = o->state_dir;
    d->routes.follows = follows_create(d->loop);
    openai_open(&d->routes, d->loop);
    d->routes.trail = trail_create(d->loop, d->store);
    d->routes.planner = planner_create(d->loop);
    d->routes.plans = plan_cache_create();
    if (open_uploads(d, e)) return -1;
    struct control_options c = {.loop = d->loop,
                                .store = d->store,
                                .logs = d->logs,
                                .secret = d->secret,
                                .lost_ms = o->lost_ms,
                                .save_grace_ms = o->save_grace_s * 1000,
                                .backfill_ms = o->backfill_wall_s * 1000,
                                .policy = &o->policy,
                                .uploads = d->routes.uploads ? uploads_files(d->routes.uploads)
                                                             : NULL,
                                .send = send_to_node,
                                .queued = queued_to_node,
                                .send_arg = d,
                                .changed = follows_changed,
                                .logged = follows_logged,
                                .changed_arg = d->routes.follows};
    if (!(d->control = control_create(&c, e))) return -1;
    d->routes.control = d->control;
    control_users(d->control)->limits = o->user;
    d->routes.orders = orders_create(control_commits(d->control));
    if (create_link(d, e) || share_socket(o, e)) return -1;
    link_set_heartbeat(d->link, o->heartbeat_ms);
    if (create_http(d, e)) return -1;
    /* If the port is 0, write no context. Clients read the port from the state directory. */
    const char *url = strcmp(strrchr(o->listen, ':'), ":0") ? http_url(d->http) : NULL;
    if (o->dev && token_file_write(d->auth, o->state_dir, url, e)) return -1;
    if (options_write_address(o, http_url(d->http), e)) return -1;
    if (o->dev && create_dev(d, e)) return -1;
    notify_ready(d->notify);
    log_info("seqd.ready", "url=%s state=%s", http_url(d->http), o->state_dir);
    if (*o->metrics_listen)
        log_info("http.metrics", "url=%s/metrics text=\"for everyone who reaches it\"",
                 http_metrics_url(d->http));
    if (o->dev) /* do not log the token, because logs are kept and shown to other people */
        log_info("dev.page", "url=%s/ text=\"seqctl --url %s page prints it with the token\"",
                 http_url(d->http), o->state_dir);
    return 0;
}

static void destroy(struct seqd *d)
{
    notify_close(d->notify);
    dev_destroy(d->dev);
    if (d->routes.trail) trail_stop(d->routes.trail);
    errands_end(d->routes.planner, false);
    loop_timer_destroy(d->quit);
    explicit_bzero(&d->key, sizeof d->key);
    /* first, so that the requests that it commits are still answered */
    store_close(d->store);
    uploads_close(d->routes.uploads); /* before HTTP, which owns the bodies of uploads */
    http_destroy(d->http);
    link_destroy(d->link);
    joins_destroy(d->joins);
    pki_close(d->pki);
    orders_destroy(d->routes.orders);
    control_destroy(d->control);
    auth_destroy(d->auth);
    transfers_drop(&d->routes);
    openai_drop(&d->routes);
    batches_drop(&d->routes);
    errands_destroy(d->routes.planner);
    plan_cache_destroy(d->routes.plans);
    follows_destroy(d->routes.follows);
    trail_destroy(d->routes.trail);
    logs_close(d->logs);
    loop_destroy(d->loop);
}

/* Raises the limit of open files to 65536, or to the hard limit if that is lower. Every client and
 * every log needs a descriptor. */
static void raise_files(void)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r)) return;
    r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
    setrlimit(RLIMIT_NOFILE, &r);
}

int main(int argc, char **argv)
{
    static struct seqd d;
    struct err e;
    process_begin();
    log_init("seqd");
    umask(077); /* only the owner can read or write new files */
    signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && !strcmp(argv[1], "run")) return run_main(argc - 1, argv + 1);
    raise_files();
    json_init();
    int rc = options_read(&d.o, argc, argv, &e);
    if (rc > 0) return 0;
    if (!rc) rc = create(&d, &e);
    if (rc)
        fprintf(stderr, "seqd: %s\n", e.text);
    else
        loop_run(d.loop);
    destroy(&d);
    return rc ? 1 : 0;
}
