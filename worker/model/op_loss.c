/* op_loss.c: XENT, MSE and NOISE, one of which is the last operation of a model.
 *
 * Forward writes the loss of every row (XENT) or every place (MSE, NOISE) to the frame's nll.
 * Backward writes the loss as well, so that a training step computes logits only once. Logits are
 * computed for one chunk of rows at a time, and never for [S, V]. Under tensor parallelism a rank
 * has the logits of some ids. For each row, the ranks exchange the largest logit, the sum of
 * exponentials, the target's logit, and the sum of all logits if labels are smoothed. */
#include <math.h>
#include "api/core/assert.h"
#include "api/core/model_shape.h"
#include "api/core/mutant.h"
#include "worker/plan/noise.h"
#include "worker/model/op.h"

/* ---- XENT ------------------------------------------------------------------------------------ */

struct xent {
    const struct op *o;
    struct tensor x, w, b; /* w [V, C]; b [1, V] fp32, whose data is NULL if there is no bias */
    int64_t first;         /* the id of w's first row */
    /* rows: kind of the rows of x; row0: index in the batch of the first row */
    enum rows_id rows;
    int64_t row0;
    /* [tp, loss_chunk]: statistics of each rank for each row; NULL if there is one rank */
    struct xent_stat *stat;
    struct tensor dx; /* data is NULL in forward */
    bool add_dx;
    float *db; /* [parts, V]: gradient of the bias, one row for each span */
    int part;
    int rc; /* result of the exchange; if it is -1, e has the error */
    struct err *e;
};
_Static_assert(sizeof(struct xent_stat) == OP_LOGIT_STAT, "what is planned and counted");

/* Limits w to the ids whose logits this rank has. Takes room for the xent_stat of all ranks. */
static void take_ids(struct frame *f, struct xent *a)
{
    const struct frame_ids own = frame_ids(f, a->w);
    const int64_t room = a->w.rows;
    a->w = own.w;
    a->first = own.first;
    if (f->tensor.n <= 1) return;
    if (mutant_on(MUTANT_TARGET_FOREIGN)) a->first = (f->tensor.r + 1) % f->tensor.n * room;
    a->stat = op_scratch_take(f, OP_LOGIT_STAT * f->tensor.n * f->loss_chunk);
}

static struct xent xent_of(struct frame *f, const struct op *o, struct err *e)
{
    struct xent a = {.o = o, .x = frame_in(f, o, 0), .w = frame_weight(f, o->w, o->n_w), .e = e};
    a.rows = frame_rows_of(f, o->in[0]);
    a.row0 = frame_row0(f, a.rows);
    take_ids(f, &a);
    if (o->bias == PROG_NONE || !a.w.rows) return a;
    a.b = tensor_sub(frame_weight(f, o->bias, o->n_bias), 0, 1, 0, a.w.rows);
    if (a.b.dtype == DT_F32) return a;
    const struct tensor wide = op_scratch_rows(f, DT_F32, 1, a.b.cols); /* logits are fp32 */
    frame_move(f, wide, a.b, false);
    a.b = wide;
    return a;
}

/* Replaces x by cap tanh(x / cap). */
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
    if (!a->w.rows) return out;
    f->be->ops->gemm(
        f->be, &(struct gemm_args){.a = x, .b = a->w, .c = out, .trans_b = true, .bias = a->b});
    if (a->o->u.xent.cap > 0) cap_logits(f, out, a->o->u.xent.cap);
    return out;
}

struct tensor op_loss_logits(struct frame *f, const struct op *o, int64_t row0, int64_t n)
{
    op_scratch_reset(f);
    const struct xent a = xent_of(f, o, NULL);
    return logits_of(f, &a, tensor_sub(a.x, row0, n, 0, a.x.cols));
}

static double z_loss_of(const struct frame *f)
{
    if (mutant_on(MUTANT_Z_LOSS_LOST) && (f->sp->shard.P > 1 || f->tensor.n > 1)) return 0;
    return f->z_loss;
}

/* Computes this rank's xent_stat for the rows of a chunk, which begins at row r. Exchanges it with
 * all ranks. */
static int exchange(struct frame *f, struct xent *a, struct tensor logits, int64_t r)
{
    int64_t cut[JOB_MAX_RANKS + 1];
    struct xent_stat *own = a->stat + f->tensor.r * logits.rows;
    for (int w = 0; w <= f->tensor.n; w++) cut[w] = w * logits.rows;
    f->be->ops->xent_part(f->be,
                          &(struct xent_part_args){.logits = logits,
                                                   .targets = f->batch->targets + a->row0 + r,
                                                   .first = a->first,
                                                   .stat = own,
                                                   .smooth = f->label_smoothing > 0});
    frame_mark(f);
    if (!f->tensor.comm) return 0;
    if (comm_all_gather(f->tensor.comm, PURPOSE_TENSOR, own, a->stat, cut, OP_LOGIT_STAT,
                        f->tensor.bounce, a->e))
        return -1;
    if (mutant_on(MUTANT_SMOOTHING_LOCAL))
        for (int64_t i = 0; i < cut[f->tensor.n]; i++)
            if (i / logits.rows != f->tensor.r) a->stat[i].total = 0;
    return 0;
}

