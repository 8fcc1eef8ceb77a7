/* blame.h: assigns a failure to the job, its node or the infrastructure. Pure.
 *
 *   the report                                  class            the node
 *   a rank: input, numbers, plan                final, user      -
 *   a rank: files missing, or others            final            left out for this job, if another
 *                                                                node is left: then infrastructure
 *   a rank: a peer, a full disk, a device once  infrastructure   -
 *   an exit without a report, an internal       infrastructure   blamed, before the first step;
 *   error, a gang that could not start                           after it, user
 *   the same again, on another node or, where   user             earlier blames are withdrawn
 *   no other takes the job, on the same one
 *   a signal from outside, a gang that was      infrastructure   -
 *   stopped or died, a node that left
 *
 *   the same for the third time at the same     final            -
 *   place; a kill alone where the kernel did
 *   so for memory and nothing ran beside it
 *
 * The scheduler leaves the blamed node out for this job (sched.h); quarantine.h counts the jobs. */
#ifndef SEQD_DAEMON_STATE_BLAME_H
#define SEQD_DAEMON_STATE_BLAME_H

#include "daemon/state/jobs.h"

/* ev has the report: err, rank, exit_status, signal. Each function sets ev->cause and ev->blame. */

/* Judges a rank's own report. rank RANK_GANG: the report of the gang, which could not start. */
void blame_report(const struct job *j, struct event *ev);
/* Judges a rank that exited with a status or a signal, without a report. */
void blame_exit(const struct job *j, struct event *ev);
/* Judges a gang's end (enum gang_end) that no rank explains. */
void blame_gang_end(const struct job *j, int end, struct event *ev);

/* Corrects the judgement when node and phase are known. elsewhere: a node that is not left out
 * could take the job instead of ev->node. */
void blame_settle(const struct job *j, bool elsewhere, struct event *ev);

/* Tells whether the failure, once settled, is evidence against the job if it comes again at the
 * same place. Final failures, kills from outside, failures of a node, consequences of another
 * failure, and full disks are not. A kill for memory of a job that was alone is. */
bool blame_counts(const struct job *j, const struct event *ev);
/* Makes a failure final if it has happened FARTHEST_AGAIN times or more (count), and adds the
 * reason to its text. */
void blame_again(const struct job *j, int32_t count, struct event *ev);

#endif
