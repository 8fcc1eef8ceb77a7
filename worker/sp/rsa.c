/* Ring Self-Attention (2105.13120) in its blockwise form (2310.01889).
 *
 * In step i rank r computes with the block of rank r-i, while it sends that block to r+1.
 *
 *   KV     makes P-1 hops in forward and P-1 hops in backward. kv[0] has the rank's own block,
 *          which is sent first. Then kv[0] and kv[1] are used alternately. One of them is used in
 *          the computation and sent, while the other receives.
 *   dKV_j  is needed together with KV_j at every rank, so it moves one hop after each step.
 *            run    dKV_j starts as zeros at rank j+1 and makes P-1 hops to its owner. The owner
 *                   then adds the part of dKV_j that the owner has computed
 *            ranks  dKV_j starts at its owner with the owner's part and makes P hops, so that the
 *                   order of its sum over query segments does not depend on P
 *          dkv[0] and dkv[1] are used alternately, as kv[0] and kv[1] are.
 *
 * The send and the receive of a hop are one ticket. It is posted before the computation with which
 * it overlaps.
 *
 * With packed documents, or a short window, a rank does not get blocks whose keys its queries
 * cannot see (worker/plan/reach.h). KV_j travels up to the last rank that needs it. In "run",
 * dKV_j starts at the first rank that needs KV_j, and travels from there to its owner. A block
 * that no other rank needs is not sent. */
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/sp/block.h"
#include "worker/sp/over_p.h"

struct ring { /* one traversal */
    struct sp *sp;
    int P, r;
    struct comm_ticket kv, dkv;
    int dkv_at; /* index in dkv[2] of the current block's gradient */
    const struct reach_map *reach;
    /* dtype in which keys and values are sent; their gradients are always sent in fp32 */
    enum dtype kv_dtype;
};

static struct ring ring_of(struct sp *sp, enum dtype kv_dtype, const struct reach_map *reach)
{
    assert(sp->rank_bits == sp->shard.rank_bits && (sp->comm || sp->shard.P == 1));
    return (struct ring){.sp = sp,
                         .P = sp->shard.P,
                         .r = sp->shard.r,
                         .kv = {-1},
                         .dkv = {-1},
                         .kv_dtype = kv_dtype,
                         .reach = reach};
}

static struct tensor buffer(const struct sp *sp, enum dtype dtype, void *data)
{
    int64_t cols = 2 * sp->shape.n_kv_heads * sp->shape.head_dim;
    return tensor_of(dtype, data, sp->shard.T, cols, cols);
}

static struct tensor kv_buffer(const struct ring *g, int which)
{
    return buffer(g->sp, g->kv_dtype, g->sp->buf.kv[which]);
}

static struct tensor dkv_buffer(const struct ring *g, int which)
{
    return buffer(g->sp, DT_F32, g->sp->buf.dkv[which]);
}

/* Returns rank r-i, the owner of the block that this rank uses in step i. */
static int owner_at(const struct ring *g, int i)
{
    return (g->r - i + g->P) % g->P;
}

/* Tells whether KV_j makes hop i, from rank j+i-1 to rank j+i. */
static bool kv_moves(const struct ring *g, int j, int i)
{
    return i <= reach_far(g->reach, &g->sp->shard, j);
}

/* Tells whether dKV_j leaves rank j+i after step i. */
static bool dkv_moves(const struct ring *g, int j, int i)
{
    const int near = reach_near(g->reach, &g->sp->shard, j);
    return near && (g->sp->rank_bits || near <= i);
}

/* A hop. If `sends` is set, `from` is sent to the next rank; if `receives` is set, `to` is
 * received from the previous rank. */
struct hop {
    enum comm_channel channel;
    int number;
    struct tensor from, to;
    bool sends, receives;
};

static int hop_post(struct ring *g, const struct hop *h, struct err *e)
{
    struct sp *sp = g->sp;
    const struct tensor from = h->from, to = h->to;
    const int64_t size = to.rows * to.cols * dtype_size(to.dtype);
    struct comm_xfer x = {
        .purpose = h->channel == CHANNEL_KV ? PURPOSE_RING_KV : PURPOSE_RING_DKV,
        .channel = h->channel,
        .send_to = h->sends ? (g->r + 1) % g->P : -1,
        .recv_from = h->receives ? (g->r + g->P - 1) % g->P : -1,
        .send = from.data,
        .recv = to.data,
        .send_size = h->sends ? size : 0,
        .recv_size = h->receives ? size : 0,
    };
    if (!h->sends && !h->receives) return 0;
    comm_where(sp->comm)->hop = h->number;
    return comm_sendrecv(sp->comm, &x, h->channel == CHANNEL_KV ? &g->kv : &g->dkv, e);
}

/* Sends the block of step i - 1 to the next rank and receives the block of step i. */
static int kv_post(struct ring *g, int i, struct err *e)
{
    const struct hop h = {CHANNEL_KV,
                          i,
                          kv_buffer(g, !(i & 1)),
                          kv_buffer(g, i & 1),
                          kv_moves(g, owner_at(g, i - 1), i),
                          kv_moves(g, owner_at(g, i), i)};
    return hop_post(g, &h, e);
}

