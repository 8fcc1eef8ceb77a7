/* launch.h: starts an attempt from seqd's ASSIGN: resolves its grants, binds its ranks to cores,
 * makes its start record durable and starts its gang. Whether an attempt may begin is decided in
 * orders.c. Loop thread.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_LAUNCH_H
#define SEQD_AGENT_LAUNCH_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/wire.h"

struct attempt;
struct gpus;
struct pins;
struct state_dir;

struct launch { /* the parts of this node that a start uses; borrowed for the call */
    struct loop *loop;
    const struct state_dir *state_dir;
    const struct attempt *attempts;          /* all attempts on this node: their cores are taken */
    struct gpus *gpus;                       /* NULL: there are none */
    struct pins *pins;                       /* NULL: ranks are not bound to cores */
    const char *node;                        /* this node's name, for errors */
    const char *address;                     /* address at which ranks listen: RANK_ADDRESS_SIZE
                                              * bytes */
    const char *gang_program, *rank_program; /* seqgang, seqrank */
    int64_t orphan_ms;                       /* see struct agent_options */
};

/* Checks the GPUs of assign by their newest sample (gpus_get) before a rank is started, since
 * seqd's data are some seconds older. Returns the first rank whose GPU is unfit or missing, and
 * sets ERR_DEVICE; -1: there is none. */
int launch_unfit_rank(const struct launch *l, const struct msg *assign, struct err *e);
/* Starts an attempt. Records the job's epoch before the gang is started, so that from then on no
 * older attempt of the job can begin. Returns NULL if no gang was started; the attempt's directory
 * is then gone.
 * fails: as grants_spec, file_make_dir, state_dir_epoch_set and attempt_begin; ERR_TOO_LARGE for
 * the path of seqrank. */
struct attempt *launch_attempt(const struct launch *l, const struct msg *assign, struct err *e);

#endif
