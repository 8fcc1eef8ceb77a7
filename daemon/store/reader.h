/* reader.h: the thread that answers queries, over a connection of its own that neither writes nor
 * checkpoints. For the files of the store. Loop thread, except where it says otherwise. */
#ifndef SEQD_DAEMON_STORE_READER_H
#define SEQD_DAEMON_STORE_READER_H

#include "daemon/store/answers.h"
#include "daemon/store/store.h"

struct store_reader;

/* Opens the database at path, which the writer's connection has set up. path and out are borrowed.
 * fails: as schema_damaged. */
struct store_reader *reader_create(const char *path, struct answers *out, struct err *e);
void reader_start(struct store_reader *r);
/* Asks as store_read. After reader_stop every query fails with ERR_PEER. */
void reader_ask(struct store_reader *r, enum store_ask what, const int64_t n[4], const char *text,
                store_answer *answer, void *arg);
/* Answers the queries that were asked, then ends the thread. Only for a reader that was started. */
void reader_stop(struct store_reader *r);
void reader_destroy(struct store_reader *r); /* after reader_stop; NULL allowed */

/* reader_hold and reader_release are called by the writer; between them no query uses the log.
 * reader_hold waits for the query that runs, at most STORE_QUERY_MS. */
void reader_hold(struct store_reader *r);
void reader_release(struct store_reader *r);

#endif