/* Copies this rank's block into the segment and posts the block's first hop. */
static int kv_start(struct ring *g, struct tensor own, struct err *e)
{
    if (g->P == 1) return 0;
    block_copy(g->sp, kv_buffer(g, 0), own);
    return kv_post(g, 1, e);
}

/* Waits for the block of step i and posts the block's next hop, unless this is the last step. */
static int kv_next(struct ring *g, int i, struct err *e)
{
    if (comm_wait(g->sp->comm, &g->kv, e)) return -1;
    return i == g->P - 1 ? 0 : kv_post(g, i + 1, e);
}

/* Returns the block that this rank uses in step i. Its keys and values are in kv[i & 1]. */
static struct block visitor(const struct ring *g, int i, struct tensor dkv)
{
    return block_of(g->sp, owner_at(g, i), kv_buffer(g, i & 1), dkv);
}

static int rsa_attn_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct ring g = ring_of(sp, a->kv.dtype, a->reach);
    struct block own = block_of(sp, g.r, a->kv, (struct tensor){0});
    struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    if (kv_start(&g, a->kv, e)) return -1;
    block_fwd_start(sp, a);
    block_fwd(sp, a, &own, &view, false);
    for (int i = 1; i < g.P; i++) {
        if (kv_next(&g, i, e)) return -1;
        struct block b = visitor(&g, i, (struct tensor){0});
        block_fwd(sp, a, &b, &view, false);
        block_fwd(sp, a, &b, &view, true);
    }
    block_fwd(sp, a, &own, &view, true);
    block_fwd_finish(sp, a);
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}

/* Sends the gradient of step i's block to the next rank and receives the gradient of step i + 1's
 * block. */
static int dkv_send(struct ring *g, int i, struct err *e)
{
    int from = g->dkv_at;
    const struct hop h = {CHANNEL_DKV,
                          i + 1,
                          dkv_buffer(g, from),
                          dkv_buffer(g, !from),
                          dkv_moves(g, owner_at(g, i), i),
                          dkv_moves(g, owner_at(g, i + 1), i)};
    g->dkv_at = !from;
    if (mutant_on(MUTANT_SAME_PEER) && g->P == 2) g->dkv_at = from;
    return hop_post(g, &h, e);
}

/* Computes one step with another rank's block. Waits for the block's keys and gradient, adds to
 * the gradient and sends the gradient on. In "run", the gradient begins as zeros at the first rank
 * that needs the block. */
static int bwd_step(struct ring *g, const struct sp_bwd_args *a, const struct block_view *view,
                    int i, struct err *e)
{
    struct sp *sp = g->sp;
    if (kv_next(g, i, e)) return -1;
    if (comm_wait(sp->comm, &g->dkv, e)) return -1;
    const int j = owner_at(g, i);
    if (dkv_moves(g, j, i) && !dkv_moves(g, j, i - 1)) block_zero(sp, dkv_buffer(g, g->dkv_at));
    struct block b = visitor(g, i, dkv_buffer(g, g->dkv_at));
    if (mutant_on(MUTANT_STALE_KV)) b.kv = a->kv;
    block_bwd(sp, a, &b, view, false);
    block_bwd(sp, a, &b, view, true);
    return dkv_send(g, i, e);
}

static int rsa_attn_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    struct ring g = ring_of(sp, a->kv.dtype, a->reach);
    struct block own = block_of(sp, g.r, a->kv, a->dkv);
    struct block_view view = block_view(sp, block_seen(sp, a->lo, a->hi, a->seen));
    /* Under "ranks" this rank's own part of dKV travels too, and begins in the buffer that is
     * sent. */
    bool sets_out = sp->rank_bits && g.P > 1 && dkv_moves(&g, g.r, 0);
    if (kv_start(&g, a->kv, e)) return -1;
    block_bwd_start(sp, a);
    if (sets_out) own.dkv = dkv_buffer(&g, 0);
    block_zero(sp, own.dkv);
    block_bwd(sp, a, &own, &view, false);
    if (sp->rank_bits && g.P > 1 && dkv_send(&g, 0, e)) return -1;
    for (int i = 1; i < g.P; i++)
        if (bwd_step(&g, a, &view, i, e)) return -1;
    if (g.P > 1) {
        if (comm_wait(sp->comm, &g.dkv, e)) return -1;
        struct tensor home = dkv_buffer(&g, g.dkv_at);
        if (sets_out)
            block_copy(sp, a->dkv, home);
        else if (dkv_moves(&g, g.r, g.P - 1))
            block_add(sp, a->dkv, home);
    }
    own.dkv = a->dkv;
    block_bwd(sp, a, &own, &view, true);
    sp_mutant_over_p(a->dq, g.P);
    sp_mutant_over_p(a->dkv, g.P);
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}

const struct sp_ops sp_rsa = {
    .attn_fwd = rsa_attn_fwd,
    .attn_bwd = rsa_attn_bwd,
    .attn_decode = sp_attn_decode,
};

const struct sp_row sp_row_rsa = {.form = {[FORM_BLOCKWISE] = &sp_rsa,
                                           [FORM_ALL_GATHER] = &sp_all_gather,
                                           [FORM_TWO_PASS] = &sp_two_pass,
                                           [FORM_TWO_PASS_SCATTER] = &sp_two_pass_scatter}};
