/* Methods of Python's str, which are strip, split, replace, join, case, find and count. They work
 * on code points. */
#include "worker/jinja/text_ops.h"

#include <string.h>

static struct pyvalue piece(struct heap *h, struct pyvalue of, const char *p, int64_t n)
{
    struct pyvalue v = jinja_value_view(h, p, n);
    v.safe = of.safe;
    return v;
}

static struct pyvalue built(struct heap *h, struct pyvalue of, const struct text_sink *s)
{
    struct pyvalue v = jinja_sink_value(h, s);
    v.safe = of.safe;
    return v;
}

static bool absent(struct pyvalue v)
{
    return v.type == V_MISSING || v.type == V_NONE;
}

static const struct str *want_str(struct heap *h, struct pyvalue v)
{
    if (v.type != V_STR)
        jinja_heap_fail(h, ERR_INVALID, "must be str, not %s", jinja_value_type_name(v));
    return v.s;
}

static bool stripped(const char *p, int n, const struct str *chars)
{
    if (!chars) return jinja_chars_space(jinja_chars_get(p));
    for (int64_t i = 0; i < chars->n; i += jinja_chars_size(chars->p[i]))
        if (jinja_chars_size(chars->p[i]) == n && !memcmp(chars->p + i, p, (size_t)n)) return true;
    return false;
}

struct pyvalue jinja_text_strip(struct heap *h, struct pyvalue v, struct pyvalue chars, int sides)
{
    const struct str *set = absent(chars) ? NULL : want_str(h, chars);
    const char *p = v.s->p, *end = p + v.s->n;
    jinja_heap_spend_bytes(h, v.s->n);
    while ((sides & STRIP_LEFT) && p < end && stripped(p, jinja_chars_size(*p), set))
        p += jinja_chars_size(*p);
    while ((sides & STRIP_RIGHT) && p < end) {
        const char *last = p + jinja_chars_last(p, end - p);
        if (!stripped(last, (int)(end - last), set)) break;
        end = last;
    }
    return piece(h, v, p, end - p);
}

/* ---- splitting ------------------------------------------------------------------------------ */

static struct pylist *split_space(struct heap *h, struct pyvalue v, int64_t most)
{
    struct pylist *l = jinja_list_new(h, 0);
    const char *p = v.s->p, *end = p + v.s->n;
    for (;;) {
        while (p < end && jinja_chars_space(jinja_chars_get(p))) p += jinja_chars_size(*p);
        if (p >= end) return l;
        const char *from = p;
        if (most >= 0 && l->n >= most) {
            jinja_list_add(h, l, piece(h, v, from, end - from));
            return l;
        }
        while (p < end && !jinja_chars_space(jinja_chars_get(p))) p += jinja_chars_size(*p);
        jinja_list_add(h, l, piece(h, v, from, p - from));
    }
}

struct pylist *jinja_text_split(struct heap *h, struct pyvalue v, struct pyvalue by, int64_t most)
{
    jinja_heap_spend_bytes(h, v.s->n);
    if (absent(by)) return split_space(h, v, most);
    const struct str *sep = want_str(h, by);
    struct pylist *l = jinja_list_new(h, 0);
    const char *p = v.s->p, *end = p + v.s->n, *hit;
    if (!sep->n) jinja_heap_fail(h, ERR_INVALID, "empty separator");
    while ((most < 0 || l->n < most) &&
           (hit = memmem(p, (size_t)(end - p), sep->p, (size_t)sep->n)) != NULL) {
        jinja_list_add(h, l, piece(h, v, p, hit - p));
        p = hit + sep->n;
    }
    jinja_list_add(h, l, piece(h, v, p, end - p));
    return l;
}

static const char *find_last(const char *p, const char *end, const struct str *what)
{
    for (const char *at = end - what->n; at >= p; at--)
        if (!memcmp(at, what->p, (size_t)what->n)) return at;
    return NULL;
}

static void reverse(struct pylist *l)
{
    for (int64_t i = 0; i < l->n / 2; i++) {
        const struct pyvalue v = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = v;
    }
}

static struct pylist *rsplit_space(struct heap *h, struct pyvalue v, int64_t most)
{
    struct pylist *l = jinja_list_new(h, 0);
    const char *p = v.s->p, *end;
    for (;;) {
        v = jinja_text_strip(h, v, jinja_value_none(), STRIP_RIGHT);
        end = p + v.s->n;
        if (end == p) break;
        if (l->n >= most) {
            jinja_list_add(h, l, v);
            break;
        }
        const char *from = end;
        while (from > p && !jinja_chars_space(jinja_chars_get(p + jinja_chars_last(p, from - p))))
            from = p + jinja_chars_last(p, from - p);
        jinja_list_add(h, l, piece(h, v, from, end - from));
        v = piece(h, v, p, from - p);
        jinja_heap_spend(h, 1);
    }
    reverse(l);
    return l;
}

