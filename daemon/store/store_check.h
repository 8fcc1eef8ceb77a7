/* store_check.h: checks whether the database file is sound, as far as time allows. Used by
 * store.c. */
#ifndef SEQD_DAEMON_STORE_STORE_CHECK_H
#define SEQD_DAEMON_STORE_STORE_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

struct sqlite3;

/* Runs SQLite's quick_check for at most limit_ms. If the time is over before the end, a part of
 * the file is not checked, and this is logged. Before SQLite 3.43 the whole file is checked. If the
 * type of a value differs from that of its column, this is logged and does not count
 * as damage, because the code that reads the row reports it. Fails with ERR_CORRUPT; the text is
 * the first damage that was found. Fails with ERR_IO if the disk could not be read, because that
 * is not damage. */
int store_check(struct sqlite3 *db, const char *path, int64_t limit_ms, struct err *e);

/* Writes the bytes of the log again in place, which needs no space, and syncs them. If an earlier
 * sync failed, the log may have commits that are not on the disk. After this call they are on the
 * disk. Fails with ERR_IO. */
int store_settle_log(struct sqlite3 *db, const char *path, struct err *e);

/* Called now and then while a check runs. If it returns true, the check ends. */
typedef bool store_check_stop(void *arg);
/* Runs quick_check on one table after the other, without a limit of time. Each table is read as of
 * one moment, so the log can be reset between two tables. Fails as store_check does, and with
 * ERR_ABORTED if it was stopped. Before SQLite 3.43 the check of a table cannot be stopped. */
int store_check_tables(struct sqlite3 *db, const char *path, store_check_stop *stop, void *arg,
                       struct err *e);

#endif
