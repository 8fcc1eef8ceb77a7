/* Ring Self-Attention as it was published (2105.13120): softmax over whole rows of scores.
 *
 *   forward   keys travel round the ring in P-1 hops, and give X[:, j] = scale Q K_j' of every j.
 *             A is the softmax of whole rows of X, which needs no merge, and A~ is A after
 *             dropout. Then values travel, and give O = sum over j of A~[:, j] V_j
 *   backward  values travel, and give dA~[:, j] = dO V_j' and dX = A (dA - rowsum(dO O)). Then
 *             keys travel, and give dQ = sum over j of dX[:, j] K_j. Each rank has a full-length
 *             part of the gradients of all keys and values, dV = A~' dO and dK = dX' Q. The parts
 *             are summed over ranks:
 *               two_pass          by an all-reduce of the full length. Each rank keeps its rows
 *               two_pass_scatter  by a reduce-scatter, which gives the same sums and sends 2 (P-1)
 *                                 T Hk D elements less
 *
 * A is kept for the backward as [H, T, P*T] fp32. Its columns are in global order, because
 * segments cover [0, P*T) without overlap in every layout. Backward computes dropout's mask again.
 * Pairs of segments in which no query sees a key are not computed. The softmax sets them to
 * zero. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/block.h"
#include "worker/sp/over_p.h"

enum half { KEYS, VALUES };

struct two_pass { /* one call */
    struct sp *sp;
    struct tensor q, kv, o, d_o, dq;
    float *scores; /* [H, T, columns] */
    int64_t columns;
    struct block_view view;
    struct comm_ticket ticket;
};

static struct two_pass pass_of(struct sp *sp, struct tensor q, struct tensor kv, void *kept)
{
    assert(q.dtype == DT_F32 && kept && !sp->rank_bits && !(sp->shape.cap > 0) &&
           !sp->shape.sink.data);
    return (struct two_pass){.sp = sp,
                             .q = q,
                             .kv = kv,
                             .scores = kept,
                             .columns = sp->shard.P * sp->shard.T,
                             .ticket = {-1}};
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Returns the tile of head h that has the rows of query segment c and the columns of the key
 * segment at `pos`. */
static struct tensor tile_of(const struct two_pass *w, int64_t h, int c, int64_t pos)
{
    const struct shard *sh = &w->sp->shard;
    const struct tensor rows = tensor_f32(w->scores + h * sh->T * w->columns, sh->T, w->columns,
                                          w->columns);
    return tensor_sub(rows, c * sh->seg_len, sh->seg_len, pos, sh->seg_len);
}

/* Returns segment c of head h of t [T, H*D]. */
static struct tensor head_of(const struct two_pass *w, struct tensor t, int64_t h, int c)
{
    const int64_t n = w->sp->shard.seg_len, D = w->sp->shape.head_dim;
    return tensor_sub(t, c * n, n, h * D, D);
}

static int64_t kv_head(const struct two_pass *w, int64_t h)
{
    return h / (w->sp->shape.n_heads / w->sp->shape.n_kv_heads);
}

static struct tensor own_half(const struct two_pass *w, enum half half)
{
    const int64_t n = w->sp->shape.n_kv_heads * w->sp->shape.head_dim;
    return tensor_sub(w->kv, 0, w->kv.rows, half == VALUES ? n : 0, n);
}

/* Returns rank `owner`'s rows of the full-length gradient of keys or of values. The gradient's
 * rows are in rank order. */
static struct tensor full_of(const struct two_pass *w, int owner, enum half half)
{
    const int64_t n = w->sp->shape.n_kv_heads * w->sp->shape.head_dim, T = w->sp->shard.T;
    const struct tensor all = tensor_f32(w->sp->buf.at[ATTN_FULL], w->columns, 2 * n, 2 * n);
    return tensor_sub(all, owner * T, T, half == VALUES ? n : 0, n);
}

/* Returns the buffer for one dense tile of one head. */
static struct tensor room_of(const struct two_pass *w)
{
    const int64_t n = w->sp->shard.seg_len;
    return tensor_f32(w->sp->buf.at[ATTN_TILE], n, n, n);
}

/* ---- pairs of segments ----------------------------------------------------------------------- */

/* A pair of query segment c and a rank's key segment g, in which some query sees a key. block has
 * the rank's keys or values, or the gradient of the keys or of the values. */
struct score_pair {
    int c, g;
    int64_t pos; /* position of the key segment */
    struct tensor block;
};
typedef void pair_fn(struct two_pass *w, const struct score_pair *p, int64_t h);

static void each_pair(struct two_pass *w, int owner, struct tensor block, pair_fn *f)
{
    const struct block b = block_of(w->sp, owner, block, block);
    const struct shard *sh = &w->sp->shard;
    for (int c = 0; c < sh->n_segs; c++)
        for (int g = 0; g < sh->n_segs; g++) {
            const struct score_pair p = {c, g, b.pos[g], block};
            if (!block_pair_seen(w->sp, &b, &w->view, c, g)) continue;
            for (int64_t h = 0; h < w->sp->shape.n_heads; h++) f(w, &p, h);
        }
}

static void scale_by(struct two_pass *w, struct tensor to, struct tensor from, float scale)
{
    w->sp->be->ops->mix(w->sp->be, &(struct mix_args){.a = from, .y = to, .alpha = scale});
}

static void product(struct two_pass *w, const struct gemm_args *a)
{
    w->sp->be->ops->gemm(w->sp->be, a);
}

/* Applies dropout's mask to a tile of head h in place. */
static void drop_tile(struct two_pass *w, const struct score_pair *p, int64_t h, struct tensor tile)
{
    struct attn_drop drop;
    if (!block_drop(w->sp, p->c, &drop)) return;
    w->sp->be->ops->dropout(
        w->sp->be, &(struct dropout_args){.x = tile, .drop = &drop, .col_pos = p->pos, .head = h});
}

/* Returns A~ of a pair, which is A after dropout, or A itself if there is no dropout. */
static struct tensor dropped(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    const struct tensor a = tile_of(w, h, p->c, p->pos), room = room_of(w);
    if (w->sp->drop.rate <= 0) return a;
    scale_by(w, room, a, 1);
    drop_tile(w, p, h, room);
    return room;
}

static void score_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    const struct tensor x = tile_of(w, h, p->c, p->pos);
    product(w, &(struct gemm_args){.a = head_of(w, w->q, h, p->c),
                                   .b = head_of(w, p->block, kv_head(w, h), p->g),
                                   .c = x,
                                   .trans_b = true});
    scale_by(w, x, x, block_scale(w->sp));
}

