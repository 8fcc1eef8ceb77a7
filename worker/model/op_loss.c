/* op_loss.c: XENT and MSE, the last operation of a model.
 *
 * Forward leaves the loss of every row, MSE's of every place, in the frame's nll. Backward does
 * too, so that a training step computes logits once, a chunk of rows at a time and never [S, V]. */
#include <assert.h>
#include "api/core/model_shape.h"
#include "worker/model/op.h"

/* ---- XENT ------------------------------------------------------------------------------------ */

struct xent {
    const struct op *o;
    struct tensor x, w, b; /* w [V, C]; b [1, V] fp32, data NULL: none */
    struct tensor dx;      /* data NULL: forward only */
    bool add_dx;
    float *db; /* [parts, V]: of each span apart */
    int part;
};

static struct xent xent_of(struct frame *f, const struct op *o)
{
    struct xent a = {.o = o, .x = frame_in(f, o, 0), .w = frame_weight(f, o->w, o->n_w)};
    if (o->bias == PROG_NONE) return a;
    a.b = frame_weight(f, o->bias, o->n_bias);
    if (a.b.dtype == DT_F32) return a;
    const struct tensor wide = scratch_rows(f, DT_F32, 1, a.b.cols); /* logits are fp32 */
    frame_move(f, wide, a.b, false);
    a.b = wide;
    return a;
}

/* x = cap tanh(x / cap), in place. */
static void cap_logits(struct frame *f, struct tensor x, float cap)
{
    f->be->ops->mix(f->be, &(struct mix_args){.a = x, .y = x, .alpha = 1 / cap});
    f->be->ops->act_fwd(f->be, &(struct act_fwd_args){.fn = ACT_TANH, .x = x, .y = x});
    f->be->ops->mix(f->be, &(struct mix_args){.a = x, .y = x, .alpha = cap});
}

static struct tensor logits_of(struct frame *f, const struct xent *a, struct tensor x)
{
    const struct tensor out = tensor_f32(f->logits, x.rows, a->w.rows, a->w.rows);
    assert(x.rows <= f->loss_chunk);
    f->be->ops->gemm(
        f->be, &(struct gemm_args){.a = x, .b = a->w, .c = out, .trans_b = true, .bias = a->b});
    if (a->o->u.xent.cap > 0) cap_logits(f, out, a->o->u.xent.cap);
    return out;
}

struct tensor loss_logits(struct frame *f, const struct op *o, int64_t row0, int64_t n)
{
    scratch_reset(f);
    const struct xent a = xent_of(f, o);
    return logits_of(f, &a, tensor_sub(a.x, row0, n, 0, a.x.cols));
}

/* Gradients of a chunk's logits: to the rows and to the weights. */
static void xent_chunk_back(struct frame *f, struct xent *a, int64_t r, struct tensor dlogits,
                            float *dw, bool fresh, bool fresh_b)
{
    const struct tensor x = tensor_sub(a->x, r, dlogits.rows, 0, a->x.cols);
    const int64_t V = a->w.rows, C = a->w.cols;
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = dlogits,
                                                .b = a->w,
                                                .c = tensor_sub(a->dx, r, x.rows, 0, C),
                                                .accumulate = a->add_dx});
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = dlogits,
                                                .b = x,
                                                .c = tensor_f32(dw, V, C, C),
                                                .trans_a = true,
                                                .accumulate = !fresh});
    if (!a->b.data) return;
    float *db = a->db + a->part * V;
    if (fresh_b) f->be->ops->fill(f->be, db, V, 0);
    f->be->ops->bias_bwd(f->be, &(struct bias_bwd_args){.dy = dlogits, .db = db});
}

/* Loss chunks of one span, whose weight gradient goes to dst. The gradient of logits takes their
 * own memory, in 16 bits the first half of each row. */
