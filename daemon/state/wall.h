/* wall.h: limits.wall_s: how long a job may run, over all its attempts. The time from READY, when
 * all its ranks are ready, to the attempt's end counts: neither the queue nor preparing nor a
 * start, and no time in which it is suspended. Measured by the loop's clock, which no one sets; the
 * time that seqd is away, by the wall clock. Pure. */
#ifndef SEQD_DAEMON_STATE_WALL_H
#define SEQD_DAEMON_STATE_WALL_H

#include "daemon/state/attempt.h"

/* A warning comes so long before the limit: a twentieth of it, and at least this time and the time
 * that the newest checkpoint took. */
#define WALL_WARN_SHARE 20
#define WALL_WARN_MS    2000 /* jobs are looked at once a second */

/* Returns the time that is left; -1: there is no limit. */
int64_t wall_left_ms(const struct job *j, int64_t now_ms);
/* Tells whether it is time for the warning, or for the end: *ev. */
bool wall_due(const struct job *j, int64_t now_ms, struct event *ev);

#endif
