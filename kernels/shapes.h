/* shapes.h: the relations between the shapes of an operation's arguments, stated once for every
 * device. Every device's operation calls its function first. A mismatch is a bug of the caller. */
#ifndef SEQD_KERNELS_SHAPES_H
#define SEQD_KERNELS_SHAPES_H

#include "api/core/assert.h"
#include "api/core/limits.h"
#include "kernels/backend.h"

/* Tells whether t has this shape and its rows do not overlap. t may have any dtype. */
static inline bool shape_fits(struct tensor t, int64_t rows, int64_t cols)
{
    return t.rows == rows && t.cols == cols && (t.ld >= cols || rows <= 1);
}
/* Tells whether t has this shape and is fp32. It is for tensors that are fp32 at every
 * precision. */
static inline bool shape_f32(struct tensor t, int64_t rows, int64_t cols)
{
    return t.dtype == DT_F32 && shape_fits(t, rows, cols);
}
/* Tells whether t has this shape and the dtype act. All act tensors of a call have this dtype,
 * which is the model's precision. */
static inline bool shape_act(struct tensor t, int64_t rows, int64_t cols, enum dtype act)
{
    return (act == DT_F32 || act == DT_BF16 || act == DT_F16) && t.dtype == act &&
           shape_fits(t, rows, cols);
}

/* Tells whether t has this shape and is a weight in blocks. */
static inline bool shape_quant(struct tensor t, int64_t rows, int64_t cols)
{
    return dtype_quant(t.dtype) && t.rows == rows && t.cols == cols && cols % QUANT_K == 0;
}
/* Tells whether t has this shape and is a weight in panels of numbers of dtype act. */
static inline bool shape_panels(struct tensor t, int64_t rows, int64_t cols, enum dtype act)
{
    return dtype_panels(t.dtype) && dtype_of_panels(t.dtype) == act && t.rows == rows &&
           t.cols == cols && cols % QUANT_K == 0;
}
/* Tells whether t has this shape and may be the second factor of a product whose first factor is
 * of dtype act. */
static inline bool shape_factor(struct tensor t, int64_t rows, int64_t cols, enum dtype act)
{
    return shape_quant(t, rows, cols) || shape_panels(t, rows, cols, act) ||
           shape_act(t, rows, cols, act);
}

static inline void shape_gemm(const struct gemm_args *a)
{
    int64_t M = a->c.rows, N = a->c.cols, K = a->trans_a ? a->a.rows : a->a.cols;
    enum dtype in = a->a.dtype;
    assert(!(a->trans_a && a->trans_b)); /* no operation of a model sets both */
    assert(shape_act(a->c, M, N, a->c.dtype));
    assert(a->trans_a ? shape_act(a->a, K, M, in) : shape_act(a->a, M, K, in));
    assert(shape_factor(a->b, a->trans_b ? N : K, a->trans_b ? K : N, in));
    assert(!dtype_quant(a->b.dtype) || !a->trans_a);
    assert(!dtype_panels(a->b.dtype) || a->trans_b);
    assert(!a->bias.data || shape_act(a->bias, 1, N, a->c.dtype));
}

/* Accepts NULL. Otherwise the rate must be below 1, so that some values are kept, and the layer
 * below 2^16. */
static inline bool shape_drop(const struct attn_drop *d)
{
    return !d || (d->rate >= 0 && d->rate * 4294967296.0 <= 4294967295.0 && d->layer < 1 << 16);
}

static inline void shape_attn_fwd(const struct attn_fwd_args *a)
{
    assert(a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim % 2 == 0);
    assert(shape_act(a->q, a->q.rows, a->n_heads * a->head_dim, a->q.dtype));
    assert(shape_f32(a->o, a->q.rows, a->n_heads * a->head_dim));
    assert(shape_act(a->kv, a->kv.rows, 2 * a->n_kv_heads * a->head_dim, a->q.dtype));
    assert(a->ml_ld >= a->q.rows && a->scale > 0 && shape_drop(a->drop) && a->cap >= 0);
    assert(!a->pages || (!a->drop && a->n_keys >= 0 && a->kv.rows % CACHE_PAGE == 0));
}