static void output_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    product(w, &(struct gemm_args){.a = dropped(w, p, h),
                                   .b = head_of(w, p->block, kv_head(w, h), p->g),
                                   .c = head_of(w, w->o, h, p->c),
                                   .accumulate = true});
}

/* Adds A~' dO to dV. It must run before score_grad_pair(), which writes dX over A. */
static void value_grad_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    product(w, &(struct gemm_args){.a = dropped(w, p, h),
                                   .b = head_of(w, w->d_o, h, p->c),
                                   .c = head_of(w, p->block, kv_head(w, h), p->g),
                                   .trans_a = true,
                                   .accumulate = true});
}

/* Writes scale dX over A. */
static void score_grad_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    const struct tensor a = tile_of(w, h, p->c, p->pos), dp = room_of(w);
    const struct shard *sh = &w->sp->shard;
    product(w, &(struct gemm_args){.a = head_of(w, w->d_o, h, p->c),
                                   .b = head_of(w, p->block, kv_head(w, h), p->g),
                                   .c = dp,
                                   .trans_b = true});
    drop_tile(w, p, h, dp);
    w->sp->be->ops->softmax_bwd(
        w->sp->be,
        &(struct softmax_bwd_args){
            .p = a, .dp = dp, .delta = w->sp->buf.delta + h * sh->T + p->c * sh->seg_len});
    scale_by(w, a, dp, block_scale(w->sp));
}

static void query_grad_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    product(w, &(struct gemm_args){.a = tile_of(w, h, p->c, p->pos),
                                   .b = head_of(w, p->block, kv_head(w, h), p->g),
                                   .c = head_of(w, w->dq, h, p->c),
                                   .accumulate = true});
}

static void key_grad_pair(struct two_pass *w, const struct score_pair *p, int64_t h)
{
    product(w, &(struct gemm_args){.a = tile_of(w, h, p->c, p->pos),
                                   .b = head_of(w, w->q, h, p->c),
                                   .c = head_of(w, p->block, kv_head(w, h), p->g),
                                   .trans_a = true,
                                   .accumulate = true});
}

/* ---- the ring -------------------------------------------------------------------------------- */

static struct tensor visiting(const struct two_pass *w, int i)
{
    const int64_t n = w->sp->shape.n_kv_heads * w->sp->shape.head_dim;
    return tensor_f32(w->sp->buf.kv[i & 1], w->sp->shard.T, n, n);
}

/* Posts hop i, which sends the block of step i - 1 to the next rank and receives the block of step
 * i. */
static int hop_post(struct two_pass *w, int i, struct err *e)
{
    struct sp *sp = w->sp;
    const int P = sp->shard.P, r = sp->shard.r;
    const struct tensor from = visiting(w, i - 1), to = visiting(w, i);
    const struct comm_xfer x = {.purpose = PURPOSE_RING_KV,
                                .channel = CHANNEL_KV,
                                .send_to = (r + 1) % P,
                                .recv_from = (r + P - 1) % P,
                                .send = from.data,
                                .recv = to.data,
                                .send_size = from.rows * from.cols * 4,
                                .recv_size = to.rows * to.cols * 4};
    comm_where(sp->comm)->hop = i;
    return comm_sendrecv(sp->comm, &x, &w->ticket, e);
}

