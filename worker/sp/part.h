/* part.h: partial results of attention. Each rank attends with the same queries to its own keys,
 * and the results of all ranks are merged in rank order. */
#ifndef SEQD_SP_PART_H
#define SEQD_SP_PART_H

#include "worker/sp/sp.h"

/* A rank's results for some queries. After sp_part_finish, a part in memory is o [rows, H*D]
 * followed by lse [H, rows], as attn_merge reads it. */
struct sp_part {
    struct tensor o; /* [rows, H*D] fp32 */
    float *lse, *l;  /* [H, ld]: log-sum-exp, and the running sum */
    int64_t ld;
};

/* Returns the part at `at`, which has memory for n queries. l is [H, n]. */
struct sp_part sp_part_at(const struct sp *sp, float *at, int64_t n, float *l);
/* Starts the results before the first key. Only rank 0 adds the sink, even if it has no keys. */
void sp_part_start(struct sp *sp, const struct sp_part *p);
/* Adds attention of the queries q to keys. lo and hi [rows], on the device, are the range of keys
 * that each query sees. */
void sp_part_add(struct sp *sp, const struct sp_part *p, struct tensor q,
                 const struct sp_keys *keys, const int64_t *lo, const int64_t *hi);
/* Returns the call of attn_fwd that sp_part_add makes. */
struct attn_fwd_args sp_part_call(const struct sp *sp, const struct sp_part *p, struct tensor q,
                                  const struct sp_keys *keys, const int64_t *lo, const int64_t *hi);
/* Normalises the results, into out, which may be p->o. */
void sp_part_finish(struct sp *sp, const struct sp_part *p, struct tensor out);

/* Blocks of `size` bytes, one for each rank. */
struct sp_blocks {
    char *send, *recv;
    int64_t send_stride, recv_stride; /* bytes from a rank's block to the next rank's block */
    int64_t size;
    enum purpose purpose;
};
/* Sends the block for each other rank to it, and receives a block from each other rank.
 * Collective. */
int sp_part_exchange(struct sp *sp, const struct sp_blocks *b, struct err *e);
/* Merges the parts of all ranks, which are `stride` floats apart, in rank order. */
void sp_part_merge(struct sp *sp, float *parts, int64_t stride, struct tensor out);

#endif
