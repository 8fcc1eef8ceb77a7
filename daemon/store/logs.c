/* logs.c: appends to the logs of ranks, syncs, reads and lists them. */
#include "daemon/store/logs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/log.h"

/* Largest number of files that are kept open for appending. They are mostly logs of running
 * attempts. */
#define OPEN_FILES 64

struct file {
    int64_t job, epoch, size, used; /* `used` is the number of the last use; the file with the
                                     * lowest `used` is closed first */
    int64_t synced;                 /* bytes that are certainly on disk */
    int64_t over;                   /* number of bytes after `size` that a limit on file sizes kept
                                     * from being written */
    int rank, fd;
    bool dirty;
};

struct logs {
    char dir[1024]; /* <state>/jobs */
    int64_t turn;
    struct file file[OPEN_FILES];
};

struct logs *logs_open(const char *state_dir, struct err *e)
{
    struct logs *l = calloc(1, sizeof *l);
    if (!l) abort();
    for (int i = 0; i < OPEN_FILES; i++) l->file[i].fd = -1;
    if (snprintf(l->dir, sizeof l->dir, "%s/jobs", state_dir) < (int)sizeof l->dir - 128 &&
        (!mkdir(l->dir, 0700) || errno == EEXIST))
        return l;
    err_errno(e, "make %s/jobs", state_dir);
    free(l);
    return NULL;
}

static int sync_file(struct file *f, struct err *e)
{
    if (!f->dirty) return 0;
    f->dirty = false;
    if (!fdatasync(f->fd)) {
        f->synced = f->size;
        return 0;
    }
    /* Cut the file to the bytes that were synced. Otherwise bytes that the kernel has lost could
     * still be read as if they were on disk, and the next sync would succeed (fsyncgate). The node
     * keeps bytes until they are acknowledged, so it sends the lost bytes again. */
    err_errno(e, "sync the log of job %lld rank %d", (long long)f->job, f->rank);
    if (!ftruncate(f->fd, f->synced)) f->size = f->synced;
    return -1;
}

void logs_close(struct logs *l)
{
    if (!l) return;
    for (int i = 0; i < OPEN_FILES; i++) {
        if (l->file[i].fd < 0) continue;
        sync_file(&l->file[i], NULL);
        close(l->file[i].fd);
    }
    free(l);
}

static void path_of(const struct logs *l, int64_t job, int64_t epoch, int rank, char out[1152])
{
    snprintf(out, 1152, "%s/%lld/logs/e%lld-rank%d.log", l->dir, (long long)job, (long long)epoch,
             rank);
}

static int make_dirs(const struct logs *l, int64_t job, struct err *e)
{
    char path[1152];
    snprintf(path, sizeof path, "%s/%lld", l->dir, (long long)job);
    if (mkdir(path, 0700) && errno != EEXIST) return err_errno(e, "make %s", path);
    snprintf(path, sizeof path, "%s/%lld/logs", l->dir, (long long)job);
    if (mkdir(path, 0700) && errno != EEXIST) return err_errno(e, "make %s", path);
    return 0;
}

/* Returns a free entry. If there is none, syncs and closes the least recently used file and
 * returns its entry. */
static struct file *evict(struct logs *l, struct err *e)
{
    struct file *old = &l->file[0];
    for (int i = 0; i < OPEN_FILES; i++) {
        if (l->file[i].fd < 0) return &l->file[i];
        if (l->file[i].used < old->used) old = &l->file[i];
    }
    if (sync_file(old, e)) return NULL;
    close(old->fd);
    old->fd = -1;
    return old;
}

static struct file *find(struct logs *l, int64_t job, int64_t epoch, int rank, struct err *e)
{
    for (int i = 0; i < OPEN_FILES; i++) {
        struct file *f = &l->file[i];
        if (f->fd < 0 || f->job != job || f->epoch != epoch || f->rank != rank) continue;
        f->used = ++l->turn;
        return f;
    }
    char path[1152];
    struct stat st;
    struct file *f = evict(l, e);
    if (!f || make_dirs(l, job, e)) return NULL;
    path_of(l, job, epoch, rank, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fstat(fd, &st)) {
        err_errno(e, "open %s", path);
        if (fd >= 0) close(fd);
        return NULL;
    }
    *f = (struct file){.job = job, .epoch = epoch, .rank = rank, .fd = fd};
    f->size = f->synced = st.st_size;
    f->used = ++l->turn;
    return f;
}

static void say_cut(const struct file *f)
{
    log_warn("logs.cut",
             "job=%lld epoch=%lld rank=%d bytes=%lld text=\"RLIMIT_FSIZE (ulimit -f, LimitFSIZE=): "
             "what this log has after that is not kept\"",
             (long long)f->job, (long long)f->epoch, f->rank, (long long)f->size);
}

