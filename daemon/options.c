/* options.c: defines the table of options, and checks the options. */
#include "daemon/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/beneath.h"
#include "api/core/duration.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/sandbox.h"
#include "api/core/version.h"
#include "api/settings.h"
#include "daemon/access/join.h"
#include "daemon/http/listen.h"
#include "daemon/state/node.h"

#define AT(field) OPTION_TARGET(struct options, field)

/* clang-format off */
static const struct option_entry rows[] = {
    {"dev", OPTION_FLAG, OPTION_COMMAND, NULL, NULL, 0, 0, AT(dev), NULL,
     "A whole service on this machine, with a node of its own, for one user."},
    {"config", OPTION_TEXT, OPTION_COMMAND, "FILE", NULL, 0, 0, AT(config), NULL,
     "Options as TOML, each under its name here (default without --dev, where it exists: "
     OPTIONS_FILE "). The command line overrides the file; SIGHUP reads it again."},
    {"check-config", OPTION_FLAG, OPTION_COMMAND, NULL, NULL, 0, 0, AT(check_config), NULL,
     "Say what is wrong with the options and the file, and exit."},
    {"state", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(state), NULL,
     "What must survive a restart (default with --dev: $XDG_STATE_HOME/seqd-dev, else "
     "/var/lib/seqd)."},
    {"listen", OPTION_TEXT, OPTION_RESTART, "HOST:PORT", "127.0.0.1:7433", 0, 0, AT(listen), NULL,
     "REST; port 0: any free one, written to DIR/address."},
    {"socket", OPTION_TEXT, OPTION_RESTART, "PATH", NULL, 0, 0, AT(socket), NULL,
     "REST on a Unix socket, which tells seqd who asks (default DIR/seqd.sock)."},
    {"metrics-listen", OPTION_TEXT, OPTION_RESTART, "HOST:PORT", NULL, 0, 0, AT(metrics_listen), NULL,
     "GET /metrics, and nothing else, for a monitoring system: plain HTTP, without a token. It names "
     "nodes, jobs that serve by their ids, and no users."},
    {"tls-cert", OPTION_TEXT, OPTION_RESTART, "FILE", NULL, 0, 0, AT(tls_cert), NULL,
     "PEM: the certificate of REST with its chain; REST is https then. This file and --tls-key's are "
     "read again when they change, and at SIGHUP."},
    {"tls-key", OPTION_TEXT, OPTION_RESTART, "FILE", NULL, 0, 0, AT(tls_key), NULL,
     "PEM: the certificate's key."},
    {"tls-by-proxy", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(tls_by_proxy), NULL,
     "REST is plain HTTP, and a proxy before it speaks TLS."},
    {"node-address", OPTION_TEXT, OPTION_RESTART, "ADDR", NULL, 0, 0, AT(node), NULL,
     "Where nodes dial: unix:/path, or HOST:port (numeric) over TLS, where nodes join with a token "
     "of `seqctl nodes token`; insecure:HOST:port is plain, for tests and networks where every "
     "machine is trusted (default unix:DIR/node.sock)."},
    {"join-key", OPTION_TEXT, OPTION_RESTART, "FILE", NULL, 0, 0, AT(join_key), NULL,
     "32 or more random bytes (0600) that nodes named rank-1, rank-2, ... have, too, and join with "
     "instead of a token (seqw --join-key); `seqd run` gives it to its coordinator."},
    {"join-key-nodes", OPTION_NUMBER, OPTION_RESTART, "N", "1", 0, NODE_MAX, AT(join_key_nodes), NULL,
     "Names that may join with the key."},
    {"node-cert-ttl", OPTION_TEXT, OPTION_RESTART, "T", "30d", 0, 0, AT(cert_ttl), NULL,
     "How long certificates of nodes hold, as 12h or 30d; nodes renew them at half of it."},
    {"save-grace", OPTION_TEXT, OPTION_RESTART, "T", "10m", 0, 0, AT(save_grace), NULL,
     "How long a job may take to save when it is suspended, drained or at its time limit, as 30s or "
     "10m; then it is stopped with what it has saved before."},
    {"backfill-wall-s", OPTION_NUMBER, OPTION_RESTART, "N", "0", 0, 31536000, AT(backfill_wall_s), NULL,
     "How long jobs without limits.wall_s count as running where a job may start before the first in "
     "line; it ends no job. 0: no limit, so that nothing starts before one that waits for such jobs."},
    {"node-lost", OPTION_TEXT, OPTION_RESTART, "T", "10s", 0, 0, AT(node_lost), NULL,
     "How long a node may be silent, as 10s or 2m; then its jobs move to other nodes where there is "
     "a place for them: else they are away, and continue when it is back."},
    {"slots", OPTION_NUMBER, OPTION_RESTART, "N", NULL, 1, 4096, AT(slots), NULL,
     "With --dev: ranks the local node may run at once (default 8)."},
    {"sandbox", OPTION_TEXT, OPTION_RESTART, "MODE", NULL, 0, 0, AT(sandbox), sandbox_modes,
     "With --dev: what ranks may reach, off, auto or require (default auto; seqw --sandbox)."},
    {"no-pin", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(no_pin), NULL,
     "With --dev: leave it to the system which cores ranks run on (seqw --no-pin)."},
    {"root", OPTION_TEXTS, OPTION_RESTART, "DIR", NULL, 0, 0, AT(root), NULL,
     "With --dev: directory whose files jobs may read; may be repeated (default: the current "
     "directory). What seqd and nodes keep is read by no job beneath any root."},
    {"writable-root", OPTION_TEXTS, OPTION_RESTART, "DIR", NULL, 0, 0, AT(writable), NULL,
     "With --dev: directory beneath which jobs may publish results, by output.path, and keep what "
     "they offload, by memory.offload_dir; may be repeated."},
    {"backup-every", OPTION_TEXT, OPTION_RESTART, "T", NULL, 0, 0, AT(backup_every), NULL,
     "Back up the database while seqd runs, as every 1h, into the directory of --backup-dir, which "
     "may follow as a second word: --backup-every 1h DIR. A backup has seqd's secrets, and is the "
     "owner's alone (0600). A failure is logged and counted, and the service runs on."},
    {"backup-dir", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(backup_dir), NULL,
     "Where these backups go, best on another disk: seqd-TIME.db."},
    {"backup-keep", OPTION_NUMBER, OPTION_RESTART, "N", "24", 1, 10000, AT(backup_keep), NULL,
     "The newest N of them are kept."},
    {"uploads", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(uploads), NULL,
     "Where inputs go that clients push, beneath DIR/files/NAME: give nodes --root DIR/files, on a "
     "disk they share (default with --dev: uploads in the state directory; else none are taken)."},
    {"uploads-max", OPTION_TEXT, OPTION_RESTART, "SIZE", "64G", 0, 0, AT(uploads_max), NULL,
     "Bytes of all uploads, as 500G."},
    {"user-uploads-max", OPTION_TEXT, OPTION_RESTART, "SIZE", "16G", 0, 0, AT(user_uploads_max),
     NULL, "Bytes of one user's uploads."},
    {"user-jobs", OPTION_NUMBER, OPTION_RELOADS, "N", "10000", 0, 100000, AT(user.jobs), NULL,
     "Live jobs of a user; 0: any number. No limit of a user holds for operators and admins."},
    {"user-running", OPTION_NUMBER, OPTION_RELOADS, "N", "0", 0, 100000, AT(user.running), NULL,
     "Jobs of a user with ranks on nodes, more wait; 0: any number."},
    {"user-submits", OPTION_NUMBER, OPTION_RELOADS, "N", "6000", 0, 1000000, AT(user.submits), NULL,
     "Jobs and plans that a user may send in a minute; 0: any number."},
    {"serve-requests-min", OPTION_NUMBER, OPTION_RELOADS, "N", "0", 0, 1000000, AT(user.asks), NULL,
     "Requests beneath /openai/v1 that a user may send in a minute; more are 429; 0: any number."},
    {"serve-tokens-min", OPTION_NUMBER, OPTION_RELOADS, "N", "0", 0, 1000000000000, AT(user.tokens), NULL,
     "Tokens of prompts and answers that a user may take in a minute from jobs that serve; the request "
     "that passes N is answered, and further ones are 429; 0: any number."},
    {"user-disk-max", OPTION_TEXT, OPTION_RELOADS, "SIZE", "0", 0, 0, AT(user_disk_max), NULL,
     "Bytes that a user's jobs may take of disks, as 500G, with checkpoints and logs, as counted at "
     "most a minute ago: then new ones are refused until some are removed; 0: any number."},
    {"log", OPTION_TEXT, OPTION_RELOADS, "LEVEL", NULL, 0, 0, AT(log), log_levels,
     "debug, info, warn or error (default: $SEQD_LOG, else info)."},
    {"help", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(help), NULL,
     "This text."},
    {"version", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(version), NULL,
     "The version and the revision."},
};
/* clang-format on */

