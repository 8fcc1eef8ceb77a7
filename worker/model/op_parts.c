/* op_parts.c: GATHER and SCATTER, which exchange rows between the ranks of tensor parallelism
 * (Megatron-LM with sequence parallelism, 2205.05198). The parts of a sum are sent in fp32, and
 * the sum is rounded once. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/op.h"

/* Divides rows of `cols` columns among the ranks. cut[w] is the index of the first element of rank
 * w's part. */
static void cuts(const struct frame *f, int64_t cols, int64_t cut[JOB_MAX_RANKS + 1])
{
    for (int w = 0; w <= f->tensor.n; w++) cut[w] = w * f->rows[ROWS_PART].n * cols;
}

/* Gathers the rows of the ranks into `all`, in the order of the ranks. `part` is this rank's
 * rows. */
static int gather(struct frame *f, struct tensor all, struct tensor part, struct err *e)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    cuts(f, all.cols, cut);
    assert(all.ld == all.cols && part.ld == part.cols && all.dtype == part.dtype);
    frame_mark(f);
    if (!f->tensor.comm) {
        frame_move(f, all, part, false);
        return 0;
    }
    return comm_all_gather(f->tensor.comm, PURPOSE_TENSOR, part.data, all.data, cut,
                           dtype_size(all.dtype), f->tensor.bounce, e);
}

/* Sums `all` over the ranks. For this rank's own rows, *own becomes the sum. The other rows of
 * `all` get only partial sums. */
static int scatter(struct frame *f, struct tensor all, struct tensor *own, struct err *e)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    const int64_t n = f->rows[ROWS_PART].n;
    cuts(f, all.cols, cut);
    assert(all.ld == all.cols && all.dtype == DT_F32);
    frame_mark(f);
    *own = tensor_sub(all, f->tensor.r * n, n, 0, all.cols);
    if (!f->tensor.comm) return 0;
    if (mutant_on(MUTANT_PART_TWICE) && f->tensor.r == f->tensor.n - 1)
        f->be->ops->mix(f->be, &(struct mix_args){.a = all, .y = all, .alpha = 2});
    return comm_reduce_scatter(f->tensor.comm, PURPOSE_TENSOR, all.data, cut, f->tensor.bounce, e);
}

static int gather_forward(struct frame *f, const struct op *o, struct err *e)
{
    return gather(f, frame_out(f, o, 0), frame_in(f, o, 0), e);
}

/* Sums in the memory of the output's gradient, because no later operation reads it. */
static int gather_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    struct tensor own;
    if (scatter(f, f->grad[o->out[0]], &own, e)) return -1;
    frame_move(f, f->grad[o->in[0]], own, !s->first[0]);
    return 0;
}

const struct op_row op_gather = {gather_forward, gather_backward, NULL};

/* Adds the bias to each row. The bias of all rows is a product of a column of ones and the
 * bias. */
static void add_bias(struct frame *f, const struct op *o, struct tensor sum)
{
    const struct tensor b = op_scratch_rows(f, DT_F32, 1, sum.cols);
    const struct tensor ones = frame_ones(f, sum.rows);
    frame_move(f, b, frame_weight(f, o->bias, o->n_bias), false);
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = tensor_f32(ones.data, sum.rows, 1, 1),
                                                .b = b,
                                                .c = sum,
                                                .accumulate = true});
}

static int scatter_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    struct tensor sum;
    if (scatter(f, frame_in(f, o, 0), &sum, e)) return -1;
    if (o->n_bias) add_bias(f, o, sum);
    if (o->in[1] == PROG_NONE) {
        frame_move(f, y, sum, false);
        return 0;
    }
    f->be->ops->mix(
        f->be, &(struct mix_args){.a = frame_in(f, o, 1), .b = sum, .y = y, .alpha = 1, .beta = 1});
    return 0;
}

static int scatter_backward(struct frame *f, const struct op *o, const struct step *s,
                            struct err *e)
{
    const struct tensor dy = frame_dy(f, o);
    if (o->n_bias && frame_learns(f, o->bias))
        frame_sum_rows(f, ROWS_PART, frame_weight_grad(f, o->bias), dy);
    if (gather(f, f->grad[o->in[0]], dy, e)) return -1;
    if (frame_wants(f, o, 1)) frame_move(f, f->grad[o->in[1]], f->grad[o->out[0]], !s->first[1]);
    return 0;
}

const struct op_row op_scatter = {scatter_forward, scatter_backward, NULL};
