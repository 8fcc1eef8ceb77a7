/* block.c: walks the pairs of segments in the fixed order, and calls the backend's attention for
 * each pair. Handles sinks and dropout too. */
#include "worker/sp/block.h"

#include <math.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"

struct block block_of(const struct sp *sp, int owner, struct tensor kv, struct tensor dkv)
{
    struct block b = {.kv = kv, .dkv = dkv};
    int where = owner;
    int P = sp->shard.P;
    if (mutant_on(MUTANT_HOP_OFF_BY_ONE) && owner != sp->shard.r) where = (owner + 1) % P;
    struct shard sh = shard_of(&sp->shard, where);
    for (int i = 0; i < sh.n_segs; i++) b.pos[i] = sh.pos[i];
    if (mutant_on(MUTANT_ZIGZAG_SWAPPED) && owner != sp->shard.r && sh.n_segs == 2) {
        b.pos[0] = sh.pos[1];
        b.pos[1] = sh.pos[0];
    }
    return b;
}

struct sp_seen block_seen(const struct sp *sp, const int64_t *lo, const int64_t *hi,
                          struct sp_seen host)
{
    return sp->be->own_memory ? host : (struct sp_seen){lo, hi};
}

struct block_view block_view(const struct sp *sp, struct sp_seen seen)
{
    struct block_view v;
    const int64_t n = sp->shard.seg_len, *lo = seen.lo, *hi = seen.hi;
    for (int c = 0; c < sp->shard.n_segs; c++) {
        v.lo[c] = lo ? INT64_MAX : INT64_MIN;
        v.hi[c] = lo ? INT64_MIN : INT64_MAX;
        if (!lo) continue;
        for (int64_t i = c * n; i < (c + 1) * n; i++) {
            if (lo[i] >= hi[i]) continue;
            if (lo[i] < v.lo[c]) v.lo[c] = lo[i];
            if (hi[i] > v.hi[c]) v.hi[c] = hi[i];
        }
    }
    return v;
}

bool block_pair_seen(const struct sp *sp, const struct block *b, const struct block_view *v, int c,
                     int g)
{
    const int64_t k0 = b->pos[g], k1 = k0 + sp->shard.seg_len;
    return v->lo[c] < k1 && v->hi[c] > k0;
}

/* Tells whether `later` selects the pair of query segment c and key segment g of b, and a query of
 * c sees a key of g. */
static bool pair_wanted(const struct sp *sp, const struct block *b, const struct block_view *v,
                        int c, int g, bool later)
{
    return (b->pos[g] > sp->shard.pos[c]) == later && block_pair_seen(sp, b, v, c, g);
}

float block_scale(const struct sp *sp)
{
    if (mutant_on(MUTANT_SCALE) && sp->shard.P > 1)
        return sp->shape.scale / sqrtf((float)sp->shape.n_heads);
    return sp->shape.scale;
}

static float cap_of(const struct sp *sp, enum mutant_id lost)
{
    return mutant_on(lost) && sp->comm ? 0 : sp->shape.cap;
}

bool block_drop(const struct sp *sp, int c, struct attn_drop *out)
{
    const struct sp_drop *d = &sp->drop;
    if (d->rate <= 0) return false;
    *out = (struct attn_drop){.rate = d->rate,
                              .key = {d->key[0], d->key[1]},
                              .layer = d->layer,
                              .sample = d->sample,
                              .q_pos = sp->shard.pos[c],
                              .head = d->head};
    if (mutant_on(MUTANT_DROPOUT_LOCAL) && sp->shard.P > 1) out->q_pos = c * sp->shard.seg_len;
    return true;
}

/* Returns the number of keys of a segment that are not padding. */
static int64_t key_rows(const struct sp *sp, int g)
{
    if (mutant_on(MUTANT_TOKEN_DROPPED) && sp->shard.P > 1 && g == sp->shard.n_segs - 1)
        return sp->shard.seg_len - 1;
    return sp->shard.seg_len;
}

/* ---- whole tensors --------------------------------------------------------------------------- */

static void *row(struct tensor t, int64_t i)
{
    return (char *)t.data + i * t.ld * dtype_size(t.dtype);
}

void block_zero(struct sp *sp, struct tensor t)
{
    assert(t.dtype == DT_F32);
    if (t.ld == t.cols) {
        sp->be->ops->fill(sp->be, t.data, t.rows * t.cols, 0);
        return;
    }
    for (int64_t i = 0; i < t.rows; i++) sp->be->ops->fill(sp->be, row(t, i), t.cols, 0);
}

