/* barrier.h: a barrier of the ranks, made of empty messages. */
#ifndef SEQD_TESTS_BARRIER_H
#define SEQD_TESTS_BARRIER_H

#include "worker/comm/comm.h"

/* Returns when every rank has called this function. After the round with distance d, rank r knows
 * that the ranks r - 2 d + 1 to r (modulo P) have called it. */
static inline int barrier(struct comm *c, struct err *e)
{
    const int P = comm_size(c), r = comm_rank(c);
    for (int d = 1; d < P; d *= 2) {
        struct comm_ticket t;
        const struct comm_xfer x = {.purpose = PURPOSE_CONTROL,
                                    .channel = CHANNEL_HOST,
                                    .send_to = (r + d) % P,
                                    .recv_from = (r - d + P) % P};
        if (comm_sendrecv(c, &x, &t, e) || comm_wait(c, &t, e)) return -1;
    }
    return 0;
}

static inline struct comm_count barrier_volume(int P)
{
    struct comm_count n = {0};
    for (int d = 1; d < P; d *= 2) n.messages_sent = n.messages_received = n.messages_sent + 1;
    return n;
}

#endif
