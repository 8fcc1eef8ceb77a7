#include "worker/rank/tfevents.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define HEAD 12 /* of a record, before its data: length and CRC */
#define FOOT 4
/* Key and length of a Value, of its tag, the tag; key and bytes of its number. Each length is below
 * 128: one byte. */
#define VALUE_SIZE (2 + 2 + TFEVENTS_TAG + 5)
/* wall_time, step (10 bytes at most), key and length of the summary (below 16384: two bytes). */
#define EVENT_SIZE (9 + 11 + 3 + TFEVENTS_SCALARS * VALUE_SIZE)
_Static_assert(VALUE_SIZE < 128 && TFEVENTS_SCALARS * VALUE_SIZE < 16384, "lengths fit");

struct record {
    size_t n; /* bytes of data so far */
    unsigned char bytes[HEAD + EVENT_SIZE + FOOT];
};

/* ---- numbers --------------------------------------------------------------------------------- */

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_byte(struct record *r, unsigned v)
{
    assert(r->n < EVENT_SIZE);
    r->bytes[HEAD + r->n++] = (unsigned char)v;
}

static void put_key(struct record *r, unsigned field, enum wire wire)
{
    put_byte(r, field << 3 | wire);
}

static void put_varint(struct record *r, uint64_t v)
{
    for (; v >= 128; v >>= 7) put_byte(r, (unsigned)(v & 127) | 128);
    put_byte(r, (unsigned)v);
}

static void put_fixed(struct record *r, uint64_t v, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) put_byte(r, (unsigned)(v >> 8 * i) & 255);
}

static void put_text(struct record *r, unsigned field, const char *text, size_t size)
{
    put_key(r, field, BYTES);
    put_varint(r, size);
    for (size_t i = 0; i < size; i++) put_byte(r, (unsigned char)text[i]);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Bit by bit: a record of 200 bytes takes some microseconds. */
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

static void begin(struct record *r, double wall_s, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    r->n = 0;
    put_key(r, 1, FIXED64);
    put_fixed(r, bits, 8);
    put_key(r, 2, VARINT);
    put_varint(r, (uint64_t)step);
}

/* Of one that cannot be written whole nothing stays: a reader would stop there. */
static int append(struct tfevents *f, struct record *r, struct err *e)
{
    const size_t size = HEAD + r->n + FOOT;
    size_t done = 0;
    for (int i = 0; i < 8; i++) r->bytes[i] = (unsigned char)((uint64_t)r->n >> 8 * i);
    put_masked(r->bytes + 8, r->bytes, 8);
    put_masked(r->bytes + HEAD + r->n, r->bytes + HEAD, r->n);
    while (done < size) { /* once, but where a disk becomes full */
        const ssize_t n = pwrite(f->fd, r->bytes + done, size - done, f->size + (int64_t)done);
        if (n > 0) done += (size_t)n;
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        err_errno(e, "write %s", f->path);
        if (done && ftruncate(f->fd, f->size)) return -1; /* the next one is written over it */
        return -1;
    }
    f->size += (int64_t)size;
    return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static int put_version(struct tfevents *f, double wall_s, struct err *e)
{
    static const char version[] = "brain.Event:2";
    struct record r;
    begin(&r, wall_s, 0);
    put_text(&r, 3, version, sizeof version - 1);
    return append(f, &r, e);
}

int tfevents_start(struct tfevents *f, double wall_s, int64_t step, struct err *e)
{
    static const char start[] = {1 << 3 | VARINT, 1};
    struct record r;
    begin(&r, wall_s, step);
    put_text(&r, 7, start, sizeof start);
    return append(f, &r, e);
}

static size_t value_size(const struct tfevents_scalar *s)
{
    const size_t n = strlen(s->tag);
    assert(n < TFEVENTS_TAG);
    return 2 + n + 5;
}

static void put_value(struct record *r, const struct tfevents_scalar *s)
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

int tfevents_scalars(struct tfevents *f, double wall_s, int64_t step,
                     const struct tfevents_scalar *s, int n, struct err *e)
{
    struct record r;
    size_t size = 0;
    assert(n <= TFEVENTS_SCALARS);
    for (int i = 0; i < n; i++) size += 2 + value_size(&s[i]);
    begin(&r, wall_s, step);
    put_key(&r, 5, BYTES);
    put_varint(&r, size);
    for (int i = 0; i < n; i++) put_value(&r, &s[i]);
    return append(f, &r, e);
}

/* ---- life ------------------------------------------------------------------------------------ */

int tfevents_open(struct tfevents *f, const char *path, double wall_s, int64_t step, struct err *e)
{
    f->size = 0;
    snprintf(f->path, sizeof f->path, "%s", path);
    f->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (f->fd < 0) return err_errno(e, "open %s", path);
    if (!put_version(f, wall_s, e) && !tfevents_start(f, wall_s, step, e)) return 0;
    tfevents_close(f);
    unlink(path);
    return -1;
}

int tfevents_sync(struct tfevents *f, struct err *e)
{
    return fdatasync(f->fd) ? err_errno(e, "sync %s", f->path) : 0;
}

void tfevents_close(struct tfevents *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}
