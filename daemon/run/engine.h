/* engine.h: finds a run's number of nodes, this process's rank and the address of rank 0 in the
 * environment variables that an engine such as Slurm or Kubernetes sets (`seqd run --auto`).
 * tested: tests/daemon/test_seqd_engine.c, tests/scripts/ranks.sh */
#ifndef SEQD_DAEMON_RUN_ENGINE_H
#define SEQD_DAEMON_RUN_ENGINE_H

#include <stdint.h>
#include "api/core/err.h"

#define ENGINE_HOST_SIZE 256

struct engine_found {
    const char *name;            /* "slurm"; static */
    int64_t nodes;               /* 0 if the engine does not tell it */
    int64_t rank;                /* from 0 */
    char host[ENGINE_HOST_SIZE]; /* name or address of rank 0; "" if the engine does not tell it */
    int port;                    /* 0 if the engine does not tell it */
};

/* Finds the engine of this name, or the only engine if `name` is "". `env` has "NAME=value" texts
 * and ends with NULL. `self` is the fully qualified name of this host. Fails with ERR_INVALID if
 * there is no such engine, if there are several, or if a variable has an invalid value. The error
 * names the engines and the variable. */
int engine_find(struct engine_found *out, const char *name, char *const *env, const char *self,
                struct err *e);

#endif
