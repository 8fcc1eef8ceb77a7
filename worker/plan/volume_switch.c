/* volume_switch.c: the formulas of volume.h for DSP (2403.10266): a switch of the spread
 * dimension, and a gather. */
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
