/* pace.h: the present speed of an attempt, computed from its last reports. Preparation, the first
 * steps and earlier pauses do not count. It is kept only in memory, so after a restart of seqd it
 * begins again with the next report. The functions are pure. tested:
 * tests/daemon/test_seqd_pace.c */
#ifndef SEQD_DAEMON_STATE_PACE_H
#define SEQD_DAEMON_STATE_PACE_H

#include <stdbool.h>
#include "api/core/rank.h"

#define PACE_SPANS 16

/* Work between two reports. */
struct pace_span {
    double units, tokens, s;
};

struct pace {
    int64_t n; /* number of all spans; the last PACE_SPANS are kept in a ring buffer */
    struct pace_span span[PACE_SPANS];
    struct rank_progress last; /* start of the next span */
};

/* Adds a report. If the unit or the start differs from the last report, or if units, tokens or
 * time are less than in the last report, all spans are dropped first. If the report has no new
 * units, its time is added to the next span. */
void pace_add(struct pace *p, const struct rank_progress *now);
/* Computes the speed over the spans, without the fastest quarter and the slowest quarter of them.
 * Returns false if there is no span. */
bool pace_speed(const struct pace *p, double *units_s, double *tokens_s);

#endif
