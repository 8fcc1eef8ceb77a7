/* wall.h: limits.wall_s, the time that a job may run over all its attempts. The time of an attempt
 * counts from READY, when all its ranks are ready, to its end. The time in the queue, in
 * preparation, during a start or while suspended does not count. It is measured by the loop's
 * clock, which people cannot set, and by the wall clock while seqd is down. The functions are
 * pure. */
#ifndef SEQD_DAEMON_STATE_WALL_H
#define SEQD_DAEMON_STATE_WALL_H

#include "daemon/state/attempt.h"

/* A job is warned before the limit. The warning comes a twentieth of the limit before it, but at
 * least WALL_WARN_MS and at least the time that the newest checkpoint took. */
#define WALL_WARN_SHARE 20
#define WALL_WARN_MS    2000 /* jobs are checked once a second */

/* Returns the time that is left, or -1 if there is no limit. */
int64_t wall_left_ms(const struct job *j, int64_t now_ms);
/* Tells whether the warning or the end is due. If so, *ev is the event of that warning or end. */
bool wall_due(const struct job *j, int64_t now_ms, struct event *ev);

#endif
