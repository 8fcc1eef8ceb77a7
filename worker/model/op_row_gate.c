/* op_row_gate.c: ROW_GATE, which computes out = base + sigmoid(gate) a. The gate has one column,
 * so each row has one value of the gate.
 *
 * The gate is copied to all columns of a, and its gradient is a sum over these columns, in fp32.
 * Both are computed as products with ones. */
#include "api/core/mutant.h"
#include "worker/model/op.h"

/* Copies the gates to all columns, [T, C] in the model's precision. */
static struct tensor spread(struct frame *f, const struct op *o, struct tensor ones)
{
    const struct tensor gate = frame_in(f, o, 2);
    const struct tensor one = op_scratch_rows(f, DT_F32, gate.rows, 1);
    const struct tensor all = op_scratch_rows(f, f->dtype, gate.rows, ones.cols);
    frame_move(f, one, gate, false);
    if (mutant_on(MUTANT_GATE_LOST) && f->sp->shard.r) frame_zero(f, one);
    frame_spread(f, one, ones, all);
    return all;
}

static int row_gate_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor a = frame_in(f, o, 1), g = spread(f, o, frame_ones(f, a.cols));
    (void)e;
    f->be->ops->glu_fwd(f->be, &(struct glu_fwd_args){.fn = ACT_SIGMOID, .a = g, .b = a, .y = g});
    f->be->ops->mix(
        f->be, &(struct mix_args){
                   .a = frame_in(f, o, 0), .b = g, .y = frame_out(f, o, 0), .alpha = 1, .beta = 1});
    return 0;
}

/* Sums d [T, C] over columns. Writes the sum to the gate's gradient, or adds it. */
static void gate_gradient(struct frame *f, const struct op *o, const struct step *s,
                          struct tensor d, struct tensor ones)
{
    const struct tensor wide = op_scratch_rows(f, DT_F32, d.rows, d.cols);
    const struct tensor column = tensor_f32(ones.data, d.cols, 1, 1);
    frame_move(f, wide, d, false);
    f->be->ops->gemm(
        f->be, &(struct gemm_args){
                   .a = wide, .b = column, .c = f->grad[o->in[2]], .accumulate = !s->first[2]});
}

static int row_gate_backward(struct frame *f, const struct op *o, const struct step *s,
                             struct err *e)
{
    const struct tensor a = frame_in(f, o, 1), dy = frame_dy(f, o), none = {0};
    const struct tensor ones = frame_ones(f, a.cols), g = spread(f, o, ones);
    struct back da = {0};
    (void)e;
    if (frame_wants(f, o, 1)) da = op_back_begin(f, o, s, 1);
    f->be->ops->glu_bwd(f->be, &(struct glu_bwd_args){.fn = ACT_SIGMOID,
                                                      .a = g,
                                                      .b = a,
                                                      .dy = dy,
                                                      .da = frame_wants(f, o, 2) ? g : none,
                                                      .db = da.to,
                                                      .accumulate_b = da.accumulate});
    op_back_end(f, &da);
    if (frame_wants(f, o, 2)) gate_gradient(f, o, s, g, ones);
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

const struct op_row op_row_gate = {row_gate_forward, row_gate_backward, NULL};
