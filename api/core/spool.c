/* spool.c: appends records with their CRC, and reads them one by one up to the first record that
 * is cut short or has a wrong CRC. */
#include "api/core/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"

struct spool_frame {
    uint32_t size, crc;
};

/* Computes CRC-32 of IEEE 802.3 bit by bit, which is fast enough because records are a few hundred
 * bytes. */
static uint32_t crc_add(uint32_t crc, const void *data, size_t size)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    }
    return ~crc;
}

/* Returns the number of bytes read, which is less than size only at the end of the file, or -1
 * after a failure. */
static int64_t read_at(int fd, void *out, size_t size, int64_t offset, struct err *e)
{
    size_t n = 0;
    while (n < size) {
        ssize_t got = pread(fd, (char *)out + n, size - n, offset + (int64_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_errno(e, "read the spool");
        if (got == 0) break;
        n += (size_t)got;
    }
    return (int64_t)n;
}

int64_t spool_next(struct spool *s, void *buf, struct err *e)
{
    struct spool_frame f;
    int64_t n = read_at(s->fd, &f, sizeof f, s->offset, e);
    if (n < 0) return -1;
    if (n < (int64_t)sizeof f) return 0;
    if (f.size < sizeof(struct rank_msg) || f.size > SPOOL_RECORD_SIZE) return 0;
    n = read_at(s->fd, buf, f.size, s->offset + (int64_t)sizeof f, e);
    if (n < 0) return -1;
    if (n < (int64_t)f.size || crc_add(0, buf, f.size) != f.crc) return 0;
    struct rank_msg head;
    memcpy(&head, buf, sizeof head);
    if (head.size != f.size - sizeof head) return 0;
    s->offset += (int64_t)sizeof f + f.size;
    s->seq++;
    return f.size;
}

int spool_open_read(struct spool *s, const char *path, struct err *e)
{
    *s = (struct spool){.fd = open(path, O_RDONLY | O_CLOEXEC)};
    return s->fd < 0 ? err_errno(e, "open %s", path) : 0;
}

int spool_open(struct spool *s, const char *path, struct rank_msg *last, struct err *e)
{
    static _Thread_local char buf[SPOOL_RECORD_SIZE];
    struct rank_msg head = {0};
    *s = (struct spool){.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    if (s->fd < 0) return err_errno(e, "open %s", path);
    int64_t n;
    while ((n = spool_next(s, buf, e)) > 0) memcpy(&head, buf, sizeof head);
    if (n < 0) goto fail;
    if (ftruncate(s->fd, s->offset) < 0) {
        err_errno(e, "cut %s", path);
        goto fail;
    }
    if (last) *last = head;
    return 0;
fail:
    spool_close(s);
    return -1;
}

/* Sets the error for a record of `whole` bytes that could not be written at s->offset. `done` is
 * the return value of the write: the number of written bytes, or -1. A short write does not set
 * errno. In that case the function tries to write one more byte, because the failure of this write
 * sets errno. */
static int add_failed(const struct spool *s, ssize_t done, size_t whole, struct err *e)
{
    errno = done < 0 ? errno : ENOSPC;
    if (done >= 0 && pwrite(s->fd, "", 1, s->offset + done) == 1) errno = ENOSPC;
    return err_write(e, s->offset + (int64_t)whole, "write the spool");
}

/* Returns the largest size that the spool may have after a record of this type. Only records of
 * failures and ends may use the last SPOOL_RESERVE bytes below the limit on the size of files. */
static int64_t room_of(uint32_t type)
{
    const int64_t limit = file_limit();
    const bool last = type == RANK_FAIL || type == RANK_EXIT;
    return last || limit < 2 * SPOOL_RESERVE || limit == INT64_MAX ? limit : limit - SPOOL_RESERVE;
}

int spool_add(struct spool *s, struct rank_msg head, const void *payload, size_t size, bool durable,
              struct err *e)
{
    assert(size <= SPOOL_RECORD_SIZE - sizeof head);
    head.abi = RANK_ABI;
    head.size = (uint32_t)size;
    struct spool_frame f = {(uint32_t)(sizeof head + size),
                            crc_add(crc_add(0, &head, sizeof head), payload, size)};
    struct iovec iov[3] = {{&f, sizeof f}, {&head, sizeof head}, {(void *)payload, size}};
    size_t whole = sizeof f + sizeof head + size;
    ssize_t n = -1;
    errno = EFBIG;
    if (s->offset + (int64_t)whole <= room_of(head.type)) {
        do n = pwritev(s->fd, iov, 3, s->offset);
        while (n < 0 && errno == EINTR);
    }
    /* A short write leaves a partial record. Its CRC is wrong, and the next record overwrites
     * it. */
    if (n < (ssize_t)whole) return add_failed(s, n, whole, e);
    if (durable && fdatasync(s->fd) < 0) return err_errno(e, "sync the spool");
    s->offset += (int64_t)whole;
    s->seq++;
    return 0;
}

void spool_close(struct spool *s)
{
    if (s->fd > 0) close(s->fd);
    *s = (struct spool){0};
}
