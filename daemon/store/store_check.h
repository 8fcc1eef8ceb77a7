/* store_check.h: checks whether the database file is sound, as far as time allows. For store.c. */
#ifndef SEQD_DAEMON_STORE_STORE_CHECK_H
#define SEQD_DAEMON_STORE_STORE_CHECK_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* Runs SQLite's quick_check for at most limit_ms. If the time ends first, part of the file is not
 * checked, which is logged; an old SQLite checks no large file at all. A value of another type
 * than its column's is logged and does not count as damage: the caller that reads that row sees
 * it. fails: ERR_CORRUPT with the first damage found; ERR_IO where the disk could not be read,
 * which is no damage. */
int store_check(struct sqlite3 *db, const char *path, int64_t limit_ms, struct err *e);

/* Writes the bytes of the log again where they are, which needs no room, and syncs them. After a
 * failed sync the log may have commits that the disk has not: from here on they are on disk.
 * fails: ERR_IO. */
int store_settle_log(struct sqlite3 *db, const char *path, struct err *e);

#endif
