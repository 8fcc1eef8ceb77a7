/* farthest.h: how far a job has come, over all of its attempts, and which of its failures come
 * again at the same place. A part of the fold (jobs.h): pure. */
#ifndef SEQD_DAEMON_STATE_FARTHEST_H
#define SEQD_DAEMON_STATE_FARTHEST_H

#include <stdbool.h>
#include <stdint.h>
#include "daemon/state/event.h"

#define FARTHEST_NAMES    4096 /* products that are recognised: 32 KiB of a job */
#define FARTHEST_FAILURES 8    /* failures that are recognised; then the oldest is forgotten */
#define FARTHEST_AGAIN    3    /* times a failure happens at the same place: then it is final */

/* A failure and its place: the task, and the step after which it happened. */
struct farthest_failure {
    int32_t task, code, exit_status, signal;
    int64_t step, epoch, count; /* epoch: that of the latest such failure */
};

struct farthest {
    int64_t step;   /* the farthest completed step */
    int64_t stored; /* the farthest step that an event records; step may be ahead of it */
    uint64_t *name; /* owns */
    int n_names;
    struct farthest_failure *failed; /* owns */
    int n_failed;
};

void farthest_fini(struct farthest *r);
/* Begins again, as if no attempt had reached a step. */
void farthest_clear(struct farthest *r);
/* Notes a step. True: no attempt has come as far. */
bool farthest_step(struct farthest *r, int64_t step);
/* Notes a product. True: it is the first of that name or, without a name (NULL), the first of that
 * step. */
bool farthest_product(struct farthest *r, enum job_event type, const char *name, int64_t step);
/* Returns how often the FAILED_AT ev has happened at its place, this time included. */
int32_t farthest_count(const struct farthest *r, const struct event *ev);
/* Folds a FAILED_AT. */
void farthest_fail(struct farthest *r, const struct event *ev);

#endif
