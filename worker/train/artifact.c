#include "worker/train/artifact.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int artifact_path(const char *job_dir, const char *name, char out[ARTIFACT_PATH], struct err *e)
{
    assert(name[0] && !strchr(name, '/') && strlen(name) < ARTIFACT_NAME);
    int n = snprintf(out, ARTIFACT_PATH, "%s/artifacts", job_dir);
    if (n < 0 || n + ARTIFACT_NAME + 8 > ARTIFACT_PATH)
        return err_set(e, ERR_TOO_LARGE, "%s: path too long", job_dir);
    if (mkdir(out, 0755) && errno != EEXIST) return err_errno(e, "mkdir %s", out);
    snprintf(out + n, (size_t)(ARTIFACT_PATH - n), "/%s", name);
    return 0;
}

int artifact_open(struct artifact *a, const char *job_dir, const char *name, struct err *e)
{
    *a = (struct artifact){.fd = -1};
    if (artifact_path(job_dir, name, a->done.path, e)) return -1;
    snprintf(a->done.name, sizeof a->done.name, "%s", name);
    size_t n = strlen(a->done.path);
    memcpy(a->tmp, a->done.path, n);
    memcpy(a->tmp + n, ".tmp", 5);
    a->fd = open(a->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (a->fd < 0) return err_errno(e, "open %s", a->tmp);
    sha256_init(&a->sha);
    return 0;
}

int artifact_write(struct artifact *a, const void *data, size_t size, struct err *e)
{
    sha256_add(&a->sha, data, size);
    a->done.size += (int64_t)size;
    for (const char *p = data; size > 0;) {
        ssize_t n = write(a->fd, p, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "write %s", a->tmp);
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

static int sync_parent(const char *path, struct err *e)
{
    char dir[ARTIFACT_PATH];
    size_t n = (size_t)(strrchr(path, '/') - path);
    memcpy(dir, path, n);
    dir[n] = 0;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_errno(e, "open %s", dir);
    int bad = fsync(fd);
    if (bad) err_errno(e, "fsync %s", dir);
    close(fd);
    return bad ? -1 : 0;
}

int artifact_finish(struct artifact *a, struct err *e)
{
    if (fsync(a->fd)) {
        err_errno(e, "fsync %s", a->tmp);
        goto out;
    }
    int fd = a->fd;
    a->fd = -1;
    if (close(fd)) {
        err_errno(e, "close %s", a->tmp);
        goto out;
    }
    if (rename(a->tmp, a->done.path)) {
        err_errno(e, "rename %s", a->tmp);
        goto out;
    }
    a->tmp[0] = 0;
    sha256_hex(&a->sha, a->done.sha256);
    return sync_parent(a->done.path, e);
out:
    artifact_drop(a);
    return -1;
}

void artifact_drop(struct artifact *a)
{
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
    if (a->tmp[0]) unlink(a->tmp);
    a->tmp[0] = 0;
}

int artifact_describe(const char *job_dir, const char *name, struct artifact_done *done,
                      struct err *e)
{
    *done = (struct artifact_done){0};
    if (artifact_path(job_dir, name, done->path, e)) return -1;
    snprintf(done->name, sizeof done->name, "%s", name);
    return sha256_file(done->path, done->sha256, &done->size, e);
}
