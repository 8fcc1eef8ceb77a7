/* op_attention.c: ATTENTION, which attends over the sequence through sp->ops, or over a dimension
 * that is whole on the rank (DSP), and CROSS, which attends to the conditioning text. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/op.h"
#include "worker/sp/paged.h"

static void mark_place(struct frame *f, struct comm *c)
{
    if (c) comm_where(c)->layer = f->layer;
}

static struct sp_attn_shape shape_of(const struct frame *f, const struct op *o)
{
    struct sp_attn_shape s = {o->u.attn.n_heads, o->u.attn.n_kv_heads, o->u.attn.head_dim,
                              o->u.attn.scale, o->u.attn.cap};
    if (o->n_w) s.sink = frame_weight(f, o->w, 1);
    return s;
}

/* ---- over the sequence ----------------------------------------------------------------------- */

/* The keys that each row sees, [lo, hi). The interval is stored twice, for operations and for the
 * host. */
struct interval {
    const int64_t *lo, *hi;
    struct sp_seen host;
};

/* Limits the keys of one row to a sliding window. Drops keys far before the row. If rows look both
 * ways, also drops keys far after the row. pos is the row's position in the sequence. */
static void cut_row(const struct op *o, int64_t wide, int64_t pos, int64_t *lo, int64_t *hi)
{
    const int64_t window = o->u.attn.window, from = pos - window + 1 - wide;
    if (*lo >= *hi) return; /* padding */
    if (from > *lo) *lo = from;
    if (!o->u.attn.causal && pos + window < *hi) *hi = pos + window;
}

/* Limits the intervals of all rows of sh, which is the shard of this rank or of its group. */
static struct interval cut(struct frame *f, const struct op *o, struct interval x,
                           const struct shard *sh)
{
    const int64_t n = sh->T;
    const struct twin lo = op_twin_take(f, 8 * n);
    const struct twin hi = o->u.attn.causal ? (struct twin){0} : op_twin_take(f, 8 * n);
    const int64_t wide = mutant_on(MUTANT_WINDOW_WIDE) && f->sp->shard.P > 1;
    int64_t *to_lo = lo.host, *to_hi = hi.host;
    for (int64_t i = 0; i < n; i++) {
        int64_t end = x.host.hi[i];
        to_lo[i] = x.host.lo[i];
        cut_row(o, wide, shard_pos(sh, i), &to_lo[i], &end);
        if (to_hi) to_hi[i] = end;
    }
    op_twin_up(f, &lo);
    if (!to_hi) return (struct interval){lo.dev, x.hi, {to_lo, x.host.hi}};
    op_twin_up(f, &hi);
    return (struct interval){lo.dev, hi.dev, {to_lo, to_hi}};
}

static struct interval own_keys(struct frame *f, const struct op *o)
{
    const struct batch *b = frame_host(f);
    const struct interval x = {f->batch->lo, f->batch->hi, {b->lo, b->hi}};
    if (o->u.attn.window <= 0) return x;
    assert(f->rows[ROWS_T].n == f->sp->shard.T);
    return cut(f, o, x, &f->sp->shard);
}

/* Returns the intervals of the group's rows. If the operation has a window, limits the intervals
 * to the window. For this the host reads its copies of the intervals. If there are no copies, it
 * reads the intervals themselves. */
static struct interval all_keys(struct frame *f, const struct op *o)
{
    const struct interval x = {f->all_lo, f->all_hi, {f->host_all_lo, f->host_all_hi}};
    const struct sp_seen host = {f->host_all_lo ? f->host_all_lo : f->all_lo,
                                 f->host_all_hi ? f->host_all_hi : f->all_hi};
    if (o->u.attn.window <= 0 || !host.lo) return x;
    const struct shard group = shard_group(&f->sp->shard);
    return cut(f, o, (struct interval){x.lo, x.hi, host}, &group);
}

/* Returns the keys that every segment reaches in this layer. This is the batch's map, limited by
 * the layer's window. */
