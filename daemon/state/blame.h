/* blame.h: decides whether a failure is the job's, its node's or the infrastructure's. The
 * functions are pure.
 *
 * A rank's own report:
 *   input, numbers, plan     The failure is final or the user's, and no node is blamed.
 *   missing or other files   The job leaves the node out, and another node is tried, which is an
 *                            infrastructure failure. If no other node is left, it is final.
 *   peer, full disk          It is an infrastructure failure, and no node is blamed.
 *   device                   It is an infrastructure failure the first time. If the next attempt
 *                            fails by its device as well, it is the user's.
 *
 * An exit without a report, an internal error, or a gang that could not start is an infrastructure
 * failure for which the node is blamed. After the attempt's first step, an exit or an internal
 * error is the user's. If the failure happens again on another node, or on the same node because
 * no other node takes the job, it is the user's, and the earlier blames are withdrawn.
 *
 * A signal from outside, a gang that was stopped or died, or a node that left is an infrastructure
 * failure, and no node is blamed.
 *
 * A failure that happens for the third time at the same place is final. A kill from outside counts
 * for this rule only if the kernel killed for lack of memory while nothing ran beside the job.
 *
 * The scheduler leaves the blamed node out for this job (sched.h); quarantine.h counts the
 * jobs. */
#ifndef SEQD_DAEMON_STATE_BLAME_H
#define SEQD_DAEMON_STATE_BLAME_H

#include "daemon/state/jobs.h"

/* ev has the report in its members err, rank, exit_status and signal. Each of the following
 * functions sets ev->cause and ev->blame. */

/* Judges a rank's own report. RANK_GANG as the rank stands for a report of the gang, which could
 * not start. */
void blame_report(const struct job *j, struct event *ev);
/* Judges a rank that exited with a status or by a signal without having reported a failure. */
void blame_exit(const struct job *j, struct event *ev);
/* Judges a gang's end (enum gang_end) for which no rank has given a reason. */
void blame_gang_end(const struct job *j, int end, struct event *ev);

/* Corrects the judgement when the node and the phase are known. elsewhere tells whether another
 * node, which is not left out, could take the job in the place of ev->node. */
void blame_settle(const struct job *j, bool elsewhere, struct event *ev);

/* Tells whether the failure, once settled, is evidence against the job if it happens again at the
 * same place. Final failures, kills from outside, failures of a node, consequences of another
 * failure and full disks are no such evidence. A kill for lack of memory is, if the job was alone
 * on its nodes. */
bool blame_counts(const struct job *j, const struct event *ev);
/* Makes a failure final if it has happened FARTHEST_AGAIN times or more, which count tells, and
 * adds the reason to its text. */
void blame_again(const struct job *j, int32_t count, struct event *ev);

#endif
