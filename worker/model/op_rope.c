/* op_rope.c: ROPE and LRPE, the rotary positions of queries and keys. */
#include "worker/model/op.h"

#include "api/core/assert.h"

/* Returns the position of each row. It is the position of the row's token or, if `frames` is set,
 * the index of the row's frame. */
static const int64_t *positions(struct frame *f, const struct op *o, bool frames)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    if (!frames) return f->batch->pos;
    const struct along time = frame_along(f, rows, 1);
    const struct twin pos = op_twin_take(f, 8 * f->rows[rows].n);
    for (int64_t i = 0; i < f->rows[rows].n; i++)
        ((int64_t *)pos.host)[i] = time.first + i / time.within % time.n;
    op_twin_up(f, &pos);
    return pos.dev;
}

/* Returns the table of frequencies. The second table begins where the first ends, because the
 * number of rotated columns does not differ between operations. */
static const double *frequencies(const struct frame *f, const struct op *o)
{
    const int64_t n = o->u.rope.rotary_dim ? o->u.rope.rotary_dim : o->u.rope.head_dim;
    return f->inv_freq + (o->u.rope.local ? n / 2 : 0);
}

static void rotate(struct frame *f, const struct op *o, struct tensor x, bool inverse)
{
    f->be->ops->rope(f->be, &(struct rope_args){.x = x,
                                                .pos = positions(f, o, o->u.rope.frames),
                                                .inv_freq = frequencies(f, o),
                                                .n_heads = o->u.rope.n_heads,
                                                .head_dim = o->u.rope.head_dim,
                                                .inverse = inverse,
                                                .rotary_dim = o->u.rope.rotary_dim,
                                                .interleaved = o->u.rope.interleaved,
                                                .scale = o->u.rope.local ? 1 : f->rope_scale,
                                                .single = f->rope_single});
}

/* Returns the columns of x that are rotated, which are the columns of the heads. The columns after
 * them (values) are unchanged. */
static struct tensor rotated(const struct op *o, struct tensor x)
{
    return tensor_sub(x, 0, x.rows, 0, o->u.rope.n_heads * o->u.rope.head_dim);
}

static int rope_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    (void)e;
    frame_move(f, y, frame_in(f, o, 0), false);
    rotate(f, o, rotated(o, y), false);
    return 0;
}

/* Applies the inverse rotation to the output's gradient. It is done in place, because no later
 * operation reads this gradient. */
static int rope_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = f->grad[o->out[0]];
    (void)e;
    rotate(f, o, rotated(o, dy), true);
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], dy, !s->first[0]);
    return 0;
}

const struct op_row op_rope = {rope_forward, rope_backward, NULL};

/* ---- LRPE ------------------------------------------------------------------------------------ */

/* theta is [H, D]. The input has one or more sets of H heads (queries, then keys), and all sets
 * use the same angles. The gradient of the angles is computed by LINEAR_ATTENTION, because it
 * knows the distances. */
struct lrpe {
    struct tensor theta;
    int64_t n_sets;
};

static struct lrpe lrpe_of(const struct frame *f, const struct op *o)
{
    struct lrpe a = {.theta = frame_weight(f, o->w, 1)};
    a.n_sets = frame_in(f, o, 0).cols / (a.theta.rows * a.theta.cols);
    return a;
}

static struct tensor set_at(struct tensor t, int64_t k, int64_t n_sets)
{
    return tensor_sub(t, 0, t.rows, k * (t.cols / n_sets), t.cols / n_sets);
}

static int lrpe_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct lrpe a = lrpe_of(f, o);
    (void)e;
    for (int64_t k = 0; k < a.n_sets; k++)
        f->be->ops->lrpe_fwd(f->be,
                             &(struct lrpe_fwd_args){.x = set_at(frame_in(f, o, 0), k, a.n_sets),
                                                     .y = set_at(frame_out(f, o, 0), k, a.n_sets),
                                                     .theta = a.theta,
                                                     .pos = f->batch->pos,
                                                     .n_heads = a.theta.rows,
                                                     .head_dim = a.theta.cols});
    return 0;
}

static int lrpe_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    if (!frame_wants(f, o, 0)) return 0;
    const struct lrpe a = lrpe_of(f, o);
    const struct tensor dy = frame_dy(f, o);
    const struct back dx = op_back_begin(f, o, s, 0);
    (void)e;
    for (int64_t k = 0; k < a.n_sets; k++)
        f->be->ops->lrpe_bwd(f->be, &(struct lrpe_bwd_args){.dy = set_at(dy, k, a.n_sets),
                                                            .dx = set_at(dx.to, k, a.n_sets),
                                                            .theta = a.theta,
                                                            .pos = f->batch->pos,
                                                            .n_heads = a.theta.rows,
                                                            .head_dim = a.theta.cols,
                                                            .accumulate = dx.accumulate});
    op_back_end(f, &dx);
    return 0;
}

const struct op_row op_lrpe = {lrpe_forward, lrpe_backward, NULL};