static inline void shape_attn_list(const struct attn_list_args *a)
{
    for (int64_t i = 0; i < a->n; i++) shape_attn_fwd(&a->call[i]);
}

static inline bool shape_sink(struct tensor sink, int64_t n_heads)
{
    return n_heads > 0 && shape_act(sink, 1, n_heads, sink.dtype);
}

static inline void shape_attn_sink_fwd(const struct attn_sink_fwd_args *a)
{
    assert(shape_sink(a->sink, a->n_heads) && a->rows >= 0 && a->ml_ld >= a->rows);
}

static inline void shape_attn_sink_bwd(const struct attn_sink_bwd_args *a)
{
    assert(shape_sink(a->sink, a->n_heads) && a->rows >= 0 && a->ml_ld >= a->rows);
}

static inline void shape_attn_finish(const struct attn_finish_args *a)
{
    assert(shape_f32(a->o, a->o.rows, a->n_heads * a->head_dim) && a->ml_ld >= a->o.rows);
    assert(shape_act(a->out, a->o.rows, a->o.cols, a->out.dtype));
    assert(a->out.dtype == DT_F32 || a->out.data != a->o.data);
}

static inline void shape_attn_merge(const struct attn_merge_args *a)
{
    assert(shape_act(a->out, a->out.rows, a->n_heads * a->head_dim, a->out.dtype));
    assert(a->n_parts > 0 && a->n_parts <= JOB_MAX_RANKS);
    assert(a->n_parts == 1 || a->stride >= a->out.rows * a->n_heads * (a->head_dim + 1));
}

static inline void shape_attn_delta(const struct attn_delta_args *a)
{
    assert(shape_act(a->o, a->o.rows, a->n_heads * a->head_dim, a->o.dtype));
    assert(shape_act(a->d_o, a->o.rows, a->o.cols, a->o.dtype) && a->ld >= a->o.rows);
}

static inline void shape_attn_bwd(const struct attn_bwd_args *a)
{
    assert(a->n_kv_heads > 0 && a->n_heads % a->n_kv_heads == 0 && a->head_dim % 2 == 0);
    assert(shape_act(a->q, a->q.rows, a->n_heads * a->head_dim, a->q.dtype));
    assert(shape_act(a->d_o, a->q.rows, a->q.cols, a->q.dtype));
    assert(shape_f32(a->dq, a->q.rows, a->q.cols));
    assert(shape_act(a->kv, a->kv.rows, 2 * a->n_kv_heads * a->head_dim, a->q.dtype));
    assert(shape_f32(a->dkv, a->kv.rows, a->kv.cols) && a->ml_ld >= a->q.rows && a->scale > 0);
    assert(shape_drop(a->drop) && a->cap >= 0);
}

static inline void shape_rmsnorm_fwd(const struct rmsnorm_fwd_args *a)
{
    enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act) && shape_act(a->g, 1, a->x.cols, act));
    assert(shape_act(a->y, a->x.rows, a->x.cols, act));
}

static inline void shape_rmsnorm_bwd(const struct rmsnorm_bwd_args *a)
{
    enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act) && shape_act(a->g, 1, a->x.cols, act));
    assert(shape_act(a->dy, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dx, a->x.rows, a->x.cols, act) && a->dx.data != a->x.data);
}

static inline void shape_rope(const struct rope_args *a)
{
    assert(a->head_dim % 2 == 0 && a->x.cols >= a->n_heads * a->head_dim);
    assert(a->rotary_dim % 2 == 0 && a->rotary_dim >= 0 && a->rotary_dim <= a->head_dim);
    assert(a->scale > 0);
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
}

static inline void shape_swiglu_fwd(const struct swiglu_fwd_args *a)
{
    assert(shape_act(a->a, a->a.rows, a->a.cols, a->gu.dtype));
    assert(shape_act(a->gu, a->a.rows, 2 * a->a.cols, a->gu.dtype));
}

static inline void shape_swiglu_bwd(const struct swiglu_bwd_args *a)
{
    assert(shape_act(a->da, a->da.rows, a->da.cols, a->gu.dtype));
    assert(shape_act(a->gu, a->da.rows, 2 * a->da.cols, a->gu.dtype));
    assert(shape_act(a->dgu, a->da.rows, 2 * a->da.cols, a->gu.dtype));
}

