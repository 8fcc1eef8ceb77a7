/* pipe.h: residual streams, and their gradients, that are on their way between two stages of a
 * pipeline. It is private to worker/model.
 *
 * A stream is copied to the comm segment and sent. The next stream in its direction is copied only
 * once the neighbour has received it. With 1F1B (worker/plan/pipe.h) a stream is received at most
 * one pass later.
 *
 * Between two stages the messages are numbered events, and both stages post each event as one
 * batch (worker/comm/nccl.c describes this order). A stage that is n forward passes ahead first
 * only sends n streams. Then each event sends the stream of F(i) forward and returns the gradient
 * of B(i - n). At the end the last n gradients are returned. The next stage receives F(i) in the
 * event in which it sends the gradient of B(i - n). */
#ifndef SEQD_MODEL_PIPE_H
#define SEQD_MODEL_PIPE_H

#include "worker/comm/comm.h"

enum pipe_way { PIPE_FORWARD, PIPE_BACK };

struct pipe_messages {
    char *send[2]; /* buffers in the segment, one for each way; NULL if there is one stage */
    struct comm_ticket ticket[2], arriving[2];
    /* for each way, whether a message is under way and has not been waited for */
    bool sent[2], comes[2];
    int slot; /* slot of the pass that runs now */
    /* slot of the stream that arrives while this pass sends; -1 if none arrives */
    int takes;
    bool any; /* whether a stream has been sent forward */
};

#endif
