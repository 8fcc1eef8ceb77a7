/* file.c: writes through a buffer, which is hashed when it is flushed; reads whole files; and
 * makes, locks, syncs and removes directories. */
#include "api/core/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/clock.h"

static int write_all(int fd, const uint8_t *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* After each BEGIN_SIZE bytes, the kernel is told to write them to the disk. The size is many
 * times that of one request to a disk, and small compared with the bytes that a disk writes in a
 * second. */
#define BEGIN_SIZE ((int64_t)8 << 20)

/* Begins to write the file's new bytes to the disk, and does not wait. Otherwise the kernel would
 * keep all pages of a large file until the fsync, and the disk would be idle until then. The fsync
 * reports errors. */
static void begin_writing(struct file_out *f)
{
    const int64_t n = (f->written - f->begun) / BEGIN_SIZE * BEGIN_SIZE;
    if (!n) return;
    (void)sync_file_range(f->fd, f->begun, n, SYNC_FILE_RANGE_WRITE);
    f->begun += n;
}

int64_t file_limit(void)
{
    struct rlimit r;
    const bool limited = !getrlimit(RLIMIT_FSIZE, &r) && r.rlim_cur < (rlim_t)INT64_MAX;
    return limited ? (int64_t)r.rlim_cur : INT64_MAX;
}

int file_out_expect(const struct file_out *f, int64_t size, struct err *e)
{
    if (size <= file_limit()) return 0;
    errno = EFBIG;
    return err_write(e, size, "write %s", f->path);
}

int file_out_open(struct file_out *f, const char *path, struct err *e)
{
    f->fd = -1;
    f->unhashed = false;
    f->size = f->written = f->begun = 0;
    f->n_buf = 0;
    f->buf = NULL;
    f->path[0] = 0;
    sha256_init(&f->sha);
    if (file_join(f->path, e, "%s", path) < 0) return -1;
    if (!(f->buf = malloc(FILE_BUF_SIZE))) return err_set(e, ERR_IO, "%s: out of memory", path);
    f->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (f->fd < 0) {
        err_errno(e, "create %s", path);
        free(f->buf);
        f->buf = NULL;
        return -1;
    }
    return 0;
}

static int put(struct file_out *f, const uint8_t *p, size_t n, struct err *e)
{
    if (!f->unhashed) sha256_add(&f->sha, p, n);
    if (write_all(f->fd, p, n) < 0) return err_write(e, f->size, "write %s", f->path);
    f->written += (int64_t)n;
    begin_writing(f);
    return 0;
}

static int flush(struct file_out *f, struct err *e)
{
    const size_t n = f->n_buf;
    f->n_buf = 0;
    return put(f, f->buf, n, e);
}

int file_out_add(struct file_out *f, const void *data, size_t size, struct err *e)
{
    const uint8_t *p = data;
    f->size += (int64_t)size;
    if (size >= FILE_BUF_SIZE) /* large data skips the buffer */
        return flush(f, e) < 0 ? -1 : put(f, p, size, e);
    while (size) {
        size_t room = FILE_BUF_SIZE - f->n_buf, n = size < room ? size : room;
        memcpy(f->buf + f->n_buf, p, n);
        f->n_buf += n;
        p += n;
        size -= n;
        if (f->n_buf == FILE_BUF_SIZE && flush(f, e) < 0) return -1;
    }
    return 0;
}

int file_out_close(struct file_out *f, char hex[SHA256_HEX], struct err *e)
{
    if (flush(f, e) < 0) return -1;
    if (fsync(f->fd) < 0) return err_errno(e, "fsync %s", f->path);
    int rc = close(f->fd);
    f->fd = -1;
    if (rc < 0) return err_errno(e, "close %s", f->path);
    if (hex) sha256_hex(&f->sha, hex);
    free(f->buf);
    f->buf = NULL;
    return 0;
}

void file_out_abort(struct file_out *f)
{
    if (f->fd >= 0) close(f->fd);
    if (f->buf) unlink(f->path); /* a file_out has a buffer until file_out_close has succeeded */
    f->fd = -1;
    free(f->buf);
    f->buf = NULL;
}

static int read_all(int fd, const char *path, char *out, size_t size, struct err *e)
{
    size_t have = 0;
    while (have < size) {
        ssize_t n = read(fd, out + have, size - have);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "read %s", path);
        if (n == 0) return err_set(e, ERR_CORRUPT, "%s became shorter while it was read", path);
        have += (size_t)n;
    }
    return 0;
}

