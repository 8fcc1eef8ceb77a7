/* unicode.c: builds sets of runes from the tables, and looks up case, decomposition, composition
 * and break classes. */
#include "worker/text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/text/buffer.h"
#include "worker/text/unicode_tables.inc"

#define COUNT(a) ((int64_t)(sizeof(a) / sizeof *(a)))

struct unicode_named {
    const char *name;
    const uint32_t *range;
    int64_t n; /* number of numbers at `range` */
};
#define SET(name, table)                                                                           \
    {                                                                                              \
        name, table, COUNT(table)                                                                  \
    }
static const struct unicode_named classes[] = {
    SET("space", set_space),       SET("word", set_word),         SET("Latin", set_latin),
    SET("Greek", set_greek),       SET("Cyrillic", set_cyrillic), SET("Armenian", set_armenian),
    SET("Hebrew", set_hebrew),     SET("Arabic", set_arabic),     SET("Devanagari", set_devanagari),
    SET("Bengali", set_bengali),   SET("Tamil", set_tamil),       SET("Thai", set_thai),
    SET("Georgian", set_georgian), SET("Hangul", set_hangul),     SET("Hiragana", set_hiragana),
    SET("Katakana", set_katakana), SET("Bopomofo", set_bopomofo), SET("Han", set_han)};
static const struct unicode_named sets[UNICODE_SETS] = {
    [UNICODE_SPACE] = SET("", set_space),
    [UNICODE_NUMERIC] = SET("", set_numeric),
    [UNICODE_PUNCTUATION] = SET("", set_punctuation),
    [UNICODE_WORD] = SET("", set_word_rust),
    [UNICODE_MARK] = SET("", set_mark),
    [UNICODE_BERT_MARK] = SET("", set_bert_mark),
    [UNICODE_BERT_CONTROL] = SET("", set_bert_control)};

int rune_set_add(struct rune_set *s, uint32_t first, uint32_t last)
{
    if (s->n && s->range[2 * s->n - 1] + 1 == first) {
        s->range[2 * s->n - 1] = last;
        return 0;
    }
    if (buffer_grow((void **)&s->range, &s->room, s->n, 1, 2 * sizeof *s->range) < 0) return -1;
    s->range[2 * s->n] = first;
    s->range[2 * s->n++ + 1] = last;
    return 0;
}