static const struct reach_map *reach_of(struct frame *f, const struct op *o, struct reach_map *room)
{
    return reach_window(&f->batch->reach, &f->sp->shard, o->u.attn.window, o->u.attn.causal, room);
}

/* Sets the members of sp for this layer: shape and dropout of the attention, and the place that
 * errors name. */
static void set_layer(struct frame *f, const struct op *o)
{
    f->sp->shape = shape_of(f, o);
    f->sp->drop.layer = (uint32_t)f->layer;
    f->sp->drop.head = (uint32_t)(f->tensor.r * o->u.attn.n_heads);
    mark_place(f, f->sp->comm);
}

static int sequence_forward(struct frame *f, const struct op *o, struct err *e)
{
    struct reach_map room;
    const struct interval own = own_keys(f, o), all = all_keys(f, o);
    const struct sp_fwd_args a = {.q = frame_in(f, o, 0),
                                  .kv = frame_in(f, o, 1),
                                  .o = frame_out(f, o, 0),
                                  .lse = frame_out(f, o, 1).data,
                                  .lo = own.lo,
                                  .hi = own.hi,
                                  .seen = own.host,
                                  .kept = frame_out(f, o, 2).data,
                                  .reach = reach_of(f, o, &room),
                                  .all_lo = all.lo,
                                  .all_hi = all.hi,
                                  .all_seen = all.host};
    set_layer(f, o);
    if (f->dtype != DT_F32) f->sp->buf.o = op_scratch_rows(f, DT_F32, a.q.rows, a.q.cols).data;
    return f->sp->ops->attn_fwd(f->sp, &a, e);
}

/* Takes room for the gradient of the sinks. If the operation has no sinks, data of the result is
 * NULL. */
static struct tensor sink_room(struct frame *f, const struct op *o)
{
    if (!o->n_w) return (struct tensor){0};
    _Static_assert(PROG_SUMS == SHARD_SEGS, "a rank may hold them all");
    const struct tensor d = op_scratch_rows(f, DT_F32, PROG_SUMS, o->u.attn.n_heads);
    frame_zero(f, d);
    return d;
}

static int sequence_backward(struct frame *f, const struct op *o, const struct step *s,
                             struct err *e)
{
    struct reach_map room;
    const struct back dq = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct back dkv = op_back_begin_new(f, o, s, 1, DT_F32);
    const struct interval own = own_keys(f, o), all = all_keys(f, o);
    const struct sp_bwd_args a = {.q = frame_in(f, o, 0),
                                  .kv = frame_in(f, o, 1),
                                  .o = frame_out(f, o, 0),
                                  .d_o = frame_dy(f, o),
                                  .lse = frame_out(f, o, 1).data,
                                  .dq = dq.to,
                                  .dkv = dkv.to,
                                  .d_sink = sink_room(f, o),
                                  .lo = own.lo,
                                  .hi = own.hi,
                                  .seen = own.host,
                                  .kept = frame_out(f, o, 2).data,
                                  .reach = reach_of(f, o, &room),
                                  .all_lo = all.lo,
                                  .all_hi = all.hi,
                                  .all_seen = all.host};
    set_layer(f, o);
    if (f->sp->ops->attn_bwd(f->sp, &a, e)) return -1;
    if (o->n_w && frame_learns(f, o->w)) frame_add_sum(f, frame_weight_grad(f, o->w), a.d_sink);
    op_back_end(f, &dq);
    op_back_end(f, &dkv);
    return 0;
}

/* ---- blocks that are whole here -------------------------------------------------------------- */

/* Attention in one call. All queries see the same keys, [0, n_keys). */
struct whole {
    struct tensor q, kv, o, d_o, dq, dkv;
    float *lse, *m, *delta;
    int64_t *lo, *hi;
    int64_t ld;        /* leading dimension of lse, m, delta, lo and hi */
    struct tensor sum; /* fp32 [rows, H*D] for the output, used if o is not fp32 */
};

