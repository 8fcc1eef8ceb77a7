/* disk.h: measures at intervals the disk space of this node's jobs and prepared data, on the
 * thread of the agent's trees. Loop thread. */
#ifndef SEQD_AGENT_DISK_H
#define SEQD_AGENT_DISK_H

#include "api/core/loop.h"
#include "api/trees.h"
#include "api/wire.h"

#define DISK_MEASURE_MS 30000 /* from the end of one measurement to the next */

struct disk_watch;

/* Begins to measure. dir: the state directory. t is borrowed; destroy it before the watch. */
struct disk_watch *disk_watch_create(struct loop *l, struct trees *t, const char *dir);
void disk_watch_destroy(struct disk_watch *d); /* NULL allowed */
/* Returns the last measurement; size 0: none yet. */
struct disk_use disk_watch_use(const struct disk_watch *d);

#endif
