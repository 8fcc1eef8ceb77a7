/* store_check.h: checks whether the database file is sound, as far as time allows. Used by
 * store.c. */
#ifndef SEQD_DAEMON_STORE_STORE_CHECK_H
#define SEQD_DAEMON_STORE_STORE_CHECK_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* Runs SQLite's quick_check for at most limit_ms. If the time ends first, part of the file is not
 * checked, which is logged; an old SQLite does not check a large file at all. A value of another
 * type than its column's is logged and does not count as damage, because the code that reads the
 * row reports it. Fails with ERR_CORRUPT, whose text is the first damage that was found. Fails
 * with ERR_IO if the disk could not be read, because that is not damage. */
int store_check(struct sqlite3 *db, const char *path, int64_t limit_ms, struct err *e);

/* Writes the bytes of the log again in place, which needs no space, and syncs them. After a failed
 * sync the log may have commits that are not on the disk; after this call they are. Fails with
 * ERR_IO. */
int store_settle_log(struct sqlite3 *db, const char *path, struct err *e);

#endif