static inline void shape_embed_fwd(const struct embed_fwd_args *a)
{
    const enum dtype in = dtype_panels(a->table.dtype) ? dtype_of_panels(a->table.dtype)
                                                       : a->table.dtype;
    assert(shape_factor(a->table, a->table.rows, a->table.cols, in));
    assert(a->x.dtype == in || a->x.dtype == DT_F32 || dtype_quant(in));
    assert(shape_act(a->x, a->x.rows, a->table.cols, a->x.dtype));
}

static inline void shape_embed_bwd(const struct embed_bwd_args *a)
{
    assert(shape_f32(a->dtable, a->dtable.rows, a->dtable.cols));
    assert(shape_act(a->dx, a->dx.rows, a->dtable.cols, a->dx.dtype));
}

/* Checks dlogits only when backward is set. If dlogits shares the logits' memory, each of its
 * 16-bit rows must start where the logits' row with the same index starts. */
static inline void shape_xent(const struct xent_args *a)
{
    const struct tensor x = a->logits, d = a->dlogits;
    assert(shape_f32(x, x.rows, x.cols) && a->cap >= 0);
    assert(a->smoothing >= 0 && a->smoothing <= 1 && a->z_loss >= 0);
    assert(a->smoothing == 0 || (a->parts ? a->vocab > 0 : a->vocab == x.cols));
    assert(a->parts ? a->n_parts > 0 : !a->n_parts && !a->first);
    if (!a->backward) return;
    assert(shape_act(d, x.rows, x.cols, d.dtype));
    assert(d.data != x.data || x.rows <= 1 || d.ld * dtype_size(d.dtype) == x.ld * 4);
}

static inline void shape_xent_part(const struct xent_part_args *a)
{
    assert(shape_f32(a->logits, a->logits.rows, a->logits.cols) && a->first >= 0);
}

static inline void shape_adamw(const struct adamw_args *a)
{
    assert(!a->p_half || a->half == DT_BF16 || a->half == DT_F16);
}

static inline void shape_cast(const struct cast_args *a)
{
    assert(shape_act(a->src, a->src.rows, a->src.cols, a->src.dtype));
    assert(shape_act(a->dst, a->src.rows, a->src.cols, a->dst.dtype));
}

/* ---- other families ---- */

static inline bool shape_weight(struct tensor t, int64_t cols, enum dtype act)
{
    return !t.data || shape_act(t, 1, cols, act) || shape_f32(t, 1, cols);
}

static inline void shape_norm_fwd(const struct norm_fwd_args *a)
{
    enum dtype act = a->x.dtype;
    assert(a->groups > 0 && a->x.cols % a->groups == 0);
    assert(shape_act(a->x, a->x.rows, a->x.cols, act) &&
           shape_act(a->y, a->x.rows, a->x.cols, act));
    assert(shape_weight(a->g, a->x.cols / a->groups, act));
    assert(shape_weight(a->b, a->x.cols / a->groups, act));
    assert(!a->sums || (a->rms && a->groups == 1 && a->n_all >= a->x.cols));
}

static inline void shape_norm_bwd(const struct norm_bwd_args *a)
{
    enum dtype act = a->x.dtype;
    assert(a->groups > 0 && a->x.cols % a->groups == 0 && a->dx.data != a->x.data);
    assert(shape_act(a->x, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dy, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dx, a->x.rows, a->x.cols, act));
    assert(shape_weight(a->g, a->x.cols / a->groups, act));
    assert(!a->sums || (a->rms && a->groups == 1 && a->n_all >= a->x.cols && a->n_same > 0));
}

static inline void shape_norm_part(const struct norm_part_args *a)
{
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
    assert(!a->dy.data || shape_act(a->dy, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_weight(a->g, a->x.cols, a->x.dtype));
}

static inline void shape_act_fwd(const struct act_fwd_args *a)
{
    assert(a->fn >= 0 && a->fn < ACT_N);
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_act(a->y, a->x.rows, a->x.cols, a->x.dtype));
}

