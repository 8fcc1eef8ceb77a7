/* bpe.c: converts a piece to symbols, and merges pairs of symbols in the order of their ranks.
 * In a short piece, the next pair is found by a search of all pairs. In a long piece, it is
 * found by a queue. The ids of short pieces are cached. */
#include "worker/text/bpe.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/bytes.h"
#include "worker/text/merges.h"
#include "worker/text/unicode.h"

/* Largest number of symbols for which a search of all pairs is faster than a queue. */
#define SHORT        48
#define WORDS        16384 /* number of words of the cache, a power of two */
#define WORD_BYTES   40
#define WORD_IDS     10
#define RUNES_FAST   0x10000
#define SCRATCH_KEPT (1 << 20) /* symbols */

/* A cached piece and its ids. */
struct word {
    uint32_t hash;
    uint8_t size, n; /* `size` is the number of bytes of the piece; it is 0 if the entry is free */
    char s[WORD_BYTES];
    uint8_t end[WORD_IDS];
    int32_t id[WORD_IDS];
};

struct symbol {
    int32_t id; /* -1 if this symbol was merged into an earlier symbol */
    int32_t prev, next, begin;
    int32_t rank; /* rank of the merge of this symbol with the next symbol; -1 if the two
                   * symbols do not merge */
};

/* The runes that occur directly before `rune` in at least one token. */
struct bpe_before {
    uint32_t rune;
    struct rune_bits *bits; /* owned */
};

struct bpe {
    const struct vocab *v;
    struct merges merges;
    struct vocab raw; /* vocabulary in the form of bytes, used with ignore_merges */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    struct text prefix, suffix;
    int32_t unk; /* id of the unknown token; -1 if the model has no unknown token */
    /* with byte_level, the id of each byte; with byte_fallback, the id of the token <0xXX> of
     * each byte */
    int32_t byte[256];
    int32_t *rune; /* ids of the runes below RUNES_FAST */
    struct word *words;
    struct symbol *symbol; /* scratch */
    int64_t n, room;
    uint64_t *queue, *sorted, *spare;
    int64_t n_queue, queue_room, sorted_room, spare_room;
    struct text one; /* scratch: a rune with prefix and suffix */
    struct bpe_before before[2];
    int n_before;
    int32_t unk_begin, n_unk; /* n_unk is the number of unknown runes that are not added yet;
                               * unk_begin is the offset of the first of these runes */
};

/* ---- reading -------------------------------------------------------------------------------- */

static int read_options(struct bpe *b, struct json j, struct json *merges, struct err *e)
{
    static const char *const names[] = {"dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "merges"};
    struct json v[8];
    struct text unk = {0};
    if (json_members(j, "model", 8, names, v, e) < 0 ||
        json_bool(v[4], "model.fuse_unk", false, &b->fuse_unk, e) < 0 ||
        json_bool(v[5], "model.byte_fallback", false, &b->byte_fallback, e) < 0 ||
        json_bool(v[6], "model.ignore_merges", false, &b->ignore_merges, e) < 0 ||
        (v[2].p && json_text(v[2], "model.continuing_subword_prefix", &b->prefix, e) < 0) ||
        (v[3].p && json_text(v[3], "model.end_of_word_suffix", &b->suffix, e) < 0))
        return -1;
    *merges = v[7];
    if (v[0].p && !(v[0].n == 3 && !memcmp(v[0].p, "0.0", 3)) && !(v[0].n == 1 && *v[0].p == '0'))
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: model.dropout: want null");
    b->unk = -1;
    if (!v[1].p) return 0;
    int rc = json_text(v[1], "model.unk_token", &unk, e);
    if (rc == 0 && (b->unk = vocab_find(b->v, unk.data, (size_t)unk.n)) < 0)
        rc = err_set(e, ERR_INVALID, "tokenizer.json: model.unk_token is not in the vocabulary");
    text_fini(&unk);
    return rc;
}

static void byte_ids(struct bpe *b)
{
    char s[8];
    static const char digit[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        int n = 6;
        memcpy(s, "<0x00>", 7);
        s[3] = digit[i >> 4];
        s[4] = digit[i & 15];
        if (b->byte_level) n = rune_put(s, bytes_rune(i));
        b->byte[i] = vocab_find(b->v, s, (size_t)n);
    }
}

/* Makes a vocabulary of those tokens that consist only of characters which represent bytes. In
 * this vocabulary the tokens have the represented bytes. */
static int raw_vocabulary(struct bpe *b, struct err *e)
{
    struct text raw = {0};
    int rc = 0;
    for (int64_t k = 0; rc == 0 && k < b->v->n; k++) {
        const struct vocab_entry *t = &b->v->entry[k];
        const char *s = b->v->pool + t->at;
        bool whole = t->size > 0;
        int size = 0;
        raw.n = 0;
        for (int32_t i = 0; whole && i < t->size; i += size) {
            const int byte = bytes_byte(rune_get(s + i, &size));
            whole = byte >= 0;
            if (whole && text_add(&raw, &(char){(char)byte}, 1) < 0) rc = buffer_full(e);
        }
        if (rc == 0 && whole) rc = vocab_add(&b->raw, raw.data, (size_t)raw.n, t->id, e);
    }
    text_fini(&raw);
    return rc;
}

static int fast_runes(struct bpe *b, struct err *e)
{
    char s[4];
    b->rune = malloc(RUNES_FAST * sizeof *b->rune);
    if (!b->rune) return buffer_full(e);
    for (uint32_t c = 0; c < RUNES_FAST; c++)
        b->rune[c] = vocab_find(b->v, s, (size_t)rune_put(s, c));
    return 0;
}

static int prepare(struct bpe *b, struct err *e)
{
    if (b->byte_level && (b->prefix.n || b->suffix.n || b->byte_fallback)) {
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: model: ByteLevel with continuing_subword_prefix, "
                       "end_of_word_suffix or byte_fallback");
    }
    byte_ids(b);
    b->words = calloc(WORDS, sizeof *b->words);
    if (!b->words) return buffer_full(e);
    if (b->byte_level) return b->ignore_merges ? raw_vocabulary(b, e) : 0;
    return fast_runes(b, e);
}

