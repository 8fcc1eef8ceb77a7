/* backup.c: copies the database on a separate thread, checks the copy, and reads its bytes. */
#include "daemon/store/backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/thread.h"
#include "daemon/store/carried.h"
#include "daemon/store/reserve.h"
#include "daemon/store/txn.h"

#define PREFIX "seqd-"
#define SUFFIX ".db"

/* A question to the thread, together with its answer. */
struct backup_ask {
    struct backup_ask *next;
    backup_done *done; /* NULL if the question is a read */
    backup_bytes *bytes;
    void *arg;
    const char *dir; /* directory of a new backup; borrowed */
    int keep;
    struct backup_made made; /* a question that is a read uses only the name */
    int64_t offset, total;
    size_t n;
    struct err err;
    char data[];
};

struct backups {
    struct loop *loop;
    char state[FILE_PATH_SIZE], dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool started, stop;
    /* Used only by the loop thread. */
    bool making; /* whether a backup is being made */
    struct backup_plan plan;
    char plan_dir[FILE_PATH_SIZE];
    struct loop_timer *due; /* NULL if there is no plan */
    /* The members below are guarded by the mutex, except before the thread starts. */
    sqlite3 *db; /* connection to interrupt */
    struct backup_ask *in_first, **in_last, *out_first, **out_last;
};

/* ---- making one ------------------------------------------------------------------------------ */

static bool is_full(sqlite3 *db, int rc)
{
    struct err e;
    errno = sqlite3_system_errno(db);
    err_errno(&e, "write");
    return (rc & 0xff) == SQLITE_FULL || e.code == ERR_NO_SPACE;
}

static int sql_failed(sqlite3 *db, const char *what, struct err *e)
{
    const int rc = sqlite3_extended_errcode(db);
    return err_set(e,
                   is_full(db, rc)                   ? ERR_NO_SPACE
                   : (rc & 0xff) == SQLITE_INTERRUPT ? ERR_ABORTED
                                                     : ERR_IO,
                   "%s: %s", what, sqlite3_errmsg(db));
}

/* Refuses a backup whose file would take disk space that cancels need. */
static int check_room(const struct backups *b, const char *dir, struct err *e)
{
    struct stat st;
    struct statvfs fs;
    if (stat(b->path, &st)) return err_errno(e, "stat %s", b->path);
    if (statvfs(dir, &fs)) return err_errno(e, "%s", dir);
    const int64_t left = (int64_t)(fs.f_bavail * fs.f_frsize), need = st.st_size + RESERVE_ROOM;
    if (left >= need) return 0;
    return err_set(e, ERR_NO_SPACE,
                   "a backup needs %lld MiB on the disk of %s, and %lld MiB are free",
                   (long long)(need >> 20) + 1, dir, (long long)(left >> 20));
}

static int is_stopping(void *arg)
{
    struct backups *b = arg;
    pthread_mutex_lock(&b->mutex);
    const bool yes = b->stop;
    pthread_mutex_unlock(&b->mutex);
    return yes;
}

/* Makes a stop end what runs on the connection, which may be NULL. sqlite3_interrupt does nothing
 * if no statement runs yet, and the handler is not called inside of a check. */
static void remember(struct backups *b, sqlite3 *db)
{
    if (db) sqlite3_progress_handler(db, 1000, is_stopping, b);
    pthread_mutex_lock(&b->mutex);
    b->db = db;
    if (b->stop && db) sqlite3_interrupt(db);
    pthread_mutex_unlock(&b->mutex);
}

static int copy(struct backups *b, const char *to, struct err *e)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_open_v2(b->path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_timeout(db, 5000);
    remember(b, db);
    if (!rc) rc = sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL);
    if (!rc) rc = sqlite3_prepare_v2(db, "VACUUM INTO ?1", -1, &st, NULL);
    if (!rc) rc = sqlite3_bind_text(st, 1, to, -1, SQLITE_STATIC);
    if (!rc) rc = sqlite3_step(st);
    rc = rc == SQLITE_DONE ? 0 : sql_failed(db, "the backup could not be written", e);
    remember(b, NULL);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return rc;
}

