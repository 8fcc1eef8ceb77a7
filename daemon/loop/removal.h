/* removal.h: removes jobs and their files: the acting half of retention.
 *
 *   a row of `removals`, committed      the intent; from here on a whole job is in no answer
 *   seqd's own files, on a thread       logs of ranks
 *   rows, some hundred in a commit      metrics, events, then the job's
 *   the nodes are told, until they say that it is gone
 *
 * Every step follows from the rows alone and can be done twice. A crash therefore loses nothing:
 * an unfinished removal is taken up after the restart. A node that is away is told when it is
 * back; until then the removal is shown as pending. Loop thread. */
#ifndef SEQD_DAEMON_LOOP_REMOVAL_H
#define SEQD_DAEMON_LOOP_REMOVAL_H

#include "api/trees.h"
#include "daemon/loop/commit.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/store/logs.h"

#define REMOVAL_RETRY_MS 30000 /* until a failed removal is tried again */
#define REMOVAL_PACE     4     /* pause after a commit of rows, in lengths of that commit */

struct removals;

/* Borrows the commits, the logs and the outbox's arg. Takes up the pending removals. */
struct removals *removals_create(struct commits *all, struct logs *logs, const struct outbox *out);
void removals_destroy(struct removals *r); /* after the store; NULL allowed */
void removals_pause(struct removals *r);   /* seqd is stopping */

/* Removes a job, or a part of its data. done: j is always NULL; fails: ERR_NOT_FOUND; ERR_CONFLICT
 * while it is not final, or a live job reads its files. A removal that is under way already is no
 * failure. */
void removals_order(struct removals *r, const struct store_removal *what, commit_done *done,
                    void *arg);

/* Measures seqd's own files of n jobs, TREES_BATCH at most: gives bytes in the order of jobs. */
void removals_measure(struct removals *r, const int64_t *jobs, int n, trees_done *done, void *arg);

/* Looks for removals that have been added. */
void removals_wake(struct removals *r);
/* Removes the logs of an attempt that is long over; its job lives. */
void removals_cut_log(struct removals *r, int64_t job, int64_t epoch, int n_ranks);

/* Tells a node of its removals. A node whose version (abi, api/wire.h) knows none is not told, and
 * each of its removals keeps that as the reason that it waits. */
void removals_node_up(struct removals *r, const char *node, uint32_t abi);
void removals_node_down(struct removals *r, const char *node);
/* Takes a MSG_REMOVED. False: the node was not asked, or has answered. */
bool removals_take(struct removals *r, const char *node, const struct msg *m);

#endif
