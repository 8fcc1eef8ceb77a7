/* launch.h: starts an attempt from seqd's ASSIGN: its grants are resolved, its ranks are bound to
 * cores, its start record is made durable, its gang is started. Whether an attempt may begin at all
 * is the agent's decision (agent.c). Loop thread.
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

struct launch { /* parts of this node that a start needs; borrowed for the call */
    struct loop *loop;
    const struct state_dir *state_dir;
    const struct attempt *attempts;          /* all attempts on this node: their cores are taken */
    struct gpus *gpus;                       /* NULL: there are none */
    struct pins *pins;                       /* NULL: ranks are not bound to cores */
    const char *node;                        /* this node's name, for sentences */
    const char *address;                     /* ranks listen here: RANK_ADDRESS_SIZE bytes */
    const char *gang_program, *rank_program; /* seqgang, seqrank */
    int64_t orphan_ms;                       /* see struct agent_options */
};

/* Checks the GPUs of assign by the newest look at them (gpus_get) before a rank is started, since
 * seqd's look is some seconds older. Returns the first rank whose GPU is unfit or missing, with
 * ERR_DEVICE; or -1. */
int launch_unfit_rank(const struct launch *l, const struct msg *assign, struct err *e);
/* Starts an attempt. The epoch of the job is recorded before the gang is started, so that no older
 * attempt of it can begin from here on. NULL: no gang was started, and its directory is gone.
 * fails: as grants_spec, file_make_dir, state_dir_epoch_set and attempt_begin; ERR_TOO_LARGE for
 * the path of seqrank. */
struct attempt *launch_attempt(const struct launch *l, const struct msg *assign, struct err *e);

#endif
