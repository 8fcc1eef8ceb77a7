/* reader.c: runs one query at a time, in the order in which they were asked. The mutex guards the
 * queue and the gate. Once the thread runs, only the thread uses the connection. */
#include "daemon/store/reader.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/clock.h"
#include "api/core/log.h"
#include "api/core/thread.h"
#include "daemon/store/query.h"
#include "daemon/store/schema.h"
#include "daemon/store/txn.h"
#include "daemon/store/wal.h"

struct store_reader {
    const char *path;
    struct answers *out;
    sqlite3 *db;
    pthread_t thread;
    int64_t query_end_ms; /* used only by the reader's thread */
    pthread_mutex_t mutex;
    pthread_cond_t wake, gate_wake;
    bool stop;
    bool reading, gate; /* reading: a query is running; gate: no query may begin */
    struct query *first, **last;
};

static int on_progress(void *arg)
{
    const struct store_reader *r = arg;
    return clock_ms() >= r->query_end_ms;
}

static int open_database(struct store_reader *r, struct err *e)
{
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(r->path, &r->db, flags, NULL) != SQLITE_OK ||
        sqlite3_exec(r->db, "PRAGMA query_only=ON; PRAGMA wal_autocheckpoint=0", NULL, NULL,
                     NULL) != SQLITE_OK)
        return schema_damaged(r->db, r->path, e);
    sqlite3_extended_result_codes(r->db, 1);
    sqlite3_busy_timeout(r->db, WAL_BUSY_MS);
    sqlite3_progress_handler(r->db, 10000, on_progress, r);
    return 0;
}

struct store_reader *reader_create(const char *path, struct answers *out, struct err *e)
{
    struct store_reader *r = txn_must(calloc(1, sizeof *r));
    r->path = path;
    r->out = out;
    r->last = &r->first;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->wake, NULL);
    pthread_cond_init(&r->gate_wake, NULL);
    if (!open_database(r, e)) return r;
    reader_destroy(r);
    return NULL;
}

void reader_destroy(struct store_reader *r)
{
    if (!r) return;
    sqlite3_close(r->db);
    pthread_cond_destroy(&r->gate_wake);
    pthread_cond_destroy(&r->wake);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

static void give_ask(struct answer *out)
{
    struct query *a = (struct query *)out;
    static const struct store_rows none;
    a->call(a->arg, a->err.code ? &none : &a->rows, a->err.code ? &a->err : NULL);
    query_free(a);
}

static void *reader_main(void *arg)
{
    struct store_reader *r = arg;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while ((!r->first && !r->stop) || r->gate) pthread_cond_wait(&r->wake, &r->mutex);
        struct query *a = r->first;
        if (!a) break;
        r->reading = true;
        r->first = a->next;
        if (!r->first) r->last = &r->first;
        pthread_mutex_unlock(&r->mutex);
        r->query_end_ms = clock_ms() + STORE_QUERY_MS;
        query_run(r->db, a);
        if (a->err.code) log_error("store.read", "file=%s text=\"%s\"", r->path, a->err.text);
        answers_send(r->out, &a->answer, give_ask);
        pthread_mutex_lock(&r->mutex);
        r->reading = false;
        pthread_cond_signal(&r->gate_wake);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

void reader_start(struct store_reader *r)
{
    thread_must_start(&r->thread, NULL, reader_main, r);
}

void reader_stop(struct store_reader *r)
{
    pthread_mutex_lock(&r->mutex);
    r->stop = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
    pthread_join(r->thread, NULL);
}

void reader_ask(struct store_reader *r, enum store_ask what, const int64_t n[4], const char *text,
                store_answer *answer, void *arg)
{
    struct query *a = txn_must(calloc(1, sizeof *a));
    a->what = what;
    if (n) memcpy(a->n, n, sizeof a->n);
    a->text = txn_copy(text);
    a->call = answer;
    a->arg = arg;
    if (r->stop) {
        err_set(&a->err, ERR_PEER, "seqd is stopping: ask again when it is back");
        answers_send(r->out, &a->answer, give_ask);
        return;
    }
    pthread_mutex_lock(&r->mutex);
    *r->last = a;
    r->last = &a->next;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}

void reader_hold(struct store_reader *r)
{
    pthread_mutex_lock(&r->mutex);
    r->gate = true;
    while (r->reading) pthread_cond_wait(&r->gate_wake, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

void reader_release(struct store_reader *r)
{
    pthread_mutex_lock(&r->mutex);
    r->gate = false;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->mutex);
}
