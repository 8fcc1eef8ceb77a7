/* making.c: waits for a lock of a file, or for a file that its maker keeps changing. */
#include "worker/data/making.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/log.h"
#include "api/core/shared.h"
#include "api/core/thread.h"

enum { LOOK_MS = 200 };

/* ---- on a node's own disk -------------------------------------------------------------------- */

static int lock_id(struct making_claim *m, const char *parent, const char *id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int rc;
    if (file_join(path, e, "%s/%s.lock", parent, id) < 0) return -1;
    m->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (m->fd < 0) return err_errno(e, "open %s", path);
    do rc = flock(m->fd, LOCK_EX);
    while (rc < 0 && errno == EINTR);
    return rc ? err_errno(e, "lock %s", path) : 0;
}

/* ---- in a shared directory ------------------------------------------------------------------- */

static bool is_shared(const char *parent)
{
    char path[FILE_PATH_SIZE];
    return file_join(path, NULL, "%s/../" SHARED_FILE, parent) >= 0 && file_exists(path);
}

static void *beat(void *arg)
{
    struct making_claim *m = arg;
    pthread_mutex_lock(&m->mutex);
    while (!m->over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += MAKING_BEAT_MS / 1000;
        pthread_cond_timedwait(&m->wake, &m->mutex, &until);
        /* if another process has taken the file away, the call fails */
        if (!m->over) utimensat(AT_FDCWD, m->path, NULL, 0);
    }
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

/* Returns 1 if this process has made the file, 0 if the file exists, or -1. */
static int claim(struct making_claim *m, const char *path, struct err *e)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return errno == EEXIST ? 0 : err_errno(e, "make %s", path);
    struct stat st;
    m->ino = fstat(fd, &st) ? 0 : (uint64_t)st.st_ino;
    close(fd);
    memcpy(m->path, path, sizeof m->path);
    pthread_mutex_init(&m->mutex, NULL);
    pthread_cond_init(&m->wake, NULL);
    thread_must_start(&m->thread, NULL, beat, m);
    return 1;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Takes away a file that has not changed. If it is another one by now, puts it back. */
static void take_stale(const char *path, const char *own, const struct stat *seen)
{
    struct stat st;
    if (rename(path, own)) return;
    if (!stat(own, &st) && !same_file(&st, seen) && link(own, path)) {
    }
    unlink(own);
    log_warn("data.stale", "path=%s text=\"its maker is silent\"", path);
}

static void pause_ms(int ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static int claim_id(struct making_claim *m, const char *parent, const char *id, int stale_ms,
                    struct err *e)
{
    char path[FILE_PATH_SIZE], own[FILE_PATH_SIZE];
    struct stat seen = {0}, now;
    int64_t since_us = clock_us();
    int rc;
    if (file_join(path, e, "%s/%s.making", parent, id) < 0 ||
        file_join(own, e, "%s.stale", m->tmp) < 0)
        return -1;
    while (!(rc = claim(m, path, e))) {
        if (stat(path, &now) || !same_file(&seen, &now)) {
            since_us = clock_us();
            seen = now;
        } else if (clock_us() - since_us > (int64_t)stale_ms * 1000) {
            take_stale(path, own, &seen);
        }
        pause_ms(LOOK_MS < stale_ms ? LOOK_MS : stale_ms);
    }
    return rc < 0 ? -1 : 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Removes <id>.tmp and <id>.*.tmp. */
static int remove_left(const char *parent, const char *id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const size_t n = strlen(id);
    DIR *d = opendir(parent);
    const struct dirent *ent;
    int rc = 0;
    if (!d) return err_errno(e, "open %s", parent);
    while (!rc && (ent = readdir(d))) {
        const char *name = ent->d_name;
        const size_t len = strlen(name);
        if (len < n + 4 || strncmp(name, id, n) || name[n] != '.' || strcmp(name + len - 4, ".tmp"))
            continue;
        rc = file_join(path, e, "%s/%s", parent, name) < 0 ? -1 : file_remove(path, e);
    }
    closedir(d);
    return rc;
}

int making_begin(struct making_claim *m, const char *parent, const char *id, int stale_ms,
                 struct err *e)
{
    uint64_t drawn = 0;
    *m = MAKING_NONE;
    m->shared = is_shared(parent);
    if (m->shared && getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return err_errno(e, "getrandom");
    const int rc = m->shared ? file_join(m->tmp, e, "%s/%s.%016llx.tmp", parent, id,
                                         (unsigned long long)drawn)
                             : file_join(m->tmp, e, "%s/%s.tmp", parent, id);
    if (rc < 0) return -1;
    if (m->shared ? claim_id(m, parent, id, stale_ms, e) : lock_id(m, parent, id, e)) return -1;
    return remove_left(parent, id, e);
}

void making_end(struct making_claim *m)
{
    struct stat st;
    if (m->fd >= 0) close(m->fd);
    if (*m->path) {
        pthread_mutex_lock(&m->mutex);
        m->over = true;
        pthread_cond_signal(&m->wake);
        pthread_mutex_unlock(&m->mutex);
        pthread_join(m->thread, NULL);
        pthread_mutex_destroy(&m->mutex);
        pthread_cond_destroy(&m->wake);
        /* another process may have taken the file away, and have its own there now */
        if (!stat(m->path, &st) && st.st_ino == m->ino) unlink(m->path);
    }
    *m = MAKING_NONE;
}
