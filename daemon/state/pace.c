/* pace.c: computes the speed of an attempt from its last reports. */
#include "daemon/state/pace.h"

#include <stdlib.h>
#include <string.h>

static bool falls_back(const struct rank_progress *from, const struct rank_progress *to)
{
    return to->unit != from->unit || to->from != from->from || to->done < from->done ||
           to->elapsed_us < from->elapsed_us || to->tokens < from->tokens;
}

void pace_add(struct pace *p, const struct rank_progress *now)
{
    /* The first span begins at the beginning of the attempt. */
    if (!p->n || falls_back(&p->last, now))
        *p = (struct pace){.last = {.unit = now->unit, .from = now->from, .done = now->from}};
    const struct pace_span s = {.units = now->done - p->last.done,
                                .tokens = (double)(now->tokens - p->last.tokens),
                                .s = (double)(now->elapsed_us - p->last.elapsed_us) / 1e6};
    if (s.units <= 0 || s.s <= 0) return;
    p->span[p->n++ % PACE_SPANS] = s;
    p->last = *now;
}

static int fastest_first(const void *a, const void *b)
{
    const struct pace_span *x = a, *y = b;
    const double left = x->s * y->units, right = y->s * x->units;
    return left < right ? -1 : left > right;
}

bool pace_speed(const struct pace *p, double *units_s, double *tokens_s)
{
    struct pace_span sorted[PACE_SPANS];
    const int n = p->n < PACE_SPANS ? (int)p->n : PACE_SPANS;
    double units = 0, tokens = 0, s = 0;
    if (!n) return false;
    memcpy(sorted, p->span, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, fastest_first);
    for (int i = n / 4; i < n - n / 4; i++) {
        units += sorted[i].units;
        tokens += sorted[i].tokens;
        s += sorted[i].s;
    }
    *units_s = units / s;
    *tokens_s = tokens / s;
    return true;
}
