/* order.h: what clients ask of existing jobs and nodes: cancel, restart, release. Loop thread.
 * by: the user whose request it is; the event has it. */
#ifndef SEQD_DAEMON_ORDER_H
#define SEQD_DAEMON_ORDER_H

#include "daemon/commit.h"

/* fails through done: ERR_NOT_FOUND when it is not live. Cancelling twice is no error. */
void order_cancel(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg);

/* Gives up the checkpoint that a queued job waits for while its node is away: it starts again where
 * there is room, or from what checkpoint.resume or that node's own job directory has. fails through
 * done: ERR_NOT_FOUND; ERR_CONFLICT when it waits for no such node. */
void order_restart(struct commits *all, int64_t id, const char *by, commit_done *done, void *arg);

/* Ends a node's quarantine. fails through done, whose j is always NULL: ERR_NOT_FOUND; ERR_CONFLICT
 * when it is in none. */
void order_release(struct commits *all, const char *node, commit_done *done, void *arg);

#endif
