/* Attention by heads (DeepSpeed-Ulysses, 2309.14509): an all-to-all exchanges a rank's rows of all
 * heads for all rows of some heads. Attention is then local, and another all-to-all exchanges the
 * output back.
 *
 *   forward   q and kv are sent, and o comes back. These are (u-1)/u (2H + 2Hk) T D elements if u
 *             divides the heads
 *   backward  q, kv, o and lse of the rank's heads were kept. dO is sent in the model's precision,
 *             and dQ, dK and dV come back in fp32
 *
 * With a ring (USP, 2405.07719), the ranks form groups of u consecutive ranks. The rank at `place`
 * in group `ring` is rank = ring * u + place. The all-to-all runs within a group. A group then has
 * the rows of all its ranks, like one rank of a ring of P/u ranks. Ranks at the same place have
 * the same heads, and pass keys and values round that ring (rsa.c). A group's rows are one run of
 * the sequence or, with the zigzag layout, two runs. Each run is a separate exchange, so that the
 * run's rows arrive in order.
 *
 * Heads are divided among the ranks as evenly as possible (worker/plan/attention.h). If query
 * heads that share a KV head go to several ranks, each of these ranks gets the KV head's keys and
 * values. The ranks' parts of the gradient of these keys and values are added in rank order.
 * Attention is computed for one KV head at a time, over the logical chunks of the whole sequence.
 * So the terms and the order of a sum are those of a single rank. Under "ranks" the bits are also
 * those of a single rank, unless a KV head goes to several ranks. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/block.h"
#include "worker/sp/over_p.h"

struct heads { /* one call */
    struct sp *sp;
    int u, r; /* u: number of ranks of the group; r: this rank's place in the group */
    int n_runs;
    int64_t run; /* number of this rank's rows in a run */
    /* This group as one rank of the ring of groups, with the query heads that share one KV head.
     * Without a ring, it has the whole sequence, without padding. */
    struct sp whole;
    const struct sp_ops *ops; /* the operations that `whole` runs */
    struct reach_map room;
    const struct reach_map *reach; /* keys that the groups see */
    struct head_share mine;
    int64_t rows; /* u*T: number of the group's rows, with the padding of all its ranks */
    enum dtype dtype;
    struct tensor q, kv,
        o;      /* kept: q [rows, nq*D]; [rows, nk*(2*D)], K and V of each head; o [rows, nq*D] */
    float *lse; /* kept: [nq, T of whole] */
};

static void set_whole(struct heads *h)
{
    const struct sp *sp = h->sp;
    h->whole = *sp;
    h->whole.comm = sp->ring;
    h->whole.shard = shard_group(&sp->shard);
    h->ops = sp->ring ? &sp_rsa : &sp_local;
    assert((h->whole.shard.P > 1) == (sp->ring != NULL) && (h->u > 1) == (sp->group != NULL));
    if (sp->ring) return;
    const int rc = shard_init(&h->whole.shard, sp->shard.S, 1, 0, LAYOUT_CONTIGUOUS,
                              sp->shard.rank_bits, NULL);
    assert(rc == 0);
}

static void heads_of(struct heads *h, struct sp *sp, enum dtype dtype, void *kept,
                     const struct reach_map *reach)
{
    const int64_t D = sp->shape.head_dim;
    assert(kept);
    h->sp = sp, h->u = sp->shard.u, h->r = sp->shard.r % h->u, h->dtype = dtype;
    h->n_runs = shard_runs(&sp->shard);
    h->run = sp->shard.T / h->n_runs;
    h->mine = attention_head_share(sp->shape.n_heads, sp->shape.n_kv_heads, h->u, h->r);
    h->rows = h->u * sp->shard.T;
    h->reach = reach_groups(reach, &sp->shard, &h->room);
    set_whole(h);
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
    return attention_head_share(h->sp->shape.n_heads, h->sp->shape.n_kv_heads, h->u, w);
}

/* ---- the all-to-all -------------------------------------------------------------------------- */

/* run_of returns the rows of run c in a tensor of the group's rows. own_run returns the rows of
 * run c in a tensor of this rank's rows. */
static struct tensor run_of(const struct heads *h, struct tensor t, int c)
{
    return tensor_sub(t, c * h->u * h->run, h->u * h->run, 0, t.cols);
}

static struct tensor own_run(const struct heads *h, struct tensor t, int c)
{
    return tensor_sub(t, c * h->run, h->run, 0, t.cols);
}

