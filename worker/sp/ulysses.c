/* Attention by heads (DeepSpeed-Ulysses, 2309.14509): an all-to-all turns rows of all heads into
 * all rows of some heads, attention is local, and another all-to-all turns its output back.
 *
 *   forward   q and kv go out, o comes back: (P-1)/P (2H + 2Hk) T D elements where heads divide
 *   backward  q, kv, o and lse of the own heads have been kept; dO goes out in the model's
 *             precision, dQ, dK and dV come back in fp32
 *
 * Heads go to ranks as evenly as they can (worker/plan/attention.h). Where a group of query heads
 * that share a KV head is divided, its keys and values go to each of its ranks, and what these have
 * of their gradient is added in rank order. Attention takes one KV head at a time, over the logical
 * chunks of the whole sequence: the sums of one rank, and under "ranks" its bits where no group is
 * divided. */
#include <assert.h>
#include "worker/sp/block.h"
#include "worker/sp/over_p.h"

struct heads { /* one call */
    struct sp *sp;
    int P, r;
    struct sp whole; /* one rank that holds the sequence, and the heads of one group */
    struct head_share mine;
    int64_t rows; /* P*T: of the sequence with all ranks' padding */
    enum dtype dtype;
    struct tensor q, kv,
        o;      /* kept: [rows, nq*D], [rows, nk*(2*D)]: K, V of each head; [rows, nq*D] */
    float *lse; /* kept: [nq, S of whole] */
};

static void heads_of(struct heads *h, struct sp *sp, enum dtype dtype, void *kept)
{
    const int64_t D = sp->shape.head_dim;
    assert(kept && sp->shard.layout == LAYOUT_CONTIGUOUS);
    h->sp = sp, h->P = sp->shard.P, h->r = sp->shard.r, h->dtype = dtype;
    h->mine = head_share(sp->shape.n_heads, sp->shape.n_kv_heads, h->P, h->r);
    h->rows = h->P * sp->shard.T;
    h->whole = *sp;
    h->whole.comm = NULL;
    const int rc = shard_init(&h->whole.shard, sp->shard.S, 1, 0, LAYOUT_CONTIGUOUS,
                              sp->shard.rank_bits, NULL);
    assert(rc == 0);
    char *at = kept;
    const int64_t nq = h->mine.nq * D, nk = h->mine.nk * 2 * D, unit = dtype_size(dtype);
    h->q = tensor_of(dtype, at, h->rows, nq, nq);
    h->kv = tensor_of(dtype, at += h->rows * nq * unit, h->rows, nk, nk);
    h->o = tensor_of(dtype, at += h->rows * nk * unit, h->rows, nq, nq);
    h->lse = (float *)(at + h->rows * nq * unit);
    h->whole.buf.o = sp->buf.at[ATTN_SUM];
    h->whole.buf.m = sp->buf.at[ATTN_ROWS];
    h->whole.buf.delta = h->whole.buf.m + h->mine.nq * h->rows;
}

static struct head_share share_of(const struct heads *h, int w)
{
    return head_share(h->sp->shape.n_heads, h->sp->shape.n_kv_heads, h->P, w);
}

/* ---- the all-to-all -------------------------------------------------------------------------- */

/* Rows of rank j in a tensor of the whole sequence. */
static struct tensor rows_of(const struct heads *h, struct tensor t, int j)
{
    return tensor_sub(t, j * h->sp->shard.T, h->sp->shard.T, 0, t.cols);
}

/* The part of [T, cols] tensors that is of rank w's heads: queries [T, nq*D], keys and values [T,
 * nk*2*D]. A buffer holds all ranks' queries, then all ranks' keys and values. */
struct parcel {
    struct tensor q, kv;
};

