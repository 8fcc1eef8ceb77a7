/* axes.h: which rank of a job stands where, and which ranks work together. Pure arithmetic.
 *
 * ranks = dp x pp x sp x tp; tp varies fastest, then sp, pp, dp:
 *   rank = ((d pp + p) sp + s) tp + t
 * A set of ranks that work together is an arithmetic series: those that differ in one axis alone (a
 * ring is a line along sp), a block of consecutive ranks, or the ranks of the same place in every
 * block. worker/comm makes a view of a set. tested: tests/engine/test_shard.c */
#ifndef SEQD_PLAN_AXES_H
#define SEQD_PLAN_AXES_H

/* Degrees, each at least 1. Jobs run with pp = tp = 1. */
struct axes {
    int dp, pp, sp, tp;
};
enum axis { AXIS_DP, AXIS_PP, AXIS_SP, AXIS_TP };

struct axes_place {
    int d, p, s, t;
};

int axes_ranks(const struct axes *a);
struct axes_place axes_place(const struct axes *a, int rank);
int axes_rank(const struct axes *a, struct axes_place at);

/* Ranks first, first + stride, first + 2 stride, ...: n >= 1 of them, stride >= 1. */
struct rank_set {
    int first, n, stride;
};

/* The ranks that stand where `rank` does on every axis but this one, itself among them. */
struct rank_set axes_line(const struct axes *a, int rank, enum axis axis);

/* All ranks are blocks of `size` consecutive ones, a divisor of n_ranks. rank_block: the block of
 * `rank`. rank_across: the ranks of its place in each block. */
struct rank_set rank_block(int rank, int size);
struct rank_set rank_across(int rank, int size, int n_ranks);

static inline int rank_set_at(const struct rank_set *s, int i)
{
    return s->first + i * s->stride;
}

/* The number of `rank`, which is in it. */
static inline int rank_set_index(const struct rank_set *s, int rank)
{
    return (rank - s->first) / s->stride;
}

#endif
