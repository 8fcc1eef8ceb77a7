/* paged.c: attention of a piece of a prompt to keys and values in pages. */
#include "worker/sp/paged.h"

#include "api/core/mem.h"
#include "worker/sp/part.h"

/* The parts of the room. A part is a partial result of T queries: o [T, H*D], and then lse
 * [H, T]. */
struct piece_room {
    char *q;         /* [P] of [T, H*D] act */
    float *out, *in; /* [P] parts: for each rank's queries, and from each rank for own queries */
    int64_t q_size;  /* bytes of a rank's queries, and from one rank's to the next rank's */
    int64_t q_stride;
    int64_t part_size; /* the same of a part */
    int64_t part_stride;
};

static struct piece_room room_of(const struct sp *sp, const struct sp_piece_args *a)
{
    const int64_t T = a->q.rows, H = sp->shape.n_heads, D = sp->shape.head_dim, P = sp->shard.P;
    struct piece_room r = {.q = a->room,
                           .q_size = T * H * D * dtype_size(a->q.dtype),
                           .part_size = T * H * (D + 1) * 4};
    r.q_stride = P > 1 ? mem_round(r.q_size, MEM_ALIGN) : 0;
    r.part_stride = mem_round(r.part_size, MEM_ALIGN);
    r.out = (float *)(r.q + P * r.q_stride);
    r.in = r.out + (P > 1 ? P * r.part_stride / 4 : 0);
    return r;
}

static int gather_queries(struct sp *sp, const struct sp_piece_args *a, const struct piece_room *r,
                          struct err *e)
{
    char *own = r->q + sp->shard.r * r->q_stride;
    const struct tensor to = tensor_of(a->q.dtype, own, a->q.rows, a->q.cols, a->q.cols);
    const struct sp_blocks b = {.send = own,
                                .recv = r->q,
                                .recv_stride = r->q_stride,
                                .size = r->q_size,
                                .purpose = PURPOSE_DECODE};
    sp->be->ops->cast(sp->be, &(struct cast_args){.src = a->q, .dst = to});
    return sp_part_exchange(sp, &b, e);
}

/* Computes the results of the queries q of a rank. They become the part at `at` or, if out is not
 * NULL, *out, because they are all results of these queries. */
static void attend(struct sp *sp, const struct sp_piece_args *a, struct tensor q, int rank,
                   float *at, const struct tensor *out)
{
    const int64_t T = q.rows;
    const struct sp_part p = sp_part_at(sp, at, T, sp->buf.m);
    sp_part_start(sp, &p);
    sp_part_add(sp, &p, q, &a->keys, a->lo + rank * T, a->hi + rank * T);
    sp_part_finish(sp, &p, out ? *out : p.o);
}

int sp_attn_piece(struct sp *sp, const struct sp_piece_args *a, struct err *e)
{
    const struct piece_room r = room_of(sp, a);
    const int64_t stride = r.part_stride / 4;
    const int P = sp->shard.P, own = sp->shard.r;
    const struct sp_blocks parts = {.send = (char *)r.out,
                                    .recv = (char *)r.in,
                                    .send_stride = r.part_stride,
                                    .recv_stride = r.part_stride,
                                    .size = r.part_size,
                                    .purpose = PURPOSE_DECODE};
    if (P == 1) {
        attend(sp, a, a->q, 0, r.out, &a->o);
        return 0;
    }
    if (gather_queries(sp, a, &r, e)) return -1;
    for (int k = 0; k < P; k++) {
        const struct tensor q = tensor_of(a->q.dtype, r.q + k * r.q_stride, a->q.rows, a->q.cols,
                                          a->q.cols);
        attend(sp, a, q, k, (k == own ? r.in : r.out) + k * stride, NULL);
    }
    if (sp_part_exchange(sp, &parts, e)) return -1;
    sp_part_merge(sp, r.in, stride, a->o);
    return 0;
}
