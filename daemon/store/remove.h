/* remove.h: removes rows, some hundred in a transaction. For writer.c and store.c. */
#ifndef SEQD_DAEMON_STORE_REMOVE_H
#define SEQD_DAEMON_STORE_REMOVE_H

#include <stdint.h>

struct sqlite3;

/* Selects the largest `column` that `table` has or had: ids of removed rows are not given again. */
#define REMOVE_LAST(column, table)                                                                 \
    "SELECT max(coalesce((SELECT max(" column ") FROM " table "), 0), coalesce((SELECT "           \
    "CAST(value AS INTEGER) FROM meta WHERE key = 'last." table "'), 0))"
/* Writes the largest ids of jobs and events into meta, before their rows are removed. */
#define REMOVE_LAST_KEEP                                                                           \
    "INSERT INTO meta (key, value) SELECT 'last.jobs', coalesce(max(id), 0) FROM jobs "            \
    "UNION ALL SELECT 'last.events', coalesce(max(seq), 0) FROM events WHERE true "                \
    "ON CONFLICT (key) DO UPDATE SET value = max(CAST(value AS INTEGER), "                         \
    "CAST(excluded.value AS INTEGER))"

/* Runs on the writer's thread, within its transaction. Deletes n rows, or a few more, of the
 * oldest removals whose rows are next, moves on removals that have no rows left, and gives free
 * pages back. *n_moved: how much it did; 0: there is nothing left to do. Returns SQLITE_OK or the
 * code of the failure. */
int remove_rows(struct sqlite3 *db, int n, int64_t at_ms, int64_t *n_moved);

/* Enters the next n jobs of a database that was made without the table `ended` into that table, if
 * they have ended. *n_moved: 1; 0: no job was left. Returns as remove_rows. */
int remove_fill(struct sqlite3 *db, int n, int64_t *n_moved);

#endif
