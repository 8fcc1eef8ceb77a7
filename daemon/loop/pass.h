/* pass.h: a scheduling pass: turns queued jobs and nodes into the input of sched_pick, and its
 * verdicts into events. It changes only its scratch, the jobs' reasons and the users' counts of
 * jobs.
 *
 *     for (int i = 0, n = pass_pick(p, k, now_ms); i < n; i++)
 *         if ((j = pass_verdict(p, k, i, &ev))) the event ev is to be applied to j; */
#ifndef SEQD_DAEMON_LOOP_PASS_H
#define SEQD_DAEMON_LOOP_PASS_H

#include "daemon/state/cluster.h"

struct sched_pass;
struct sched_pass *pass_create(void);
void pass_destroy(struct sched_pass *p); /* NULL allowed */

/* Runs the scheduler for all queued jobs of the cluster, and for running ones with a part on a
 * lost node. Returns how many there are. */
int pass_pick(struct sched_pass *p, const struct cluster *k, int64_t now_ms);
/* Takes the verdict on the i-th job, and notes in the job why it waits. Returns the job if there is
 * a place for it, with its ASSIGN in *ev; else NULL. If the job already has an attempt, *ev is not
 * to be applied: the caller gives up the attempt's parts on lost nodes. */
struct job *pass_verdict(const struct sched_pass *p, const struct cluster *k, int i,
                         struct event *ev);

/* Tells whether nodes other than `node` could take the job if all were idle, without those that it
 * leaves out. A node that is down counts until it is lost. The node that prepared the job's data
 * counts even when lost, as it has the files. */
bool pass_elsewhere(const struct cluster *k, const struct job *j, const char *node, int64_t now_ms);

#endif