static struct parcel parcel_of(const struct heads *h, enum dtype dtype, void *buffer, int w,
                               bool with_kv)
{
    const int64_t T = h->sp->shard.T, D = h->sp->shape.head_dim, unit = dtype_size(dtype);
    int64_t q_at = 0, kv_at = 0;
    for (int u = 0; u < h->P; u++) {
        const struct head_share s = share_of(h, u);
        if (u < w) q_at += s.nq;
        kv_at += s.nq + (u < w ? 2 * s.nk : 0);
    }
    const struct head_share s = share_of(h, w);
    const int64_t nq = s.nq * D, nk = with_kv ? s.nk * 2 * D : 0;
    return (struct parcel){tensor_of(dtype, (char *)buffer + T * q_at * D * unit, T, nq, nq),
                           tensor_of(dtype, (char *)buffer + T * kv_at * D * unit, T, nk, nk)};
}

/* Where the ranks' parcels of queries begin and end, from the first one; or of keys and values. */
static void parcels_at(const struct heads *h, enum dtype dtype, bool kv, int64_t at[])
{
    at[0] = 0;
    for (int w = 0; w < h->P; w++) {
        const struct head_share s = share_of(h, w);
        at[w + 1] = at[w] + h->sp->shard.T * (kv ? 2 * s.nk : s.nq) * h->sp->shape.head_dim *
                                dtype_size(dtype);
    }
}

/* Where the ranks' rows begin and end in a tensor of the whole sequence. */
static void rows_at(const struct heads *h, struct tensor t, int64_t at[])
{
    for (int w = 0; w <= h->P; w++) at[w] = w * h->sp->shard.T * t.cols * dtype_size(t.dtype);
}

static struct tensor query_cols(const struct heads *h, struct tensor t, int w)
{
    const struct head_share s = share_of(h, w);
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, t.rows, s.q0 * D, s.nq * D);
}

/* Columns of the i-th KV head of w: its key (or value) in [T, 2*Hk*D], and in w's [.., nk*2*D]. */
static struct tensor kv_cols(const struct heads *h, struct tensor t, int w, int64_t i, bool value)
{
    const int64_t D = h->sp->shape.head_dim, Hk = h->sp->shape.n_kv_heads;
    return tensor_sub(t, 0, t.rows, (share_of(h, w).k0 + i + (value ? Hk : 0)) * D, D);
}

static struct tensor own_kv_cols(const struct heads *h, struct tensor t, int64_t i, bool value)
{
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, t.rows, (2 * i + value) * D, D);
}

static void pack_kv(struct heads *h, struct tensor to, struct tensor kv, int w)
{
    for (int64_t i = 0; i < share_of(h, w).nk; i++)
        for (int v = 0; v < 2; v++)
            block_copy(h->sp, own_kv_cols(h, to, i, v), kv_cols(h, kv, w, i, v));
}

/* Both at once; kv's buffers NULL: queries alone. */
static int exchange(struct heads *h, struct comm_blocks q[2], struct comm_blocks kv[2], bool own,
                    struct err *e)
{
    struct comm *c = h->sp->comm;
    struct comm_exchange x[2];
    const int n = kv[0].data ? 2 : 1;
    if (h->P == 1) return 0;
    if (comm_batch_begin(c, e) || comm_all_to_all(c, PURPOSE_HEADS, q[0], q[1], own, &x[0], e) ||
        (n == 2 && comm_all_to_all(c, PURPOSE_HEADS, kv[0], kv[1], own, &x[1], e)) ||
        comm_batch_end(c, e))
        return -1;
    for (int i = 0; i < n; i++)
        if (comm_all_to_all_wait(c, &x[i], e)) return -1;
    return 0;
}

/* Exchanges parcels in `buffer` for rows of q_all and kv_all; to_rows: which way. kv_all.data NULL:
 * queries alone. */
static int trade(struct heads *h, void *buffer, struct tensor q_all, struct tensor kv_all,
                 bool to_rows, struct err *e)
{
    const bool with_kv = kv_all.data != NULL;
    const enum dtype dtype = q_all.dtype;
    const struct parcel first = parcel_of(h, dtype, buffer, 0, with_kv);
    int64_t at[4][JOB_MAX_RANKS + 1];
    assert(q_all.ld == q_all.cols && kv_all.ld == kv_all.cols);
    parcels_at(h, dtype, false, at[0]);
    rows_at(h, q_all, at[1]);
    parcels_at(h, dtype, true, at[2]);
    rows_at(h, kv_all, at[3]);
    struct comm_blocks q[2], kv[2];
    q[!to_rows] = (struct comm_blocks){first.q.data, at[0]};
    q[to_rows] = (struct comm_blocks){q_all.data, at[1]};
    kv[!to_rows] = (struct comm_blocks){with_kv ? first.kv.data : NULL, at[2]};
    kv[to_rows] = (struct comm_blocks){kv_all.data, at[3]};
    return exchange(h, q, kv, to_rows, e);
}

