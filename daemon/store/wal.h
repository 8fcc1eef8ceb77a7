/* wal.h: decides when SQLite's write-ahead log is checkpointed and when it is emptied. Only the
 * connection that writes does this. The functions are called by store_open, and later on the
 * writer's thread. */
#ifndef SEQD_DAEMON_STORE_WAL_H
#define SEQD_DAEMON_STORE_WAL_H

#include <stdbool.h>
#include <stdint.h>

struct sqlite3;
struct store_reader;

/* longest wait for a lock that a different connection holds; a checkpoint does not wait */
#define WAL_BUSY_MS 5000

struct wal {
    struct sqlite3 *db;    /* borrowed */
    int64_t pages;         /* pages in the log */
    int64_t checkpoint_at; /* bytes of the log at which the next checkpoint is made; 0 if not known
                            * yet */
    int page_size;         /* bytes */
    int busy_ms;           /* as WAL_BUSY_MS, which is its first value */
};

/* Sets up w. w must remain at its address while `db` is open, because a hook of `db` counts the
 * log's pages in w. */
void wal_init(struct wal *w, struct sqlite3 *db, int page_size);
void wal_wait_ms(struct wal *w, int ms); /* sets busy_ms */
int64_t wal_size(const struct wal *w);   /* bytes of the log */

/* Checkpoints the whole log and truncates its file. Returns a code of SQLite. SQLITE_BUSY means
 * that a reader or a full disk prevented it, and that the log is unchanged. */
int wal_empty(struct wal *w);
/* Checkpoints the log if enough bytes were written since the last checkpoint. It is called after
 * each group. A checkpoint costs a sync of the database, so the log may grow more while requests
 * wait (idle is false), and less while the disk is full. If the log has grown too long and the
 * disk is not full, the log is emptied, and r answers no query in the meantime. If a reader or a
 * full disk prevents this, also returns SQLITE_OK, because a later call tries again. */
int wal_keep_short(struct wal *w, struct store_reader *r, bool idle, bool full);

#endif
