/* late_check.c: decides when a database is checked, and checks a large one on a thread. */
#include "daemon/store/late_check.h"

#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/thread.h"
#include "daemon/store/store_check.h"
#include "daemon/store/txn.h"

#define FIRST_SIZE (16 << 20) /* largest file that is checked first; it takes some 50 ms */
#define NO_LIMIT   ((int64_t)365 * 86400 * 1000)
#define STOP_S     3 /* seconds in which a check should stop */
/* first version of SQLite that can interrupt quick_check */
#define INTERRUPTIBLE 3043000

struct late_check {
    char path[FILE_PATH_SIZE], mark[FILE_PATH_SIZE];
    pthread_t thread;
    bool runs; /* the thread was started */
    pthread_mutex_t mutex;
    pthread_cond_t ended; /* `over` is set */
    /* guarded by the mutex */
    sqlite3 *db; /* connection to interrupt */
    bool stop, over;
    bool abandoned; /* the thread frees this struct */
    enum store_checked result;
    int64_t at_ms;
};

static void mark_path(const char *dir, char out[FILE_PATH_SIZE])
{
    snprintf(out, FILE_PATH_SIZE, "%s/damaged", dir);
}

int late_check_first(sqlite3 *db, const char *dir, const char *path, bool *late, struct err *e)
{
    char mark[FILE_PATH_SIZE];
    struct stat st;
    mark_path(dir, mark);
    const bool marked = !access(mark, F_OK);
    *late = !marked && !stat(path, &st) && st.st_size > FIRST_SIZE;
    if (*late) return 0;
    if (store_check(db, path, marked ? NO_LIMIT : STORE_CHECK_MS, e)) return -1;
    if (marked) unlink(mark);
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool stopped(void *arg)
{
    struct late_check *c = arg;
    pthread_mutex_lock(&c->mutex);
    const bool stop = c->stop;
    pthread_mutex_unlock(&c->mutex);
    return stop;
}

static void remember(struct late_check *c, sqlite3 *db)
{
    pthread_mutex_lock(&c->mutex);
    c->db = db;
    pthread_mutex_unlock(&c->mutex);
}

static int check(struct late_check *c, struct err *e)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(c->path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (!rc) rc = sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL);
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, 5000);
    remember(c, db);
    if (rc)
        rc = err_set(e, ERR_IO, "%s could not be checked: %s", c->path, sqlite3_errmsg(db));
    else
        rc = store_check_tables(db, c->path, stopped, c, e);
    remember(c, NULL);
    sqlite3_close(db);
    return rc;
}

static void __attribute__((noreturn)) end_damaged(const struct late_check *c, const struct err *e)
{
    const int fd = open(c->mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) fsync(fd), close(fd);
    log_error("store.damaged", "text=\"seqd ends: %s\"", e->text);
    _exit(70);
}

static void check_free(struct late_check *c)
{
    pthread_cond_destroy(&c->ended);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

static void *check_main(void *arg)
{
    struct late_check *c = arg;
    struct err e = {0};
    const int64_t begin_ms = clock_ms();
    const int rc = check(c, &e);
    if (rc && e.code == ERR_CORRUPT) end_damaged(c, &e);
    pthread_mutex_lock(&c->mutex);
    c->over = true;
    pthread_cond_signal(&c->ended);
    if (!rc || e.code != ERR_ABORTED) {
        c->result = rc ? STORE_UNREADABLE : STORE_SOUND;
        c->at_ms = clock_ms();
    }
    const bool abandoned = c->abandoned;
    pthread_mutex_unlock(&c->mutex);
    if (!rc)
        log_info("store.check", "file=%s ms=%lld text=\"it is sound\"", c->path,
                 (long long)(clock_ms() - begin_ms));
    else if (e.code != ERR_ABORTED)
        log_error("store.check", "text=\"%s\"", e.text);
    if (abandoned) check_free(c);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

struct late_check *late_check_create(const char *dir, const char *path, bool run)
{
    struct late_check *c = txn_must(calloc(1, sizeof *c));
    struct err e;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->ended, NULL);
    snprintf(c->path, sizeof c->path, "%s", path);
    mark_path(dir, c->mark);
    c->result = run ? STORE_UNCHECKED : STORE_SOUND;
    c->at_ms = clock_ms();
    c->runs = run && !thread_start(&c->thread, NULL, check_main, c, &e);
    if (run && !c->runs) log_error("store.check", "text=\"%s\"", e.text);
    return c;
}

/* Waits for the end of the thread, but not for long. The caller must hold the mutex. */
static void wait_end(struct late_check *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_S;
    while (c->runs && !c->over)
        if (pthread_cond_timedwait(&c->ended, &c->mutex, &until)) return;
}

void late_check_destroy(struct late_check *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    if (c->db) sqlite3_interrupt(c->db);
    /* The check of a table may take minutes, and an old SQLite does not stop it. */
    wait_end(c);
    c->abandoned = c->runs && !c->over && sqlite3_libversion_number() < INTERRUPTIBLE;
    const bool abandoned = c->abandoned;
    if (abandoned) pthread_detach(c->thread);
    pthread_mutex_unlock(&c->mutex);
    if (abandoned) return;
    if (c->runs) pthread_join(c->thread, NULL);
    check_free(c);
}

void late_check_health(struct late_check *c, struct store_health *out)
{
    pthread_mutex_lock(&c->mutex);
    out->checked = c->result;
    out->check_age_ms = c->result == STORE_UNCHECKED ? -1 : clock_ms() - c->at_ms;
    pthread_mutex_unlock(&c->mutex);
}
