/* hold.h: decides when a running attempt must save and stop. It must do so when its job's time is
 * over (wall.h) or when its node is drained (cordon.h). Also decides when the attempt's time for
 * saving is over. The decision is a verdict (attempt.h). */
#ifndef SEQD_DAEMON_LOOP_HOLD_H
#define SEQD_DAEMON_LOOP_HOLD_H

#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"

/* Decides for an attempt that has not ended. Call it once a second. grace_ms is the time for
 * saving. */
void hold_tick(const struct cluster *k, struct job *j, int64_t now_ms, int64_t grace_ms,
               struct verdict *v);

#endif
