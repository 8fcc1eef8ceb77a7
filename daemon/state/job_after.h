/* job_after.h: the jobs that must have ended before a job begins (`after` and `after_any` of its
 * spec). The fold does not have their ends: the store is asked for them. */
#ifndef SEQD_DAEMON_STATE_JOB_AFTER_H
#define SEQD_DAEMON_STATE_JOB_AFTER_H

#include "daemon/state/jobs.h"

struct job_after {
    int n;
    struct job_dependency {
        int64_t job;
        bool any; /* it may have ended in any way */
        bool met;
    } of[];
};

/* Tells whether the job waits for others. */
bool job_after_waits(const struct job *j);
/* Makes the jobs for which j waits its reason. */
void job_after_reason(struct job *j);
/* Notes the end of a job for which j waits. `state` is its final state, or -1 if it was removed.
 * Returns 0, or -1 with the error of j if that end means that j never begins. */
int job_after_end(struct job *j, int64_t id, int state, struct err *e);

#endif