#define N_ROWS ((int)(sizeof rows / sizeof *rows))

/* Joins the rows above with the rows of retain.h. */
static const struct option_table *table(void)
{
    static struct option_entry all[N_ROWS + RETAIN_N];
    static const struct option_table whole = {
        .program = "seqd",
        .usage = "seqd --dev [options]      a whole service on this machine, loopback only\n"
                 "seqd [options]            the coordinator alone: nodes join with seqw --connect\n"
                 "seqd run SPEC [options]   one job with a service of its own, also in Slurm: see "
                 "seqd run --help\n"
                 "\n",
        .notes =
            "SIGHUP changes rows with [SIGHUP]; what else has changed in the file is logged.\n"
            "In the environment, for tests:\n"
            "  SEQD_HEARTBEAT_MS=N     how often nodes say that they run (default 2000); three "
            "missing: down\n",
        .rows = all,
        .n_rows = N_ROWS + RETAIN_N,
        .size = sizeof(struct options),
    };
    memcpy(all, rows, sizeof rows);
    for (int i = 0; i < RETAIN_N; i++) {
        const struct retain_row *r = &retain_rows[i];
        all[N_ROWS + i] = (struct option_entry){.name = r->option,
                                                .type = OPTION_TEXT,
                                                .reload = OPTION_RELOADS,
                                                .value = r->is_count ? "N" : "AGE",
                                                .otherwise = r->fallback,
                                                .offset = offsetof(struct options, keep[i]),
                                                .size = sizeof((struct options *)0)->keep[i],
                                                .help = r->sentence};
    }
    return &whole;
}

