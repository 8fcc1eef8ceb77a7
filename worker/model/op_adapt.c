/* op_adapt.c: ADAPT, which adds scale (x A') B' to the output of a product. The factor is applied
 * to the rows of the low rank, and never to A, B or their gradients. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/op.h"
#include "worker/program/adapt.h"

/* A part's columns of the output, and its weights. */
struct adapt_part {
    int a, b; /* weights of the section */
    struct tensor A, B;
    int64_t col;
    float scale;
};

static struct adapt_part part_at(const struct frame *f, const struct op *o, int i)
{
    const struct adapt_place *at = &o->u.adapt.part[i];
    struct adapt_part s = {
        .a = o->w + 2 * i, .b = o->w + 2 * i + 1, .col = at->col, .scale = at->scale};
    const bool other = mutant_on(MUTANT_ADAPTER_OTHER) && f->sp->shard.P > 1;
    s.A = frame_weight(f, other ? o->w : s.a, 1);
    s.B = frame_weight(f, s.b, 1);
    return s;
}

static struct tensor columns(struct tensor t, const struct adapt_part *s)
{
    return tensor_sub(t, 0, t.rows, s->col, s->B.rows);
}

/* Rows that have the same adapter. */
struct row_run {
    int64_t row, n;
    int32_t adapter;
};

/* Moves a run to the rows after it, of `rows` rows. Returns false if there are none. */
static bool run_next(const struct frame *f, int64_t rows, struct row_run *r)
{
    const int32_t *at = f->by_row ? f->adapter + f->piece_row : f->adapter;
    r->row += r->n;
    r->n = rows - r->row;
    if (r->n <= 0) return false;
    assert(!f->by_row || f->piece_row + rows <= JOB_MAX_BATCH);
    r->adapter = at[f->by_row ? r->row : 0];
    for (int64_t i = 1; f->by_row && i < r->n; i++)
        if (at[r->row + i] != r->adapter) r->n = i;
    return true;
}

