/* store_check.h: is the database file sound, as far as there is time to look? For store.c. */
#ifndef SEQD_DAEMON_STORE_STORE_CHECK_H
#define SEQD_DAEMON_STORE_STORE_CHECK_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* Runs SQLite's quick_check for at most limit_ms. A file that is too large for that is not checked,
 * which is logged. A value of another type than its column's is logged and does not count as
 * damage: the caller that reads that row sees it. fails: ERR_CORRUPT with the first damage found;
 * ERR_IO where the disk could not be read, which is no damage. */
int store_check(struct sqlite3 *db, const char *path, int64_t limit_ms, struct err *e);

/* Commits that the log has and the disk may not, after a sync that failed, are on disk from here
 * on: the same bytes are written where they are, which needs no room, and synced. fails: ERR_IO. */
int store_settle_log(struct sqlite3 *db, const char *path, struct err *e);

#endif