static struct whole whole_begin(struct frame *f, const struct op *o, int64_t rows, int64_t n_keys,
                                bool backward)
{
    const int64_t H = o->u.attn.n_heads, HD = H * o->u.attn.head_dim;
    struct whole w = {
        .lo = op_scratch_take(f, 8 * rows), .hi = op_scratch_take(f, 8 * rows), .ld = rows};
    float *ml = op_scratch_take(f, 4 * H * rows);
    if (backward)
        w.delta = ml;
    else
        w.m = ml;
    if (!backward && f->dtype != DT_F32) w.sum = op_scratch_rows(f, DT_F32, rows, HD);
    frame_repeat(f, w.lo, rows, 0);
    frame_repeat(f, w.hi, rows, n_keys);
    return w;
}

static void whole_forward(struct frame *f, const struct op *o, const struct whole *w)
{
    const int64_t H = o->u.attn.n_heads, D = o->u.attn.head_dim, n = w->q.rows;
    const struct tensor sum = w->sum.data ? tensor_sub(w->sum, 0, n, 0, H * D) : w->o;
    frame_zero(f, sum);
    f->be->ops->fill(f->be, w->m, H * w->ld, -INFINITY);
    f->be->ops->fill(f->be, w->lse, H * w->ld, 0);
    f->be->ops->attn_fwd(f->be, &(struct attn_fwd_args){.q = w->q,
                                                        .kv = w->kv,
                                                        .o = sum,
                                                        .m = w->m,
                                                        .l = w->lse,
                                                        .ml_ld = w->ld,
                                                        .lo = w->lo,
                                                        .hi = w->hi,
                                                        .n_heads = H,
                                                        .n_kv_heads = o->u.attn.n_kv_heads,
                                                        .head_dim = D,
                                                        .scale = o->u.attn.scale,
                                                        .cap = o->u.attn.cap});
    f->be->ops->attn_finish(f->be, &(struct attn_finish_args){.o = sum,
                                                              .out = w->o,
                                                              .m = w->m,
                                                              .l = w->lse,
                                                              .ml_ld = w->ld,
                                                              .n_heads = H,
                                                              .head_dim = D});
    f->be->ops->copy(f->be, w->lse, w->m, 4 * H * w->ld);
}

/* Computes the backward of one call. Adds the results to dq and dkv, which are fp32. */
static void whole_backward(struct frame *f, const struct op *o, const struct whole *w)
{
    const int64_t H = o->u.attn.n_heads, D = o->u.attn.head_dim;
    f->be->ops->attn_delta(
        f->be,
        &(struct attn_delta_args){
            .o = w->o, .d_o = w->d_o, .delta = w->delta, .ld = w->ld, .n_heads = H, .head_dim = D});
    f->be->ops->attn_bwd(f->be, &(struct attn_bwd_args){.q = w->q,
                                                        .kv = w->kv,
                                                        .d_o = w->d_o,
                                                        .dq = w->dq,
                                                        .dkv = w->dkv,
                                                        .lse = w->lse,
                                                        .delta = w->delta,
                                                        .ml_ld = w->ld,
                                                        .lo = w->lo,
                                                        .hi = w->hi,
                                                        .n_heads = H,
                                                        .n_kv_heads = o->u.attn.n_kv_heads,
                                                        .head_dim = D,
                                                        .scale = o->u.attn.scale,
                                                        .cap = o->u.attn.cap});
}

static struct tensor rows_at(struct tensor t, int64_t row0, int64_t n)
{
    return tensor_sub(t, row0, n, 0, t.cols);
}

/* Attention along dimension `dim`, which is whole on this rank. Rows are [indices of the spread
 * dimension, N_dim]. Each index of the spread dimension is a sequence of its own. If an index is
 * only padding of the spread dimension, its rows see no key. */