/* Returns rank j's part of run c in a tensor of the group's rows. */
static struct tensor rows_of(const struct heads *h, struct tensor t, int c, int j)
{
    return tensor_sub(t, (c * h->u + j) * h->run, h->run, 0, t.cols);
}

/* A parcel, which is the part of a run's rows that belongs to rank w's heads. It has queries [run,
 * nq*D], and keys and values [run, nk*2*D]. For each run, a buffer has the queries of all ranks,
 * and then the keys and values of all ranks. */
struct parcel {
    struct tensor q, kv;
};

static struct parcel parcel_of(const struct heads *h, enum dtype dtype, void *buffer, int c, int w,
                               bool with_kv)
{
    const int64_t n = h->run, D = h->sp->shape.head_dim, unit = dtype_size(dtype);
    int64_t q_at = 0, kv_at = 0, all = 0;
    for (int k = 0; k < h->u; k++) {
        const struct head_share s = share_of(h, k);
        if (k < w) q_at += s.nq;
        kv_at += s.nq + (k < w ? 2 * s.nk : 0);
        all += s.nq + (with_kv ? 2 * s.nk : 0);
    }
    const struct head_share s = share_of(h, w);
    const int64_t nq = s.nq * D, nk = with_kv ? s.nk * 2 * D : 0;
    char *from = (char *)buffer + c * n * all * D * unit;
    return (struct parcel){tensor_of(dtype, from + n * q_at * D * unit, n, nq, nq),
                           tensor_of(dtype, from + n * kv_at * D * unit, n, nk, nk)};
}

/* Computes the offsets of the ranks' parcels of queries or, if kv is set, of keys and values.
 * Offsets are counted from the first parcel. */
static void parcels_at(const struct heads *h, enum dtype dtype, bool kv, int64_t at[])
{
    at[0] = 0;
    for (int w = 0; w < h->u; w++) {
        const struct head_share s = share_of(h, w);
        at[w + 1] = at[w] +
                    h->run * (kv ? 2 * s.nk : s.nq) * h->sp->shape.head_dim * dtype_size(dtype);
    }
}

/* Computes the offsets of each rank's rows among a run's rows. */
static void rows_at(const struct heads *h, struct tensor t, int64_t at[])
{
    for (int w = 0; w <= h->u; w++) at[w] = w * h->run * t.cols * dtype_size(t.dtype);
}

static struct tensor query_cols(const struct heads *h, struct tensor t, int w)
{
    const struct head_share s = share_of(h, w);
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, t.rows, s.q0 * D, s.nq * D);
}

/* kv_cols returns the columns of KV head k's key or value in [T, 2*Hk*D]. own_kv_cols returns the
 * columns of the key or value of the i-th KV head of a rank in [.., nk*2*D]. */
static struct tensor kv_cols(const struct heads *h, struct tensor t, int64_t k, bool value)
{
    const int64_t D = h->sp->shape.head_dim, Hk = h->sp->shape.n_kv_heads;
    return tensor_sub(t, 0, t.rows, (k + (value ? Hk : 0)) * D, D);
}

static struct tensor own_kv_cols(const struct heads *h, struct tensor t, int64_t i, bool value)
{
    const int64_t D = h->sp->shape.head_dim;
    return tensor_sub(t, 0, t.rows, (2 * i + value) * D, D);
}

static void pack_kv(struct heads *h, struct tensor to, struct tensor kv, int w)
{
    const struct head_share its = share_of(h, w);
    for (int64_t i = 0; i < its.nk; i++) {
        int64_t k = its.k0 + i;
        if (mutant_on(MUTANT_HEADS_WRONG)) k = (k + 1) % h->sp->shape.n_kv_heads;
        for (int v = 0; v < 2; v++)
            block_copy(h->sp, own_kv_cols(h, to, i, v), kv_cols(h, kv, k, v));
    }
}

/* Exchanges q and kv in one batch. If kv's buffers are NULL, exchanges only the queries. */
static int exchange(struct heads *h, struct comm_blocks q[2], struct comm_blocks kv[2], bool own,
                    struct err *e)
{
    struct comm *c = h->sp->group;
    struct comm_exchange x[2];
    const int n = kv[0].data ? 2 : 1;
    if (comm_batch_begin(c, e) || comm_all_to_all(c, PURPOSE_HEADS, q[0], q[1], own, &x[0], e) ||
        (n == 2 && comm_all_to_all(c, PURPOSE_HEADS, kv[0], kv[1], own, &x[1], e)) ||
        comm_batch_end(c, e))
        return -1;
    for (int i = 0; i < n; i++)
        if (comm_all_to_all_wait(c, &x[i], e)) return -1;
    return 0;
}

