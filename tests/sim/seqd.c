/* seqd.c: one life of seqd, with the modules that daemon/main.c joins, over the simulated disk and
 * network. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "daemon/access/auth.h"
#include "daemon/access/join.h"
#include "daemon/access/secret.h"
#include "daemon/http/batch.h"
#include "daemon/http/follow.h"
#include "daemon/http/routes.h"
#include "daemon/http/trail.h"
#include "daemon/loop/control.h"
#include "daemon/loop/orders.h"
#include "daemon/loop/plan_cache.h"
#include "daemon/loop/planner.h"
#include "daemon/store/reserve.h"
#include "tests/sim/sim.h"

enum { RESERVE_LEFT = 256 << 10 };

static struct {
    unsigned char secret[SECRET_SIZE];
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct control *control;
    struct links *link;
    struct pki *ca; /* seqd's authority, if nodes join; the members below belong to it */
    struct joins *joins;
    char token[128]; /* the file with the token of all nodes */
    bool told;       /* the file is written */
    struct auth *auth;
    struct routes routes;
    int64_t start_ms, paused_ms, full_ms;
    bool reserve, dying;
    int starts;
} d;

static int64_t clock_now(void *arg)
{
    return sim_now;
}

static int64_t utc_now(void)
{
    return sim_utc;
}

/* ---- the reserve: room on the simulated disk ------------------------------------------------- */

int reserve_check_limit(struct err *e)
{
    return 0; /* files of this disk have no limit */
}

void reserve_init(struct reserve *r, const char *dir)
{
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    r->held = d.reserve;
}

int64_t reserve_free(const struct reserve *r)
{
    return disk.room < 0 ? (int64_t)1 << 40 : disk.room;
}

bool reserve_make(struct reserve *r)
{
    if (disk.room < 0) r->held = d.reserve = true;
    return r->held;
}

bool reserve_release(struct reserve *r)
{
    if (!r->held) return false;
    r->held = d.reserve = false;
    if (disk.room >= 0) disk.room += RESERVE_LEFT;
    return true;
}

/* ---- a life ---------------------------------------------------------------------------------- */

static int send_to_node(void *arg, const char *node, const struct msg *m)
{
    return d.link && !d.dying ? link_send(d.link, node, m) : -1;
}

/* ---- nodes that join ------------------------------------------------------------------------- */

static void answer_join(void *arg, int64_t session, const struct msg *m)
{
    if (d.link && !d.dying) link_answer(d.link, session, m);
}

static void close_node(void *arg, const char *node, const char *why)
{
    if (d.link && !d.dying) link_close(d.link, node, why);
}

/* Opens the table of joins. In runs with TLS, clocks do not differ and no certificate expires. */
static int open_joins(struct err *e)
{
    char path[128];
    const struct joins_options o = {.store = d.store,
                                    .ttl_s = JOIN_TTL_MAX_S,
                                    .utc_ms = utc_now,
                                    .answer = answer_join,
                                    .close = close_node};
    struct joins_options mine = o;
    snprintf(path, sizeof path, "%s/pki", sim_dir());
    if (!sim_tls) return 0;
    if (!(d.ca = pki_open(path, sim_utc / 1000, e))) return -1;
    mine.ca = d.ca;
    return (d.joins = joins_create(&mine, e)) ? 0 : -1;
}

static void token_made(void *arg, const char *id, const char *text, const struct err *e)
{
    struct err why;
    snprintf(d.token, sizeof d.token, "%s/token", sim_dir());
    d.told = text && !d.dying && !file_write(d.token, text, strlen(text), &why);
}

/* Makes a token with as many uses as there are nodes. If the answer to a join was lost, joining
 * again does not count as a further use. */
static void make_token(void)
{
    if (d.joins && !d.told)
        joins_token_make(d.joins, &(struct joins_token){"*", SIM_LIAR, JOIN_TOKEN_S}, token_made,
                         NULL);
}

const char *seqd_token(void)
{
    return d.told ? d.token : NULL;
}

