/* attn_bwd.h: parts that attention's backward kernels for 8.0 (attn_bwd.cu) and for 9.0
 * (hopper_attn_bwd.cu) have in common: the call, the lse and delta of a query, and the walk over
 * tiles of queries. */
#ifndef SEQD_CUDA_ATTN_BWD_H
#define SEQD_CUDA_ATTN_BWD_H

#include "kernels/cuda/attn.h"

struct bwd_call {
    attn_call c;
    mat d_o;
    float *dq, *dkv;
    int64_t dq_ld, dkv_ld, ml_ld;
    const float *lse, *delta;
    attn_span *spans; /* the keys that each tile of queries sees */
    int n_tiles;      /* tiles of queries */
    bool aligned;
};

/* ---- rows ------------------------------------------------------------------------------------ */

/* The lse and delta of a query. lse is an exponent of 2. For a query that saw no key, lse is inf
 * instead of -inf, so that the query's probabilities are 0. Probabilities are multiplied by
 * 2^RAISED (attn.h), and delta is divided by the same factor. */
struct alignas(8) bwd_stat {
    float lse, delta;
};

template <int RAISED> static constexpr float bwd_lowered = 1.0f / (1 << RAISED);

template <int RAISED>
static __device__ __forceinline__ bwd_stat bwd_stat_of(const bwd_call &b, int64_t head, int row)
{
    bwd_stat q = {INFINITY, 0};
    if (row >= b.c.Tq) return q;
    const float lse = b.lse[head * b.ml_ld + row];
    if (lse == -INFINITY) return q;
    q.lse = (float)((double)lse * LOG2_E - RAISED);
    q.delta = b.delta[head * b.ml_ld + row] * bwd_lowered<RAISED>;
    return q;
}

/* A walk over tiles of queries of heads [head, last), ascending. Only tiles that see some of keys
 * [k0, k1) are walked. */
struct bwd_walk {
    int head, last, tile, k0, k1;
};

/* Advances to the first tile that sees some of the keys. The search begins with `tile` of the
 * current head. A whole warp calls this function. */
static __device__ __forceinline__ void bwd_seek(bwd_walk *w, const bwd_call &b)
{
    for (; w->head < w->last; w->head++, w->tile = 0)
        for (; w->tile < b.n_tiles; w->tile += WARP) {
            const int i = w->tile + (int)threadIdx.x % WARP;
            const unsigned found = __ballot_sync(FULL, i < b.n_tiles &&
                                                           attn_meets(b.spans[i], w->k0, w->k1));
            if (!found) continue;
            w->tile += __ffs((int)found) - 1;
            return;
        }
}

/* lse and delta of the queries of a tile that is walked, and the keys that these queries see. */
struct alignas(16) bwd_queries {
    bwd_stat stat[ATTN_T];
    attn_span sees[ATTN_T];
};

/* Turns a score *s into a probability times 2^RAISED, and *dp into ds, which does not have the
 * factor 2^RAISED. */
template <int RAISED>
static __device__ __forceinline__ void bwd_one(float *s, float *dp, float scale2, bwd_stat q)
{
    *s = attn_exp2(fmaf(*s, scale2, -q.lse));
    *dp = *s * fmaf(*dp, bwd_lowered<RAISED>, -q.delta);
}

#endif
