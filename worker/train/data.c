#include "worker/train/data.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "worker/sp/sp.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "prepared data is mapped as it lies");

struct mapped {
    int fd;
    void *data;
    int64_t size;
    char path[FILE_PATH_SIZE];
};

struct data {
    struct data_stats stats;
    struct mapped tokens, documents;
};

/* ---- opening -------------------------------------------------------------------------------- */

struct meta {
    int64_t version;
    struct data_stats stats;
    char sha_tokens[SHA256_HEX], sha_documents[SHA256_HEX];
};

/* One member of meta.json whose key was just read. -1 when its value is not what it must be. */
static int meta_member(struct jread *j, struct meta *m)
{
    const struct {
        const char *key;
        int64_t *value;
    } ints[] = {{"version", &m->version},
                {"n_tokens", &m->stats.n_tokens},
                {"n_documents", &m->stats.n_documents},
                {"n_bytes", &m->stats.n_bytes}};
    const struct {
        const char *key;
        char *text;
    } texts[] = {{"sha256_tokens", m->sha_tokens}, {"sha256_documents", m->sha_documents}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (jread_is(j, ints[i].key))
            return jread_next(j) == J_NUMBER ? jread_int(j, ints[i].value) : -1;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (jread_is(j, texts[i].key))
            return jread_next(j) == J_STRING ? jread_copy(j, texts[i].text, SHA256_HEX) : -1;
    if (jread_is(j, "unigram_entropy"))
        return jread_next(j) == J_NUMBER ? jread_double(j, &m->stats.unigram_entropy) : -1;
    if (jread_is(j, "tokenizer")) return jread_next(j) == J_STRING && jread_is(j, "byte") ? 0 : -1;
    return jread_skip(j);
}

static int meta_read(const char *dir, struct meta *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct jread j;
    size_t size;
    if (file_join(path, e, "%s/meta.json", dir) < 0) return -1;
    char *text = file_read(path, 64 << 20, &size, e);
    if (!text) return -1;
    jread_init(&j, text, size);
    int rc = jread_next(&j) == J_OBJECT ? 0 : -1;
    enum jtok t = J_ERROR;
    while (rc == 0 && (t = jread_next(&j)) == J_KEY) rc = meta_member(&j, m);
    if (rc < 0 || t != J_OBJECT_END || jread_next(&j) != J_END || m->version != 1 ||
        m->stats.n_documents < 1 || m->stats.n_tokens < m->stats.n_documents ||
        m->stats.n_tokens > INT64_MAX / 16)
        rc = err_set(e, ERR_CORRUPT, "%s is not the description of prepared data; remove %s", path,
                     dir);
    free(text);
    return rc;
}

/* Maps a file after comparing its size and digest with what meta.json says. */
static int map_file(struct mapped *m, const char *dir, const char *name, int64_t size,
                    const char *sha, struct err *e)
{
    char hex[SHA256_HEX];
    int64_t found;
    if (file_join(m->path, e, "%s/%s", dir, name) < 0) return -1;
    m->fd = open(m->path, O_RDONLY | O_CLOEXEC);
    if (m->fd < 0) return err_set(e, ERR_CORRUPT, "cannot open %s; remove %s", m->path, dir);
    if (sha256_file(m->path, hex, &found, e) < 0) return -1;
    if (found != size)
        return err_set(e, ERR_CORRUPT, "%s has %lld bytes, want %lld; remove %s", m->path,
                       (long long)found, (long long)size, dir);
    if (strcmp(hex, sha))
        return err_set(e, ERR_CORRUPT, "%s does not have the digest in meta.json; remove %s",
                       m->path, dir);
    m->size = size;
    m->data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, m->fd, 0);
    if (m->data != MAP_FAILED) return 0;
    m->data = NULL;
    return err_errno(e, "map %s", m->path);
}

