/* removal.h: removes jobs and their files. It carries out the decisions of retain.h.
 *
 *   1. The removal is committed as a row of `removals`. From then on, a job that is removed as a
 *      whole is in no answer.
 *   2. A thread removes seqd's own files of the job, which are the logs of its ranks.
 *   3. Its rows are removed, some hundred in a commit: metrics, events, and at last the job's row.
 *   4. The nodes are told, again and again, until each has answered that its files are gone.
 *
 * Every step is derived only from the rows and can be done twice, so a crash loses nothing: an
 * unfinished removal is continued after the restart. A node that is away is told when it is back,
 * and until then the removal is shown as pending. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_REMOVAL_H
#define SEQD_DAEMON_LOOP_REMOVAL_H

#include "api/trees.h"
#include "daemon/loop/commit.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/store/logs.h"

#define REMOVAL_RETRY_MS 30000 /* time until a failed removal is tried again */
/* the pause after a commit of rows lasts this many times as long as that commit */
#define REMOVAL_PACE 4

struct removals;

/* Creates the removals and continues those that are pending. Borrows the commits, the logs and the
 * outbox's arg. */
struct removals *removals_create(struct commits *all, struct logs *logs, const struct outbox *out);
void removals_destroy(struct removals *r); /* call it after the store is closed; r may be NULL */
void removals_pause(struct removals *r);   /* seqd is stopping */

/* Removes a job, or a part of its data. done, whose j is always NULL, is called with
 * ERR_NOT_FOUND, or with ERR_CONFLICT if the job is not final or a live job reads its files. A
 * removal that is under way already counts as a success. */
void removals_order(struct removals *r, const struct store_removal *what, commit_done *done,
                    void *arg);

/* Measures the files that seqd itself has of n jobs, where n is at most TREES_BATCH. done gets the
 * number of bytes for each job, in the order of jobs. */
void removals_measure(struct removals *r, const int64_t *jobs, int n, trees_done *done, void *arg);

/* Makes removals that have been added begin. */
void removals_wake(struct removals *r);
/* Removes the logs of an attempt that ended long ago, although its job has not ended. */
void removals_cut_log(struct removals *r, int64_t job, int64_t epoch, int n_ranks);

/* Tells a node of its removals. A node whose version (abi, api/wire.h) does not know removals is
 * not told. Each removal on that node shows this as the reason for which it waits. */
void removals_node_up(struct removals *r, const char *node, uint32_t abi);
void removals_node_down(struct removals *r, const char *node);
/* Takes a MSG_REMOVED. Returns false if the node was not asked or has answered already. */
bool removals_take(struct removals *r, const char *node, const struct msg *m);

#endif
