/* normalizer.c: reads each normalizer as a step, and applies the steps to runs. Normal forms are
 * applied segment by segment, and most other steps rune by rune. */
#include "worker/text/normalizer.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/charsmap.h"
#include "worker/text/grapheme.h"
#include "worker/text/pattern.h"
#include "worker/text/unicode.h"

#define STEPS 32

enum normalizer_kind {
    NORMAL_FORM,
    LOWERCASE,
    STRIP_ACCENTS,
    CLEAN,
    CHINESE,
    PREPEND,
    REPLACE,
    STRIP,
    NMT,
    PRECOMPILED
};

struct normalizer_step {
    enum normalizer_kind kind;
    bool compatible, composed; /* NORMAL_FORM */
    struct rune_bits *bits;    /* for NORMAL_FORM, the unstable runes; for STRIP_ACCENTS and CLEAN,
                                * the runes that are dropped */
    struct rune_bits *space;   /* CLEAN, STRIP */
    struct text text, content; /* PREPEND puts `text` in front of a run; REPLACE replaces
                                * `text`, or matches of a pattern, by `content` */
    struct pattern *pattern;
    struct charsmap *map; /* PRECOMPILED */
    bool left, right;     /* STRIP */
};

struct runes { /* runes of one segment that is not stable */
    uint32_t *c;
    uint8_t *class;
    int64_t n, room, class_room;
};

struct normalizer {
    struct normalizer_step step[STEPS];
    int n;
    struct run_buffer out[2]; /* used alternately */
    struct runes runes;
    uint64_t *order; /* scratch memory for sorting long segments */
    int64_t order_room;
};

/* ---- reading -------------------------------------------------------------------------------- */

static int add(struct normalizer *n, enum normalizer_kind kind, struct normalizer_step **out,
               struct err *e)
{
    if (n->n == STEPS)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: normalizer has over %d steps", STEPS);
    *out = &n->step[n->n++];
    (*out)->kind = kind;
    return 0;
}

static int add_form(struct normalizer *n, bool compatible, bool composed, struct err *e)
{
    struct normalizer_step *s = NULL;
    if (add(n, NORMAL_FORM, &s, e) < 0) return -1;
    s->compatible = compatible;
    s->composed = composed;
    s->bits = unicode_unstable(compatible, composed);
    return s->bits ? 0 : buffer_full(e);
}

static int add_bits(struct normalizer *n, enum normalizer_kind kind, enum unicode_set set,
                    struct err *e)
{
    struct normalizer_step *s = NULL;
    if (add(n, kind, &s, e) < 0) return -1;
    s->bits = unicode_bits(set);
    if (kind == CLEAN || kind == STRIP) s->space = unicode_bits(UNICODE_SPACE);
    return s->bits && (s->space || kind == STRIP_ACCENTS) ? 0 : buffer_full(e);
}

static int add_bert(struct normalizer *n, struct json j, struct err *e)
{
    static const char *const names[] = {"clean_text", "handle_chinese_chars", "strip_accents",
                                        "lowercase"};
    struct json v[4];
    struct normalizer_step *s = NULL;
    bool clean, chinese, accents, lower;
    if (json_members(j, "normalizer", 4, names, v, e) < 0 ||
        json_bool(v[0], "normalizer.clean_text", true, &clean, e) < 0 ||
        json_bool(v[1], "normalizer.handle_chinese_chars", true, &chinese, e) < 0 ||
        json_bool(v[3], "normalizer.lowercase", true, &lower, e) < 0 ||
        json_bool(v[2], "normalizer.strip_accents", lower, &accents, e) < 0)
        return -1;
    if (clean && add_bits(n, CLEAN, UNICODE_BERT_CONTROL, e) < 0) return -1;
    if (chinese && add(n, CHINESE, &s, e) < 0) return -1;
    if (accents &&
        (add_form(n, false, false, e) < 0 || add_bits(n, STRIP_ACCENTS, UNICODE_BERT_MARK, e) < 0))
        return -1;
    return lower ? add(n, LOWERCASE, &s, e) : 0;
}

static int add_replace(struct normalizer *n, struct json j, struct err *e)
{
    static const char *const names[] = {"pattern", "content"}, *const kinds[] = {"String", "Regex"};
    struct json v[2], of[2];
    struct normalizer_step *s = NULL;
    if (add(n, REPLACE, &s, e) < 0 || json_members(j, "normalizer", 2, names, v, e) < 0 ||
        json_members(v[0], "normalizer.pattern", 2, kinds, of, e) < 0 ||
        json_text(of[of[1].p ? 1 : 0], "normalizer.pattern", &s->text, e) < 0 ||
        json_text(v[1], "normalizer.content", &s->content, e) < 0)
        return -1;
    if (!s->text.n)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: normalizer: Replace of \"\" is not known");
    if (!of[1].p) return 0;
    s->pattern = pattern_create(s->text.data, (size_t)s->text.n, e);
    return s->pattern ? 0 : -1;
}

