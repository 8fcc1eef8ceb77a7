/* launch.h: starts an attempt from seqd's ASSIGN. It resolves the attempt's grants, binds its
 * ranks to cores, makes its start record durable and starts its gang. orders.c decides whether an
 * attempt may begin. The functions are called on the loop thread.
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

struct launch { /* The parts of this node that the start of an attempt uses. They are borrowed
                 * for the call. */
    struct loop *loop;
    const struct state_dir *state_dir;
    const struct attempt *attempts;          /* all attempts on this node; the cores of their ranks
                                              * are not free */
    struct gpus *gpus;                       /* NULL if this node has no GPUs */
    struct pins *pins;                       /* NULL if ranks are not bound to cores */
    const char *node;                        /* name of this node, for use in error messages */
    const char *address;                     /* address at which ranks listen, RANK_ADDRESS_SIZE
                                              * bytes */
    const char *gang_program, *rank_program; /* seqgang, seqrank */
    int64_t orphan_ms;                       /* see struct agent_options */
    int sandbox;                             /* enum sandbox_mode */
};

/* Checks the GPUs of assign against their newest sample (gpus_get). Call this function before a
 * rank is started, because the data from which seqd chose the GPUs are some seconds older. Returns
 * the first rank whose GPU is unfit or missing, and sets ERR_DEVICE. Returns -1 if there is no
 * such rank. */
int launch_unfit_rank(const struct launch *l, const struct msg *assign, struct err *e);
/* Starts an attempt. Records the job's epoch before the gang is started, so that no attempt of
 * the job with an older epoch can begin later. If no gang could be started, removes the
 * attempt's directory and returns NULL. Fails as grants_spec, file_make_dir,
 * state_dir_epoch_set and attempt_begin do. Also fails with ERR_TOO_LARGE if the path of
 * seqrank is too long. */
struct attempt *launch_attempt(const struct launch *l, const struct msg *assign, struct err *e);

#endif
