/* backfill.h: the time at which the first job in line can start, and the jobs after it that may
 * start before it (backfill). The functions are pure.
 *
 * The time follows from the time limits of the jobs that run. A later job may start now if it ends
 * before that time, or if the first job can start at that time beside it. So the first job starts
 * no later than at that time, as long as no job runs longer than its limit. */
#ifndef SEQD_DAEMON_SCHED_BACKFILL_H
#define SEQD_DAEMON_SCHED_BACKFILL_H

#include "daemon/sched/sched.h"

#define BACKFILL_UNKNOWN INT64_MAX

/* An attempt that runs. */
struct backfill_hold {
    int64_t end_ms;       /* its latest end; BACKFILL_UNKNOWN if it has no limit */
    struct sched_job job; /* only what sched_release reads is set */
};

/* The reservation of the first job in line. */
struct backfill {
    struct sched_job job;
    int64_t at_ms; /* its latest start; BACKFILL_UNKNOWN if no limit tells it */
    struct sched_node nodes[SCHED_NODES]; /* the nodes at that time, without the job */
};

/* Makes the reservation of a job that waits. The holds are sorted by end_ms. The nodes are those of
 * now, with all holds on them. */
void backfill_reserve(struct backfill *r, const struct sched_job *j,
                      const struct backfill_hold *holds, int n_holds,
                      const struct sched_node *nodes, int n_nodes);
/* Tells whether an attempt with that place may start now and end at end_ms, which may be
 * BACKFILL_UNKNOWN. */
bool backfill_allows(const struct backfill *r, const struct sched_job *placed, int64_t end_ms,
                     int n_nodes);
/* Notes that the attempt has started. */
void backfill_add(struct backfill *r, const struct sched_job *placed, int64_t end_ms);

#endif
