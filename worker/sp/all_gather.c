/* Attention over the keys and values of all ranks, which are gathered first. With packed
 * documents, each rank gets only the rows that its queries see (worker/plan/reach.h), directly
 * from the owners of these rows.
 *
 *   forward   the receives for all rows are posted together. The blocks of r-1, r-2, ... are used
 *             in this order, which is the order of the ring and gives the same bits
 *   backward  rows are gathered again. This rank's part of dKV_j is sent directly to its owner j.
 *             The owner adds the parts of j+1, j+2, ... to its own part, in fp32. Under "ranks"
 *             the bits of the owner's sum would depend on the number of parts, so dKV travels
 *             round the ring instead (rsa.c)
 *
 * Rows that are not sent are set to zero, because they are multiplied by probabilities of 0. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/block.h"
#include "worker/sp/over_p.h"

struct key_gather { /* one call */
    struct sp *sp;
    int P, r;
    const struct reach_map *reach;
    enum dtype dtype;                                 /* dtype of keys and values */
    struct comm_ticket in[JOB_MAX_RANKS][SHARD_SEGS]; /* rows of r-i, by segment */
    struct comm_ticket back[2][SHARD_SEGS];           /* gradients of two rounds */
};

static void gather_of(struct key_gather *w, struct sp *sp, enum dtype dtype,
                      const struct reach_map *reach)
{
    assert(sp->rank_bits == sp->shard.rank_bits && (sp->comm || sp->shard.P == 1));
    w->sp = sp, w->P = sp->shard.P, w->r = sp->shard.r, w->reach = reach, w->dtype = dtype;
    for (int g = 0; g < SHARD_SEGS; g++) {
        for (int i = 0; i < w->P; i++) w->in[i][g].slot = -1;
        w->back[0][g].slot = w->back[1][g].slot = -1;
    }
}

static int64_t kv_cols(const struct key_gather *w)
{
    return 2 * w->sp->shape.n_kv_heads * w->sp->shape.head_dim;
}

/* Returns rank j's part of a buffer that holds the rows of all ranks. */
static struct tensor part_of(const struct key_gather *w, enum dtype dtype, void *all, int j)
{
    const int64_t T = w->sp->shard.T, n = kv_cols(w);
    return tensor_sub(tensor_of(dtype, all, w->P * T, n, n), j * T, T, 0, n);
}

static struct tensor rows_in(struct tensor t, int64_t seg_len, int g, struct reach_rows rows)
{
    return tensor_sub(t, g * seg_len + rows.first, rows.n, 0, t.cols);
}

/* One message to send and one to receive, both of whole rows. If a side has no rows, it has no
 * message. */
struct trade {
    enum purpose purpose;
    enum comm_channel channel;
    int to, from;
    struct tensor send, recv;
};

static int trade(struct key_gather *w, const struct trade *t, struct comm_ticket *ticket,
                 struct err *e)
{
    const struct comm_xfer x = {
        .purpose = t->purpose,
        .channel = t->channel,
        .send_to = t->send.rows ? t->to : -1,
        .recv_from = t->recv.rows ? t->from : -1,
        .send = t->send.data,
        .recv = t->recv.data,
        .send_size = t->send.rows * t->send.cols * dtype_size(t->send.dtype),
        .recv_size = t->recv.rows * t->recv.cols * dtype_size(t->recv.dtype)};
    if (!t->send.rows && !t->recv.rows) return 0;
    return comm_sendrecv(w->sp->comm, &x, ticket, e);
}

/* Zeroes the rows of a segment except `rows`. */
static void zero_rest(struct key_gather *w, struct tensor seg, struct reach_rows rows)
{
    const int64_t size = seg.cols * dtype_size(seg.dtype) / 4, end = rows.first + rows.n;
    float *at = seg.data;
    w->sp->be->ops->fill(w->sp->be, at, rows.first * size, 0);
    w->sp->be->ops->fill(w->sp->be, at + end * size, (seg.rows - end) * size, 0);
}

/* Posts the receives of the rows that this rank's queries see, and the sends of this rank's rows
 * that other ranks see. */
static int kv_post(struct key_gather *w, struct tensor own, struct err *e)
{
    struct sp *sp = w->sp;
    const int64_t n = sp->shard.seg_len;
    const struct tensor out = tensor_of(w->dtype, sp->buf.kv[0], own.rows, own.cols, own.cols);
    if (w->P == 1) return 0;
    block_copy(sp, out, own);
    for (int i = 1; i < w->P; i++)
        for (int g = 0; g < sp->shard.n_segs; g++) {
            const int to = (w->r + i) % w->P, from = (w->r - i + w->P) % w->P;
            const struct reach_rows gone = reach_rows(w->reach, &sp->shard, to, w->r, g);
            const struct reach_rows come = reach_rows(w->reach, &sp->shard, w->r, from, g);
            const struct tensor part = part_of(w, w->dtype, sp->buf.at[ATTN_ALL], from);
            const struct trade t = {
                PURPOSE_RING_KV,          CHANNEL_KV, to, from, rows_in(out, n, g, gone),
                rows_in(part, n, g, come)};
            zero_rest(w, tensor_sub(part, g * n, n, 0, part.cols), come);
            if (trade(w, &t, &w->in[i][g], e)) return -1;
        }
    return 0;
}

