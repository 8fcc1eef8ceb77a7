/* shard.h: computes which tokens of a sequence a rank has. Pure arithmetic, for plan, data and sp.
 *
 * A sequence of S tokens is divided into equal segments. Every rank holds n_segs segments in
 * ascending order. Their rows are the rank's local rows [0, T), and every rank has exactly T rows.
 * Rows whose global position is >= S are padding. A row of padding has some valid token id and no
 * target. It sees no row, and no row sees it.
 *
 *   contiguous            1 segment of ceil(S/P) per rank
 *   zigzag                2P segments of ceil(S/2P); rank r holds segments r and 2P-1-r. If u
 *                         consecutive ranks share heads (usp), there are 2P/u chunks of u
 *                         segments. Group g has chunks g and 2P/u-1-g. Rank k of the group has
 *                         segment k of each chunk
 *   determinism "ranks"   8 segments ("logical chunks") of ceil(S/8); rank r has 8/P adjacent
 *                         segments. P must be 1, 2, 4 or 8, and the layout contiguous
 *
 * A sequence of several dimensions (dsp.h) is divided along the outermost dimension. The rows of
 * one index of that dimension are a unit, which is never divided.
 *
 * Sums over tokens (weight gradients, losses) are formed for each sum chunk. The sums of chunks
 * are added as a perfect binary tree. Under "ranks" each segment is a chunk, so the sum does not
 * depend on P. Otherwise the whole shard is one chunk, and the tree is over ranks. */
#ifndef SEQD_PLAN_SHARD_H
#define SEQD_PLAN_SHARD_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"

#define SHARD_SEGS   8
#define LOGIC_CHUNKS 8

struct shard {
    int64_t S; /* tokens in the sequence */
    int P, r;
    /* number of consecutive ranks that form a group (sp/ulysses.c), a divisor of P; 1 if there are
     * no groups */
    int u;
    enum layout_id layout;
    bool rank_bits; /* determinism "ranks" */
    /* Number of rows that are never separated. Usually it is 1. For several dimensions, it is the
     * number of rows of one index of the outermost dimension. If ranks share heads or layers, it
     * is a multiple of the number of these ranks. */
    int64_t unit;
    int n_segs; /* number of segments of this rank */
    int64_t seg_len;
    int64_t T;               /* number of rows, n_segs * seg_len; it is the same on every rank */
    int64_t pos[SHARD_SEGS]; /* global position of each segment's first row */
    /* number of sum chunks of this rank: n_segs under "ranks", otherwise 1 */
    int n_sums;
    int64_t sum_len; /* rows of a sum chunk */
};

/* Makes the shard of rank r of P for S tokens. layout is contiguous or zigzag. Fails with
 * ERR_INVALID if S or P is out of range. Under "ranks", it also fails if P is not 1, 2, 4 or 8, or
 * if the layout is zigzag. */
int shard_init(struct shard *sh, int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
               struct err *e);
/* Does the same as shard_init, with groups of u ranks. */
int shard_init_groups(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                      bool rank_bits, struct err *e);
/* Returns the shard of the rank's group, as if the group were one rank of a ring of P / u ranks.
 * It has the rows of the group's ranks, run by run. */
struct shard shard_group(const struct shard *sh);
/* Returns the number of runs of a group. In one run, each rank of the group has T / runs
 * consecutive rows, and the ranks follow each other in ascending order. */
int shard_runs(const struct shard *sh);
/* Does the same as shard_init_groups, but the length of the segments is a multiple of `parts`
 * rows. Not for "ranks". */
int shard_init_parts(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                     int parts, struct err *e);
/* Makes a contiguous shard of n indices. Each index has `unit` rows, so S = n * unit. */
int shard_init_units(struct shard *sh, int64_t n, int64_t unit, int P, int r, bool rank_bits,
                     struct err *e);
/* Both functions count indices of a dimension of n indices that is spread contiguously over P
 * ranks. shard_share returns the number of a rank's indices, including padding. shard_count
 * returns the number of rank r's indices without padding. */
int64_t shard_share(int64_t n, int P, bool rank_bits);
int64_t shard_count(int64_t n, int P, int r, bool rank_bits);
/* returns the global position of a row; it is >= S for padding */
int64_t shard_pos(const struct shard *sh, int64_t row);
/* returns rank r's shard of the sequence of sh */
struct shard shard_of(const struct shard *sh, int r);

#endif
