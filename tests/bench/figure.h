/* figure.h: the number of times that a figure was measured and the spread of its rounds, and
 * whether a rate is constant as the work grows. Other programs on a machine can only add time, so
 * the best round is compared with limits, and the median and the worst show how quiet the machine
 * was. */
#ifndef SEQD_BENCH_FIGURE_H
#define SEQD_BENCH_FIGURE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Seconds of a figure's rounds. */
struct spread {
    double best, median, worst;
    int n;
};

static inline int spread_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the spread of n > 0 seconds, which it sorts. */
static inline struct spread spread_of(double *s, int n)
{
    qsort(s, (size_t)n, sizeof *s, spread_by_value);
    return (struct spread){s[0], s[n / 2], s[n - 1], n};
}

/* Returns the spread of the sum of two parts that were measured one after another. */
static inline struct spread spread_sum(struct spread a, struct spread b)
{
    return (struct spread){a.best + b.best, a.median + b.median, a.worst + b.worst,
                           a.n < b.n ? a.n : b.n};
}

/* Writes the members of a line of JSON that give a figure's spread, after its best. */
static inline void spread_json(const struct spread *s, double unit)
{
    printf("\"median\":%.4f,\"worst\":%.4f,\"rounds\":%d", s->median * unit, s->worst * unit, s->n);
}

/* ---- growth ---------------------------------------------------------------------------------- */

#define GROWTH_LIMIT 0.05 /* the share of the highest rate by which the lowest one may be lower */

struct growth {
    double low, high; /* rates */
    int64_t low_at, high_at;
};

static inline void growth_add(struct growth *g, int64_t S, double rate)
{
    if (!g->high_at || rate < g->low) g->low = rate, g->low_at = S;
    if (!g->high_at || rate > g->high) g->high = rate, g->high_at = S;
}

static inline bool growth_flat(const struct growth *g)
{
    return g->low >= (1 - GROWTH_LIMIT) * g->high;
}

/* Prints the verdict for people and as JSON. */
static inline void growth_report(const struct growth *g, const char *what, const char *dtype)
{
    printf("%s %s: at %lld tokens %.2f of the rate at %lld: %swithin %.0f %%\n", what, dtype,
           (long long)g->low_at, g->low / g->high, (long long)g->high_at,
           growth_flat(g) ? "" : "not ", 100 * GROWTH_LIMIT);
    printf("{\"bench\":\"growth\",\"op\":\"%s\",\"dtype\":\"%s\",\"lowest\":%.3f,\"low_at\":%lld,"
           "\"high_at\":%lld,\"flat\":%s}\n",
           what, dtype, g->low / g->high, (long long)g->low_at, (long long)g->high_at,
           growth_flat(g) ? "true" : "false");
    fflush(stdout);
}

#endif