static int add_prepend(struct normalizer *n, struct json j, struct err *e)
{
    struct json v;
    struct normalizer_step *s = NULL;
    if (add(n, PREPEND, &s, e) < 0 || json_member(j, "normalizer", "prepend", &v, e) < 0) return -1;
    return json_text(v, "normalizer.prepend", &s->text, e);
}

static int add_strip(struct normalizer *n, struct json j, struct err *e)
{
    static const char *const names[] = {"strip_left", "strip_right"};
    struct json v[2];
    if (add_bits(n, STRIP, UNICODE_SPACE, e) < 0) return -1;
    struct normalizer_step *s = &n->step[n->n - 1];
    if (json_members(j, "normalizer", 2, names, v, e) < 0) return -1;
    return json_bool(v[0], "normalizer.strip_left", true, &s->left, e) < 0 ||
                   json_bool(v[1], "normalizer.strip_right", true, &s->right, e) < 0
               ? -1
               : 0;
}

static int add_precompiled(struct normalizer *n, struct json j, struct err *e)
{
    struct json v;
    struct normalizer_step *s = NULL;
    if (add(n, PRECOMPILED, &s, e) < 0 ||
        json_member(j, "normalizer", "precompiled_charsmap", &v, e) < 0)
        return -1;
    s->map = charsmap_open(v, e);
    return s->map ? 0 : -1;
}

static int add_named(struct normalizer *n, struct json j, struct json type, struct err *e);

static int add_one(void *who, struct json j, struct err *e)
{
    struct json type;
    if (json_member(j, "normalizer", "type", &type, e) < 0) return -1;
    return add_named(who, j, type, e);
}

static int add_named(struct normalizer *n, struct json j, struct json type, struct err *e)
{
    struct json all;
    struct normalizer_step *s = NULL;
    if (json_is(type, "Sequence")) {
        if (json_member(j, "normalizer", "normalizers", &all, e) < 0) return -1;
        return json_each(all, "normalizer.normalizers", add_one, n, e);
    }
    if (json_is(type, "NFC")) return add_form(n, false, true, e);
    if (json_is(type, "NFD")) return add_form(n, false, false, e);
    if (json_is(type, "NFKC")) return add_form(n, true, true, e);
    if (json_is(type, "NFKD")) return add_form(n, true, false, e);
    if (json_is(type, "Lowercase")) return add(n, LOWERCASE, &s, e);
    if (json_is(type, "StripAccents")) return add_bits(n, STRIP_ACCENTS, UNICODE_MARK, e);
    if (json_is(type, "BertNormalizer")) return add_bert(n, j, e);
    if (json_is(type, "Prepend")) return add_prepend(n, j, e);
    if (json_is(type, "Replace")) return add_replace(n, j, e);
    if (json_is(type, "Strip")) return add_strip(n, j, e);
    if (json_is(type, "Nmt")) return add(n, NMT, &s, e);
    if (json_is(type, "Precompiled")) return add_precompiled(n, j, e);
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: normalizer %.*s is not known",
                   type.n > 60 ? 60 : (int)type.n, type.p ? type.p : "without a type");
}

int normalizer_open(struct json j, struct normalizer **out, struct err *e)
{
    *out = NULL;
    if (!j.p) return 0;
    *out = calloc(1, sizeof **out);
    return *out ? add_one(*out, j, e) : buffer_full(e);
}

void normalizer_destroy(struct normalizer *n)
{
    if (!n) return;
    for (int i = 0; i < n->n; i++) {
        free(n->step[i].bits);
        free(n->step[i].space);
        text_fini(&n->step[i].text);
        text_fini(&n->step[i].content);
        pattern_destroy(n->step[i].pattern);
        charsmap_destroy(n->step[i].map);
    }
    text_run_buffer_fini(&n->out[0]);
    text_run_buffer_fini(&n->out[1]);
    free(n->runes.c);
    free(n->runes.class);
    free(n->order);
    free(n);
}

/* ---- normal forms --------------------------------------------------------------------------- */

