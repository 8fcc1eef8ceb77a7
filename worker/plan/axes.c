#include "worker/plan/axes.h"

#include <assert.h>

int axes_ranks(const struct axes *a)
{
    return a->dp * a->pp * a->sp * a->tp;
}

struct axes_place axes_place(const struct axes *a, int rank)
{
    assert(rank >= 0 && rank < axes_ranks(a));
    return (struct axes_place){.d = rank / (a->pp * a->sp * a->tp),
                               .p = rank / (a->sp * a->tp) % a->pp,
                               .s = rank / a->tp % a->sp,
                               .t = rank % a->tp};
}

int axes_rank(const struct axes *a, struct axes_place at)
{
    return ((at.d * a->pp + at.p) * a->sp + at.s) * a->tp + at.t;
}

struct rank_set axes_line(const struct axes *a, int rank, enum axis axis)
{
    struct axes_place at = axes_place(a, rank);
    switch (axis) {
    case AXIS_DP:
        at.d = 0;
        return (struct rank_set){axes_rank(a, at), a->dp, a->pp * a->sp * a->tp};
    case AXIS_PP: at.p = 0; return (struct rank_set){axes_rank(a, at), a->pp, a->sp * a->tp};
    case AXIS_SP: at.s = 0; return (struct rank_set){axes_rank(a, at), a->sp, a->tp};
    case AXIS_TP: at.t = 0; return (struct rank_set){axes_rank(a, at), a->tp, 1};
    }
    assert(!"an axis");
    return (struct rank_set){rank, 1, 1};
}

struct rank_set rank_block(int rank, int size)
{
    return (struct rank_set){rank / size * size, size, 1};
}

struct rank_set rank_across(int rank, int size, int n_ranks)
{
    assert(n_ranks % size == 0 && rank < n_ranks);
    return (struct rank_set){rank % size, n_ranks / size, size};
}
