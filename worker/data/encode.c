/* encode.c: appends tokens, ends, masks, byte counts and origins to one file each, and counts
 * how often each id occurs, from which the entropy is computed. */
#include "worker/data/encode_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

static int open_part(struct encode *c, const char *dir, int part, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/%s", dir, meta_part_name(part)) < 0) return -1;
    return file_out_open(&c->out[part], path, e);
}

int encode_open(struct encode *c, const char *dir, int width, int64_t vocab, struct meta *m,
                struct err *e)
{
    *c = (struct encode){.width = width, .vocab = vocab, .meta = m};
    for (int i = 0; i < PART_N; i++) c->out[i].fd = -1;
    for (int i = 0; i < PART_N; i++)
        if ((i != PART_BYTES || *m->tokenizer) && open_part(c, dir, i, e) < 0) return -1;
    return 0;
}

void encode_abort(struct encode *c)
{
    for (int i = 0; i < PART_N; i++) file_out_abort(&c->out[i]);
    free(c->count);
    c->count = NULL;
}

void encode_file(struct encode *c, int set, uint32_t source, uint32_t file)
{
    c->set = set;
    c->source = source;
    c->file = file;
    c->mark = c->file_mark = c->n_tokens;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Makes room for the counts of ids up to `largest`. */
static int count_room(struct encode *c, uint32_t largest, struct err *e)
{
    if (largest < c->n_count) return 0;
    int64_t room = c->n_count ? c->n_count : 512;
    while (room <= largest) room *= 2;
    int64_t *more = realloc(c->count, (size_t)room * sizeof *more);
    if (!more) return err_set(e, ERR_IO, "out of memory to count %lld ids", (long long)room);
    memset(more + c->n_count, 0, (size_t)(room - c->n_count) * sizeof *more);
    c->count = more;
    c->n_count = room;
    return 0;
}

/* Checks that the id may be written, and records it if it is the largest so far. */
static int check_id(struct encode *c, uint32_t id, int64_t index, struct err *e)
{
    const int64_t pos = c->n_tokens + index - c->mark;
    if (id >= c->vocab)
        return err_set(e, ERR_INVALID,
                       "token %lld is %u: the model's vocabulary has %lld ids, from 0",
                       (long long)pos, id, (long long)c->vocab);
    if (id > 65535 && c->width == 2) {
        c->too_wide = true;
        return err_set(e, ERR_TOO_LARGE, "token %lld is %u: it needs 4 bytes", (long long)pos, id);
    }
    if (id > c->meta->stats.max_token) {
        c->meta->stats.max_token = id;
        c->meta->max_file = (int)c->file;
        c->meta->max_pos = c->n_tokens + index - c->file_mark;
    }
    return 0;
}

static uint32_t largest_of(const uint32_t *ids, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) most = ids[i] > most ? ids[i] : most;
    return most;
}

/* Checks and counts ids. The ids are checked one by one only if one of them is larger than all
 * earlier ids. */
static int take_ids(struct encode *c, const uint32_t *ids, size_t n, struct err *e)
{
    const uint32_t largest = largest_of(ids, n);
    if (largest > c->meta->stats.max_token || largest >= c->vocab)
        for (size_t i = 0; i < n; i++)
            if (check_id(c, ids[i], (int64_t)i, e) < 0) return -1;
    if (c->set != SET_TRAIN) return 0;
    if (count_room(c, largest, e) < 0) return -1;
    for (size_t i = 0; i < n; i++) c->count[ids[i]]++;
    return 0;
}

static int put_bits(struct encode *c, size_t n, const uint8_t *learn, bool all, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const int64_t at = c->n_tokens + (int64_t)i;
        const bool bit = learn ? learn[i] : all;
        c->meta->stats.n_masked += !bit;
        c->bits = (uint8_t)(c->bits | bit << (at % 8));
        if (at % 8 != 7) continue;
        if (file_out_add(&c->out[PART_LOSS], &c->bits, 1, e) < 0) return -1;
        c->bits = 0;
    }
    return 0;
}

/* Begins the mask when put_mask gets the first token that may not be a target. All tokens of
 * the calls before it may be targets. */
static int begin_mask(struct encode *c, struct err *e)
{
    static const uint8_t ones[4096] = {[0 ... 4095] = 0xff};
    c->masked = true;
    for (int64_t left = c->n_tokens / 8; left > 0; left -= (int64_t)sizeof ones)
        if (file_out_add(&c->out[PART_LOSS], ones,
                         (size_t)(left < (int64_t)sizeof ones ? left : (int64_t)sizeof ones),
                         e) < 0)
            return -1;
    c->bits = (uint8_t)((1u << (c->n_tokens % 8)) - 1);
    return 0;
}

static int put_mask(struct encode *c, size_t n, const uint8_t *learn, bool all, struct err *e)
{
    if (!c->masked) {
        if (learn ? !memchr(learn, 0, n) : all) return 0;
        if (begin_mask(c, e) < 0) return -1;
    }
    return put_bits(c, n, learn, all, e);
}

/* Writes at most 4096 ids, which take_ids has checked and counted. */
static int put_chunk(struct encode *c, const uint32_t *ids, size_t n, struct err *e)
{
    uint8_t raw[4 * 4096]; /* little-endian on every machine */
    if (c->width == 2)
        for (size_t i = 0; i < n; i++) {
            raw[2 * i] = (uint8_t)ids[i];
            raw[2 * i + 1] = (uint8_t)(ids[i] >> 8);
        }
    else
        for (size_t i = 0; i < 4 * n; i++) raw[i] = (uint8_t)(ids[i / 4] >> (8 * (i % 4)));
    return file_out_add(&c->out[PART_TOKENS], raw, n * (size_t)c->width, e);
}

