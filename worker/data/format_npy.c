/* format_npy.c: parses the header of a .npy file as a Python literal, and reads its integers as
 * ids. */
#include <stdlib.h>
#include <string.h>
#include "worker/data/npy.h"

/* Largest size of the header that is read, in bytes. NumPy's default limit is 10000. */
#define HEADER_SIZE ((int64_t)1 << 20)

struct literal { /* the part of the dictionary's text that is not parsed yet */
    const char *p, *end;
};

static void blanks(struct literal *l)
{
    while (l->p < l->end && (*l->p == ' ' || *l->p == '\n' || *l->p == '\t')) l->p++;
}

static bool take(struct literal *l, char c)
{
    blanks(l);
    if (l->p == l->end || *l->p != c) return false;
    l->p++;
    return true;
}

static bool take_word(struct literal *l, const char *word)
{
    const size_t n = strlen(word);
    blanks(l);
    if ((size_t)(l->end - l->p) < n || memcmp(l->p, word, n)) return false;
    l->p += n;
    return true;
}

/* Parses 'text' or "text", without escapes. */
static bool take_text(struct literal *l, char out[32])
{
    size_t n = 0;
    blanks(l);
    if (l->p == l->end || (*l->p != '\'' && *l->p != '"')) return false;
    const char quote = *l->p++;
    for (; l->p < l->end && *l->p != quote && n < 31; n++) out[n] = *l->p++;
    out[n] = 0;
    return l->p < l->end && *l->p++ == quote;
}

static bool take_int(struct literal *l, int64_t *out)
{
    blanks(l);
    if (l->p == l->end || *l->p < '0' || *l->p > '9') return false;
    for (*out = 0; l->p < l->end && *l->p >= '0' && *l->p <= '9'; l->p++) {
        /* Refuse larger numbers, because 8 bytes for each element, for *out elements, must fit
         * an int64_t. */
        if (*out > (INT64_MAX / 8 - 9) / 10) return false;
        *out = *out * 10 + (*l->p - '0');
    }
    take_word(l, "L"); /* skip the L that Python 2 wrote after long integers */
    return true;
}

/* Parses a type such as '<u2' or '|u1'. */
static int type_of(const char *descr, struct ids_type *t, struct err *e)
{
    const char order = descr[0], kind = order ? descr[1] : 0;
    const int width = kind ? descr[2] - '0' : 0;
    if (order == '>')
        return err_set(e, ERR_INVALID, "the array is big-endian ('%.8s'): save it as '<%c%d'",
                       descr, kind == 'i' ? 'i' : 'u', width);
    if ((order != '<' && order != '|' && order != '=') || (kind != 'u' && kind != 'i') ||
        (width != 1 && width != 2 && width != 4 && width != 8) || descr[3])
        return err_set(e, ERR_INVALID,
                       "the array holds '%.16s' and no integers: want u1 to u8 or "
                       "i1 to i8",
                       descr);
    *t = (struct ids_type){width, kind == 'i'};
    return 0;
}

/* Parses a shape such as (N,). Returns its number of dimensions, or -1. */
static int take_shape(struct literal *l, int64_t *n)
{
    int dims = 0;
    if (!take(l, '(')) return -1;
    while (!take(l, ')')) {
        if (!take_int(l, n)) return -1;
        dims++;
        if (!take(l, ',')) return take(l, ')') ? dims : -1;
    }
    return dims;
}

static int bad_header(struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "the header is no dictionary of 'descr', 'fortran_order' and "
                   "'shape'");
}

int format_npy_parse(const char *text, size_t size, struct npy *out, struct err *e)
{
    struct literal l = {text, text + size};
    char key[32], descr[32] = "";
    bool order = false;
    int dims = -1;
    if (!take(&l, '{')) return bad_header(e);
    while (!take(&l, '}')) {
        if (!take_text(&l, key) || !take(&l, ':')) return bad_header(e);
        bool held = false;
        if (!strcmp(key, "descr") && !descr[0])
            held = take_text(&l, descr);
        else if (!strcmp(key, "fortran_order") && !order)
            held = order = take_word(&l, "False") || take_word(&l, "True");
        else if (!strcmp(key, "shape") && dims < 0)
            held = (dims = take_shape(&l, &out->n)) >= 0;
        if (!held) return bad_header(e);
        if (!take(&l, ',')) {
            if (!take(&l, '}')) return bad_header(e);
            break;
        }
    }
    blanks(&l);
    if (l.p != l.end || !descr[0] || !order || dims < 0) return bad_header(e);
    if (dims != 1)
        return err_set(e, ERR_INVALID, "the array has %d dimensions: want one, all tokens in a row",
                       dims);
    return type_of(descr, &out->type, e);
}

int format_read_npy(struct format_in *in, struct err *e)
{
    uint8_t head[12];
    static char text[1]; /* the text of an empty header, which is refused later */
    char *header = text;
    struct npy a;
    if (reader_take(in->r, head, 10, "the header of an array", e) < 0) return -1;
    if (memcmp(head, "\x93NUMPY", 6) || head[6] < 1 || head[6] > 3)
        return err_set(e, ERR_INVALID, "%s is no NumPy array of version 1, 2 or 3", in->r->path);
    int64_t size = head[8] | head[9] << 8, skip = 10;
    if (head[6] > 1) {
        if (reader_take(in->r, head + 10, 2, "the header of an array", e) < 0) return -1;
        size |= (int64_t)head[10] << 16 | (int64_t)head[11] << 24;
        skip = 12;
    }
    if (size > HEADER_SIZE)
        return err_set(e, ERR_TOO_LARGE, "%s: a header of %lld bytes, at most %lld", in->r->path,
                       (long long)size, (long long)HEADER_SIZE);
    if (size && !(header = malloc((size_t)size))) return err_set(e, ERR_IO, "out of memory");
    int rc = reader_take(in->r, header, (size_t)size, "the header of an array", e);
    if (rc == 0 && (rc = format_npy_parse(header, (size_t)size, &a, e)) < 0)
        err_prefix(e, "%s", in->r->path);
    if (header != text) free(header);
    if (rc < 0) return -1;
    const int64_t body = reader_size(in->r) - skip - size;
    if (body != a.n * a.type.width)
        return err_set(e, ERR_CORRUPT, "%s has %lld bytes after its header, the header says %lld",
                       in->r->path, (long long)body, (long long)(a.n * a.type.width));
    struct ids_in ids = {in->r, in->c, a.type, skip + size, 0};
    return ids_documents(&ids, a.n, in->eod, IDS_END_LAST, e);
}