static int by_first(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

void rune_set_sort(struct rune_set *s)
{
    int64_t n = 0;
    if (s->n) qsort(s->range, (size_t)s->n, 2 * sizeof *s->range, by_first);
    for (int64_t i = 0; i < s->n; i++) {
        const uint32_t first = s->range[2 * i], last = s->range[2 * i + 1];
        if (n && first <= s->range[2 * n - 1] + 1) {
            if (last > s->range[2 * n - 1]) s->range[2 * n - 1] = last;
            continue;
        }
        s->range[2 * n] = first;
        s->range[2 * n++ + 1] = last;
    }
    s->n = n;
}

int rune_set_merge(struct rune_set *s, const struct rune_set *other)
{
    for (int64_t i = 0; i < other->n; i++)
        if (rune_set_add(s, other->range[2 * i], other->range[2 * i + 1]) < 0) return -1;
    rune_set_sort(s);
    return 0;
}

int rune_set_negate(struct rune_set *s)
{
    struct rune_set out = {0};
    uint32_t next = 0;
    rune_set_sort(s);
    for (int64_t i = 0; i <= s->n; i++) {
        const uint32_t end = i < s->n ? s->range[2 * i] : RUNES;
        if (next < end && rune_set_add(&out, next, end - 1) < 0) {
            rune_set_fini(&out);
            return -1;
        }
        if (i < s->n) next = s->range[2 * i + 1] + 1;
    }
    rune_set_fini(s);
    *s = out;
    return 0;
}

void rune_set_fini(struct rune_set *s)
{
    free(s->range);
    *s = (struct rune_set){0};
}

/* Adds the categories whose names begin with name [n]. */
static int add_category(struct rune_set *s, const char *name, size_t n)
{
    uint64_t want = 0;
    for (int i = 0; i < (int)strlen(CATEGORIES) / 2; i++)
        if (!memcmp(&CATEGORIES[2 * i], name, n)) want |= 1ull << i;
    if (!want) return 1;
    for (int64_t i = 0; i < COUNT(category_runs); i++) {
        const uint32_t run = category_runs[i];
        const uint32_t end = i + 1 < COUNT(category_runs) ? category_runs[i + 1] >> 8 : RUNES;
        if ((want >> (run & 0xff) & 1) && rune_set_add(s, run >> 8, end - 1) < 0) return -1;
    }
    rune_set_sort(s);
    return 0;
}

enum unicode_break unicode_break(uint32_t c)
{
    int64_t lo = 0, hi = COUNT(break_runs);
    if (c >= ' ' && c < 0x7f) return BREAK_OTHER;
    while (hi - lo > 1) {
        const int64_t mid = (lo + hi) / 2;
        if (break_runs[mid] >> 8 <= c)
            lo = mid;
        else
            hi = mid;
    }
    return (enum unicode_break)(break_runs[lo] & 0xff);
}

int unicode_class(struct rune_set *s, const char *name, size_t n)
{
    if (n == 1 || n == 2) return add_category(s, name, n);
    for (int64_t i = 0; i < COUNT(classes); i++) {
        if (strlen(classes[i].name) != n || memcmp(classes[i].name, name, n)) continue;
        for (int64_t k = 0; k < classes[i].n; k += 2)
            if (rune_set_add(s, classes[i].range[k], classes[i].range[k + 1]) < 0) return -1;
        rune_set_sort(s);
        return 0;
    }
    return 1;
}

int unicode_fold(struct rune_set *s, uint32_t c)
{
    const uint32_t lower = c | 0x20;
    if (rune_set_add(s, lower & ~0x20u, lower & ~0x20u) < 0) return -1;
    if (rune_set_add(s, lower, lower) < 0) return -1;
    for (int64_t i = 0; i < COUNT(fold_pairs); i += 2) {
        if (fold_pairs[i] == lower && rune_set_add(s, fold_pairs[i + 1], fold_pairs[i + 1]) < 0)
            return -1;
    }
    rune_set_sort(s);
    return 0;
}

static void set_bits(struct rune_bits *b, uint32_t first, uint32_t last)
{
    for (uint32_t c = first; c <= last; c++) b->word[c / 64] |= 1ull << (c % 64);
}

struct rune_bits *unicode_bits(enum unicode_set set)
{
    struct rune_bits *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    for (int64_t i = 0; i < sets[set].n; i += 2)
        set_bits(b, sets[set].range[i], sets[set].range[i + 1]);
    return b;
}

/* Finds the last row whose first number, shifted right by `shift`, is at most c. Returns NULL if
 * there is no such row. Each row has `width` numbers. The rows are sorted by their first
 * number. */
static const uint32_t *row_of(const uint32_t *table, int64_t n, int width, uint32_t c, int shift)
{
    int64_t lo = 0, hi = n / width;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if (table[mid * width] >> shift <= c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo ? table + (lo - 1) * width : NULL;
}

int unicode_lower(uint32_t c, uint32_t out[2])
{
    out[0] = c;
    if (c < 0x80) {
        if (c >= 'A' && c <= 'Z') out[0] = c + 32;
        return 1;
    }
    const uint32_t *r = row_of(lower_runs, COUNT(lower_runs), 4, c, 0);
    if (!r || c > r[1] || (c - r[0]) % r[2]) return 1;
    out[0] = c + r[3];
    if (c != 0x130) return 1;
    out[1] = 0x307; /* c is U+0130, the only rune whose lowercase has two runes */
    return 2;
}

#define HANGUL   0xac00u
#define HANGUL_N 11172u
#define JAMO_L   0x1100u
#define JAMO_V   0x1161u
#define JAMO_T   0x11a7u /* one less than the first trailing consonant */

static int hangul(uint32_t c, uint32_t *out)
{
    c -= HANGUL;
    out[0] = JAMO_L + c / 588;
    out[1] = JAMO_V + c % 588 / 28;
    out[2] = JAMO_T + c % 28;
    return c % 28 ? 3 : 2;
}

static int looked_up(const uint32_t *index, int64_t n, const uint32_t *pool, uint32_t c,
                     uint32_t *out)
{
    const uint32_t *r = row_of(index, n, 2, c, 0);
    if (!r || r[0] != c) return 0;
    const int k = (int)(r[1] & 0xff);
    assert(k <= UNICODE_DECOMPOSED);
    memcpy(out, pool + (r[1] >> 8), (size_t)k * sizeof *out);
    return k;
}

int unicode_decompose(uint32_t c, bool compatible, uint32_t out[UNICODE_DECOMPOSED])
{
    int n = 0;
    if (c >= HANGUL && c < HANGUL + HANGUL_N) return hangul(c, out);
    if (compatible) n = looked_up(compat_index, COUNT(compat_index), compat_pool, c, out);
    if (!n) n = looked_up(canonical_index, COUNT(canonical_index), canonical_pool, c, out);
    if (n) return n;
    out[0] = c;
    return 1;
}

int unicode_combining(uint32_t c)
{
    if (c < 0x300) return 0;
    const uint32_t *r = row_of(combining_runs, COUNT(combining_runs), 2, c, 8);
    return r && c <= r[1] ? (int)(r[0] & 0xff) : 0;
}

uint32_t unicode_compose(uint32_t a, uint32_t b)
{
    if (a >= JAMO_L && a < JAMO_L + 19 && b >= JAMO_V && b < JAMO_V + 21)
        return HANGUL + (a - JAMO_L) * 588 + (b - JAMO_V) * 28;
    if (a >= HANGUL && a < HANGUL + HANGUL_N && (a - HANGUL) % 28 == 0 && b > JAMO_T &&
        b < JAMO_T + 28)
        return a + b - JAMO_T;
    int64_t lo = 0, hi = COUNT(compositions) / 3;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        const uint32_t *r = compositions + 3 * mid;
        if (r[0] == a && r[1] == b) return r[2];
        if (r[0] < a || (r[0] == a && r[1] < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

struct rune_bits *unicode_unstable(bool compatible, bool composed)
{
    struct rune_bits *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    for (int64_t i = 0; i < COUNT(combining_runs); i += 2)
        set_bits(b, combining_runs[i] >> 8, combining_runs[i + 1]);
    for (int64_t i = 0; i < COUNT(canonical_index); i += 2)
        set_bits(b, canonical_index[i], canonical_index[i]);
    for (int64_t i = 0; compatible && i < COUNT(compat_index); i += 2)
        set_bits(b, compat_index[i], compat_index[i]);
    for (int64_t i = 0; composed && i < COUNT(compositions); i += 3)
        set_bits(b, compositions[i + 1], compositions[i + 1]);
    if (!composed) set_bits(b, HANGUL, HANGUL + HANGUL_N - 1);
    if (composed) set_bits(b, JAMO_V, JAMO_T + 27);
    return b;
}
