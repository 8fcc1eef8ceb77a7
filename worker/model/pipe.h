/* pipe.h: sends residual streams and their gradients between the stages of a pipeline. It is
 * private to worker/model.
 *
 * A stream is copied to the comm segment and sent. The next stream in that direction is copied
 * when the neighbour has received the first stream. With 1F1B (worker/plan/pipe.h) a stream is
 * received at most one pass later.
 *
 * The messages between two stages form a sequence of events. Both stages post the messages of an
 * event as one batch (worker/comm/nccl.c describes this order). A stage that is n forward passes
 * ahead of the next stage first sends n streams, one in each event. In each later event it sends
 * the stream of forward pass i and receives the gradient of backward pass i - n. In the last n
 * events it only receives gradients. The next stage receives the stream of pass i in the event in
 * which it sends the gradient of pass i - n. */
#ifndef SEQD_MODEL_PIPE_H
#define SEQD_MODEL_PIPE_H

#include "worker/comm/comm.h"

enum pipe_way { PIPE_FORWARD, PIPE_BACK };

struct pipe_messages {
    char *send[2]; /* buffers in the segment, one for each direction; NULL if there is one stage */
    struct comm_ticket ticket[2], arriving[2];
    /* For each direction, tells whether a message has been posted and not yet waited for. */
    bool sent[2], comes[2];
    int slot; /* slot of the pass that runs now */
    /* slot of the stream that this pass receives while it sends; -1 if it receives no stream */
    int takes;
    bool any; /* tells whether a stream has been sent forward */
};

#endif
