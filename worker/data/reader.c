/* reader.c: keeps a window of the file in memory, and hashes each block when it is read. The
 * window grows on request. */
#include "worker/data/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "worker/data/source.h"

int reader_open(struct reader *r, const char *root, const char *path, struct intake *into,
                struct err *e)
{
    *r = (struct reader){.fd = source_open(root, path, e), .path = path, .into = into};
    if (r->fd < 0) return -1;
    r->room = READER_CHUNK;
    if ((r->buf = malloc(r->room))) return 0;
    reader_close(r);
    return err_set(e, ERR_IO, "out of memory");
}

void reader_close(struct reader *r)
{
    if (r->path && r->fd >= 0) close(r->fd);
    free(r->buf);
    r->buf = NULL;
    r->fd = -1;
}

int64_t reader_size(const struct reader *r)
{
    struct stat st;
    return fstat(r->fd, &st) < 0 ? -1 : (int64_t)st.st_size;
}

int reader_fill(struct reader *r, struct err *e)
{
    ssize_t n;
    assert(r->n < r->room);
    do n = read(r->fd, r->buf + r->n, r->room - r->n);
    while (n < 0 && errno == EINTR);
    if (n < 0) return err_errno(e, "read %s", r->path);
    sha256_add(&r->into->sha, r->buf + r->n, (size_t)n);
    progress_add(r->into->progress, (double)n);
    r->n += (size_t)n;
    r->end = n == 0;
    return 0;
}

int reader_grow(struct reader *r, size_t most, struct err *e)
{
    if (r->room >= most)
        return err_set(e, ERR_TOO_LARGE, "one piece has more than %zu bytes", most);
    char *more = realloc(r->buf, 2 * r->room);
    if (!more) return err_set(e, ERR_IO, "out of memory for %zu bytes", 2 * r->room);
    r->buf = more;
    r->room *= 2;
    return 0;
}

void reader_drop(struct reader *r, size_t n)
{
    assert(n <= r->n);
    r->n -= n;
    r->taken = 0;
    r->at += (int64_t)n;
    memmove(r->buf, r->buf + n, r->n);
}

int reader_take(struct reader *r, void *out, size_t n, const char *what, struct err *e)
{
    char *to = out;
    for (size_t done = 0; done < n;) {
        if (r->taken == r->n) {
            reader_drop(r, r->n);
            if (reader_fill(r, e) < 0) return -1;
        }
        if (!r->n)
            return err_set(e, ERR_CORRUPT, "%s ends at byte %lld, inside of %s", r->path,
                           (long long)r->at, what);
        size_t held = r->n - r->taken, k = n - done < held ? n - done : held;
        memcpy(to + done, r->buf + r->taken, k);
        r->taken += k;
        done += k;
    }
    return 0;
}

int reader_hash(const char *root, const char *path, struct intake *into, struct err *e)
{
    struct reader r;
    int rc = reader_open(&r, root, path, into, e);
    while (rc == 0 && !r.end) {
        rc = reader_fill(&r, e);
        reader_drop(&r, r.n);
    }
    reader_close(&r);
    return rc;
}

int reader_whole(const char *root, const char *path, struct intake *into, char *buf, size_t room,
                 size_t *n, struct err *e)
{
    struct reader r = {
        .fd = source_open(root, path, e), .path = path, .into = into, .buf = buf, .room = room};
    int rc = r.fd < 0 ? -1 : 0;
    while (rc == 0 && !r.end && r.n < r.room) rc = reader_fill(&r, e);
    if (r.fd >= 0) close(r.fd);
    *n = r.n;
    return rc;
}

int reader_unchanged(struct intake *into, const char *path, const char *sha256, struct err *e)
{
    char hex[SHA256_HEX];
    sha256_hex(&into->sha, hex);
    if (!strcmp(hex, sha256)) return 0;
    return err_set(e, ERR_CONFLICT, "%s changed while it was read; try again", path);
}
