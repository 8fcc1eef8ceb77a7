/* writer.c: commits requests in groups. The loop thread queues the requests. The writer takes up
 * to STORE_GROUP of them, commits them as one transaction, and answers each after its COMMIT, in
 * the order of the queue. The mutex guards the queue and the figures of store_health.
 *
 * If the disk has no space for a group, the group is undone. The reserve is released, and the new
 * jobs of the group are refused. The other requests of the group are run again until they are
 * committed or seqd stops. Requests are committed in order.
 *
 * If there is no reserve left, or another program has locked the database, the group goes back to
 * the front of the queue, and the writer tries again after a while. In the meantime the loop thread
 * may take the requests of clients out of the queue. While a group is being tried, it is not in the
 * queue, so no request is withdrawn whose transaction SQLite has. */
#include "daemon/store/writer.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/log.h"
#include "api/core/thread.h"
#include "daemon/store/gather.h"
#include "daemon/store/remove.h"
#include "daemon/store/schema.h"
#include "daemon/store/space.h"
#include "daemon/store/txn.h"
#include "daemon/store/wal.h"

#define LOOK_MS 500 /* time between two looks at whether requests must be withdrawn */
#define BUSY_MS 50  /* time for which SQLite waits for a lock, and the pause after that */

/* Why the first group of the queue could not be written. */
enum blocked { BLOCKED_NOT, BLOCKED_FULL, BLOCKED_LOCKED };

struct store_writer {
    struct writer_options o;
    sqlite3_stmt *op[OP_N];
    struct store_reader *reader;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop;
    int n_queued;
    int64_t commit_ms, wal_size; /* as in struct store_health */
    /* look: writer_moved has asked the writer to check its queue; looked: the writer has checked
     * it */
    bool look, looked;
    struct store_txn *first, **last;
    enum blocked blocked;
    /* Used only by the loop thread. */
    struct gatherer gather;
    struct loop_timer *look_timer;
    int64_t blocked_ms; /* time of the first look that found the writer blocked; 0 if it is not */
    int n_waiting;
    int64_t answered_ms;
    /* used only by the writer */
    bool gave_up;      /* seqd is stopping and has dropped a group, so later groups are dropped,
                        * too */
    bool committing;   /* the step that failed last was the COMMIT of a group */
    const char *doing; /* name of the running step, for use in error texts */
};

/* ---- requests -------------------------------------------------------------------------------- */

static void give_txn(struct answer *a)
{
    struct store_txn *t = (struct store_txn *)a;
    t->writer->n_waiting--;
    t->writer->answered_ms = loop_now_ms(t->writer->o.loop);
    if (t->done) t->done(t->arg, t->err.code ? &t->err : NULL);
    txn_free(t);
}

/* Answers a request with the error that it is not stored because seqd stops. */
static void drop(struct store_writer *w, struct store_txn *t)
{
    err_set(&t->err, ERR_PEER,
            "seqd is stopping and has not stored this: send it again when it is back");
    answers_send(w->o.out, &t->answer, give_txn);
}

/* Hands requests to the writer (gather_take). */
static void take_over(void *arg, struct store_txn *first, struct store_txn **last, int n)
{
    struct store_writer *w = arg;
    if (!w->n_waiting) w->answered_ms = loop_now_ms(w->o.loop);
    if (!w->n_waiting) loop_timer_set(w->look_timer, LOOK_MS);
    w->n_waiting += n;
    if (w->stop) {
        for (struct store_txn *t = first, *next; t; t = next) {
            next = t->next;
            drop(w, t);
        }
        return;
    }
    pthread_mutex_lock(&w->mutex);
    *w->last = first;
    w->last = last;
    w->n_queued += n;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
}

static void address(struct store_writer *w, struct store_txn *t, store_done *done, void *arg)
{
    t->done = done;
    t->arg = arg;
    t->writer = w;
}

void writer_commit(struct store_writer *w, struct store_txn *t, store_done *done, void *arg)
{
    address(w, t, done, arg);
    gather_pass(&w->gather, t);
}

void writer_gather(struct store_writer *w, struct store_txn *t, store_done *done, void *arg)
{
    address(w, t, done, arg);
    if (w->stop)
        gather_pass(&w->gather, t);
    else
        gather_wait(&w->gather, t);
}

void writer_hold(struct store_writer *w, struct store_txn *t)
{
    address(w, t, NULL, NULL);
    gather_hold(&w->gather, t);
}

bool writer_holds(const struct store_writer *w)
{
    return w->gather.n > 0;
}

void writer_expect(struct store_writer *w, struct store_coming *c)
{
    gather_expect(&w->gather, c);
}

