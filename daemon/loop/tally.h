/* tally.h: the disk space that each user's jobs take, live and ended: counted in the background,
 * page by page of the table of jobs, so that neither the reader nor the thread of the logs is held
 * up. Rows and logs are on seqd's disk. Checkpoints and artifacts are on nodes' disks, and count
 * with the sizes that the ranks that wrote them reported. Uploads are not in it: they have a limit
 * of their own.
 *
 * A job that runs while its user's jobs take more than the limit gets one note, and another only
 * after they have taken less. Loop thread. */
#ifndef SEQD_DAEMON_LOOP_TALLY_H
#define SEQD_DAEMON_LOOP_TALLY_H

#include "daemon/loop/commit.h"
#include "daemon/loop/removal.h"

#define TALLY_MS 30000 /* from the end of a tally to the next */

struct disk_tally;

/* Creates a tally, which borrows both arguments. */
struct disk_tally *tally_create(struct commits *all, struct removals *r);
void tally_destroy(struct disk_tally *t); /* after the store; NULL allowed */
/* Returns the UTC time at which the last whole tally ended; 0: none has. */
int64_t tally_at_ms(const struct disk_tally *t);

#endif
