/* shapes.h: what must hold between the shapes of an operation's arguments, said once for every
 * device. A device's operation begins with its line; a mismatch is a bug of the caller's. */
#ifndef SEQD_KERNELS_SHAPES_H
#define SEQD_KERNELS_SHAPES_H

#include <assert.h>
#include "kernels/backend.h"

static inline bool shape_is(struct tensor t, int64_t rows, int64_t cols)
{
    return t.dtype == DT_F32 && t.rows == rows && t.cols == cols && (t.ld >= cols || rows <= 1);
}

static inline void shape_gemm(const struct gemm_args *a)
{
    int64_t M = a->c.rows, N = a->c.cols, K = a->trans_a ? a->a.rows : a->a.cols;
    assert(shape_is(a->c, M, N));
    assert(a->trans_a ? shape_is(a->a, K, M) : shape_is(a->a, M, K));
    assert(a->trans_b ? shape_is(a->b, N, K) : shape_is(a->b, K, N));
}

static inline void shape_attn_fwd(const struct attn_fwd_args *a)
{
    assert(a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim % 2 == 0);
    assert(shape_is(a->q, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_is(a->o, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_is(a->kv, a->kv.rows, 2 * a->n_kv_heads * a->head_dim));
    assert(a->ml_ld >= a->q.rows);
}

static inline void shape_attn_finish(const struct attn_finish_args *a)
{
    assert(shape_is(a->o, a->o.rows, a->n_heads * a->head_dim) && a->ml_ld >= a->o.rows);
}

static inline void shape_attn_delta(const struct attn_delta_args *a)
{
    assert(shape_is(a->o, a->o.rows, a->n_heads * a->head_dim) && a->ld >= a->o.rows);
    assert(shape_is(a->d_o, a->o.rows, a->n_heads * a->head_dim));
}

static inline void shape_attn_bwd(const struct attn_bwd_args *a)
{
    assert(a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim % 2 == 0);
    assert(shape_is(a->q, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_is(a->d_o, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_is(a->dq, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_is(a->kv, a->kv.rows, 2 * a->n_kv_heads * a->head_dim));
    assert(shape_is(a->dkv, a->kv.rows, a->kv.cols) && a->ml_ld >= a->q.rows);
}

static inline void shape_rmsnorm_fwd(const struct rmsnorm_fwd_args *a)
{
    assert(shape_is(a->x, a->x.rows, a->x.cols) && shape_is(a->y, a->x.rows, a->x.cols));
}

static inline void shape_rmsnorm_bwd(const struct rmsnorm_bwd_args *a)
{
    assert(shape_is(a->x, a->x.rows, a->x.cols) && shape_is(a->dy, a->x.rows, a->x.cols));
    assert(shape_is(a->dx, a->x.rows, a->x.cols) && a->dx.data != a->x.data);
}

static inline void shape_rope(const struct rope_args *a)
{
    assert(a->head_dim % 2 == 0 && a->x.cols >= a->n_heads * a->head_dim);
    assert(shape_is(a->x, a->x.rows, a->x.cols));
}

static inline void shape_swiglu_fwd(const struct swiglu_fwd_args *a)
{
    assert(shape_is(a->a, a->a.rows, a->a.cols) && shape_is(a->gu, a->a.rows, 2 * a->a.cols));
}

static inline void shape_swiglu_bwd(const struct swiglu_bwd_args *a)
{
    assert(shape_is(a->da, a->da.rows, a->da.cols) && shape_is(a->gu, a->da.rows, 2 * a->da.cols));
    assert(shape_is(a->dgu, a->da.rows, 2 * a->da.cols));
}

static inline void shape_embed(struct tensor table, struct tensor x)
{
    assert(shape_is(table, table.rows, table.cols) && shape_is(x, x.rows, table.cols));
}

static inline void shape_xent(const struct xent_args *a)
{
    assert(shape_is(a->logits, a->logits.rows, a->logits.cols));
}

#endif
