/* remove.h: removes rows, some hundred in each transaction. Used by writer.c and store.c. */
#ifndef SEQD_DAEMON_STORE_REMOVE_H
#define SEQD_DAEMON_STORE_REMOVE_H

#include <stdint.h>

struct sqlite3;

/* Selects the largest `column` that `table` has or ever had. It is needed because ids of removed
 * rows must not be used again. */
#define REMOVE_LAST(column, table)                                                                 \
    "SELECT max(coalesce((SELECT max(" column ") FROM " table "), 0), coalesce((SELECT "           \
    "CAST(value AS INTEGER) FROM meta WHERE key = 'last." table "'), 0))"
/* Writes the largest ids of jobs and events into meta, before their rows are removed. */
#define REMOVE_LAST_KEEP                                                                           \
    "INSERT INTO meta (key, value) SELECT 'last.jobs', coalesce(max(id), 0) FROM jobs "            \
    "UNION ALL SELECT 'last.events', coalesce(max(seq), 0) FROM events WHERE true "                \
    "ON CONFLICT (key) DO UPDATE SET value = max(CAST(value AS INTEGER), "                         \
    "CAST(excluded.value AS INTEGER))"

/* Deletes rows of the removals whose rows are due, beginning with the oldest: n rows or a few
 * more. Sets the next state of removals that have no rows left, and returns free pages to the file
 * system. *n_moved is the amount of work that was done; 0 means that no work is left. Runs on the
 * writer's thread, in the writer's transaction. Returns SQLITE_OK or the code of the failure. */
int remove_rows(struct sqlite3 *db, int n, int64_t at_ms, int64_t *n_moved);

/* Looks at the next n jobs, and enters those that have ended into the table `ended`. It is for a
 * database that was made without that table. *n_moved becomes 1, or 0 if no job is left. The
 * return value is that of remove_rows. */
int remove_fill(struct sqlite3 *db, int n, int64_t *n_moved);

#endif
