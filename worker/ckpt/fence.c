/* fence.c: replaces a number by a larger one with link and rename, and moves directories of older
 * epochs aside. */
#include "worker/ckpt/fence.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/manifest.h"
#include "worker/ckpt/steps.h"

enum { TRIES = 40, PAUSE_MS = 25 }; /* a second, for an attempt that replaces the file */

static void pause_ms(int ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000L};
    nanosleep(&t, NULL);
}

static int fenced(const char *job_dir, int64_t epoch, int64_t newer, struct err *e)
{
    return err_set(e, ERR_ABORTED,
                   "the attempt of epoch %lld has taken over %s from this one of epoch %lld",
                   (long long)newer, job_dir, (long long)epoch);
}

/* Returns 1 and the number of a file, 0 if there is no such file, or -1. */
static int number_read(const char *path, int64_t *n, struct err *e)
{
    char *end;
    struct err why = {0};
    char *text = file_read(path, 64, NULL, &why);
    if (!text && why.code == ERR_NOT_FOUND) return 0;
    if (!text) return *e = why, -1;
    errno = 0;
    *n = strtoll(text, &end, 10);
    const bool whole = !errno && *n > 0 && !strcmp(end, "\n");
    free(text);
    return whole ? 1 : err_set(e, ERR_CORRUPT, "%s holds no epoch: remove it", path);
}

/* Takes the file away, so that exactly one process has the number that was in it. Returns as
 * number_read does. */
static int number_take(const char *path, const char *own, int64_t *n, struct err *e)
{
    char taken[FILE_PATH_SIZE];
    if (file_join(taken, e, "%s.taken", own) < 0) return -1;
    if (rename(path, taken) < 0) return errno == ENOENT ? 0 : err_errno(e, "rename %s", path);
    const int rc = number_read(taken, n, e);
    unlink(taken);
    return rc;
}

static int number_write(const char *own, int64_t n, struct err *e)
{
    char text[32];
    const int size = snprintf(text, sizeof text, "%lld\n", (long long)n);
    return file_write(own, text, (size_t)size, e);
}

/* Sets the file to the larger one of *n and its own number, and *n to this number. `own` is a path
 * beside it that no other process uses. */
static int number_raise(const char *path, const char *own, int64_t *n, struct err *e)
{
    for (int i = 0; i < TRIES; i++) {
        int64_t was = 0;
        if (number_write(own, *n, e)) return -1;
        if (!link(own, path)) return 0;
        if (errno != EEXIST) return err_errno(e, "link %s", path);
        if (number_take(path, own, &was, e) < 0) return -1;
        if (was > *n) *n = was;
    }
    return err_set(e, ERR_IO, "%s is replaced again and again by others", path);
}

struct aside {
    int64_t epoch;
};

static int move_aside(void *arg, enum step_dir_kind kind, const struct step_dir *d,
                      const char *path, struct err *e)
{
    const struct aside *a = arg;
    char gone[FILE_PATH_SIZE];
    if (kind != STEP_TMP || d->epoch >= a->epoch || !d->epoch) return 0;
    const int head = (int)(strrchr(path, '/') - path);
    if (file_join(gone, e, "%.*s/" MANIFEST_STEP ".e0.tmp", head, path, (long long)d->step) < 0 ||
        file_remove(gone, e) < 0)
        return -1;
    log_info("fence.aside", "path=%s", path);
    if (rename(path, gone) < 0) return errno == ENOENT ? 0 : err_errno(e, "move %s aside", path);
    file_remove(gone, NULL); /* prune removes the rest, if a client still writes there */
    return 0;
}

int fence_raise(const char *job_dir, int64_t epoch, struct err *e)
{
    char path[FILE_PATH_SIZE], own[FILE_PATH_SIZE], dir[FILE_PATH_SIZE];
    struct aside a = {epoch};
    const struct steps_aside aside = {move_aside, &a};
    struct step_dir *steps;
    int64_t newest = epoch;
    int n;
    if (file_join(path, e, "%s/epoch", job_dir) < 0 ||
        file_join(own, e, "%s/epoch.e%lld", job_dir, (long long)epoch) < 0 ||
        file_join(dir, e, "%s/checkpoints", job_dir) < 0)
        return -1;
    int rc = number_raise(path, own, &newest, e);
    unlink(own);
    if (rc || file_sync_dir(job_dir, e)) return -1;
    if (newest > epoch) return fenced(job_dir, epoch, newest, e);
    if (steps_list(dir, &aside, &steps, &n, e) < 0) return -1;
    free(steps);
    return 0;
}

int fence_check(const char *job_dir, int64_t epoch, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int64_t is = 0;
    int found = 0;
    if (file_join(path, e, "%s/epoch", job_dir) < 0) return -1;
    for (int i = 0; i < TRIES && !(found = number_read(path, &is, e)); i++) pause_ms(PAUSE_MS);
    if (found < 0) return -1;
    if (!found)
        return err_set(e, ERR_IO, "%s is not there any more: its file system is gone", path);
    return is > epoch ? fenced(job_dir, epoch, is, e) : 0;
}
