/* orders.h: applies each message of seqd to the attempts and files of this node, and sends to
 * seqd the node's profile and the time at which the node ends. `arg` is the agent in each
 * call. tested: tests/agent/test_agent_life.c */
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
/* Sends the answer to a request to read a file, unless the session of the request is over. A
 * restarted seqd counts requests from 1 again. In a new session it would thus mistake this
 * answer for the answer to a new request. */
void orders_fetched(void *arg, const struct fetch_op *op);
/* Measures the speed of the machine in a separate process. Sends the measured rates when the
 * process has ended. */
void orders_profile(struct agent *a);
/* Sends the measured rates, if they are known and a session is up. */
void orders_send_profile(struct agent *a);
/* Tells seqd at which time this node ends. If the time is not known, but a time was sent
 * earlier in this session, sends a message that withdraws that time. */
void orders_send_leaving(struct agent *a);

#endif
