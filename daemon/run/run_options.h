/* run_options.h: the options of `seqd run`, from its command line and Slurm. */
#ifndef SEQD_DAEMON_RUN_RUN_OPTIONS_H
#define SEQD_DAEMON_RUN_RUN_OPTIONS_H

#include <stdbool.h>
#include "api/core/option.h"
#include "api/core/rank.h"

struct run_options {
    char spec[RANK_PATH_SIZE];
    char state[RANK_PATH_SIZE];  /* "": temporary */
    char output[RANK_PATH_SIZE]; /* "": results stay where they are */
    char address[64];            /* "": the host that srun names to its tasks */
    int64_t nodes;               /* number of nodes; 1: this machine, without srun */
    int64_t slots;               /* slots of each node; 0: as `seqw --auto` finds */
    int64_t wait_s;
    struct option_list root;
    bool verbose, help;
};

/* Reads the options; argv[0] is "run". Returns 0: run; 1: --help was answered; -1: *e has the
 * error. */
int run_options_read(struct run_options *o, int argc, char **argv, struct err *e);

#endif
