/* ask.h: questions to nodes: one message out, and one back or an error once its time is over.
 * Questions are not durable: a restart of seqd loses them. Loop thread. */
#ifndef SEQD_DAEMON_LOOP_ASK_H
#define SEQD_DAEMON_LOOP_ASK_H

#include "api/core/loop.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/state/cluster.h"

#define ASK_TIMEOUT_MS 10000
#define ASK_MODELS_MS  35000 /* for all models: longer than the node's own time limit */
#define ASK_FILES_MS   2000  /* for files of data: a job need not wait for the answer */
#define ASK_NODES      8

/* Called once, perhaps inside asks_add. m is the answer (DESCRIBED or FETCHED), or NULL with e:
 * there was no node, it went away, it did not answer in time, or it answered with an error. */
typedef void ask_answer(void *arg, const struct msg *m, const struct err *e);

struct asks;
/* Borrows the cluster, and the outbox's arg. */
struct asks *asks_create(struct loop *l, const struct cluster *k, const struct outbox *o);
void asks_destroy(struct asks *a); /* gives no more answers */
/* Asks a node. m: MSG_DESCRIBE, MSG_FETCH or MSG_TRACE; request is filled in. node NULL, for a
 * DESCRIBE alone: asks any node that is up, and others when it fails, ASK_NODES in all. If a node
 * cannot run seqrank, or lacks the files, another one is asked. The last failure is the answer. */
void asks_add(struct asks *a, const char *node, const struct msg *m, ask_answer *answer, void *arg);
/* Takes a DESCRIBED or FETCHED. False: this node was not asked for it, or has answered. */
bool asks_take(struct asks *a, const char *node, const struct msg *m);
void asks_node_down(struct asks *a, const char *node);

#endif
