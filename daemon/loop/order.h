/* order.h: orders of clients about existing jobs and nodes: cancel, suspend, resume, restart,
 * edit, cordon, uncordon, release. Loop thread. by: the user who made the request; the event has
 * it. */
#ifndef SEQD_DAEMON_LOOP_ORDER_H
#define SEQD_DAEMON_LOOP_ORDER_H

#include "daemon/loop/commit.h"

typedef void order_call(struct commits *all, int64_t id, const char *by, commit_done *done,
                        void *arg);

/* Cancels a job. fails through done: ERR_NOT_FOUND when it is not live. Cancelling twice is no
 * error. */
order_call order_cancel;

/* Suspends a job: a running one saves and stops first. order_resume queues it again. If the job is
 * in that state already, or on its way to it, the call succeeds and changes nothing. fails through
 * done: ERR_NOT_FOUND when it is not live; ERR_CONFLICT when it is on its way to its end. */
order_call order_suspend, order_resume;

/* Gives up the checkpoint of a job that waits for its node, which is away, cordoned or in
 * quarantine. The job starts again on any node with room: from checkpoint.resume, from its own
 * directory there, or from the beginning. fails through done: ERR_NOT_FOUND; ERR_CONFLICT when it
 * waits for no such node. */
void order_restart(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg);

struct order_edit {
    const char *by;
    const char *change; /* JSON, as json_spec_edit takes it */
};
/* Changes priority and labels; ranks run on. fails through done: ERR_INVALID and ERR_TOO_LARGE,
 * naming the field unless the whole change is wrong; ERR_CONFLICT in a state that takes no
 * change. */
void order_edit(struct commits *all, struct job *j, const struct order_edit *o, commit_done *done,
                void *arg);

/* Gives the node no new work from now on; row->drains: its gangs stop and go elsewhere, too. fails
 * through done, whose j is always NULL: ERR_NOT_FOUND; ERR_TOO_LARGE. */
void order_cordon(struct commits *all, const struct cordon *row, commit_done *done, void *arg);
/* Ends the cordon. A node without a cordon is no error. fails through done, whose j is always
 * NULL: ERR_NOT_FOUND; ERR_CONFLICT for a node that ends soon and has no cordon of an operator. */
void order_uncordon(struct commits *all, const char *node, commit_done *done, void *arg);

/* Ends a node's quarantine. fails through done, whose j is always NULL: ERR_NOT_FOUND; ERR_CONFLICT
 * when it is in none. */
void order_release(struct commits *all, const char *node, commit_done *done, void *arg);

#endif