static int push(struct runes *r, uint32_t c)
{
    if (buffer_grow((void **)&r->c, &r->room, r->n, 1, sizeof *r->c) < 0 ||
        buffer_grow((void **)&r->class, &r->class_room, r->n, 1, 1) < 0)
        return -1;
    r->class[r->n] = (uint8_t)unicode_combining(c);
    r->c[r->n++] = c;
    return 0;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts marks [begin, end) by combining class. The order of marks with equal classes is not
 * changed. */
static int sort_marks(struct normalizer *n, int64_t begin, int64_t end)
{
    struct runes *r = &n->runes;
    const int64_t m = end - begin;
    if (m < 2) return 0;
    if (m > 1 << 24) return -1;
    if (buffer_grow((void **)&n->order, &n->order_room, 0, m, sizeof *n->order) < 0) return -1;
    /* a key has 8 bits of class, 24 bits of index and 21 bits of rune */
    for (int64_t i = 0; i < m; i++)
        n->order[i] = (uint64_t)r->class[begin + i] << 56 | (uint64_t)i << 32 | r->c[begin + i];
    qsort(n->order, (size_t)m, sizeof *n->order, by_number);
    for (int64_t i = 0; i < m; i++) {
        r->class[begin + i] = (uint8_t)(n->order[i] >> 56);
        r->c[begin + i] = (uint32_t)n->order[i];
    }
    return 0;
}

static int reorder(struct normalizer *n)
{
    struct runes *r = &n->runes;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t end = i;
        while (end < r->n && r->class[end]) end++;
        if (sort_marks(n, i, end) < 0) return -1;
        if (end > i) i = end;
    }
    return 0;
}

static void compose(struct runes *r)
{
    int64_t starter = -1, n = 0;
    int last = -1; /* combining class of the previous rune; -1 if the previous rune is the
                    * starter */
    for (int64_t i = 0; i < r->n; i++) {
        const uint32_t c = r->c[i];
        const int class = r->class[i];
        const uint32_t joined = starter >= 0 && (last < class || last < 0)
                                    ? unicode_compose(r->c[starter], c)
                                    : 0;
        if (joined) {
            r->c[starter] = joined;
            continue;
        }
        if (!class) {
            starter = n;
            last = -1;
        } else {
            last = class;
        }
        r->class[n] = (uint8_t) class;
        r->c[n++] = c;
    }
    r->n = n;
}

/* Appends the normal form of bytes [begin, end) of r. Only the first rune of these bytes may
 * be stable. */
static int segment(struct normalizer *n, const struct normalizer_step *s, const struct text_run *r,
                   int64_t begin, int64_t end, struct run_buffer *out)
{
    const int64_t from = run_from(r, begin), to = run_to(r, end - 1);
    n->runes.n = 0;
    for (int64_t i = begin; i < end;) {
        int size;
        uint32_t parts[UNICODE_DECOMPOSED];
        const int k = unicode_decompose(rune_get(r->text + i, &size), s->compatible, parts);
        for (int p = 0; p < k; p++)
            if (push(&n->runes, parts[p]) < 0) return -1;
        i += size;
    }
    if (reorder(n) < 0) return -1;
    if (s->composed) compose(&n->runes);
    for (int64_t i = 0; i < n->runes.n; i++)
        if (text_run_put_rune(out, n->runes.c[i], from, to) < 0) return -1;
    return 0;
}

static int normal_form(struct normalizer *n, const struct normalizer_step *s,
                       const struct text_run *r, struct run_buffer *out)
{
    int64_t done = 0, stable = 0; /* done is the number of bytes copied so far; stable is the
                                   * offset of the last stable rune */
    for (int64_t i = 0; i < r->n;) {
        int size;
        if (!rune_in(s->bits, rune_get(r->text + i, &size))) {
            stable = i;
            i += size;
            continue;
        }
        /* The rune at i is unstable. Let its segment begin at the last stable rune, and end at the
         * next stable rune. */
        int64_t end = i;
        while (end < r->n && rune_in(s->bits, rune_get(r->text + end, &size))) end += size;
        if (stable < done) stable = done;
        if (text_run_copy(out, r, done, stable) < 0 || segment(n, s, r, stable, end, out) < 0)
            return -1;
        done = stable = i = end;
    }
    return text_run_copy(out, r, done, r->n);
}

/* ---- the others ----------------------------------------------------------------------------- */

static bool chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Returns the rune by which the rule Nmt replaces rune c. Returns 0 if the rule removes c. */
static uint32_t nmt(uint32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f)
        return 0;
    if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
        c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd)
        return ' ';
    return c;
}

