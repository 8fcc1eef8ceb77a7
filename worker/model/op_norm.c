/* op_norm.c: NORM: RMSNorm and LayerNorm, of whole rows or of groups of columns (heads).
 *
 * out[1] is rstd [T, groups], then the mean unless rms. The backward reads what the last forward
 * before it wrote. */
#include "worker/model/op.h"

#include <assert.h>

struct norm {
    struct tensor x, rest; /* what is normalised, and the columns after it, copied as they are */
    struct tensor g, b;    /* weights [1, cols of a group]; data NULL: none */
    float *rstd, *mean;
    int64_t groups;
    bool rms, weighted;
};

/* The columns that are normalised, and those after them. */
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

/* The kernel of the decoder's own norm, where it does: it is measured. */
static bool plain(const struct norm *n)
{
    return n->rms && n->groups == 1 && n->g.data && !n->b.data && n->g.dtype == n->x.dtype;
}

/* 1 + g in place of g: in fp32, where the weights have fewer digits. */
static void add_one(struct frame *f, const struct op *o, struct norm *n)
{
    if (!o->u.norm.offset) return;
    const struct tensor g = scratch_rows(f, DT_F32, 1, n->g.cols);
    f->be->ops->fill(f->be, g.data, g.cols, 1);
    f->be->ops->mix(f->be, &(struct mix_args){.a = g, .b = n->g, .y = g, .alpha = 1, .beta = 1});
    n->g = g;
}

static int norm_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct norm n = norm_of(f, o);
    const struct tensor y = head_of(o, frame_out(f, o, 0));
    (void)e;
    add_one(f, o, &n);
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
                                                            .eps = o->u.norm.eps});
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
    const struct tensor x = span_value(n->x, s), dy = span_grad(a->dy, s);
    const struct tensor dx = span_grad(a->dx, s);
    const float *rstd = n->rstd + s.value0 * n->groups, *mean = n->mean + s.value0 * n->groups;
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
                                                            .accumulate = a->accumulate});
}

static void norm_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct norm_back *a = arg;
    if (fresh) f->be->ops->fill(f->be, dst, a->n.g.cols, 0);
    norm_rows(f, a, s, dst);
}

/* A group's row as a row of its own: what a bias of the group is summed over. */
static void shift_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct norm_back *a = arg;
    const int64_t D = a->n.b.cols;
    if (fresh) f->be->ops->fill(f->be, dst, D, 0);
    for (int64_t g = 0; g < a->n.groups; g++) {
        const struct tensor dy = tensor_sub(span_grad(a->dy, s), 0, s.n, g * D, D);
        f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = dy, .db = dst});
    }
}

static int norm_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const struct tensor dy = frame_dy(f, o);
    const struct back dx = back_begin(f, o, s, 0);
    struct norm_back a = {norm_of(f, o), head_of(o, dy), head_of(o, dx.to), dx.accumulate};
    (void)e;
    add_one(f, o, &a.n);
    if (a.n.weighted)
        frame_sum(f, rows, frame_weight_grad(f, o->w), a.n.g.cols,
                  &(struct sum_leaf){norm_leaf, &a});
    else
        for (int i = 0; i < frame_blocks(f, rows); i++)
            norm_rows(f, &a, frame_block(f, rows, i), NULL);
    if (a.n.b.data)
        frame_sum(f, rows, frame_weight_grad(f, o->w + 1), a.n.b.cols,
                  &(struct sum_leaf){shift_leaf, &a});
    if (a.n.rest.cols) frame_move(f, rest_of(o, dx.to), rest_of(o, dy), dx.accumulate);
    back_end(f, &dx);
    return 0;
}

const struct op_row op_norm = {norm_forward, norm_backward, NULL};