/* Exchanges run c between the parcels in `buffer` and the rows of q_all and kv_all. If to_rows is
 * set, sends parcels and receives rows. Otherwise sends rows and receives parcels. If kv_all.data
 * is NULL, exchanges only the queries. */
static int trade_run(struct heads *h, void *buffer, int c, struct tensor q_all,
                     struct tensor kv_all, bool to_rows, struct err *e)
{
    const bool with_kv = kv_all.data != NULL;
    const enum dtype dtype = q_all.dtype;
    const struct parcel first = parcel_of(h, dtype, buffer, c, 0, with_kv);
    int64_t at[4][JOB_MAX_RANKS + 1];
    parcels_at(h, dtype, false, at[0]);
    rows_at(h, q_all, at[1]);
    parcels_at(h, dtype, true, at[2]);
    rows_at(h, kv_all, at[3]);
    struct comm_blocks q[2], kv[2];
    q[!to_rows] = (struct comm_blocks){first.q.data, at[0]};
    q[to_rows] = (struct comm_blocks){run_of(h, q_all, c).data, at[1]};
    kv[!to_rows] = (struct comm_blocks){with_kv ? first.kv.data : NULL, at[2]};
    kv[to_rows] = (struct comm_blocks){with_kv ? run_of(h, kv_all, c).data : NULL, at[3]};
    return exchange(h, q, kv, to_rows, e);
}

/* Exchanges the parcels of all runs. */
static int trade(struct heads *h, void *buffer, struct tensor q_all, struct tensor kv_all,
                 bool to_rows, struct err *e)
{
    assert(q_all.ld == q_all.cols && kv_all.ld == kv_all.cols);
    for (int c = 0; h->u > 1 && c < h->n_runs; c++)
        if (trade_run(h, buffer, c, q_all, kv_all, to_rows, e)) return -1;
    return 0;
}

/* Gathers the rows of this rank's heads from all ranks into q_all and kv_all. q and kv have the
 * rows of this rank's tokens. If kv.data is NULL, gathers only the queries. */
static int to_heads(struct heads *h, struct tensor q, struct tensor kv, struct tensor q_all,
                    struct tensor kv_all, struct err *e)
{
    struct sp *sp = h->sp;
    const bool with_kv = kv.data != NULL;
    if (!with_kv) kv_all = (struct tensor){0};
    for (int c = 0; c < h->n_runs; c++)
        for (int w = 0; w < h->u; w++) {
            struct parcel p = parcel_of(h, h->dtype, sp->buf.at[ATTN_OUT], c, w, with_kv);
            if (h->u == 1) p.q = rows_of(h, q_all, c, 0);
            if (h->u == 1 && with_kv) p.kv = rows_of(h, kv_all, c, 0);
            block_copy(sp, p.q, query_cols(h, own_run(h, q, c), w));
            if (with_kv) pack_kv(h, p.kv, own_run(h, kv, c), w);
        }
    return trade(h, sp->buf.at[ATTN_OUT], q_all, kv_all, true, e);
}

/* Sends the rows of this rank's heads, which are in the comm segment, back to the ranks that have
 * the tokens. Afterwards the rows received for this rank's tokens are in the buffer ATTN_IN,
 * parcel by parcel. */
static int to_tokens(struct heads *h, struct tensor q_all, struct tensor kv_all, struct err *e)
{
    return trade(h, h->sp->buf.at[ATTN_IN], q_all, kv_all, false, e);
}

/* ---- attention over the own heads ------------------------------------------------------------ */

/* The query heads that share one of this rank's KV heads. `first` is counted from the rank's first
 * query head. */
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

/* group_cols returns the columns of a KV head's queries, for the rows of `whole`. pair_cols
 * returns the columns of the KV head's key and value. */
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
    h->whole.drop.head = h->sp->drop.head + (uint32_t)(h->mine.q0 + g.first);
}

