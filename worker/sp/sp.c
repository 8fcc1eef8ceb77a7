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

/* A rank's partial results are attention over this rank's keys, with the log-sum-exps. buf.part has
 * the results of all ranks for a pass of n tokens, and workspace. */
struct merging {
    float *parts;   /* [P] parts, which are o [n, H*D] and then lse [H, n] */
    int64_t size;   /* floats of a rank's results */
    float *l;       /* [H, n]: sums */
    int64_t *range; /* [2, n]: the first key that each token sees, and the end of these keys */
};

static struct merging merging_of(const struct sp *sp, int64_t n)
{
    const int64_t P = sp->shard.P, H = sp->shape.n_heads;
    struct merging m = {.parts = sp->buf.part, .size = n * H * (sp->shape.head_dim + 1)};
    m.l = m.parts + P * m.size;
    m.range = (int64_t *)((char *)sp->buf.part + mem_round((P * m.size + n * H) * 4, 8));
    return m;
}

/* Returns the partial results of `rank`. */
static float *rank_part(const struct merging *m, int rank)
{
    return m->parts + rank * m->size;
}

/* Starts the results before the first key. Only rank 0 adds the sink, even if rank 0 has no
 * keys. */
static void decode_start(struct sp *sp, const struct merging *m, struct tensor o, float *lse)
{
    const struct sp_attn_shape *s = &sp->shape;
    sp->be->ops->fill(sp->be, o.data, o.rows * o.cols, 0);
    if (s->sink.data && (sp->shard.r == 0 || mutant_on(MUTANT_SINK_EACH))) {
        sp->be->ops->attn_sink_fwd(sp->be, &(struct attn_sink_fwd_args){.m = lse,
                                                                        .l = m->l,
                                                                        .ml_ld = o.rows,
                                                                        .rows = o.rows,
                                                                        .n_heads = s->n_heads,
                                                                        .sink = s->sink});
        return;
    }
    sp->be->ops->fill(sp->be, lse, s->n_heads * o.rows, -INFINITY);
    sp->be->ops->fill(sp->be, m->l, s->n_heads * o.rows, 0);
}

/* Uploads the keys that each token sees. All keys of this rank are before the token, so the token
 * sees every key. */
static void decode_ranges(struct sp *sp, const struct sp_decode_args *a, const struct merging *m)
{
    const int64_t n = a->q.rows;
    int64_t range[2 * JOB_MAX_BATCH] = {0};
    for (int64_t i = 0; i < n; i++) range[n + i] = a->kv[i].rows;
    sp->be->ops->upload(sp->be, m->range, range, 2 * n * (int64_t)sizeof *range);
}

/* Adds attention of token i to this rank's keys to row i of o. */
static void decode_keys(struct sp *sp, const struct sp_decode_args *a, const struct merging *m,
                        struct tensor o, float *lse, int64_t i)
{
    const struct sp_attn_shape *s = &sp->shape;
    sp->be->ops->attn_fwd(sp->be, &(struct attn_fwd_args){.q = tensor_sub(a->q, i, 1, 0, o.cols),
                                                          .kv = a->kv[i],
                                                          .o = tensor_sub(o, i, 1, 0, o.cols),
                                                          .m = lse + i,
                                                          .l = m->l + i,
                                                          .ml_ld = o.rows,
                                                          .lo = m->range + i,
                                                          .hi = m->range + o.rows + i,
                                                          .kv_pos = 0,
                                                          .n_heads = s->n_heads,
                                                          .n_kv_heads = s->n_kv_heads,
                                                          .head_dim = s->head_dim,
                                                          .scale = s->scale,
                                                          .cap = s->cap});
}

/* Computes this rank's results for all tokens. If there is one rank, they are the output. */
static void decode_own(struct sp *sp, const struct sp_decode_args *a, const struct merging *m)
{
    const struct sp_attn_shape *s = &sp->shape;
    const int64_t n = a->q.rows, width = s->n_heads * s->head_dim;
    const struct tensor o = tensor_f32(rank_part(m, sp->shard.r), n, width, width);
    float *lse = (float *)o.data + n * width;
    decode_start(sp, m, o, lse);
    decode_ranges(sp, a, m);
    for (int64_t i = 0; i < n; i++)
        if (a->kv[i].rows) decode_keys(sp, a, m, o, lse, i);
    sp->be->ops->attn_finish(sp->be, &(struct attn_finish_args){.o = o,
                                                                .out = sp->shard.P == 1 ? a->o : o,
                                                                .m = lse,
                                                                .l = m->l,
                                                                .ml_ld = n,
                                                                .n_heads = s->n_heads,
                                                                .head_dim = s->head_dim});
}

/* Gathers the results of all ranks for all tokens, in one message to each other rank. */
static int decode_gather(struct sp *sp, const struct merging *m, struct err *e)
{
    const int P = sp->shard.P, r = sp->shard.r;
    const int64_t size = m->size * 4;
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

int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e)
{
    const struct merging m = merging_of(sp, a->q.rows);
    assert(a->q.rows > 0 && a->q.rows <= JOB_MAX_BATCH && a->o.rows == a->q.rows);
    decode_own(sp, a, &m);
    if (sp->shard.P == 1) return 0;
    if (decode_gather(sp, &m, e)) return -1;
    sp->be->ops->attn_merge(sp->be, &(struct attn_merge_args){.parts = m.parts,
                                                              .n_parts = sp->shard.P,
                                                              .stride = m.size,
                                                              .out = a->o,
                                                              .n_heads = sp->shape.n_heads,
                                                              .head_dim = sp->shape.head_dim});
    return 0;
}
