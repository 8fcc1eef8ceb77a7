/* describe.h: describes jobs and nodes to the scheduler (sched.h). */
#ifndef SEQD_DAEMON_LOOP_DESCRIBE_H
#define SEQD_DAEMON_LOOP_DESCRIBE_H

#include "daemon/sched/backfill.h"
#include "daemon/state/cluster.h"

int32_t describe_device(const struct job *j); /* enum sched_device */
/* Returns the index of that node, or -1 if the table has no such node. `name` may be "". */
int describe_node_index(const struct cluster *k, const char *name);
/* Tells whether a node on which the job may run has been down only for a short time, for example
 * because its agent or seqd restarts. Until that node is up again or lost, the job is not placed
 * on a node that it leaves out. */
bool describe_soon(const struct cluster *k, const struct sched_job *q);
/* Fills in *q, except for the output members. q->need and q->n_user are borrowed from the job and
 * the table of users. Everything that it reads of the job is in its shape (shapes.h), except for
 * its id, priority, backoff and user. */
void describe_job(const struct cluster *k, const struct job *j, int64_t now_ms,
                  struct sched_job *q);
/* Adds to *q, the description of a job that is to be moved, its present places on nodes. If the job
 * is preparing data, it needs a place for a preparation. Otherwise it needs places for its
 * ranks. */
void describe_move(const struct cluster *k, const struct job *j, struct sched_job *q);
/* Lists the attempts that hold slots or GPUs, sorted by their ends, with what sched_release reads
 * of them. A job without limits.wall_s counts as one with the limit backfill_ms; 0 means no limit.
 * *out is malloc'd, or NULL if there are none. Returns their number. */
int describe_holds(const struct cluster *k, int64_t now_ms, int64_t backfill_ms,
                   struct backfill_hold **out);
/* Describes the nodes of the table, out[k->nodes.n], with all that runs on them. */
void describe_nodes(const struct cluster *k, int64_t now_ms, struct sched_node *out);

#endif