static void xent_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    struct xent *a = arg;
    const int64_t V = a->w.rows, ld = V * dtype_size(DT_F32) / dtype_size(f->dtype);
    const int64_t end = s.value0 + s.n;
    if (!s.n && fresh) f->be->ops->fill(f->be, dst, V * a->w.cols, 0);
    if (!s.n && a->db) f->be->ops->fill(f->be, a->db + a->part * V, V, 0);
    for (int64_t r = s.value0; r < end; r += f->loss_chunk) {
        const int64_t n = r + f->loss_chunk < end ? f->loss_chunk : end - r;
        const struct tensor logits = logits_of(f, a, tensor_sub(a->x, r, n, 0, a->x.cols));
        const struct tensor dlogits = tensor_of(f->dtype, f->logits, n, V, ld);
        f->be->ops->xent(f->be, &(struct xent_args){.logits = logits,
                                                    .dlogits = dlogits,
                                                    .targets = f->batch->targets + r,
                                                    .nll = f->nll + r,
                                                    .scale = f->loss_scale,
                                                    .backward = a->dx.data,
                                                    .cap = a->o->u.xent.cap});
        if (a->dx.data)
            xent_chunk_back(f, a, r, dlogits, dst, fresh && r == s.value0, r == s.value0);
    }
    a->part++;
}

static int xent_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct xent a = xent_of(f, o);
    (void)e;
    xent_leaf(f, &a, (struct span){0, 0, f->rows[ROWS_T].n}, NULL, false);
    return 0;
}

/* A span's own sum of the bias's gradient. */
static void xent_bias_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    struct xent *a = arg;
    const int64_t V = a->w.rows;
    (void)s;
    if (fresh) f->be->ops->fill(f->be, dst, V, 0);
    f->be->ops->add(f->be, &(struct add_args){.y = dst, .x = a->db + a->part * V, .n = V});
    a->part++;
}

static int xent_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    struct xent a = xent_of(f, o);
    (void)e;
    a.dx = f->grad[o->in[0]];
    a.add_dx = !s->first[0];
    if (a.b.data) a.db = scratch_take(f, 4 * f->parts * a.w.rows);
    frame_sum(f, ROWS_T, frame_weight_grad(f, o->w), a.w.rows * a.w.cols,
              &(struct sum_leaf){xent_leaf, &a});
    a.part = 0;
    if (a.b.data)
        frame_sum(f, ROWS_T, frame_weight_grad(f, o->bias), a.w.rows,
                  &(struct sum_leaf){xent_bias_leaf, &a});
    return 0;
}

const struct op_row op_xent = {xent_forward, xent_backward, NULL};

/* ---- MSE ------------------------------------------------------------------------------------- */

/* A row predicts n places of out_channels values, the first in_channels of which have a target. All
 * places of all rows are one tensor [T n, in_channels]; weight says which count, loss_scale is one
 * over the values of all that do, on all ranks. */
struct loss_places {
    int64_t n, in, out;
};

static struct loss_places places_of(const struct frame *f, struct tensor a)
{
    const struct model_shape *m = f->shape;
    const struct loss_places p = {m->patch_t * m->patch_h * m->patch_w, m->in_channels,
                                  m->out_channels};
    assert(p.n * p.out == a.cols && a.ld == a.cols);
    return p;
}

/* What has a target of t: [T, n out_channels]. */
static struct tensor predicted(const struct loss_places *p, struct tensor t)
{
    return tensor_of(t.dtype, t.data, t.rows * p->n, p->in, p->out);
}

static void mse(struct frame *f, const struct op *o, struct tensor dx)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor a = frame_in(f, o, 0);
    const struct loss_places p = places_of(f, a);
    const struct tensor x = scratch_rows(f, DT_F32, a.rows * p.n, p.in);
    frame_move(f, x, predicted(&p, a), false);
    f->be->ops->mse(f->be,
                    &(struct mse_args){.x = x,
                                       .y = tensor_f32((float *)b->target, x.rows, p.in, p.in),
                                       .dx = dx,
                                       .weight = b->weight,
                                       .row_loss = f->nll,
                                       .scale = f->loss_scale});
}

static int mse_forward(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    mse(f, o, (struct tensor){0});
    return 0;
}

static int mse_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor g = f->grad[o->in[0]];
    const struct loss_places p = places_of(f, g);
    const struct tensor dx = scratch_rows(f, DT_F32, g.rows * p.n, p.in);
    (void)e;
    mse(f, o, dx);
    if (s->first[0] && p.in < p.out) frame_zero(f, g);
    frame_move(f, predicted(&p, g), dx, !s->first[0]);
    return 0;
}

const struct op_row op_mse = {mse_forward, mse_backward, NULL};
