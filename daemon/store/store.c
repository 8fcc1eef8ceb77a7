#include "daemon/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "daemon/store/carried.h"
#include "daemon/store/load.h"
#include "daemon/store/query.h"
#include "daemon/store/remove.h"
#include "daemon/store/reserve.h"
#include "daemon/store/schema.h"
#include "daemon/store/store_check.h"
#include "daemon/store/txn.h"

/* The log is checkpointed every WAL_STEP bytes, WAL_STEP_BUSY while requests wait, and
 * emptied at WAL_MAX. */
#define WAL_STEP      (4 << 20)
#define WAL_STEP_BUSY (16 << 20)
#define WAL_STEP_FULL (1 << 20) /* on a full disk it should not grow */
#define WAL_MAX       (64 << 20)
#define ROOM_MS       1000      /* between two looks for room */
#define BUSY_MS       5000      /* for another connection's lock */
#define START_ROOM    (1 << 20) /* what seqd writes besides the database when it starts */
#define NFS_MAGIC     0x6969
#define SMB_MAGIC     0xFF534D42u

/* ---- requests -------------------------------------------------------------------------------- */

struct store {
    struct loop *loop;
    char path[1024];
    int lock_fd;
    int64_t last_job, last_event;
    struct backups *backups;
    sqlite3 *write_db, *read_db;
    sqlite3_stmt *op[OP_N];
    pthread_t writer, reader;
    bool running;
    pthread_mutex_t mutex;
    pthread_cond_t write_wake, read_wake;
    bool stop;
    int n_queued;
    bool full; /* of struct store_health */
    int64_t commit_ms, wal_size;
    bool look, looked;  /* at the queue: asked for and done by the writer */
    bool reading, gate; /* a query runs; none begins */
    pthread_cond_t gate_wake;
    /* loop thread */
    int n_waiting;
    int64_t answered_ms;
    /* writer */
    struct reserve reserve;
    bool gave_up;                     /* seqd stops, a group was dropped: so are all after it */
    int64_t look_ms;                  /* for room, not before */
    const char *doing;                /* for the sentence when it fails */
    int64_t wal_pages, checkpoint_at; /* bytes */
    int page_size;
    bool newer;
    int64_t query_end_ms; /* reader */
    struct store_txn *txn_first, **txn_last;
    struct query *ask_first, **ask_last;
    struct answer *out_first, **out_last; /* in the order they were found */
};

static void give_txn(struct answer *a)
{
    struct store_txn *t = (struct store_txn *)a;
    t->store->n_waiting--;
    t->store->answered_ms = loop_now_ms(t->store->loop);
    if (t->done) t->done(t->arg, t->err.code ? &t->err : NULL);
    txn_free(t);
}

/* Loop thread. */
static void give_all(void *arg)
{
    struct store *s = arg;
    pthread_mutex_lock(&s->mutex);
    struct answer *a = s->out_first;
    s->out_first = NULL;
    s->out_last = &s->out_first;
    pthread_mutex_unlock(&s->mutex);
    for (struct answer *next; a; a = next) {
        next = a->next;
        a->give(a);
    }
}

/* Writer and reader. */
static void send_out(struct store *s, struct answer *a, void (*give)(struct answer *a))
{
    a->give = give;
    a->next = NULL;
    pthread_mutex_lock(&s->mutex);
    bool first = !s->out_first;
    *s->out_last = a;
    s->out_last = &a->next;
    pthread_mutex_unlock(&s->mutex);
    if (first) loop_post(s->loop, give_all, s);
}

void store_commit(struct store *s, struct store_txn *t, store_done *done, void *arg)
{
    t->done = done;
    t->arg = arg;
    t->store = s;
    if (s->stop) { /* closing: it was not acknowledged */
        txn_free(t);
        return;
    }
    if (!s->n_waiting++) s->answered_ms = loop_now_ms(s->loop);
    pthread_mutex_lock(&s->mutex);
    *s->txn_last = t;
    s->txn_last = &t->next;
    s->n_queued++;
    pthread_cond_signal(&s->write_wake);
    pthread_mutex_unlock(&s->mutex);
}

int store_queued(const struct store *s)
{
    struct store *w = (struct store *)s;
    pthread_mutex_lock(&w->mutex);
    int n = s->n_queued;
    pthread_mutex_unlock(&w->mutex);
    return n;
}

