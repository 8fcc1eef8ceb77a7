/* Volumes of a change of the spread dimension, and of its alternatives, from the papers' formulas:
 * DSP (2403.10266), DeepSpeed-Ulysses (2309.14509), Megatron-LM with sequence parallelism
 * (2205.05198). */
#include <assert.h>
#include "worker/plan/shard.h"
#include "worker/plan/volume.h"

struct comm_count volume_switch(int P, int r, const int64_t n[2], int from, int64_t row_size,
                                bool rank_bits)
{
    struct comm_count c = {0};
    for (int w = 0; w < P; w++) {
        if (w == r) continue;
        const int64_t out = shard_count(n[from], P, r, rank_bits) *
                            shard_count(n[!from], P, w, rank_bits) * row_size;
        const int64_t in = shard_count(n[from], P, w, rank_bits) *
                           shard_count(n[!from], P, r, rank_bits) * row_size;
        c.bytes_sent += out;
        c.bytes_received += in;
        c.messages_sent += out > 0;
        c.messages_received += in > 0;
    }
    return c;
}

struct comm_count volume_gather_dim(int P, int r, const int64_t n[2], int dim, int64_t row_size,
                                    bool rank_bits)
{
    struct comm_count c = {0};
    for (int w = 0; w < P; w++) {
        const int64_t part = shard_count(n[dim], P, w, rank_bits) * n[!dim] * row_size;
        if (w == r) {
            c.bytes_sent = (P - 1) * part;
            c.messages_sent = part > 0 ? P - 1 : 0;
        } else {
            c.bytes_received += part;
            c.messages_received += part > 0;
        }
    }
    return c;
}

int64_t volume_pair(enum volume_way way, int P, int64_t n_rows, int64_t row_size)
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
