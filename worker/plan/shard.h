/* shard.h: the tokens of a sequence that a rank holds. Pure arithmetic, for plan, data and sp.
 *
 * A sequence of S tokens is cut into equal segments, and every rank holds n_segs of them, in order,
 * as its local rows [0, T). Rows whose global position is >= S are padding: they hold some valid
 * token id, have no target, see no row and are seen by no row; every rank has exactly T rows.
 *
 *   contiguous            1 segment of ceil(S/P) per rank
 *   zigzag                2P segments of ceil(S/2P); rank r holds segments r and 2P-1-r. If u
 *                         ranks in a row share heads (usp): 2P/u chunks of u segments; group g
 *                         holds chunks g and 2P/u-1-g, its k-th rank the k-th segment of both
 *   determinism "ranks"   8 segments ("logical chunks") of ceil(S/8); rank r holds 8/P in a row;
 *                         P in {1, 2, 4, 8}, contiguous only
 *
 * A sequence of several dimensions (dsp.h) is cut along the outermost: each of its indices is a
 * unit of rows, which no cut divides.
 *
 * Sums over tokens (weight gradients, losses) are taken per sum chunk and then over a perfect
 * binary tree of chunks: under "ranks" the chunks are the segments, so the sum does not depend on
 * P; otherwise the whole shard is one chunk and the tree runs over ranks. */
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
    int u; /* consecutive ranks that form a group (sp/ulysses.c), a divisor of P; 1: no groups */
    enum layout_id layout;
    bool rank_bits; /* determinism "ranks" */
    int64_t unit;   /* rows that stay together: 1; or all of one index of the outermost dimension;
                     * or a multiple of the ranks of a group, or of a layer */
    int n_segs;     /* segments on this rank */
    int64_t seg_len;
    int64_t T;               /* n_segs * seg_len, the same on every rank */
    int64_t pos[SHARD_SEGS]; /* global position of each segment's first row */
    int n_sums;              /* sum chunks on this rank: n_segs under "ranks", else 1 */
    int64_t sum_len;         /* rows of a sum chunk */
};

/* Makes the shard of rank r of P, for S tokens. layout: contiguous or zigzag. fails: ERR_INVALID
 * (S or P is out of range; under "ranks", P is not 1, 2, 4 or 8, or the layout is zigzag). */
int shard_init(struct shard *sh, int64_t S, int P, int r, enum layout_id layout, bool rank_bits,
               struct err *e);
/* Makes a shard as shard_init does, with groups of u ranks. */
int shard_init_groups(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                      bool rank_bits, struct err *e);
/* Returns the shard of the rank's group as one rank of a ring of P / u: its ranks' rows, run by
 * run. */
struct shard shard_group(const struct shard *sh);
/* Counts the runs of a group. In a run, each rank of the group has T / runs consecutive rows, one
 * rank after another. */
int shard_runs(const struct shard *sh);
/* Makes a shard as shard_init_groups does, with segments that are multiples of `parts` rows; not
 * under "ranks". */
int shard_init_parts(struct shard *sh, int64_t S, int P, int u, int r, enum layout_id layout,
                     int parts, struct err *e);
/* Makes a shard of n indices of `unit` rows each, contiguous: S = n * unit. */
int shard_init_units(struct shard *sh, int64_t n, int64_t unit, int P, int r, bool rank_bits,
                     struct err *e);
/* Count indices of a dimension of n, spread contiguously over P ranks. shard_share: indices of a
 * rank, pads included. shard_count: indices of rank r without pads. */
int64_t shard_share(int64_t n, int P, bool rank_bits);
int64_t shard_count(int64_t n, int P, int r, bool rank_bits);
int64_t shard_pos(const struct shard *sh, int64_t row); /* global position, may be >= S (padding) */
struct shard shard_of(const struct shard *sh, int r);   /* the same sequence, as rank r holds it */

#endif
