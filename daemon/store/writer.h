/* writer.h: the thread that commits requests in groups, each request in a savepoint (store.h). It
 * owns the connection that writes and checkpoints. If a write fails for any reason other than a
 * full disk, the process ends. Used by store.c. Functions are called on the loop thread unless
 * their comment says otherwise. */
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
    struct sqlite3 *db; /* used only by the writer from writer_start on */
    const char *path;   /* path of the database, for use in error texts */
    struct wal *wal;    /* the log of db; also used only by the writer */
    struct disk_space *space;
    struct answers *out;
};

/* Prepares the statements of requests. Fails as schema_damaged does. */
struct store_writer *writer_create(const struct writer_options *o, struct err *e);
/* Starts the thread. `r` is borrowed until writer_stop returns. Queries of r wait while the
 * thread empties the write-ahead log. */
void writer_start(struct store_writer *w, struct store_reader *r);
/* Commits the queued requests, and then ends the thread. On a full disk the queued requests are
 * dropped. Later requests are dropped, too. The answer to a dropped request is ERR_PEER. May be
 * called only if the writer was started. */
void writer_stop(struct store_writer *w);
/* call it after the writer's answers were given; w may be NULL */
void writer_destroy(struct store_writer *w);

/* The functions below do the work of those of store.h with the same endings. writer_health does
 * not set `full`. */
void writer_commit(struct store_writer *w, struct store_txn *t, store_done *done, void *arg);
void writer_gather(struct store_writer *w, struct store_txn *t, store_done *done, void *arg);
void writer_hold(struct store_writer *w, struct store_txn *t);
bool writer_holds(const struct store_writer *w);
void writer_expect(struct store_writer *w, struct store_coming *c);
void writer_health(struct store_writer *w, struct store_health *out);
bool writer_moved(struct store_writer *w);

#endif