static int put(struct encode *c, const uint32_t *ids, size_t n, const uint8_t *learn, bool all,
               struct err *e)
{
    if (!n) return 0;
    if (take_ids(c, ids, n, e) < 0) return -1;
    for (size_t i = 0; i < n; i += 4096)
        if (put_chunk(c, ids + i, n - i < 4096 ? n - i : 4096, e) < 0) return -1;
    if (put_mask(c, n, learn, all, e) < 0) return -1;
    c->n_tokens += (int64_t)n;
    c->last = ids[n - 1];
    return 0;
}

static int64_t *count_bytes(struct encode *c)
{
    return c->set == SET_TRAIN ? &c->meta->stats.n_bytes : &c->meta->stats.eval_bytes;
}

/* Writes the number of text bytes of each of n tokens. n is at most 4096. */
static int put_sizes(struct encode *c, const uint32_t *bytes, size_t n, struct err *e)
{
    uint8_t raw[4 * 4096];
    if (c->ids) return 0; /* in this case bytes.bin is not written */
    for (size_t i = 0; i < 4 * n; i++) raw[i] = (uint8_t)(bytes[i / 4] >> (8 * (i % 4)));
    return file_out_add(&c->out[PART_BYTES], raw, 4 * n, e);
}

int encode_put(struct encode *c, const struct encode_cut *cut, struct err *e)
{
    const int32_t *ids = cut->by->ids.id + cut->at;
    const uint32_t *bytes = cut->by->bytes + cut->at;
    const uint8_t *learn = cut->by->learn + cut->at;
    size_t n = (size_t)cut->n;
    uint32_t some[4096];
    c->end_id = cut->by->end;
    while (n) {
        const size_t k = n < 4096 ? n : 4096;
        for (size_t i = 0; i < k; i++) {
            some[i] = (uint32_t)ids[i];
            *count_bytes(c) += bytes[i];
        }
        if (put(c, some, k, learn, true, e) < 0 || put_sizes(c, bytes, k, e) < 0) return -1;
        ids += k;
        bytes += k;
        learn += k;
        n -= k;
    }
    return 0;
}

int encode_ids(struct encode *c, const uint32_t *ids, size_t n, const uint8_t *learn, struct err *e)
{
    c->ids = true;
    return put(c, ids, n, learn, true, e);
}

int encode_bytes(struct encode *c, const void *bytes, size_t n, bool learn, struct err *e)
{
    const uint8_t *b = bytes;
    uint32_t ids[4096];
    *count_bytes(c) += (int64_t)n;
    while (n) {
        size_t k = n < 4096 ? n : 4096;
        for (size_t i = 0; i < k; i++) ids[i] = b[i];
        if (put(c, ids, k, NULL, learn, e) < 0) return -1;
        b += k;
        n -= k;
    }
    return 0;
}

/* Adds the id that ends a document of text, unless the document already ends with this id. */
static int put_end(struct encode *c, struct err *e)
{
    static const uint32_t end_id = TOKEN_EOD, no_bytes = 0;
    const uint32_t own_id = (uint32_t)c->end_id;
    if (!c->text) return put(c, &end_id, 1, NULL, true, e);
    if (c->end_id < 0 || c->last == own_id) return 0;
    return put(c, &own_id, 1, NULL, true, e) < 0 ? -1 : put_sizes(c, &no_bytes, 1, e);
}

int encode_end(struct encode *c, bool eod, uint64_t record, uint64_t offset, struct err *e)
{
    uint8_t end[8];
    struct data_stats *s = &c->meta->stats;
    if (c->n_tokens == c->document_start) {
        s->n_skipped++;
        return 0;
    }
    if (eod && put_end(c, e) < 0) return -1;
    if (c->set == SET_TRAIN) {
        s->n_tokens += c->n_tokens - c->document_start;
        s->n_documents++;
    } else {
        s->eval_tokens += c->n_tokens - c->document_start;
        s->eval_documents++;
    }
    c->document_start = c->n_tokens;
    c->n_documents++;
    for (int i = 0; i < 8; i++) end[i] = (uint8_t)((uint64_t)c->n_tokens >> (8 * i));
    const struct data_origin at = {c->source, c->file, record, offset};
    if (file_out_add(&c->out[PART_DOCUMENTS], end, 8, e) < 0) return -1;
    return file_out_add(&c->out[PART_ORIGINS], &at, sizeof at, e);
}

/* ---- the end --------------------------------------------------------------------------------- */

static double entropy(const struct encode *c)
{
    double h = 0, n = (double)c->meta->stats.n_tokens;
    for (int64_t t = 0; t < c->n_count; t++)
        if (c->count[t]) h -= (double)c->count[t] / n * log((double)c->count[t] / n);
    return h;
}

int encode_close(struct encode *c, struct err *e)
{
    assert(c->n_tokens == c->document_start);
    if (c->masked && c->n_tokens % 8 && file_out_add(&c->out[PART_LOSS], &c->bits, 1, e) < 0)
        return -1;
    for (int i = 0; i < PART_N; i++) {
        struct meta_part *p = &c->meta->part[i];
        if ((i == PART_LOSS && !c->masked) ||
            (i == PART_BYTES && (!*c->meta->tokenizer || c->ids))) {
            file_out_abort(&c->out[i]);
            p->size = -1;
            continue;
        }
        p->size = c->out[i].size;
        if (file_out_close(&c->out[i], p->sha256, e) < 0) return -1;
    }
    c->meta->width = c->width;
    c->meta->stats.unigram_entropy = entropy(c);
    free(c->count);
    c->count = NULL;
    return 0;
}
