/* store_check.h: checks whether the database file is sound, as far as time allows. Used by
 * store.c. */
#ifndef SEQD_DAEMON_STORE_STORE_CHECK_H
#define SEQD_DAEMON_STORE_STORE_CHECK_H

#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* Runs SQLite's quick_check for at most limit_ms. If the time is over before the end, a part of
 * the file is not checked, and this is logged. With an old SQLite, a large file is not checked at
 * all. If the type of a value differs from that of its column, this is logged and does not count
 * as damage, because the code that reads the row reports it. Fails with ERR_CORRUPT; the text is
 * the first damage that was found. Fails with ERR_IO if the disk could not be read, because that
 * is not damage. */
int store_check(struct sqlite3 *db, const char *path, int64_t limit_ms, struct err *e);

/* Writes the bytes of the log again in place, which needs no space, and syncs them. If an earlier
 * sync failed, the log may have commits that are not on the disk. After this call they are on the
 * disk. Fails with ERR_IO. */
int store_settle_log(struct sqlite3 *db, const char *path, struct err *e);

#endif