static struct tensor rows_of(struct tensor t, const struct row_run *r)
{
    return tensor_sub(t, r->row, r->n, 0, t.cols);
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

static struct tensor shape(struct tensor t, int64_t rows, int64_t cols)
{
    return tensor_of(t.dtype, t.data, rows, cols, cols);
}

/* Returns `rows` rows of the rank of a part, in the memory of all of them. */
static struct low_rank low_rank_of(const struct low_rank *all, const struct adapt_part *s,
                                   int64_t rows)
{
    return (struct low_rank){shape(all->wide, rows, s->A.rows), shape(all->act, rows, s->A.rows)};
}

static void scale(struct frame *f, const struct adapt_part *s, const struct low_rank *u)
{
    const bool lost = mutant_on(MUTANT_ADAPTER_ALPHA) && f->sp->shard.P > 1;
    f->be->ops->mix(f->be,
                    &(struct mix_args){.a = u->wide, .y = u->act, .alpha = lost ? 1 : s->scale});
}

/* ---- dropout --------------------------------------------------------------------------------- */

static bool drops(const struct frame *f, const struct op *o)
{
    return o->u.adapt.drops && f->sp->drop.adapters > 0;
}

/* Rows of x, at most ADAPT_TILE and all of one segment, without the elements that are dropped. */
struct tile {
    int64_t row, n;
    struct tensor wide, act; /* in fp32 and in the model's precision, as low_rank has them */
    struct tensor mask;      /* fp32, in backward: 0 or 1 / (1 - rate) */
};

static struct tile tile_take(struct frame *f, const struct op *o, bool back)
{
    const struct tensor x = frame_in(f, o, 1);
    const int64_t rows = x.rows < ADAPT_TILE ? x.rows : ADAPT_TILE;
    struct tile t = {0};
    if (!o->u.adapt.drops) return t;
    t.wide = op_scratch_rows(f, DT_F32, rows, x.cols);
    t.act = f->dtype == DT_F32 ? t.wide : op_scratch_rows(f, f->dtype, rows, x.cols);
    if (back) t.mask = op_scratch_rows(f, DT_F32, rows, x.cols);
    return t;
}

static struct tensor first_rows(struct tensor t, int64_t n)
{
    return tensor_sub(t, 0, n, 0, t.cols);
}

static struct tensor rows_at(struct tensor t, const struct tile *at)
{
    return tensor_sub(t, at->row, at->n, 0, t.cols);
}

/* Moves a tile to the rows after it, up to row `end`. Returns false if there are none. */
static bool tile_next(const struct frame *f, struct tile *t, int64_t end)
{
    const int64_t len = f->sp->shard.seg_len;
    t->row += t->n;
    const int64_t left = end - t->row, room = len - (f->piece_row + t->row) % len;
    t->n = left < ADAPT_TILE ? left : ADAPT_TILE;
    if (t->n > room) t->n = room;
    return t->n > 0;
}

/* Multiplies x, the rows of a tile, by the mask of a part. The part is identified by its weight in
 * the layer, in numbers that no head of attention has (check_adapter.c). */
static void mask(struct frame *f, const struct op *o, const struct adapt_part *s,
                 const struct tile *t, struct tensor x)
{
    const struct shard *sh = &f->sp->shard;
    const int64_t row = f->piece_row + t->row;
    const bool local = mutant_on(MUTANT_DROPOUT_LOCAL) && sh->P > 1;
    const struct attn_drop drop = {.rate = f->sp->drop.adapters,
                                   .key = {f->sp->drop.key[0], f->sp->drop.key[1]},
                                   .layer = (uint32_t)f->layer,
                                   .sample = f->sp->drop.sample,
                                   .q_pos = f->sp->drop.first + (local ? row : shard_pos(sh, row))};
    f->be->ops->dropout(
        f->be, &(struct dropout_args){.x = x,
                                      .drop = &drop,
                                      .col_pos = o->u.adapt.cut ? f->tensor.r * s->A.cols : 0,
                                      .head = ADAPT_HEADS + s->a});
}

/* Fills a tile with rows of x, and returns them in the model's precision. */
static struct tensor dropped(struct frame *f, const struct op *o, const struct adapt_part *s,
                             const struct tile *t)
{
    const struct tensor wide = first_rows(t->wide, t->n), act = first_rows(t->act, t->n);
    frame_move(f, wide, rows_at(frame_in(f, o, 1), t), false);
    mask(f, o, s, t, wide);
    frame_move(f, act, wide, false);
    return act;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Computes u = scale x A'. With dropout, x has all rows. */
static void lower(struct frame *f, const struct op *o, const struct adapt_part *s, struct tensor x,
                  const struct low_rank *u, const struct tile *room)
{
    struct tile t = *room;
    if (!drops(f, o))
        f->be->ops->gemm(f->be,
                         &(struct gemm_args){.a = x, .b = s->A, .c = u->wide, .trans_b = true});
    while (drops(f, o) && tile_next(f, &t, u->wide.rows))
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = dropped(f, o, s, &t),
                                                    .b = s->A,
                                                    .c = rows_at(u->wide, &t),
                                                    .trans_b = true});
    scale(f, s, u);
}

/* Adds the parts of a run's adapter to the run's rows of the output. */
static void add_parts(struct frame *f, const struct op *o, const struct row_run *r,
                      const struct low_rank *all, const struct tile *room)
{
    const struct tensor x = rows_of(frame_in(f, o, 1), r), y = rows_of(frame_out(f, o, 0), r);
    for (int i = 0; i < o->u.adapt.n; i++) {
        if (o->u.adapt.part[i].adapter != r->adapter) continue;
        const struct adapt_part s = part_at(f, o, i);
        const struct low_rank u = low_rank_of(all, &s, r->n);
        lower(f, o, &s, x, &u, room);
        f->be->ops->gemm(
            f->be,
            &(struct gemm_args){
                .a = u.act, .b = s.B, .c = columns(y, &s), .trans_b = true, .accumulate = true});
    }
}

static int adapt_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor y = frame_out(f, o, 0);
    const struct low_rank u = low_rank_take(f, o, y.rows);
    const struct tile room = tile_take(f, o, false);
    struct row_run r = {0};
    (void)e;
    frame_move(f, y, frame_in(f, o, 0), false);
    while (!f->base && run_next(f, y.rows, &r)) add_parts(f, o, &r, &u, &room);
    return 0;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The buffers of a backward step. */
struct learning {
    const struct op *o;
    const struct adapt_part *part;
    struct tensor dy;
    struct low_rank u, du;
    struct tile room;
    struct tensor dx; /* the gradient of x; data is NULL if it is not wanted */
    bool add;         /* add to dx instead of writing it */
};

