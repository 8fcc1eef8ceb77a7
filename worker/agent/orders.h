/* orders.h: applies each message of seqd to the attempts and files of this node, and sends the
 * profile and the end of the node. arg of the calls: the agent.
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
/* Sends no answer for a read of an earlier session: a seqd that was restarted counts from 1 again,
 * and would take it for the answer about another file. */
void orders_fetched(void *arg, const struct fetch_op *op);
/* Measures the machine in a process, and sends the rates then. */
void orders_profile(struct agent *a);
/* Sends the rates, if there are some and a session. */
void orders_send_profile(struct agent *a);
/* Tells seqd when this node ends. Sends nothing if no end is known, unless seqd was told of an end
 * in this session. */
void orders_send_leaving(struct agent *a);

#endif