struct grid {
    /* len: rows of a sequence; n: number of sequences. n does not count the sequences of padding,
     * which come after the other sequences. */
    int64_t len, n;
    /* step: distance, in rows, from a row to the next row of the same sequence; first: distance,
     * in rows, from a sequence to the next sequence */
    int64_t step, first;
    struct op op;  /* the operation, with only this rank's heads */
    bool by_heads; /* the rows are all rows of the grid, [space, time] */
};

static struct grid grid_of(const struct frame *f, const struct op *o)
{
    const int spread = !o->u.attn.dim;
    const struct dsp *d = f->dsp;
    struct grid g = {.len = d->n[o->u.attn.dim], .op = *o, .by_heads = o->u.attn.by_heads};
    g.step = 1, g.first = g.len;
    g.n = shard_count(d->n[spread], d->P, d->r, d->rank_bits);
    if (!g.by_heads) return g;
    assert(o->u.attn.n_heads % d->P == 0 && o->u.attn.n_heads == o->u.attn.n_kv_heads);
    g.op.u.attn.n_heads = g.op.u.attn.n_kv_heads = o->u.attn.n_heads / d->P;
    g.n = d->n[spread];
    if (o->u.attn.dim == 0) g.step = g.n, g.first = 1;
    return g;
}

static struct tensor grid_tensor(const struct frame *f, const struct grid *g, struct tensor t)
{
    return g->by_heads ? frame_by_heads(f, t) : t;
}

/* Returns the rows of sequence i as a view. The stride of the view is the distance between the
 * rows. */
static struct tensor sequence_of(const struct grid *g, struct tensor t, int64_t i)
{
    struct tensor s = rows_at(t, i * g->first, g->len);
    s.ld = t.ld * g->step;
    return s;
}

static int grid_forward(struct frame *f, const struct op *o)
{
    const struct grid g = grid_of(f, o);
    const struct tensor q = grid_tensor(f, &g, frame_in(f, o, 0));
    const struct tensor kv = grid_tensor(f, &g, frame_in(f, o, 1));
    const struct tensor out = grid_tensor(f, &g, frame_out(f, o, 0));
    float *lse = frame_out(f, o, 1).data;
    struct whole w = whole_begin(f, o, g.len, g.len, false);
    for (int64_t i = 0; i < g.n; i++) {
        w.q = sequence_of(&g, q, i);
        w.kv = sequence_of(&g, kv, i);
        w.o = sequence_of(&g, out, i);
        w.lse = lse + i * g.len * g.op.u.attn.n_heads;
        whole_forward(f, &g.op, &w);
    }
    frame_zero(f, rows_at(out, g.n * g.len, out.rows - g.n * g.len));
    return 0;
}

static int grid_backward(struct frame *f, const struct op *o, const struct step *s)
{
    const struct grid g = grid_of(f, o);
    const struct tensor q = grid_tensor(f, &g, frame_in(f, o, 0));
    const struct tensor kv = grid_tensor(f, &g, frame_in(f, o, 1));
    const struct tensor out = grid_tensor(f, &g, frame_out(f, o, 0));
    const struct tensor d_o = grid_tensor(f, &g, frame_dy(f, o));
    const struct back dq = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct back dkv = op_back_begin_new(f, o, s, 1, DT_F32);
    float *lse = frame_out(f, o, 1).data;
    struct whole w = whole_begin(f, o, g.len, g.len, true);
    const struct tensor to_q = grid_tensor(f, &g, dq.to), to_kv = grid_tensor(f, &g, dkv.to);
    frame_zero(f, dq.to);
    frame_zero(f, dkv.to);
    for (int64_t i = 0; i < g.n; i++) {
        w.q = sequence_of(&g, q, i);
        w.kv = sequence_of(&g, kv, i);
        w.o = sequence_of(&g, out, i);
        w.d_o = sequence_of(&g, d_o, i);
        w.dq = sequence_of(&g, to_q, i);
        w.dkv = sequence_of(&g, to_kv, i);
        w.lse = lse + i * g.len * g.op.u.attn.n_heads;
        whole_backward(f, &g.op, &w);
    }
    op_back_end(f, &dq);
    op_back_end(f, &dkv);
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int piece_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct sp_piece_args a = {.q = frame_in(f, o, 0),
                                    .o = frame_out(f, o, 0),
                                    .keys = f->keys[0],
                                    .lo = f->piece.lo,
                                    .hi = f->piece.hi,
                                    .room = f->piece.room};
    f->sp->shape = shape_of(f, o);
    mark_place(f, f->sp->comm);
    return sp_attn_piece(f->sp, &a, e);
}

