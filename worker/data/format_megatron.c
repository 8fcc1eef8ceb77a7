/* format_megatron.c: reads the three arrays of a Megatron-LM index in parallel, and divides
 * the tokens of the .bin file into documents. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "worker/data/megatron.h"

/* ---- names ----------------------------------------------------------------------------------- */

static size_t without(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);
    return n > k && !strcmp(path + n - k, suffix) ? n - k : n;
}

int format_megatron_idx(const char *path, char out[FILE_PATH_SIZE], struct err *e)
{
    size_t n = without(path, ".idx");
    if (!path[n]) n = without(path, ".bin");
    return file_join(out, e, "%.*s.idx", (int)n, path);
}

/* Makes the path of the .bin file from the path of its .idx file. */
static int bin_path(const char *path, char out[FILE_PATH_SIZE], struct err *e)
{
    return file_join(out, e, "%.*s.bin", (int)without(path, ".idx"), path);
}

/* ---- the index ------------------------------------------------------------------------------- */

struct megatron_index {
    struct ids_type type;
    int64_t n_sequences, n_indices;
};

static uint64_t u64_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static int dtype_of(int code, struct ids_type *t, struct err *e)
{
    static const struct ids_type types[] = {[1] = {1, false}, [2] = {1, true}, [3] = {2, true},
                                            [4] = {4, true},  [5] = {8, true}, [8] = {2, false}};
    if (code < 1 || code > 8)
        return err_set(e, ERR_CORRUPT, "dtype %d: no such code, 1 to 8 are known", code);
    *t = types[code];
    if (t->width) return 0;
    return err_set(e, ERR_INVALID, "dtype %d is of real numbers: token ids are whole ones", code);
}

/* Parses the header, which has MEGATRON_HEADER bytes. file_size is the size of the .idx. Fails
 * with ERR_CORRUPT or ERR_INVALID. */
static int index_parse(const uint8_t *header, int64_t file_size, struct megatron_index *out,
                       struct err *e)
{
    if (memcmp(header, "MMIDIDX\0\0", 9))
        return err_set(e, ERR_INVALID, "this is no Megatron index: it begins with no MMIDIDX");
    const uint64_t version = u64_at(header + 9), n = u64_at(header + 18), m = u64_at(header + 26);
    const uint64_t body = (uint64_t)(file_size - MEGATRON_HEADER);
    if (version != 1)
        return err_set(e, ERR_UNSUPPORTED, "index version %llu, want 1",
                       (unsigned long long)version);
    if (dtype_of(header[17], &out->type, e) < 0) return -1;
    /* Limit 12 * n and 8 * m to the size of the file, so that their sum cannot overflow. */
    const bool fits = n <= body / 12 && m <= body / 8;
    if (fits && n && 12 * n + 8 * m + n == body)
        return err_set(e, ERR_UNSUPPORTED, "a multimodal dataset: only text is read");
    if (!fits || 12 * n + 8 * m != body)
        return err_set(e, ERR_CORRUPT,
                       "%llu bytes after the header cannot hold %llu sequences and %llu document "
                       "indices",
                       (unsigned long long)body, (unsigned long long)n, (unsigned long long)m);
    if (m < 1) return err_set(e, ERR_CORRUPT, "the index has no document");
    out->n_sequences = (int64_t)n;
    out->n_indices = (int64_t)m;
    return 0;
}

/* An array of the index, which is read one block at a time. */
struct column {
    const struct reader *r;
    int64_t at; /* offset in the file of the next block */
    int width;
    size_t used, held;
    uint8_t block[8 * 1024];
};

static int column_fill(struct column *c, struct err *e)
{
    ssize_t n;
    do n = pread(c->r->fd, c->block, sizeof c->block, c->at);
    while (n < 0 && errno == EINTR);
    if (n < 0) return err_errno(e, "read %s", c->r->path);
    if (n < c->width) return err_set(e, ERR_CORRUPT, "%s became shorter", c->r->path);
    c->at += n - n % c->width;
    c->held = (size_t)(n - n % c->width);
    c->used = 0;
    return 0;
}

