/* op_linear.c: LINEAR, which computes out = [base +] a W' [+ b]. */
#include "worker/model/op.h"

static void bias_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct tensor *dy = arg;
    if (fresh) f->be->ops->fill(f->be, dst, dy->cols, 0);
    f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = op_span_grad(*dy, s), .db = dst});
}

/* Sums dy over rows, and writes the sum to dst [cols] or adds it to dst. */
void frame_sum_rows(struct frame *f, enum rows_id rows, float *dst, struct tensor dy)
{
    frame_sum(f, rows, dst, dy.cols, &(struct sum_leaf){bias_leaf, &dy});
}

static struct tensor frame_bias(struct frame *f, const struct op *o)
{
    return o->bias == PROG_NONE ? (struct tensor){0} : frame_weight(f, o->bias, o->n_bias);
}

/* Several weights of a product that have one format and form one matrix. col is the first column
 * of the output that the matrix computes. */
struct linear_run {
    struct tensor w;
    int64_t col;
};

/* Returns the longest run of weights that begins with weight *i of the operation. Sets *i to the
 * first weight after the run. */
static struct linear_run next_run(const struct frame *f, const struct op *o, int *i, int64_t *col)
{
    const struct weight *w = &f->p->weight[o->w];
    const int first = *i;
    do ++*i;
    while (*i < o->n_w && w[*i].stored == w[first].stored);
    const struct linear_run r = {frame_weight(f, o->w + first, *i - first), *col};
    *col += r.w.rows;
    return r;
}

static struct tensor columns(struct tensor t, const struct linear_run *r)
{
    return t.data ? tensor_sub(t, 0, t.rows, r->col, r->w.rows) : t;
}

static int linear_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const bool base = o->in[1] != PROG_NONE;
    (void)e;
    if (base) frame_move(f, y, frame_in(f, o, 1), false);
    const struct tensor bias = frame_bias(f, o);
    int64_t col = 0;
    for (int i = 0; i < o->n_w;) {
        const struct linear_run r = next_run(f, o, &i, &col);
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = frame_in(f, o, 0),
                                                    .b = r.w,
                                                    .c = columns(y, &r),
                                                    .trans_b = true,
                                                    .accumulate = base,
                                                    .bias = columns(bias, &r)});
    }
    return 0;
}

static int linear_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = frame_dy(f, o), a = frame_in(f, o, 0);
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    (void)e;
    if (frame_learns(f, o->w)) frame_sum_gemm(f, rows, frame_weight_grad(f, o->w), dy, a);
    if (o->n_bias && frame_learns(f, o->bias))
        frame_sum_rows(f, rows, frame_weight_grad(f, o->bias), dy);
    int64_t col = 0;
    for (int i = 0; frame_wants(f, o, 0) && i < o->n_w;) {
        const bool add = i > 0 || !s->first[0];
        const struct linear_run r = next_run(f, o, &i, &col);
        /* A product can write any type, so it writes directly to the output. */
        f->be->ops->gemm(
            f->be, &(struct gemm_args){
                       .a = columns(dy, &r), .b = r.w, .c = f->grad[o->in[0]], .accumulate = add});
    }
    if (frame_wants(f, o, 1)) frame_move(f, f->grad[o->in[1]], f->grad[o->out[0]], !s->first[1]);
    return 0;
}

const struct op_row op_linear = {linear_forward, linear_backward, NULL};
