/* reserve.c: makes the file that reserves space on the disk, and removes it. */
#include "daemon/store/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"

int reserve_check_limit(struct err *e)
{
    const int64_t limit = file_limit();
    if (limit < RESERVE_SIZE)
        return err_set(
            e, ERR_TOO_LARGE,
            "RLIMIT_FSIZE (ulimit -f, LimitFSIZE=) is %lld bytes and seqd writes files of "
            "%d or more: raise it where seqd is started",
            (long long)limit, RESERVE_SIZE);
    if (limit < INT64_MAX)
        log_warn("store.file_limit",
                 "bytes=%lld text=\"RLIMIT_FSIZE (ulimit -f, LimitFSIZE=): checkpoints, prepared "
                 "data, uploads, backups, logs and seqd.db end at that size\"",
                 (long long)limit);
    return 0;
}

void reserve_init(struct reserve *r, const char *dir)
{
    struct stat st;
    snprintf(r->dir, sizeof r->dir, "%s", dir);
    snprintf(r->path, sizeof r->path, "%s/reserve", r->dir);
    /* Check the blocks, too, because in a copy of the directory the file may have holes. */
    r->held = !lstat(r->path, &st) && S_ISREG(st.st_mode) && st.st_size == RESERVE_SIZE &&
              (int64_t)st.st_blocks * 512 >= RESERVE_SIZE;
}

int64_t reserve_free(const struct reserve *r)
{
    struct statvfs fs;
    return statvfs(r->dir, &fs) ? -1 : (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

bool reserve_make(struct reserve *r)
{
    if (r->held) return true;
    if (reserve_free(r) < RESERVE_ROOM) return false;
    unlink(r->path);
    int fd = open(r->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    errno = fd < 0 ? errno : posix_fallocate(fd, 0, RESERVE_SIZE);
    r->held = fd >= 0 && !errno;
    if (fd >= 0) close(fd);
    if (r->held) return true;
    if (errno != r->said)
        log_warn("reserve.make", "file=%s text=\"cannot be made: %s\"", r->path, strerror(errno));
    r->said = errno;
    unlink(r->path);
    return false;
}

bool reserve_release(struct reserve *r)
{
    if (!r->held) return false;
    r->held = false;
    if (unlink(r->path)) log_error("reserve.release", "file=%s text=\"%m\"", r->path);
    return true;
}
