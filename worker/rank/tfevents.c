/* tfevents.c: encodes events as protocol buffers by hand, frames them with CRC-32C, and writes the
 * buffer to the file when it is flushed. */
#include "worker/rank/tfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"

#define HEAD 12 /* Bytes of a record before its data. These are the length and its CRC. */
#define FOOT 4
/* Largest size of a Value in bytes. The Value consists of the key and length of the Value, the
 * key and length of its tag, the tag, and the key and the 4 bytes of its number. Each length is
 * below 128 and so takes one byte. */
#define VALUE_SIZE (2 + 2 + TFEVENTS_TAG + 5)
/* Largest size of an Event in bytes. The Event consists of wall_time, step (10 bytes at most),
 * the key and length of the summary (the length takes two bytes, because it is below 16384),
 * and its Values. */
#define EVENT_SIZE (9 + 11 + 3 + TFEVENTS_SCALARS * VALUE_SIZE)
_Static_assert(VALUE_SIZE < 128 && TFEVENTS_SCALARS * VALUE_SIZE < 16384, "lengths fit");

struct tf_record {
    size_t n; /* number of bytes of data that were written so far */
    unsigned char bytes[HEAD + EVENT_SIZE + FOOT];
};

/* ---- numbers --------------------------------------------------------------------------------- */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_byte(struct tf_record *r, unsigned v)
{
    assert(r->n < EVENT_SIZE);
    r->bytes[HEAD + r->n++] = (unsigned char)v;
}

static void put_key(struct tf_record *r, unsigned field, enum wire wire)
{
    put_byte(r, field << 3 | wire);
}

static void put_varint(struct tf_record *r, uint64_t v)
{
    for (; v >= 128; v >>= 7) put_byte(r, (unsigned)(v & 127) | 128);
    put_byte(r, (unsigned)v);
}

static void put_fixed(struct tf_record *r, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) put_byte(r, (unsigned)(v >> 8 * i) & 255);
}

static void put_text(struct tf_record *r, unsigned field, const char *text, size_t size)
{
    put_key(r, field, BYTES);
    put_varint(r, size);
    for (size_t i = 0; i < size; i++) put_byte(r, (unsigned char)text[i]);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Computes the CRC bit by bit. This is fast enough, because a record of 200 bytes takes only some
 * microseconds. */
static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = ~0u;
    while (n--) {
        crc ^= *p++;
        for (int i = 0; i < 8; i++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static void put_masked(unsigned char *at, const unsigned char *p, size_t n)
{
    const uint32_t crc = crc32c(p, n), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(masked >> 8 * i);
}

static void begin(struct tf_record *r, double wall_s, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    r->n = 0;
    put_key(r, 1, FIXED64);
    put_fixed(r, bits, 8);
    put_key(r, 2, VARINT);
    put_varint(r, (uint64_t)step);
}

static bool append(struct tfevents *f, struct tf_record *r)
{
    const size_t size = HEAD + r->n + FOOT;
    if (size > sizeof f->buf - f->n) return false;
    for (int i = 0; i < 8; i++) r->bytes[i] = (unsigned char)((uint64_t)r->n >> 8 * i);
    put_masked(r->bytes + 8, r->bytes, 8);
    put_masked(r->bytes + HEAD + r->n, r->bytes + HEAD, r->n);
    memcpy(f->buf + f->n, r->bytes, size);
    f->n += size;
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

void tfevents_init(struct tfevents *f, const char *path, double wall_s)
{
    static const char version[] = "brain.Event:2";
    struct tf_record r;
    f->size = 0;
    f->n = 0;
    snprintf(f->path, sizeof f->path, "%s", path);
    begin(&r, wall_s, 0);
    put_text(&r, 3, version, sizeof version - 1);
    append(f, &r); /* always fits, because the buffer is empty */
}

bool tfevents_start(struct tfevents *f, double wall_s, int64_t step)
{
    static const char start[] = {1 << 3 | VARINT, 1};
    struct tf_record r;
    begin(&r, wall_s, step);
    put_text(&r, 7, start, sizeof start);
    return append(f, &r);
}

static size_t value_size(const struct tfevents_scalar *s)
{
    const size_t n = strlen(s->tag);
    assert(n < TFEVENTS_TAG);
    return 2 + n + 5;
}

static void put_value(struct tf_record *r, const struct tfevents_scalar *s)
{
    const float value = (float)s->value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(r, 1, BYTES);
    put_varint(r, value_size(s));
    put_text(r, 1, s->tag, strlen(s->tag));
    put_key(r, 2, FIXED32);
    put_fixed(r, bits, 4);
}

bool tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                      const struct tfevents_scalar *s, int n)
{
    struct tf_record r;
    size_t size = 0;
    assert(n <= TFEVENTS_SCALARS);
    for (int i = 0; i < n; i++) size += 2 + value_size(&s[i]);
    begin(&r, wall_s, step);
    put_key(&r, 5, BYTES);
    put_varint(&r, size);
    for (int i = 0; i < n; i++) put_value(&r, &s[i]);
    return append(f, &r);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Writes the buffer. If the write fails, the file is truncated to its old length. If the
 * truncation fails as well, the next call overwrites the incomplete end of the file. */
static int write_out(struct tfevents *f, int fd, struct err *e)
{
    for (size_t done = 0; done < f->n;) {
        const ssize_t n = pwrite(fd, f->buf + done, f->n - done, f->size + (int64_t)done);
        if (n > 0) done += (size_t)n;
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        err_write(e, f->size + (int64_t)f->n, "write %s", f->path);
        const int cut = f->size ? ftruncate(fd, f->size) : unlink(f->path);
        (void)cut;
        return -1;
    }
    f->size += (int64_t)f->n;
    f->n = 0;
    return 0;
}

int tfevents_flush(struct tfevents *f, bool sync, struct err *e)
{
    const int fd = open(
        f->path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | (f->size ? 0 : O_CREAT | O_TRUNC), 0666);
    if (fd < 0) return err_errno(e, "open %s", f->path);
    int rc = write_out(f, fd, e);
    if (!rc && sync && fdatasync(fd)) rc = err_errno(e, "sync %s", f->path);
    if (close(fd) && !rc) rc = err_errno(e, "close %s", f->path);
    return rc;
}