struct bpe *bpe_open(struct json j, const struct vocab *v, bool byte_level, struct err *e)
{
    struct json merges;
    struct bpe *b = calloc(1, sizeof *b);
    if (!b) return buffer_full(e), NULL;
    b->v = v;
    b->byte_level = byte_level;
    if (read_options(b, j, &merges, e) == 0 &&
        merges_open(&b->merges, merges, v, b->prefix.n, e) == 0 && prepare(b, e) == 0)
        return b;
    bpe_destroy(b);
    return NULL;
}

/* Frees the scratch memory. It takes about 40 bytes for each byte of a long piece. */
static void scratch_free(struct bpe *b)
{
    free(b->symbol);
    free(b->queue);
    free(b->sorted);
    free(b->spare);
    b->symbol = NULL;
    b->queue = b->sorted = b->spare = NULL;
    b->room = b->queue_room = b->sorted_room = b->spare_room = 0;
}

void bpe_destroy(struct bpe *b)
{
    if (!b) return;
    scratch_free(b);
    merges_fini(&b->merges);
    vocab_fini(&b->raw);
    text_fini(&b->prefix);
    text_fini(&b->suffix);
    text_fini(&b->one);
    free(b->rune);
    free(b->words);
    for (int i = 0; i < b->n_before; i++) free(b->before[i].bits);
    free(b);
}

/* ---- symbols -------------------------------------------------------------------------------- */

static int symbol_room(struct bpe *b, int64_t n, struct err *e)
{
    return buffer_grow((void **)&b->symbol, &b->room, b->n, n, sizeof *b->symbol) < 0
               ? buffer_full(e)
               : 0;
}

static void symbol(struct bpe *b, int32_t id, int64_t begin)
{
    b->symbol[b->n++] = (struct symbol){.id = id, .begin = (int32_t)begin};
}

static void flush_unk(struct bpe *b)
{
    if (b->n_unk) symbol(b, b->unk, b->unk_begin);
    b->n_unk = 0;
}

static void unknown(struct bpe *b, int64_t begin)
{
    if (b->unk < 0) return; /* without an unknown token, the rune is skipped */
    if (b->n_unk && !b->fuse_unk) flush_unk(b);
    if (!b->n_unk++) b->unk_begin = (int32_t)begin;
}

/* Adds the symbols <0xXX> for the bytes of s, if all these symbols are tokens. If there are
 * unknown runes before s that are not added yet, they are added after these symbols, as in the
 * Python package tokenizers. */
static bool fallback(struct bpe *b, const char *s, int64_t n, int64_t begin)
{
    if (!b->byte_fallback) return false;
    for (int64_t i = 0; i < n; i++)
        if (b->byte[(unsigned char)s[i]] < 0) return false;
    for (int64_t i = 0; i < n; i++) symbol(b, b->byte[(unsigned char)s[i]], begin);
    return true;
}

