/* replay.h: loads jobs from the store by folding their events. Also loads the attempts that may
 * still run. */
#ifndef SEQD_DAEMON_LOOP_REPLAY_H
#define SEQD_DAEMON_LOOP_REPLAY_H

#include "daemon/loop/commit.h"

/* Fills the cluster. It must be called before anything else uses the cluster. Fails as store_load
 * does. A job that cannot be read counts as failed from now on, and its row has the reason. */
int replay(struct commits *all, struct err *e);

#endif
