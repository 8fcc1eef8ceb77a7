/* orders.h: applies each message of seqd to the attempts and files of this node, and sends the
 * profile and the end of the node. `arg` of each call is the agent.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_ORDERS_H
#define SEQD_AGENT_ORDERS_H

#include <stdbool.h>

struct agent;
struct fetch_op;
struct msg;

/* Applies a message. False: seqd never sends such a message. */
bool orders_take(void *arg, const struct msg *m);
/* Sends the answer to a question or a removal; without a session seqd asks again. */
void orders_answered(void *arg, const struct msg *m);
/* Sends the answer to a read, unless the session of the request is over: a restarted seqd counts
 * requests from 1 again, and would take the answer for that of another file. */
void orders_fetched(void *arg, const struct fetch_op *op);
/* Measures the machine in a separate process, and sends the rates when it has ended. */
void orders_profile(struct agent *a);
/* Sends the rates, if they are known and a session is up. */
void orders_send_profile(struct agent *a);
/* Tells seqd when this node ends. Sends nothing if no end is known, unless seqd was told of an end
 * in this session. */
void orders_send_leaving(struct agent *a);

#endif
