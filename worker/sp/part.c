/* part.c: computes, exchanges and merges partial results of attention. */
#include "worker/sp/part.h"

#include <math.h>
#include "api/core/mutant.h"

struct sp_part sp_part_at(const struct sp *sp, float *at, int64_t n, float *l)
{
    const int64_t width = sp->shape.n_heads * sp->shape.head_dim;
    return (struct sp_part){tensor_f32(at, n, width, width), at + n * width, l, n};
}

void sp_part_start(struct sp *sp, const struct sp_part *p)
{
    const struct sp_attn_shape *s = &sp->shape;
    sp->be->ops->fill(sp->be, p->o.data, p->o.rows * p->o.cols, 0);
    if (s->sink.data && (sp->shard.r == 0 || mutant_on(MUTANT_SINK_EACH))) {
        sp->be->ops->attn_sink_fwd(sp->be, &(struct attn_sink_fwd_args){.m = p->lse,
                                                                        .l = p->l,
                                                                        .ml_ld = p->ld,
                                                                        .rows = p->o.rows,
                                                                        .n_heads = s->n_heads,
                                                                        .sink = s->sink});
        return;
    }
    sp->be->ops->fill(sp->be, p->lse, s->n_heads * p->ld, -INFINITY);
    sp->be->ops->fill(sp->be, p->l, s->n_heads * p->ld, 0);
}

struct attn_fwd_args sp_part_call(const struct sp *sp, const struct sp_part *p, struct tensor q,
                                  const struct sp_keys *keys, const int64_t *lo, const int64_t *hi)
{
    const struct sp_attn_shape *s = &sp->shape;
    return (struct attn_fwd_args){.q = q,
                                  .kv = keys->kv,
                                  .pages = keys->pages,
                                  .n_keys = keys->n,
                                  .o = p->o,
                                  .m = p->lse,
                                  .l = p->l,
                                  .ml_ld = p->ld,
                                  .lo = lo,
                                  .hi = hi,
                                  .kv_pos = 0,
                                  .n_heads = s->n_heads,
                                  .n_kv_heads = s->n_kv_heads,
                                  .head_dim = s->head_dim,
                                  .scale = s->scale,
                                  .cap = s->cap};
}

void sp_part_add(struct sp *sp, const struct sp_part *p, struct tensor q,
                 const struct sp_keys *keys, const int64_t *lo, const int64_t *hi)
{
    const struct attn_fwd_args a = sp_part_call(sp, p, q, keys, lo, hi);
    sp->be->ops->attn_fwd(sp->be, &a);
}

void sp_part_finish(struct sp *sp, const struct sp_part *p, struct tensor out)
{
    sp->be->ops->attn_finish(sp->be, &(struct attn_finish_args){.o = p->o,
                                                                .out = out,
                                                                .m = p->lse,
                                                                .l = p->l,
                                                                .ml_ld = p->ld,
                                                                .n_heads = sp->shape.n_heads,
                                                                .head_dim = sp->shape.head_dim});
}

int sp_part_exchange(struct sp *sp, const struct sp_blocks *b, struct err *e)
{
    const int P = sp->shard.P, r = sp->shard.r;
    struct comm_ticket t[JOB_MAX_RANKS];
    if (comm_batch_begin(sp->comm, e)) return -1;
    for (int k = 1; k < P; k++) {
        const int to = (r + k) % P, from = (r - k + P) % P;
        struct comm_xfer x = {.purpose = b->purpose,
                              .channel = CHANNEL_COLL,
                              .send_to = to,
                              .recv_from = from,
                              .send = b->send + to * b->send_stride,
                              .recv = b->recv + from * b->recv_stride,
                              .send_size = b->size,
                              .recv_size = b->size};
        if (comm_sendrecv(sp->comm, &x, &t[k], e)) return -1;
    }
    if (comm_batch_end(sp->comm, e)) return -1;
    for (int k = 1; k < P; k++)
        if (comm_wait(sp->comm, &t[k], e)) return -1;
    return 0;
}

/* Exchanges the parts of rank 0 and of this rank, which is here first. */
static void swap_parts(struct sp *sp, float *parts, int64_t stride, struct tensor out)
{
    const int64_t n = out.rows * (out.cols + sp->shape.n_heads);
    float *own = parts + sp->shard.r * stride;
    for (int64_t i = 0; i < n; i++) {
        const float x = parts[i];
        parts[i] = own[i];
        own[i] = x;
    }
}

void sp_part_merge(struct sp *sp, float *parts, int64_t stride, struct tensor out)
{
    if (mutant_on(MUTANT_PARTS_ORDER)) swap_parts(sp, parts, stride, out);
    sp->be->ops->attn_merge(sp->be, &(struct attn_merge_args){.parts = parts,
                                                              .n_parts = sp->shard.P,
                                                              .stride = stride,
                                                              .out = out,
                                                              .n_heads = sp->shape.n_heads,
                                                              .head_dim = sp->shape.head_dim});
}
