#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/version.h"
#include "daemon/listen.h"
#include "daemon/node.h"

static const char help[] =
    "seqd --dev [options]      a whole service on this machine, loopback only\n"
    "seqd [options]            the coordinator alone: nodes join with seqw --connect\n"
    "\n"
    "  --state DIR             what must survive a restart (default with --dev:\n"
    "                          $XDG_STATE_HOME/seqd-dev, else /var/lib/seqd)\n"
    "  --listen HOST:PORT      REST (default 127.0.0.1:7433); port 0: any free one, written to\n"
    "                          DIR/address\n"
    "  --socket PATH           REST on a Unix socket, which tells seqd who asks (default\n"
    "                          DIR/seqd.sock)\n"
    "  --node-address ADDR     where nodes dial: unix:/path or 127.0.0.1:port, or "
    "insecure:HOST:port\n"
    "                          where every machine of the network is trusted: sessions are "
    "neither\n"
    "                          encrypted nor authenticated (default unix:DIR/node.sock)\n"
    "  --slots N               with --dev: ranks the local node may run at once (default 8)\n"
    "  --root DIR              with --dev: directory whose files jobs may read; may be repeated\n"
    "                          (default: the current directory and the state directory)\n"
    "  --help, --version\n"
    "In the environment, for tests:\n"
    "  SEQD_HEARTBEAT_MS=N     how often nodes say that they run (default 2000); three missing: "
    "down\n"
    "  SEQD_LOST_MS=N          a node unseen for so long is given up (default 10000)\n";

enum {
    OPT_DEV = 256,
    OPT_STATE,
    OPT_LISTEN,
    OPT_SOCKET,
    OPT_NODE,
    OPT_SLOTS,
    OPT_ROOT,
    OPT_HELP,
    OPT_VERSION
};

static const struct option longs[] = {
    {"dev", no_argument, NULL, OPT_DEV},
    {"state", required_argument, NULL, OPT_STATE},
    {"listen", required_argument, NULL, OPT_LISTEN},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"node-address", required_argument, NULL, OPT_NODE},
    {"slots", required_argument, NULL, OPT_SLOTS},
    {"root", required_argument, NULL, OPT_ROOT},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static int add_root(struct options *o, const char *dir, struct err *e)
{
    char real[4096];
    struct stat st;
    if (o->n_roots == RANK_ROOTS) return err_set(e, ERR_INVALID, "--root: at most %d", RANK_ROOTS);
    if (!realpath(dir, real) || stat(real, &st)) return err_errno(e, "--root %s", dir);
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_INVALID, "--root %s is not a directory", dir);
    if (strlen(real) >= RANK_PATH_SIZE)
        return err_set(e, ERR_INVALID, "--root %s: the path is too long", dir);
    char *text = o->root_text[o->n_roots];
    memcpy(text, real, strlen(real) + 1);
    o->roots[o->n_roots++] = text;
    return 0;
}

static int state_dir(struct options *o, const char *given, struct err *e)
{
    char path[4096], real[4096];
    const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    if (given)
        snprintf(path, sizeof path, "%s", given);
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
    if (!*o->node_address)
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

/* Another one's length is listen_open_unix's to refuse. */
static int rest_socket(struct options *o, struct err *e)
{
    struct sockaddr_un un;
    if (*o->socket) return 0;
    snprintf(o->socket, sizeof o->socket, "%.*s/seqd.sock", RANK_PATH_SIZE - 32, o->state_dir);
    if (strlen(o->socket) < sizeof un.sun_path) return 0;
    return err_set(e, ERR_INVALID,
                   "the socket %s is longer than %zu bytes: use a shorter --state, or --socket "
                   "/run/...",
                   o->socket, sizeof un.sun_path - 1);
}

static int from_environment(const char *name, int64_t otherwise, int64_t *out, struct err *e)
{
    const char *text = getenv(name);
    char *end;
    *out = otherwise;
    if (!text || !*text) return 0;
    *out = strtoll(text, &end, 10);
    if (!*end && *out >= 1 && *out <= 3600000) return 0;
    return err_set(e, ERR_INVALID, "%s=%s: from 1 to 3600000", name, text);
}

static int finish(struct options *o, const char *state, struct err *e)
{
    if (from_environment("SEQD_HEARTBEAT_MS", WIRE_HEARTBEAT_MS, &o->heartbeat_ms, e) ||
        from_environment("SEQD_LOST_MS", NODE_LOST_MS, &o->lost_ms, e))
        return -1;
    int loopback = listen_is_loopback(o->listen);
    if (!loopback)
        return err_set(e, ERR_UNSUPPORTED,
                       "--listen %s: other machines could reach it and there is no authentication "
                       "yet; use a loopback address such as 127.0.0.1:7433",
                       o->listen);
    if (state_dir(o, state, e) || node_address(o, e) || rest_socket(o, e)) return -1;
    if (!o->dev && (o->n_roots || o->n_slots))
        return err_set(e, ERR_INVALID,
                       "--slots and --root belong to --dev; other nodes say their own");
    if (!o->n_slots) o->n_slots = 8;
    if (o->dev && !o->n_roots && (add_root(o, ".", e) || add_root(o, o->state_dir, e))) return -1;
    return 0;
}

int options_read(struct options *o, int argc, char **argv, struct err *e)
{
    const char *state = NULL;
    memset(o, 0, sizeof *o);
    snprintf(o->listen, sizeof o->listen, "127.0.0.1:7433");
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case OPT_DEV: o->dev = true; break;
        case OPT_STATE: state = optarg; break;
        case OPT_LISTEN: snprintf(o->listen, sizeof o->listen, "%s", optarg); break;
        case OPT_SOCKET: snprintf(o->socket, sizeof o->socket, "%s", optarg); break;
        case OPT_NODE: snprintf(o->node_address, sizeof o->node_address, "%s", optarg); break;
        case OPT_SLOTS:
            o->n_slots = atoi(optarg);
            if (o->n_slots < 1 || o->n_slots > 4096)
                return err_set(e, ERR_INVALID, "--slots %s: from 1 to 4096", optarg);
            break;
        case OPT_ROOT:
            if (add_root(o, optarg, e)) return -1;
            break;
        case OPT_HELP: return fputs(help, stdout), 1;
        case OPT_VERSION: return printf("seqd %s\n", version_text()), 1;
        default:
            return err_set(e, ERR_INVALID, "unknown option %s: see seqd --help", argv[optind - 1]);
        }
    }
    if (optind < argc) return err_set(e, ERR_INVALID, "%s: see seqd --help", argv[optind]);
    return finish(o, state, e);
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
    /* A full disk still has the block that the last one is in. */
    if ((no == ENOSPC || no == EDQUOT) && write_line(path, "r+e", url)) return 0;
    errno = no;
    return err_errno(e, "write %s", path);
}
