/* orders.h: applies each message of seqd to the attempts and files of this node, and sends the
 * profile and the end of the node. `arg` is the agent in each call.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_ORDERS_H
#define SEQD_AGENT_ORDERS_H

#include <stdbool.h>

struct agent;
struct fetch_op;
struct msg;

/* Applies a message. Returns false if seqd never sends such a message. */
bool orders_take(void *arg, const struct msg *m);
/* Sends the answer to a question or a removal. Without a session the answer is lost, and seqd asks
 * again. */
void orders_answered(void *arg, const struct msg *m);
/* Sends the answer to a read, unless the session of the request is over. In a new session the
 * answer must not be sent, because a restarted seqd counts requests from 1 again, and would take
 * it for the answer about another file. */
void orders_fetched(void *arg, const struct fetch_op *op);
/* Measures the machine in a separate process. Sends the rates when the process has ended. */
void orders_profile(struct agent *a);
/* Sends the rates, if they are known and a session is up. */
void orders_send_profile(struct agent *a);
/* Tells seqd at which time this node ends. If no such time is known, sends a message only to
 * withdraw a time that was sent earlier in this session. */
void orders_send_leaving(struct agent *a);

#endif
