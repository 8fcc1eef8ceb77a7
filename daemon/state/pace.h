/* pace.h: the present speed of an attempt, computed from its last reports. Preparation, the first
 * steps and a pause long ago do not count. It is pure and kept only in memory, so after a restart
 * of seqd it begins again with the next report.
 * tested: tests/daemon/test_seqd_pace.c */
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
    int64_t n; /* number of all spans, of which the last PACE_SPANS are kept in a circle */
    struct pace_span span[PACE_SPANS];
    struct rank_progress last; /* start of the next span */
};

/* Adds a report. All spans are dropped first if the report has another unit or another start than
 * the last report, or fewer units, fewer tokens or less time. The time of a report without new
 * units is added to the next span. */
void pace_add(struct pace *p, const struct rank_progress *now);
/* Computes the speed over the spans, leaving out the fastest and the slowest quarter of them.
 * Returns false if there is no span. */
bool pace_speed(const struct pace *p, double *units_s, double *tokens_s);

#endif
