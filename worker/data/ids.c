/* ids.c: reads integers of 1 to 8 bytes, and divides them into documents before or after each
 * end id. */
#include "worker/data/ids.h"

#include "api/core/assert.h"

/* Returns the number at p, with its sign extended. */
static int64_t value_of(const uint8_t *p, struct ids_type t)
{
    uint64_t v = 0;
    for (int i = 0; i < t.width; i++) v |= (uint64_t)p[i] << (8 * i);
    if (t.is_signed && t.width < 8 && v >> (8 * t.width - 1)) v |= ~(uint64_t)0 << (8 * t.width);
    return (int64_t)v;
}

int ids_take(struct ids_in *in, uint32_t *out, size_t n, struct err *e)
{
    uint8_t raw[8 * IDS_CHUNK];
    const size_t width = (size_t)in->type.width;
    assert(n <= IDS_CHUNK);
    if (reader_take(in->r, raw, n * width, "its tokens", e) < 0) return -1;
    for (size_t i = 0; i < n; i++) {
        int64_t v = value_of(raw + i * width, in->type);
        if (v < 0 || v > UINT32_MAX) /* the encoder compares ids with the vocabulary */
            return err_set(e, ERR_INVALID,
                           "%s: token %lld is %lld: the model's vocabulary has %lld ids, from 0",
                           in->r->path, (long long)(in->index + (int64_t)i), (long long)v,
                           (long long)in->c->vocab);
        out[i] = (uint32_t)v;
    }
    in->index += (int64_t)n;
    return 0;
}

struct cutter {
    struct ids_in *in;
    int64_t eod, n_documents;
    int64_t start; /* index of the open document's first token */
};

static int put(struct cutter *u, const uint32_t *ids, size_t n, struct err *e)
{
    if (encode_ids(u->in->c, ids, n, NULL, e) < 0) return err_prefix(e, "%s", u->in->r->path);
    return 0;
}

/* Ends the open document before token `index`, unless the document is empty. */
static int cut(struct cutter *u, int64_t index, struct err *e)
{
    const int64_t offset = u->in->header + u->start * u->in->type.width;
    if (index == u->start) return 0;
    u->start = index;
    return encode_end(u->in->c, false, (uint64_t)u->n_documents++, (uint64_t)offset, e);
}

/* Adds ids, which are tokens [index, index + n) of the file, and ends a document at each end
 * id. */
static int put_cut(struct cutter *u, const uint32_t *ids, size_t n, int64_t index, enum ids_end end,
                   struct err *e)
{
    size_t done = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] != (uint64_t)u->eod) continue;
        size_t to = end == IDS_END_LAST ? i + 1 : i;
        if (put(u, ids + done, to - done, e) < 0) return -1;
        done = to;
        if (cut(u, index + (int64_t)to, e) < 0) return -1;
    }
    return put(u, ids + done, n - done, e);
}

int ids_documents(struct ids_in *in, int64_t n, int64_t eod, enum ids_end end, struct err *e)
{
    struct cutter u = {.in = in, .eod = eod, .start = in->index};
    uint32_t ids[IDS_CHUNK];
    while (n > 0) {
        const size_t k = n < IDS_CHUNK ? (size_t)n : IDS_CHUNK;
        const int64_t index = in->index;
        if (ids_take(in, ids, k, e) < 0 || put_cut(&u, ids, k, index, end, e) < 0) return -1;
        n -= (int64_t)k;
    }
    return cut(&u, in->index, e);
}
