/* answers.h: the open requests to jobs that serve on this node, with the bytes of their answers
 * that wait for the client. They are in memory only. If the session or the gang is lost, so are
 * the requests.
 *
 * At most WIRE_WINDOW bytes of an answer are on their way to the client. Further bytes wait here,
 * so that rank 0 never waits for a client. The functions are called on the loop thread. tested:
 * tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_ANSWERS_H
#define SEQD_AGENT_ANSWERS_H

#include <stddef.h>

struct agent_session;
struct agent_answers;
struct attempt;
struct msg;

struct agent_answers *answers_create(struct agent_session *s); /* borrows s */
void answers_destroy(struct agent_answers *a);

/* Takes ASK, CREDIT or DROP. t is the attempt that the message names, or NULL if this node does
 * not have it. A request that the gang cannot take is lost: seqd gets 503 without bytes. */
void answers_take(struct agent_answers *a, struct attempt *t, const struct msg *m);
/* Takes a packet of t's gang, and sends as much of the answer as the session and the client take.
 * A packet that is no ANSWER to an open request is ignored. */
void answers_packet(struct agent_answers *a, struct attempt *t, const void *packet, size_t size);
/* Sends bytes that wait, when the session has room again. */
void answers_flush(struct agent_answers *a);
/* Loses those requests of t, whose gang is gone, that lack the end of their answers. Answers that
 * are complete still reach their clients. */
void answers_gang_gone(struct agent_answers *a, struct attempt *t);
/* Loses all requests of t, which will be freed. */
void answers_forget(struct agent_answers *a, struct attempt *t);
/* Drops all requests, because the session is over. seqd has answered their clients. */
void answers_session_down(struct agent_answers *a);

#endif
