/* state_dir.c: takes the lock, reads the instance, lists attempts, keeps epochs, and opens files
 * of jobs for seqd. */
#include "worker/agent/state_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/log.h"
#include "api/core/remote.h"
#include "api/core/shared.h"
#include "worker/agent/shared.h"

static int real_path(const char *path, char *out, size_t size, struct err *e)
{
    char real[PATH_MAX];
    if (!realpath(path, real)) return err_errno(e, "%s", path);
    if (strlen(real) >= size)
        return err_set(e, ERR_TOO_LARGE, "%s has %zu bytes, at most %zu are allowed", real,
                       strlen(real), size - 1);
    memcpy(out, real, strlen(real) + 1);
    return 0;
}

static int lock_take(struct state_dir *s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/seqw.lock", s->dir) < 0) return -1;
    s->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (s->lock_fd < 0) return err_errno(e, "open %s", path);
    if (file_lock(s->lock_fd) == 0) return 0;
    if (errno != EWOULDBLOCK) return err_errno(e, "lock %s", path);
    return err_set(e, ERR_CONFLICT, "%s is held: another seqw uses this state directory", path);
}

/* Reads "<32 hex digits>\n". Returns false for any other text. */
static bool instance_read(const char *text, unsigned char out[WIRE_INSTANCE_SIZE])
{
    unsigned byte;
    if (strspn(text, "0123456789abcdef") != 2 * WIRE_INSTANCE_SIZE) return false;
    for (int i = 0; i < WIRE_INSTANCE_SIZE; i++) {
        if (sscanf(text + 2 * i, "%2x", &byte) != 1) return false;
        out[i] = (unsigned char)byte;
    }
    return true;
}

/* Reads the instance, or makes a new instance if there is no valid instance. seqd treats a
 * node with a new instance as a different node that has the same name as the old node. It must
 * wait until seqd considers the old node down. */
static int instance_take(struct state_dir *s, struct err *e)
{
    char path[FILE_PATH_SIZE], text[2 * WIRE_INSTANCE_SIZE + 2];
    struct err why = {0};
    if (file_join(path, e, "%s/instance", s->dir) < 0) return -1;
    char *old = file_read(path, sizeof text, NULL, &why);
    const bool good = old && instance_read(old, s->instance);
    const bool damaged = (old && !good) || why.code == ERR_TOO_LARGE;
    if (!old && !damaged && why.code != ERR_NOT_FOUND) return *e = why, -1;
    if (damaged) log_warn("state_dir.instance", "path=%s why=\"damaged: drawn again\"", path);
    free(old);
    if (good) return 0;
    if (getrandom(s->instance, sizeof s->instance, 0) != (ssize_t)sizeof s->instance)
        return err_errno(e, "getrandom");
    for (int i = 0; i < WIRE_INSTANCE_SIZE; i++)
        snprintf(text + 2 * i, sizeof text - 2 * (size_t)i, "%02x\n", s->instance[i]);
    if (file_write_private(path, text, strlen(text), e) < 0) return -1;
    return file_sync_dir(s->dir, e);
}

int state_dir_open(struct state_dir *s, const char *dir, const char *const *roots, int n_roots,
                   struct err *e)
{
    static const char *const parts[] = {"gangs", "epochs", "jobs", "prepared"};
    char path[FILE_PATH_SIZE];
    int mended;
    *s = (struct state_dir){.lock_fd = -1};
    if (n_roots > RANK_ROOTS)
        return err_set(e, ERR_INVALID, "%d roots, at most %d are possible", n_roots, RANK_ROOTS);
    if (file_make_private_dir(dir, &mended, e) < 0 || real_path(dir, s->dir, sizeof s->dir, e) < 0)
        return -1;
    if (mended)
        log_warn("state_dir.mode",
                 "state=%s mended=%d text=\"others could read it: 0700 and 0600 now\"", s->dir,
                 mended);
    memcpy(s->files, s->dir, sizeof s->files);
    if (lock_take(s, e) < 0 || beneath_mark(s->dir, e) < 0) return -1;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (file_join(path, e, "%s/%s", s->dir, parts[i]) < 0 || file_make_dir(path, e) < 0)
            return -1;
    if (instance_take(s, e) < 0) return -1;
    for (int i = 0; i < n_roots; i++)
        if (real_path(roots[i], s->roots[i], sizeof s->roots[i], e) < 0)
            return err_prefix(e, "--root");
    s->n_roots = n_roots;
    return 0;
}

int state_dir_writable(struct state_dir *s, const char *const *roots, int n, struct err *e)
{
    if (n > RANK_ROOTS)
        return err_set(e, ERR_INVALID, "%d writable roots, at most %d are possible", n, RANK_ROOTS);
    for (int i = 0; i < n; i++) {
        char *real = s->writable[i];
        if (real_path(roots[i], real, sizeof s->writable[i], e) < 0)
            return err_prefix(e, "--writable-root");
        if (access(real, W_OK | X_OK)) return err_errno(e, "--writable-root %s", real);
        if (beneath_private(real))
            return err_set(e, ERR_INVALID,
                           "--writable-root %s lies in a directory that seqd keeps: give another",
                           real);
    }
    s->n_writable = n;
    return 0;
}

