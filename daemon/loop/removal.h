/* removal.h: removes jobs and their files. It carries out the decisions of retain.h.
 *
 *   1. The removal is committed as a row of `removals`. From then on, a job that is removed as a
 *      whole is in no answer.
 *   2. A thread removes seqd's own files of the job, which are the logs of its ranks.
 *   3. The job's rows are removed, some hundred in a commit. Metrics are first, then events, then
 *      the job's row.
 *   4. The nodes are asked, repeatedly, until each node has answered that its files are gone.
 *
 * Every step is derived only from the rows and can be done twice, so a crash loses nothing. An
 * unfinished removal is continued after the restart. A node that is not connected is asked when it
 * connects again. Until then the removal is shown as pending. All functions are called on the loop
 * thread. */
#ifndef SEQD_DAEMON_LOOP_REMOVAL_H
#define SEQD_DAEMON_LOOP_REMOVAL_H

#include "api/trees.h"
#include "daemon/loop/commit.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/store/logs.h"

#define REMOVAL_RETRY_MS 30000 /* time until a failed removal is tried again */
/* length of the pause after a commit of rows, as a multiple of the time that the commit took */
#define REMOVAL_PACE 4

struct removals;

/* Creates the removals and continues those that are pending. Borrows the commits, the logs and the
 * outbox's arg. */
struct removals *removals_create(struct commits *all, struct logs *logs, const struct outbox *out);
void removals_destroy(struct removals *r); /* call it after the store is closed; r may be NULL */
void removals_pause(struct removals *r);   /* seqd is stopping */

/* Removes a job, or a part of its data. `done` is called with ERR_NOT_FOUND if there is no such
 * job, or with ERR_CONFLICT if the job is not final or if a live job reads its files. If this
 * removal is under way already, the call succeeds. The j of `done` is always NULL. */
void removals_order(struct removals *r, const struct store_removal *what, commit_done *done,
                    void *arg);

/* Measures the files that seqd itself stores for n jobs. n is at most TREES_BATCH. `done` gets the
 * number of bytes for each job, in the order of jobs. */
void removals_measure(struct removals *r, const int64_t *jobs, int n, trees_done *done, void *arg);

/* Begins the removals that have been added. */
void removals_wake(struct removals *r);
/* Removes the logs of an attempt that ended long ago, although its job has not ended. */
void removals_cut_log(struct removals *r, int64_t job, int64_t epoch, int n_ranks);

/* Asks a node to carry out its removals. If the node's version (abi, api/wire.h) does not know
 * removals, the node is not asked, and each of its removals shows this as the reason for which it
 * waits. */
void removals_node_up(struct removals *r, const char *node, uint32_t abi);
void removals_node_down(struct removals *r, const char *node);
/* Handles a MSG_REMOVED. Returns false if the node was not asked for this removal or has answered
 * already. */
bool removals_take(struct removals *r, const char *node, const struct msg *m);

#endif