/* Rows of the own heads from all ranks; q, and kv unless it has no data, are of the own tokens. */
static int to_heads(struct heads *h, struct tensor q, struct tensor kv, struct tensor q_all,
                    struct tensor kv_all, struct err *e)
{
    struct sp *sp = h->sp;
    const bool with_kv = kv.data != NULL;
    for (int w = 0; w < h->P; w++) {
        struct parcel p = parcel_of(h, h->dtype, sp->buf.at[ATTN_OUT], w, with_kv);
        if (h->P == 1) p = (struct parcel){q_all, kv_all};
        block_copy(sp, p.q, query_cols(h, q, w));
        if (with_kv) pack_kv(h, p.kv, kv, w);
    }
    if (!with_kv) kv_all.data = NULL;
    return trade(h, sp->buf.at[ATTN_OUT], q_all, kv_all, true, e);
}

/* The other way: rows of the own heads, which lie in the comm segment, go to their tokens' ranks;
 * the received rows of the own tokens are then in the buffer ATTN_IN, parcel by parcel. */
static int to_tokens(struct heads *h, struct tensor q_all, struct tensor kv_all, struct err *e)
{
    return trade(h, h->sp->buf.at[ATTN_IN], q_all, kv_all, false, e);
}

/* ---- attention over the own heads ------------------------------------------------------------ */

/* The query heads of the i-th own KV head, counted from the first own one. */
struct group {
    int64_t first, n;
};

static struct group group_of(const struct heads *h, int64_t i)
{
    const int64_t size = h->sp->shape.n_heads / h->sp->shape.n_kv_heads, k = h->mine.k0 + i;
    int64_t a = k * size, z = a + size;
    if (a < h->mine.q0) a = h->mine.q0;
    if (z > h->mine.q0 + h->mine.nq) z = h->mine.q0 + h->mine.nq;
    return (struct group){a - h->mine.q0, z - a};
}

/* The group's columns, of rows that are the sequence's. */
static struct tensor group_cols(const struct heads *h, struct tensor t, struct group g)
{
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, h->whole.shard.T, g.first * D, g.n * D);
}

static struct tensor pair_cols(const struct heads *h, struct tensor t, int64_t i)
{
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, h->whole.shard.T, i * 2 * D, 2 * D);
}

static void take_group(struct heads *h, struct group g)
{
    h->whole.shape.n_heads = g.n;
    h->whole.shape.n_kv_heads = 1;
    if (h->sp->shape.sink.data)
        h->whole.shape.sink = tensor_sub(h->sp->shape.sink, 0, 1, h->mine.q0 + g.first, g.n);
    h->whole.drop.head = (uint32_t)(h->mine.q0 + g.first);
}

/* Zeroes the rows after the sequence: padding of the last ranks. */
static void zero_rest(struct heads *h, struct tensor t)
{
    const int64_t S = h->whole.shard.T, size = t.cols * dtype_size(t.dtype) / 4;
    h->sp->be->ops->fill(h->sp->be, (float *)t.data + S * size, (t.rows - S) * size, 0);
}

static int attend(struct heads *h, const struct sp_fwd_args *a, struct err *e)
{
    zero_rest(h, h->o);
    for (int64_t i = 0; i < h->mine.nk; i++) {
        const struct group g = group_of(h, i);
        const struct sp_fwd_args one = {.q = group_cols(h, h->q, g),
                                        .kv = pair_cols(h, h->kv, i),
                                        .o = group_cols(h, h->o, g),
                                        .lse = h->lse + g.first * h->whole.shard.T,
                                        .lo = a->all_lo,
                                        .hi = a->all_hi,
                                        .seen = a->all_seen};
        take_group(h, g);
        if (sp_local.attn_fwd(&h->whole, &one, e)) return -1;
    }
    return 0;
}

