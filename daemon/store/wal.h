/* wal.h: decides when SQLite's write-ahead log is checkpointed and when it is emptied. Only the
 * connection that writes does either. It is called by store_open and then on the writer's
 * thread. */
#ifndef SEQD_DAEMON_STORE_WAL_H
#define SEQD_DAEMON_STORE_WAL_H

#include <stdbool.h>
#include <stdint.h>

struct sqlite3;
struct store_reader;

/* longest wait for another connection's lock; a checkpoint does not wait */
#define WAL_BUSY_MS 5000

struct wal {
    struct sqlite3 *db;    /* borrowed */
    int64_t pages;         /* pages in the log */
    int64_t checkpoint_at; /* bytes of the log, or 0 if that is not known yet */
    int page_size;         /* bytes */
};

/* Sets up w, which must not move while db is open, because a hook of db counts the log's pages in
 * it. */
void wal_init(struct wal *w, struct sqlite3 *db, int page_size);
int64_t wal_size(const struct wal *w); /* bytes of the log */

/* Checkpoints the whole log and truncates its file. Returns a code of SQLite, which is SQLITE_BUSY
 * if a reader or a full disk prevented it and the log is unchanged. */
int wal_empty(struct wal *w);
/* Checkpoints the log if enough was written since the last time. It is called after each group. A
 * checkpoint costs a sync of the database. For that reason the log may grow more while requests
 * wait (idle is false), and less on a full disk. A log that has grown too long is emptied unless
 * the disk is full, and r is held during that time. If a reader or a full disk leaves the log
 * unchanged, returns SQLITE_OK all the same, because a later call tries again. */
int wal_keep_short(struct wal *w, struct store_reader *r, bool idle, bool full);

#endif