void writer_health(struct store_writer *w, struct store_health *out)
{
    *out = (struct store_health){.n_waiting = w->n_waiting};
    if (w->n_waiting) out->stuck_ms = loop_now_ms(w->o.loop) - w->answered_ms;
    pthread_mutex_lock(&w->mutex);
    out->commit_ms = w->commit_ms;
    out->wal_size = w->wal_size;
    out->locked = w->blocked == BLOCKED_LOCKED;
    out->blocked = w->blocked != BLOCKED_NOT;
    pthread_mutex_unlock(&w->mutex);
}

bool writer_moved(struct store_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    const bool moved = w->looked || !w->look;
    w->looked = false;
    w->look = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    return moved;
}

/* ---- withdrawing ----------------------------------------------------------------------------- */

static bool may_go(const struct store_txn *t)
{
    return t->client && !t->written && (!t->may || t->may(t->arg));
}

/* Takes the requests that may be withdrawn out of the queue. Returns them, the newest first. */
static struct store_txn *take_clients(struct store_writer *w)
{
    struct store_txn *out = NULL, **at = &w->first, *t;
    pthread_mutex_lock(&w->mutex);
    while ((t = *at)) {
        if (!may_go(t)) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = out;
        out = t;
        w->n_queued--;
    }
    w->last = at;
    pthread_mutex_unlock(&w->mutex);
    return out;
}

static void withdraw(struct store_writer *w, enum blocked why)
{
    struct err e;
    struct store_txn *t = take_clients(w), *next;
    if (t) log_warn("store.withdraw", "why=%s", why == BLOCKED_FULL ? "full" : "locked");
    for (; t; t = next) {
        next = t->next;
        if (why == BLOCKED_FULL)
            space_withdraw(w->o.space, &e);
        else
            err_set(&e, ERR_TIMEOUT,
                    "another program has locked seqd.db: nothing was changed; end that program and "
                    "send the request again");
        w->n_waiting--;
        if (t->done) t->done(t->arg, &e);
        txn_free(t);
    }
}

/* Forgets what blocked the writer when nothing waits any more, so that the next request has all of
 * STORE_WITHDRAW_MS. */
static void unblock(struct store_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    w->blocked = BLOCKED_NOT;
    pthread_mutex_unlock(&w->mutex);
    w->blocked_ms = 0;
}

/* Looks at the writer while requests wait. */
static void on_look(void *arg)
{
    struct store_writer *w = arg;
    const int64_t now_ms = loop_now_ms(w->o.loop);
    pthread_mutex_lock(&w->mutex);
    const enum blocked why = w->blocked;
    pthread_mutex_unlock(&w->mutex);
    if (!why || !w->blocked_ms) w->blocked_ms = why ? now_ms : 0;
    if (why && now_ms - w->blocked_ms >= STORE_WITHDRAW_MS) withdraw(w, why);
    if (why && !w->n_waiting) unblock(w);
    if (w->n_waiting) loop_timer_set(w->look_timer, LOOK_MS);
}

/* ---- transactions ---------------------------------------------------------------------------- */

/* Ends the process. The write is not tried again, because a write that failed once may seem to
 * succeed the next time (fsyncgate). */
static void __attribute__((noreturn)) writer_dies(struct store_writer *w)
{
    int no = sqlite3_system_errno(w->o.db);
    log_error("store.failed",
              "text=\"seqd ends: %s: %s failed: %s%s%s; what was acknowledged before is kept: see "
              "to the disk, then start seqd again\"",
              w->o.path, w->doing, sqlite3_errmsg(w->o.db), no ? ": " : "", no ? strerror(no) : "");
    _exit(70);
}

static int exec(struct store_writer *w, const char *sql)
{
    w->doing = sql;
    return sqlite3_exec(w->o.db, sql, NULL, NULL, NULL);
}

/* Returns SQLITE_OK, or SQLITE_CONSTRAINT if the request contradicts a stored row. Any other code
 * means that the whole group has failed. */