/* Refuses a shared directory if jobs have files in the state directory. */
static int refuse_files(const struct state_dir *s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const struct dirent *ent;
    bool found = false;
    if (file_join(path, e, "%s/jobs", s->dir) < 0) return -1;
    DIR *d = opendir(path);
    if (!d) return err_errno(e, "open %s", path);
    while (!found && (ent = readdir(d))) found = *ent->d_name != '.';
    closedir(d);
    if (!found) return 0;
    return err_set(e, ERR_CONFLICT,
                   "%s has files of jobs, which would not be found any more: move them to %s/jobs "
                   "first, or remove them",
                   path, s->files);
}

static int refuse_roots(const struct state_dir *s, struct err *e)
{
    for (int i = 0; i < s->n_roots + s->n_writable; i++) {
        const char *root = i < s->n_roots ? s->roots[i] : s->writable[i - s->n_roots];
        if (!beneath_rest(root, s->files) && !beneath_rest(s->files, root)) continue;
        return err_set(e, ERR_INVALID,
                       "%s and the root %s contain each other: give a directory outside, because "
                       "it is private",
                       s->files, root);
    }
    return 0;
}

/* Refuses a directory in which others have files, because shared_open makes it private. An agent
 * that starts at the same time may have made its parts already. */
static int refuse_others(const struct state_dir *s, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const struct dirent *ent;
    bool found = false;
    if (file_join(path, e, "%s/" SHARED_FILE, s->files) < 0) return -1;
    if (file_exists(path)) return 0;
    DIR *d = opendir(s->files);
    if (!d) return err_errno(e, "open %s: mount it, or make it", s->files);
    while (!found && (ent = readdir(d)))
        found = *ent->d_name != '.' && strcmp(ent->d_name, "jobs") &&
                strcmp(ent->d_name, "prepared") && strcmp(ent->d_name, "lost+found");
    closedir(d);
    if (!found) return 0;
    return err_set(e, ERR_CONFLICT,
                   "%s has other files, and would become private: give a new directory, such as "
                   "%s/seqd",
                   s->files, s->files);
}

int state_dir_share(struct state_dir *s, const char *dir, struct err *e)
{
    if (real_path(dir, s->files, sizeof s->files, e) < 0 || refuse_roots(s, e) ||
        refuse_files(s, e) || refuse_others(s, e) || shared_open(dir, &s->shared, e))
        return err_prefix(e, "--shared");
    return 0;
}

void state_dir_close(struct state_dir *s)
{
    if (s->lock_fd >= 0) close(s->lock_fd);
    s->lock_fd = -1;
}

int state_dir_gang_dir(const struct state_dir *s, int64_t job, int64_t epoch,
                       char out[FILE_PATH_SIZE])
{
    return file_join(out, NULL, "%s/gangs/%lld-e%lld", s->dir, (long long)job, (long long)epoch);
}

int state_dir_scan(const struct state_dir *s,
                   void (*found)(void *arg, int64_t job, int64_t epoch, const char *dir), void *arg,
                   struct err *e)
{
    char path[FILE_PATH_SIZE], again[64];
    if (file_join(path, e, "%s/gangs", s->dir) < 0) return -1;
    DIR *d = opendir(path);
    if (!d) return err_errno(e, "open %s", path);
    for (struct dirent *ent; (ent = readdir(d));) {
        long long job, epoch;
        if (sscanf(ent->d_name, "%lld-e%lld", &job, &epoch) != 2) continue;
        snprintf(again, sizeof again, "%lld-e%lld", job, epoch);
        if (strcmp(again, ent->d_name) != 0 || state_dir_gang_dir(s, job, epoch, path) < 0)
            continue;
        found(arg, job, epoch, path);
    }
    closedir(d);
    return 0;
}

int state_dir_epoch(const struct state_dir *s, int64_t job, int64_t *epoch, struct err *e)
{
    char path[FILE_PATH_SIZE], *end;
    *epoch = 0;
    if (file_join(path, e, "%s/epochs/%lld", s->dir, (long long)job) < 0) return -1;
    char *text = file_read(path, 64, NULL, e);
    if (!text && e->code == ERR_NOT_FOUND) return 0;
    if (!text) return -1;
    errno = 0;
    *epoch = strtoll(text, &end, 10);
    const bool whole = !errno && *epoch > 0 && !strcmp(end, "\n");
    free(text);
    return whole ? 0
                 : err_set(e, ERR_CORRUPT,
                           "%s holds no epoch, so that an old attempt might begin again: write the "
                           "job's newest epoch and a newline into it, or remove it once no rank of "
                           "the job runs here",
                           path);
}

