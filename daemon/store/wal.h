/* wal.h: SQLite's write-ahead log: when it is checkpointed, and when it is emptied. Only the
 * connection that writes does either. For store_open, then for the writer's thread. */
#ifndef SEQD_DAEMON_STORE_WAL_H
#define SEQD_DAEMON_STORE_WAL_H

#include <stdbool.h>
#include <stdint.h>

struct sqlite3;
struct store_reader;

#define WAL_BUSY_MS 5000 /* wait for another connection's lock; a checkpoint does not wait */

struct wal {
    struct sqlite3 *db;    /* borrowed */
    int64_t pages;         /* pages in the log */
    int64_t checkpoint_at; /* bytes of the log; 0: not known yet */
    int page_size;         /* bytes */
};

/* Sets up w, which must not move while db is open: a hook of db counts the log's pages in w. */
void wal_init(struct wal *w, struct sqlite3 *db, int page_size);
int64_t wal_size(const struct wal *w); /* bytes of the log */

/* Checkpoints the whole log and truncates its file. Returns a code of SQLite; SQLITE_BUSY: a reader
 * or a full disk left the log as it was. */
int wal_empty(struct wal *w);
/* Checkpoints the log when enough was written since the last time. Called after each group. A
 * checkpoint costs a sync of the database, so the log may grow more while requests wait (not
 * idle), and less on a full disk. A log that has grown too long is emptied, unless the disk is
 * full; r is held meanwhile. Returns SQLITE_OK also when a reader or a full disk left the log as
 * it was: a later call tries again. */
int wal_keep_short(struct wal *w, struct store_reader *r, bool idle, bool full);

#endif