static int keep(const struct options *o, struct retain_policy *out, struct err *e)
{
    for (int i = 0; i < RETAIN_N; i++)
        if (retain_read(out, (enum retain_id)i, o->keep[i], e)) return -1;
    return 0;
}

static int add_root(struct options *o, const char *dir, struct err *e)
{
    char real[4096];
    struct stat st;
    if (o->n_roots == RANK_ROOTS)
        return err_set(e, ERR_INVALID, "--root may be given %d times: name a directory above some",
                       RANK_ROOTS);
    if (!realpath(dir, real) || stat(real, &st)) return err_errno(e, "--root %s", dir);
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_INVALID, "--root %s is not a directory", dir);
    if (strlen(real) >= RANK_PATH_SIZE)
        return err_set(e, ERR_INVALID,
                       "--root %s: the path is longer than %d bytes: give a shorter one", dir,
                       RANK_PATH_SIZE - 1);
    char *text = o->root_text[o->n_roots];
    memcpy(text, real, strlen(real) + 1);
    o->roots[o->n_roots++] = text;
    return 0;
}

/* Reads a number of bytes such as "500G". Units are powers of 1024. */
static int size_of(const char *option, const char *text, int64_t *out, struct err *e)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    if (*text >= '0' && *text <= '9' && !errno && (!*end || (unit && !end[1])) &&
        n <= ((int64_t)1 << 50) >> shift) {
        *out = (int64_t)n << shift;
        return 0;
    }
    return err_set(e, ERR_INVALID, "--%s %s: want bytes up to 2^50, or a number with K, M, G or T",
                   option, text);
}

static int user_disk(const struct options *o, int64_t *out, struct err *e)
{
    return size_of("user-disk-max", o->user_disk_max, out, e);
}

static int uploads_sizes(const struct options *o, int64_t *all, int64_t *user, struct err *e)
{
    return size_of("uploads-max", o->uploads_max, all, e) ||
                   size_of("user-uploads-max", o->user_uploads_max, user, e)
               ? -1
               : 0;
}

