/* block.h: attention of this rank's queries to the keys and values of one rank. This is the work
 * of one step of the ring.
 *
 * A block is the keys and values that one rank owns: [T, 2*Hk*D] rows in n_segs segments, each
 * with its global position. The work is done in pairs of a query segment and a key segment, in the
 * order that sp.h documents. The argument `later` selects a part of this work. If `later` is
 * false, the key segments at or before the query segment are used. If `later` is true, the key
 * segments after the query segment are used. Key segments are used in descending order. A ring
 * computes the later part of this rank's own block last. Pairs in which no query sees any key are
 * skipped. */
#ifndef SEQD_SP_BLOCK_H
#define SEQD_SP_BLOCK_H

#include "worker/sp/sp.h"

struct block {
    struct tensor kv;
    struct tensor dkv; /* backward: sum of kv's gradient */
    int64_t pos[SHARD_SEGS];
};

/* For each query segment, the range [lo, hi) that contains all global keys that its queries see.
 * block_view computes the ranges in one pass over the rows. */
struct block_view {
    int64_t lo[SHARD_SEGS], hi[SHARD_SEGS];
};

struct block block_of(const struct sp *sp, int owner, struct tensor kv, struct tensor dkv);
/* Returns the view of the rows' ranges. seen is the host's copy of these ranges. If seen.lo is
 * NULL, every key counts as seen. */
struct block_view block_view(const struct sp *sp, struct sp_seen seen);
/* Returns the ranges that the host reads. These are `host` if the device has memory of its own,
 * and lo and hi otherwise. */
struct sp_seen block_seen(const struct sp *sp, const int64_t *lo, const int64_t *hi,
                          struct sp_seen host);

/* Tells whether the range of keys that segment c's queries see overlaps segment g of b. */
bool block_pair_seen(const struct sp *sp, const struct block *b, const struct block_view *v, int c,
                     int g);
/* Returns the factor of the scores, which is 1/sqrt(D) or the factor that the model's family
 * defines. */
float block_scale(const struct sp *sp);
/* Fills *out with the dropout of query segment c. Returns false if dropout is off. */
bool block_drop(const struct sp *sp, int c, struct attn_drop *out);

/* Forward takes three functions. block_fwd_start sets m to -inf, and sets o (or buf.o, if that
 * carries the sums) and the running sum (in lse) to 0. With sinks, it sets the running sum and m
 * to the sinks' values instead. block_fwd adds a block. block_fwd_finish normalises. */
void block_fwd_start(struct sp *sp, const struct sp_fwd_args *a);
void block_fwd(struct sp *sp, const struct sp_fwd_args *a, const struct block *b,
               const struct block_view *v, bool later);
void block_fwd_finish(struct sp *sp, const struct sp_fwd_args *a);

/* Backward takes two functions. block_bwd_start sets dq to 0 and computes delta and, with sinks,
 * d_sink. block_bwd adds a block's part to dq and to the block's dkv. */
void block_bwd_start(struct sp *sp, const struct sp_bwd_args *a);
void block_bwd(struct sp *sp, const struct sp_bwd_args *a, const struct block *b,
               const struct block_view *v, bool later);

/* These functions work on whole tensors of equal shape and dtype. A tensor that is a window of a
 * wider tensor is processed row by row. block_add and block_zero need fp32. */
void block_zero(struct sp *sp, struct tensor t);
void block_copy(struct sp *sp, struct tensor dst, struct tensor src);
void block_add(struct sp *sp, struct tensor dst, struct tensor src);

#endif