static int open_all(struct err *e)
{
    if (!(d.loop = loop_create(clock_now, NULL, e))) return -1;
    if (!(d.store = store_open(d.loop, sim_dir(), e))) return -1;
    if (open_joins(e) || secret_open(sim_dir(), d.secret, e)) return -1;
    if (!(d.logs = logs_open(sim_dir(), e))) return -1;
    d.routes = (struct routes){.follows = follows_create(d.loop),
                               .trail = trail_create(d.loop, d.store),
                               .planner = planner_create(d.loop),
                               .plans = plan_cache_create()};
    const struct control_options o = {.loop = d.loop,
                                      .store = d.store,
                                      .logs = d.logs,
                                      .secret = d.secret,
                                      .send = send_to_node,
                                      .utc_ms = utc_now,
                                      .changed = follows_changed,
                                      .logged = follows_logged,
                                      .changed_arg = d.routes.follows,
                                      .save_grace_ms = 20000,
                                      .backfill_ms = 30000};
    if (!(d.control = control_create(&o, e))) return -1;
    if (!(d.auth = auth_create(d.store, &(struct auth_clock){utc_now}, e))) return -1;
    d.routes.control = d.control;
    d.routes.orders = orders_create(control_commits(d.control));
    d.routes.auth = d.auth;
    d.routes.joins = d.joins;
    const struct link_options l = {"unix:/sim", d.ca, &joins_gate, d.joins};
    d.link = link_create(d.loop, &l, &control_link_calls, d.control, e);
    if (d.link) make_token();
    return d.link ? 0 : -1;
}

static void close_all(bool orderly)
{
    d.dying = true;
    check_close();
    if (d.routes.trail) trail_stop(d.routes.trail);
    if (!orderly) clients_cut(); /* from now on, no answer reaches a client */
    errands_end(d.routes.planner, false);
    store_close(d.store);
    if (orderly) clients_cut();
    link_destroy(d.link);
    joins_destroy(d.joins);
    pki_close(d.ca);
    orders_destroy(d.routes.orders);
    control_destroy(d.control);
    batches_drop(&d.routes);
    errands_destroy(d.routes.planner);
    plan_cache_destroy(d.routes.plans);
    if (d.routes.follows) follows_destroy(d.routes.follows);
    trail_destroy(d.routes.trail);
    auth_destroy(d.auth);
    logs_close(d.logs);
    loop_destroy(d.loop);
    d.auth = NULL, d.joins = NULL, d.ca = NULL;
    d.store = NULL, d.link = NULL, d.control = NULL, d.logs = NULL, d.loop = NULL;
    d.routes = (struct routes){0};
    d.dying = false;
    d.paused_ms = 0;
    fibers_drop();
}

void seqd_reset(void)
{
    memset(&d, 0, sizeof d);
    d.reserve = true;
}

bool seqd_up(void)
{
    return d.link != NULL;
}

int64_t seqd_full_ms(void)
{
    return d.full_ms;
}

int seqd_starts(void)
{
    return d.starts;
}

struct loop *seqd_loop(void)
{
    return d.loop;
}

struct routes *seqd_routes(void)
{
    return &d.routes;
}

int32_t seqd_reserved(const char *node)
{
    return control_reserved(d.control, node);
}

const char *seqd_reason(int64_t job)
{
    const struct job *j = d.control ? control_job(d.control, job) : NULL;
    return j ? j->reason : "";
}

int64_t seqd_log_size(int64_t job, int64_t epoch, int rank)
{
    return logs_size(d.logs, job, epoch, rank);
}

void seqd_kill(bool power)
{
    if (!d.loop) return;
    sim_note(0, "seqd: %s", power ? "the power is cut" : "kill -9");
    disk_cut(power);
    close_all(false);
    d.start_ms = sim_now + 100 + sim_below(sim_calm ? 1000 : 20000);
}

void seqd_quit(void)
{
    if (!d.link) return;
    sim_note(0, "seqd: ends in order");
    control_pause(d.control);
    close_all(true);
    d.start_ms = sim_now + 100 + sim_below(5000);
}

void seqd_pause(int64_t until_ms)
{
    d.paused_ms = until_ms;
}

int64_t seqd_paused(void)
{
    return d.paused_ms > sim_now ? d.paused_ms : 0;
}

static void start(void)
{
    struct err e = {0};
    sim_note(0, "seqd: starts");
    d.starts++;
    if (!open_all(&e)) {
        check_again();
        return;
    }
    sim_note(0, "seqd: cannot start: %s", e.text);
    if (e.code == ERR_CORRUPT && !strstr(e.text, "I/O error"))
        sim_broken("starts", 0, "seqd does not start: %s", e.text);
    disk_cut(false);
    close_all(false);
    d.start_ms = sim_now + 1000;
}

void seqd_turn(void)
{
    if (!d.reserve) d.full_ms = sim_now;
    if (!d.loop && sim_now >= d.start_ms) start();
    if (!d.loop || d.paused_ms > sim_now) return;
    fibers_turn(sim_below(3) == 0);
    if (fiber_exit_code() >= 0) {
        sim_note(0, "seqd: exits with %d", fiber_exit_code());
        disk.fail_in = 0;
        seqd_kill(false);
        return;
    }
    net_turn(d.loop);
    loop_turn(d.loop, 0);
}