static int whole_rune(struct bpe *b, const char *s, int64_t n, bool first, bool last, struct err *e)
{
    b->one.n = 0;
    return (!first && text_add(&b->one, b->prefix.data, b->prefix.n) < 0) ||
                   text_add(&b->one, s, n) < 0 ||
                   (last && text_add(&b->one, b->suffix.data, b->suffix.n) < 0)
               ? buffer_full(e)
               : 0;
}

static int runes(struct bpe *b, const char *s, int64_t n, struct err *e)
{
    const bool plain = !b->prefix.n && !b->suffix.n;
    int size;
    for (int64_t i = 0; i < n; i += size) {
        const uint32_t c = rune_get(s + i, &size);
        const char *one = s + i;
        int64_t n_one = size;
        if (!plain) {
            if (whole_rune(b, s + i, size, i == 0, i + size == n, e) < 0) return -1;
            one = b->one.data;
            n_one = b->one.n;
        }
        const int32_t id = plain && c < RUNES_FAST ? b->rune[c]
                                                   : vocab_find(b->v, one, (size_t)n_one);
        if (symbol_room(b, n_one + 1, e) < 0) return -1;
        if (id >= 0) {
            flush_unk(b);
            symbol(b, id, i);
        } else if (!fallback(b, one, n_one, i)) {
            unknown(b, i);
        }
    }
    return 0;
}

static void raw_bytes(struct bpe *b, const char *s, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t id = b->byte[(unsigned char)s[i]];
        if (id >= 0) {
            flush_unk(b);
            symbol(b, id, i);
        } else {
            unknown(b, i);
        }
    }
}

static int symbols(struct bpe *b, const char *s, int64_t n, struct err *e)
{
    b->n = b->n_unk = 0;
    if (symbol_room(b, n + 1, e) < 0) return -1;
    if (b->byte_level)
        raw_bytes(b, s, n);
    else if (runes(b, s, n, e) < 0)
        return -1;
    if (symbol_room(b, 1, e) < 0) return -1;
    flush_unk(b);
    return 0;
}

/* ---- merging -------------------------------------------------------------------------------- */

static int32_t rank_of(const struct bpe *b, int32_t left, int32_t right)
{
    const struct merge_slot *m = merges_find(&b->merges, left, right);
    return m ? m->rank : -1;
}

/* Merges pairs. The pair with the lowest rank is merged first. Among pairs with equal ranks, the
 * leftmost pair is merged first. */
static void merge_short(struct bpe *b)
{
    struct symbol *s = b->symbol;
    for (int64_t i = 0; i + 1 < b->n; i++) s[i].rank = rank_of(b, s[i].id, s[i + 1].id);
    for (;;) {
        int64_t best = -1;
        for (int64_t i = 0; i + 1 < b->n; i++)
            if (s[i].rank >= 0 && (best < 0 || s[i].rank < s[best].rank)) best = i;
        if (best < 0) return;
        s[best].id = b->merges.id[s[best].rank];
        memmove(s + best + 1, s + best + 2, (size_t)(b->n - best - 2) * sizeof *s);
        b->n--;
        if (best > 0) s[best - 1].rank = rank_of(b, s[best - 1].id, s[best].id);
        if (best + 1 < b->n) s[best].rank = rank_of(b, s[best].id, s[best + 1].id);
    }
}

