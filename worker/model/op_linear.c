/* op_linear.c: LINEAR: out = [base +] a W' [+ b]. */
#include "worker/model/op.h"

static void bias_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct tensor *dy = arg;
    if (fresh) f->be->ops->fill(f->be, dst, dy->cols, 0);
    f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = op_span_grad(*dy, s), .db = dst});
}

/* Sums dy over rows into dst [cols], or adds to it. */
void frame_sum_rows(struct frame *f, enum rows_id rows, float *dst, struct tensor dy)
{
    frame_sum(f, rows, dst, dy.cols, &(struct sum_leaf){bias_leaf, &dy});
}

static struct tensor frame_bias(struct frame *f, const struct op *o)
{
    return o->bias == PROG_NONE ? (struct tensor){0} : frame_weight(f, o->bias, o->n_bias);
}

static int linear_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const bool base = o->in[1] != PROG_NONE;
    (void)e;
    if (base) frame_move(f, y, frame_in(f, o, 1), false);
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = frame_in(f, o, 0),
                                                .b = frame_weight(f, o->w, o->n_w),
                                                .c = y,
                                                .trans_b = true,
                                                .accumulate = base,
                                                .bias = frame_bias(f, o)});
    return 0;
}

static int linear_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = frame_dy(f, o), a = frame_in(f, o, 0);
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    (void)e;
    frame_sum_gemm(f, rows, frame_weight_grad(f, o->w), dy, a);
    if (o->bias != PROG_NONE) frame_sum_rows(f, rows, frame_weight_grad(f, o->bias), dy);
    if (frame_wants(f, o, 0)) {
        /* A product writes any type, so nothing need be staged. */
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = dy,
                                                    .b = frame_weight(f, o->w, o->n_w),
                                                    .c = f->grad[o->in[0]],
                                                    .accumulate = !s->first[0]});
    }
    if (frame_wants(f, o, 1)) frame_move(f, f->grad[o->in[1]], f->grad[o->out[0]], !s->first[1]);
    return 0;
}

const struct op_row op_linear = {linear_forward, linear_backward, NULL};