char *file_read(const char *path, int64_t max_size, size_t *size, struct err *e)
{
    struct stat st;
    char *out = NULL;
    int fd = beneath_read(path, e);
    if (fd < 0) return NULL;
    if (fstat(fd, &st) < 0) {
        err_errno(e, "stat %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_INVALID, "%s is not a regular file", path);
    } else if (st.st_size > max_size) {
        err_set(e, ERR_TOO_LARGE, "%s has %lld bytes, the limit is %lld", path,
                (long long)st.st_size, (long long)max_size);
    } else if (!(out = malloc((size_t)st.st_size + 1))) {
        err_set(e, ERR_IO, "%s: out of memory", path);
    } else if (read_all(fd, path, out, (size_t)st.st_size, e) < 0) {
        free(out);
        out = NULL;
    } else {
        out[st.st_size] = 0;
        if (size) *size = (size_t)st.st_size;
    }
    close(fd);
    return out;
}

int file_write(const char *path, const void *data, size_t size, struct err *e)
{
    struct file_out f;
    char tmp[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s.tmp", path) < 0 || file_out_open(&f, tmp, e) < 0) return -1;
    if (file_out_expect(&f, (int64_t)size, e) < 0 || file_out_add(&f, data, size, e) < 0 ||
        file_out_close(&f, NULL, e) < 0) {
        file_out_abort(&f);
        return -1;
    }
    if (rename(tmp, path) < 0) {
        err_errno(e, "rename %s", path);
        unlink(tmp);
        return -1;
    }
    return 0;
}

int file_write_private(const char *path, const void *data, size_t size, struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s.tmp", path) < 0) return -1;
    unlink(tmp); /* because a file of an earlier run may have a different mode */
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "open %s", tmp);
    const char *p = data;
    ssize_t n = 0;
    while (size && ((n = write(fd, p, size)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0) p += n, size -= (size_t)n;
    int rc = size || fsync(fd) ? err_errno(e, "write %s", tmp) : 0;
    close(fd);
    if (rc == 0 && rename(tmp, path) < 0) rc = err_errno(e, "rename %s", path);
    if (rc < 0) unlink(tmp);
    return rc;
}

int file_join(char out[FILE_PATH_SIZE], struct err *e, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, FILE_PATH_SIZE, fmt, ap);
    va_end(ap);
    if (n >= 0 && n < FILE_PATH_SIZE) return 0;
    return err_set(e, ERR_TOO_LARGE, "a path has more than %d bytes: %.80s...", FILE_PATH_SIZE - 1,
                   out);
}

int file_sync_dir(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, "open %s", path);
    int rc = fsync(fd);
    if (rc < 0) err_errno(e, "fsync %s", path);
    close(fd);
    return rc;
}

int file_make_dir(const char *path, struct err *e)
{
    char part[FILE_PATH_SIZE];
    struct stat st;
    if (file_join(part, e, "%s", path) < 0) return -1;
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/') continue;
        char keep = *p;
        *p = 0;
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_errno(e, "make directory %s", part);
        if (!keep) break;
        *p = keep;
    }
    if (stat(path, &st) < 0) return err_errno(e, "stat %s", path);
    if (!S_ISDIR(st.st_mode)) return err_set(e, ERR_INVALID, "%s is not a directory", path);
    return 0;
}

int file_lock(int fd)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    const int64_t end_ms = clock_ms() + FILE_LOCK_MS;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR) return -1;
        if (errno == EWOULDBLOCK && clock_ms() >= end_ms) return -1;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* Removes the permissions of group and others from the directories and regular files in d. */
static void mend_entries(DIR *d, int *n_mended)
{
    struct dirent *ent;
    struct stat st;
    while ((ent = readdir(d))) {
        if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, "..") ||
            fstatat(dirfd(d), ent->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if ((!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) || !(st.st_mode & 077)) continue;
        if (fchmodat(dirfd(d), ent->d_name, st.st_mode & 0700, 0) == 0) ++*n_mended;
    }
}

int file_make_private_dir(const char *path, int *n_mended, struct err *e)
{
    struct stat st;
    *n_mended = 0;
    const mode_t before = umask(077); /* no other user may read the directory before its mode is
                                       * set */
    const int made = file_make_dir(path, e);
    umask(before);
    if (made < 0) return -1;
    DIR *d = opendir(path);
    int rc = d ? fstat(dirfd(d), &st) : -1;
    if (rc < 0) {
        err_errno(e, "open %s", path);
    } else if (st.st_uid != geteuid()) {
        rc = err_set(e, ERR_INVALID,
                     "the state directory %s belongs to user %u and this is user %u: give another "
                     "--state, or change its owner",
                     path, (unsigned)st.st_uid, (unsigned)geteuid());
    } else if (st.st_mode & 077) {
        rc = fchmod(dirfd(d), 0700);
        if (rc < 0) err_errno(e, "chmod 0700 %s", path);
        *n_mended = 1;
    }
    if (rc == 0) mend_entries(d, n_mended);
    if (d) closedir(d);
    return rc;
}

bool file_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path) < 0 && errno != ENOENT ? errno : 0;
}

int file_remove(const char *path, struct err *e)
{
    if (!file_exists(path)) return 0;
    int rc = nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (rc == 0) return 0;
    if (rc > 0) errno = rc;
    return err_errno(e, "remove %s", path);
}