static inline void shape_act_bwd(const struct act_bwd_args *a)
{
    assert(a->fn >= 0 && a->fn < ACT_N);
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_act(a->dy, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_act(a->dx, a->x.rows, a->x.cols, a->x.dtype));
}

static inline void shape_glu_fwd(const struct glu_fwd_args *a)
{
    assert(a->fn >= 0 && a->fn < ACT_N);
    assert(shape_act(a->a, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->b, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->y, a->a.rows, a->a.cols, a->a.dtype));
}

static inline void shape_glu_bwd(const struct glu_bwd_args *a)
{
    assert(a->fn >= 0 && a->fn < ACT_N);
    assert(shape_act(a->a, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->b, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->dy, a->a.rows, a->a.cols, a->a.dtype));
    assert(!a->da.data || shape_act(a->da, a->a.rows, a->a.cols, a->a.dtype));
    assert(!a->db.data || shape_act(a->db, a->a.rows, a->a.cols, a->a.dtype));
}

static inline void shape_clamp_glu_fwd(const struct clamp_glu_fwd_args *a)
{
    assert(shape_act(a->a, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->b, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->y, a->a.rows, a->a.cols, a->a.dtype));
    assert(a->alpha > 0 && a->limit > 0);
}

static inline void shape_clamp_glu_bwd(const struct clamp_glu_bwd_args *a)
{
    assert(shape_act(a->a, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->b, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->dy, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->da, a->a.rows, a->a.cols, a->a.dtype));
    assert(shape_act(a->db, a->a.rows, a->a.cols, a->a.dtype));
    assert(a->alpha > 0 && a->limit > 0);
}

static inline void shape_mix(const struct mix_args *a)
{
    assert(shape_act(a->y, a->y.rows, a->y.cols, a->y.dtype));
    assert(shape_act(a->a, a->y.rows, a->y.cols, a->a.dtype));
    assert(!a->b.data || shape_act(a->b, a->y.rows, a->y.cols, a->b.dtype));
}

static inline void shape_bias_fwd(const struct bias_fwd_args *a)
{
    assert(shape_act(a->y, a->y.rows, a->y.cols, a->y.dtype));
    assert(shape_act(a->b, 1, a->y.cols, a->y.dtype));
}

static inline void shape_bias_bwd(const struct bias_bwd_args *a)
{
    assert(shape_act(a->dy, a->dy.rows, a->dy.cols, a->dy.dtype));
}

static inline void shape_permute(const struct permute_args *a)
{
    assert(a->n[0] >= 0 && a->n[1] >= 0 && a->n[2] >= 0 && a->size >= 0);
}

static inline void shape_mse(const struct mse_args *a)
{
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_act(a->y, a->x.rows, a->x.cols, a->x.dtype));
    assert(!a->dx.data || shape_act(a->dx, a->x.rows, a->x.cols, a->x.dtype));
}

static inline void shape_noise(const struct noise_args *a)
{
    assert(a->x.cols % 2 == 0 && shape_act(a->x, a->x.rows, a->x.cols, DT_F32));
    assert(shape_act(a->y, a->x.rows, a->x.cols, DT_F32));
    assert(!a->dx.data || shape_act(a->dx, a->x.rows, a->x.cols, DT_F32));
    assert(a->weight && a->log_min <= a->log_max);
}

static inline void shape_modulate_fwd(const struct modulate_fwd_args *a)
{
    const enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act) &&
           shape_act(a->y, a->x.rows, a->x.cols, act));
    assert(shape_act(a->scale, a->scale.rows, a->x.cols, act) && a->scale.rows > 0);
    assert(shape_act(a->shift, a->scale.rows, a->x.cols, act));
}

static inline void shape_modulate_bwd(const struct modulate_bwd_args *a)
{
    const enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dy, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dx, a->x.rows, a->x.cols, act));
    assert(shape_act(a->scale, a->scale.rows, a->x.cols, act) && a->scale.rows > 0);
    assert(shape_f32(a->dscale, a->scale.rows, a->x.cols));
    assert(shape_f32(a->dshift, a->scale.rows, a->x.cols));
}