/* Waits for the rows of rank r-i, and makes *b from them. */
static int kv_wait(struct key_gather *w, int i, struct block *b, struct err *e)
{
    const int j = (w->r - i + w->P) % w->P;
    comm_where(w->sp->comm)->hop = i;
    for (int g = 0; g < w->sp->shard.n_segs; g++)
        if (comm_wait(w->sp->comm, &w->in[i][g], e)) return -1;
    struct tensor dkv = {0};
    if (w->sp->buf.at[ATTN_FULL]) dkv = part_of(w, DT_F32, w->sp->buf.at[ATTN_FULL], j);
    *b = block_of(w->sp, j, part_of(w, w->dtype, w->sp->buf.at[ATTN_ALL], j), dkv);
    return 0;
}

static int all_gather_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct key_gather w;
    gather_of(&w, sp, a->kv.dtype, a->reach);
    const struct block own = block_of(sp, w.r, a->kv, (struct tensor){0});
    const struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    if (kv_post(&w, a->kv, e)) return -1;
    block_fwd_start(sp, a);
    block_fwd(sp, a, &own, &view, false);
    for (int i = 1; i < w.P; i++) {
        struct block b;
        if (kv_wait(&w, i, &b, e)) return -1;
        block_fwd(sp, a, &b, &view, false);
        block_fwd(sp, a, &b, &view, true);
    }
    block_fwd(sp, a, &own, &view, true);
    block_fwd_finish(sp, a);
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}

/* ---- gradients to their owners --------------------------------------------------------------- */

static struct tensor home_of(const struct key_gather *w, int i)
{
    const int64_t n = kv_cols(w);
    return tensor_f32(w->sp->buf.dkv[i & 1], w->sp->shard.T, n, n);
}

/* Posts round i. It sends this rank's part of dKV_(r-i) to the owner of that block, and receives
 * rank r+i's part of dKV_r. */
static int home_post(struct key_gather *w, int i, struct err *e)
{
    struct sp *sp = w->sp;
    const int64_t n = sp->shard.seg_len;
    const int to = (w->r - i + w->P) % w->P, from = (w->r + i) % w->P;
    for (int g = 0; g < sp->shard.n_segs; g++) {
        const struct reach_rows gone = reach_rows(w->reach, &sp->shard, w->r, to, g);
        const struct reach_rows come = reach_rows(w->reach, &sp->shard, from, w->r, g);
        const struct trade t = {PURPOSE_RING_DKV,
                                CHANNEL_DKV,
                                to,
                                from,
                                rows_in(part_of(w, DT_F32, sp->buf.at[ATTN_FULL], to), n, g, gone),
                                rows_in(home_of(w, i), n, g, come)};
        if (trade(w, &t, &w->back[i & 1][g], e)) return -1;
    }
    return 0;
}

static int home_add(struct key_gather *w, int i, struct tensor dkv, struct err *e)
{
    struct sp *sp = w->sp;
    const int64_t n = sp->shard.seg_len;
    for (int g = 0; g < sp->shard.n_segs; g++) {
        const struct reach_rows come = reach_rows(w->reach, &sp->shard, (w->r + i) % w->P, w->r, g);
        if (comm_wait(sp->comm, &w->back[i & 1][g], e)) return -1;
        block_add(sp, rows_in(dkv, n, g, come), rows_in(home_of(w, i), n, g, come));
    }
    return 0;
}

static int bwd_direct(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    struct key_gather w;
    gather_of(&w, sp, a->kv.dtype, a->reach);
    const struct block own = block_of(sp, w.r, a->kv, a->dkv);
    const struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    if (kv_post(&w, a->kv, e)) return -1;
    block_bwd_start(sp, a);
    block_zero(sp, a->dkv);
    block_bwd(sp, a, &own, &view, false);
    block_bwd(sp, a, &own, &view, true);
    for (int i = 1; i < w.P; i++) {
        struct block b;
        if (kv_wait(&w, i, &b, e)) return -1;
        block_zero(sp, b.dkv);
        if (mutant_on(MUTANT_STALE_KV)) b.kv = a->kv;
        block_bwd(sp, a, &b, &view, false);
        block_bwd(sp, a, &b, &view, true);
        if (home_post(&w, i, e)) return -1;
        if (i > 1 && home_add(&w, i - 1, a->dkv, e)) return -1;
    }
    if (w.P > 1 && home_add(&w, w.P - 1, a->dkv, e)) return -1;
    sp_mutant_over_p(a->dq, w.P);
    sp_mutant_over_p(a->dkv, w.P);
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}

static int all_gather_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    return sp->rank_bits ? sp_rsa.attn_bwd(sp, a, e) : bwd_direct(sp, a, e);
}

const struct sp_ops sp_all_gather = {
    .attn_fwd = all_gather_fwd,
    .attn_bwd = all_gather_bwd,
    .attn_decode = sp_attn_decode,
};
