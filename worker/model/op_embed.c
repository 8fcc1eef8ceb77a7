/* op_embed.c: EMBED computes out = table[ids] * scale, and EMBED_ADD computes out = a +
 * table[index]. In a training step EMBED may add noise (2310.05914) to its rows. As in
 * transformers, the noise comes before the scale, but after a scale that is rounded, which is
 * Gemma's. */
#include "worker/model/op.h"

#include <math.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "kernels/half.h"
#include "kernels/philox.h"

struct embed_back {
    struct tensor dy;
    const int32_t *ids;
    int64_t rows, cols, first; /* rows and columns of the table, and the id of its first row */
};

static void embed_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct embed_back *a = arg;
    if (fresh) f->be->ops->fill(f->be, dst, a->rows * a->cols, 0);
    f->be->ops->embed_bwd(
        f->be, &(struct embed_bwd_args){.dtable = tensor_f32(dst, a->rows, a->cols, a->cols),
                                        .dx = op_span_grad(a->dy, s),
                                        .ids = a->ids + s.value0,
                                        .first = a->first});
}

static void embed_back(struct frame *f, const struct op *o, struct embed_back a, float *dst)
{
    const enum rows_id rows = frame_rows_of(f, o->out[0]);
    frame_sum(f, rows, dst, a.rows * a.cols, &(struct sum_leaf){embed_leaf, &a});
}

static void scale_by(struct frame *f, struct tensor t, float scale)
{
    if (scale != 1) f->be->ops->mix(f->be, &(struct mix_args){.a = t, .y = t, .alpha = scale});
}

/* Returns the scale. If transformers rounds the scale to the type of the weights, returns the
 * rounded scale. */
static float scale_of(const struct frame *f, const struct op *o)
{
    const float scale = o->u.embed.scale;
    if (!o->u.embed.rounded || f->dtype == DT_F32) return scale;
    return half_value(f->dtype, half_round(f->dtype, scale));
}

/* Returns the ids of the output's rows on this rank. */
static const int32_t *ids_of(const struct frame *f, const struct op *o)
{
    return f->batch->ids + frame_row0(f, frame_rows_of(f, o->out[0]));
}

/* ---- noise ----------------------------------------------------------------------------------- */

/* A word of a counter that attn_drop's counters do not have there: no layer has such a head. */
#define NOISE_STREAM 0xFFFFFFFFu

/* The noise of n rows from row `first` on: to [n, cols]. A number is a function of the seed, the
 * step, the sample, the row's position in the sequence and the column. It is uniform within
 * alpha / sqrt(tokens of the sequence * cols). */
struct noise_rows {
    const struct frame *f;
    int64_t first, cols;
    bool local; /* counts positions from the rank's first row, which is a fault on purpose */
    float *to;
};

/* Draws the noise of one row. */
static void draw_row(void *arg, int64_t i, int worker)
{
    const struct noise_rows *n = arg;
    const struct frame *f = n->f;
    const struct batch *b = frame_host(f);
    const double most = f->sp->drop.noise / sqrt((double)b->n_tokens * (double)n->cols);
    const int64_t r = n->first + i;
    const int64_t pos = f->sp->drop.first + (n->local ? r : shard_pos(&f->sp->shard, r));
    uint32_t word[4];
    (void)worker;
    for (int64_t c = 0; c < n->cols; c++) {
        const uint32_t counter[4] = {(uint32_t)pos, (uint32_t)(c / 4), NOISE_STREAM,
                                     (uint32_t)b->sample};
        if (c % 4 == 0) philox4x32(f->sp->drop.key, counter, word);
        n->to[i * n->cols + c] = (float)(most * (((double)word[c % 4] + 0.5) * 0x1p-31 - 1));
    }
}