void block_copy(struct sp *sp, struct tensor dst, struct tensor src)
{
    assert(dst.rows == src.rows && dst.cols == src.cols && dst.dtype == src.dtype);
    bool whole = dst.ld == dst.cols && src.ld == src.cols;
    int64_t n = whole ? 1 : dst.rows;
    int64_t size = (whole ? dst.rows : 1) * dst.cols * dtype_size(dst.dtype);
    for (int64_t i = 0; i < n; i++) sp->be->ops->copy(sp->be, row(dst, i), row(src, i), size);
}

void block_add(struct sp *sp, struct tensor dst, struct tensor src)
{
    assert(dst.rows == src.rows && dst.cols == src.cols && dst.dtype == src.dtype);
    bool whole = dst.ld == dst.cols && src.ld == src.cols;
    int64_t n = whole ? 1 : dst.rows, len = (whole ? dst.rows : 1) * dst.cols;
    for (int64_t i = 0; i < n; i++)
        sp->be->ops->add(sp->be, &(struct add_args){.y = row(dst, i), .x = row(src, i), .n = len});
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Returns the fp32 sum to which blocks are added. This is o or, if o has 16 bits, the
 * workspace. */
static struct tensor carried(const struct sp *sp, const struct sp_fwd_args *a)
{
    assert(sp->buf.o ? a->o.dtype != DT_F32 : a->o.dtype == DT_F32);
    return sp->buf.o ? tensor_f32(sp->buf.o, a->o.rows, a->o.cols, a->o.cols) : a->o;
}

void block_fwd_start(struct sp *sp, const struct sp_fwd_args *a)
{
    int64_t n = sp->shape.n_heads * sp->shard.T;
    const struct attn_sink_fwd_args sink = {.m = sp->buf.m,
                                            .l = a->lse,
                                            .ml_ld = sp->shard.T,
                                            .rows = sp->shard.T,
                                            .n_heads = sp->shape.n_heads,
                                            .sink = sp->shape.sink};
    block_zero(sp, carried(sp, a));
    if (sink.sink.data) {
        sp->be->ops->attn_sink_fwd(sp->be, &sink);
        if (mutant_on(MUTANT_SINK_EACH) && sp->shard.P > 1)
            sp->be->ops->fill(sp->be, a->lse, n, (float)sp->shard.P);
        return;
    }
    sp->be->ops->fill(sp->be, sp->buf.m, n, -INFINITY);
    sp->be->ops->fill(sp->be, a->lse, n, 0);
}

static void fwd_pair(struct sp *sp, const struct sp_fwd_args *a, const struct block *b, int c,
                     int g)
{
    int64_t n = sp->shard.seg_len, q0 = c * n;
    struct attn_drop drop;
    const bool drops = block_drop(sp, c, &drop);
    sp->be->ops->attn_fwd(sp->be,
                          &(struct attn_fwd_args){
                              .q = tensor_sub(a->q, q0, n, 0, a->q.cols),
                              .kv = tensor_sub(b->kv, g * n, key_rows(sp, g), 0, b->kv.cols),
                              .o = tensor_sub(carried(sp, a), q0, n, 0, a->o.cols),
                              .m = sp->buf.m + q0,
                              .l = a->lse + q0,
                              .ml_ld = sp->shard.T,
                              .lo = a->lo + q0,
                              .hi = a->hi + q0,
                              .kv_pos = b->pos[g],
                              .n_heads = sp->shape.n_heads,
                              .n_kv_heads = sp->shape.n_kv_heads,
                              .head_dim = sp->shape.head_dim,
                              .scale = block_scale(sp),
                              .drop = drops ? &drop : NULL,
                              .cap = cap_of(sp, MUTANT_CAP_LOST),
                          });
}

/* Merges without a running maximum, which is the fault of MUTANT_MERGE. Rescales each block's sums
 * to a maximum of 0, as if they were sums of e^score. This fault gives a right result unless a
 * score's exponential overflows. (The CPU carries maxima in units of log 2.) */
static void merge_plainly(struct sp *sp, const struct sp_fwd_args *a)
{
    const struct tensor o = carried(sp, a);
    const int64_t D = sp->shape.head_dim, T = sp->shard.T;
    for (int64_t h = 0; h < sp->shape.n_heads; h++)
        for (int64_t i = 0; i < T; i++) {
            float *m = &sp->buf.m[h * T + i];
            if (*m == -INFINITY) continue;
            const float up = exp2f(*m);
            a->lse[h * T + i] *= up;
            for (int64_t d = 0; d < D; d++) ((float *)o.data)[i * o.ld + h * D + d] *= up;
            *m = 0;
        }
}

void block_fwd(struct sp *sp, const struct sp_fwd_args *a, const struct block *b,
               const struct block_view *v, bool later)
{
    for (int g = sp->shard.n_segs - 1; g >= 0; g--)
        for (int c = 0; c < sp->shard.n_segs; c++)
            if (pair_wanted(sp, b, v, c, g, later)) fwd_pair(sp, a, b, c, g);
    if (mutant_on(MUTANT_MERGE) && sp->shard.P > 1) merge_plainly(sp, a);
}

void block_fwd_finish(struct sp *sp, const struct sp_fwd_args *a)
{
    const struct sp_attn_shape *s = &sp->shape;
    int64_t T = sp->shard.T;
    sp->be->ops->attn_finish(sp->be, &(struct attn_finish_args){.o = carried(sp, a),
                                                                .out = a->o,
                                                                .m = sp->buf.m,
                                                                .l = a->lse,
                                                                .ml_ld = T,
                                                                .n_heads = s->n_heads,
                                                                .head_dim = s->head_dim});
    sp->be->ops->copy(sp->be, a->lse, sp->buf.m, s->n_heads * T * 4); /* m has become lse */
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Computes the sinks' gradient from delta. First computes the gradient of each sum chunk, and then
 * their sum as the tree ((0+1)+(2+3))+... */
static void sink_back(struct sp *sp, const struct sp_bwd_args *a)
{
    const struct shard *sh = &sp->shard;
    const int64_t H = sp->shape.n_heads;
    struct attn_sink_bwd_args s = {
        .sink = sp->shape.sink, .ml_ld = sh->T, .rows = sh->sum_len, .n_heads = H};
    if (mutant_on(MUTANT_SINK_ROWS) && sh->P > 1) s.rows /= 2;
    for (int c = 0; c < sh->n_sums; c++) {
        s.d_sink = row(a->d_sink, c);
        s.lse = a->lse + c * sh->sum_len;
        s.delta = sp->buf.delta + c * sh->sum_len;
        sp->be->ops->fill(sp->be, s.d_sink, H, 0);
        sp->be->ops->attn_sink_bwd(sp->be, &s);
    }
    for (int step = 1; step < sh->n_sums; step *= 2)
        for (int c = 0; c + step < sh->n_sums; c += 2 * step)
            sp->be->ops->add(
                sp->be,
                &(struct add_args){.y = row(a->d_sink, c), .x = row(a->d_sink, c + step), .n = H});
}

void block_bwd_start(struct sp *sp, const struct sp_bwd_args *a)
{
    block_zero(sp, a->dq);
    sp->be->ops->attn_delta(sp->be, &(struct attn_delta_args){.o = a->o,
                                                              .d_o = a->d_o,
                                                              .delta = sp->buf.delta,
                                                              .ld = sp->shard.T,
                                                              .n_heads = sp->shape.n_heads,
                                                              .head_dim = sp->shape.head_dim});
    if (sp->shape.sink.data) sink_back(sp, a);
}

static void bwd_pair(struct sp *sp, const struct sp_bwd_args *a, const struct block *b, int c,
                     int g)
{
    int64_t n = sp->shard.seg_len, q0 = c * n;
    struct attn_drop drop;
    const bool drops = block_drop(sp, c, &drop);
    sp->be->ops->attn_bwd(sp->be,
                          &(struct attn_bwd_args){
                              .q = tensor_sub(a->q, q0, n, 0, a->q.cols),
                              .kv = tensor_sub(b->kv, g * n, key_rows(sp, g), 0, b->kv.cols),
                              .d_o = tensor_sub(a->d_o, q0, n, 0, a->d_o.cols),
                              .dq = tensor_sub(a->dq, q0, n, 0, a->dq.cols),
                              .dkv = tensor_sub(b->dkv, g * n, key_rows(sp, g), 0, b->dkv.cols),
                              .lse = a->lse + q0,
                              .delta = sp->buf.delta + q0,
                              .ml_ld = sp->shard.T,
                              .lo = a->lo + q0,
                              .hi = a->hi + q0,
                              .kv_pos = b->pos[g],
                              .n_heads = sp->shape.n_heads,
                              .n_kv_heads = sp->shape.n_kv_heads,
                              .head_dim = sp->shape.head_dim,
                              .scale = block_scale(sp),
                              .drop = drops ? &drop : NULL,
                              .cap = cap_of(sp, MUTANT_CAP_LOST_BACK),
                          });
}

/* The outer loop walks key segments in descending order, and the inner loop walks query segments
 * in ascending order. So each dq sums its keys in the order of the forward pass, and each dkv sums
 * its queries in ascending order. */
void block_bwd(struct sp *sp, const struct sp_bwd_args *a, const struct block *b,
               const struct block_view *v, bool later)
{
    for (int g = sp->shard.n_segs - 1; g >= 0; g--)
        for (int c = 0; c < sp->shard.n_segs; c++)
            if (pair_wanted(sp, b, v, c, g, later)) bwd_pair(sp, a, b, c, g);
}
