/* op_norm.c: NORM, which is RMSNorm or LayerNorm of whole rows or of groups of columns (heads).
 *
 * Under tensor parallelism each rank has the columns of its heads, and a norm may include the
 * columns of several ranks. The ranks then sum the squares of each row, in fp32. In backward they
 * also sum the component of the row's gradient along the row. If several ranks have one KV head,
 * they have equal squares, so the sum includes only the first of these ranks. But each of these
 * ranks has a part of the gradient.
 *
 * out[1] has rstd [T, groups]. If rms is not set, the mean follows it. Backward reads the values
 * that the last forward wrote. */
#include "worker/model/op.h"

#include "api/core/assert.h"

struct norm {
    /* x: the columns that are normalised; rest: the columns after them, which are only copied */
    struct tensor x, rest;
    struct tensor g, b; /* weights [1, cols of a group]; data is NULL if there are none */
    float *rstd, *mean;
    int64_t groups;
    bool rms, weighted;
    /* [T] sums over the n_all columns of all ranks; NULL if this rank has whole rows */
    const float *sums;
    int64_t n_all, n_same;
};

/* head_of returns the columns that are normalised; rest_of returns the columns after them. */
static struct tensor head_of(const struct op *o, struct tensor t)
{
    const int64_t n = o->u.norm.dim ? o->u.norm.groups * o->u.norm.dim : t.cols;
    return tensor_sub(t, 0, t.rows, 0, n);
}

static struct tensor rest_of(const struct op *o, struct tensor t)
{
    const int64_t n = head_of(o, t).cols;
    return tensor_sub(t, 0, t.rows, n, t.cols - n);
}

static struct norm norm_of(const struct frame *f, const struct op *o)
{
    struct norm n = {.x = head_of(o, frame_in(f, o, 0)),
                     .rest = rest_of(o, frame_in(f, o, 0)),
                     .groups = o->u.norm.groups,
                     .rms = o->u.norm.kind == NORM_RMS,
                     .weighted = o->n_w > 0};
    n.rstd = frame_out(f, o, 1).data;
    n.mean = n.rstd + n.x.rows * n.groups;
    if (n.weighted) n.g = frame_weight(f, o->w, 1);
    if (o->n_w > 1) n.b = frame_weight(f, o->w + 1, 1);
    return n;
}

/* Tells whether rmsnorm_fwd and rmsnorm_bwd can compute this norm. They are the kernels of the
 * decoder, and benches measure them. */
static bool plain(const struct norm *n)
{
    return !n->sums && n->rms && n->groups == 1 && n->g.data && !n->b.data &&
           n->g.dtype == n->x.dtype;
}

/* Replaces g by 1 + g. The result is fp32, because the type of the weights may have too few
 * digits. */
static void add_one(struct frame *f, const struct op *o, struct norm *n)
{
    if (!o->u.norm.offset) return;
    const struct tensor g = op_scratch_rows(f, DT_F32, 1, n->g.cols);
    f->be->ops->fill(f->be, g.data, g.cols, 1);
    f->be->ops->mix(f->be, &(struct mix_args){.a = g, .b = n->g, .y = g, .alpha = 1, .beta = 1});
    n->g = g;
}

/* Computes a sum for each row, over the columns of all ranks. In forward it is the sum of the
 * row's squares. In backward it is the component of the row's gradient along the row. The call is
 * for backward if dy.data is set. */
static int sum_span(struct frame *f, const struct op *o, struct norm *n, struct tensor dy,
                    struct err *e)
{
    const int tp = f->tensor.n, r = f->tensor.r;
    const int64_t heads = o->u.norm.span == SPAN_KEYS ? f->shape->n_kv_heads : f->shape->n_heads;
    const int64_t rows = n->x.rows;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (!o->u.norm.span) return 0;
    float *sum = op_scratch_take(f, 4 * rows);
    n->sums = sum;
    n->n_all = tp > 1 ? heads * f->shape->head_dim : n->x.cols;
    n->n_same = tp > heads ? tp / heads : 1;
    f->be->ops->norm_part(f->be,
                          &(struct norm_part_args){.x = n->x, .dy = dy, .g = n->g, .sum = sum});
    if (!dy.data && r % n->n_same) f->be->ops->fill(f->be, sum, rows, 0);
    frame_mark(f);
    if (!f->tensor.comm) return 0;
    for (int w = 0; w <= tp; w++) cut[w] = w * (rows / tp);
    if (comm_reduce_scatter(f->tensor.comm, PURPOSE_TENSOR, sum, cut, f->tensor.bounce, e))
        return -1;
    return comm_all_gather(f->tensor.comm, PURPOSE_TENSOR, sum + cut[r], sum, cut, 4,
                           f->tensor.bounce, e);
}

