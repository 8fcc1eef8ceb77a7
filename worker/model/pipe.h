/* pipe.h: streams on their way between two stages of a pipeline. Inside worker/model.
 *
 * A stream is copied to the comm segment and sent. The next stream in its direction is copied only
 * once the neighbour has received it. With 1F1B (worker/plan/pipe.h) a stream is received at most
 * one pass later.
 *
 * Between two stages the messages are numbered events, each posted as one batch on both (NCCL's
 * order: worker/comm/nccl.c). A stage with n forward passes ahead sends the first n streams alone;
 * then the stream of F(i) goes forward as the gradient of B(i - n) comes back; then the last n
 * gradients come back alone. The next stage receives F(i) as it sends the gradient of B(i - n). */
#ifndef SEQD_MODEL_PIPE_H
#define SEQD_MODEL_PIPE_H

#include "worker/comm/comm.h"

enum pipe_way { PIPE_FORWARD, PIPE_BACK };

struct pipe_messages {
    char *send[2]; /* buffers in the segment, by way; NULL: one stage */
    struct comm_ticket ticket[2], arriving[2];
    bool sent[2], comes[2]; /* by way: a message is under way and has not been waited for */
    int slot;               /* slot of the pass that runs */
    int takes;              /* slot of the stream that arrives as this pass sends; -1: none does */
    bool any;               /* a stream has been sent forward */
};

#endif
