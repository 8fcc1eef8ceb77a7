/* fold.c: replaces job_fold in the tests of seqd. It folds the event and then checks the job's
 * invariants. */
#include "tests/lib/job_invariant.h"
#include "tests/lib/test.h"

int __real_job_fold(struct job *j, const struct event *ev, struct err *e);
int __wrap_job_fold(struct job *j, const struct event *ev, struct err *e);

int __wrap_job_fold(struct job *j, const struct event *ev, struct err *e)
{
    const struct job was = *j;
    const int rc = __real_job_fold(j, ev, e);
    const char *why = invariant_broken(&was, j, ev, rc);
    CHECK_MSG(!why, "job %lld after %s: %s", (long long)j->id, job_event_name(ev->type), why);
    return rc;
}
