/* op_adapt.c: ADAPT, which adds scale (x A') B' to the output of a product. The factor is applied
 * to the rows of the low rank, and never to A, B or their gradients. */
#include "worker/model/op.h"

/* A part's columns of the output, and its weights. */
struct adapt_part {
    int a, b; /* weights of the section */
    struct tensor A, B;
    int64_t col;
};

static struct adapt_part part_at(const struct frame *f, const struct op *o, int i)
{
    struct adapt_part s = {.a = o->w + 2 * i, .b = o->w + 2 * i + 1, .col = o->u.adapt.col[i]};
    s.A = frame_weight(f, s.a, 1);
    s.B = frame_weight(f, s.b, 1);
    return s;
}

static struct tensor columns(struct tensor t, const struct adapt_part *s)
{
    return tensor_sub(t, 0, t.rows, s->col, s->B.rows);
}

/* Rows of the low rank, in fp32 and in the model's precision. Both are the same memory if that is
 * fp32. */
struct low_rank {
    struct tensor wide, act;
};

static struct low_rank low_rank_take(struct frame *f, const struct op *o, int64_t rows)
{
    const int64_t r = o->u.adapt.rank;
    struct low_rank u = {.wide = op_scratch_rows(f, DT_F32, rows, r)};
    u.act = f->dtype == DT_F32 ? u.wide : op_scratch_rows(f, f->dtype, rows, r);
    return u;
}

static void scale(struct frame *f, const struct op *o, const struct low_rank *u)
{
    f->be->ops->mix(f->be,
                    &(struct mix_args){.a = u->wide, .y = u->act, .alpha = o->u.adapt.scale});
}

/* Computes u = scale x A'. */
static void lower(struct frame *f, const struct op *o, const struct adapt_part *s,
                  const struct low_rank *u)
{
    f->be->ops->gemm(f->be, &(struct gemm_args){
                                .a = frame_in(f, o, 1), .b = s->A, .c = u->wide, .trans_b = true});
    scale(f, o, u);
}

static int adapt_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const struct low_rank u = low_rank_take(f, o, y.rows);
    (void)e;
    frame_move(f, y, frame_in(f, o, 0), false);
    for (int i = 0; i < o->u.adapt.n; i++) {
        const struct adapt_part s = part_at(f, o, i);
        lower(f, o, &s, &u);
        f->be->ops->gemm(
            f->be,
            &(struct gemm_args){
                .a = u.act, .b = s.B, .c = columns(y, &s), .trans_b = true, .accumulate = true});
    }
    return 0;
}

/* Computes the gradients of A and B, and du = scale dy B for that of x. */
static void learn(struct frame *f, const struct op *o, const struct adapt_part *s, struct tensor dy,
                  const struct low_rank *u, const struct low_rank *du)
{
    const enum rows_id rows = frame_rows_of(f, o->in[1]);
    if (frame_learns(f, s->b)) {
        lower(f, o, s, u);
        frame_sum_gemm(f, rows, frame_weight_grad(f, s->b), dy, u->act);
    }
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = dy, .b = s->B, .c = du->wide});
    scale(f, o, du);
    if (frame_learns(f, s->a))
        frame_sum_gemm(f, rows, frame_weight_grad(f, s->a), du->act, frame_in(f, o, 1));
}

static int adapt_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = frame_dy(f, o);
    const struct low_rank u = low_rank_take(f, o, dy.rows), du = low_rank_take(f, o, dy.rows);
    (void)e;
    for (int i = 0; i < o->u.adapt.n; i++) {
        const struct adapt_part part = part_at(f, o, i);
        learn(f, o, &part, columns(dy, &part), &u, &du);
        if (!frame_wants(f, o, 1)) continue;
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = du.act,
                                                    .b = part.A,
                                                    .c = f->grad[o->in[1]],
                                                    .accumulate = i > 0 || !s->first[1]});
    }
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

const struct op_row op_adapt = {adapt_forward, adapt_backward, NULL};