static int column_next(struct column *c, int64_t *out, struct err *e)
{
    if (c->used == c->held && column_fill(c, e) < 0) return -1;
    const uint8_t *p = c->block + c->used;
    c->used += (size_t)c->width;
    *out = c->width == 8 ? (int64_t)u64_at(p)
                         : (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                                     (uint32_t)p[3] << 24);
    return 0;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct megatron {
    struct format_in *in;
    struct megatron_index index;
    struct column length, pointer, document;
    struct ids_in ids;       /* token ids of the .bin file */
    int64_t sequence, bytes; /* number of sequences and of bytes that were read so far */
};

static int put_sequence(struct megatron *g, struct err *e)
{
    uint32_t ids[IDS_CHUNK];
    int64_t length, pointer;
    if (column_next(&g->length, &length, e) < 0 || column_next(&g->pointer, &pointer, e) < 0)
        return -1;
    if (length < 0 || pointer != g->bytes)
        return err_set(
            e, ERR_CORRUPT,
            "%s: sequence %lld has %lld tokens from byte %lld: want it to begin at %lld, "
            "after the one before",
            g->in->r->path, (long long)g->sequence, (long long)length, (long long)pointer,
            (long long)g->bytes);
    g->sequence++;
    g->bytes += length * g->index.type.width;
    while (length > 0) {
        const size_t k = length < IDS_CHUNK ? (size_t)length : IDS_CHUNK;
        if (ids_take(&g->ids, ids, k, e) < 0) return -1;
        if (encode_ids(g->in->c, ids, k, NULL, e) < 0) return err_prefix(e, "%s", g->ids.r->path);
        length -= (int64_t)k;
    }
    return 0;
}

static int put_documents(struct megatron *g, struct err *e)
{
    int64_t first, next;
    if (column_next(&g->document, &first, e) < 0) return -1;
    if (first != 0)
        return err_set(e, ERR_CORRUPT, "%s: the first document begins with sequence %lld",
                       g->in->r->path, (long long)first);
    for (int64_t d = 0; d + 1 < g->index.n_indices; d++, first = next) {
        const int64_t offset = g->bytes;
        if (column_next(&g->document, &next, e) < 0) return -1;
        if (next < first || next > g->index.n_sequences)
            return err_set(e, ERR_CORRUPT, "%s: document %lld is sequences [%lld, %lld) of %lld",
                           g->in->r->path, (long long)d, (long long)first, (long long)next,
                           (long long)g->index.n_sequences);
        for (int64_t s = first; s < next; s++)
            if (put_sequence(g, e) < 0) return -1;
        if (encode_end(g->in->c, false, (uint64_t)d, (uint64_t)offset, e) < 0) return -1;
    }
    if (first == g->index.n_sequences) return 0;
    return err_set(e, ERR_CORRUPT, "%s: the documents hold %lld of %lld sequences", g->in->r->path,
                   (long long)first, (long long)g->index.n_sequences);
}

/* Reads the index from front to back to hash it. Its columns are read afterwards. */
static int read_index(struct megatron *g, struct err *e)
{
    struct reader *r = g->in->r;
    uint8_t header[MEGATRON_HEADER];
    if (reader_take(r, header, sizeof header, "a Megatron index", e) < 0) return -1;
    while (!r->end) {
        reader_drop(r, r->n);
        if (reader_fill(r, e) < 0) return -1;
    }
    if (index_parse(header, reader_size(r), &g->index, e) < 0) return err_prefix(e, "%s", r->path);
    const int64_t n = g->index.n_sequences;
    g->length = (struct column){.r = r, .at = MEGATRON_HEADER, .width = 4};
    g->pointer = (struct column){.r = r, .at = MEGATRON_HEADER + 4 * n, .width = 8};
    g->document = (struct column){.r = r, .at = MEGATRON_HEADER + 12 * n, .width = 8};
    return 0;
}

static int read_tokens(struct megatron *g, struct reader *bin, struct err *e)
{
    g->ids = (struct ids_in){bin, g->in->c, g->index.type, 0, 0};
    if (put_documents(g, e) < 0) return -1;
    if (reader_size(bin) == g->bytes) return 0;
    return err_set(e, ERR_CORRUPT, "%s has %lld bytes, its index describes %lld", bin->path,
                   (long long)reader_size(bin), (long long)g->bytes);
}

int format_read_megatron(struct format_in *in, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct megatron g = {.in = in};
    struct reader bin;
    if (read_index(&g, e) < 0 || bin_path(in->r->path, path, e) < 0) return -1;
    if (reader_open(&bin, in->root, path, in->r->into, e) < 0) return -1;
    int rc = read_tokens(&g, &bin, e);
    reader_close(&bin);
    return rc;
}

int format_hash_megatron(const char *root, const char *path, struct intake *into, struct err *e)
{
    char bin[FILE_PATH_SIZE];
    if (reader_hash(root, path, into, e) < 0 || bin_path(path, bin, e) < 0) return -1;
    return reader_hash(root, bin, into, e);
}
