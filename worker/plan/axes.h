/* axes.h: the place of each rank of a job, and the sets of ranks that work together. Pure
 * arithmetic.
 *
 * ranks = dp x pp x sp x tp; tp varies fastest, then sp, pp, dp:
 *   rank = ((d pp + p) sp + s) tp + t
 * A set of ranks that work together is a list in ascending order. Either its ranks differ only in
 * some axes (those of a ring differ only in sp), or they are a block of consecutive ranks, or they
 * have the same place in every block. worker/comm makes a view of a set. tested:
 * tests/engine/test_shard.c */
#ifndef SEQD_PLAN_AXES_H
#define SEQD_PLAN_AXES_H

#include <stdint.h>
#include "api/core/assert.h"
#include "api/core/limits.h"

/* Degrees, each at least 1. */
struct axes {
    int dp, pp, sp, tp;
};
enum axis { AXIS_DP = 1, AXIS_PP = 2, AXIS_SP = 4, AXIS_TP = 8 }; /* bits, joined by | */

struct axes_place {
    int d, p, s, t;
};

int axes_ranks(const struct axes *a);
struct axes_place axes_place(const struct axes *a, int rank);

/* n >= 1 ranks, ascending. */
struct rank_set {
    int n;
    uint8_t at[JOB_MAX_RANKS];
};

/* Returns the ranks that have the same place as `rank` on every axis except those in `along` (bits
 * of enum axis). `rank` is one of them. */
struct rank_set axes_line(const struct axes *a, int rank, unsigned along);

/* Divide all ranks into blocks of `size` consecutive ranks; size must divide n_ranks.
 * axes_rank_block returns the block that contains `rank`. axes_rank_across returns, of each block,
 * the rank with the same place as `rank`. */
struct rank_set axes_rank_block(int rank, int size);
struct rank_set axes_rank_across(int rank, int size, int n_ranks);

/* Returns the ranks of `in` whose indices in that set `of` lists. */
struct rank_set axes_rank_set_within(const struct rank_set *in, const struct rank_set *of);

static inline int rank_set_at(const struct rank_set *s, int i)
{
    assert(i >= 0 && i < s->n);
    return s->at[i];
}

/* Returns the index of `rank` in the set, or -1 if the set lacks it. */
int axes_rank_set_index(const struct rank_set *s, int rank);

#endif
