/* run_options.h: the options of `seqd run`, from its command line and its engine. */
#ifndef SEQD_DAEMON_RUN_RUN_OPTIONS_H
#define SEQD_DAEMON_RUN_RUN_OPTIONS_H

#include <stdbool.h>
#include "api/core/option.h"
#include "api/core/rank.h"
#include "daemon/run/engine.h"

struct run_options {
    char spec[RANK_PATH_SIZE];
    char state[RANK_PATH_SIZE];  /* "" for a temporary directory */
    char output[RANK_PATH_SIZE]; /* "" if results should remain in the state directory */
    char address[64];            /* "" stands for the host that srun names to its tasks */
    char interface[32];          /* network interface of ranks; "" for the one towards rank 0 */
    char sandbox[16];            /* the agents' --sandbox */
    int64_t nodes;               /* number of nodes; 1 stands for this machine, without srun */
    /* This process's rank among the nodes, each of which has a process of its own. -1 if this
     * process starts all nodes. */
    int64_t node_rank;
    char join_key[RANK_PATH_SIZE]; /* file of the key that all ranks have */
    char engine[32];               /* --auto=NAME */
    /* place of rank 0 as in --master, and its host and its port */
    char master[ENGINE_HOST_SIZE + 16], host[ENGINE_HOST_SIZE];
    int port;
    /* slots of each node; 0 stands for the number that `seqw --auto` finds */
    int64_t slots;
    int64_t wait_s;
    struct option_list root;
    bool verbose, help;
};

/* Reads the options. argv[0] is "run". Returns 0 if the job should run, 1 if --help was answered,
 * and -1 with the error in *e. */
int run_options_read(struct run_options *o, int argc, char **argv, struct err *e);

#endif