bool store_full(const struct store *s)
{
    struct store *w = (struct store *)s;
    pthread_mutex_lock(&w->mutex);
    bool full = s->full;
    pthread_mutex_unlock(&w->mutex);
    return full;
}

int store_refuse(const struct store *s, struct err *e)
{
    int64_t left = reserve_free(&s->reserve);
    return err_set(e, ERR_NO_SPACE,
                   "the disk of seqd's state directory %s is full: %lld MiB are free, new jobs are "
                   "taken from %d MiB on; existing jobs continue and can be cancelled",
                   s->reserve.dir, (long long)(left < 0 ? 0 : left >> 20), RESERVE_ROOM >> 20);
}

void store_health(const struct store *s, struct store_health *out)
{
    struct store *w = (struct store *)s;
    *out = (struct store_health){.n_waiting = s->n_waiting};
    if (s->n_waiting) out->stuck_ms = loop_now_ms(s->loop) - s->answered_ms;
    pthread_mutex_lock(&w->mutex);
    out->commit_ms = s->commit_ms;
    out->wal_size = s->wal_size;
    out->full = s->full;
    pthread_mutex_unlock(&w->mutex);
}

bool store_moved(struct store *s)
{
    pthread_mutex_lock(&s->mutex);
    const bool moved = s->looked || !s->look;
    s->looked = false;
    s->look = true;
    pthread_cond_signal(&s->write_wake);
    pthread_mutex_unlock(&s->mutex);
    return moved;
}

/* ---- the writer ------------------------------------------------------------------------------ */

/* fsyncgate: a write that failed once may seem to succeed the next time. So there is none. */
static void __attribute__((noreturn)) writer_dies(struct store *s)
{
    int no = sqlite3_system_errno(s->write_db);
    log_error("store.failed",
              "text=\"seqd ends: %s: %s failed: %s%s%s; what was acknowledged before is kept: see "
              "to the disk, then start seqd again\"",
              s->path, s->doing, sqlite3_errmsg(s->write_db), no ? ": " : "",
              no ? strerror(no) : "");
    _exit(70);
}

/* The disk is full, and nothing else is wrong: what was being written is undone. A sync that finds
 * no room is not meant: nothing says what it has dropped. */
static bool out_of_room(struct store *s, int rc)
{
    int no = sqlite3_system_errno(s->write_db);
    if ((rc & 0xff) == SQLITE_FULL) return true;
    return (rc == SQLITE_IOERR_SHMSIZE || rc == SQLITE_IOERR_WRITE) &&
           (no == ENOSPC || no == EDQUOT);
}

static int exec(struct store *s, const char *sql)
{
    s->doing = sql;
    return sqlite3_exec(s->write_db, sql, NULL, NULL, NULL);
}

/* Returns SQLITE_OK, SQLITE_CONSTRAINT when the request contradicts a stored row, or another code
 * when the whole group has failed. */
