/* ask.h: questions to nodes. A question is one message to a node. It is answered by one message.
 * If no message arrives in time, it is answered by an error. Questions are not durable, so a
 * restart of seqd loses them. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_ASK_H
#define SEQD_DAEMON_LOOP_ASK_H

#include "api/core/loop.h"
#include "daemon/mailbox/outbox.h"
#include "daemon/state/cluster.h"

#define ASK_TIMEOUT_MS 10000
#define ASK_MODELS_MS  35000 /* for listing all models; longer than the node's own time limit */
#define ASK_FILES_MS   2000  /* for files of data; a job need not wait for the answer */
#define ASK_NODES      8

/* Called once for each question, perhaps inside asks_add. m is the answer (DESCRIBED or FETCHED).
 * m is NULL if there was no node, or if the node disconnected, did not answer in time or answered
 * with an error. e then has the reason. */
typedef void ask_answer(void *arg, const struct msg *m, const struct err *e);

struct asks;
/* Borrows the cluster and the outbox's arg. */
struct asks *asks_create(struct loop *l, const struct cluster *k, const struct outbox *o);
void asks_destroy(struct asks *a); /* calls no callback any more; a may be NULL */
/* Asks a node. m is a MSG_DESCRIBE, MSG_FETCH or MSG_TRACE. This function fills in the request id.
 * For a MSG_DESCRIBE, node may be NULL. Any node that is up is then asked. If the asked node
 * cannot run seqrank or lacks the files, the next node is asked, up to ASK_NODES nodes in all. If
 * all these nodes fail, the answer is the last failure. */
void asks_add(struct asks *a, const char *node, const struct msg *m, ask_answer *answer, void *arg);
/* Handles a DESCRIBED or FETCHED message. Returns false if this node was not asked this question
 * or has answered it already. */
bool asks_take(struct asks *a, const char *node, const struct msg *m);
void asks_node_down(struct asks *a, const char *node);

#endif
