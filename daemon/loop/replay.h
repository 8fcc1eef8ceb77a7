/* replay.h: jobs from the store: the fold of their events, with the attempts that may still run. */
#ifndef SEQD_DAEMON_LOOP_REPLAY_H
#define SEQD_DAEMON_LOOP_REPLAY_H

#include "daemon/loop/commit.h"

/* Fills the cluster, before anything else happens. fails: as store_load. A job that cannot be read
 * is failed from now on, and its row says why. */
int replay(struct commits *all, struct err *e);

#endif