/* Passes the keys or the values of all ranks round the ring. Calls f for this rank's block, and
 * then for the blocks of r-1, r-2, ... */
static int go_round(struct two_pass *w, enum half half, pair_fn *f, struct err *e)
{
    const int P = w->sp->shard.P, r = w->sp->shard.r;
    if (P > 1) {
        block_copy(w->sp, visiting(w, 0), own_half(w, half));
        if (hop_post(w, 1, e)) return -1;
    }
    each_pair(w, r, own_half(w, half), f);
    for (int i = 1; i < P; i++) {
        if (comm_wait(w->sp->comm, &w->ticket, e)) return -1;
        if (i < P - 1 && hop_post(w, i + 1, e)) return -1;
        struct tensor block = visiting(w, i);
        if (mutant_on(MUTANT_STALE_KV) && f == query_grad_pair) block = own_half(w, half);
        each_pair(w, (r - i + P) % P, block, f);
    }
    if (w->sp->comm) comm_where(w->sp->comm)->hop = -1;
    return 0;
}

/* ---- forward and backward -------------------------------------------------------------------- */

static void softmax(struct two_pass *w, const struct sp_fwd_args *a)
{
    const int64_t T = w->sp->shard.T, N = w->columns;
    for (int64_t h = 0; h < w->sp->shape.n_heads; h++)
        w->sp->be->ops->softmax_fwd(
            w->sp->be, &(struct softmax_fwd_args){.x = tensor_f32(w->scores + h * T * N, T, N, N),
                                                  .lo = a->lo,
                                                  .hi = a->hi,
                                                  .lse = a->lse + h * T});
}

static int two_pass_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct two_pass w = pass_of(sp, a->q, a->kv, a->kept);
    w.o = a->o;
    w.view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    if (go_round(&w, KEYS, score_pair, e)) return -1;
    softmax(&w, a);
    block_zero(sp, a->o);
    return go_round(&w, VALUES, output_pair, e);
}

/* Sums the full-length gradients over ranks. Rows [w T, (w + 1) T) belong to rank w. */
static int sum_full(struct two_pass *w, bool all_reduce, struct err *e)
{
    struct sp *sp = w->sp;
    const int64_t part = sp->shard.T * 2 * sp->shape.n_kv_heads * sp->shape.head_dim;
    int64_t cut[JOB_MAX_RANKS + 1];
    if (sp->shard.P == 1) return 0;
    for (int r = 0; r <= sp->shard.P; r++) cut[r] = r * part;
    if (comm_reduce_scatter(sp->comm, PURPOSE_RING_DKV, sp->buf.at[ATTN_FULL], cut, sp->buf.bounce,
                            e))
        return -1;
    return all_reduce ? comm_all_gather(sp->comm, PURPOSE_RING_DKV,
                                        (float *)sp->buf.at[ATTN_FULL] + cut[sp->shard.r],
                                        sp->buf.at[ATTN_FULL], cut, 4, sp->buf.bounce, e)
                      : 0;
}

static int two_pass_bwd(struct sp *sp, const struct sp_bwd_args *a, bool all_reduce, struct err *e)
{
    struct two_pass w = pass_of(sp, a->q, a->kv, a->kept);
    w.d_o = a->d_o, w.dq = a->dq;
    w.view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    block_bwd_start(sp, a);
    sp->be->ops->fill(sp->be, sp->buf.at[ATTN_FULL], w.columns * a->dkv.cols, 0);
    for (int j = 0; j < sp->shard.P; j++) each_pair(&w, j, full_of(&w, j, VALUES), value_grad_pair);
    if (go_round(&w, VALUES, score_grad_pair, e)) return -1;
    if (go_round(&w, KEYS, query_grad_pair, e)) return -1;
    for (int j = 0; j < sp->shard.P; j++) each_pair(&w, j, full_of(&w, j, KEYS), key_grad_pair);
    if (sum_full(&w, all_reduce, e)) return -1;
    const struct tensor own = full_of(&w, sp->shard.r, KEYS);
    block_copy(sp, a->dkv, tensor_of(DT_F32, own.data, own.rows, a->dkv.cols, a->dkv.cols));
    sp_mutant_over_p(a->dq, sp->shard.P);
    sp_mutant_over_p(a->dkv, sp->shard.P);
    return 0;
}

static int bwd_all_reduce(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    return two_pass_bwd(sp, a, true, e);
}

static int bwd_scatter(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    return two_pass_bwd(sp, a, false, e);
}

const struct sp_ops sp_two_pass = {
    .attn_fwd = two_pass_fwd,
    .attn_bwd = bwd_all_reduce,
    .attn_decode = sp_attn_decode,
};

const struct sp_ops sp_two_pass_scatter = {
    .attn_fwd = two_pass_fwd,
    .attn_bwd = bwd_scatter,
    .attn_decode = sp_attn_decode,
};