/* Computes the gradients of a chunk's rows, of the weights and of the bias. They are computed from
 * dlogits, the gradient of the chunk's logits. dw is NULL if the weights are frozen. */
static void xent_chunk_back(struct frame *f, struct xent *a, int64_t r, struct tensor dlogits,
                            float *dw, bool fresh, bool fresh_b)
{
    const struct tensor x = tensor_sub(a->x, r, dlogits.rows, 0, a->x.cols);
    const struct tensor dx = tensor_sub(a->dx, r, x.rows, 0, a->x.cols);
    const int64_t V = a->w.rows, C = a->w.cols;
    if (!V && !a->add_dx) frame_zero(f, dx);
    if (!V) return;
    f->be->ops->gemm(
        f->be, &(struct gemm_args){.a = dlogits, .b = a->w, .c = dx, .accumulate = a->add_dx});
    if (dw)
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

/* Returns the factors of the rows from row r on in the gradient. */
static const float *row_weight(const struct frame *f, const struct xent *a, int64_t r)
{
    return f->batch->weight ? f->batch->weight + a->row0 + r : NULL;
}

/* Computes the loss chunks of one span, and adds their gradient of the weights to dst. The
 * gradient of the logits overwrites the logits. In 16 bits it uses the first half of each row. */
static void xent_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    struct xent *a = arg;
    const int64_t V = a->w.rows, ld = V * dtype_size(DT_F32) / dtype_size(f->dtype);
    const int64_t end = s.value0 + s.n;
    if (!s.n && fresh) f->be->ops->fill(f->be, dst, V * a->w.cols, 0);
    if (!s.n && a->db) f->be->ops->fill(f->be, a->db + a->part * V, V, 0);
    for (int64_t r = s.value0; r < end && !a->rc; r += f->loss_chunk) {
        const int64_t n = r + f->loss_chunk < end ? f->loss_chunk : end - r;
        const struct tensor logits = logits_of(f, a, tensor_sub(a->x, r, n, 0, a->x.cols));
        const struct tensor dlogits = tensor_of(f->dtype, f->logits, n, V, ld);
        if (a->stat && exchange(f, a, logits, r)) a->rc = -1;
        if (a->rc) break;
        f->be->ops->xent(f->be, &(struct xent_args){.logits = logits,
                                                    .dlogits = dlogits,
                                                    .targets = f->batch->targets + a->row0 + r,
                                                    .nll = f->nll + a->row0 + r,
                                                    .scale = f->loss_scale,
                                                    .backward = a->dx.data,
                                                    .cap = a->o->u.xent.cap,
                                                    .parts = a->stat,
                                                    .n_parts = a->stat ? f->tensor.n : 0,
                                                    .first = a->stat ? a->first : 0,
                                                    .weight = row_weight(f, a, r),
                                                    .smoothing = f->label_smoothing,
                                                    .z_loss = z_loss_of(f),
                                                    .vocab = f->shape->vocab});
        if (a->dx.data)
            xent_chunk_back(f, a, r, dlogits, dst, fresh && r == s.value0, r == s.value0);
    }
    a->part++;
}

static int xent_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct xent a = xent_of(f, o, e);
    xent_leaf(f, &a, (struct span){0, 0, f->rows[a.rows].n}, NULL, false);
    return a.rc;
}

/* Adds the sum over a span of the bias's gradient to dst. */
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
    struct xent a = xent_of(f, o, e);
    a.dx = f->grad[o->in[0]];
    a.add_dx = !s->first[0];
    if (a.b.data) a.db = op_scratch_take(f, 4 * f->parts * a.w.rows);
    if (o->n_w && frame_learns(f, o->w))
        frame_sum(f, a.rows, frame_weight_grad(f, o->w), a.w.rows * a.w.cols,
                  &(struct sum_leaf){xent_leaf, &a});
    else
        for (int i = 0; i < (f->tree ? f->parts : 1); i++)
            xent_leaf(f, &a, frame_span(f, a.rows, i), NULL, false);
    a.part = 0;
    if (a.b.data && frame_learns(f, o->bias) && !a.rc)
        frame_sum(f, a.rows, frame_weight_grad(f, o->bias), a.w.rows,
                  &(struct sum_leaf){xent_bias_leaf, &a});
    return a.rc;
}

const struct op_row op_xent = {xent_forward, xent_backward, NULL};

/* ---- MSE ------------------------------------------------------------------------------------- */

