/* farthest.h: how far a job has come over all of its attempts, and which of its failures happen
 * again at the same place. It is a part of the fold (jobs.h), and pure. */
#ifndef SEQD_DAEMON_STATE_FARTHEST_H
#define SEQD_DAEMON_STATE_FARTHEST_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/state/event.h"

#define FARTHEST_NAMES 4096 /* products that are remembered, which take 32 KiB of a job */
/* failures that are remembered; a further one replaces the oldest */
#define FARTHEST_FAILURES 8
/* a failure is final when it has happened this many times at the same place */
#define FARTHEST_AGAIN 3

/* A failure and its place, which is the task and the step after which it happened. */
struct farthest_failure {
    int32_t task, code, exit_status, signal;
    int64_t step, epoch, count; /* epoch is that of the latest such failure */
};

struct farthest {
    int64_t step;   /* the farthest completed step */
    int64_t stored; /* the farthest step that an event records, which may be smaller than `step` */
    uint64_t *name; /* owns */
    int n_names;
    struct farthest_failure *failed; /* owns */
    int n_failed;
};

void farthest_fini(struct farthest *r);
/* Begins again, as if no attempt had reached any step. */
void farthest_clear(struct farthest *r);
/* Notes a step. Returns true if no attempt has come as far before. */
bool farthest_step(struct farthest *r, int64_t step);
/* Notes a product. Returns true if it is the first product of that name or, if the name is NULL,
 * the first of that step. */
bool farthest_product(struct farthest *r, enum job_event type, const char *name, int64_t step);
/* Returns how often the FAILED_AT ev has happened at its place, including this time. */
int32_t farthest_count(const struct farthest *r, const struct event *ev);
/* Folds a FAILED_AT. */
void farthest_fail(struct farthest *r, const struct event *ev);

#endif