int64_t logs_append(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset,
                    const void *data, size_t size, struct err *e)
{
    struct file *f = find(l, job, epoch, rank, e);
    if (!f) return -1;
    if (offset < 0 || offset > f->size + f->over)
        return err_set(e, ERR_PEER,
                       "the log of job %lld rank %d continues at %lld, and %lld bytes are here",
                       (long long)job, rank, (long long)offset, (long long)f->size);
    int64_t known = f->size + f->over - offset;
    if (known >= (int64_t)size) return f->size + f->over;
    const char *p = (const char *)data + known;
    for (size_t left = size - (size_t)known; left;) {
        ssize_t n = write(f->fd, p, left);
        if (n < 0 && errno == EINTR) continue;
        /* a limit on file sizes ends the log, but not the job */
        if (n < 0 && errno == EFBIG) {
            if (!f->over) say_cut(f);
            f->over += (int64_t)left;
            f->dirty = true;
            break;
        }
        if (n < 0) return err_errno(e, "write the log of job %lld", (long long)job);
        p += n;
        left -= (size_t)n;
        f->size += n;
        f->dirty = true;
    }
    return f->size + f->over;
}

int logs_sync(struct logs *l, logs_durable *call, void *arg, struct err *e)
{
    int rc = 0;
    for (int i = 0; i < OPEN_FILES; i++) {
        struct file *f = &l->file[i];
        if (f->fd < 0 || !f->dirty) continue;
        if (sync_file(f, e))
            rc = -1;
        else if (call)
            call(arg, f->job, f->epoch, f->rank, f->size + f->over);
    }
    return rc;
}

int64_t logs_read(struct logs *l, int64_t job, int64_t epoch, int rank, int64_t offset, void *out,
                  size_t size, struct err *e)
{
    char path[1152];
    path_of(l, job, epoch, rank, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_set(e, ERR_NOT_FOUND, "job %lld has no log of rank %d in attempt %lld",
                       (long long)job, rank, (long long)epoch);
    ssize_t n = pread(fd, out, size, offset);
    if (n < 0) err_errno(e, "read %s", path);
    close(fd);
    return n;
}

/* Calls `call` for each log of the job, with the epoch and the rank from the file's name. */
static void scan(struct logs *l, int64_t job, logs_durable *call, void *arg)
{
    char path[1152];
    snprintf(path, sizeof path, "%s/%lld/logs", l->dir, (long long)job);
    DIR *d = opendir(path);
    if (!d) return;
    for (struct dirent *de; (de = readdir(d));) {
        long long epoch;
        int rank;
        struct stat st;
        if (sscanf(de->d_name, "e%lld-rank%d.log", &epoch, &rank) != 2) continue;
        if (!fstatat(dirfd(d), de->d_name, &st, AT_SYMLINK_NOFOLLOW))
            call(arg, job, epoch, rank, st.st_size);
    }
    closedir(d);
}

static void let_go(struct file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

void logs_forget_log(struct logs *l, int64_t job, int64_t epoch, int rank, char *path, size_t size)
{
    char full[1152];
    for (int i = 0; i < OPEN_FILES; i++) {
        struct file *f = &l->file[i];
        if (f->job == job && f->epoch == epoch && f->rank == rank) let_go(f);
    }
    path_of(l, job, epoch, rank, full);
    snprintf(path, size, "%s", full);
}

void logs_path(const struct logs *l, int64_t job, char *path, size_t size)
{
    snprintf(path, size, "%s/%lld", l->dir, (long long)job);
}

void logs_forget(struct logs *l, int64_t job, char *path, size_t size)
{
    for (int i = 0; i < OPEN_FILES; i++)
        if (l->file[i].job == job) let_go(&l->file[i]);
    logs_path(l, job, path, size);
}

int64_t logs_size(const struct logs *l, int64_t job, int64_t epoch, int rank)
{
    char path[1152];
    struct stat st;
    path_of(l, job, epoch, rank, path);
    return lstat(path, &st) ? 0 : st.st_size;
}

struct newest {
    int rank;
    int64_t epoch;
};

static void keep_newest(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    struct newest *n = arg;
    if (rank == n->rank && epoch > n->epoch) n->epoch = epoch;
}

int64_t logs_last_epoch(struct logs *l, int64_t job, int rank)
{
    struct newest n = {.rank = rank};
    scan(l, job, keep_newest, &n);
    return n.epoch;
}

struct following {
    int rank;
    int64_t after, epoch;
};

static void keep_following(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    struct following *n = arg;
    if (rank == n->rank && epoch > n->after && (!n->epoch || epoch < n->epoch)) n->epoch = epoch;
}

int64_t logs_next_epoch(struct logs *l, int64_t job, int rank, int64_t epoch)
{
    struct following n = {.rank = rank, .after = epoch};
    scan(l, job, keep_following, &n);
    return n.epoch;
}

struct only {
    struct logs *logs;
    int64_t epoch;
    logs_durable *call;
    void *arg;
};

static void pass_epoch(void *arg, int64_t job, int64_t epoch, int rank, int64_t size)
{
    struct only *o = arg;
    char path[1152];
    if (epoch != o->epoch) return;
    /* Sync the log, because a killed seqd may have written bytes without a sync. */
    path_of(o->logs, job, epoch, rank, path);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    bool kept = fd >= 0 && !fdatasync(fd);
    if (fd >= 0) close(fd);
    if (kept) o->call(o->arg, job, epoch, rank, size);
}

void logs_each(struct logs *l, int64_t job, int64_t epoch, logs_durable *call, void *arg)
{
    struct only o = {l, epoch, call, arg};
    scan(l, job, pass_epoch, &o);
}
