/* sp.c: the table of strategies, the placing of buffers, and decoding. Decoding gathers the ranks'
 * partial results for a token and merges them in rank order. */
#include "worker/sp/sp.h"

#include "api/core/assert.h"
#include "api/core/mem.h"
#include "worker/sp/part.h"

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

/* ---- tokens after a state -------------------------------------------------------------------- */

static_assert(CACHE_PAGE == 64, "the tables");
#define TEN(x)  x, x, x, x, x, x, x, x, x, x
#define FROM(x) x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7
const int64_t sp_tokens_lo[CACHE_PAGE] = {TEN(-64), TEN(-64), TEN(-64), TEN(-64), TEN(-64),
                                          TEN(-64), -64,      -64,      -64,      -64};
const int64_t sp_tokens_hi[CACHE_PAGE] = {FROM(1),  FROM(9),  FROM(17), FROM(25),
                                          FROM(33), FROM(41), FROM(49), FROM(57)};

/* ---- decoding -------------------------------------------------------------------------------- */

/* buf.part has the results of all ranks for a pass of n tokens, and workspace. */
struct token_parts {
    float *parts;
    int64_t size;   /* floats of a rank's part */
    float *l;       /* [H, n] */
    int64_t *range; /* [2, n]: the first key that each token sees, and the end of these keys */
};

static struct token_parts token_parts_of(const struct sp *sp, int64_t n)
{
    const int64_t P = sp->shard.P, H = sp->shape.n_heads;
    struct token_parts d = {.parts = sp->buf.part, .size = n * H * (sp->shape.head_dim + 1)};
    d.l = d.parts + P * d.size;
    d.range = (int64_t *)((char *)sp->buf.part + mem_round((P * d.size + n * H) * 4, 8));
    return d;
}

static void upload_ranges(struct sp *sp, const struct sp_decode_args *a,
                          const struct token_parts *d)
{
    const int64_t n = a->q.rows;
    int64_t range[2 * JOB_MAX_BATCH] = {0};
    for (int64_t i = 0; i < n; i++) {
        range[i] = a->keys[i].lo;
        range[n + i] = a->keys[i].n;
    }
    sp->be->ops->upload(sp->be, d->range, range, 2 * n * (int64_t)sizeof *range);
}

/* Computes this rank's results for all tokens. If there is one rank, they are the output. */
static void decode_own(struct sp *sp, const struct sp_decode_args *a, const struct token_parts *d)
{
    const int64_t n = a->q.rows;
    const struct sp_part all = sp_part_at(sp, d->parts + sp->shard.r * d->size, n, d->l);
    struct attn_fwd_args call[JOB_MAX_BATCH];
    int64_t n_calls = 0;
    sp_part_start(sp, &all);
    upload_ranges(sp, a, d);
    for (int64_t i = 0; i < n; i++) {
        const struct sp_part row = {tensor_sub(all.o, i, 1, 0, all.o.cols), all.lse + i, all.l + i,
                                    n};
        if (a->keys[i].n > a->keys[i].lo)
            call[n_calls++] = sp_part_call(sp, &row, tensor_sub(a->q, i, 1, 0, a->q.cols),
                                           &a->keys[i], d->range + i, d->range + n + i);
    }
    be_attn_list(sp->be, &(struct attn_list_args){call, n_calls});
    sp_part_finish(sp, &all, sp->shard.P == 1 ? a->o : all.o);
}

int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e)
{
    const struct token_parts d = token_parts_of(sp, a->q.rows);
    const struct sp_blocks b = {.send = (char *)(d.parts + sp->shard.r * d.size),
                                .recv = (char *)d.parts,
                                .recv_stride = d.size * 4,
                                .size = d.size * 4,
                                .purpose = PURPOSE_DECODE};
    assert(a->q.rows > 0 && a->q.rows <= JOB_MAX_BATCH && a->o.rows == a->q.rows);
    decode_own(sp, a, &d);
    if (sp->shard.P == 1) return 0;
    if (sp_part_exchange(sp, &b, e)) return -1;
    sp_part_merge(sp, d.parts, d.size, a->o);
    return 0;
}
