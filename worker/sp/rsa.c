/* Ring Self-Attention (2105.13120) in its blockwise form (2310.01889).
 *
 * Step i: rank r computes with the block of rank r-i, while that block already travels on to r+1.
 *
 *   KV     P-1 hops forward, P-1 hops backward. kv[0] is sent first and holds the own block; from
 *          then on kv[0] and kv[1] take turns: one is computed with and sent, one is arriving.
 *   dKV_j  meets KV_j at every rank, so it moves one hop after each step's computation:
 *            run    the owner's own part stays with it; a zeroed dKV_j sets out from rank j+1,
 *                   makes P-1 hops and is added to the own part at home
 *            ranks  it sets out from its owner with the own part and makes P hops; so its sum goes
 *                   over query segments in one order, whatever P is
 *          dkv[0] and dkv[1] take turns in the same way.
 *
 * Both directions of a hop are one ticket, posted before the computation it hides behind. */
#include <assert.h>
#include "worker/sp/block.h"

struct ring { /* one traversal */
    struct sp *sp;
    int P, r;
    struct comm_ticket kv, dkv;
    int dkv_at;          /* which of dkv[2] belongs to the block now visiting */
    enum dtype kv_dtype; /* keys and values travel as they are; their gradients always in fp32 */
};

static struct ring ring_of(struct sp *sp, enum dtype kv_dtype)
{
    assert(sp->rank_bits == sp->shard.rank_bits && (sp->comm || sp->shard.P == 1));
    return (struct ring){.sp = sp,
                         .P = sp->shard.P,
                         .r = sp->shard.r,
                         .kv = {-1},
                         .dkv = {-1},
                         .kv_dtype = kv_dtype};
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

/* Posts one hop: `from` goes to the next rank, `to` fills from the one before. */
static int hop_post(struct ring *g, enum comm_channel channel, struct tensor from, struct tensor to,
                    int hop, struct err *e)
{
    struct sp *sp = g->sp;
    const int64_t size = to.rows * to.cols * dtype_size(to.dtype);
    struct comm_xfer x = {
        .purpose = channel == CHANNEL_KV ? PURPOSE_RING_KV : PURPOSE_RING_DKV,
        .channel = channel,
        .send_to = (g->r + 1) % g->P,
        .recv_from = (g->r + g->P - 1) % g->P,
        .send = from.data,
        .recv = to.data,
        .send_size = size,
        .recv_size = size,
    };
    comm_where(sp->comm)->hop = hop;
    if (sp->be->ops->sync && sp->be->ops->sync(sp->be, e)) return -1;
    return comm_sendrecv(sp->comm, &x, channel == CHANNEL_KV ? &g->kv : &g->dkv, e);
}

/* The own block sets out. */
static int kv_start(struct ring *g, struct tensor own, struct err *e)
{
    if (g->P == 1) return 0;
    block_copy(g->sp, kv_buffer(g, 0), own);
    return hop_post(g, CHANNEL_KV, kv_buffer(g, 0), kv_buffer(g, 1), 1, e);
}

/* Step i's block has arrived; it travels on unless this was the last step. */
static int kv_next(struct ring *g, int i, struct err *e)
{
    if (comm_wait(g->sp->comm, &g->kv, e)) return -1;
    if (i == g->P - 1) return 0;
    return hop_post(g, CHANNEL_KV, kv_buffer(g, i & 1), kv_buffer(g, !(i & 1)), i + 1, e);
}

/* The block that is here at step i. Its keys lie in kv[i & 1]. */
static struct block visitor(const struct ring *g, int i, struct tensor dkv)
{
    int owner = (g->r - i + g->P) % g->P;
    return block_of(g->sp, owner, kv_buffer(g, i & 1), dkv);
}

static int rsa_attn_fwd(struct sp *sp, const struct sp_fwd_args *a, struct err *e)
{
    struct ring g = ring_of(sp, a->kv.dtype);
    struct block own = block_of(sp, g.r, a->kv, (struct tensor){0});
    struct block_view view = block_view(sp, a->lo, a->hi);
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

static int dkv_send(struct ring *g, int hop, struct err *e)
{
    int from = g->dkv_at;
    g->dkv_at = !from;
    return hop_post(g, CHANNEL_DKV, dkv_buffer(g, from), dkv_buffer(g, !from), hop, e);
}

/* One step with a visiting block: its gradient arrives (or is born here, in "run" at step 1), is
 * added to and sent on. */
static int bwd_step(struct ring *g, const struct sp_bwd_args *a, const struct block_view *view,
                    int i, struct err *e)
{
    struct sp *sp = g->sp;
    if (kv_next(g, i, e)) return -1;
    if (i == 1 && !sp->rank_bits)
        block_zero(sp, dkv_buffer(g, g->dkv_at));
    else if (comm_wait(sp->comm, &g->dkv, e))
        return -1;
    struct block b = visitor(g, i, dkv_buffer(g, g->dkv_at));
#ifdef SEQD_MUTANTS
    if (sp->mutant == MUTANT_STALE_KV) b.kv = a->kv;
#endif
    block_bwd(sp, a, &b, view, false);
    block_bwd(sp, a, &b, view, true);
    return dkv_send(g, i + 1, e);
}

#ifdef SEQD_MUTANTS
static void scale_tensor(struct tensor t, float by)
{
    for (int64_t i = 0; i < t.rows; i++)
        for (int64_t j = 0; j < t.cols; j++) ((float *)t.data)[i * t.ld + j] *= by;
}
#endif

static int rsa_attn_bwd(struct sp *sp, const struct sp_bwd_args *a, struct err *e)
{
    struct ring g = ring_of(sp, a->kv.dtype);
    struct block own = block_of(sp, g.r, a->kv, a->dkv);
    struct block_view view = block_view(sp, a->lo, a->hi);
    bool sets_out = sp->rank_bits && g.P > 1; /* the own part of dKV travels, too */
    if (kv_start(&g, a->kv, e)) return -1;
    block_bwd_start(sp, a);
    if (sets_out) own.dkv = dkv_buffer(&g, 0);
    block_zero(sp, own.dkv);
    block_bwd(sp, a, &own, &view, false);
    if (sets_out && dkv_send(&g, 1, e)) return -1;
    for (int i = 1; i < g.P; i++)
        if (bwd_step(&g, a, &view, i, e)) return -1;
    if (g.P > 1) {
        if (comm_wait(sp->comm, &g.dkv, e)) return -1;
        struct tensor home = dkv_buffer(&g, g.dkv_at);
        if (sets_out)
            block_copy(sp, a->dkv, home);
        else
            block_add(sp, a->dkv, home);
    }
    own.dkv = a->dkv;
    block_bwd(sp, a, &own, &view, true);
#ifdef SEQD_MUTANTS
    if (sp->mutant == MUTANT_GRAD_OVER_P) {
        scale_tensor(a->dq, 1.0f / (float)g.P);
        scale_tensor(a->dkv, 1.0f / (float)g.P);
    }
#endif
    if (sp->comm) comm_where(sp->comm)->hop = -1;
    return 0;
}

const struct sp_ops sp_rsa = {
    .name = "rsa",
    .attn_fwd = rsa_attn_fwd,
    .attn_bwd = rsa_attn_bwd,
    .attn_decode = sp_attn_decode,
};