static int check_documents(const struct data *d, struct err *e)
{
    const uint64_t *ends = d->documents.data;
    uint64_t before = 0;
    for (int64_t i = 0; i < d->stats.n_documents; i++) {
        if (ends[i] <= before)
            return err_set(e, ERR_CORRUPT, "%s: document %lld does not end behind the one before",
                           d->documents.path, (long long)i);
        before = ends[i];
    }
    if (before == (uint64_t)d->stats.n_tokens) return 0;
    return err_set(e, ERR_CORRUPT, "%s: the last document ends at %llu, want %lld",
                   d->documents.path, (unsigned long long)before, (long long)d->stats.n_tokens);
}

struct data *data_open(const char *parent, const char *id, struct err *e)
{
    char dir[FILE_PATH_SIZE];
    struct meta m = {0};
    struct data *d = NULL;
    struct stat st;
    if (file_join(dir, e, "%s/%s", parent, id) < 0) return NULL;
    if (stat(dir, &st) < 0) {
        err_errno(e, "prepared data %s", dir);
        return NULL;
    }
    if (meta_read(dir, &m, e) < 0) {
        if (e && e->code == ERR_NOT_FOUND) e->code = ERR_CORRUPT; /* the directory is there */
        return NULL;
    }
    if (!(d = calloc(1, sizeof *d))) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    d->tokens.fd = d->documents.fd = -1;
    d->stats = m.stats;
    snprintf(d->stats.id, sizeof d->stats.id, "%s", id);
    if (map_file(&d->tokens, dir, "tokens.bin", 2 * m.stats.n_tokens, m.sha_tokens, e) < 0 ||
        map_file(&d->documents, dir, "documents.bin", 8 * m.stats.n_documents, m.sha_documents, e) <
            0 ||
        check_documents(d, e) < 0) {
        data_close(d);
        return NULL;
    }
    return d;
}

static void unmap_file(struct mapped *m)
{
    if (m->data) munmap(m->data, (size_t)m->size);
    if (m->fd >= 0) close(m->fd);
}

void data_close(struct data *d)
{
    if (!d) return;
    unmap_file(&d->tokens);
    unmap_file(&d->documents);
    free(d);
}

const struct data_stats *data_stats(const struct data *d)
{
    return &d->stats;
}

const uint16_t *data_tokens(const struct data *d)
{
    return d->tokens.data;
}

const uint64_t *data_documents(const struct data *d)
{
    return d->documents.data;
}

/* ---- order ---------------------------------------------------------------------------------- */

/* The finalizer of splitmix64: every output bit depends on every input bit. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A permutation of [0, n) that needs no memory: a Feistel network of 8 rounds over the smallest
 * even number of bits that holds n, walked along its cycle until the value lies below n (fewer than
 * 4 steps on average). It does not depend on the number of ranks; a resumed job finds it again. */