static int run_op(struct store_writer *w, const struct txn_op *o)
{
    sqlite3_stmt *st = w->op[o->type];
    w->doing = "the removal of rows";
    if (o->type == OP_ENDED_FILL) return remove_fill(w->o.db, (int)o->n[0], o->out);
    if (o->type == OP_REMOVAL_ROWS) return remove_rows(w->o.db, (int)o->n[0], o->n[1], o->out);
    int n_params = sqlite3_bind_parameter_count(st);
    w->doing = txn_sql[o->type];
    for (int i = 0; i < 4 && i < n_params; i++) sqlite3_bind_int64(st, i + 1, o->n[i]);
    for (int i = 0; i < 3 && i + 4 < n_params; i++)
        if (!o->blob_size) sqlite3_bind_text(st, i + 5, o->text[i], -1, SQLITE_STATIC);
    if (o->blob_size) sqlite3_bind_blob(st, 5, o->text[0], (int)o->blob_size, SQLITE_STATIC);
    if (n_params >= 8) sqlite3_bind_int64(st, 8, o->n[4]);
    if (n_params >= 9) sqlite3_bind_text(st, 9, o->text[3], -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (rc == SQLITE_DONE) return SQLITE_OK;
    return (rc & 0xff) == SQLITE_CONSTRAINT ? SQLITE_CONSTRAINT : rc;
}

static int run_txn(struct store_writer *w, struct store_txn *t)
{
    int rc = exec(w, "SAVEPOINT request");
    t->err = (struct err){0};
    for (struct txn_op *o = t->first; !rc && o; o = o->next) {
        rc = run_op(w, o);
        if (rc != SQLITE_CONSTRAINT) continue;
        err_set(&t->err, ERR_CONFLICT, "the store refused it: %s", sqlite3_errmsg(w->o.db));
        rc = exec(w, "ROLLBACK TO request");
        break;
    }
    return rc ? rc : exec(w, "RELEASE request");
}

static int run_group(struct store_writer *w, struct store_txn *group)
{
    int rc = exec(w, "BEGIN IMMEDIATE");
    for (struct store_txn *t = group; !rc && t; t = t->next) rc = run_txn(w, t);
    w->committing = !rc;
    return rc ? rc : exec(w, "COMMIT");
}

/* Undoes a group that could not be written, and tells why. If it is not known that the group is
 * undone, ends the process. */
static enum blocked undo_group(struct store_writer *w, struct store_txn *group, int rc)
{
    const bool locked = (rc & 0xff) == SQLITE_BUSY;
    if (!locked && !space_ran_out(w->o.db, rc)) writer_dies(w);
    /* The index of the log is extended after the last page of a transaction is in the log. */
    const bool written = w->committing && rc == SQLITE_IOERR_SHMSIZE;
    for (struct store_txn *t = group; t && written; t = t->next) t->written = true;
    if (!sqlite3_get_autocommit(w->o.db)) sqlite3_exec(w->o.db, "ROLLBACK", 0, 0, 0);
    if (!sqlite3_get_autocommit(w->o.db)) writer_dies(w);
    return locked ? BLOCKED_LOCKED : BLOCKED_FULL;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Waits until more requests arrive or seqd stops, but at most for `ms`. The caller must hold the
 * mutex. */
static void wait_a_while(struct store_writer *w, int64_t ms)
{
    struct timespec until;
    w->looked = w->look;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&w->wake, &w->mutex, &until);
}

static void set_blocked(struct store_writer *w, enum blocked why)
{
    pthread_mutex_lock(&w->mutex);
    const bool locked = why == BLOCKED_LOCKED && w->blocked != why;
    const bool again = !why && w->blocked == BLOCKED_LOCKED;
    w->blocked = why;
    pthread_mutex_unlock(&w->mutex);
    if (locked)
        log_error("store.locked",
                  "text=\"another program has locked %s: nothing is written until it ends\"",
                  w->o.path);
    if (again) log_info("store.unlocked", "text=\"%s is not locked any more\"", w->o.path);
}

/* Puts a group that could not be written back to the front of the queue, and waits for a while. If
 * seqd stops, the group and all later ones will be dropped. */
static void put_back(struct store_writer *w, struct store_txn *group, enum blocked why)
{
    struct store_txn **end = &group;
    int n = 0;
    set_blocked(w, why);
    for (; *end; end = &(*end)->next) n++;
    pthread_mutex_lock(&w->mutex);
    *end = w->first;
    if (!w->first) w->last = end;
    w->first = group;
    w->n_queued += n;
    w->gave_up = w->stop;
    if (!w->stop) wait_a_while(w, why == BLOCKED_FULL ? SPACE_LOOK_MS : BUSY_MS);
    pthread_mutex_unlock(&w->mutex);
}

/* Waits for a request, and takes up to STORE_GROUP requests. Returns NULL if seqd stops and no
 * request waits. */
static struct store_txn *take_group(struct store_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    for (; !w->first && !w->stop; w->looked = w->look) {
        if (space_held(w->o.space)) {
            pthread_cond_wait(&w->wake, &w->mutex);
            continue;
        }
        wait_a_while(w, SPACE_LOOK_MS);
        pthread_mutex_unlock(&w->mutex);
        space_look(w->o.space);
        pthread_mutex_lock(&w->mutex);
    }
    w->looked = w->look;
    struct store_txn *group = w->first, **at = &group;
    for (int n = 0; *at && n < STORE_GROUP; n++, w->n_queued--) at = &(*at)->next;
    w->first = *at;
    if (!w->first) w->last = &w->first;
    *at = NULL;
    pthread_mutex_unlock(&w->mutex);
    return group;
}

/* Answers the new jobs of a group with a refusal. Returns the other requests of the group. */
static struct store_txn *refuse_new(struct store_writer *w, struct store_txn *group)
{
    struct store_txn *rest = NULL, **last = &rest;
    for (struct store_txn *t = group, *next; t; t = next) {
        next = t->next;
        if (t->is_new && !t->written) {
            space_refuse(w->o.space, &t->err);
            answers_send(w->o.out, &t->answer, give_txn);
            continue;
        }
        *last = t;
        last = &t->next;
    }
    *last = NULL;
    return rest;
}

static void drop_group(struct store_writer *w, struct store_txn *group)
{
    for (struct store_txn *t = group, *next; t; t = next) {
        next = t->next;
        drop(w, t);
    }
}

/* Returns the requests that are on disk now. Returns NULL if all of them were refused, or if they
 * are in the queue again. */
static struct store_txn *commit_group(struct store_writer *w, struct store_txn *group)
{
    int64_t begin_ms = clock_ms();
    for (;;) {
        if (!space_held(w->o.space)) group = refuse_new(w, group);
        if (!group) return NULL;
        int rc = run_group(w, group);
        if (!rc) break;
        const enum blocked why = undo_group(w, group, rc);
        if (why == BLOCKED_FULL && space_held(w->o.space)) {
            space_release(w->o.space);
            continue;
        }
        put_back(w, group, why);
        return NULL;
    }
    set_blocked(w, BLOCKED_NOT);
    pthread_mutex_lock(&w->mutex);
    w->commit_ms = clock_ms() - begin_ms;
    pthread_mutex_unlock(&w->mutex);
    return group;
}

static int n_queued_now(struct store_writer *w)
{
    pthread_mutex_lock(&w->mutex);
    int n = w->n_queued;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

static void keep_log_short(struct store_writer *w)
{
    const bool idle = !n_queued_now(w);
    w->doing = "a checkpoint of the log";
    if (wal_keep_short(w->o.wal, w->reader, idle, !space_held(w->o.space))) writer_dies(w);
    pthread_mutex_lock(&w->mutex);
    w->wal_size = wal_size(w->o.wal);
    pthread_mutex_unlock(&w->mutex);
}

static void *writer_main(void *arg)
{
    struct store_writer *w = arg;
    struct store_txn *group;
    wal_wait_ms(w->o.wal, BUSY_MS);
    while ((group = take_group(w))) {
        if (w->gave_up) { /* the group is dropped even if there is space again, because the
                           * sequence of commits must have no gap */
            drop_group(w, group);
            continue;
        }
        if (!(group = commit_group(w, group))) {
            space_look(w->o.space);
            continue;
        }
        for (struct store_txn *t = group, *next; t; t = next) {
            next = t->next;
            answers_send(w->o.out, &t->answer, give_txn);
        }
        space_look(w->o.space);
        keep_log_short(w);
    }
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct store_writer *writer_create(const struct writer_options *o, struct err *e)
{
    struct store_writer *w = txn_must(calloc(1, sizeof *w));
    w->o = *o;
    w->last = &w->first;
    w->commit_ms = -1;
    gather_init(&w->gather, o->loop, take_over, w);
    w->look_timer = loop_timer_create(o->loop, on_look, w);
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    for (int i = 0; i < OP_N; i++)
        if (txn_sql[i] && sqlite3_prepare_v3(o->db, txn_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                             &w->op[i], NULL) != SQLITE_OK) {
            schema_damaged(o->db, o->path, e);
            writer_destroy(w);
            return NULL;
        }
    return w;
}

void writer_start(struct store_writer *w, struct store_reader *r)
{
    w->reader = r;
    thread_must_start(&w->thread, NULL, writer_main, w);
}

void writer_stop(struct store_writer *w)
{
    gather_flush(&w->gather);
    pthread_mutex_lock(&w->mutex);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
}

void writer_destroy(struct store_writer *w)
{
    if (!w) return;
    gather_fini(&w->gather);
    loop_timer_destroy(w->look_timer);
    for (int i = 0; i < OP_N; i++) sqlite3_finalize(w->op[i]);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}
