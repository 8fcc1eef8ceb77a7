/* wall.h: limits.wall_s: how long a job may run, over all its attempts. The time counts from
 * READY, when all ranks of an attempt are ready, to its end. Time in the queue, in preparation, in
 * a start or suspended does not count. The clock is the loop's, which is never set; while seqd is
 * away, it is the wall clock. Pure. */
#ifndef SEQD_DAEMON_STATE_WALL_H
#define SEQD_DAEMON_STATE_WALL_H

#include "daemon/state/attempt.h"

/* A warning comes before the limit: by a twentieth of the limit, but at least by WALL_WARN_MS and
 * by the time that the newest checkpoint took. */
#define WALL_WARN_SHARE 20
#define WALL_WARN_MS    2000 /* jobs are looked at once a second */

/* Returns the time that is left; -1: there is no limit. */
int64_t wall_left_ms(const struct job *j, int64_t now_ms);
/* Tells whether it is time for the warning, or for the end: *ev. */
bool wall_due(const struct job *j, int64_t now_ms, struct event *ev);

#endif
