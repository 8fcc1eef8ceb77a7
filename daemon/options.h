/* options.h: the options of seqd from its command line and seqd.toml. They are checked, defaults
 * are filled in, and paths are absolute. A new option needs a member here and a row in
 * options.c. */
#ifndef SEQD_DAEMON_OPTIONS_H
#define SEQD_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/option.h"
#include "api/core/rank.h"
#include "daemon/state/retain.h"
#include "daemon/state/users.h"

/* read if it exists, unless --config or --dev is given */
#define OPTIONS_FILE "/etc/seqd/seqd.toml"

#define OPTIONS_ARGS 256 /* largest number of words of the command line */

struct options_line {
    int argc;
    char *argv[OPTIONS_ARGS];
};

struct options {
    /* The rows of the table, as they were given. Only the reader of options writes to them. */
    bool dev, check_config, help, version;
    char config[RANK_PATH_SIZE];
    char state[RANK_PATH_SIZE];
    char listen[128];            /* address of REST */
    char metrics_listen[128];    /* "" if there is none */
    char socket[RANK_PATH_SIZE]; /* --socket */
    /* TLS of listen; "" stands for plain HTTP */
    char tls_cert[RANK_PATH_SIZE], tls_key[RANK_PATH_SIZE];
    bool tls_by_proxy;
    char node[RANK_PATH_SIZE];     /* --node-address */
    char join_key[RANK_PATH_SIZE]; /* "" if there is none */
    int64_t join_key_nodes;
    char cert_ttl[32];
    char save_grace[32];
    int64_t backfill_wall_s;
    char node_lost[32];
    int64_t slots;
    bool no_pin;
    char sandbox[16]; /* a word of sandbox_modes; "" is the agent's default */
    struct option_list root, writable;
    struct users_limits user;
    char keep[RETAIN_N][24]; /* --keep-*, the rows of retain.h */
    char backup_every[32], backup_dir[RANK_PATH_SIZE];
    int64_t backup_keep;
    char uploads[RANK_PATH_SIZE];
    char uploads_max[32], user_uploads_max[32], user_disk_max[32];
    char log[16];
    /* Values that are derived from the rows. */
    char node_address[RANK_PATH_SIZE]; /* gRPC, for seqw */
    int64_t cert_ttl_s;                /* life of nodes' certificates */
    int64_t save_grace_s;
    struct retain_policy policy;    /* set by --keep-* */
    int n_slots;                    /* slots of the node that --dev starts */
    char state_dir[RANK_PATH_SIZE]; /* exists, 0700 */
    /* number of files in state_dir that other users could read before */
    int n_mended;
    int64_t lost_ms;                  /* set by --node-lost */
    int64_t backup_ms;                /* set by --backup-every; 0 if it is not given */
    int64_t heartbeat_ms;             /* time between heartbeats of nodes; tests set it in the
                                       * environment */
    char socket_path[RANK_PATH_SIZE]; /* REST for this machine */
    char uploads_dir[RANK_PATH_SIZE]; /* "" if seqd takes no uploads */
    int64_t uploads_bytes, user_uploads_bytes;
    const char *roots[RANK_ROOTS];
    int n_roots;
    char root_text[RANK_ROOTS][RANK_PATH_SIZE];
    struct options_line line; /* for options_reload */
};

/* Reads the options. Returns 0 if seqd should run, and 1 if --help, --version or --check-config
 * was answered. Returns -1 if an option is wrong; *e has the reason. */
int options_read(struct options *o, int argc, char **argv, struct err *e);
/* Called at SIGHUP. Applies the values that may change while seqd runs. If a changed value needs a
 * restart, this is only logged. Returns -1 if the file is wrong; *e names the line, and no value
 * has changed. */
int options_reload(struct options *o, struct err *e);
/* Tells whether only clients of this machine can use REST's TCP socket. This is true if the socket
 * is bound to loopback and there is no proxy. */
bool options_local_only(const struct options *o);
/* Writes the URL to <state>/address, in which clients find the port if it was given as 0. */
int options_write_address(const struct options *o, const char *url, struct err *e);

#endif
