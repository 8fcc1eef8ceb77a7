/* afters.h: asks the store how the jobs ended for which queued jobs wait (job_after.h). A job whose
 * dependency has not succeeded fails. A restart asks again, so no end is lost. */
#ifndef SEQD_DAEMON_LOOP_AFTERS_H
#define SEQD_DAEMON_LOOP_AFTERS_H

#include "daemon/loop/commit.h"

#define AFTERS_ASK 500 /* jobs of a question */

/* Begins with zeros, but for commits, which is borrowed. */
struct afters {
    struct commits *commits;
    int n;
    int64_t asked[AFTERS_ASK]; /* ascending; the question that is under way, if n > 0 */
};

/* Asks for the ends of jobs that are not live any more. Calls commits->calls->pass when a job may
 * begin. Costs nothing if no live job waits for others. */
void afters_look(struct afters *a);

#endif
