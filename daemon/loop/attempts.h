/* attempts.h: acts on the attempts of jobs. control.c and control_link.c call it, and it calls
 * neither of them.
 *
 * It turns a report, a verdict or news of a node into events of the job (commit.h) and messages to
 * the nodes of the job's attempt (session.h). A node is called away while no message arrives from
 * it. Its part of an attempt may continue to run, so the part is given up only when the job is
 * placed on other nodes or stops. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_ATTEMPTS_H
#define SEQD_DAEMON_LOOP_ATTEMPTS_H

#include "api/core/loop.h"
#include "daemon/loop/commit.h"
#include "daemon/loop/session.h"
#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"
#include "daemon/store/logs.h"

struct attempts { /* all borrowed from control */
    struct loop *loop;
    struct cluster *cluster;
    struct commits *commits;
    struct session *session;
    struct logs *logs;
};

void attempts_apply(struct attempts *c, struct job *j, struct event *ev);
void attempts_carry_out(struct attempts *c, struct job *j, struct verdict *v);
/* Stops the job once all parts of its attempt have ended. */
void attempts_stop(struct attempts *c, struct job *j);
/* Handles a REPORT about j's current attempt from the node of part p. Returns false if the report
 * was dropped, because it is damaged or because the node may not send it. */
bool attempts_report(struct attempts *c, struct job *j, struct attempt_part *p,
                     const struct msg *m);
/* Fails the attempts that lost a GPU of the node. */
void attempts_check_gpus(struct attempts *c, const struct node *n);

/* Gives up those parts of a job whose nodes are away, because the job is placed on other nodes or
 * stops. */
void attempts_lose_away(struct attempts *c, struct job *j);
/* Gives up those parts of a stopping job whose nodes are away. Stops the job once all its parts
 * have ended. */
void attempts_fence(struct attempts *c, struct job *j);
/* Finds the jobs that have a part on the silent node, and notes in each job that the node is away.
 * If a job is stopping, its part on the node is given up. */
void attempts_miss(struct attempts *c, const char *node);
/* Gives up the parts on a node whose name is now used by a different machine, or that has a new
 * state directory. The new instance can neither run these parts nor report on them. */
void attempts_replace(struct attempts *c, const char *name, const struct msg *hello);
/* Finds the jobs with a part on this node that was noted as away. Folds BACK into such a job if
 * the node still has the part or begins the part now. */
void attempts_find(struct attempts *c, const struct node *n, const struct msg *hello);

#endif