struct pylist *jinja_text_rsplit(struct heap *h, struct pyvalue v, struct pyvalue by, int64_t most)
{
    if (most < 0) return jinja_text_split(h, v, by, most);
    jinja_heap_spend_bytes(h, v.s->n);
    if (absent(by)) return rsplit_space(h, v, most);
    const struct str *sep = want_str(h, by);
    struct pylist *l = jinja_list_new(h, 0);
    const char *p = v.s->p, *end = p + v.s->n, *hit;
    if (!sep->n) jinja_heap_fail(h, ERR_INVALID, "empty separator");
    while (l->n < most && (hit = find_last(p, end, sep)) != NULL) {
        jinja_list_add(h, l, piece(h, v, hit + sep->n, end - hit - sep->n));
        end = hit;
    }
    jinja_list_add(h, l, piece(h, v, p, end - p));
    reverse(l);
    return l;
}

struct pylist *jinja_text_lines(struct heap *h, struct pyvalue v, bool keep_ends)
{
    struct pylist *l = jinja_list_new(h, 0);
    const char *p = v.s->p, *end = p + v.s->n, *from = p;
    jinja_heap_spend_bytes(h, v.s->n);
    while (p < end) {
        const uint32_t c = jinja_chars_get(p);
        const char *after = p + jinja_chars_size(*p);
        if (c == '\r' && after < end && *after == '\n') after++;
        if (jinja_chars_newline(c)) {
            jinja_list_add(h, l, piece(h, v, from, (keep_ends ? after : p) - from));
            from = after;
        }
        p = after;
    }
    if (from < end) jinja_list_add(h, l, piece(h, v, from, end - from));
    return l;
}

/* ---- building ------------------------------------------------------------------------------- */

/* Implements `replace` for an empty string to be replaced. It occurs before every character
 * and at the end. */
static struct pyvalue replace_nothing(struct heap *h, struct pyvalue v, const struct str *with,
                                      int64_t most)
{
    struct text_sink s = {0};
    int64_t i = 0;
    jinja_heap_spend(h, v.s->n >> 4);
    for (; i < v.s->n; i += jinja_chars_size(v.s->p[i])) {
        if (most != 0) jinja_sink_add(h, &s, with->p, with->n);
        if (most > 0) most--;
        jinja_sink_add(h, &s, v.s->p + i, jinja_chars_size(v.s->p[i]));
    }
    if (most != 0) jinja_sink_add(h, &s, with->p, with->n);
    return built(h, v, &s);
}

struct pyvalue jinja_text_replace(struct heap *h, struct pyvalue v, struct pyvalue old,
                                  struct pyvalue with, int64_t most)
{
    const struct str *a = want_str(h, old), *b = want_str(h, with);
    const char *p = v.s->p, *end = p + v.s->n, *hit;
    struct text_sink s = {0};
    jinja_heap_spend_bytes(h, v.s->n);
    if (!a->n) return replace_nothing(h, v, b, most);
    while (most != 0 && (hit = memmem(p, (size_t)(end - p), a->p, (size_t)a->n)) != NULL) {
        jinja_sink_add(h, &s, p, hit - p);
        jinja_sink_add(h, &s, b->p, b->n);
        p = hit + a->n;
        if (most > 0) most--;
    }
    jinja_sink_add(h, &s, p, end - p);
    return built(h, v, &s);
}

struct pyvalue jinja_text_join(struct heap *h, struct pyvalue by, struct pyvalue items, bool strict)
{
    struct text_sink s = {0};
    struct cursor c;
    struct pyvalue v;
    bool first = true;
    for (jinja_cursor_init(h, &c, items); jinja_cursor_next(h, &c, &v); first = false) {
        jinja_heap_spend(h, 1);
        if (!first) jinja_sink_str(h, &s, by);
        if (strict) want_str(h, v);
        jinja_sink_str(h, &s, v);
    }
    return built(h, by, &s);
}

static void convert(struct heap *h, struct text_sink *s, uint32_t c, enum chars_case to)
{
    uint32_t out[3];
    const int n = jinja_chars_convert(c, to, out);
    for (int i = 0; i < n; i++) jinja_sink_char(h, s, out[i]);
}

/* Returns true if the capital sigma at byte `at` ends a word. At the end of a word, the lower
 * case of sigma is a different letter. */