/* Appends the replacement of rune c, which is bytes [i, end) of r. */
static int by_rune(const struct normalizer_step *s, const struct text_run *r, uint32_t c, int64_t i,
                   int64_t end, struct run_buffer *out)
{
    const int64_t from = run_from(r, i), to = run_to(r, end - 1);
    uint32_t low[2] = {c, 0};
    int n = 1;
    switch (s->kind) {
    case STRIP_ACCENTS: n = !rune_in(s->bits, c); break;
    case CLEAN:
        if (rune_in(s->bits, c)) return 0;
        if (rune_in(s->space, c)) low[0] = ' ';
        break;
    case NMT:
        low[0] = nmt(c);
        n = low[0] || !c;
        break;
    case CHINESE:
        if (!chinese(c)) break;
        return text_run_put(out, " ", 1, from, to) < 0 || text_run_copy(out, r, i, end) < 0 ||
                       text_run_put(out, " ", 1, from, to) < 0
                   ? -1
                   : 0;
    default: n = unicode_lower(c, low); break;
    }
    if (n == 1 && low[0] == c) return text_run_copy(out, r, i, end);
    for (int k = 0; k < n; k++)
        if (text_run_put_rune(out, low[k], from, to) < 0) return -1;
    return 0;
}

static int each_rune(const struct normalizer_step *s, const struct text_run *r,
                     struct run_buffer *out)
{
    for (int64_t i = 0; i < r->n;) {
        int size;
        const uint32_t c = rune_get(r->text + i, &size);
        if (by_rune(s, r, c, i, i + size, out) < 0) return -1;
        i += size;
    }
    return 0;
}

static int prepend(const struct normalizer_step *s, const struct text_run *r,
                   struct run_buffer *out)
{
    if (!r->n) return 0;
    const int64_t first = rune_size((unsigned char)r->text[0]);
    if (text_run_put(out, s->text.data, s->text.n, run_from(r, 0), run_to(r, first - 1)) < 0)
        return -1;
    return text_run_copy(out, r, 0, r->n);
}

/* Finds the next match of REPLACE. Returns 1 if it has found a match, 0 if there is no further
 * match, and -1 after a failure. */
static int next_match(const struct normalizer_step *s, const struct text_run *r, int64_t at,
                      int64_t *begin, int64_t *end, struct err *e)
{
    if (s->pattern) return pattern_next(s->pattern, begin, end, e);
    const char *found = at < r->n ? memmem(r->text + at, (size_t)(r->n - at), s->text.data,
                                           (size_t)s->text.n)
                                  : NULL;
    if (!found) return 0;
    *begin = found - r->text;
    *end = *begin + s->text.n;
    return 1;
}

static int replace(const struct normalizer_step *s, const struct text_run *r,
                   struct run_buffer *out, struct err *e)
{
    int64_t at = 0, begin, end;
    int rc;
    if (s->pattern && pattern_begin(s->pattern, r->text, r->n, e) < 0) return -1;
    while ((rc = next_match(s, r, at, &begin, &end, e)) > 0) {
        const int64_t last = end > begin ? end - 1 : begin < r->n ? begin : r->n - 1;
        if (text_run_copy(out, r, at, begin) < 0 ||
            text_run_put(out, s->content.data, s->content.n,
                         run_from(r, begin < last ? begin : last), run_to(r, last)) < 0)
            return buffer_full(e);
        at = end;
    }
    if (rc < 0) return -1;
    return text_run_copy(out, r, at, r->n) < 0 ? buffer_full(e) : 0;
}

static int strip(const struct normalizer_step *s, const struct text_run *r, struct run_buffer *out)
{
    int64_t begin = 0, end = r->n, at;
    int size;
    while (s->left && begin < end && rune_in(s->space, rune_get(r->text + begin, &size)))
        begin += size;
    while (s->right && end > begin) {
        at = rune_before(r->text, end);
        if (!rune_in(s->space, rune_get(r->text + at, &size))) break;
        end = at;
    }
    return text_run_copy(out, r, begin, end);
}

/* Appends the replacement of bytes [begin, end) of r. Returns 1 if the map has a replacement
 * for these bytes, 0 if it has no replacement, and -1 after a failure. */
static int put_mapped(const struct normalizer_step *s, const struct text_run *r, int64_t begin,
                      int64_t end, struct run_buffer *out)
{
    int64_t n;
    const char *to = charsmap_find(s->map, r->text + begin, end - begin, &n);
    if (!to) return 0;
    return text_run_put(out, to, n, run_from(r, begin), run_to(r, end - 1)) < 0 ? -1 : 1;
}