static int64_t permute(int64_t i, int64_t n, int64_t seed, int64_t pass)
{
    int half = 1;
    while ((int64_t)1 << 2 * half < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, x = (uint64_t)i;
    uint64_t key = mix(mix((uint64_t)seed + 0x9e3779b97f4a7c15u) ^ (uint64_t)pass);
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 8; round++) {
            uint64_t f = mix(key ^ mix(right << 8 | round)) & mask;
            uint64_t old = right;
            right = left ^ f;
            left = old;
        }
        x = left << half | right;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t data_samples(const struct data *d, int64_t seq_len)
{
    assert(seq_len > 0);
    return (d->stats.n_tokens + seq_len - 1) / seq_len;
}

int64_t data_window(const struct data *d, int64_t seq_len, int64_t seed, int64_t n)
{
    int64_t windows = data_samples(d, seq_len);
    assert(n >= 0);
    return permute(n % windows, windows, seed, n / windows);
}

/* ---- rows ----------------------------------------------------------------------------------- */

struct window {
    int64_t start, n_tokens; /* in the concatenated tokens; at least 1 token */
};

static struct window window_of(const struct data *d, const struct batch_options *o, int64_t n)
{
    int64_t windows = data_samples(d, o->seq_len);
    int64_t w = o->in_order ? n % windows : data_window(d, o->seq_len, o->seed, n);
    int64_t start = w * o->seq_len, left = d->stats.n_tokens - start;
    return (struct window){start, left < o->seq_len ? left : o->seq_len};
}

/* The document that holds a token: the first whose end lies behind it. */
static int64_t document_at(const struct data *d, int64_t token)
{
    const uint64_t *ends = d->documents.data;
    int64_t lo = 0, hi = d->stats.n_documents - 1;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (ends[mid] > (uint64_t)token)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

int64_t data_targets(const struct data *d, const struct batch_options *o, int64_t n)
{
    struct window w = window_of(d, o, n);
    int64_t last = document_at(d, w.start + w.n_tokens - 1);
    return w.n_tokens - (last - document_at(d, w.start) + 1);
}

/* A fragment, in positions of the window. */
struct fragment {
    int64_t document, start, end;
};

static struct fragment fragment_of(const struct data *d, struct window w, int64_t document)
{
    const uint64_t *ends = d->documents.data;
    int64_t start = document ? (int64_t)ends[document - 1] - w.start : -w.start;
    int64_t end = (int64_t)ends[document] - w.start;
    return (struct fragment){document, start > 0 ? start : 0, end < w.n_tokens ? end : w.n_tokens};
}

static void pad_row(struct batch *b, int64_t row)
{
    b->ids[row] = TOKEN_PAD;
    b->targets[row] = -1;
    b->pos[row] = b->lo[row] = b->hi[row] = 0;
}

/* Row `row` holds position i of the window, inside fragment f. */
static void set_row(const struct batch_options *o, const uint16_t *tokens, int64_t n_tokens,
                    struct fragment f, int64_t i, struct batch *b, int64_t row)
{
    b->ids[row] = tokens[i];
    b->targets[row] = i + 1 < f.end ? tokens[i + 1] : -1;
    b->pos[row] = o->reset_positions ? i - f.start : i;
    b->lo[row] = o->document_mask ? f.start : 0;
    b->hi[row] = o->causal ? i + 1 : o->document_mask ? f.end : n_tokens;
}

#ifdef SEQD_MUTANTS
static void mutate(int mutant, const struct shard *sh, struct batch *b)
{
    if (sh->P == 1) return;
    if (mutant == MUTANT_LABEL_SHIFT) b->targets[sh->T - 1] = -1;
    for (int64_t row = 0; row < sh->T; row++) {
        if (b->hi[row] == 0) continue; /* padding */
        if (mutant == MUTANT_DOC_CROSSED) b->lo[row] = 0;
        if (mutant == MUTANT_LOCAL_POSITION) b->pos[row] = row;
    }
}
#endif

int data_batch(const struct data *d, const struct batch_options *o, const struct shard *sh,
               int64_t n, struct batch *b, struct err *e)
{
    struct window w = window_of(d, o, n);
    struct stat st;
    assert(sh->S == o->seq_len);
    if (fstat(d->tokens.fd, &st) < 0 || st.st_size < d->tokens.size) /* a shorter map is SIGBUS */
        return err_set(e, ERR_CORRUPT, "%s became shorter than %lld bytes", d->tokens.path,
                       (long long)d->tokens.size);
    const uint16_t *tokens = (const uint16_t *)d->tokens.data + w.start;
    struct fragment f = {-1, 0, 0};
    for (int64_t row = 0; row < sh->T; row++) {
        int64_t i = shard_pos(sh, row);
        if (i >= w.n_tokens) {
            pad_row(b, row);
            continue;
        }
        if (i < f.start || i >= f.end) { /* a neighbour, unless a segment begins here */
            bool next = f.document >= 0 && i == f.end;
            f = fragment_of(d, w, next ? f.document + 1 : document_at(d, w.start + i));
        }
        set_row(o, tokens, w.n_tokens, f, i, b, row);
        if (tokens[i] >= BYTE_VOCAB || b->targets[row] >= BYTE_VOCAB)
            return err_set(e, ERR_CORRUPT, "%s: token %lld is out of range", d->tokens.path,
                           (long long)(w.start + i));
    }
    b->n_tokens = w.n_tokens;
    b->n_targets = data_targets(d, o, n);
#ifdef SEQD_MUTANTS
    mutate(o->mutant, sh, b);
#endif
    return 0;
}
