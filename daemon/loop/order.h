/* order.h: carries out the orders of clients about existing jobs and nodes, which are cancel,
 * suspend, resume, restart, edit, cordon, uncordon and release. The parameter `by` is the user who
 * made the request, and is stored in the event. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_ORDER_H
#define SEQD_DAEMON_LOOP_ORDER_H

#include "daemon/loop/commit.h"

typedef void order_call(struct commits *all, int64_t id, const char *by, commit_done *done,
                        void *arg);

/* Cancels a job. If the job is being cancelled already, the call succeeds. A running job that
 * serves first answers its open requests, for at most serve.drain_s; a second cancel ends it at
 * once. done is called with ERR_NOT_FOUND if the job is not live. */
order_call order_cancel;

/* order_suspend suspends a job. A running job saves and stops first. order_resume queues the job
 * again. If the job has the requested state already, or is on its way to it, the call succeeds and
 * changes nothing. done is called with ERR_NOT_FOUND if the job is not live, and with ERR_CONFLICT
 * if the job is about to end. */
order_call order_suspend, order_resume;

/* Gives up the checkpoint of a job that waits for the node with that checkpoint, if the node is
 * away, cordoned or in quarantine. The job then starts again on any node with room. It begins from
 * checkpoint.resume, from its own directory on the new node, or from the beginning. `done` is
 * called with ERR_NOT_FOUND if the job is not live, or with ERR_CONFLICT if the job does not wait
 * for a node in this state. */
void order_restart(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg);

struct order_edit {
    const char *by;
    const char *change; /* JSON in the form that json_spec_edit reads */
};
/* Changes priority and labels, while the ranks continue to run. If a job in this state cannot be
 * changed, done is called with ERR_CONFLICT. If the change is wrong, done is called with
 * ERR_INVALID or ERR_TOO_LARGE, and the error names the field unless the whole change is wrong. */
void order_edit(struct commits *all, struct job *j, const struct order_edit *o, commit_done *done,
                void *arg);

/* Gives the node no new work from now on. If row->drains is set, the node's gangs also stop, and
 * their jobs continue on other nodes. On failure done is called with ERR_NOT_FOUND or
 * ERR_TOO_LARGE. The j of done is always NULL. */
void order_cordon(struct commits *all, const struct cordon *row, commit_done *done, void *arg);
/* Ends the cordon. Succeeds too if the node has no cordon. `done` is called with ERR_NOT_FOUND if
 * there is no such node. If no operator has cordoned the node, but the node is cordoned because it
 * ends soon, `done` is called with ERR_CONFLICT. The j of `done` is always NULL. */
void order_uncordon(struct commits *all, const char *node, commit_done *done, void *arg);

/* Ends a node's quarantine. `done` is called with ERR_NOT_FOUND if there is no such node, or with
 * ERR_CONFLICT if the node is not in quarantine. The j of `done` is always NULL. */
void order_release(struct commits *all, const char *node, commit_done *done, void *arg);

#endif