static inline void shape_gate_fwd(const struct gate_fwd_args *a)
{
    const enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act) &&
           shape_act(a->y, a->x.rows, a->x.cols, act));
    assert(shape_act(a->base, a->x.rows, a->x.cols, act));
    assert(shape_act(a->gate, a->gate.rows, a->x.cols, act) && a->gate.rows > 0);
}

static inline void shape_gate_bwd(const struct gate_bwd_args *a)
{
    const enum dtype act = a->x.dtype;
    assert(shape_act(a->x, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dy, a->x.rows, a->x.cols, act));
    assert(shape_act(a->dx, a->x.rows, a->x.cols, act));
    assert(shape_act(a->gate, a->gate.rows, a->x.cols, act) && a->gate.rows > 0);
    assert(shape_f32(a->dgate, a->gate.rows, a->x.cols));
}

static inline void shape_lrpe_fwd(const struct lrpe_fwd_args *a)
{
    const int64_t C = a->n_heads * a->head_dim;
    assert(shape_act(a->x, a->x.rows, C, a->x.dtype));
    assert(shape_act(a->y, a->x.rows, 2 * C, a->x.dtype));
    assert(shape_act(a->theta, a->n_heads, a->head_dim, a->theta.dtype));
}

static inline void shape_lrpe_bwd(const struct lrpe_bwd_args *a)
{
    const int64_t C = a->n_heads * a->head_dim;
    assert(shape_act(a->dy, a->dx.rows, 2 * C, a->dx.dtype));
    assert(shape_act(a->dx, a->dx.rows, C, a->dx.dtype));
    assert(shape_act(a->theta, a->n_heads, a->head_dim, a->theta.dtype));
}

/* Checks logits in the forward and dlogits in the backward. With plain weights, the backward
 * checks logits too. */
static inline void shape_route(const struct route_args *a)
{
    const struct tensor x = a->dweight ? a->dlogits : a->logits;
    assert(shape_f32(x, x.rows, x.cols) && a->k > 0 && a->k <= x.cols);
    assert(!a->plain || shape_f32(a->logits, x.rows, x.cols));
}

static inline void shape_softmax_fwd(const struct softmax_fwd_args *a)
{
    assert(shape_f32(a->x, a->x.rows, a->x.cols));
}

static inline void shape_softmax_bwd(const struct softmax_bwd_args *a)
{
    assert(shape_f32(a->p, a->p.rows, a->p.cols) && shape_f32(a->dp, a->p.rows, a->p.cols));
}

static inline void shape_dropout(const struct dropout_args *a)
{
    assert(shape_f32(a->x, a->x.rows, a->x.cols) && a->drop && shape_drop(a->drop));
    assert(a->head >= 0 && a->head < 1 << 16 && a->col_pos >= 0);
}

/* ---- linear attention ---- */

/* Refuses gates that depend on the data, because a fold would need their sums. v may have one
 * additional column, for the sum of weights. */
static inline void shape_linear(const struct linear_args *a)
{
    enum dtype act = a->q.dtype;
    assert(a->n_heads > 0 && a->key_dim > 0 && a->value_dim > 0 && !a->gate && !a->gate_diagonal);
    assert(a->key_dim <= JOB_MAX_LINEAR_HEAD && a->value_dim <= JOB_MAX_LINEAR_HEAD + 1);
    assert(shape_act(a->q, a->q.rows, a->n_heads * a->key_dim, act));
    assert(shape_act(a->k, a->q.rows, a->n_heads * a->key_dim, act));
    assert(shape_act(a->v, a->q.rows, a->n_heads * a->value_dim, act));
}

static inline void shape_linear_fwd(const struct linear_fwd_args *a)
{
    shape_linear(&a->in);
    assert(a->o.data || a->m);
    assert(!a->o.data || shape_act(a->o, a->in.q.rows, a->in.v.cols, a->in.q.dtype));
}

static inline void shape_linear_enter(const struct linear_enter_args *a)
{
    shape_linear(&a->in);
    assert(shape_act(a->o, a->in.q.rows, a->in.v.cols, a->in.q.dtype) && a->state);
}

