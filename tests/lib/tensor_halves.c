/* tensor_halves.c: computes the two halves of a block, attention and MLP. Each half calls rows_in,
 * computes matrix products and, in the attention half, local attention, and then calls
 * rows_out. */
#include "tests/lib/tensor_halves.h"

#include "api/core/assert.h"
#include "worker/sp/block.h"

int64_t tensor_row(const struct tensor_group *g, int w)
{
    return g->S * w / g->P;
}

static void cuts(const struct tensor_group *g, int64_t cut[JOB_MAX_RANKS + 1])
{
    for (int w = 0; w <= g->P; w++) cut[w] = tensor_row(g, w) * g->C;
}

static struct tensor dense(float *data, int64_t rows, int64_t cols)
{
    return tensor_f32(data, rows, cols, cols);
}

/* Provides the input of a half for all rows. In TP, every rank already has all rows. In SP, the
 * rows are gathered into the buffer `room`. */
static int rows_in(struct tensor_group *g, struct tensor x, float *room, struct tensor *whole,
                   struct err *e)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    *whole = x;
    if (!g->sp || g->P == 1) return 0;
    assert(x.ld == x.cols);
    cuts(g, cut);
    *whole = dense(room, g->S, g->C);
    return comm_all_gather(g->comm, PURPOSE_TENSOR, x.data, room, cut, 4, g->bounce, e);
}

/* Sums the partial results of the ranks over all rows. In TP, every rank gets all rows of the sum.
 * In SP, this rank gets only its own rows of the sum. The result is written to y. */
static int rows_out(struct tensor_group *g, float *part, struct tensor y, struct err *e)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    cuts(g, cut);
    if (g->P > 1) {
        if (comm_reduce_scatter(g->comm, PURPOSE_TENSOR, part, cut, g->bounce, e)) return -1;
        if (!g->sp &&
            comm_all_gather(g->comm, PURPOSE_TENSOR, part + cut[g->r], part, cut, 4, g->bounce, e))
            return -1;
    }
    const float *from = g->sp ? part + cut[g->r] : part;
    assert(y.ld == y.cols);
    g->be->ops->copy(g->be, y.data, from, y.rows * y.cols * 4);
    return 0;
}

/* ---- products -------------------------------------------------------------------------------- */

static void product(struct tensor_group *g, struct tensor a, struct tensor b, struct tensor c)
{
    g->be->ops->gemm(g->be, &(struct gemm_args){.a = a, .b = b, .c = c});
}

/* Computes c = a b' + bias. There is no bias if bias.data is NULL. */
static void product_turned(struct tensor_group *g, struct tensor a, struct tensor b,
                           struct tensor bias, struct tensor c)
{
    g->be->ops->gemm(g->be,
                     &(struct gemm_args){.a = a, .b = b, .c = c, .trans_b = true, .bias = bias});
}

/* Adds a' b to d. The product is a sum over rows. */
static void gradient(struct tensor_group *g, struct tensor a, struct tensor b, float *d)
{
    g->be->ops->gemm(
        g->be,
        &(struct gemm_args){
            .a = a, .b = b, .c = dense(d, a.cols, b.cols), .trans_a = true, .accumulate = true});
}

static struct tensor inner_of(const struct tensor_group *g, const struct tensor_half *h)
{
    return dense(h->inner, g->S, h->first.rows);
}

static struct tensor act_of(const struct tensor_group *g, const struct tensor_half *h)
{
    return dense(h->act, g->S, h->last.cols);
}

/* Computes inner from x. */
static int begin(struct tensor_group *g, const struct tensor_half *h, struct tensor x,
                 struct err *e)
{
    struct tensor whole;
    if (rows_in(g, x, h->whole, &whole, e)) return -1;
    product_turned(g, whole, h->first, h->bias, inner_of(g, h));
    return 0;
}

/* Computes y from act. */
static int finish(struct tensor_group *g, const struct tensor_half *h, struct tensor y,
                  struct err *e)
{
    product_turned(g, act_of(g, h), h->last, (struct tensor){0}, dense(h->part, g->S, g->C));
    return rows_out(g, h->part, y, e);
}

/* Computes d_act from dy. Adds the gradient of the last matrix to the sum of this matrix's
 * gradients. */
static int begin_back(struct tensor_group *g, const struct tensor_half *h, struct tensor dy,
                      struct err *e)
{
    struct tensor whole;
    if (rows_in(g, dy, h->part, &whole, e)) return -1;
    gradient(g, whole, act_of(g, h), h->d_last);
    product(g, whole, h->last, dense(h->d_act, g->S, h->last.cols));
    return 0;
}

/* Computes dx from d_inner. Adds the gradients of the first matrix and of its bias to the sums of
 * these gradients. */