int state_dir_epoch_set(const struct state_dir *s, int64_t job, int64_t epoch, struct err *e)
{
    char path[FILE_PATH_SIZE], text[32];
    int n = snprintf(text, sizeof text, "%lld\n", (long long)epoch);
    if (file_join(path, e, "%s/epochs/%lld", s->dir, (long long)job) < 0) return -1;
    if (file_write(path, text, (size_t)n, e) < 0) return -1;
    if (file_join(path, e, "%s/epochs", s->dir) < 0) return -1;
    return file_sync_dir(path, e);
}

int state_dir_epoch_remove(const struct state_dir *s, int64_t job, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/epochs/%lld", s->dir, (long long)job) < 0) return -1;
    if (unlink(path) < 0) return errno == ENOENT ? 0 : err_errno(e, "remove %s", path);
    if (file_join(path, e, "%s/epochs", s->dir) < 0) return -1;
    return file_sync_dir(path, e);
}

int state_dir_beneath(const struct state_dir *s, const char *path, char out[FILE_PATH_SIZE],
                      struct err *e)
{
    if (path[0] != '/')
        return err_set(e, ERR_INVALID, "%s is relative: give the whole path, from /", path);
    if (real_path(path, out, FILE_PATH_SIZE, e) < 0) {
        char hint[256];
        if (e->code != ERR_NOT_FOUND) return -1;
        remote_hint(path, false, hint, sizeof hint);
        return err_set(e, ERR_NOT_FOUND, "%s does not exist on this node%s", path,
                       *hint ? hint : ": give a path that it has, or push it and give upload:NAME");
    }
    for (int i = 0; i < s->n_roots; i++)
        if (beneath_rest(s->roots[i], out)) return 0;
    return err_set(e, ERR_INVALID, "%s lies beneath none of this node's %d --root directories",
                   path, s->n_roots);
}

static int open_artifact(const char *job_dir, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (!name[0] || name[0] == '.' || strchr(name, '/'))
        return err_set(e, ERR_INVALID, "'%s' is no artifact's name: want no slash, no dot in front",
                       name);
    if (file_join(path, e, "%s/artifacts", job_dir) < 0) return -1;
    int dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int fd = dir_fd < 0 ? -1 : openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int saved = errno;
    if (dir_fd >= 0) close(dir_fd);
    errno = saved;
    return fd < 0 ? err_errno(e, "open") : fd;
}

/* Opens a file of a checkpoint. name is a path in checkpoints/ with at least two parts. */
static int open_checkpoint(const char *job_dir, const char *name, struct err *e)
{
    char root[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    if (!beneath_name_good(name) || !strchr(name, '/'))
        return err_set(e, ERR_INVALID, "'%s' is no name of a checkpoint's file", name);
    if (file_join(root, e, "%s/checkpoints", job_dir) < 0 ||
        file_join(path, e, "%s/%s", root, name) < 0)
        return -1;
    const int fd = beneath_open(root, path, 0);
    return fd < 0 ? err_errno(e, "open") : fd;
}

/* Computes a stamp from the inode and the time of the last write. The stamp changes when the
 * file is replaced or written. */
static int64_t stamp_of(const struct stat *st)
{
    const uint64_t ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
    const uint64_t mixed = (ns ^ (uint64_t)st->st_ino * 0x9e3779b97f4a7c15u) >> 1;
    return mixed ? (int64_t)mixed : 1;
}

static int64_t read_open(int fd, struct state_dir_file *f, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "it is no regular file");
    const ssize_t n = pread(fd, f->buf, f->size, f->offset);
    if (n < 0) return err_errno(e, "read");
    f->total = st.st_size;
    f->stamp = stamp_of(&st);
    return n;
}

int64_t state_dir_fetch(const struct state_dir *s, struct state_dir_file *f, struct err *e)
{
    static const char checkpoints[] = "checkpoints/";
    const size_t n = sizeof checkpoints - 1;
    char dir[FILE_PATH_SIZE];
    if (file_join(dir, e, "%s/jobs/%lld", s->files, (long long)f->job) < 0) return -1;
    const int fd = strncmp(f->path, checkpoints, n) ? open_artifact(dir, f->path, e)
                                                    : open_checkpoint(dir, f->path + n, e);
    const int64_t size = fd < 0 ? -1 : read_open(fd, f, e);
    if (fd >= 0) close(fd);
    return size < 0 ? err_prefix(e, "%s of job %lld", f->path, (long long)f->job) : size;
}

int state_dir_prepared(const struct state_dir *s, const char *id, char out[FILE_PATH_SIZE],
                       struct err *e)
{
    struct stat st;
    if (!rank_prepared_id_good(id))
        return err_set(e, ERR_INVALID, "'%.80s' is not an id of prepared data", id);
    if (file_join(out, e, "%s/prepared/%s", s->files, id) < 0) return -1;
    if (stat(out, &st) || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_NOT_FOUND, "the prepared data %s is not on this node any more", id);
    return 0;
}