static inline void shape_linear_bwd(const struct linear_bwd_args *a)
{
    const struct linear_args *in = &a->in;
    shape_linear(in);
    assert(shape_act(a->d_o, in->q.rows, in->v.cols, in->q.dtype));
    assert(!a->dq.data == !a->dk.data && !a->dq.data == !a->dv.data && (a->dq.data || a->dm));
    if (!a->dq.data) return;
    assert(shape_f32(a->dq, in->q.rows, in->q.cols) && shape_f32(a->dk, in->q.rows, in->q.cols));
    assert(shape_f32(a->dv, in->q.rows, in->v.cols));
}

static inline void shape_linear_enter_bwd(const struct linear_enter_bwd_args *a)
{
    const struct linear_args *in = &a->in;
    shape_linear(in);
    assert(shape_act(a->d_o, in->q.rows, in->v.cols, in->q.dtype));
    assert(shape_f32(a->dq, in->q.rows, in->q.cols) && shape_f32(a->dk, in->q.rows, in->q.cols));
    assert(shape_f32(a->dv, in->q.rows, in->v.cols));
}

static inline void shape_linear_fold(const struct linear_fold_args *a)
{
    assert(a->dtype == DT_F32 && a->n_valid >= 0 && a->m && a->out && (!a->through || a->in));
}

static inline void shape_linear_angle(const struct linear_angle_args *a)
{
    const struct linear_args *in = &a->in;
    shape_linear(in);
    assert(in->key_dim % 2 == 0 && a->dtheta);
    assert(shape_act(a->d_o, in->q.rows, in->v.cols, in->q.dtype));
}

/* ---- gated delta networks ---- */

static inline void shape_delta(const struct delta_args *a)
{
    const enum dtype act = a->q.dtype;
    const int64_t n = a->q.rows, H = a->n_heads, Hk = a->n_key_heads;
    assert(Hk > 0 && H > 0 && H % Hk == 0 && a->key_dim > 0 && a->value_dim > 0);
    assert(shape_act(a->q, n, Hk * a->key_dim, act) && shape_act(a->k, n, Hk * a->key_dim, act));
    assert(shape_act(a->v, n, H * a->value_dim, act));
    assert(shape_act(a->a, n, H, act) && shape_act(a->b, n, H, act));
    assert(shape_act(a->a_log, 1, H, act) && shape_act(a->dt_bias, 1, H, act));
}

static inline void shape_delta_fwd(const struct delta_fwd_args *a)
{
    shape_delta(&a->in);
    assert(a->o.data || a->state_out);
    assert(!a->o.data || shape_act(a->o, a->in.q.rows, a->in.v.cols, a->in.q.dtype));
}

static inline void shape_delta_bwd(const struct delta_bwd_args *a)
{
    const struct delta_args *in = &a->in;
    const int64_t n = in->q.rows, H = in->n_heads;
    shape_delta(in);
    assert(shape_act(a->d_o, n, in->v.cols, in->q.dtype) && a->room);
    assert(shape_f32(a->dq, n, in->q.cols) && shape_f32(a->dk, n, in->q.cols));
    assert(shape_f32(a->dv, n, in->v.cols) && shape_f32(a->da, n, H) && shape_f32(a->db, n, H));
    assert(shape_f32(a->d_log, n, H));
}

static inline void shape_conv(const struct conv_args *a)
{
    assert(a->width >= 2 && a->width <= CONV_MAX_WIDTH);
    assert(shape_act(a->x, a->x.rows, a->x.cols, a->x.dtype));
    assert(shape_act(a->w, a->x.cols, a->width, a->x.dtype));
}

static inline void shape_conv_fwd(const struct conv_fwd_args *a)
{
    shape_conv(&a->in);
    assert(a->y.data || a->state_out);
    assert(!a->y.data || shape_act(a->y, a->in.x.rows, a->in.x.cols, a->in.x.dtype));
}

static inline void shape_conv_bwd(const struct conv_bwd_args *a)
{
    const struct conv_args *in = &a->in;
    shape_conv(in);
    assert(shape_act(a->dy, in->x.rows, in->x.cols, in->x.dtype) && (a->dx.data || a->dw));
    assert(!a->dx.data || shape_f32(a->dx, in->x.rows, in->x.cols));
    assert(!a->d_state || a->d_state != a->d_state_out);
}

#endif