static int norm_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct norm n = norm_of(f, o);
    const struct tensor y = head_of(o, frame_out(f, o, 0));
    add_one(f, o, &n);
    if (sum_span(f, o, &n, (struct tensor){0}, e)) return -1;
    if (n.rest.cols) frame_move(f, rest_of(o, frame_out(f, o, 0)), n.rest, false);
    if (plain(&n))
        f->be->ops->rmsnorm_fwd(
            f->be, &(struct rmsnorm_fwd_args){
                       .x = n.x, .y = y, .g = n.g, .rstd = n.rstd, .eps = o->u.norm.eps});
    else
        f->be->ops->norm_fwd(f->be, &(struct norm_fwd_args){.x = n.x,
                                                            .y = y,
                                                            .g = n.g,
                                                            .b = n.b,
                                                            .mean = n.mean,
                                                            .rstd = n.rstd,
                                                            .groups = n.groups,
                                                            .rms = n.rms,
                                                            .eps = o->u.norm.eps,
                                                            .sums = n.sums,
                                                            .n_all = n.n_all});
    return 0;
}

struct norm_back {
    struct norm n;
    struct tensor dy, dx;
    bool accumulate;
};

static void norm_rows(struct frame *f, const struct norm_back *a, struct span s, float *dg)
{
    const struct norm *n = &a->n;
    const struct tensor x = op_span_value(n->x, s), dy = op_span_grad(a->dy, s);
    const struct tensor dx = op_span_grad(a->dx, s);
    const float *rstd = n->rstd + s.value0 * n->groups, *mean = n->mean + s.value0 * n->groups;
    const float *sums = n->sums ? n->sums + s.value0 : NULL;
    if (plain(n))
        f->be->ops->rmsnorm_bwd(f->be, &(struct rmsnorm_bwd_args){.x = x,
                                                                  .dy = dy,
                                                                  .dx = dx,
                                                                  .g = n->g,
                                                                  .rstd = rstd,
                                                                  .dg = dg,
                                                                  .accumulate = a->accumulate});
    else
        f->be->ops->norm_bwd(f->be, &(struct norm_bwd_args){.x = x,
                                                            .dy = dy,
                                                            .dx = dx,
                                                            .g = n->g,
                                                            .mean = mean,
                                                            .rstd = rstd,
                                                            .dg = dg,
                                                            .groups = n->groups,
                                                            .rms = n->rms,
                                                            .accumulate = a->accumulate,
                                                            .sums = sums,
                                                            .n_all = n->n_all,
                                                            .n_same = n->n_same});
}

static void norm_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct norm_back *a = arg;
    if (fresh) f->be->ops->fill(f->be, dst, a->n.g.cols, 0);
    norm_rows(f, a, s, dst);
}

/* Sums the gradient of the bias. All groups of a row share the bias, so each group of a row counts
 * as a row. */
static void shift_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct norm_back *a = arg;
    const int64_t D = a->n.b.cols;
    if (fresh) f->be->ops->fill(f->be, dst, D, 0);
    for (int64_t g = 0; g < a->n.groups; g++) {
        const struct tensor dy = tensor_sub(op_span_grad(a->dy, s), 0, s.n, g * D, D);
        f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = dy, .db = dst});
    }
}

static int norm_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const struct tensor dy = frame_dy(f, o);
    const struct back dx = op_back_begin(f, o, s, 0);
    struct norm_back a = {norm_of(f, o), head_of(o, dy), head_of(o, dx.to), dx.accumulate};
    add_one(f, o, &a.n);
    if (sum_span(f, o, &a.n, a.dy, e)) return -1;
    if (a.n.weighted && frame_learns(f, o->w))
        frame_sum(f, rows, frame_weight_grad(f, o->w), a.n.g.cols,
                  &(struct sum_leaf){norm_leaf, &a});
    else
        for (int i = 0; i < frame_blocks(f, rows); i++)
            norm_rows(f, &a, frame_block(f, rows, i), NULL);
    if (a.n.b.data && frame_learns(f, o->w + 1))
        frame_sum(f, rows, frame_weight_grad(f, o->w + 1), a.n.b.cols,
                  &(struct sum_leaf){shift_leaf, &a});
    if (a.n.rest.cols) frame_move(f, rest_of(o, dx.to), rest_of(o, dy), dx.accumulate);
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_norm = {norm_forward, norm_backward, NULL};