static int attention_forward(struct frame *f, const struct op *o, struct err *e)
{
    if (f->piece.room) return piece_forward(f, o, e);
    return o->u.attn.dim < 0 ? sequence_forward(f, o, e) : grid_forward(f, o);
}

static int attention_backward(struct frame *f, const struct op *o, const struct step *s,
                              struct err *e)
{
    return o->u.attn.dim < 0 ? sequence_backward(f, o, s, e) : grid_backward(f, o, s);
}

static int attention_decode(struct frame *f, const struct op *o, struct err *e)
{
    const struct sp_decode_args a = {
        .q = frame_in(f, o, 0), .o = frame_out(f, o, 0), .keys = f->keys};
    f->sp->shape = shape_of(f, o);
    mark_place(f, f->sp->comm);
    return f->sp->ops->attn_decode(f->sp, &a, e);
}

const struct op_row op_attention = {attention_forward, attention_backward, attention_decode};

/* Returns the number of rows of the text. Every rank has all of them. */
static int64_t text_rows(const struct frame *f)
{
    const int64_t n = f->batch->latents.n_text;
    if (mutant_on(MUTANT_REPLICATED_ROTATED)) return (n + f->dsp->P - 1) / f->dsp->P;
    return n;
}

static int cross_forward(struct frame *f, const struct op *o, struct err *e)
{
    const struct tensor q = frame_in(f, o, 0);
    struct whole w = whole_begin(f, o, q.rows, text_rows(f), false);
    (void)e;
    w.q = q;
    w.kv = frame_in(f, o, 1);
    w.o = frame_out(f, o, 0);
    w.lse = frame_out(f, o, 1).data;
    whole_forward(f, o, &w);
    return 0;
}

/* Computes the gradient of the text from the rows of each span. Each span gives one part of it. */
static int cross_backward(struct frame *f, const struct op *o, const struct step *s, struct err *e)
{
    const struct tensor q = frame_in(f, o, 0), d_o = frame_dy(f, o);
    const enum rows_id rows = frame_rows_of(f, o->in[0]);
    const struct back dq = op_back_begin_new(f, o, s, 0, DT_F32);
    const struct back dkv = op_back_begin_new(f, o, s, 1, DT_F32);
    const struct whole all = whole_begin(f, o, q.rows, text_rows(f), true);
    (void)e;
    frame_zero(f, dq.to);
    frame_zero(f, dkv.to);
    for (int i = 0; i < f->parts; i++) {
        const struct span r = frame_span(f, rows, i);
        const int64_t n = f->rows[ROWS_TEXT].n;
        struct whole w = all;
        if (!r.n) continue;
        w.q = op_span_value(q, r);
        w.kv = frame_in(f, o, 1);
        w.o = op_span_value(frame_out(f, o, 0), r);
        w.d_o = op_span_grad(d_o, r);
        w.dq = op_span_grad(dq.to, r);
        w.dkv = rows_at(dkv.to, i * n, n);
        w.lse = (float *)frame_out(f, o, 1).data + r.value0;
        whole_backward(f, o, &w);
    }
    op_back_end(f, &dq);
    op_back_end(f, &dkv);
    return 0;
}

const struct op_row op_cross = {cross_forward, cross_backward, NULL};
