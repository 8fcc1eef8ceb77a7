/* attempts.h: acts on the attempts of jobs. control.c and control_link.c call it, and it calls
 * neither of them.
 *
 * A report, a verdict, or news of a node becomes events of the job (commit.h) and messages to the
 * nodes of its attempt (session.h). A node from which no message arrives is away. Its part of an
 * attempt may continue to run there, so the part is given up only when the job is placed elsewhere
 * or stops. All functions are called on the loop thread. */
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
/* Takes a REPORT of j's current attempt from the node of part p. Returns false if the report was
 * dropped, because it is damaged or because the node may not send it. */
bool attempts_report(struct attempts *c, struct job *j, struct attempt_part *p,
                     const struct msg *m);
/* Fails the attempts that lost a GPU of the node. */
void attempts_check_gpus(struct attempts *c, const struct node *n);

/* Gives up the parts of a job on nodes that are away, because the job is placed elsewhere or
 * stops. */
void attempts_lose_away(struct attempts *c, struct job *j);
/* Gives up the parts of a stopping job on nodes that are away. Stops the job once all its parts
 * have ended. */
void attempts_fence(struct attempts *c, struct job *j);
/* Notes in each job with a part on a silent node that this node is away. A job that is stopping
 * loses the part. */
void attempts_miss(struct attempts *c, const char *node);
/* Gives up the parts on a node whose name is now used by another machine, or that has a new state
 * directory. The new instance can neither run these parts nor report on them. */
void attempts_replace(struct attempts *c, const char *name, const struct msg *hello);
/* Folds BACK into the jobs that were away on the node, if the node still has their parts or begins
 * them now. */
void attempts_find(struct attempts *c, const struct node *n, const struct msg *hello);

#endif
