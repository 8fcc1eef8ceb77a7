/* volume_pair.h: computes the published volumes of DSP (2403.10266), and of the two methods with
 * which it is compared: DeepSpeed-Ulysses (2309.14509), and Megatron-LM with sequence parallelism
 * (2205.05198). */
#ifndef SEQD_TESTS_VOLUME_PAIR_H
#define SEQD_TESTS_VOLUME_PAIR_H

#include <stdint.h>
#include "api/core/assert.h"

/* The ways to compute a spatial block and a temporal block on P ranks. The comment on each way
 * begins with its nominal volume, where M is the number of bytes of one activation. */
enum volume_way {
    VOLUME_DSP, /* 2M/P: the complete activation is switched twice */
    /* 4M/P: in the attention along the dimension that the ranks divide, q, k and v are sent, and o
     * is sent back */
    VOLUME_ULYSSES_ONE,
    /* 6M/P: q, k, v and o in the attention, and two more activations in the cross-attention */
    VOLUME_OPEN_SORA_12,
    VOLUME_ULYSSES_BOTH, /* 8M/P: q, k, v and o in the attention of both blocks */
    /* 10M/P: q, k, v and o in the attention of both blocks, and two more activations in the
     * cross-attention */
    VOLUME_OPEN_SORA_10,
    VOLUME_RING, /* 2M: in one attention, keys and values are passed to every rank */
    /* 8M: in both blocks, there is an all-gather and a reduce-scatter for attention, and again for
     * the MLP */
    VOLUME_MEGATRON_SP
};

/* Counts the bytes that a rank sends in the forward pass of one spatial and one temporal block.
 * The number of rows must be a multiple of P * P. The result is (P-1)/P of the nominal volume,
 * because a rank does not send its own part. */
static inline int64_t volume_pair(enum volume_way way, int P, int64_t n_rows, int64_t row_size)
{
    const int64_t M = n_rows * row_size;
    assert(n_rows % ((int64_t)P * P) == 0); /* all blocks have the same size, as in the papers */
    switch (way) {
    case VOLUME_DSP: return 2 * M / P / P * (P - 1);
    case VOLUME_ULYSSES_ONE: return 4 * M / P / P * (P - 1);
    case VOLUME_OPEN_SORA_12: return 6 * M / P / P * (P - 1);
    case VOLUME_ULYSSES_BOTH: return 8 * M / P / P * (P - 1);
    case VOLUME_OPEN_SORA_10: return 10 * M / P / P * (P - 1);
    case VOLUME_RING: return 2 * M / P * (P - 1);
    case VOLUME_MEGATRON_SP: return 8 * M / P * (P - 1);
    }
    assert(!"a way");
    return 0;
}

#endif
