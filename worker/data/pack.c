/* pack.c: counts fragments, and then lists them in the order of their samples. With concat and
 * whole documents there is no list, because the fragments of a sample are found by a search
 * for the document of a token. */
#include "worker/data/pack.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/data/bestfit.h"

static int64_t document_start(const struct pack *p, int64_t document)
{
    return document ? (int64_t)data_documents(p->o.data)[document - 1] : 0;
}

static int64_t document_length(const struct pack *p, int64_t document)
{
    return (int64_t)data_documents(p->o.data)[document] - document_start(p, document);
}

/* Finds the document that contains a token. It is the first document that ends after the token. */
static int64_t document_at(const struct pack *p, int64_t token)
{
    const uint64_t *ends = data_documents(p->o.data);
    int64_t lo = p->o.first_document, hi = lo + p->o.n_documents - 1;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (ends[mid] > (uint64_t)token)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* ---- units ----------------------------------------------------------------------------------- */

/* A unit is a document or, with pairs, two documents that follow each other. It is packed as a
 * whole. Unit i begins with document unit_first(p, i). */
static int64_t unit_documents(const struct pack *p)
{
    return p->o.pairs ? 2 : 1;
}

static int64_t n_units(const struct pack *p)
{
    assert(p->o.n_documents % unit_documents(p) == 0);
    return p->o.n_documents / unit_documents(p);
}

static int64_t unit_first(const struct pack *p, int64_t i)
{
    return p->o.first_document + i * unit_documents(p);
}

static int64_t unit_length(const struct pack *p, int64_t first)
{
    return document_length(p, first) + (p->o.pairs ? document_length(p, first + 1) : 0);
}

int64_t pack_shortest(const struct pack *p)
{
    int64_t shortest = unit_length(p, unit_first(p, 0));
    for (int64_t i = 1; i < n_units(p); i++) {
        const int64_t length = unit_length(p, unit_first(p, i));
        if (length < shortest) shortest = length;
    }
    return shortest;
}

/* ---- over-long documents --------------------------------------------------------------------- */

static int overlong_pair(const struct pack *p, int64_t document, struct err *e)
{
    struct data_origin at;
    if (data_origin(p->o.data, document, &at, e) < 0) return -1;
    return err_field(e, ERR_INVALID, "data.overlong",
                     "%s record %lld has answers of %lld and %lld tokens with their prompt, the "
                     "sequence %lld: set data.overlong to drop, or raise data.seq_len",
                     data_file(p->o.data, at.file), (long long)at.record,
                     (long long)document_length(p, document),
                     (long long)document_length(p, document + 1), (long long)p->o.seq_len);
}

static int overlong_error(const struct pack *p, int64_t document, struct err *e)
{
    struct data_origin at;
    if (p->o.pairs) return overlong_pair(p, document, e);
    if (data_origin(p->o.data, document, &at, e) < 0) return -1;
    return err_field(e, ERR_INVALID, "data.overlong",
                     "%s record %lld has %lld tokens, the sequence %lld: set data.overlong to "
                     "split, truncate or drop, or raise data.seq_len",
                     data_file(p->o.data, at.file), (long long)at.record,
                     (long long)document_length(p, document), (long long)p->o.seq_len);
}

/* Sets the error for a document that is longer than the model's table of positions. The error
 * names the record of the document. */
static int beyond_table(const struct pack *p, int64_t document, struct err *e)
{
    struct data_origin at;
    if (data_origin(p->o.data, document, &at, e) < 0) return -1;
    return err_field(e, ERR_INVALID, "data.seq_len",
                     "%s record %lld has %lld tokens, and the model a table of %lld positions: cut "
                     "it into shorter documents, or make data.seq_len at most %lld, where "
                     "data.overlong says what becomes of it",
                     data_file(p->o.data, at.file), (long long)at.record,
                     (long long)document_length(p, document), (long long)p->o.longest,
                     (long long)p->o.longest);
}

/* Returns how many tokens of a document of this length are kept. *n_pieces gets the number of
 * pieces. A piece has at most seq_len tokens. */
static int64_t kept(const struct pack *p, int64_t length, int64_t *n_pieces)
{
    const int64_t S = p->o.seq_len;
    *n_pieces = 1;
    if (length <= S) return length;
    if (p->o.overlong == OVERLONG_TRUNCATE) return S;
    *n_pieces = p->o.overlong == OVERLONG_SPLIT ? (length + S - 1) / S : 0;
    return *n_pieces ? length : 0;
}

/* Finds the first of n documents that is longer than the model's table of positions. Returns -1 if
 * there is none. */
static int64_t beyond(const struct pack *p, int64_t first, int64_t n, int64_t left)
{
    if (!p->o.longest || p->o.seq_len <= p->o.longest) return -1;
    if (n == 1) return left > p->o.longest ? first : -1;
    for (int64_t d = first; left && d < first + n; d++)
        if (document_length(p, d) > p->o.longest) return d;
    return -1;
}

/* Counts documents and tokens after data.overlong is applied. n_fragments becomes the number
 * of pieces. Later, concat may divide pieces at the ends of samples. */
static int count(struct pack *p, struct err *e)
{
    struct order_stats *st = &p->stats;
    const int64_t n = unit_documents(p);
    for (int64_t i = 0; i < n_units(p); i++) {
        int64_t d = unit_first(p, i), length = unit_length(p, d), n_pieces;
        if (length > p->o.seq_len && p->o.overlong == OVERLONG_ERROR)
            return overlong_error(p, d, e);
        int64_t left = kept(p, length, &n_pieces);
        const int64_t long_one = beyond(p, d, n, left);
        if (long_one >= 0) return beyond_table(p, long_one, e);
        st->n_fragments += n_pieces;
        st->n_tokens += left;
        st->n_documents += left > 0 ? n : 0;
        st->split_documents += n_pieces > 1;
        if (left == 0) {
            st->dropped_documents += n;
            st->dropped_tokens += length;
        } else if (left < length) {
            st->truncated_documents++;
            st->truncated_tokens += length - left;
        }
    }
    return 0;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void *allot(int64_t n, size_t size, const char *what, struct err *e)
{
    void *a = malloc((size_t)(n ? n : 1) * size);
    if (!a) err_set(e, ERR_IO, "out of memory for %lld %s of the order", (long long)n, what);
    return a;
}

/* Lists all pieces in the order of the documents. The member pos of each piece is 0. */
static void list_pieces(const struct pack *p, struct piece *out)
{
    const int64_t S = p->o.seq_len;
    for (int64_t i = 0; i < n_units(p); i++) {
        int64_t d = unit_first(p, i), token = document_start(p, d), n_pieces;
        int64_t left = kept(p, unit_length(p, d), &n_pieces);
        for (; left > 0; left -= S, token += S)
            *out++ = (struct piece){token, (uint32_t)(left < S ? left : S), 0};
    }
}

/* Makes each piece a sample. */
static int pack_single(struct pack *p, struct err *e)
{
    const int64_t n = p->stats.n_fragments;
    p->piece = allot(n, sizeof *p->piece, "fragments", e);
    p->sample_end = allot(n, sizeof *p->sample_end, "samples", e);
    if (!p->piece || !p->sample_end) return -1;
    list_pieces(p, p->piece);
    for (int64_t i = 0; i < n; i++) p->sample_end[i] = i + 1;
    p->stats.n_samples = n;
    return 0;
}

/* Joins pieces end to end, and divides a piece where a sample is full. */
static void cut_pieces(struct pack *p, const struct piece *in, int64_t n_in)
{
    const uint32_t S = (uint32_t)p->o.seq_len;
    uint32_t pos = 0;
    int64_t n = 0, sample = 0;
    for (int64_t i = 0; i < n_in; i++)
        for (struct piece rest = in[i]; rest.length;) {
            uint32_t len = rest.length < S - pos ? rest.length : S - pos;
            p->piece[n++] = (struct piece){rest.token, len, pos};
            rest.token += len;
            rest.length -= len;
            pos += len;
            p->sample_end[sample] = n;
            if (pos == S) sample++, pos = 0;
        }
    p->stats.n_fragments = n;
    p->stats.n_samples = sample + (pos > 0);
}

static int pack_concat(struct pack *p, struct err *e)
{
    const int64_t S = p->o.seq_len, n = p->stats.n_fragments;
    const int64_t n_samples = (p->stats.n_tokens + S - 1) / S;
    struct piece *all = allot(n, sizeof *all, "fragments", e);
    p->piece = allot(n + n_samples, sizeof *p->piece, "fragments", e);
    p->sample_end = allot(n_samples, sizeof *p->sample_end, "samples", e);
    int rc = all && p->piece && p->sample_end ? 0 : -1;
    if (rc == 0) {
        list_pieces(p, all);
        cut_pieces(p, all, n);
    }
    free(all);
    return rc;
}

/* Stores the pieces of each sample next to each other. `placed` has the indices of the pieces in
 * the order of packing, and where[i] is the sample of piece i. */
static void gather(struct pack *p, const struct piece *all, const uint32_t *placed,
                   const uint32_t *where)
{
    const int64_t n = p->stats.n_fragments, n_samples = p->stats.n_samples;
    int64_t sum = 0;
    memset(p->sample_end, 0, (size_t)n_samples * sizeof *p->sample_end);
    for (int64_t i = 0; i < n; i++) p->sample_end[where[i]]++;
    for (int64_t s = 0; s < n_samples; s++) { /* replace the counts by the indices at which
                                               * samples begin; the loop below changes these
                                               * indices into ends */
        int64_t k = p->sample_end[s];
        p->sample_end[s] = sum;
        sum += k;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t s = where[placed[i]], at = p->sample_end[s]++;
        p->piece[at] = all[placed[i]];
    }
    for (int64_t s = 0, at = 0; s < n_samples; s++)
        for (uint32_t pos = 0; at < p->sample_end[s]; at++) {
            p->piece[at].pos = pos;
            pos += p->piece[at].length;
        }
}

static int pack_best_fit(struct pack *p, struct err *e)
{
    const int64_t n = p->stats.n_fragments;
    struct piece *all = allot(n, sizeof *all, "fragments", e);
    uint32_t *placed = allot(n, sizeof *placed, "fragments", e);
    uint32_t *where = allot(n, sizeof *where, "fragments", e);
    int rc = -1;
    if (!all || !placed || !where) goto out;
    list_pieces(p, all);
    if (bestfit_pack(all, n, p->o.seq_len, placed, where, &p->stats.n_samples, e) < 0) goto out;
    p->piece = allot(n, sizeof *p->piece, "fragments", e);
    p->sample_end = allot(p->stats.n_samples, sizeof *p->sample_end, "samples", e);
    if (!p->piece || !p->sample_end) goto out;
    gather(p, all, placed, where);
    rc = 0;
out:
    free(all);
    free(placed);
    free(where);
    return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Counts the samples and the fragments of a concat that leaves out no document. There is one
 * fragment for each document, and one more for each sample that begins inside a document. */
static void count_windows(struct pack *p)
{
    const int64_t S = p->o.seq_len;
    p->stats.n_samples = (p->n_tokens + S - 1) / S;
    p->stats.n_fragments = p->o.n_documents;
    for (int64_t w = 1; w < p->stats.n_samples; w++) {
        int64_t token = p->first_token + w * S;
        p->stats.n_fragments += document_start(p, document_at(p, token)) != token;
    }
}

/* Fills the lists. Each piece of a pair is two fragments. */
static int pack_pieces(struct pack *p, struct err *e)
{
    const int rc = p->o.packing == PACKING_CONCAT ? pack_concat(p, e)
                   : p->o.packing == PACKING_NONE ? pack_single(p, e)
                                                  : pack_best_fit(p, e);
    if (p->o.pairs) p->stats.n_fragments *= 2;
    return rc;
}

int pack_open(struct pack *p, const struct pack_options *o, struct err *e)
{
    *p = (struct pack){.o = *o};
    assert(o->seq_len > 0 && o->seq_len <= JOB_MAX_SEQ && o->first_document >= 0);
    if (p->o.overlong == OVERLONG_AUTO)
        p->o.overlong = o->pairs || data_masked(o->data) ? OVERLONG_ERROR : OVERLONG_SPLIT;
    assert(!o->pairs || (o->packing != PACKING_CONCAT && p->o.overlong != OVERLONG_SPLIT &&
                         p->o.overlong != OVERLONG_TRUNCATE));
    p->first_token = document_start(p, o->first_document);
    if (o->n_documents)
        p->n_tokens = (int64_t)data_documents(o->data)[o->first_document + o->n_documents - 1] -
                      p->first_token;
    if (count(p, e) < 0) return -1;
    bool whole = !p->stats.dropped_documents && !p->stats.truncated_documents;
    if (o->packing == PACKING_CONCAT && whole) {
        count_windows(p);
        return 0;
    }
    if (p->stats.n_fragments > ORDER_FRAGMENTS)
        return err_field(
            e, ERR_TOO_LARGE, "data.packing",
            "%lld fragments to pack, at most %lld: use packing \"concat\", which needs "
            "no list of them",
            (long long)p->stats.n_fragments, (long long)ORDER_FRAGMENTS);
    return pack_pieces(p, e);
}

void pack_close(struct pack *p)
{
    free(p->piece);
    free(p->sample_end);
    p->piece = NULL;
    p->sample_end = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

void pack_sample(const struct pack *p, int64_t index, struct sample *s)
{
    const int64_t S = p->o.seq_len;
    assert(index >= 0 && index < p->stats.n_samples);
    s->index = index;
    if (p->piece) {
        const struct piece *last = &p->piece[p->sample_end[index] - 1];
        s->first = index ? p->sample_end[index - 1] : 0;
        s->n_fragments = (p->sample_end[index] - s->first) * unit_documents(p);
        s->n_tokens = (int64_t)last->pos + last->length;
        return;
    }
    int64_t start = index * S, left = p->n_tokens - start;
    s->n_tokens = left < S ? left : S;
    s->first = document_at(p, p->first_token + start);
    s->n_fragments = document_at(p, p->first_token + start + s->n_tokens - 1) - s->first + 1;
}

void pack_fragment(const struct pack *p, const struct sample *s, int64_t k, struct fragment *f)
{
    assert(k >= 0 && k < s->n_fragments);
    if (p->o.pairs) {
        const struct piece *x = &p->piece[s->first + k / 2];
        const int64_t d = document_at(p, x->token) + k % 2, token = document_start(p, d);
        *f = (struct fragment){d, token, document_length(p, d), x->pos + token - x->token};
        return;
    }
    if (p->piece) {
        const struct piece *x = &p->piece[s->first + k];
        *f = (struct fragment){document_at(p, x->token), x->token, x->length, x->pos};
        return;
    }
    int64_t window = p->first_token + s->index * p->o.seq_len, end = window + s->n_tokens;
    int64_t document = s->first + k, a = document_start(p, document);
    int64_t z = (int64_t)data_documents(p->o.data)[document];
    if (a < window) a = window;
    if (z > end) z = end;
    *f = (struct fragment){document, a, z - a, a - window};
}
