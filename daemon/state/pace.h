/* pace.h: the present speed of an attempt, from its last reports. Preparation, the first steps and
 * a pause long ago do not count. Pure, in memory alone: after a restart of seqd the next report
 * begins it again.
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
    int64_t n; /* spans so far: the last PACE_SPANS are kept, in a circle */
    struct pace_span span[PACE_SPANS];
    struct rank_progress last; /* start of the next span */
};

/* Adds a report. A report of another unit or another start, or with fewer units, fewer tokens or
 * less time than the last, drops all spans before it is added. A report without new units joins
 * its time to the next span. */
void pace_add(struct pace *p, const struct rank_progress *now);
/* Computes the speed over the spans, without the fastest and the slowest quarter of them. false:
 * there is no span. */
bool pace_speed(const struct pace *p, double *units_s, double *tokens_s);

#endif
