/* asked.h: the requests to a job that serves, on their way between the agent and rank 0. Their
 * bytes pass through this process and are never written to a file.
 *
 * The ids of the open requests are kept, so that rank 0 can be told to drop them when the agent
 * has gone. A request is open from its first piece until the last piece of its answer, or until
 * DROP. */
#ifndef SEQD_GANG_ASKED_H
#define SEQD_GANG_ASKED_H

#include <stdbool.h>
#include "api/core/outflow.h"

struct asked {
    struct outflow rank, agent; /* closed while there is no rank 0 here, or no agent */
    uint64_t id[RANK_ASKS];     /* the open requests */
    int n;
    bool still; /* the ranks stand still */
};

void asked_init(struct asked *a);
void asked_fini(struct asked *a);

/* Open the outflow to rank 0, or to an agent that has connected. The caller keeps the socket, and
 * must call asked_rank_gone or asked_agent_gone before it closes the socket. Return -1 with errno
 * if no descriptor is left. */
int asked_rank(struct asked *a, struct loop *l, int sock);
int asked_agent(struct asked *a, struct loop *l, int sock);
/* Closes the outflow to rank 0. The agent answers the open requests when the gang ends. */
void asked_rank_gone(struct asked *a);
/* Closes the outflow to the agent, and tells rank 0 to drop every open request. */
void asked_agent_gone(struct asked *a);

/* Sends a packet of the agent, which is ASK or DROP, to rank 0. If rank 0 cannot get a piece, its
 * request is answered with 503. A packet with a wrong size is ignored. */
void asked_take(struct asked *a, const struct rank_msg *head, const void *payload);
/* Sends an ANSWER of rank 0, which packet_good has checked, to the agent. Returns -1 if the agent
 * has gone, or reads so slowly that its connection must be closed. */
int asked_answer(struct asked *a, const struct rank_msg *head, const void *payload);
/* Waits at most two seconds until the agent has the answers that wait, because the gang ends. */
void asked_finish(struct asked *a);
/* Sends SAVE or STOP to rank 0, after all pieces that wait. */
void asked_tell(struct asked *a, enum rank_msg_type type, const void *payload, size_t size);
/* Notes whether the ranks stand still. While they do, open and new requests are answered with 503,
 * and rank 0 is told to drop them. */
void asked_stand(struct asked *a, bool still);

#endif
