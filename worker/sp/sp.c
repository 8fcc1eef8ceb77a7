/* sp.c: the table of strategies, the placing of buffers, and decoding. Decoding gathers the ranks'
 * partial results for a token and merges them in rank order. */
#include "worker/sp/sp.h"

#include <math.h>
#include "api/core/assert.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"

#define ROW(id, name) extern const struct sp_row sp_row_##name;
STRATEGIES(ROW)
#undef ROW

/* No job can name the strategies tp and tp_sp (worker/plan/strategy_tp.c). */
const struct sp_row sp_row_tp = {.form = {NULL}}, sp_row_tp_sp = {.form = {NULL}};

static const struct sp_row *const rows[STRATEGY_N] = {
#define ROW(id, name) [STRATEGY_##id] = &sp_row_##name,
    STRATEGIES(ROW)
#undef ROW
};

const struct sp_ops *sp_find(enum strategy_id id, enum form_id form)
{
    const struct sp_row *row = id >= 0 && id < STRATEGY_N ? rows[id] : NULL;
    if (!row) return NULL;
    const struct sp_ops *ops = form >= 0 && form < FORM_N ? row->form[form] : NULL;
    return ops ? ops : row->form[FORM_BLOCKWISE];
}

void sp_place(struct sp_buffers *b, const struct attention_need *need, void *arena, void *segment)
{
    for (int i = 0; i < ATTN_BUFFER_N; i++) {
        char *base = need->at[i].in_segment ? segment : arena;
        b->at[i] = need->at[i].size ? base + need->at[i].offset : NULL;
    }
    if (b->at[ATTN_KV0]) b->kv[0] = b->at[ATTN_KV0];
    if (b->at[ATTN_KV1]) b->kv[1] = b->at[ATTN_KV1];
    if (b->at[ATTN_HOME]) {
        b->dkv[0] = b->at[ATTN_HOME];
        b->dkv[1] = b->dkv[0] + need->at[ATTN_HOME].size / 8;
    }
}

