/* pace.h: counts tokens and the time that they took on this rank. */
#ifndef SEQD_INFER_PACE_H
#define SEQD_INFER_PACE_H

#include <math.h>
#include "api/core/clock.h"

struct infer_pace {
    int64_t n, us;
};

/* Adds n tokens and the time that has passed since begin_us (clock_us()). */
static inline void pace_until_now(struct infer_pace *p, int64_t n, int64_t begin_us)
{
    p->n += n;
    p->us += clock_us() - begin_us;
}

static inline void pace_sum(struct infer_pace *p, const struct infer_pace *more)
{
    p->n += more->n;
    p->us += more->us;
}

/* Returns tokens per second, or NaN if no token or no time was counted. */
static inline double pace_rate(const struct infer_pace *p)
{
    return p->n && p->us > 0 ? (double)p->n * 1e6 / (double)p->us : (double)NAN;
}

#endif