/* Sets the directory of uploads. The directory is made only when it is opened. */
static int uploads_dir(struct options *o, struct err *e)
{
    int n = snprintf(o->uploads_dir, sizeof o->uploads_dir, "%s", o->uploads);
    if (!n && o->dev)
        n = snprintf(o->uploads_dir, sizeof o->uploads_dir, "%s/uploads", o->state_dir);
    if (n < RANK_PATH_SIZE - 128) return 0;
    return err_set(e, ERR_INVALID, "--uploads %s: the path is too long", o->uploads_dir);
}

static int state_dir(struct options *o, struct err *e)
{
    char path[4096], real[4096];
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (*o->state)
        snprintf(path, sizeof path, "%s", o->state);
    else if (!o->dev)
        snprintf(path, sizeof path, "/var/lib/seqd");
    else if (xdg && *xdg)
        snprintf(path, sizeof path, "%s/seqd-dev", xdg);
    else if (home && *home)
        snprintf(path, sizeof path, "%s/.local/state/seqd-dev", home);
    else
        return err_set(e, ERR_INVALID, "HOME is not set: give --state DIR");
    if (strlen(path) >= RANK_PATH_SIZE - 64)
        return err_set(e, ERR_INVALID, "--state %s: the path is too long", path);
    if (file_make_private_dir(path, &o->n_mended, e)) return -1;
    if (!realpath(path, real)) return err_errno(e, "--state %s", path);
    if (strlen(real) >= RANK_PATH_SIZE - 64)
        return err_set(e, ERR_INVALID, "--state %s: the path is too long", real);
    memcpy(o->state_dir, real, strlen(real) + 1);
    return 0;
}

static int node_address(struct options *o, struct err *e)
{
    memcpy(o->node_address, o->node, sizeof o->node);
    if (!*o->node)
        snprintf(o->node_address, sizeof o->node_address, "unix:%.*s/node.sock",
                 RANK_PATH_SIZE - 32, o->state_dir);
    struct sockaddr_un un;
    if (!strncmp(o->node_address, "unix:", 5) && strlen(o->node_address + 5) >= sizeof un.sun_path)
        return err_set(e, ERR_INVALID,
                       "the socket %s is longer than %zu bytes: use a shorter --state, or "
                       "--node-address unix:/run/...",
                       o->node_address + 5, sizeof un.sun_path - 1);
    return 0;
}

/* Sets the path of REST's socket. A given path that is too long is refused later, by
 * listen_open_unix. */
static int rest_socket(struct options *o, struct err *e)
{
    struct sockaddr_un un;
    memcpy(o->socket_path, o->socket, sizeof o->socket);
    if (*o->socket) return 0;
    snprintf(o->socket_path, sizeof o->socket_path, "%.*s/seqd.sock", RANK_PATH_SIZE - 32,
             o->state_dir);
    if (strlen(o->socket_path) < sizeof un.sun_path) return 0;
    return err_set(e, ERR_INVALID,
                   "the socket %s is longer than %zu bytes: use a shorter --state, or --socket "
                   "/run/...",
                   o->socket_path, sizeof un.sun_path - 1);
}

static int from_environment(const char *name, int64_t otherwise, int64_t *out, struct err *e)
{
    const char *text = getenv(name);
    char *end;
    *out = otherwise;
    if (!text || !*text) return 0;
    *out = strtoll(text, &end, 10);
    if (!*end && *out >= 1 && *out <= 3600000) return 0;
    return err_set(e, ERR_INVALID, "%s=%s: want a number from 1 to 3600000", name, text);
}

static int cert_ttl(const struct options *o, int64_t *out_s, struct err *e)
{
    if (!duration_parse(o->cert_ttl, 1, JOIN_TTL_MAX_S, out_s, e)) return 0;
    return err_prefix(e, "--node-cert-ttl");
}

static int save_grace(const struct options *o, int64_t *out_s, struct err *e)
{
    if (!duration_parse(o->save_grace, 1, 86400, out_s, e)) return 0;
    return err_prefix(e, "--save-grace");
}

