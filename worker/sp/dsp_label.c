/* The fewest switches: which dimension each stage of a model is spread along.
 *
 * Dynamic programming over stages: the state is the dimension, the cost the rows that all ranks
 * send. From d to e everything moves but what each rank keeps, its part along d of its part along
 * e: of N_d * N_e indices (times those of the other dimensions) the sum over r of n_d(r) n_e(r)
 * stays. */
#include "worker/sp/dsp.h"

#include <assert.h>

struct cost {
    int64_t moved;
    int n_switches;
};

static const struct cost nowhere = {INT64_MAX, 0};

static bool cheaper(struct cost a, struct cost b)
{
    return a.moved != b.moved ? a.moved < b.moved : a.n_switches < b.n_switches;
}

static int64_t moved_rows(const struct dsp_stage *s, int n_dims, int P, int from, int to)
{
    int64_t others = 1, stays = 0;
    if (from == to) return 0;
    for (int d = 0; d < n_dims; d++)
        if (d != from && d != to) others *= s->size[d];
    for (int r = 0; r < P; r++)
        stays += shard_count(s->size[from], P, r, false) * shard_count(s->size[to], P, r, false);
    return others * (s->size[from] * s->size[to] - stays);
}

static struct cost step(struct cost before, const struct dsp_stage *s, int n_dims, int P, int from,
                        int to)
{
    if (before.moved == INT64_MAX) return nowhere;
    return (struct cost){before.moved + moved_rows(s, n_dims, P, from, to),
                         before.n_switches + (from != to)};
}

static bool may(const struct dsp_stage *s, int dim)
{
    return !(s->whole >> dim & 1);
}

int dsp_label(const struct dsp_stage *stage, int n, int n_dims, int P, int first, int last,
              int label[], int64_t *moved)
{
    static const struct cost nothing = {0, 0};
    struct cost at[DSP_DIMS], next[DSP_DIMS];
    signed char back[DSP_STAGES][DSP_DIMS];
    assert(n >= 1 && n <= DSP_STAGES && n_dims >= 1 && n_dims <= DSP_DIMS);
    assert(first < n_dims && last < n_dims);
    for (int d = 0; d < n_dims; d++) {
        if (first < 0)
            at[d] = may(&stage[0], d) ? nothing : nowhere;
        else
            at[d] = d == first ? nothing : nowhere;
    }
    for (int i = 0; i < n; i++) {
        for (int e = 0; e < n_dims; e++) {
            next[e] = nowhere;
            back[i][e] = 0;
            for (int d = 0; may(&stage[i], e) && d < n_dims; d++) {
                const struct cost c = step(at[d], &stage[i], n_dims, P, d, e);
                if (!cheaper(c, next[e])) continue;
                next[e] = c;
                back[i][e] = (signed char)d;
            }
        }
        for (int e = 0; e < n_dims; e++) at[e] = next[e];
    }
    int best = 0;
    struct cost least = nowhere;
    for (int d = 0; d < n_dims; d++) {
        const struct cost c = last < 0 ? at[d] : step(at[d], &stage[n - 1], n_dims, P, d, last);
        if (!cheaper(c, least)) continue;
        least = c;
        best = d;
    }
    if (least.moved == INT64_MAX) return -1;
    for (int i = n - 1; i >= 0; i--) {
        label[i] = best;
        best = back[i][best];
    }
    if (moved) *moved = least.moved;
    return least.n_switches;
}