/* Multiplies rows of a tile by its mask, which was drawn. */
static struct tensor masked(struct frame *f, const struct tile *t)
{
    const struct tensor wide = first_rows(t->wide, t->n);
    f->be->ops->glu_fwd(
        f->be, &(struct glu_fwd_args){
                   .fn = ACT_IDENTITY, .a = wide, .b = first_rows(t->mask, t->n), .y = wide});
    return wide;
}

/* Computes u and the gradient of x for the rows of a span, and adds their part to the gradient of
 * A. All three have one mask, which is drawn once. */
static void dropped_leaf(struct frame *f, void *arg, struct span s, float *dst, bool fresh)
{
    const struct learning *w = arg;
    const struct tensor A = w->part->A, c = tensor_f32(dst, A.rows, A.cols, A.cols);
    struct tile t = w->room;
    t.row = s.value0;
    if (fresh) f->be->ops->fill(f->be, dst, A.rows * A.cols, 0);
    while (tile_next(f, &t, s.value0 + s.n)) {
        const struct tensor mine = first_rows(t.mask, t.n), wide = first_rows(t.wide, t.n);
        const struct tensor x = first_rows(t.act, t.n), du = rows_at(w->du.act, &t);
        f->be->ops->fill(f->be, mine.data, t.n * mine.cols, 1);
        mask(f, w->o, w->part, &t, mine);
        frame_move(f, wide, rows_at(frame_in(f, w->o, 1), &t), false);
        frame_move(f, x, masked(f, &t), false);
        f->be->ops->gemm(f->be, &(struct gemm_args){
                                    .a = x, .b = A, .c = rows_at(w->u.wide, &t), .trans_b = true});
        f->be->ops->gemm(f->be, &(struct gemm_args){
                                    .a = du, .b = x, .c = c, .trans_a = true, .accumulate = true});
        if (!w->dx.data) continue;
        f->be->ops->gemm(f->be, &(struct gemm_args){.a = du, .b = A, .c = wide});
        frame_move(f, rows_at(w->dx, &t), masked(f, &t), w->add);
    }
}

/* Computes u, the gradient of A, and that of x. */
static void learn_down(struct frame *f, struct learning *w)
{
    const struct tensor A = w->part->A, x = frame_in(f, w->o, 1);
    const enum rows_id rows = frame_rows_of(f, w->o->in[1]);
    float *dst = frame_weight_grad(f, w->part->a);
    if (drops(f, w->o)) {
        frame_sum(f, rows, dst, A.rows * A.cols, &(struct sum_leaf){dropped_leaf, w});
        scale(f, w->part, &w->u);
        return;
    }
    lower(f, w->o, w->part, x, &w->u, &w->room);
    frame_sum_gemm(f, rows, dst, w->du.act, x);
    if (w->dx.data)
        f->be->ops->gemm(
            f->be, &(struct gemm_args){.a = w->du.act, .b = A, .c = w->dx, .accumulate = w->add});
}

/* Computes the gradients of A and B, and writes or adds that of x. du is scale dy B. */
static void learn(struct frame *f, struct learning *w)
{
    const struct adapt_part *s = w->part;
    assert(frame_learns(f, s->a) && frame_learns(f, s->b));
    f->be->ops->gemm(f->be, &(struct gemm_args){.a = w->dy, .b = s->B, .c = w->du.wide});
    scale(f, s, &w->du);
    learn_down(f, w);
    frame_sum_gemm(f, frame_rows_of(f, w->o->in[1]), frame_weight_grad(f, s->b), w->dy, w->u.act);
}

static int adapt_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor dy = frame_dy(f, o);
    struct learning w = {.o = o};
    (void)e;
    w.u = low_rank_take(f, o, dy.rows);
    w.du = low_rank_take(f, o, dy.rows);
    w.room = tile_take(f, o, true);
    if (frame_wants(f, o, 1)) w.dx = f->grad[o->in[1]];
    for (int i = 0; i < o->u.adapt.n; i++) {
        const struct adapt_part part = part_at(f, o, i);
        w.part = &part;
        w.dy = columns(dy, &part);
        w.add = i > 0 || !s->first[1];
        learn(f, &w);
    }
    if (frame_wants(f, o, 0)) frame_move(f, f->grad[o->in[0]], f->grad[o->out[0]], !s->first[0]);
    return 0;
}

const struct op_row op_adapt = {adapt_forward, adapt_backward, NULL};