/* Adds the carried files to the copy. This needs no journal, because the copy is removed if it
 * fails. The copy is synced later. */
static int add_files(struct backups *b, const char *path, struct err *e)
{
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (!rc)
        rc = sqlite3_exec(db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", NULL, NULL, NULL);
    rc = rc ? sql_failed(db, "the backup could not be written", e) : carried_put(db, b->state, e);
    sqlite3_close(db);
    return rc;
}

static int check_copy(struct backups *b, const char *path, struct err *e)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool sound = false;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    remember(b, db);
    if (!rc) rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &st, NULL);
    if (!rc && !is_stopping(b) && sqlite3_step(st) == SQLITE_ROW) {
        const char *word = (const char *)sqlite3_column_text(st, 0);
        sound = word && !strcmp(word, "ok");
    }
    remember(b, NULL);
    sqlite3_finalize(st);
    if (!sound && is_stopping(b))
        err_set(e, ERR_ABORTED, "the backup of %s was stopped", b->path);
    else if (!sound)
        err_set(e, ERR_CORRUPT, "the backup of %s is not sound: %s", b->path, sqlite3_errmsg(db));
    sqlite3_close(db);
    return sound ? 0 : -1;
}

static int sync_file(const char *path, int64_t *size, struct err *e)
{
    struct stat st;
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const bool bad = fd < 0 || fchmod(fd, 0600) || fstat(fd, &st) || fsync(fd);
    if (bad) err_errno(e, "sync %s", path);
    if (fd >= 0) close(fd);
    if (bad) return -1;
    *size = st.st_size;
    return 0;
}

static bool is_backup(const char *name)
{
    const size_t n = strlen(name), head = strlen(PREFIX), tail = strlen(SUFFIX);
    return n > head + tail && n < BACKUP_NAME && !strncmp(name, PREFIX, head) &&
           !strcmp(name + n - tail, SUFFIX) &&
           strspn(name + head, "0123456789TZ") == n - head - tail;
}

static int is_entry(const struct dirent *d)
{
    return is_backup(d->d_name);
}

/* Removes all backups of dir but the newest `keep`. The order of the names is the order of time. */
static void remove_old(const char *dir, int keep)
{
    struct dirent **all;
    char path[FILE_PATH_SIZE];
    const int n = scandir(dir, &all, is_entry, alphasort);
    for (int i = 0; i < n; i++) {
        if (i < n - keep && file_join(path, NULL, "%s/%s", dir, all[i]->d_name) >= 0) unlink(path);
        free(all[i]);
    }
    if (n >= 0) free(all);
}

static int64_t utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void name_it(struct backup_made *m)
{
    struct tm tm;
    const time_t s = (time_t)(m->at_ms / 1000);
    char text[32];
    gmtime_r(&s, &tm);
    strftime(text, sizeof text, "%Y%m%dT%H%M%S", &tm);
    snprintf(m->name, sizeof m->name, PREFIX "%s%03dZ" SUFFIX, text, (int)(m->at_ms % 1000));
}

