/* wall.h: limits.wall_s: how long a job may run, over all its attempts. What counts is the time
 * from READY, when all its ranks are, to the attempt's end: neither the queue nor preparing nor a
 * start, and no time in which it is suspended. Measured by the loop's clock, which no one sets; the
 * time that seqd is away, by the wall clock. Pure. */
#ifndef SEQD_DAEMON_WALL_H
#define SEQD_DAEMON_WALL_H

#include "daemon/attempt.h"

/* So long before the limit there is a warning: a twentieth of it, and at least this time and what
 * the newest checkpoint took. */
#define WALL_WARN_SHARE 20
#define WALL_WARN_MS    2000 /* jobs are looked at once a second */

/* What is left of it; -1: there is no limit. */
int64_t wall_left_ms(const struct job *j, int64_t now_ms);
/* Whether it is time for the warning, or for the end: *ev. */
bool wall_due(const struct job *j, int64_t now_ms, struct event *ev);

#endif
