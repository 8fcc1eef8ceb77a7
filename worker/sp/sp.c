#include "worker/sp/sp.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include "kernels/bf16.h"
#include "worker/plan/attention.h"

static const struct sp_ops *const rsa_forms[FORM_N] = {
    [FORM_BLOCKWISE] = &sp_rsa,
    [FORM_ALL_GATHER] = &sp_all_gather,
    [FORM_TWO_PASS] = &sp_two_pass,
    [FORM_TWO_PASS_SCATTER] = &sp_two_pass_scatter,
};

const struct sp_ops *sp_find(enum strategy_id id, enum form_id form)
{
    if (id == STRATEGY_LOCAL) return &sp_local;
    if (id == STRATEGY_ULYSSES) return &sp_ulysses;
    return id == STRATEGY_RSA && form >= 0 && form < FORM_N ? rsa_forms[form] : NULL;
}

void sp_place(struct sp_buffers *b, const struct attention_need *need, void *arena, void *segment)
{
    void *at[ATTN_BUFFER_N];
    for (int i = 0; i < ATTN_BUFFER_N; i++) {
        char *base = need->at[i].in_segment ? segment : arena;
        at[i] = need->at[i].size ? base + need->at[i].offset : NULL;
    }
    if (at[ATTN_KV0]) b->kv[0] = at[ATTN_KV0];
    if (at[ATTN_KV1]) b->kv[1] = at[ATTN_KV1];
    if (at[ATTN_HOME]) {
        b->dkv[0] = at[ATTN_HOME];
        b->dkv[1] = b->dkv[0] + need->at[ATTN_HOME].size / 8;
    }
    b->full = at[ATTN_FULL], b->tile = at[ATTN_TILE], b->all = at[ATTN_ALL];
    b->out = at[ATTN_OUT], b->in = at[ATTN_IN], b->d_o = at[ATTN_DO];
    b->carried = at[ATTN_SUM], b->rows = at[ATTN_ROWS];
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* One rank's partial result: attention over its own keys, and their log-sum-exp. */
struct partial {
    float *o, *lse; /* [H*D], [H], one after the other */
};

static int64_t partial_count(const struct sp *sp)
{
    return sp->shape.n_heads * (sp->shape.head_dim + 1);
}

static struct partial partial_of(const struct sp *sp, int rank)
{
    float *o = sp->buf.part + rank * partial_count(sp);
    return (struct partial){o, o + sp->shape.n_heads * sp->shape.head_dim};
}

/* This rank's keys all lie before the new token: it sees every one of its n_rows. */
static void decode_own(struct sp *sp, const struct sp_decode_args *a, struct partial own)
{
    const struct sp_attn_shape *s = &sp->shape;
    const int64_t seen[2] = {0, a->kv.rows}, width = s->n_heads * s->head_dim;
    sp->be->ops->fill(sp->be, own.o, width, 0);
    sp->be->ops->fill(sp->be, own.lse, s->n_heads, -INFINITY);
    if (!a->kv.rows) return;
    sp->be->ops->upload(sp->be, a->range, seen, sizeof seen);
    sp->be->ops->fill(sp->be, sp->buf.m, s->n_heads, 0);
    sp->be->ops->attn_fwd(sp->be, &(struct attn_fwd_args){.q = a->q,
                                                          .kv = a->kv,
                                                          .o = tensor_f32(own.o, 1, width, width),
                                                          .m = own.lse,
                                                          .l = sp->buf.m, /* [H, T] and idle here */
                                                          .ml_ld = 1,
                                                          .lo = a->range,
                                                          .hi = a->range + 1,
                                                          .kv_pos = 0,
                                                          .n_heads = s->n_heads,
                                                          .n_kv_heads = s->n_kv_heads,
                                                          .head_dim = s->head_dim,
                                                          .scale = s->scale});
    sp->be->ops->attn_finish(sp->be,
                             &(struct attn_finish_args){.o = tensor_f32(own.o, 1, width, width),
                                                        .out = tensor_f32(own.o, 1, width, width),
                                                        .m = own.lse,
                                                        .l = sp->buf.m,
                                                        .ml_ld = 1,
                                                        .n_heads = s->n_heads,
                                                        .head_dim = s->head_dim});
}

static int decode_gather(struct sp *sp, struct err *e)
{
    int P = sp->shard.P, r = sp->shard.r;
    int64_t size = partial_count(sp) * 4;
    struct comm_ticket t[JOB_MAX_RANKS];
    if (sp->be->ops->sync && sp->be->ops->sync(sp->be, e)) return -1;
    for (int k = 1; k < P; k++) {
        int to = (r + k) % P, from = (r - k + P) % P;
        struct comm_xfer x = {.purpose = PURPOSE_DECODE,
                              .channel = CHANNEL_COLL,
                              .send_to = to,
                              .recv_from = from,
                              .send = partial_of(sp, r).o,
                              .recv = partial_of(sp, from).o,
                              .send_size = size,
                              .recv_size = size};
        if (comm_sendrecv(sp->comm, &x, &t[k], e)) return -1;
    }
    for (int k = 1; k < P; k++)
        if (comm_wait(sp->comm, &t[k], e)) return -1;
    return 0;
}

/* Head h of the merged o, in rank order; a rank without keys has lse = -inf and weighs exp(-inf) =
 * 0.
 * With no key anywhere o is 0. Runs on the host, over P*H*D floats. */
static void decode_merge(const struct sp *sp, int64_t h, struct tensor out)
{
    float o[JOB_MAX_HEAD];
    int64_t D = sp->shape.head_dim;
    float top = -INFINITY, sum = 0;
    for (int q = 0; q < sp->shard.P; q++) top = fmaxf(top, partial_of(sp, q).lse[h]);
    for (int64_t j = 0; j < D; j++) o[j] = 0;
    for (int q = 0; q < sp->shard.P && top > -INFINITY; q++) {
        struct partial p = partial_of(sp, q);
        float w = expf(p.lse[h] - top);
        sum += w;
        for (int64_t j = 0; j < D; j++) o[j] += w * p.o[h * D + j];
    }
    if (sum > 0)
        for (int64_t j = 0; j < D; j++) o[j] /= sum;
    if (out.dtype == DT_F32)
        memcpy((float *)out.data + h * D, o, (size_t)D * sizeof *o);
    else
        for (int64_t j = 0; j < D; j++) ((uint16_t *)out.data)[h * D + j] = bf16_round(o[j]);
}

int sp_attn_decode(struct sp *sp, const struct sp_decode_args *a, struct err *e)
{
    assert(a->q.rows == 1 && a->o.rows == 1);
    decode_own(sp, a, partial_of(sp, sp->shard.r));
    if (sp->shard.P > 1 && decode_gather(sp, e)) return -1;
    for (int64_t h = 0; h < sp->shape.n_heads; h++) decode_merge(sp, h, a->o);
    return 0;
}