static int push(struct bpe *b, uint64_t key)
{
    if (b->n_queue == b->queue_room &&
        buffer_grow((void **)&b->queue, &b->queue_room, b->n_queue, 1, sizeof *b->queue) < 0)
        return -1;
    uint64_t *q = b->queue;
    int64_t i = b->n_queue++;
    while (i && q[(i - 1) / 4] > key) {
        q[i] = q[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    q[i] = key;
    return 0;
}

static uint64_t pop(struct bpe *b)
{
    uint64_t *q = b->queue;
    const uint64_t top = q[0], key = q[--b->n_queue];
    int64_t i = 0;
    for (;;) {
        int64_t least = 4 * i + 1;
        if (least >= b->n_queue) break;
        const int64_t end = least + 4 < b->n_queue ? least + 4 : b->n_queue;
        for (int64_t k = least + 1; k < end; k++)
            if (q[k] < q[least]) least = k;
        if (q[least] >= key) break;
        q[i] = q[least];
        i = least;
    }
    q[i] = key;
    return top;
}

/* Finds the merge of symbol i with the next symbol, and queues it. */
static int rank_pair(struct bpe *b, int32_t i)
{
    struct symbol *s = &b->symbol[i];
    s->rank = s->next < 0 ? -1 : rank_of(b, s->id, b->symbol[s->next].id);
    return s->rank < 0 ? 0 : push(b, (uint64_t)s->rank << 32 | (uint32_t)i);
}

/* Sorts keys by their high 32 bits. Before the call the keys must be sorted by their low 32
 * bits. */
static uint64_t *by_rank(uint64_t *key, uint64_t *spare, int64_t n, int64_t n_ranks)
{
    for (int shift = 32; n_ranks >> (shift - 32); shift += 11) {
        int64_t at[2048] = {0}, sum = 0;
        for (int64_t i = 0; i < n; i++) at[key[i] >> shift & 2047]++;
        for (int k = 0; k < 2048; k++) {
            const int64_t c = at[k];
            at[k] = sum;
            sum += c;
        }
        for (int64_t i = 0; i < n; i++) spare[at[key[i] >> shift & 2047]++] = key[i];
        uint64_t *swap = key;
        key = spare;
        spare = swap;
    }
    return key;
}

/* Lists, in sorted order, the pairs of neighbouring initial symbols that have a merge. Returns
 * their number, or -1 if memory is out. */
static int64_t first_pairs(struct bpe *b, uint64_t **sorted)
{
    int64_t n = 0;
    if (buffer_grow((void **)&b->sorted, &b->sorted_room, 0, b->n, sizeof *b->sorted) < 0 ||
        buffer_grow((void **)&b->spare, &b->spare_room, 0, b->n, sizeof *b->spare) < 0)
        return -1;
    for (int64_t i = 0; i < b->n; i++) {
        struct symbol *s = &b->symbol[i];
        s->prev = (int32_t)i - 1;
        s->next = i + 1 < b->n ? (int32_t)i + 1 : -1;
        s->rank = s->next < 0 ? -1 : rank_of(b, s->id, s[1].id);
        if (s->rank >= 0) b->sorted[n++] = (uint64_t)s->rank << 32 | (uint32_t)i;
    }
    *sorted = by_rank(b->sorted, b->spare, n, b->merges.n);
    return n;
}

/* Returns true if an entry of the queue is outdated because its pair no longer exists. If the
 * pair that now is at that place merges to the id of the entry, the entry is still valid. */
static bool stale(const struct bpe *b, uint64_t key)
{
    const struct symbol *s = &b->symbol[(uint32_t)key];
    return s->id < 0 || s->rank < 0 || b->merges.id[s->rank] != b->merges.id[key >> 32];
}

static int merge_pair(struct bpe *b, uint64_t key)
{
    const int32_t i = (int32_t)(uint32_t)key;
    struct symbol *s = &b->symbol[i], *right = &b->symbol[s->next];
    s->id = b->merges.id[key >> 32];
    s->next = right->next;
    right->id = -1;
    if (s->next >= 0) b->symbol[s->next].prev = i;
    return (s->prev >= 0 && rank_pair(b, s->prev) < 0) || rank_pair(b, i) < 0 ? -1 : 0;
}

static int merge_long(struct bpe *b)
{
    uint64_t *sorted = NULL;
    const int64_t n = first_pairs(b, &sorted);
    if (n < 0) return -1;
    b->n_queue = 0;
    for (int64_t at = 0; at < n || b->n_queue;) {
        const bool old = at < n && (!b->n_queue || sorted[at] <= b->queue[0]);
        const uint64_t key = old ? sorted[at++] : pop(b);
        if (!stale(b, key) && merge_pair(b, key) < 0) return -1;
    }
    int64_t left = 0;
    for (int64_t i = 0; i < b->n; i++)
        if (b->symbol[i].id >= 0) b->symbol[left++] = b->symbol[i];
    b->n = left;
    return 0;
}

/* ---- words ---------------------------------------------------------------------------------- */

static struct word *word_of(struct bpe *b, const char *s, int64_t n, uint32_t *hash)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)n, w;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        memcpy(&w, s + i, 8);
        h = (h ^ w) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    w = 0;
    for (; i < n; i++) w = w << 8 | (unsigned char)s[i];
    h = (h ^ w) * 0xd6e8feb86659fd93u;
    *hash = (uint32_t)(h >> 32);
    return &b->words[h >> 40 & (WORDS - 1)];
}

static int recall(const struct word *w, struct hits *out, struct err *e)
{
    int begin = 0;
    for (int i = 0; i < w->n; i++) {
        if (text_hits_add(out, w->id[i], begin, w->end[i]) < 0) return buffer_full(e);
        begin = w->end[i];
    }
    return 0;
}

