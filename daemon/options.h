/* options.h: the options of seqd from its command line and seqd.toml, checked, with defaults
 * filled in and paths made absolute. A new option is a member and a row of options.c. */
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
    char node[RANK_PATH_SIZE]; /* --node-address */
    char cert_ttl[32];
    char save_grace[32];
    char node_lost[32];
    int64_t slots;
    bool no_pin;
    struct option_list root, writable;
    struct users_limits user;
    char keep[RETAIN_N][24]; /* --keep-*, the rows of retain.h */
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
    /* files in state_dir that other users could read until now */
    int n_mended;
    int64_t lost_ms;                  /* set by --node-lost */
    int64_t heartbeat_ms;             /* nodes' heartbeat, which tests set in the environment */
    char socket_path[RANK_PATH_SIZE]; /* REST for this machine */
    char uploads_dir[RANK_PATH_SIZE]; /* "" if seqd takes no uploads */
    int64_t uploads_bytes, user_uploads_bytes;
    const char *roots[RANK_ROOTS];
    int n_roots;
    char root_text[RANK_ROOTS][RANK_PATH_SIZE];
    int argc; /* for options_reload */
    char **argv;
};

/* Reads the options. Returns 0 if seqd should run, 1 if --help, --version or --check-config was
 * answered, and -1 if an option is wrong, with the reason in *e. */
int options_read(struct options *o, int argc, char **argv, struct err *e);
/* At SIGHUP, applies the values that may change while seqd runs. Changed values that need a
 * restart are only logged. Returns -1 if the file is wrong; *e says where, and nothing has
 * changed. */
int options_reload(struct options *o, struct err *e);
/* Tells whether only clients of this machine can use REST's TCP socket. This is so if the socket
 * is bound to loopback and no proxy is in front of it. */
bool options_local_only(const struct options *o);
/* Writes the URL to <state>/address, for a caller that gave port 0. */
int options_write_address(const struct options *o, const char *url, struct err *e);

#endif