/* Replaces text by the map, as the Python package tokenizers does. If a cluster has at most
 * five bytes and begins with a key, the whole cluster is replaced, even if it is longer than
 * the key. In all other clusters each character is replaced separately. */
static int precompiled(const struct normalizer_step *s, const struct text_run *r,
                       struct run_buffer *out)
{
    for (int64_t i = 0, end; i < r->n; i = end) {
        end = grapheme_end(r->text, r->n, i);
        int rc = end - i < 6 ? put_mapped(s, r, i, end, out) : 0;
        if (rc < 0) return -1;
        for (int64_t at = i, next; !rc && at < end; at = next) {
            next = at + rune_size((unsigned char)r->text[at]);
            const int one = put_mapped(s, r, at, next, out);
            if (one < 0 || (!one && text_run_copy(out, r, at, next) < 0)) return -1;
        }
    }
    return 0;
}

static bool ascii(const struct text_run *r)
{
    for (int64_t i = 0; i < r->n; i++)
        if ((unsigned char)r->text[i] >= 0x80) return false;
    return true;
}

int normalizer_apply(struct normalizer *n, struct text_run *r, bool spans, bool continues,
                     struct err *e)
{
    int turn = 0;
    for (int i = 0; i < n->n; i++) {
        const struct normalizer_step *s = &n->step[i];
        struct run_buffer *out = &n->out[turn];
        int rc;
        if ((s->kind == NORMAL_FORM && ascii(r)) || (s->kind == PREPEND && continues)) continue;
        turn ^= 1;
        out->text.n = 0;
        out->spans = spans;
        switch (s->kind) {
        case NORMAL_FORM: rc = normal_form(n, s, r, out); break;
        case PREPEND: rc = prepend(s, r, out); break;
        case STRIP: rc = strip(s, r, out); break;
        case PRECOMPILED: rc = precompiled(s, r, out); break;
        case REPLACE:
            if (replace(s, r, out, e) < 0) return -1;
            rc = 0;
            break;
        default: rc = each_rune(s, r, out); break;
        }
        if (rc < 0) return buffer_full(e);
        *r = text_run_of(out);
    }
    return 0;
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Finds the first and the last rune of the output that a step makes from rune c, if the step
 * replaces each rune separately. Returns false if the output is empty. */
static bool image(const struct normalizer_step *s, uint32_t c, uint32_t *first, uint32_t *last)
{
    struct run_buffer out = {.spans = false};
    char text[4];
    const struct text_run r = {.text = text, .n = rune_put(text, c)};
    int size;
    const bool any = by_rune(s, &r, c, 0, r.n, &out) == 0 && out.text.n > 0;
    if (any) {
        *first = rune_get(out.text.data, &size);
        *last = rune_get(out.text.data + rune_before(out.text.data, out.text.n), &size);
    }
    text_run_buffer_fini(&out);
    return any;
}

/* Returns true if dividing a text between *a and *b does not change the result of REPLACE. If
 * REPLACE replaces a single character, this is always the case. If it replaces a longer text,
 * that text could be divided. Sets *a and *b to the runes that are before and after the
 * division once REPLACE was applied. */
static bool cut_replace(const struct normalizer_step *s, uint32_t *a, uint32_t *b)
{
    int size;
    const struct text *to = &s->content;
    if (s->pattern || rune_size((unsigned char)s->text.data[0]) != s->text.n || !to->n)
        return false;
    const uint32_t c = rune_get(s->text.data, &size);
    if (*a == c) *a = rune_get(to->data + rune_before(to->data, to->n), &size);
    if (*b == c) *b = rune_get(to->data, &size);
    return true;
}

bool normalizer_cut(const struct normalizer *n, uint32_t *a, uint32_t *b)
{
    for (int i = 0; n && i < n->n; i++) {
        const struct normalizer_step *s = &n->step[i];
        uint32_t other;
        switch (s->kind) {
        case PREPEND: break;
        case NORMAL_FORM:
            if (rune_in(s->bits, *a) || rune_in(s->bits, *b)) return false;
            break;
        case REPLACE:
            if (!cut_replace(s, a, b)) return false;
            break;
        case LOWERCASE:
        case STRIP_ACCENTS:
        case CLEAN:
        case CHINESE:
        case NMT:
            if (!image(s, *a, &other, a) || !image(s, *b, b, &other)) return false;
            break;
        /* The result of STRIP depends on the ends of the text, and the result of PRECOMPILED
         * depends on clusters. */
        default: return false;
        }
    }
    return true;
}