static void remember(struct word *w, uint32_t hash, const char *s, int64_t n, const struct hit *h,
                     int64_t n_hits)
{
    if (n_hits > WORD_IDS || h[0].begin) return;
    for (int64_t i = 0; i + 1 < n_hits; i++)
        if (h[i].end != h[i + 1].begin) return;
    w->hash = hash;
    w->size = (uint8_t)n;
    w->n = (uint8_t)n_hits;
    memcpy(w->s, s, (size_t)n);
    for (int64_t i = 0; i < n_hits; i++) {
        w->id[i] = h[i].id;
        w->end[i] = (uint8_t)h[i].end;
    }
}

static int give(struct bpe *b, int64_t n, struct hits *out, struct err *e)
{
    for (int64_t i = 0; i < b->n; i++) {
        const int64_t begin = b->symbol[i].begin;
        int64_t end = i + 1 < b->n ? b->symbol[i + 1].begin : n;
        /* this occurs if an unknown token was added after tokens that come later in the piece */
        if (end < begin) end = begin;
        if (text_hits_add(out, b->symbol[i].id, begin, end) < 0) return buffer_full(e);
    }
    return 0;
}

int bpe_encode(struct bpe *b, const char *s, int64_t n, struct hits *out, struct err *e)
{
    const int64_t at = out->n;
    struct word *w = NULL;
    uint32_t hash = 0;
    if (n <= WORD_BYTES) {
        w = word_of(b, s, n, &hash);
        if (w->size == n && w->hash == hash && !memcmp(w->s, s, (size_t)n))
            return recall(w, out, e);
    }
    if (b->ignore_merges) {
        const int32_t id = vocab_find(b->byte_level ? &b->raw : b->v, s, (size_t)n);
        if (id >= 0) return text_hits_add(out, id, 0, n) < 0 ? buffer_full(e) : 0;
    }
    if (symbols(b, s, n, e) < 0) return -1;
    if (b->n <= SHORT && !b->prefix.n)
        merge_short(b);
    else if (merge_long(b) < 0)
        return buffer_full(e);
    if (give(b, n, out, e) < 0) return -1;
    if (b->room > SCRATCH_KEPT) scratch_free(b);
    if (w && out->n > at) remember(w, hash, s, n, out->v + at, out->n - at);
    return 0;
}

/* ---- cuts ----------------------------------------------------------------------------------- */

static void mark_before(struct rune_bits *to, const char *s, int64_t n, uint32_t after)
{
    uint32_t last = 0;
    int size;
    for (int64_t i = 0; i < n; i += size) {
        const uint32_t c = rune_get(s + i, &size);
        if (i && c == after) to->word[last / 64] |= 1ull << (last % 64);
        last = c;
    }
}

/* Returns the runes that occur directly before `after` in at least one token, or NULL if these
 * runes are not known. Only two values of `after` are cached, because texts are divided only
 * before a newline and before the rune that replaces a space. */
static const struct rune_bits *runes_before(struct bpe *b, uint32_t after)
{
    for (int i = 0; i < b->n_before; i++)
        if (b->before[i].rune == after) return b->before[i].bits;
    if (b->n_before == 2) return NULL;
    struct rune_bits *bits = calloc(1, sizeof *bits);
    if (!bits) return NULL;
    for (int64_t k = 0; k < b->v->n; k++)
        mark_before(bits, b->v->pool + b->v->entry[k].at, b->v->entry[k].size, after);
    b->before[b->n_before++] = (struct bpe_before){after, bits};
    return bits;
}

/* Returns true if the vocabulary has an id with two strings. The text of such an id is
 * ambiguous. */
static bool shared_ids(const struct vocab *v)
{
    for (int64_t k = 0; k < v->n; k++)
        if (v->by_id[v->entry[k].id] != k) return true;
    return false;
}

static bool has_rune(const struct bpe *b, uint32_t c)
{
    char s[4];
    return vocab_find(b->v, s, (size_t)rune_put(s, c)) >= 0;
}

bool bpe_cut(struct bpe *b, uint32_t before, uint32_t after)
{
    if (b->byte_level || b->ignore_merges || b->prefix.n || b->suffix.n) return false;
    if (!has_rune(b, before) || !has_rune(b, after) || shared_ids(b->v)) return false;
    const struct rune_bits *bits = runes_before(b, after);
    return bits && !rune_in(bits, before);
}
