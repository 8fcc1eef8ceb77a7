/* volume_pair.h: the published volumes of DSP (2403.10266) and of its rivals: DeepSpeed-Ulysses
 * (2309.14509), Megatron-LM with sequence parallelism (2205.05198). */
#ifndef SEQD_TESTS_VOLUME_PAIR_H
#define SEQD_TESTS_VOLUME_PAIR_H

#include <stdint.h>
#include "api/core/assert.h"

/* Ways to compute a pair of a spatial and a temporal block, with the nominal volume for M bytes of
 * one activation. */
enum volume_way {
    VOLUME_DSP,          /* 2M/P: two switches */
    VOLUME_ULYSSES_ONE,  /* 4M/P: q, k, v out and o back, in attention along the spread dimension */
    VOLUME_OPEN_SORA_12, /* 6M/P: its own way: q, k, v, o, and two in the cross-attention */
    VOLUME_ULYSSES_BOTH, /* 8M/P: in both attentions */
    VOLUME_OPEN_SORA_10, /* 10M/P: the same, and two in the cross-attention */
    VOLUME_RING,         /* 2M: keys and values past everyone, in one attention */
    VOLUME_MEGATRON_SP /* 8M: all-gather and reduce-scatter round attention and MLP, both blocks */
};

/* Counts the bytes that a rank sends forward for one pair, where P * P divides the rows: (P-1)/P of
 * the nominal volume, since its own part stays. */
static inline int64_t volume_pair(enum volume_way way, int P, int64_t n_rows, int64_t row_size)
{
    const int64_t M = n_rows * row_size;
    assert(n_rows % ((int64_t)P * P) == 0); /* blocks of one size: the papers' case */
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
