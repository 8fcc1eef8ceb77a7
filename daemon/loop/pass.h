/* pass.h: a scheduling pass. It makes the input of the scheduler (sched.h) from queued jobs and
 * nodes, and makes events from its verdicts. It changes only its scratch, the jobs' reasons and
 * the users' counts of jobs.
 *
 *     pass_pick(p, k, now_ms);
 *     for (int i = 0; (j = pass_verdict(p, k, i, &ev)); i++) the event ev is to be applied to j; */
#ifndef SEQD_DAEMON_LOOP_PASS_H
#define SEQD_DAEMON_LOOP_PASS_H

#include "daemon/state/cluster.h"

struct sched_pass;
/* A job without limits.wall_s counts, for backfill alone, as one with the limit backfill_ms. 0
 * means that it has none. */
struct sched_pass *pass_create(int64_t backfill_ms);
void pass_destroy(struct sched_pass *p); /* p may be NULL */

/* Runs the scheduler for all queued jobs of the cluster, and for running jobs with a part on a
 * lost node. Notes in each job that waits why it waits. Returns the total number of these jobs. */
int pass_pick(struct sched_pass *p, const struct cluster *k, int64_t now_ms);
/* Returns the i-th of the jobs for which there is a place, in scheduling order, and sets *ev to its
 * ASSIGN. Returns NULL if there are no more such jobs. If the returned job already has an attempt,
 * the caller must not apply *ev, and must give up the attempt's parts on lost nodes instead. */
struct job *pass_verdict(const struct sched_pass *p, const struct cluster *k, int i,
                         struct event *ev);

/* Returns the id of the i-th job of the last pass, in scheduling order, or 0 after the last. */
int64_t pass_queued(const struct sched_pass *p, int i);
/* Returns the time, by the loop's clock, at which the job starts at the latest. Returns 0 if it is
 * not first in line, or if no limits tell the time. */
int64_t pass_starts_ms(const struct sched_pass *p, int64_t id);

/* Tells whether all nodes except `node` could hold the job if all of them were idle. Nodes that
 * the job avoids do not count. A node that is down counts until it is lost. The node that prepared
 * the job's data counts even when it is lost, because it has the files. */
bool pass_elsewhere(const struct cluster *k, const struct job *j, const char *node, int64_t now_ms);

#endif