/* Each row predicts n places, and each place has out_channels values. The first in_channels of
 * these values have a target. All places of all rows form one tensor [T n, in_channels]. `weight`
 * is the weight of each place in the loss. loss_scale is 1 divided by the number of values that
 * count on all ranks. */
struct loss_places {
    int64_t n, in, out;
    int64_t first; /* index in the batch of the first row's first place */
};

static struct loss_places places_of(const struct frame *f, const struct op *o, struct tensor a)
{
    const struct model_shape *m = f->shape;
    struct loss_places p = {m->patch_t * m->patch_h * m->patch_w, m->in_channels, m->out_channels};
    assert(p.n * p.out == a.cols && a.ld == a.cols);
    p.first = p.n * frame_row0(f, frame_rows_of(f, o->in[0]));
    return p;
}

/* Returns t [T, n out_channels] as [T n, in_channels]. The result has only the columns with a
 * target. */
static struct tensor predicted(const struct loss_places *p, struct tensor t)
{
    return tensor_of(t.dtype, t.data, t.rows * p->n, p->in, p->out);
}

static void mse(struct frame *f, const struct op *o, struct tensor dx)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor a = frame_in(f, o, 0);
    const struct loss_places p = places_of(f, o, a);
    const struct tensor x = op_scratch_rows(f, DT_F32, a.rows * p.n, p.in);
    frame_move(f, x, predicted(&p, a), false);
    f->be->ops->mse(f->be, &(struct mse_args){.x = x,
                                              .y = tensor_f32((float *)b->target + p.first * p.in,
                                                              x.rows, p.in, p.in),
                                              .dx = dx,
                                              .weight = b->weight + p.first,
                                              .row_loss = f->nll + p.first,
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
    const struct loss_places p = places_of(f, o, g);
    const struct tensor dx = op_scratch_rows(f, DT_F32, g.rows * p.n, p.in);
    (void)e;
    mse(f, o, dx);
    if (s->first[0] && p.in < p.out) frame_zero(f, g);
    frame_move(f, predicted(&p, g), dx, !s->first[0]);
    return 0;
}

const struct op_row op_mse = {mse_forward, mse_backward, NULL};

/* ---- NOISE ----------------------------------------------------------------------------------- */

/* Computes the loss of all places, [T n, out_channels], in the order of the rows. */
static void noise(struct frame *f, const struct op *o, struct tensor dx)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct tensor a = frame_in(f, o, 0);
    const struct loss_places p = places_of(f, o, a);
    const struct noise_step at = noise_step((int64_t)b->t);
    const struct tensor x = op_scratch_rows(f, DT_F32, a.rows * p.n, p.out);
    assert(p.out == 2 * p.in);
    frame_move(f, x, tensor_of(a.dtype, a.data, x.rows, p.out, p.out), false);
    f->be->ops->noise(f->be, &(struct noise_args){
                                 .x = x,
                                 .y = tensor_f32(b->target + p.first * p.out, x.rows, p.out, p.out),
                                 .dx = dx,
                                 .weight = b->weight + p.first,
                                 .row_loss = f->nll + p.first,
                                 .scale = f->loss_scale,
                                 .slope = at.slope,
                                 .log_min = at.log_min,
                                 .log_max = at.log_max,
                                 .last = at.last});
}

/* Adds the gradient of the bound with respect to the predicted noise. This is wrong on purpose
 * (MUTANT_BOUND_LEAKS). It works on the CPU only. */
static void leak(struct frame *f, const struct op *o, struct tensor dx)
{
    const struct batch_latents *b = &f->batch->latents;
    const struct noise_step at = noise_step((int64_t)b->t);
    const struct loss_places p = places_of(f, o, frame_in(f, o, 0));
    const float *x = frame_in(f, o, 0).data;
    float *g = dx.data;
    for (int64_t i = 0; i < dx.rows * p.out; i++) {
        if (i % p.out >= p.in) continue;
        const double s = at.log_min + (at.log_max - at.log_min) * (x[i + p.in] + 1) / 2;
        const double d = at.slope * at.slope * (x[i] - b->target[i]) * exp(-s);
        g[i] += (float)((double)f->loss_scale * (double)b->weight[i / p.out] * d);
    }
}

static int noise_forward(struct frame *f, const struct op *o, struct err *e)
{
    (void)e;
    noise(f, o, (struct tensor){0});
    return 0;
}

static int noise_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor g = f->grad[o->in[0]];
    const struct loss_places p = places_of(f, o, g);
    const struct tensor dx = op_scratch_rows(f, DT_F32, g.rows * p.n, p.out);
    (void)e;
    noise(f, o, dx);
    if (mutant_on(MUTANT_BOUND_LEAKS) && f->dsp->P > 1) leak(f, o, dx);
    frame_move(f, tensor_of(g.dtype, g.data, dx.rows, p.out, p.out), dx, !s->first[0]);
    return 0;
}

const struct op_row op_noise = {noise_forward, noise_backward, NULL};
