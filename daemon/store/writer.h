/* writer.h: the thread that commits requests, in groups, each request in a savepoint (store.h).
 * It has the connection that writes and checkpoints; a write that fails for another cause than a
 * full disk ends the process. For store.c. Loop thread, except where it says otherwise. */
#ifndef SEQD_DAEMON_STORE_WRITER_H
#define SEQD_DAEMON_STORE_WRITER_H

#include "daemon/store/answers.h"
#include "daemon/store/store.h"

struct sqlite3;
struct disk_space;
struct store_reader;
struct store_writer;
struct wal;

struct writer_options { /* borrowed until writer_destroy */
    struct loop *loop;
    struct sqlite3 *db; /* the writer's alone from writer_start on */
    const char *path;   /* path of the database, for errors */
    struct wal *wal;    /* log of db; the writer's alone, too */
    struct disk_space *space;
    struct answers *out;
};

/* Prepares the statements of requests. fails: as schema_damaged. */
struct store_writer *writer_create(const struct writer_options *o, struct err *e);
/* Starts the thread. r: waits while the log is emptied; borrowed until writer_stop returns. */
void writer_start(struct store_writer *w, struct store_reader *r);
/* Commits the queued requests, or drops them when seqd stops on a full disk; then ends the thread.
 * Only for a writer that was started. A later request is dropped, too: its answer is ERR_PEER. */
void writer_stop(struct store_writer *w);
void writer_destroy(struct store_writer *w); /* call after its answers were given; NULL allowed */

/* writer_commit, writer_health and writer_moved do the work of store_commit, store_health (but for
 * `full`) and store_moved. */
void writer_commit(struct store_writer *w, struct store_txn *t, store_done *done, void *arg);
void writer_health(struct store_writer *w, struct store_health *out);
bool writer_moved(struct store_writer *w);

#endif