static struct tensor sinks_of(const struct heads *h, struct tensor d_sink, struct group g)
{
    if (!d_sink.data) return d_sink;
    return tensor_sub(d_sink, 0, d_sink.rows, h->mine.q0 + g.first, g.n);
}

static int attend_back(struct heads *h, const struct sp_bwd_args *a, struct tensor d_o,
                       struct tensor dq, struct tensor dkv, struct err *e)
{
    zero_rest(h, dq);
    zero_rest(h, dkv);
    for (int64_t i = 0; i < h->mine.nk; i++) {
        const struct group g = group_of(h, i);
        const struct sp_bwd_args one = {.q = group_cols(h, h->q, g),
                                        .kv = pair_cols(h, h->kv, i),
                                        .o = group_cols(h, h->o, g),
                                        .d_o = group_cols(h, d_o, g),
                                        .lse = h->lse + g.first * h->whole.shard.T,
                                        .dq = group_cols(h, dq, g),
                                        .dkv = pair_cols(h, dkv, i),
                                        .d_sink = sinks_of(h, a->d_sink, g),
                                        .lo = a->all_lo,
                                        .hi = a->all_hi,
                                        .seen = a->all_seen};
        take_group(h, g);
        if (sp_local.attn_bwd(&h->whole, &one, e)) return -1;
    }
    return 0;
}

/* ---- forward and backward -------------------------------------------------------------------- */

static int ulysses_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct heads h;
    heads_of(&h, sp, a->kv.dtype, a->kept);
    if (to_heads(&h, a->q, a->kv, h.q, h.kv, e) || attend(&h, a, e)) return -1;
    struct tensor out = h.o;
    out.data = sp->buf.at[ATTN_OUT];
    if (h.P > 1) block_copy(sp, out, h.o);
    if (to_tokens(&h, out, (struct tensor){0}, e)) return -1;
    for (int w = 0; w < h.P; w++)
        block_copy(sp, query_cols(&h, a->o, w),
                   w == h.r ? rows_of(&h, h.o, w)
                            : parcel_of(&h, h.dtype, sp->buf.at[ATTN_IN], w, false).q);
    return 0;
}

static void add_kv(struct heads *h, struct tensor dkv, struct tensor part, int w)
{
    for (int64_t i = 0; i < share_of(h, w).nk; i++)
        for (int v = 0; v < 2; v++)
            block_add(h->sp, kv_cols(h, dkv, w, i, v), own_kv_cols(h, part, i, v));
}

static int ulysses_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    struct heads h;
    heads_of(&h, sp, a->kv.dtype, a->kept);
    struct tensor d_o = h.o;
    d_o.data = sp->buf.at[ATTN_DO];
    if (to_heads(&h, a->d_o, (struct tensor){0}, d_o, (struct tensor){0}, e)) return -1;
    const struct tensor dq = tensor_f32(sp->buf.at[ATTN_OUT], h.rows, h.q.cols, h.q.cols);
    const struct tensor dkv = tensor_f32((float *)sp->buf.at[ATTN_OUT] + h.rows * h.q.cols, h.rows,
                                         h.kv.cols, h.kv.cols);
    if (attend_back(&h, a, d_o, dq, dkv, e) || to_tokens(&h, dq, dkv, e)) return -1;
    block_zero(sp, a->dkv);
    for (int w = 0; w < h.P; w++) {
        struct parcel p = parcel_of(&h, DT_F32, sp->buf.at[ATTN_IN], w, true);
        if (w == h.r) p = (struct parcel){rows_of(&h, dq, w), rows_of(&h, dkv, w)};
        block_copy(sp, query_cols(&h, a->dq, w), p.q);
        add_kv(&h, a->dkv, p.kv, w);
    }
    sp_mutant_over_p(a->dq, h.P);
    sp_mutant_over_p(a->dkv, h.P);
    return 0;
}

static const struct sp_ops heads_ops = {
    .attn_fwd = ulysses_fwd,
    .attn_bwd = ulysses_bwd,
    .attn_decode = sp_attn_decode,
};

const struct sp_row sp_row_ulysses = {.form = {&heads_ops}};
