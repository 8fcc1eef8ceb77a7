/* remove.h: removes rows, some hundred in a transaction. Used by writer.c and store.c. */
#ifndef SEQD_DAEMON_STORE_REMOVE_H
#define SEQD_DAEMON_STORE_REMOVE_H

#include <stdint.h>

struct sqlite3;

/* Selects the largest `column` that `table` has or ever had, because ids of removed rows must not
 * be given again. */
#define REMOVE_LAST(column, table)                                                                 \
    "SELECT max(coalesce((SELECT max(" column ") FROM " table "), 0), coalesce((SELECT "           \
    "CAST(value AS INTEGER) FROM meta WHERE key = 'last." table "'), 0))"
/* Writes the largest ids of jobs and events into meta, before their rows are removed. */
#define REMOVE_LAST_KEEP                                                                           \
    "INSERT INTO meta (key, value) SELECT 'last.jobs', coalesce(max(id), 0) FROM jobs "            \
    "UNION ALL SELECT 'last.events', coalesce(max(seq), 0) FROM events WHERE true "                \
    "ON CONFLICT (key) DO UPDATE SET value = max(CAST(value AS INTEGER), "                         \
    "CAST(excluded.value AS INTEGER))"

/* Deletes n rows, or a few more, of the oldest removals whose rows are due, advances removals that
 * have no rows left, and gives free pages back. *n_moved is the amount of work that it did; 0
 * means that no work is left. Runs on the writer's thread, within its transaction. Returns
 * SQLITE_OK or the code of the failure. */
int remove_rows(struct sqlite3 *db, int n, int64_t at_ms, int64_t *n_moved);

/* Enters the next n jobs into the table `ended`, if they have ended. It is for a database that was
 * made without that table. *n_moved becomes 1, or 0 if no job was left. Returns as remove_rows
 * does. */
int remove_fill(struct sqlite3 *db, int n, int64_t *n_moved);

#endif