static int make(struct backups *b, const char *dir, int keep, struct backup_made *m, struct err *e)
{
    char part[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    const int64_t begin_ms = clock_ms();
    m->at_ms = utc_ms();
    name_it(m);
    if (file_make_dir(dir, e) || file_join(part, e, "%s/seqd.db.tmp", dir) < 0 ||
        file_join(path, e, "%s/%s", dir, m->name) < 0)
        return -1;
    unlink(part); /* a killed seqd may have left the file */
    int rc = check_room(b, dir, e) || copy(b, part, e) || add_files(b, part, e) ||
             sync_file(part, &m->size, e) || check_copy(b, part, e) ||
             sha256_file(part, m->sha256, NULL, e);
    if (!rc && rename(part, path)) rc = err_errno(e, "rename %s", part);
    if (rc) unlink(part);
    if (rc || file_sync_dir(dir, e)) return -1;
    remove_old(dir, keep);
    m->took_ms = clock_ms() - begin_ms;
    log_info("store.backup", "file=%s bytes=%lld ms=%lld", path, (long long)m->size,
             (long long)m->took_ms);
    return 0;
}

/* ---- reading one ----------------------------------------------------------------------------- */

static int read_part(const struct backups *b, struct backup_ask *a, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    if (!is_backup(a->made.name))
        return err_set(e, ERR_NOT_FOUND, "there is no backup %s", a->made.name);
    if (file_join(path, e, "%s/%s", b->dir, a->made.name) < 0) return -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 && errno == ENOENT)
        return err_set(e, ERR_NOT_FOUND, "there is no backup %s: %d are kept", a->made.name,
                       BACKUP_KEEP);
    if (fd < 0) return err_errno(e, "open %s", path);
    const ssize_t n = fstat(fd, &st) ? -1 : pread(fd, a->data, BACKUP_CHUNK, a->offset);
    if (n < 0) err_errno(e, "read %s", path);
    close(fd);
    if (n < 0) return -1;
    a->n = (size_t)n;
    a->total = st.st_size;
    return 0;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void give(struct backups *b, struct backup_ask *a)
{
    const struct err *e = a->err.code ? &a->err : NULL;
    if (a->done) {
        b->making = false;
        a->done(a->arg, &a->made, e);
    } else {
        a->bytes(a->arg, a->data, a->n, a->total, e);
    }
    free(a);
}

static void give_all(void *arg)
{
    struct backups *b = arg;
    pthread_mutex_lock(&b->mutex);
    struct backup_ask *a = b->out_first;
    b->out_first = NULL;
    b->out_last = &b->out_first;
    pthread_mutex_unlock(&b->mutex);
    for (struct backup_ask *next; a; a = next) {
        next = a->next;
        give(b, a);
    }
}

/* Answers a question. May be called on any thread, with the mutex held. */
static void answer_locked(struct backups *b, struct backup_ask *a)
{
    const bool first = !b->out_first;
    a->next = NULL;
    *b->out_last = a;
    b->out_last = &a->next;
    if (first && !b->stop) loop_post(b->loop, give_all, b);
}

static void answer_later(struct backups *b, struct backup_ask *a)
{
    pthread_mutex_lock(&b->mutex);
    answer_locked(b, a);
    pthread_mutex_unlock(&b->mutex);
}

static void *backup_main(void *arg)
{
    struct backups *b = arg;
    pthread_mutex_lock(&b->mutex);
    for (;;) {
        while (!b->in_first && !b->stop) pthread_cond_wait(&b->wake, &b->mutex);
        struct backup_ask *a = b->in_first;
        if (b->stop) break;
        b->in_first = a->next;
        if (!b->in_first) b->in_last = &b->in_first;
        pthread_mutex_unlock(&b->mutex);
        const int rc = a->done ? make(b, a->dir, a->keep, &a->made, &a->err)
                               : read_part(b, a, &a->err);
        if (rc && a->done) log_error("store.backup", "text=\"%s\"", a->err.text);
        pthread_mutex_lock(&b->mutex);
        answer_locked(b, a);
    }
    pthread_mutex_unlock(&b->mutex);
    return NULL;
}

/* Hands a question to the thread. The first question starts the thread. */
static int ask(struct backups *b, struct backup_ask *a, struct err *e)
{
    if (!b->started && thread_start(&b->thread, NULL, backup_main, b, e)) return -1;
    b->started = true;
    pthread_mutex_lock(&b->mutex);
    *b->in_last = a;
    b->in_last = &a->next;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
    return 0;
}

static int begin(struct backups *b, const char *dir, int keep, backup_done *done, void *arg,
                 struct err *e)
{
    if (b->making) return err_set(e, ERR_CONFLICT, "a backup is being made: wait until it ends");
    struct backup_ask *a = txn_must(calloc(1, sizeof *a));
    a->done = done;
    a->arg = arg;
    a->dir = dir;
    a->keep = keep;
    if (ask(b, a, e)) {
        free(a);
        return -1;
    }
    b->making = true;
    return 0;
}

int backups_make(struct backups *b, backup_done *done, void *arg, struct err *e)
{
    return begin(b, b->dir, BACKUP_KEEP, done, arg, e);
}

/* ---- backups at an interval ------------------------------------------------------------------ */

static int64_t again_ms(const struct backups *b)
{
    return b->plan.every_ms < BACKUP_AGAIN_MS ? b->plan.every_ms : BACKUP_AGAIN_MS;
}

static void on_planned(void *arg, const struct backup_made *m, const struct err *e)
{
    struct backups *b = arg;
    if (e)
        b->plan.n_failed++;
    else
        b->plan.last_ms = m->at_ms;
    loop_timer_set(b->due, e ? again_ms(b) : b->plan.every_ms);
}

static void on_due(void *arg)
{
    struct backups *b = arg;
    struct err e;
    if (!begin(b, b->plan_dir, b->plan.keep, on_planned, b, &e)) return;
    if (!b->making) log_error("store.backup", "text=\"%s\"", e.text);
    b->plan.n_failed += !b->making; /* if one is being made by request, try again later */
    loop_timer_set(b->due, again_ms(b));
}

/* Returns when the newest backup of dir was made, by the time of the file. Returns 0 if there is
 * none. */
static int64_t newest_ms(const char *dir)
{
    struct dirent **all;
    struct stat st;
    char path[FILE_PATH_SIZE];
    int64_t at_ms = 0;
    const int n = scandir(dir, &all, is_entry, alphasort);
    for (int i = 0; i < n; i++) {
        const bool last = i == n - 1;
        if (last && file_join(path, NULL, "%s/%s", dir, all[i]->d_name) >= 0 && !stat(path, &st))
            at_ms = (int64_t)st.st_mtim.tv_sec * 1000;
        free(all[i]);
    }
    if (n >= 0) free(all);
    return at_ms;
}

int backups_every(struct backups *b, int64_t every_ms, const char *dir, int keep, struct err *e)
{
    /* a backup has all secrets, and no job may read it beneath a root */
    if (file_make_dir(dir, e) || beneath_mark(dir, e)) return -1;
    snprintf(b->plan_dir, sizeof b->plan_dir, "%s", dir);
    b->plan = (struct backup_plan){.every_ms = every_ms, .keep = keep, .last_ms = newest_ms(dir)};
    const int64_t in_ms = b->plan.last_ms + every_ms - utc_ms();
    b->due = loop_timer_create(b->loop, on_due, b);
    /* If the clock was set back, the file seems to be of the future. */
    loop_timer_set(b->due, in_ms < 0 ? 0 : in_ms > every_ms ? every_ms : in_ms);
    return 0;
}

void backups_plan(const struct backups *b, struct backup_plan *out)
{
    *out = b->plan;
}

/* ---- reading --------------------------------------------------------------------------------- */

void backups_read(struct backups *b, const char *name, int64_t offset, backup_bytes *call,
                  void *arg)
{
    struct backup_ask *a = txn_must(calloc(1, sizeof *a + BACKUP_CHUNK));
    a->bytes = call;
    a->arg = arg;
    a->offset = offset;
    snprintf(a->made.name, sizeof a->made.name, "%s", name);
    if (ask(b, a, &a->err)) answer_later(b, a);
}

/* ---- life ------------------------------------------------------------------------------------ */

struct backups *backups_create(struct loop *l, const char *dir, const char *path)
{
    struct backups *b = txn_must(calloc(1, sizeof *b));
    b->loop = l;
    b->in_last = &b->in_first;
    b->out_last = &b->out_first;
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->wake, NULL);
    snprintf(b->state, sizeof b->state, "%s", dir);
    snprintf(b->dir, sizeof b->dir, "%s/backups", dir);
    snprintf(b->path, sizeof b->path, "%s", path);
    return b;
}

static void free_list(struct backup_ask *a)
{
    for (struct backup_ask *next; a; a = next) {
        next = a->next;
        free(a);
    }
}

void backups_destroy(struct backups *b)
{
    if (!b) return;
    pthread_mutex_lock(&b->mutex);
    b->stop = true;
    if (b->db) sqlite3_interrupt(b->db);
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
    if (b->started) pthread_join(b->thread, NULL);
    if (b->due) loop_timer_destroy(b->due);
    free_list(b->in_first);
    free_list(b->out_first);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->mutex);
    free(b);
}