static int node_lost(const struct options *o, int64_t *out_ms, struct err *e)
{
    int64_t s;
    if (duration_parse(o->node_lost, 1, 86400, &s, e)) return err_prefix(e, "--node-lost");
    *out_ms = s * 1000;
    return 0;
}

static int backup_every(const struct options *o, int64_t *out_ms, struct err *e)
{
    int64_t s = 0;
    if (!*o->backup_every != !*o->backup_dir)
        return err_set(e, ERR_INVALID,
                       "--backup-every T and --backup-dir DIR belong together: give %s, too",
                       *o->backup_dir ? "--backup-every 1h" : "--backup-dir DIR");
    if (*o->backup_every && duration_parse(o->backup_every, 60, 365 * 86400, &s, e))
        return err_prefix(e, "--backup-every");
    *out_ms = s * 1000;
    return 0;
}

/* Copies the command line. A word that follows the value of --backup-every and is not an option is
 * the value of --backup-dir. */
static int copy_line(struct options_line *o, int argc, char **argv, struct err *e)
{
    static char name[] = "--backup-dir";
    o->argc = 0;
    for (int i = 0; i < argc; i++) {
        const bool dir = i > 2 && !strcmp(argv[i - 2], "--backup-every") && *argv[i] != '-';
        if (o->argc + 3 > OPTIONS_ARGS)
            return err_set(e, ERR_INVALID, "the command line has more than %d words",
                           OPTIONS_ARGS - 2);
        if (dir) o->argv[o->argc++] = name;
        o->argv[o->argc++] = argv[i];
    }
    o->argv[o->argc] = NULL;
    return 0;
}

/* Checks that REST's TCP socket cannot be reached from other machines, unless it is encrypted by
 * seqd or by a proxy. If the text is not an address, listen_open refuses it later. */
static int rest_tls(const struct options *o, struct err *e)
{
    const bool tls = *o->tls_cert;
    if (tls != (*o->tls_key != 0))
        return err_set(e, ERR_INVALID, "--tls-cert and --tls-key belong together: give %s, too",
                       tls ? "--tls-key FILE" : "--tls-cert FILE");
    if (tls && o->tls_by_proxy)
        return err_set(e, ERR_INVALID,
                       "--tls-by-proxy says that a proxy speaks TLS in seqd's place: leave out "
                       "either it or --tls-cert and --tls-key");
    if (tls || o->tls_by_proxy || listen_is_loopback(o->listen)) return 0;
    return err_set(e, ERR_INVALID,
                   "--listen %s: other machines reach it, and what they send could be read on the "
                   "way: give --tls-cert FILE and --tls-key FILE, or --tls-by-proxy where a proxy "
                   "speaks TLS, or listen on 127.0.0.1:7433",
                   o->listen);
}

bool options_local_only(const struct options *o)
{
    return listen_is_loopback(o->listen) == 1 && !*o->tls_cert && !o->tls_by_proxy;
}

/* Checks the rules that are about several rows. Changes no value. */
static int check(const void *target, struct err *e)
{
    const struct options *o = target;
    int64_t ttl_s, grace_s, lost_ms, all, own;
    if (rest_tls(o, e)) return -1;
    if (*o->node && address_check(o->node, e)) return err_prefix(e, "--node-address");
    if (*o->join_key && (!*o->node || address_is_plain(o->node)))
        return err_set(e, ERR_INVALID,
                       "--join-key is for nodes that join over TLS: give --node-address HOST:port");
    if (*o->node && o->dev && !address_is_plain(o->node))
        return err_set(
            e, ERR_INVALID,
            "--node-address %s: sessions there need certificates, which the node of --dev "
            "has not: leave it out, or start seqd without --dev",
            o->node);
    struct retain_policy policy;
    if (save_grace(o, &grace_s, e) || node_lost(o, &lost_ms, e)) return -1;
    if (cert_ttl(o, &ttl_s, e) || keep(o, &policy, e) || uploads_sizes(o, &all, &own, e) ||
        user_disk(o, &all, e) || backup_every(o, &own, e))
        return -1;
    if (!o->dev && (o->root.n || o->writable.n || o->slots || o->no_pin || *o->sandbox))
        return err_set(e, ERR_INVALID,
                       "--slots, --no-pin, --sandbox, --root and --writable-root belong to --dev; "
                       "other nodes say their own");
    return 0;
}

