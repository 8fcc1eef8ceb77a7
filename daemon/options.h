/* options.h: the options of seqd, from its command line and seqd.toml, checked, with defaults and
 * absolute paths. A new option is a member and a row of options.c. */
#ifndef SEQD_DAEMON_OPTIONS_H
#define SEQD_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/option.h"
#include "api/core/rank.h"
#include "daemon/state/retain.h"
#include "daemon/state/users.h"

#define OPTIONS_FILE "/etc/seqd/seqd.toml" /* read if it exists, without --config and --dev */

struct options {
    /* The rows of the table, as they were given: no other code writes to them. */
    bool dev, check_config, help, version;
    char config[RANK_PATH_SIZE];
    char state[RANK_PATH_SIZE];
    char listen[128];                                       /* address of REST */
    char metrics_listen[128];                               /* "": none */
    char socket[RANK_PATH_SIZE];                            /* --socket */
    char tls_cert[RANK_PATH_SIZE], tls_key[RANK_PATH_SIZE]; /* TLS of listen; "": plain HTTP */
    bool tls_by_proxy;
    char node[RANK_PATH_SIZE]; /* --node-address */
    char cert_ttl[32];
    char save_grace[32];
    char node_lost[32];
    int64_t slots;
    bool no_pin;
    struct option_list root, writable;
    struct users_limits user;
    char keep[RETAIN_N][24]; /* --keep-*: rows of retain.h */
    char uploads[RANK_PATH_SIZE];
    char uploads_max[32], user_uploads_max[32], user_disk_max[32];
    char log[16];
    /* Values that follow from the rows. */
    char node_address[RANK_PATH_SIZE]; /* gRPC, for seqw */
    int64_t cert_ttl_s;                /* life of nodes' certificates */
    int64_t save_grace_s;
    struct retain_policy policy;      /* set by --keep-* */
    int n_slots;                      /* slots of the node that --dev starts */
    char state_dir[RANK_PATH_SIZE];   /* exists, 0700 */
    int n_mended;                     /* files in state_dir that others could read until now */
    int64_t lost_ms;                  /* set by --node-lost */
    int64_t heartbeat_ms;             /* nodes' heartbeat; from the environment: tests */
    char socket_path[RANK_PATH_SIZE]; /* REST for this machine */
    char uploads_dir[RANK_PATH_SIZE]; /* "": none are taken */
    int64_t uploads_bytes, user_uploads_bytes;
    const char *roots[RANK_ROOTS];
    int n_roots;
    char root_text[RANK_ROOTS][RANK_PATH_SIZE];
    int argc; /* for options_reload */
    char **argv;
};

/* Reads the options. 0: run; 1: --help, --version or --check-config was answered; -1: wrong, *e
 * says what. */
int options_read(struct options *o, int argc, char **argv, struct err *e);
/* At SIGHUP, takes the values that may change while seqd runs, and logs those that need a restart.
 * -1: the file is wrong, *e says where, and nothing has changed. */
int options_reload(struct options *o, struct err *e);
/* Tells whether REST's TCP is for this machine's own clients: loopback, and no proxy before it. */
bool options_local_only(const struct options *o);
/* Writes the URL to <state>/address, for a caller that gave port 0. */
int options_write_address(const struct options *o, const char *url, struct err *e);

#endif
