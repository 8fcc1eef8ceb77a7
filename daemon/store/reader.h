/* reader.h: the thread that answers queries. It has a connection of its own, which neither writes
 * nor checkpoints. Only the files of the store use it. Functions are called on the loop thread
 * unless their comment says otherwise. */
#ifndef SEQD_DAEMON_STORE_READER_H
#define SEQD_DAEMON_STORE_READER_H

#include "daemon/store/answers.h"
#include "daemon/store/store.h"

struct store_reader;

/* Opens the database at path. The writer's connection must have set it up. Borrows path and out.
 * Fails as schema_damaged does. */
struct store_reader *reader_create(const char *path, struct answers *out, struct err *e);
void reader_start(struct store_reader *r);
/* Asks as store_read does. After reader_stop every query fails with ERR_PEER. */
void reader_ask(struct store_reader *r, enum store_ask what, const int64_t n[4], const char *text,
                store_answer *answer, void *arg);
/* Answers the queued queries, and then ends the thread. May be called only if the reader was
 * started. */
void reader_stop(struct store_reader *r);
void reader_destroy(struct store_reader *r); /* call it after reader_stop; r may be NULL */

/* The writer calls reader_hold and reader_release. Between these two calls no query uses the log.
 * reader_hold waits until the running query has ended, which takes at most STORE_QUERY_MS. */
void reader_hold(struct store_reader *r);
void reader_release(struct store_reader *r);

#endif
