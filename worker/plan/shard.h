/* shard.h: computes which tokens of a sequence a rank has. Pure arithmetic, for plan, data and sp.
 *
 * A sequence of S tokens is cut into equal segments, and every rank holds n_segs of them, in
 * order, as its local rows [0, T). Rows whose global position is >= S are padding. A row of
 * padding has some valid token id and no target, sees no row, and no row sees it. Every rank has
 * exactly T rows.
 *
 *   contiguous            1 segment of ceil(S/P) per rank
 *   zigzag                2P segments of ceil(S/2P); rank r holds segments r and 2P-1-r. If u
 *                         consecutive ranks share heads (usp): 2P/u chunks of u segments; group g
 *                         has chunks g and 2P/u-1-g, and its k-th rank the k-th segment of both
 *   determinism "ranks"   8 segments ("logical chunks") of ceil(S/8); rank r has 8/P neighbours;
 *                         P in {1, 2, 4, 8}, contiguous only
 *
 * A sequence of several dimensions (dsp.h) is divided along the outermost. Each index of that
 * dimension is a unit of rows, which is never divided.
 *
 * Sums over tokens (weight gradients, losses) are formed for each sum chunk and then over a
 * perfect binary tree of chunks. Under "ranks" the chunks are the segments, so the sum does not
 * depend on P; otherwise the whole shard is one chunk, and the tree is over ranks. */
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
    /* consecutive ranks that form a group (sp/ulysses.c), a divisor of P; 1 if there are no
     * groups */
    int u;
    enum layout_id layout;
    bool rank_bits; /* determinism "ranks" */
    /* Rows that are never separated. It is 1, or all rows of one index of the outermost dimension,
     * or a multiple of the number of ranks of a group or of a layer. */
    int64_t unit;
    int n_segs; /* segments on this rank */
    int64_t seg_len;
    int64_t T;               /* n_segs * seg_len, which is the same on every rank */
    int64_t pos[SHARD_SEGS]; /* global position of each segment's first row */
    int n_sums;              /* sum chunks on this rank: n_segs under "ranks", else 1 */
    int64_t sum_len;         /* rows of a sum chunk */
};

/* Makes the shard of rank r of P, for S tokens. layout is contiguous or zigzag. Fails with
 * ERR_INVALID if S or P is out of range. Under "ranks", it also fails if P is not 1, 2, 4 or 8, or
 * if the layout is zigzag. */
int shard_init(struct shard *sh, int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
               struct err *e);
/* Makes a shard as shard_init does, with groups of u ranks. */
int shard_init_groups(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                      bool rank_bits, struct err *e);
/* Returns the shard of the rank's group as if the group were one rank of a ring of P / u. It has
 * the rows of the group's ranks, run by run. */
struct shard shard_group(const struct shard *sh);
/* Returns the number of runs of a group. In a run, each rank of the group has T / runs consecutive
 * rows, in the order of the ranks. */
int shard_runs(const struct shard *sh);
/* Makes a shard as shard_init_groups does, with segments whose length is a multiple of `parts`
 * rows. Not for "ranks". */
int shard_init_parts(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                     int parts, struct err *e);
/* Makes a contiguous shard of n indices of `unit` rows each, where S = n * unit. */
int shard_init_units(struct shard *sh, int64_t n, int64_t unit, int P, int r, bool rank_bits,
                     struct err *e);
/* Count the indices of a dimension of n indices that is spread contiguously over P ranks.
 * shard_share returns the indices of a rank, including padding; shard_count those of rank r
 * without padding. */
int64_t shard_share(int64_t n, int P, bool rank_bits);
int64_t shard_count(int64_t n, int P, int r, bool rank_bits);
/* global position of a row; it may be >= S (padding) */
int64_t shard_pos(const struct shard *sh, int64_t row);
/* the shard that rank r has of the same sequence */
struct shard shard_of(const struct shard *sh, int r);

#endif