/* Zeroes the rows after the rows of `whole`. They are the padding of the last ranks. */
static void zero_rest(struct heads *h, struct tensor t)
{
    const int64_t T = h->whole.shard.T, size = t.cols * dtype_size(t.dtype) / 4;
    h->sp->be->ops->fill(h->sp->be, (float *)t.data + T * size, (t.rows - T) * size, 0);
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
                                        .lo = h->u > 1 ? a->all_lo : a->lo,
                                        .hi = h->u > 1 ? a->all_hi : a->hi,
                                        .seen = h->u > 1 ? a->all_seen : a->seen,
                                        .reach = h->reach};
        take_group(h, g);
        if (h->ops->attn_fwd(&h->whole, &one, e)) return -1;
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
                                        .lo = h->u > 1 ? a->all_lo : a->lo,
                                        .hi = h->u > 1 ? a->all_hi : a->hi,
                                        .seen = h->u > 1 ? a->all_seen : a->seen,
                                        .reach = h->reach};
        take_group(h, g);
        if (h->ops->attn_bwd(&h->whole, &one, e)) return -1;
    }
    return 0;
}

/* ---- forward and backward -------------------------------------------------------------------- */

static int heads_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct heads h;
    heads_of(&h, sp, a->kv.dtype, a->kept, a->reach);
    if (to_heads(&h, a->q, a->kv, h.q, h.kv, e) || attend(&h, a, e)) return -1;
    struct tensor out = h.o;
    out.data = sp->buf.at[ATTN_OUT];
    if (h.u > 1) block_copy(sp, out, h.o);
    if (to_tokens(&h, out, (struct tensor){0}, e)) return -1;
    for (int c = 0; c < h.n_runs; c++)
        for (int w = 0; w < h.u; w++)
            block_copy(sp, query_cols(&h, own_run(&h, a->o, c), w),
                       w == h.r ? rows_of(&h, h.o, c, w)
                                : parcel_of(&h, h.dtype, sp->buf.at[ATTN_IN], c, w, false).q);
    return 0;
}

static void add_kv(struct heads *h, struct tensor dkv, struct tensor part, int w)
{
    void (*const add)(struct sp *, struct tensor,
                      struct tensor) = mutant_on(MUTANT_SHARED_ONCE) ? block_copy : block_add;
    for (int64_t i = 0; i < share_of(h, w).nk; i++)
        for (int v = 0; v < 2; v++)
            add(h->sp, kv_cols(h, dkv, share_of(h, w).k0 + i, v), own_kv_cols(h, part, i, v));
}

/* Reads the gradients of this rank's rows from the parcels that the group's ranks have sent. */
static void take_grads(struct heads *h, const struct sp_bwd_args *a, struct tensor dq,
                       struct tensor dkv)
{
    struct sp *sp = h->sp;
    block_zero(sp, a->dkv);
    for (int c = 0; c < h->n_runs; c++)
        for (int w = 0; w < h->u; w++) {
            struct parcel p = parcel_of(h, DT_F32, sp->buf.at[ATTN_IN], c, w, true);
            if (w == h->r) p = (struct parcel){rows_of(h, dq, c, w), rows_of(h, dkv, c, w)};
            block_copy(sp, query_cols(h, own_run(h, a->dq, c), w), p.q);
            add_kv(h, own_run(h, a->dkv, c), p.kv, w);
        }
    sp_mutant_over_p(a->dq, sp->shard.P);
    sp_mutant_over_p(a->dkv, sp->shard.P);
}

static int heads_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    struct heads h;
    heads_of(&h, sp, a->kv.dtype, a->kept, a->reach);
    struct tensor d_o = h.o;
    d_o.data = sp->buf.at[ATTN_DO];
    if (to_heads(&h, a->d_o, (struct tensor){0}, d_o, (struct tensor){0}, e)) return -1;
    const struct tensor dq = tensor_f32(sp->buf.at[ATTN_OUT], h.rows, h.q.cols, h.q.cols);
    const struct tensor dkv = tensor_f32((float *)sp->buf.at[ATTN_OUT] + h.rows * h.q.cols, h.rows,
                                         h.kv.cols, h.kv.cols);
    if (attend_back(&h, a, d_o, dq, dkv, e) || to_tokens(&h, dq, dkv, e)) return -1;
    take_grads(&h, a, dq, dkv);
    return 0;
}

static const struct sp_ops heads_ops = {
    .attn_fwd = heads_fwd,
    .attn_bwd = heads_bwd,
    .attn_decode = sp_attn_decode,
};

const struct sp_row sp_row_ulysses = {.form = {&heads_ops}};
const struct sp_row sp_row_usp = {.form = {&heads_ops}};
