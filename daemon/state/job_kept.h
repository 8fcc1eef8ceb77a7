/* job_kept.h: a copy of the fold of a job, with which an order of a client is undone if it could
 * not be stored. The copy has everything that the fold of an order may change, and the parts of the
 * attempt, because a restart may fence one. It has nothing of the members beside the fold, such as
 * the plan, the result and the progress, which orders do not change. */
#ifndef SEQD_DAEMON_STATE_JOB_KEPT_H
#define SEQD_DAEMON_STATE_JOB_KEPT_H

#include "daemon/state/jobs.h"

struct job_kept;

struct job_kept *job_kept_take(const struct job *j); /* never returns NULL */
void job_kept_destroy(struct job_kept *k);           /* k may be NULL */
/* Gives j the fold that it had when k was taken from j, and destroys k. Since then only orders may
 * have been folded into j. */
void job_kept_put_back(struct job_kept *k, struct job *j);

#endif
