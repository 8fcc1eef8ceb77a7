/* disk.h: measures at intervals the disk space that this node's jobs and prepared data use.
 * The agent's thread for directory trees (trees.h) does the work. The functions are called on
 * the loop thread. */
#ifndef SEQD_AGENT_DISK_H
#define SEQD_AGENT_DISK_H

#include "api/core/loop.h"
#include "api/trees.h"
#include "api/wire.h"

#define DISK_MEASURE_MS 30000 /* time from the end of one measurement to the next */

struct disk_watch;

/* Begins to measure. dir is the directory that has jobs/ and prepared/. t is borrowed, and must
 * be destroyed before the returned watch is destroyed. */
struct disk_watch *disk_watch_create(struct loop *l, struct trees *t, const char *dir);
void disk_watch_destroy(struct disk_watch *d); /* accepts NULL */
/* Returns the last measurement. Its size is 0 if nothing has been measured yet. */
struct disk_use disk_watch_use(const struct disk_watch *d);

#endif
