/* hold.h: decides when a running attempt is to save and stop, because its job's time is over
 * (wall.h) or its node is drained (cordon.h), and when it has had its time to save. The decision is
 * a verdict, as in attempt.h. */
#ifndef SEQD_DAEMON_LOOP_HOLD_H
#define SEQD_DAEMON_LOOP_HOLD_H

#include "daemon/state/attempt.h"
#include "daemon/state/cluster.h"

/* Decides once a second, for an attempt that has not ended. grace_ms: time for saving. */
void hold_tick(const struct cluster *k, struct job *j, int64_t now_ms, int64_t grace_ms,
               struct verdict *v);

#endif