/* Refuses a directory to which the agent could not write. Otherwise the agent would exit with this
 * error, and seqd would run without a node. */
static int check_writable(const char *dir, struct err *e)
{
    char real[4096];
    if (!realpath(dir, real) || access(real, W_OK | X_OK))
        return err_errno(e, "--writable-root %s", dir);
    if (strlen(real) >= RANK_PATH_SIZE)
        return err_set(e, ERR_INVALID,
                       "--writable-root %s: the path is longer than %d bytes: give a shorter one",
                       dir, RANK_PATH_SIZE - 1);
    if (!beneath_private(real)) return 0;
    return err_set(e, ERR_INVALID,
                   "--writable-root %s lies in a directory that seqd keeps: give another", real);
}

static int roots(struct options *o, struct err *e)
{
    for (int i = 0; i < o->writable.n; i++)
        if (check_writable(o->writable.text[i], e)) return -1;
    for (int i = 0; i < o->root.n; i++)
        if (add_root(o, o->root.text[i], e)) return -1;
    if (!o->dev || o->n_roots) return 0;
    return add_root(o, ".", e);
}

static int finish(struct options *o, struct err *e)
{
    if (from_environment("SEQD_HEARTBEAT_MS", WIRE_HEARTBEAT_MS, &o->heartbeat_ms, e) ||
        node_lost(o, &o->lost_ms, e))
        return -1;
    if (save_grace(o, &o->save_grace_s, e) || cert_ttl(o, &o->cert_ttl_s, e) || state_dir(o, e) ||
        node_address(o, e) || rest_socket(o, e) || keep(o, &o->policy, e) || uploads_dir(o, e) ||
        user_disk(o, &o->user.disk, e) || backup_every(o, &o->backup_ms, e) ||
        uploads_sizes(o, &o->uploads_bytes, &o->user_uploads_bytes, e))
        return -1;
    o->n_slots = o->slots ? (int)o->slots : 8;
    return roots(o, e);
}

static const char *config_file(const void *target)
{
    const struct options *o = target;
    if (*o->config) return o->config;
    return !o->dev && file_exists(OPTIONS_FILE) ? OPTIONS_FILE : NULL;
}

int options_read(struct options *o, int argc, char **argv, struct err *e)
{
    struct options_line line; /* settings_read clears *o */
    if (copy_line(&line, argc, argv, e)) return -1;
    int rc = settings_read(table(), line.argc, line.argv, config_file, o, NULL, e);
    if (rc > 0 && o->version) printf("seqd %s\n", version_text());
    if (rc) return rc;
    if (check(o, e)) return -1;
    if (o->check_config) return printf("seqd: the options are right\n"), 1;
    o->line = line;
    log_level_set(o->log);
    return finish(o, e);
}

int options_reload(struct options *o, struct err *e)
{
    if (settings_reload(table(), o->line.argc, o->line.argv, config_file, check, o, e) < 0)
        return -1;
    if (keep(o, &o->policy, e) || user_disk(o, &o->user.disk, e)) return -1;
    log_level_set(o->log);
    return 0;
}

static bool write_line(const char *path, const char *mode, const char *line)
{
    FILE *f = fopen(path, mode);
    if (!f) return false;
    bool bad = fprintf(f, "%s\n", line) < 0;
    bad |= fflush(f) != 0;
    bad |= ftruncate(fileno(f), ftell(f)) != 0;
    return !(bad | (fclose(f) != 0));
}

int options_write_address(const struct options *o, const char *url, struct err *e)
{
    char path[RANK_PATH_SIZE + 32], tmp[RANK_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/address", o->state_dir);
    snprintf(tmp, sizeof tmp, "%s/address.tmp", o->state_dir);
    if (write_line(tmp, "we", url) && !rename(tmp, path)) return 0;
    const int no = errno;
    unlink(tmp);
    /* On a full disk, overwrite the old file, because it still has its block. */
    if ((no == ENOSPC || no == EDQUOT) && write_line(path, "r+e", url)) return 0;
    errno = no;
    return err_errno(e, "write %s", path);
}
