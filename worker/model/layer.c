/* layer.c: one decoder layer, forward and backward, on this rank's T rows.
 *
 * Kept for the backward (the plan's strides say which buffers there is one of per layer):
 *   none       x, q, kv, o, lse, x_mid, gate_up
 *   selective  x, o, lse: the rest is recomputed without a ring
 *   full       x: the whole forward runs again, its ring included
 * Norm outputs, rstd and the MLP's activation are recomputed in every mode: elementwise work that
 * costs less than holding them. */
#include "worker/model/model.h"

#include <assert.h>

/* ---- views ----------------------------------------------------------------------------------- */

/* Layer l's instance of a buffer. */
static struct tensor rows_of(const struct model *m, void *base, int64_t l, int64_t stride,
                             int64_t cols)
{
    return model_rows(m, (char *)base + l * stride, cols);
}

/* What one layer reads and writes. */
struct layer {
    int l;
    int64_t C, HD, KD, I;
    struct tensor x, x_mid, x_out, xn, q, kv, o, gate_up, act;
    float *lse;
    struct tensor wq, wkv, wo, wgu, wd; /* weights */
    struct tensor g_in, g_post;         /* norm weights [1, C] */
    float *grad;                        /* this layer's gradients, or NULL */
};

static struct layer layer_of(struct model *m, int l)
{
    const struct model_shape *s = &m->shape;
    const struct param_map *at = &m->map;
    const int64_t w = at->layer0 + l * at->layer_stride;
    struct layer y = {.l = l,
                      .C = s->width,
                      .HD = s->n_heads * s->head_dim,
                      .KD = s->n_kv_heads * s->head_dim,
                      .I = s->ffn_width};
    y.x = rows_of(m, m->x, l, m->x_stride, y.C);
    y.x_mid = rows_of(m, m->x_mid, l, m->x_mid_stride, y.C);
    y.x_out = rows_of(m, m->x, l + 1, m->x_stride, y.C);
    y.xn = model_rows(m, m->xn, y.C);
    y.q = rows_of(m, m->q, l, m->q_stride, y.HD);
    y.kv = rows_of(m, m->kv, l, m->kv_stride, 2 * y.KD);
    y.o = rows_of(m, m->o, l, m->o_stride, y.HD);
    y.lse = m->lse + l * m->lse_stride / 4;
    y.gate_up = rows_of(m, m->gate_up, l, m->gate_up_stride, 2 * y.I);
    y.act = model_rows(m, m->act, y.I);
    y.g_in = model_weight(m, w + at->in_norm, 1, y.C);
    y.g_post = model_weight(m, w + at->post_norm, 1, y.C);
    y.wq = model_weight(m, w + at->q, y.HD, y.C);
    y.wkv = model_weight(m, w + at->kv, 2 * y.KD, y.C);
    y.wo = model_weight(m, w + at->o, y.C, y.HD);
    y.wgu = model_weight(m, w + at->gate_up, 2 * y.I, y.C);
    y.wd = model_weight(m, w + at->down, y.C, y.I);
    y.grad = m->grad ? model_gradient(m, w) : NULL;
    return y;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* y (+)= x w', w a weight [out, in]. */
static void linear(struct model *m, struct tensor x, struct tensor w, struct tensor y, bool add)
{
    m->be->ops->gemm(
        m->be, &(struct gemm_args){.a = x, .b = w, .c = y, .trans_b = true, .accumulate = add});
}

/* dx (+)= dy w. */
static void linear_back(struct model *m, struct tensor dy, struct tensor w, struct tensor dx,
                        bool add)
{
    m->be->ops->gemm(m->be, &(struct gemm_args){.a = dy, .b = w, .c = dx, .accumulate = add});
}

static void norm(struct model *m, struct tensor x, struct tensor g, struct tensor y)
{
    m->be->ops->rmsnorm_fwd(
        m->be, &(struct rmsnorm_fwd_args){
                   .x = x, .y = y, .g = g, .rstd = m->rstd, .eps = (float)m->shape.norm_eps});
}

static void rope(struct model *m, struct tensor x, int64_t n_heads, const int64_t *pos,
                 bool inverse)
{
    m->be->ops->rope(m->be, &(struct rope_args){.x = x,
                                                .pos = pos,
                                                .inv_freq = m->inv_freq,
                                                .n_heads = n_heads,
                                                .head_dim = m->shape.head_dim,
                                                .inverse = inverse});
}

/* to = from, unless they are one buffer (inference keeps one residual stream). */
static void copy_rows(struct model *m, struct tensor to, struct tensor from)
{
    if (to.data != from.data)
        m->be->ops->copy(m->be, to.data, from.data, from.rows * from.ld * dtype_size(from.dtype));
}

static void project_qkv(struct model *m, const struct layer *y, const int64_t *pos)
{
    norm(m, y->x, y->g_in, y->xn);
    linear(m, y->xn, y->wq, y->q, false);
    linear(m, y->xn, y->wkv, y->kv, false);
    rope(m, y->q, m->shape.n_heads, pos, false);
    rope(m, tensor_sub(y->kv, 0, y->kv.rows, 0, y->KD), m->shape.n_kv_heads, pos, false);
}

static void project_out(struct model *m, const struct layer *y)
{
    copy_rows(m, y->x_mid, y->x);
    linear(m, y->o, y->wo, y->x_mid, true);
}

static void project_gate_up(struct model *m, const struct layer *y)
{
    norm(m, y->x_mid, y->g_post, y->xn);
    linear(m, y->xn, y->wgu, y->gate_up, false);
}

static void swiglu(struct model *m, const struct layer *y)
{
    m->be->ops->swiglu_fwd(m->be, &(struct swiglu_fwd_args){.gu = y->gate_up, .a = y->act});
}

/* x_out = x_mid + Wd (silu(gate) up) */
static void mlp(struct model *m, const struct layer *y)
{
    project_gate_up(m, y);
    swiglu(m, y);
    copy_rows(m, y->x_out, y->x_mid);
    linear(m, y->act, y->wd, y->x_out, true);
}

static void mark_place(struct model *m, int l)
{
    if (m->comm) comm_where(m->comm)->layer = l;
}

static void *kept_of(struct model *m, int l)
{
    return m->attn_kept ? m->attn_kept + l * m->attn_kept_stride : NULL;
}

static int attend(struct model *m, const struct layer *y, const struct batch *b, struct err *e)
{
    mark_place(m, y->l);
    m->sp.drop.layer = (uint32_t)y->l;
    return m->sp.ops->attn_fwd(&m->sp,
                               &(struct sp_fwd_args){.q = y->q,
                                                     .kv = y->kv,
                                                     .o = y->o,
                                                     .lse = y->lse,
                                                     .lo = b->lo,
                                                     .hi = b->hi,
                                                     .kept = kept_of(m, y->l),
                                                     .reach = &b->reach,
                                                     .all_lo = m->all_lo,
                                                     .all_hi = m->all_hi},
                               e);
}

/* ---- forward --------------------------------------------------------------------------------- */

int layer_forward(struct model *m, int l, const struct batch *b, struct err *e)
{
    const struct layer y = layer_of(m, l);
    project_qkv(m, &y, b->pos);
    if (attend(m, &y, b, e)) return -1;
    project_out(m, &y);
    mlp(m, &y);
    return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Refills what the recompute mode did not keep. */
static int restore(struct model *m, const struct layer *y, const struct batch *b, struct err *e)
{
    const enum recompute_id mode = m->plan->recompute;
    if (mode == RECOMPUTE_NONE) return 0;
    project_qkv(m, y, b->pos);
    if (mode == RECOMPUTE_FULL && attend(m, y, b, e)) return -1;
    project_out(m, y);
    project_gate_up(m, y);
    return 0;
}

struct norm_back {
    struct tensor x, g;
};

static void norm_leaf(struct model *m, void *arg, int64_t row0, int64_t n, float *dst, bool fresh)
{
    const struct norm_back *a = arg;
    const int64_t C = m->shape.width;
    if (fresh) m->be->ops->fill(m->be, dst, C, 0);
    m->be->ops->rmsnorm_bwd(
        m->be, &(struct rmsnorm_bwd_args){.x = tensor_sub(a->x, row0, n, 0, C),
                                          .dy = tensor_sub(model_rows(m, m->dxn, C), row0, n, 0, C),
                                          .dx = tensor_sub(model_rows(m, m->dx, C), row0, n, 0, C),
                                          .g = a->g,
                                          .rstd = m->rstd + row0,
                                          .dg = dst,
                                          .accumulate = true});
}

/* m->dx += the norm's backward of m->dxn; dg into grad. rstd is that of the last norm() of x. */
static void norm_back(struct model *m, struct tensor x, struct tensor g, float *dg)
{
    struct norm_back a = {x, g};
    tree_sum(m, dg, m->shape.width, &(struct tree_leaf){norm_leaf, &a});
}

static void mlp_backward(struct model *m, const struct layer *y)
{
    const struct tensor dx = model_rows(m, m->dx, y->C), dxn = model_rows(m, m->dxn, y->C);
    const struct tensor dact = model_rows(m, m->dact, y->I);
    swiglu(m, y);
    tree_gemm(m, y->grad + m->map.down, dx, y->act);
    linear_back(m, dx, y->wd, dact, false);
    m->be->ops->swiglu_bwd(
        m->be, &(struct swiglu_bwd_args){.gu = y->gate_up, .da = dact, .dgu = y->gate_up});
    norm(m, y->x_mid, y->g_post, y->xn);
    tree_gemm(m, y->grad + m->map.gate_up, y->gate_up, y->xn);
    linear_back(m, y->gate_up, y->wgu, dxn, false);
    norm_back(m, y->x_mid, y->g_post, y->grad + m->map.post_norm);
}

/* What feeds products with weights: the gradient itself in fp32, else rounded into `room`. */
static struct tensor rounded(struct model *m, struct tensor d, struct tensor room)
{
    if (m->dtype == DT_F32) return d;
    m->be->ops->cast(m->be, &(struct cast_args){.dst = room, .src = d});
    return room;
}

static int attention_backward(struct model *m, const struct layer *y, const struct batch *b,
                              struct err *e)
{
    const int64_t T = m->sp.shard.T, KV = 2 * y->KD;
    const struct tensor dx = model_rows(m, m->dx, y->C), dxn = model_rows(m, m->dxn, y->C);
    struct tensor dq = tensor_f32(m->dq, T, y->HD, y->HD), dkv = tensor_f32(m->dkv, T, KV, KV);
    const struct sp_bwd_args a = {.q = y->q,
                                  .kv = y->kv,
                                  .o = y->o,
                                  .d_o = model_rows(m, m->d_o, y->HD),
                                  .lse = y->lse,
                                  .dq = dq,
                                  .dkv = dkv,
                                  .lo = b->lo,
                                  .hi = b->hi,
                                  .kept = kept_of(m, y->l),
                                  .reach = &b->reach,
                                  .all_lo = m->all_lo,
                                  .all_hi = m->all_hi};
    tree_gemm(m, y->grad + m->map.o, dx, y->o);
    linear_back(m, dx, y->wo, a.d_o, false);
    mark_place(m, y->l);
    m->sp.drop.layer = (uint32_t)y->l;
    if (m->sp.ops->attn_bwd(&m->sp, &a, e)) return -1;
    rope(m, dq, m->shape.n_heads, b->pos, true);
    rope(m, tensor_sub(dkv, 0, T, 0, y->KD), m->shape.n_kv_heads, b->pos, true);
    dq = rounded(m, dq, y->q); /* attention was the last to read q and kv */
    dkv = rounded(m, dkv, y->kv);
    norm(m, y->x, y->g_in, y->xn);
    tree_gemm(m, y->grad + m->map.q, dq, y->xn);
    tree_gemm(m, y->grad + m->map.kv, dkv, y->xn);
    linear_back(m, dq, y->wq, dxn, false);
    linear_back(m, dkv, y->wkv, dxn, true);
    norm_back(m, y->x, y->g_in, y->grad + m->map.in_norm);
    return 0;
}

/* m->dx: in, the gradient of the layer's output; out, of its input. */
int layer_backward(struct model *m, int l, const struct batch *b, struct err *e)
{
    const struct layer y = layer_of(m, l);
    assert(y.grad);
    if (restore(m, &y, b, e)) return -1;
    mlp_backward(m, &y);
    return attention_backward(m, &y, b, e);
}

/* ---- one token ------------------------------------------------------------------------------- */

int layer_decode(struct model *m, int l, int64_t pos, bool own, struct err *e)
{
    struct layer y = layer_of(m, l);
    const int64_t used = m->cache_used, KV = y.kv.cols;
    const struct tensor cache = tensor_of(m->dtype, y.kv.data, used + own, KV, KV);
    struct tensor *const one[] = {&y.x, &y.x_mid, &y.x_out, &y.xn, &y.q, &y.o, &y.gate_up, &y.act};
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) one[i]->rows = 1;
    /* Every rank computes the new key and value; only the owner's cache row is kept: the next token
     * overwrites the row of the others. */
    y.kv = tensor_sub(y.kv, used, 1, 0, KV);
    project_qkv(m, &y, &pos);
    mark_place(m, l);
    struct sp_run run[SP_RUNS];
    struct sp_decode_args a = {.q = y.q, .kv = cache, .o = y.o};
    if (m->shape.window) {
        a.n_runs = model_seen_rows(m, pos, cache.rows, run);
        a.run = run;
    }
    if (m->sp.ops->attn_decode(&m->sp, &a, e)) return -1;
    project_out(m, &y);
    mlp(m, &y);
    return 0;
}
