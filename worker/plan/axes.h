/* axes.h: the place of each rank of a job, and the sets of ranks that work together. Pure
 * arithmetic.
 *
 * ranks = dp x pp x sp x tp; tp varies fastest, then sp, pp, dp:
 *   rank = ((d pp + p) sp + s) tp + t
 * A set of ranks that work together is a list in ascending order. There are three kinds of sets.
 * The ranks of the first kind differ only in some axes; for example, the ranks of a ring differ
 * only in sp. The second kind is a block of consecutive ranks. A set of the third kind has one
 * rank of every block, and each of these ranks has the same place in its block. worker/comm makes
 * an endpoint for the ranks of a set (comm_group). tested: tests/engine/test_shard.c */
#ifndef SEQD_PLAN_AXES_H
#define SEQD_PLAN_AXES_H

#include <stdint.h>
#include "api/core/assert.h"
#include "api/core/limits.h"

/* Number of ranks along each axis; each is at least 1. */
struct axes {
    int dp, pp, sp, tp;
};
/* bits, which can be joined by | */
enum axis { AXIS_DP = 1, AXIS_PP = 2, AXIS_SP = 4, AXIS_TP = 8 };

struct axes_place {
    int d, p, s, t;
};

int axes_ranks(const struct axes *a);
struct axes_place axes_place(const struct axes *a, int rank);

/* n >= 1 ranks in ascending order. */
struct rank_set {
    int n;
    uint8_t at[JOB_MAX_RANKS];
};

/* Returns the ranks that have the same place as `rank` on every axis that is not in `along` (bits
 * of enum axis). `rank` is one of them. */
struct rank_set axes_line(const struct axes *a, int rank, unsigned along);

/* Both functions divide all ranks into blocks of `size` consecutive ranks; size must divide
 * n_ranks. axes_rank_block returns the block that contains `rank`. axes_rank_across returns one
 * rank of each block, which has the same place in its block as `rank` in its own. */
struct rank_set axes_rank_block(int rank, int size);
struct rank_set axes_rank_across(int rank, int size, int n_ranks);

/* Returns the ranks of the set `in` whose indices in `in` are the elements of `of`. */
struct rank_set axes_rank_set_within(const struct rank_set *in, const struct rank_set *of);

static inline int rank_set_at(const struct rank_set *s, int i)
{
    assert(i >= 0 && i < s->n);
    return s->at[i];
}

/* Returns the index of `rank` in the set. Returns -1 if `rank` is not in the set. */
int axes_rank_set_index(const struct rank_set *s, int rank);

#endif