int sp_open_groups(struct sp *sp, struct err *e)
{
    const struct shard *sh = &sp->shard;
    return comm_view(sp->comm, axes_rank_block(sh->r, sh->u), &sp->group, e) ||
                   comm_view(sp->comm, axes_rank_across(sh->r, sh->u, sh->P), &sp->ring, e)
               ? -1
               : 0;
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* A rank's partial result for a token. It is attention over this rank's keys, with the
 * log-sum-exp. buf.part has the results of all ranks for a pass of n tokens, and workspace.
 * Merging multiplies each rank's result by a weight. The weights are the softmax of the ranks'
 * log-sum-exps. The table of weights has room for one token and is used for each token in
 * order. */
struct partial {
    float *o, *lse; /* [H*D] and [H], which follow each other in memory */
};

struct merging {
    /* [P, n*H*(D+1)]: a row for each rank, with the rank's results token after token */
    struct tensor all;
    struct tensor weights; /* [H, P] */
    int64_t *one;          /* [1]: room for a number that is uploaded from the host */
    int64_t *lo, *hi;      /* [H] */
};

static int64_t partial_size(const struct sp *sp)
{
    return sp->shape.n_heads * (sp->shape.head_dim + 1);
}

static struct merging merging_of(const struct sp *sp, int64_t n)
{
    const int64_t P = sp->shard.P, H = sp->shape.n_heads, all = n * partial_size(sp);
    float *part = sp->buf.part;
    struct merging m = {.all = tensor_f32(part, P, all, all)};
    m.weights = tensor_f32(part + P * all, H, P, P);
    m.one = (int64_t *)((char *)part + mem_round(P * (all + H) * 4, 8));
    m.lo = m.one + 1;
    m.hi = m.lo + H;
    return m;
}

/* Returns the partial results of `rank`, for all tokens. */
static float *rank_part(const struct merging *m, int rank)
{
    return (float *)m->all.data + rank * m->all.ld;
}

/* Returns the place of this rank's result for token i. */
static struct partial own_part(const struct sp *sp, const struct merging *m, int64_t i)
{
    float *o = rank_part(m, sp->shard.r) + i * partial_size(sp);
    return (struct partial){o, o + sp->shape.n_heads * sp->shape.head_dim};
}

/* Sets to[0] to to[n - 1] to x, on the device. */
static void numbers(struct sp *sp, const struct merging *m, int64_t *to, int64_t n, int64_t x)
{
    const struct permute_args a = {
        .dst = to, .src = m->one, .n = {1, 1, n}, .dst_stride = {0, 0, sizeof x}, .size = sizeof x};
    sp->be->ops->upload(sp->be, m->one, &x, sizeof x);
    sp->be->ops->permute(sp->be, &a);
}

/* Starts a result before the first key. Only rank 0 adds the sink, even if rank 0 has no keys. */
static void decode_start(struct sp *sp, const struct partial *own)
{
    const struct sp_attn_shape *s = &sp->shape;
    sp->be->ops->fill(sp->be, own->o, s->n_heads * s->head_dim, 0);
    if (s->sink.data && (sp->shard.r == 0 || mutant_on(MUTANT_SINK_EACH))) {
        sp->be->ops->attn_sink_fwd(sp->be, &(struct attn_sink_fwd_args){.m = own->lse,
                                                                        .l = sp->buf.m,
                                                                        .ml_ld = 1,
                                                                        .rows = 1,
                                                                        .n_heads = s->n_heads,
                                                                        .sink = s->sink});
        return;
    }
    sp->be->ops->fill(sp->be, own->lse, s->n_heads, -INFINITY);
    sp->be->ops->fill(sp->be, sp->buf.m, s->n_heads, 0);
}

/* Computes attention of token i to this rank's keys. All these keys are before the token, so the
 * token sees every key. */
static void decode_own(struct sp *sp, const struct sp_decode_args *a, const struct merging *m,
                       int64_t i)
{
    const struct sp_attn_shape *s = &sp->shape;
    const int64_t width = s->n_heads * s->head_dim;
    const struct partial own = own_part(sp, m, i);
    const struct tensor o = tensor_f32(own.o, 1, width, width);
    decode_start(sp, &own);
    if (!a->kv[i].rows && !s->sink.data) return;
    numbers(sp, m, m->lo, 1, 0);
    numbers(sp, m, m->hi, 1, a->kv[i].rows);
    sp->be->ops->attn_fwd(sp->be, &(struct attn_fwd_args){.q = tensor_sub(a->q, i, 1, 0, width),
                                                          .kv = a->kv[i],
                                                          .o = o,
                                                          .m = own.lse,
                                                          .l = sp->buf.m, /* [H, T], unused in
                                                                           * decoding */
                                                          .ml_ld = 1,
                                                          .lo = m->lo,
                                                          .hi = m->hi,
                                                          .kv_pos = 0,
                                                          .n_heads = s->n_heads,
                                                          .n_kv_heads = s->n_kv_heads,
                                                          .head_dim = s->head_dim,
                                                          .scale = s->scale,
                                                          .cap = s->cap});
    sp->be->ops->attn_finish(sp->be, &(struct attn_finish_args){.o = o,
                                                                .out = o,
                                                                .m = own.lse,
                                                                .l = sp->buf.m,
                                                                .ml_ld = 1,
                                                                .n_heads = s->n_heads,
                                                                .head_dim = s->head_dim});
}

/* Gathers the results of all ranks for all tokens, in one message to each other rank. */
static int decode_gather(struct sp *sp, const struct merging *m, struct err *e)
{
    const int P = sp->shard.P, r = sp->shard.r;
    const int64_t size = m->all.cols * 4;
    struct comm_ticket t[JOB_MAX_RANKS];
    if (comm_batch_begin(sp->comm, e)) return -1;
    for (int k = 1; k < P; k++) {
        const int to = (r + k) % P, from = (r - k + P) % P;
        struct comm_xfer x = {.purpose = PURPOSE_DECODE,
                              .channel = CHANNEL_COLL,
                              .send_to = to,
                              .recv_from = from,
                              .send = rank_part(m, r),
                              .recv = rank_part(m, from),
                              .send_size = size,
                              .recv_size = size};
        if (comm_sendrecv(sp->comm, &x, &t[k], e)) return -1;
    }
    if (comm_batch_end(sp->comm, e)) return -1;
    for (int k = 1; k < P; k++)
        if (comm_wait(sp->comm, &t[k], e)) return -1;
    return 0;
}

/* Computes the weights of the ranks, which are the softmax of their lse. A rank without keys has
 * lse -inf and weight 0. */
static void decode_weigh(struct sp *sp, const struct merging *m, struct tensor all)
{
    const int64_t P = sp->shard.P, H = sp->shape.n_heads, D = sp->shape.head_dim;
    const struct permute_args turned = {.dst = m->weights.data,
                                        .src = (float *)all.data + H * D,
                                        .n = {1, H, P},
                                        .dst_stride = {0, P * 4, 4},
                                        .src_stride = {0, 4, all.ld * 4},
                                        .size = 4};
    sp->be->ops->permute(sp->be, &turned);
    numbers(sp, m, m->lo, H, 0);
    numbers(sp, m, m->hi, H, P);
    sp->be->ops->softmax_fwd(sp->be,
                             &(struct softmax_fwd_args){.x = m->weights, .lo = m->lo, .hi = m->hi});
}

/* Sums o of token i in rank order. So all ranks compute equal bits, which do not depend on the
 * tokens other than i. */
static void decode_merge(struct sp *sp, const struct merging *m, struct tensor o, int64_t i)
{
    const int64_t H = sp->shape.n_heads, D = sp->shape.head_dim, size = partial_size(sp);
    const struct tensor all = tensor_sub(m->all, 0, sp->shard.P, i * size, size);
    decode_weigh(sp, m, all);
    for (int64_t h = 0; h < H; h++)
        sp->be->ops->gemm(sp->be,
                          &(struct gemm_args){.a = tensor_sub(m->weights, h, 1, 0, sp->shard.P),
                                              .b = tensor_sub(all, 0, sp->shard.P, h * D, D),
                                              .c = tensor_sub(o, i, 1, h * D, D)});
}

int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e)
{
    const int64_t n = a->q.rows, width = sp->shape.n_heads * sp->shape.head_dim;
    const struct merging m = merging_of(sp, n);
    assert(n > 0 && a->o.rows == n);
    for (int64_t i = 0; i < n; i++) decode_own(sp, a, &m, i);
    if (sp->shard.P == 1) {
        const struct tensor o = tensor_f32(m.all.data, n, width, partial_size(sp));
        sp->be->ops->cast(sp->be, &(struct cast_args){.src = o, .dst = a->o});
        return 0;
    }
    if (decode_gather(sp, &m, e)) return -1;
    for (int64_t i = 0; i < n; i++) decode_merge(sp, &m, a->o, i);
    return 0;
}