static bool final_sigma(const struct str *t, int64_t at)
{
    int64_t i = at;
    uint32_t c = 0;
    do {
        if (!i) return false;
        i = jinja_chars_last(t->p, i);
        c = jinja_chars_get(t->p + i);
    } while (jinja_chars_case_ignorable(c));
    if (!jinja_chars_cased(c)) return false;
    for (i = at + 2; i < t->n; i += jinja_chars_size(t->p[i])) {
        c = jinja_chars_get(t->p + i);
        if (!jinja_chars_case_ignorable(c)) return !jinja_chars_cased(c);
    }
    return true;
}

static void lower_at(struct heap *h, struct text_sink *s, const struct str *t, int64_t i)
{
    const uint32_t c = jinja_chars_get(t->p + i);
    if (c == 0x3a3)
        jinja_sink_char(h, s, final_sigma(t, i) ? 0x3c2 : 0x3c3);
    else
        convert(h, s, c, CASE_LOWER);
}

struct pyvalue jinja_text_case(struct heap *h, struct pyvalue v, enum chars_case to)
{
    struct text_sink s = {0};
    jinja_heap_spend_bytes(h, 16 * v.s->n);
    for (int64_t i = 0; i < v.s->n; i += jinja_chars_size(v.s->p[i]))
        if (to == CASE_LOWER)
            lower_at(h, &s, v.s, i);
        else
            convert(h, &s, jinja_chars_get(v.s->p + i), to);
    return built(h, v, &s);
}

struct pyvalue jinja_text_capitalize(struct heap *h, struct pyvalue v)
{
    struct text_sink s = {0};
    jinja_heap_spend_bytes(h, 16 * v.s->n);
    for (int64_t i = 0; i < v.s->n; i += jinja_chars_size(v.s->p[i]))
        if (i)
            lower_at(h, &s, v.s, i);
        else
            convert(h, &s, jinja_chars_get(v.s->p), CASE_TITLE);
    return built(h, v, &s);
}

struct pyvalue jinja_text_title(struct heap *h, struct pyvalue v)
{
    struct text_sink s = {0};
    bool within = false;
    jinja_heap_spend_bytes(h, 16 * v.s->n);
    for (int64_t i = 0; i < v.s->n; i += jinja_chars_size(v.s->p[i])) {
        const uint32_t c = jinja_chars_get(v.s->p + i);
        if (within)
            lower_at(h, &s, v.s, i);
        else
            convert(h, &s, c, CASE_TITLE);
        within = jinja_chars_cased(c);
    }
    return built(h, v, &s);
}

/* ---- searching ------------------------------------------------------------------------------ */

static int64_t bound(struct heap *h, struct pyvalue v, int64_t n, int64_t preset)
{
    if (absent(v)) return preset;
    if (!jinja_value_is_int(v))
        jinja_heap_fail(h, ERR_INVALID, "slice indices must be integers or None");
    int64_t i = jinja_value_as_int(v);
    if (i < 0) i = i < -n ? 0 : i + n;
    return i > n ? n + 1 : i;
}

struct pyvalue jinja_text_part(struct heap *h, struct pyvalue v, struct pyvalue from,
                               struct pyvalue to)
{
    const int64_t a = bound(h, from, v.s->n_chars, 0);
    int64_t b = bound(h, to, v.s->n_chars, v.s->n_chars);
    jinja_heap_spend_bytes(h, v.s->n);
    if (b > v.s->n_chars) b = v.s->n_chars;
    if (a > b) return (struct pyvalue){0};
    const int64_t at = jinja_chars_at(v.s->p, v.s->n, a);
    return piece(h, v, v.s->p + at, jinja_chars_at(v.s->p + at, v.s->n - at, b - a));
}

int64_t jinja_text_find(struct heap *h, struct pyvalue v, struct pyvalue what, struct pyvalue from,
                        struct pyvalue to, bool last)
{
    const struct str *w = want_str(h, what);
    const struct pyvalue part = jinja_text_part(h, v, from, to);
    if (part.type == V_MISSING) return -1;
    const char *p = part.s->p, *end = p + part.s->n;
    if (last) jinja_heap_spend(h, (part.s->n >> HEAP_STEP_LOG) * (1 + w->n));
    const char *hit = last ? find_last(p, end, w)
                           : memmem(p, (size_t)part.s->n, w->p, (size_t)w->n);
    return hit ? jinja_chars_count(v.s->p, hit - v.s->p) : -1;
}

int64_t jinja_text_count(struct heap *h, struct pyvalue v, struct pyvalue what)
{
    const struct str *w = want_str(h, what);
    const char *p = v.s->p, *end = p + v.s->n;
    int64_t n = 0;
    jinja_heap_spend_bytes(h, v.s->n);
    if (!w->n) return v.s->n_chars + 1;
    for (; (p = memmem(p, (size_t)(end - p), w->p, (size_t)w->n)) != NULL; p += w->n) n++;
    return n;
}
