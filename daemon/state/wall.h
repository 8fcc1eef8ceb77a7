/* wall.h: limits.wall_s, the time that a job may run in all its attempts together. The time of an
 * attempt counts from READY, when all its ranks are ready, to its end. The time in the queue, in
 * preparation, during a start or while suspended does not count. Time is measured by the loop's
 * clock, which people cannot set. Only the time while seqd is down is measured by the wall clock.
 * The functions are pure. */
#ifndef SEQD_DAEMON_STATE_WALL_H
#define SEQD_DAEMON_STATE_WALL_H

#include "daemon/state/attempt.h"

/* A job is warned before its limit. The time between the warning and the limit is a twentieth of
 * the limit. It is at least WALL_WARN_MS, and at least the time in which the newest checkpoint was
 * saved. */
#define WALL_WARN_SHARE 20
#define WALL_WARN_MS    2000 /* jobs are checked once a second */

/* Returns the time that is left, or -1 if there is no limit. */
int64_t wall_left_ms(const struct job *j, int64_t now_ms);
/* Tells whether the warning before the limit, or the end at the limit, is due. If one of them is
 * due, *ev is its event. */
bool wall_due(const struct job *j, int64_t now_ms, struct event *ev);

#endif
