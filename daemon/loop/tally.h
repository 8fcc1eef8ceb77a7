/* tally.h: counts the disk space that each user's live and ended jobs take. It counts in the
 * background, page by page of the table of jobs, so that neither the reader nor the thread of the
 * logs is delayed. Rows and logs are on seqd's disk. Checkpoints and artifacts are on nodes'
 * disks. Their sizes are those that the ranks reported when they wrote them. Uploads are not
 * counted, because they have a separate limit.
 *
 * If a user's jobs take more than the limit, each running job of the user gets one note. It gets a
 * second note only if the jobs have taken less than the limit in the meantime. All functions are
 * called on the loop thread. */
#ifndef SEQD_DAEMON_LOOP_TALLY_H
#define SEQD_DAEMON_LOOP_TALLY_H

#include "daemon/loop/commit.h"
#include "daemon/loop/removal.h"

#define TALLY_MS 30000 /* time from the end of one tally to the beginning of the next */

struct disk_tally;

/* Creates a tally, which borrows both arguments. */
struct disk_tally *tally_create(struct commits *all, struct removals *r);
void tally_destroy(struct disk_tally *t); /* call it after the store is closed; NULL is allowed */
/* Returns the UTC time at which the last whole tally ended, or 0 if none has ended. */
int64_t tally_at_ms(const struct disk_tally *t);

#endif
