/* blame.h: decides whether a failure is the job's, its node's or the infrastructure's. The
 * functions are pure.
 *
 * A rank's own report:
 *   input, numbers, plan     The failure is final or the user's, and no node is blamed.
 *   missing or other files   It is an infrastructure failure. The job leaves the node out, and the
 *                            next node is tried. If no other node is left, the failure is final.
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

/* Each function below sets ev->cause and ev->blame, unless the comment of the function says
 * something else. The report is in the members err, rank, exit_status and signal of ev. */

/* Judges a rank's own report. If the rank is RANK_GANG, it is the report of a gang that could not
 * start. */
void blame_report(const struct job *j, struct event *ev);
/* Judges a rank that exited with a status or by a signal and had not reported a failure. */
void blame_exit(const struct job *j, struct event *ev);
/* Judges a gang's end (enum gang_end) for which no rank has given a reason. */
void blame_gang_end(const struct job *j, int end, struct event *ev);

/* Corrects the judgement when the node and the phase are known. The parameter `elsewhere` tells
 * whether a node other than ev->node could run the job; nodes that the job leaves out do not
 * count. */
void blame_settle(const struct job *j, bool elsewhere, struct event *ev);

/* Tells whether to count the failure. A failure is counted if its repetition at the same place is
 * evidence against the job. Call it after blame_settle. Final failures, kills from outside,
 * failures of a node, consequences of another failure and full disks do not count. A kill for lack
 * of memory counts if the job was alone on its nodes. */
bool blame_counts(const struct job *j, const struct event *ev);
/* If `count`, the number of times that the failure has happened, is at least FARTHEST_AGAIN, makes
 * the failure final and adds the reason to its text. */
void blame_again(const struct job *j, int32_t count, struct event *ev);

#endif