static int finish_back(struct tensor_group *g, const struct tensor_half *h, struct tensor x,
                       struct tensor dx, struct err *e)
{
    const struct tensor d_inner = dense(h->d_inner, g->S, h->first.rows);
    struct tensor whole = g->sp && g->P > 1 ? dense(h->whole, g->S, g->C) : x;
    if (g->again && rows_in(g, x, h->whole, &whole, e)) return -1;
    gradient(g, d_inner, whole, h->d_first);
    if (h->bias.data)
        g->be->ops->bias_bwd(g->be, &(struct bias_bwd_args){.dy = d_inner, .db = h->d_bias});
    product(g, d_inner, h->first, dense(h->part, g->S, g->C));
    return rows_out(g, h->part, dx, e);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Sets up attention over all rows without communication, which is the strategy of one rank. */
static int local_of(struct tensor_group *g, const struct tensor_attention *a, struct sp *out,
                    struct err *e)
{
    *out = (struct sp){.ops = &sp_local,
                       .be = g->be,
                       .shape = {a->n_heads, a->n_kv_heads, a->head_dim, a->scale},
                       .buf = {.m = a->m, .delta = a->delta}};
    return shard_init(&out->shard, g->S, 1, 0, LAYOUT_CONTIGUOUS, false, e);
}

static struct tensor queries(const struct tensor_attention *a, struct tensor inner)
{
    return tensor_sub(inner, 0, inner.rows, 0, a->n_heads * a->head_dim);
}

static struct tensor keys_values(const struct tensor_attention *a, struct tensor inner)
{
    return tensor_sub(inner, 0, inner.rows, a->n_heads * a->head_dim,
                      2 * a->n_kv_heads * a->head_dim);
}

int tensor_attention_fwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor y, struct err *e)
{
    const struct tensor inner = inner_of(g, &a->half);
    struct sp sp;
    if (begin(g, &a->half, x, e) || local_of(g, a, &sp, e)) return -1;
    const struct sp_fwd_args f = {.q = queries(a, inner),
                                  .kv = keys_values(a, inner),
                                  .o = act_of(g, &a->half),
                                  .lse = a->lse,
                                  .lo = a->lo,
                                  .hi = a->hi};
    return sp_local.attn_fwd(&sp, &f, e) || finish(g, &a->half, y, e) ? -1 : 0;
}

int tensor_attention_bwd(struct tensor_group *g, const struct tensor_attention *a, struct tensor x,
                         struct tensor dy, struct tensor dx, struct err *e)
{
    const struct tensor inner = inner_of(g, &a->half);
    const struct tensor d_inner = dense(a->half.d_inner, g->S, inner.cols);
    struct sp sp;
    if (begin_back(g, &a->half, dy, e) || local_of(g, a, &sp, e)) return -1;
    const struct sp_bwd_args b = {.q = queries(a, inner),
                                  .kv = keys_values(a, inner),
                                  .o = act_of(g, &a->half),
                                  .d_o = dense(a->half.d_act, g->S, a->half.last.cols),
                                  .lse = a->lse,
                                  .dq = queries(a, d_inner),
                                  .dkv = keys_values(a, d_inner),
                                  .lo = a->lo,
                                  .hi = a->hi};
    return sp_local.attn_bwd(&sp, &b, e) || finish_back(g, &a->half, x, dx, e) ? -1 : 0;
}

/* ---- MLP ------------------------------------------------------------------------------------- */

int tensor_mlp_fwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor y, struct err *e)
{
    const struct tensor inner = inner_of(g, &a->half), act = act_of(g, &a->half);
    if (begin(g, &a->half, x, e)) return -1;
    if (a->glu)
        g->be->ops->swiglu_fwd(g->be, &(struct swiglu_fwd_args){.gu = inner, .a = act});
    else
        g->be->ops->act_fwd(g->be, &(struct act_fwd_args){.fn = ACT_GELU, .x = inner, .y = act});
    return finish(g, &a->half, y, e);
}

int tensor_mlp_bwd(struct tensor_group *g, const struct tensor_mlp *a, struct tensor x,
                   struct tensor dy, struct tensor dx, struct err *e)
{
    const struct tensor inner = inner_of(g, &a->half);
    const struct tensor d_act = dense(a->half.d_act, g->S, a->half.last.cols);
    const struct tensor d_inner = dense(a->half.d_inner, g->S, inner.cols);
    if (begin_back(g, &a->half, dy, e)) return -1;
    if (a->glu)
        g->be->ops->swiglu_bwd(g->be,
                               &(struct swiglu_bwd_args){.gu = inner, .da = d_act, .dgu = d_inner});
    else
        g->be->ops->act_bwd(
            g->be, &(struct act_bwd_args){.fn = ACT_GELU, .x = inner, .dy = d_act, .dx = d_inner});
    return finish_back(g, &a->half, x, dx, e);
}

struct comm_count volume_tensor(int P, int r, int64_t S, int64_t C, bool again)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    struct comm_count c = {0};
    for (int w = 0; w <= P; w++) cut[w] = S * w / P * C;
    if (P == 1) return c;
    volume_add(&c, volume_reduce_scatter(P, r, cut), 1);
    volume_add(&c, volume_all_gather(P, r, cut, 4), again ? 2 : 1);
    return c;
}
