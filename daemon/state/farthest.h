/* farthest.h: the farthest step of a job in all its attempts, and the failures that happened again
 * at the same place. It is a part of the fold (jobs.h). The functions are pure. */
#ifndef SEQD_DAEMON_STATE_FARTHEST_H
#define SEQD_DAEMON_STATE_FARTHEST_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/state/event.h"

#define FARTHEST_NAMES                                                                             \
    4096 /* largest number of products that are remembered; they take 32 KiB of
                             * a job's memory */
/* largest number of failures that are remembered; a further failure replaces the oldest */
#define FARTHEST_FAILURES 8
/* a failure is final when it has happened this many times at the same place */
#define FARTHEST_AGAIN 3

/* A failure and its place. The place is the task and the step after which the failure happened. */
struct farthest_failure {
    int32_t task, code, exit_status, signal;
    int64_t step, epoch, count; /* step of the place; epoch of the last failure at this place;
                                 * number of failures at this place */
};

struct farthest {
    int64_t step;   /* the farthest completed step */
    int64_t stored; /* the farthest step that an event records; it may be smaller than `step` */
    uint64_t *name; /* owns */
    int n_names;
    struct farthest_failure *failed; /* owns */
    int n_failed;
};

void farthest_fini(struct farthest *r);
/* Forgets all steps, products and failures, as if the job had no attempt yet. */
void farthest_clear(struct farthest *r);
/* Notes a step. Returns true if no attempt has reached this step before. */
bool farthest_step(struct farthest *r, int64_t step);
/* Notes a product. Returns true if it is the first product with that name. If the name is NULL,
 * returns true if it is the first product with that step. */
bool farthest_product(struct farthest *r, enum job_event type, const char *name, int64_t step);
/* Returns how often the failure of ev, a FAILED_AT, has happened at its place, including this
 * time. */
int32_t farthest_count(const struct farthest *r, const struct event *ev);
/* Folds a FAILED_AT. */
void farthest_fail(struct farthest *r, const struct event *ev);

#endif
