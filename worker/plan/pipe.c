/* pipe.c: divides sections into stages. Division by cost bisects for the smallest limit. Division
 * within memory limits is dynamic programming. */
#include "worker/plan/pipe.h"

#include <math.h>
#include <stdlib.h>
#include "api/core/assert.h"
#include "api/core/mem.h"

struct pipe pipe_whole(int n_layers)
{
    return (struct pipe){.n = 1, .first = {0, n_layers + 2}};
}

int pipe_stage(const struct pipe *p, int section)
{
    int stage = 0;
    while (section >= p->first[stage + 1]) stage++;
    assert(section >= 0 && stage < p->n);
    return stage;
}

/* Fills the stages from the last to the first. A stage takes sections while their cost is at most
 * `limit`, and leaves at least one layer for each earlier stage. Tells whether the first
 * stage is within the limit as well. */
static bool fill(const double *cost, int n_layers, double limit, struct pipe *out)
{
    int b = n_layers + 2;
    for (int p = out->n - 1; p > 0; p--) {
        double sum = 0;
        const bool last = p == out->n - 1;
        out->first[p + 1] = b;
        for (int had = 0; b - 1 > p && (had < (last ? 2 : 1) || sum + cost[b - 1] <= limit); had++)
            sum += cost[--b];
        if (sum > limit) return false;
    }
    double sum = 0;
    out->first[1] = b;
    for (int i = 0; i < b; i++) sum += cost[i];
    return sum <= limit;
}

struct pipe pipe_cut(const double *cost, int n_layers, int n)
{
    struct pipe p = {.n = n};
    double low = 0, high = 0;
    assert(n >= 1 && n <= n_layers);
    for (int i = 0; i < n_layers + 2; i++) high += cost[i];
    for (int i = 0; i < 100; i++) {
        const double middle = low + (high - low) / 2;
        *(fill(cost, n_layers, middle, &p) ? &high : &low) = middle;
    }
    const bool found = fill(cost, n_layers, high, &p);
    assert(found);
    p.first[n] = n_layers + 2;
    return p;
}

/* For each end, the cost of the best division of sections [0, end) into stages 0 .. p. It is
 * INFINITY if no division is possible. */
struct best {
    double cost[PIPE_SECTIONS + 1];
};

/* Adds stage p. `before` has the best divisions into the stages before p. For each end, sets
 * begin[end] to the first section of stage p. If several sections are equally good, chooses the
 * first of them, so that later stages have more sections. */
static void add_stage(const double *cost, const struct pipe_memory *m, const struct pipe *at,
                      int n_layers, const struct best *before, struct best *now, int16_t *begin)
{
    const int p = at->at, last = pipe_last(at);
    const double keeps = (double)pipe_kept(at, m->n_sequences);
    for (int end = 0; end <= n_layers + 2; end++) {
        double sum = 0, bytes = m->fixed[p];
        now->cost[end] = INFINITY;
        begin[end] = 0;
        if (last ? end != n_layers + 2 : end < p + 2 || end > n_layers + 1) continue;
        for (int b = end - 1; b >= (p ? p + 1 : 0); b--) {
            sum += cost[b];
            bytes += m->once[b] + keeps * m->kept[b];
            if (bytes > m->limit || sum > now->cost[end]) break;
            /* the stage would have no layer, or would lack `in` */
            if ((last && b > n_layers) || (p == 0 && b > 0)) continue;
            const double rest = p ? before->cost[b] : 0, most = sum > rest ? sum : rest;
            if (isinf(most) || most > now->cost[end]) continue;
            now->cost[end] = most;
            begin[end] = (int16_t)b;
        }
    }
}

bool pipe_cut_within(const double *cost, const struct pipe_memory *m, int n_layers, int n,
                     struct pipe *out)
{
    static_assert(PIPE_SECTIONS < INT16_MAX, "a section's number");
    int16_t(*begin)[PIPE_SECTIONS + 1] = mem_scratch((size_t)n * sizeof *begin);
    struct best best[2];
    assert(n >= 1 && n <= n_layers && n_layers + 2 <= PIPE_SECTIONS);
    *out = (struct pipe){.n = n};
    for (; out->at < n; out->at++)
        add_stage(cost, m, out, n_layers, &best[!(out->at & 1)], &best[out->at & 1],
                  begin[out->at]);
    out->at = 0;
    const bool found = !isinf(best[(n - 1) & 1].cost[n_layers + 2]);
    if (found) out->first[n] = n_layers + 2;
    for (int p = n - 1; found && p > 0; p--) out->first[p] = begin[p][out->first[p + 1]];
    free(begin);
    return found;
}

int64_t pipe_kept(const struct pipe *p, int64_t n)
{
    return n < p->n - p->at ? n : p->n - p->at;
}

int64_t pipe_ahead(const struct pipe *p, int64_t n)
{
    return n < p->n - p->at - 1 ? n : p->n - p->at - 1;
}

int64_t pipe_lent(const struct pipe *p, int64_t n)
{
    return pipe_ahead(&(struct pipe){.n = p->n}, n); /* the same as on the first stage */
}