/* Adds the noise to y in fp32, some rows at a time. */
static void add_noise(struct frame *f, struct tensor y)
{
    const struct twin noise = op_twin_take(f, 4 * NOISE_ROWS * y.cols);
    const struct tensor room = op_scratch_rows(f, DT_F32, NOISE_ROWS, y.cols);
    const bool local = mutant_on(MUTANT_DROPOUT_LOCAL) && f->sp->shard.P > 1;
    for (int64_t r = 0; r < y.rows; r += NOISE_ROWS) {
        const int64_t n = y.rows - r < NOISE_ROWS ? y.rows - r : NOISE_ROWS;
        const struct tensor to = tensor_sub(y, r, n, 0, y.cols);
        const struct tensor wide = tensor_sub(room, 0, n, 0, y.cols);
        struct noise_rows rows = {f, r, y.cols, local, noise.host};
        be_host_run(f->be, draw_row, &rows, n);
        op_twin_up(f, &noise);
        frame_move(f, wide, to, false);
        frame_move(f, wide, tensor_f32(noise.dev, n, y.cols, y.cols), true);
        frame_move(f, to, wide, false);
    }
}

/* ---- forward and backward -------------------------------------------------------------------- */

static int embed_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const struct frame_ids own = frame_ids(f, frame_weight(f, o->w, 1));
    (void)e;
    f->be->ops->embed_fwd(
        f->be,
        &(struct embed_fwd_args){.table = own.w, .x = y, .ids = ids_of(f, o), .first = own.first});
    /* the ranks of parallel.tp add up their outputs, so one of them has the noise */
    const bool noisy = f->sp->drop.noise > 0 && !f->tensor.r;
    if (noisy && !o->u.embed.rounded) add_noise(f, y);
    scale_by(f, y, scale_of(f, o));
    if (noisy && o->u.embed.rounded) add_noise(f, y);
    return 0;
}

/* Scales the output's gradient in place, because no later operation reads it. */
static int embed_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = frame_dy(f, o);
    const struct frame_ids own = frame_ids(f, frame_weight(f, o->w, 1));
    const bool fresh = f->fresh;
    (void)e;
    (void)s;
    scale_by(f, dy, scale_of(f, o));
    f->fresh = fresh && !f->embed_joins;
    embed_back(f, o, (struct embed_back){dy, ids_of(f, o), own.w.rows, own.w.cols, own.first},
               f->embed_grad ? f->embed_grad : frame_weight_grad(f, o->w));
    f->fresh = fresh;
    return 0;
}

const struct op_row op_embed = {embed_forward, embed_backward, NULL};

/* Returns, for each row of the output, the index of the table's row that is added to it. Positions
 * are within the table, because the plan refuses longer sequences. */
static const int32_t *index_of(struct frame *f, const struct op *o)
{
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const int64_t n = f->rows[rows].n, row0 = frame_row0(f, rows);
    const int64_t last = frame_weight(f, o->w, 1).rows - 1;
    if (o->u.embed.index == INDEX_TYPE && f->batch->types) return f->batch->types + row0;
    const struct twin ids = op_twin_take(f, 4 * n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = o->u.embed.index == INDEX_POSITION
                               ? frame_host(f)->pos[row0 + i] + o->u.embed.first
                           : o->u.embed.index == INDEX_LABEL ? f->batch->latents.label
                                                             : 0;
        assert(at >= 0 && at <= last);
        ((int32_t *)ids.host)[i] = (int32_t)at;
    }
    op_twin_up(f, &ids);
    return ids.dev;
}

static int embed_add_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor a = frame_in(f, o, 0), y = frame_out(f, o, 0);
    const int32_t *ids = index_of(f, o);
    const struct tensor row = op_scratch_rows(f, f->dtype, y.rows, y.cols);
    (void)e;
    f->be->ops->embed_fwd(
        f->be, &(struct embed_fwd_args){.table = frame_weight(f, o->w, 1), .x = row, .ids = ids});
    f->be->ops->mix(f->be, &(struct mix_args){.a = a, .b = row, .y = y, .alpha = 1, .beta = 1});
    return 0;
}

static int embed_add_backward(struct frame *f, const struct op *o, const struct step *s,
                              struct err *e)
{
    const struct tensor w = frame_weight(f, o->w, 1), dy = frame_dy(f, o);
    (void)e;
    if (frame_learns(f, o->w))
        embed_back(f, o, (struct embed_back){dy, index_of(f, o), w.rows, w.cols, 0},
                   frame_weight_grad(f, o->w));
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

const struct op_row op_embed_add = {embed_add_forward, embed_add_backward, NULL};
