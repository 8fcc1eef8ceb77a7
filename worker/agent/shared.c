/* shared.c: makes the id of a shared directory by link, so that one of several agents wins, and
 * compares it on a thread of its own. */
#include "worker/agent/shared.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/beneath.h"
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/shared.h"
#include "api/core/thread.h"

/* Reads "<hex digits>\n". Returns 0 for any other text. */
static int64_t id_parse(const char *text)
{
    const size_t n = strspn(text, "0123456789abcdef");
    const long long id = n > 0 && n < 15 ? strtoll(text, NULL, 16) : 0;
    return id > 0 && id <= SHARED_ID_MAX && !strcmp(text + n, "\n") ? id : 0;
}

static int id_read(const char *path, int64_t *id, struct err *e)
{
    char *text = file_read(path, 64, NULL, e);
    if (!text) return -1;
    *id = id_parse(text);
    free(text);
    return *id ? 0
               : err_set(e, ERR_CORRUPT,
                         "%s holds no id: restore it, or remove it if no job has files there",
                         path);
}

/* Draws an id. It becomes that of the directory unless another agent was first. */
static int id_make(const char *path, struct err *e)
{
    char tmp[FILE_PATH_SIZE], text[SHARED_ID_SIZE + 1];
    uint64_t drawn[2];
    if (getrandom(drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return err_errno(e, "getrandom");
    const int64_t id = (int64_t)(drawn[0] % (uint64_t)SHARED_ID_MAX) + 1;
    const int n = snprintf(text, sizeof text, SHARED_ID "\n", (unsigned long long)id);
    if (file_join(tmp, e, "%s.%016llx", path, (unsigned long long)drawn[1]) < 0) return -1;
    if (file_write_private(tmp, text, (size_t)n, e)) return -1;
    int rc = link(tmp, path) && errno != EEXIST ? err_errno(e, "link %s", path) : 0;
    unlink(tmp);
    return rc;
}

static int make_dirs(const char *dir, struct err *e)
{
    static const char *const parts[] = {"jobs", "prepared"};
    char path[FILE_PATH_SIZE];
    struct stat st;
    int mended;
    if (stat(dir, &st)) return err_errno(e, "%s: mount it, or make it", dir);
    if (file_make_private_dir(dir, &mended, e) < 0) return -1;
    if (mended)
        log_warn("shared.mode", "dir=%s mended=%d text=\"others could read it: 0700 and 0600 now\"",
                 dir, mended);
    if (!beneath_marked(dir) && beneath_mark(dir, e)) return -1;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (file_join(path, e, "%s/%s", dir, parts[i]) < 0 || file_make_dir(path, e)) return -1;
    return 0;
}

int shared_open(const char *dir, int64_t *id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0};
    if (make_dirs(dir, e) || file_join(path, e, "%s/" SHARED_FILE, dir) < 0) return -1;
    if (!id_read(path, id, &why)) return 0;
    if (why.code != ERR_NOT_FOUND) return *e = why, -1;
    if (id_make(path, e) || file_sync_dir(dir, e)) return -1;
    return id_read(path, id, e);
}

int shared_check(const char *dir, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0};
    int64_t is = 0;
    if (file_join(path, e, "%s/" SHARED_FILE, dir) < 0) return -1;
    if (!id_read(path, &is, &why) && is == id) return 0;
    if (is)
        return err_set(e, ERR_IO,
                       "%s has the id " SHARED_ID " now and had " SHARED_ID
                       ": mount the directory that was there",
                       dir, (unsigned long long)is, (unsigned long long)id);
    return err_set(e, ERR_IO, "the shared directory cannot be read: %s", why.text);
}

/* ---- the watch ------------------------------------------------------------------------------- */

struct shared_watch {
    char dir[FILE_PATH_SIZE];
    int64_t id;
    bool told_good; /* the last answer, on the thread of the caller */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    bool stopping, ended, left; /* ended: the thread is over; left: the thread frees the struct */
    int64_t checked_us;         /* end of the last check */
    struct err err;             /* its result */
};

static void watch_free(struct shared_watch *w)
{
    pthread_mutex_destroy(&w->mutex);
    pthread_cond_destroy(&w->wake);
    free(w);
}

/* Waits for SHARED_CHECK_MS, or until the watch stops. */
static void watch_rest(struct shared_watch *w)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SHARED_CHECK_MS / 1000;
    while (!w->stopping && !pthread_cond_timedwait(&w->wake, &w->mutex, &until)) {
    }
}

static void *watch_run(void *arg)
{
    struct shared_watch *w = arg;
    pthread_mutex_lock(&w->mutex);
    while (!w->stopping) {
        struct err e = {0};
        pthread_mutex_unlock(&w->mutex);
        shared_check(w->dir, w->id, &e);
        pthread_mutex_lock(&w->mutex);
        w->err = e;
        w->checked_us = clock_us();
        watch_rest(w);
    }
    w->ended = true;
    const bool left = w->left;
    pthread_mutex_unlock(&w->mutex);
    if (left) watch_free(w);
    return NULL;
}

struct shared_watch *shared_watch_create(const char *dir, int64_t id)
{
    struct shared_watch *w = calloc(1, sizeof *w);
    pthread_condattr_t clock;
    assert(w);
    snprintf(w->dir, sizeof w->dir, "%s", dir);
    w->id = id;
    w->told_good = true;
    w->checked_us = clock_us();
    pthread_mutex_init(&w->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &clock);
    pthread_condattr_destroy(&clock);
    thread_must_start(&w->thread, NULL, watch_run, w);
    return w;
}

static bool is_silent(const struct shared_watch *w)
{
    return clock_us() - w->checked_us > (int64_t)SHARED_SILENT_MS * 1000;
}

/* Leaves a thread that hangs to itself, because it ends only when the file server answers. */
void shared_watch_destroy(struct shared_watch *w)
{
    if (!w) return;
    const pthread_t thread = w->thread;
    pthread_mutex_lock(&w->mutex);
    w->stopping = true;
    w->left = !w->ended && is_silent(w);
    const bool left = w->left;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    if (left) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    watch_free(w);
}

bool shared_watch_good(struct shared_watch *w)
{
    struct err e;
    if (!w) return true;
    pthread_mutex_lock(&w->mutex);
    e = w->err;
    if (is_silent(w)) err_set(&e, ERR_IO, "%s: the file server does not answer", w->dir);
    pthread_mutex_unlock(&w->mutex);
    const bool good = !e.code;
    if (good != w->told_good && good)
        log_info("shared.back", "dir=%s", w->dir);
    else if (good != w->told_good)
        log_error("shared.away", "dir=%s why=\"%s\" text=\"no job begins here\"", w->dir, e.text);
    w->told_good = good;
    return good;
}
