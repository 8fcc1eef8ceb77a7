/* local.c: opens files beneath a directory descriptor, hashes the bytes that a part already has,
 * and renames a complete file. */
#include "client/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "client/text.h"

#define PIECE (1 << 18)

int local_open_root(const char *dir, struct err *e)
{
    if (mkdir(dir, 0777) && errno != EEXIST) return err_errno(e, "%s", dir);
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_errno(e, "%s", dir) : fd;
}

/* Hashes the bytes of fd, from the beginning, into f->sha, and counts them in f->size. */
static int add_bytes(struct local_file *f, int fd, struct err *e)
{
    char *piece = malloc(PIECE);
    ssize_t n;
    if (!piece) abort();
    f->size = 0;
    sha256_init(&f->sha);
    while ((n = pread(fd, piece, PIECE, f->size)) > 0) {
        sha256_add(&f->sha, piece, (size_t)n);
        f->size += n;
    }
    free(piece);
    return n < 0 ? err_errno(e, "read %s", f->leaf) : 0;
}

static int compare(struct local_file *f, int fd, int64_t size, const char *sha256,
                   enum local_state *state, struct err *e)
{
    char hex[SHA256_HEX];
    struct stat st;
    if (fstat(fd, &st)) return err_errno(e, "%s", f->leaf);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is here and no file: move it away", f->leaf);
    *state = LOCAL_OTHER;
    if (st.st_size != size) return 0;
    if (add_bytes(f, fd, e)) return -1;
    sha256_hex(&f->sha, hex);
    if (!strcmp(hex, sha256)) *state = LOCAL_SAME;
    return 0;
}

int local_find(struct local_file *f, int root, const char *name, int64_t size, const char *sha256,
               enum local_state *state, struct err *e)
{
    const char *leaf;
    *f = (struct local_file){.dir = -1, .fd = -1};
    *state = LOCAL_NONE;
    if (!beneath_name_good(name)) {
        char safe[64];
        text_safe(safe, sizeof safe, name);
        return err_set(e, ERR_INVALID, "the server names a file \"%s\": it would lead out of here",
                       safe);
    }
    if ((f->dir = beneath_make_parent(root, name, 0777, &leaf, e)) < 0) return -1;
    snprintf(f->leaf, sizeof f->leaf, "%s", leaf);
    snprintf(f->part, sizeof f->part, "%s.part", leaf);
    const int fd = openat(f->dir, f->leaf, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return 0;
    if (fd < 0 && errno == ELOOP)
        return err_set(e, ERR_INVALID, "%s is a symbolic link here: it is not followed", name);
    if (fd < 0) return err_errno(e, "open %s", name);
    const int rc = compare(f, fd, size, sha256, state, e);
    close(fd);
    return rc;
}

int local_open_part(struct local_file *f, int64_t size, struct err *e)
{
    struct stat st;
    f->fd = openat(f->dir, f->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (f->fd < 0 || fstat(f->fd, &st)) return err_errno(e, "open %s", f->part);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_INVALID, "%s is here and no file: move it away", f->part);
    if (flock(f->fd, LOCK_EX | LOCK_NB))
        return err_set(e, ERR_CONFLICT, "another process writes %s: wait until it ends", f->part);
    if (st.st_size > size) return local_begin_again(f, e);
    if (add_bytes(f, f->fd, e)) return -1;
    return lseek(f->fd, f->size, SEEK_SET) < 0 ? err_errno(e, "%s", f->part) : 0;
}

int local_add(struct local_file *f, const void *bytes, size_t n, struct err *e)
{
    const char *p = bytes;
    for (size_t done = 0; done < n;) {
        const ssize_t k = write(f->fd, p + done, n - done);
        if (k < 0 && errno != EINTR) return err_write(e, f->size + (int64_t)n, "write %s", f->part);
        if (k > 0) done += (size_t)k;
    }
    sha256_add(&f->sha, bytes, n);
    f->size += (int64_t)n;
    return 0;
}

int local_begin_again(struct local_file *f, struct err *e)
{
    if (ftruncate(f->fd, 0) || lseek(f->fd, 0, SEEK_SET)) return err_errno(e, "%s", f->part);
    sha256_init(&f->sha);
    f->size = 0;
    return 0;
}

int local_finish(struct local_file *f, const char *sha256, struct err *e)
{
    char hex[SHA256_HEX];
    struct sha256 sha = f->sha;
    sha256_hex(&sha, hex);
    if (sha256 && strcmp(hex, sha256)) {
        unlinkat(f->dir, f->part, 0);
        return err_set(e, ERR_CORRUPT, "%s does not have its digest: what was received is removed",
                       f->leaf);
    }
    if (fsync(f->fd) || renameat(f->dir, f->part, f->dir, f->leaf) || fsync(f->dir))
        return err_errno(e, "%s", f->leaf);
    close(f->fd);
    f->fd = -1;
    return 0;
}

void local_remove(struct local_file *f)
{
    unlinkat(f->dir, f->leaf, 0);
}

void local_close(struct local_file *f)
{
    if (f->fd >= 0 && !f->size) unlinkat(f->dir, f->part, 0);
    if (f->fd >= 0) close(f->fd);
    if (f->dir >= 0) close(f->dir);
    f->dir = f->fd = -1;
}
