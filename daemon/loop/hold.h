/* hold.h: decides when a running attempt must save and stop, because its job's time is over
 * (wall.h) or its node is drained (cordon.h), and when its time to save is over. The decision is a
 * verdict, as in attempt.h. */
#ifndef SEQD_DAEMON_LOOP_HOLD_H
#define SEQD_DAEMON_LOOP_HOLD_H

#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"

/* Decides for an attempt that has not ended. Called once a second. grace_ms is the time for
 * saving. */
void hold_tick(const struct cluster *k, struct job *j, int64_t now_ms, int64_t grace_ms,
               struct verdict *v);

#endif
