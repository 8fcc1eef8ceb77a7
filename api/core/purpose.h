/* purpose.h: the purposes of the messages between ranks. The ledger counts messages by purpose,
 * and plans state them by purpose. */
#ifndef SEQD_CORE_PURPOSE_H
#define SEQD_CORE_PURPOSE_H

#include <stdint.h>

enum purpose {
    PURPOSE_RING_KV,  /* K and V blocks of ring attention, in forward and backward */
    PURPOSE_RING_DKV, /* their gradients, fp32 */
    PURPOSE_GRAD,     /* weight-gradient reduction */
    PURPOSE_PARAM,    /* ZeRO: gathering of weights */
    PURPOSE_LOSS,     /* loss sums and target counts */
    PURPOSE_DECODE,   /* generate: query out, partial (m, l, O) back */
    PURPOSE_VERIFY,   /* verify: gathering logits */
    PURPOSE_CONTROL,  /* barriers, agreements, gather and scatter of checkpoints, inputs and
                       * results */
    /* The number of a purpose never changes, because records of steps (struct rank_step) store
     * counts by this number. */
    PURPOSE_STATE,  /* LASP: states of linear attention, forward */
    PURPOSE_DSTATE, /* LASP: gradients of these states, backward */
    PURPOSE_SWITCH, /* DSP: all-to-all between dimensions, splits and gathers */
    PURPOSE_HEADS,  /* Ulysses: all-to-all between tokens and heads */
    PURPOSE_TENSOR, /* tensor parallelism: all-reduce, or all-gather and reduce-scatter */
    PURPOSE_STAGE,  /* pipeline: streams from stage to stage, and their gradients back */
    PURPOSE_N
};
const char *purpose_name(int purpose); /* "ring_kv", ... */

struct comm_count {
    int64_t bytes_sent, bytes_received, messages_sent, messages_received;
};

#endif