static int run_op(struct store *s, const struct txn_op *o)
{
    sqlite3_stmt *st = s->op[o->type];
    s->doing = "the removal of rows";
    if (o->type == OP_ENDED_FILL) return remove_fill(s->write_db, (int)o->n[0], o->out);
    if (o->type == OP_REMOVAL_ROWS) return remove_rows(s->write_db, (int)o->n[0], o->n[1], o->out);
    int n_params = sqlite3_bind_parameter_count(st);
    s->doing = txn_sql[o->type];
    for (int i = 0; i < 4 && i < n_params; i++) sqlite3_bind_int64(st, i + 1, o->n[i]);
    for (int i = 0; i < 3 && i + 4 < n_params; i++)
        sqlite3_bind_text(st, i + 5, o->text[i], -1, SQLITE_STATIC);
    if (n_params >= 8) sqlite3_bind_int64(st, 8, o->n[4]);
    if (n_params >= 9) sqlite3_bind_text(st, 9, o->text[3], -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    if (rc == SQLITE_DONE) return SQLITE_OK;
    return (rc & 0xff) == SQLITE_CONSTRAINT ? SQLITE_CONSTRAINT : rc;
}

static int run_txn(struct store *s, struct store_txn *t)
{
    int rc = exec(s, "SAVEPOINT request");
    t->err = (struct err){0};
    for (struct txn_op *o = t->first; !rc && o; o = o->next) {
        rc = run_op(s, o);
        if (rc != SQLITE_CONSTRAINT) continue;
        err_set(&t->err, ERR_CONFLICT, "the store refused it: %s", sqlite3_errmsg(s->write_db));
        rc = exec(s, "ROLLBACK TO request");
        break;
    }
    return rc ? rc : exec(s, "RELEASE request");
}

static int run_group(struct store *s, struct store_txn *group)
{
    int rc = exec(s, "BEGIN IMMEDIATE");
    for (struct store_txn *t = group; !rc && t; t = t->next) rc = run_txn(s, t);
    return rc ? rc : exec(s, "COMMIT");
}

/* ---- room ------------------------------------------------------------------------------------ */

static void say_full(struct store *s, bool full)
{
    pthread_mutex_lock(&s->mutex);
    s->full = full;
    pthread_mutex_unlock(&s->mutex);
}

/* Puts the reserve back when there is room for it. */
static void look_for_room(struct store *s)
{
    if (s->reserve.held || clock_ms() < s->look_ms) return;
    s->look_ms = clock_ms() + ROOM_MS;
    if (!reserve_make(&s->reserve)) return;
    log_info("store.room", "text=\"there is room again: new jobs are taken\"");
    say_full(s, false);
}

static void release_reserve(struct store *s)
{
    reserve_release(&s->reserve);
    s->look_ms = clock_ms() + ROOM_MS;
    say_full(s, true);
    log_error("store.full",
              "text=\"the disk of %s is full and has no reserve of %d MiB any more: new jobs are "
              "refused until %d MiB are free\"",
              s->reserve.dir, RESERVE_SIZE >> 20, RESERVE_ROOM >> 20);
}

/* At most ROOM_MS, or until more requests come or seqd stops. With the mutex. */
static void wait_a_while(struct store *s)
{
    struct timespec until;
    s->looked = s->look;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ROOM_MS / 1000;
    pthread_cond_timedwait(&s->write_wake, &s->mutex, &until);
}

/* A group found no room. False: seqd stops, and there is none. */
static bool wait_for_room(struct store *s)
{
    if (s->reserve.held) {
        release_reserve(s);
        return true;
    }
    pthread_mutex_lock(&s->mutex);
    if (!s->stop) wait_a_while(s);
    bool stop = s->stop;
    pthread_mutex_unlock(&s->mutex);
    look_for_room(s);
    return !stop;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static int on_wal(void *arg, sqlite3 *db, const char *name, int n_pages)
{
    struct store *s = arg;
    s->wal_pages = n_pages;
    return SQLITE_OK;
}

static int64_t wal_size(const struct store *s)
{
    return s->wal_pages * (s->page_size + 24);
}

/* SQLITE_OK; SQLITE_BUSY when readers or a full disk left the log as it was; or what failed. */
static int try_checkpoint(struct store *s, int mode)
{
    s->doing = "a checkpoint of the log";
    sqlite3_busy_timeout(s->write_db, 0); /* later will do */
    int rc = sqlite3_wal_checkpoint_v2(s->write_db, NULL, mode, NULL, NULL);
    sqlite3_busy_timeout(s->write_db, BUSY_MS);
    return (rc & 0xff) == SQLITE_BUSY || out_of_room(s, rc) ? SQLITE_BUSY : rc;
}

/* 0, or -1 when the log is as it was. */
static int checkpoint_as(struct store *s, int mode)
{
    int rc = try_checkpoint(s, mode);
    if (rc != SQLITE_OK && rc != SQLITE_BUSY) writer_dies(s);
    return rc ? -1 : 0;
}

/* Empties the log, which no reader may use meanwhile: ours finishes its query and waits. Everything
 * slow has been done by the checkpoint before. */
static void truncate_log(struct store *s)
{
    pthread_mutex_lock(&s->mutex);
    s->gate = true;
    while (s->reading) pthread_cond_wait(&s->gate_wake, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    if (!checkpoint_as(s, SQLITE_CHECKPOINT_TRUNCATE)) s->wal_pages = 0;
    pthread_mutex_lock(&s->mutex);
    s->gate = false;
    pthread_cond_signal(&s->read_wake);
    pthread_mutex_unlock(&s->mutex);
}

/* A checkpoint costs a sync of the database: rarely, and if possible when no request waits. */
static void keep_log_short(struct store *s)
{
    const bool idle = !store_queued(s);
    const int step = s->reserve.held ? WAL_STEP : WAL_STEP_FULL;
    const int64_t extra = idle ? 0 : WAL_STEP_BUSY - WAL_STEP;
    if (!s->checkpoint_at || s->checkpoint_at > wal_size(s) + step) /* it began from its start */
        s->checkpoint_at = wal_size(s) + step;
    if (wal_size(s) < s->checkpoint_at + extra) return;
    checkpoint_as(s, SQLITE_CHECKPOINT_PASSIVE);
    if (wal_size(s) >= WAL_MAX && s->reserve.held) truncate_log(s);
    s->checkpoint_at = wal_size(s) + step;
}

static void note_size(struct store *s)
{
    pthread_mutex_lock(&s->mutex);
    s->wal_size = wal_size(s);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Takes up to STORE_GROUP requests; waits for the first. Returns NULL when stopped and empty. */
static struct store_txn *take_group(struct store *s)
{
    pthread_mutex_lock(&s->mutex);
    for (; !s->txn_first && !s->stop; s->looked = s->look) {
        if (s->reserve.held) {
            pthread_cond_wait(&s->write_wake, &s->mutex);
            continue;
        }
        wait_a_while(s);
        pthread_mutex_unlock(&s->mutex);
        look_for_room(s);
        pthread_mutex_lock(&s->mutex);
    }
    s->looked = s->look;
    struct store_txn *group = s->txn_first, **at = &group;
    for (int n = 0; *at && n < STORE_GROUP; n++, s->n_queued--) at = &(*at)->next;
    s->txn_first = *at;
    if (!s->txn_first) s->txn_last = &s->txn_first;
    *at = NULL;
    pthread_mutex_unlock(&s->mutex);
    return group;
}

/* Answers the new jobs of a group with a refusal; returns the others. */
static struct store_txn *refuse_new(struct store *s, struct store_txn *group)
{
    struct store_txn *rest = NULL, **last = &rest;
    for (struct store_txn *t = group, *next; t; t = next) {
        next = t->next;
        if (t->is_new) {
            store_refuse(s, &t->err);
            send_out(s, &t->answer, give_txn);
            continue;
        }
        *last = t;
        last = &t->next;
    }
    *last = NULL;
    return rest;
}

/* They were not acknowledged. */
static void drop_group(struct store_txn *group)
{
    for (struct store_txn *t = group, *next; t; t = next) {
        next = t->next;
        txn_free(t);
    }
}

/* Returns what is on disk now; NULL when all was refused, or seqd stops on a full disk. */
static struct store_txn *commit_group(struct store *s, struct store_txn *group)
{
    int64_t begin_ms = clock_ms();
    for (;;) {
        if (!s->reserve.held) group = refuse_new(s, group);
        if (!group) return NULL;
        int rc = run_group(s, group);
        if (!rc) break;
        if (!out_of_room(s, rc)) writer_dies(s);
        if (!sqlite3_get_autocommit(s->write_db)) sqlite3_exec(s->write_db, "ROLLBACK", 0, 0, 0);
        if (wait_for_room(s)) continue;
        s->gave_up = true;
        drop_group(group);
        return NULL;
    }
    pthread_mutex_lock(&s->mutex);
    s->commit_ms = clock_ms() - begin_ms;
    pthread_mutex_unlock(&s->mutex);
    return group;
}

static void *writer_main(void *arg)
{
    struct store *s = arg;
    struct store_txn *group;
    while ((group = take_group(s))) {
        if (s->gave_up) { /* there may be room again, but for a log with a hole */
            drop_group(group);
            continue;
        }
        group = commit_group(s, group);
        for (struct store_txn *t = group, *next; t; t = next) {
            next = t->next;
            send_out(s, &t->answer, give_txn);
        }
        look_for_room(s);
        keep_log_short(s);
        note_size(s);
    }
    return NULL;
}

/* ---- the reader ------------------------------------------------------------------------------ */

static void give_ask(struct answer *out)
{
    struct query *a = (struct query *)out;
    static const struct store_rows none;
    a->call(a->arg, a->err.code ? &none : &a->rows, a->err.code ? &a->err : NULL);
    query_free(a);
}

static void *reader_main(void *arg)
{
    struct store *s = arg;
    pthread_mutex_lock(&s->mutex);
    for (;;) {
        while ((!s->ask_first && !s->stop) || s->gate) pthread_cond_wait(&s->read_wake, &s->mutex);
        struct query *a = s->ask_first;
        if (!a) break;
        s->reading = true;
        s->ask_first = a->next;
        if (!s->ask_first) s->ask_last = &s->ask_first;
        pthread_mutex_unlock(&s->mutex);
        s->query_end_ms = clock_ms() + STORE_QUERY_MS;
        query_run(s->read_db, a);
        if (a->err.code) log_error("store.read", "file=%s text=\"%s\"", s->path, a->err.text);
        send_out(s, &a->answer, give_ask);
        pthread_mutex_lock(&s->mutex);
        s->reading = false;
        pthread_cond_signal(&s->gate_wake);
    }
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

void store_read(struct store *s, enum store_ask what, const int64_t n[4], const char *text,
                store_answer *answer, void *arg)
{
    struct query *a = txn_must(calloc(1, sizeof *a));
    a->what = what;
    if (n) memcpy(a->n, n, sizeof a->n);
    a->text = txn_copy(text);
    a->call = answer;
    a->arg = arg;
    if (s->stop) {
        query_free(a);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    *s->ask_last = a;
    s->ask_last = &a->next;
    pthread_cond_signal(&s->read_wake);
    pthread_mutex_unlock(&s->mutex);
}

/* ---- loading --------------------------------------------------------------------------------- */

int store_load(struct store *s, const struct store_load *c, struct err *e)
{
    return load_all(s->write_db, s->path, c, e);
}

int store_load_tokens(struct store *s, void *arg, int (*token)(void *, const struct store_token *),
                      struct err *e)
{
    return load_tokens(s->write_db, s->path, arg, token, e);
}

int store_load_joins(struct store *s, const struct store_load_joins *c, struct err *e)
{
    return load_joins(s->write_db, s->path, c, e);
}

struct backups *store_backups(struct store *s)
{
    return s->backups;
}

bool store_is_newer(const struct store *s)
{
    return s->newer;
}

int64_t store_last_job(const struct store *s)
{
    return s->last_job;
}

int64_t store_last_event(const struct store *s)
{
    return s->last_event;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static int lock_dir(struct store *s, const char *dir, struct err *e)
{
    char path[1024];
    struct statfs fs;
    if (statfs(dir, &fs)) return err_errno(e, "state directory %s", dir);
    if ((unsigned)fs.f_type == NFS_MAGIC || (unsigned)fs.f_type == SMB_MAGIC)
        return err_set(
            e, ERR_UNSUPPORTED,
            "state directory %s is on a network file system: its locks cannot be trusted, "
            "use a local disk",
            dir);
    if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path)
        return err_set(e, ERR_INVALID, "state directory %s: the path is too long", dir);
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) return err_errno(e, "open %s", path);
    if (!file_lock(s->lock_fd)) return 0;
    if (errno != EWOULDBLOCK) return err_errno(e, "lock %s", path);
    return err_set(e, ERR_CONFLICT, "another seqd runs on state directory %s", dir);
}

static int open_database(struct store *s, struct err *e)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    int64_t page_size, version;
    if (sqlite3_open_v2(s->path, &s->write_db, flags, NULL) != SQLITE_OK)
        return schema_damaged(s->write_db, s->path, e);
    sqlite3_extended_result_codes(s->write_db, 1);
    sqlite3_busy_timeout(s->write_db, BUSY_MS);
    sqlite3_db_config(s->write_db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    if (schema_setup(s->write_db, s->path, e) ||
        schema_number(s->write_db, s->path, "PRAGMA page_size", &page_size, e) ||
        schema_number(s->write_db, s->path, "PRAGMA user_version", &version, e))
        return -1;
    s->newer = version == SCHEMA_NEWER;
    s->page_size = (int)page_size;
    sqlite3_wal_hook(s->write_db, on_wal, s);
    return 0;
}

/* The log may hold commits of a seqd that died of a failed sync: they can be read and may not be on
 * disk. Copying them into the database and syncing that makes them durable. They stay in the log
 * when the disk is full, the newest also when a reader outside seqd began before them: then the log
 * itself is made so. */
static int first_checkpoint(struct store *s, struct err *e)
{
    int rc = try_checkpoint(s, SQLITE_CHECKPOINT_TRUNCATE);
    if (rc == SQLITE_BUSY) return store_settle_log(s->write_db, s->path, e);
    return rc == SQLITE_OK ? 0 : schema_damaged(s->write_db, s->path, e);
}

static int open_writer(struct store *s, const char *dir, struct err *e)
{
    int bad = open_database(s, e);
    /* Even to be read, the database needs room for the index of its log. */
    if (bad && out_of_room(s, sqlite3_extended_errcode(s->write_db)) && s->reserve.held) {
        sqlite3_close(s->write_db);
        s->write_db = NULL;
        release_reserve(s);
        bad = open_database(s, e);
    }
    if (bad || store_check(s->write_db, s->path, STORE_CHECK_MS, e) || first_checkpoint(s, e) ||
        carried_take(s->write_db, dir, e))
        return -1;
    for (int i = 0; i < OP_N; i++)
        if (txn_sql[i] && sqlite3_prepare_v3(s->write_db, txn_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                             &s->op[i], NULL) != SQLITE_OK)
            return schema_damaged(s->write_db, s->path, e);
    return schema_number(s->write_db, s->path, REMOVE_LAST("id", "jobs"), &s->last_job, e) ||
                   schema_number(s->write_db, s->path, REMOVE_LAST("seq", "events"), &s->last_event,
                                 e)
               ? -1
               : 0;
}

static int on_progress(void *arg)
{
    const struct store *s = arg;
    return clock_ms() >= s->query_end_ms;
}

static int open_reader(struct store *s, struct err *e)
{
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(s->path, &s->read_db, flags, NULL) != SQLITE_OK ||
        sqlite3_exec(s->read_db, "PRAGMA query_only=ON; PRAGMA wal_autocheckpoint=0", NULL, NULL,
                     NULL) != SQLITE_OK)
        return schema_damaged(s->read_db, s->path, e);
    sqlite3_extended_result_codes(s->read_db, 1);
    sqlite3_busy_timeout(s->read_db, BUSY_MS);
    sqlite3_progress_handler(s->read_db, 10000, on_progress, s);
    return 0;
}

static void warn_version(void)
{
    static const int fixed = 3051003; /* WAL reset by two connections that write or checkpoint */
    if (sqlite3_libversion_number() < fixed)
        log_info("store.version",
                 "sqlite=%s text=\"never open seqd.db with another program while seqd runs: before "
                 "3.51.3 two writers can damage it\"",
                 sqlite3_libversion());
}

struct store *store_open(struct loop *l, const char *dir, struct err *e)
{
    struct store *s = txn_must(calloc(1, sizeof *s));
    s->loop = l;
    s->lock_fd = -1;
    s->txn_last = &s->txn_first;
    s->ask_last = &s->ask_first;
    s->out_last = &s->out_first;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->write_wake, &monotonic);
    pthread_cond_init(&s->read_wake, NULL);
    pthread_cond_init(&s->gate_wake, NULL);
    pthread_condattr_destroy(&monotonic);
    s->commit_ms = -1;
    if (snprintf(s->path, sizeof s->path, "%s/seqd.db", dir) >= (int)sizeof s->path) {
        err_set(e, ERR_INVALID, "state directory %s: the path is too long", dir);
        goto fail;
    }
    reserve_init(&s->reserve, dir);
    if (lock_dir(s, dir, e) || open_writer(s, dir, e) || open_reader(s, e)) goto fail;
    /* What else is written at a start must find room. */
    if (s->reserve.held && reserve_free(&s->reserve) < START_ROOM) release_reserve(s);
    if (!reserve_make(&s->reserve) && !s->full) release_reserve(s); /* logged once */
    warn_version();
    s->backups = backups_create(l, dir, s->path);
    s->running = true;
    if (pthread_create(&s->writer, NULL, writer_main, s)) abort();
    if (pthread_create(&s->reader, NULL, reader_main, s)) abort();
    return s;
fail:
    store_close(s);
    return NULL;
}

void store_close(struct store *s)
{
    if (!s) return;
    backups_destroy(s->backups);
    if (s->running) {
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_cond_signal(&s->write_wake);
        pthread_cond_signal(&s->read_wake);
        pthread_mutex_unlock(&s->mutex);
        pthread_join(s->writer, NULL);
        pthread_join(s->reader, NULL);
        while (s->out_first) give_all(s);
    }
    for (int i = 0; i < OP_N; i++) sqlite3_finalize(s->op[i]);
    sqlite3_close(s->read_db);
    sqlite3_close(s->write_db); /* last: it alone may checkpoint */
    if (s->lock_fd >= 0) close(s->lock_fd);
    pthread_cond_destroy(&s->gate_wake);
    pthread_cond_destroy(&s->read_wake);
    pthread_cond_destroy(&s->write_wake);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}
