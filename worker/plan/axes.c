/* axes.c: computes a rank's place on the axes from its index and the reverse, and lists sets of
 * ranks. */
#include "worker/plan/axes.h"

#include "api/core/assert.h"

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

struct rank_set axes_line(const struct axes *a, int rank, unsigned along)
{
    const struct axes_place own = axes_place(a, rank);
    struct rank_set of = {0};
    for (int r = 0; r < axes_ranks(a); r++) {
        const struct axes_place at = axes_place(a, r);
        const unsigned other = (at.d != own.d ? AXIS_DP : 0) | (at.p != own.p ? AXIS_PP : 0) |
                               (at.s != own.s ? AXIS_SP : 0) | (at.t != own.t ? AXIS_TP : 0);
        if (!(other & ~along)) of.at[of.n++] = (uint8_t)r;
    }
    return of;
}

/* Makes a set of n ranks. The first is `first`, and each further rank is `stride` more than the
 * previous one. */
static struct rank_set series(int first, int n, int stride)
{
    struct rank_set of = {.n = n};
    assert(n >= 1 && n <= JOB_MAX_RANKS && first + (n - 1) * stride < JOB_MAX_RANKS);
    for (int i = 0; i < n; i++) of.at[i] = (uint8_t)(first + i * stride);
    return of;
}

struct rank_set axes_rank_block(int rank, int size)
{
    return series(rank / size * size, size, 1);
}

struct rank_set axes_rank_across(int rank, int size, int n_ranks)
{
    assert(n_ranks % size == 0 && rank < n_ranks);
    return series(rank % size, n_ranks / size, size);
}

struct rank_set axes_rank_set_within(const struct rank_set *in, const struct rank_set *of)
{
    struct rank_set out = {.n = of->n};
    for (int i = 0; i < of->n; i++) out.at[i] = (uint8_t)rank_set_at(in, of->at[i]);
    return out;
}

int axes_rank_set_index(const struct rank_set *s, int rank)
{
    for (int i = 0; i < s->n; i++)
        if (s->at[i] == rank) return i;
    return -1;
}
