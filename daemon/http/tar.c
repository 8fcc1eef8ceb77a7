/* tar.c: computes the bytes of a tar file at any position. */
#include "daemon/http/tar.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"

/* Offsets of POSIX ustar. */
enum { NAME = 0, MODE = 100, UID = 108, GID = 116, SIZE = 124, MTIME = 136, SUM = 148 };
enum { TYPE = 156, MAGIC = 257, PREFIX = 345, NAME_SIZE = 100, PREFIX_SIZE = 155 };

#define OCTAL_MAX (((int64_t)1 << 33) - 1) /* largest number of 11 octal digits */
#define END_SIZE  (2 * TAR_BLOCK)

static int64_t padded(int64_t size)
{
    return (size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* Returns the position of the slash at which a name is split into the header's fields prefix and
 * name. It is the last slash for which both parts fit. Returns 0 if the whole name fits into the
 * field name, and -1 if there is no such slash. */
static int cut_of(const char *name)
{
    const size_t n = strlen(name);
    if (n <= NAME_SIZE) return 0;
    for (size_t i = n - 1; i > 0; i--)
        if (name[i] == '/' && i <= PREFIX_SIZE && n - i - 1 <= NAME_SIZE) return (int)i;
    return -1;
}

static void put_octal(unsigned char *at, int n_digits, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%0*llo", n_digits, (unsigned long long)v);
    memcpy(at, text, (size_t)n_digits + 1);
}

static void put_header(unsigned char *h, const char *name, int64_t size, char type)
{
    const int cut = cut_of(name);
    unsigned sum = 0;
    memset(h, 0, TAR_BLOCK);
    if (cut > 0) memcpy(h + PREFIX, name, (size_t)cut);
    name += cut > 0 ? cut + 1 : 0;
    memcpy(h + NAME, name,
           strnlen(name, NAME_SIZE)); /* a name that cannot be split is stored in a pax header */
    put_octal(h + MODE, 7, 0644);
    put_octal(h + UID, 7, 0);
    put_octal(h + GID, 7, 0);
    put_octal(h + SIZE, 11, size > OCTAL_MAX ? 0 : size);
    put_octal(h + MTIME, 11, 0);
    h[TYPE] = (unsigned char)type;
    memcpy(h + MAGIC, "ustar\00000", 8);
    memset(h + SUM, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++) sum += h[i];
    put_octal(h + SUM, 6, sum); /* six digits, NUL, blank */
}

/* Writes "LENGTH KEY=VALUE\n", where LENGTH also counts its own digits. Returns the length. */
static int put_record(char *out, const char *key, const char *value)
{
    const int rest = (int)(strlen(key) + strlen(value)) + 3;
    int n = rest + 1;
    char digits[16];
    while (n != rest + snprintf(digits, sizeof digits, "%d", n)) n++;
    return sprintf(out, "%d %s=%s\n", n, key, value);
}

/* Makes the header of file i. Returns its size, which is a multiple of TAR_BLOCK and at most
 * TAR_HEAD_MAX. */
static int make_head(const struct tar *t, int i, unsigned char out[TAR_HEAD_MAX])
{
    char name[TAR_NAME_SIZE], size[24], *pax = (char *)out + TAR_BLOCK;
    const struct tar_file *f = &t->file[i];
    const int n = snprintf(name, sizeof name, "%s/%s", t->top, f->name);
    assert(n > 0 && n < TAR_NAME_SIZE);
    int used = 0;
    memset(pax, 0, TAR_BLOCK);
    if (cut_of(name) < 0) used += put_record(pax, "path", name);
    snprintf(size, sizeof size, "%lld", (long long)f->size);
    if (f->size > OCTAL_MAX) used += put_record(pax + used, "size", size);
    if (!used) {
        put_header(out, name, f->size, '0');
        return TAR_BLOCK;
    }
    put_header(out, "pax", used, 'x');
    put_header(out + 2 * TAR_BLOCK, name, f->size, '0');
    return TAR_HEAD_MAX;
}

/* ---- positions ------------------------------------------------------------------------------- */

static int head_size(const struct tar *t, int i)
{
    unsigned char head[TAR_HEAD_MAX];
    return make_head(t, i, head);
}

int64_t tar_size(const struct tar *t)
{
    int64_t size = END_SIZE;
    for (int i = 0; i < t->n; i++) size += head_size(t, i) + padded(t->file[i].size);
    return size;
}

/* Makes a run of n zeros. */
static void zeros(struct tar_run *out, int64_t n)
{
    out->file = -1;
    out->size = n;
    memset(out->bytes, 0, (size_t)n);
}

void tar_at(const struct tar *t, int64_t at, struct tar_run *out)
{
    for (int i = 0; i < t->n; i++) {
        const int64_t size = t->file[i].size;
        const int head = make_head(t, i, out->bytes);
        if (at < head) {
            out->file = -1;
            out->size = head - at;
            memmove(out->bytes, out->bytes + at, (size_t)out->size);
            return;
        }
        at -= head;
        if (at < size) {
            out->file = i;
            out->offset = at;
            out->size = size - at;
            return;
        }
        if (at < padded(size)) {
            zeros(out, padded(size) - at);
            return;
        }
        at -= padded(size);
    }
    assert(at >= 0 && at < END_SIZE);
    zeros(out, END_SIZE - at);
}
