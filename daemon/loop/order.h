/* order.h: carries out the orders of clients about existing jobs and nodes, which are cancel,
 * suspend, resume, restart, edit, cordon, uncordon and release. The argument `by` is the user who
 * made the request, and is stored in the event. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_ORDER_H
#define SEQD_DAEMON_LOOP_ORDER_H

#include "daemon/loop/commit.h"

typedef void order_call(struct commits *all, int64_t id, const char *by, commit_done *done,
                        void *arg);

/* Cancels a job. It is no error if the job is being cancelled already. done is called with
 * ERR_NOT_FOUND if the job is not live. */
order_call order_cancel;

/* order_suspend suspends a job; a running one saves and stops first. order_resume queues it again.
 * If the job is in that state already, or on its way to it, the call succeeds and changes nothing.
 * done is called with ERR_NOT_FOUND if the job is not live, and with ERR_CONFLICT if it is on its
 * way to its end. */
order_call order_suspend, order_resume;

/* Gives up the checkpoint of a job, if the job waits for the node that has that checkpoint because
 * the node is away, cordoned or in quarantine. The job then starts again on any node with room. It
 * begins from checkpoint.resume, from its own directory on that node, or from the beginning. done
 * is called with ERR_NOT_FOUND, or with ERR_CONFLICT if the job does not wait for such a node. */
void order_restart(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg);

struct order_edit {
    const char *by;
    const char *change; /* JSON in the form that json_spec_edit reads */
};
/* Changes priority and labels, while the ranks continue to run. On failure done is called with
 * ERR_INVALID or ERR_TOO_LARGE, or with ERR_CONFLICT if a job in this state cannot be changed. The
 * first two errors name the field, unless the whole change is wrong. */
void order_edit(struct commits *all, struct job *j, const struct order_edit *o, commit_done *done,
                void *arg);

/* Gives the node no new work from now on. If row->drains is set, its gangs also stop, and their
 * jobs continue elsewhere. done, whose j is always NULL, is called with ERR_NOT_FOUND or
 * ERR_TOO_LARGE on failure. */
void order_cordon(struct commits *all, const struct cordon *row, commit_done *done, void *arg);
/* Ends the cordon. Succeeds too if the node has no cordon. done, whose j is always NULL, is called
 * with ERR_NOT_FOUND, or with ERR_CONFLICT if no operator has cordoned the node and it is cordoned
 * only because it ends soon. */
void order_uncordon(struct commits *all, const char *node, commit_done *done, void *arg);

/* Ends a node's quarantine. done, whose j is always NULL, is called with ERR_NOT_FOUND, or with
 * ERR_CONFLICT if the node is not in quarantine. */
void order_release(struct commits *all, const char *node, commit_done *done, void *arg);

#endif
