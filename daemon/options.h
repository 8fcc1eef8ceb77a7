/* options.h: the command line of seqd, checked, with defaults and absolute paths. */
#ifndef SEQD_DAEMON_OPTIONS_H
#define SEQD_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

struct options {
    bool dev;
    char state_dir[RANK_PATH_SIZE];    /* exists, 0700 */
    int n_mended;                      /* files there that others could read until now */
    char listen[128];                  /* REST */
    char socket[RANK_PATH_SIZE];       /* the same, for this machine */
    char node_address[RANK_PATH_SIZE]; /* gRPC, for seqw */
    int n_slots;                       /* of the node that --dev starts */
    int64_t heartbeat_ms, lost_ms;     /* of nodes; from the environment: tests */
    const char *roots[RANK_ROOTS];
    int n_roots;
    char root_text[RANK_ROOTS][RANK_PATH_SIZE];
};

/* 0: run; 1: --help or --version was answered; -1: wrong, *e says what. */
int options_read(struct options *o, int argc, char **argv, struct err *e);
/* Writes the URL to <state>/address, for a caller that gave port 0. */
int options_write_address(const struct options *o, const char *url, struct err *e);

#endif
