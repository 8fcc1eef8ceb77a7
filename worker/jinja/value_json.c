/* Reads JSON by jread.h into values, and writes values with the separators and escapes of Python's
 * json.dumps. */
#include "worker/jinja/value_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "worker/jinja/chars.h"

/* ---- reading -------------------------------------------------------------------------------- */

static struct pyvalue string_of(struct heap *h, const struct jread *j)
{
    if (!j->escaped) return jinja_value_str(h, j->text, (int64_t)j->len);
    char *p = jinja_heap_alloc(h, (int64_t)j->len + 1);
    return jinja_value_view(h, p, (int64_t)jread_unescape(j, p));
}

static struct pyvalue number_of(struct heap *h, struct jread *j)
{
    int64_t i;
    double d;
    for (size_t k = 0; k < j->len; k++)
        if (strchr(".eE", j->text[k])) {
            if (jread_double(j, &d))
                jinja_heap_fail(h, ERR_INVALID, "number %.*s is too large", (int)j->len, j->text);
            return jinja_value_float(d);
        }
    if (jread_int(j, &i))
        jinja_heap_fail(h, ERR_INVALID, "number %.*s has more than 64 bits", (int)j->len, j->text);
    return jinja_value_int(i);
}

/* Reads a value by recursion. jread limits the depth. */
static struct pyvalue read_value(struct heap *h, struct jread *j, enum jtok t)
{
    switch (t) {
    case J_OBJECT: {
        struct dict *d = jinja_dict_new(h);
        while ((t = jread_next(j)) == J_KEY) {
            const struct pyvalue key = string_of(h, j);
            jinja_dict_set(h, d, key, read_value(h, j, jread_next(j)));
        }
        if (t != J_OBJECT_END) break;
        return (struct pyvalue){.type = V_DICT, .dict = d};
    }
    case J_ARRAY: {
        struct pylist *l = jinja_list_new(h, 0);
        while ((t = jread_next(j)) != J_ARRAY_END && t != J_ERROR)
            jinja_list_add(h, l, read_value(h, j, t));
        if (t != J_ARRAY_END) break;
        return jinja_value_of_list(l);
    }
    case J_STRING: return string_of(h, j);
    case J_NUMBER: return number_of(h, j);
    case J_TRUE: return jinja_value_bool(true);
    case J_FALSE: return jinja_value_bool(false);
    case J_NULL: return jinja_value_none();
    default: break;
    }
    jinja_heap_fail(h, ERR_INVALID, "the variables: %s", j->err.text);
}

struct pyvalue jinja_json_read(struct heap *h, const char *text, int64_t size)
{
    struct jread j;
    jread_init(&j, text, (size_t)size);
    const struct pyvalue v = read_value(h, &j, jread_next(&j));
    if (jread_next(&j) != J_END) jinja_heap_fail(h, ERR_INVALID, "the variables: %s", j.err.text);
    return v;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void escape(struct heap *h, struct text_sink *s, uint32_t c)
{
    static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    char b[16];
    const char *at = c && c < 0x80 ? strchr(plain, (int)c) : NULL;
    if (at)
        sprintf(b, "\\%c", letter[at - plain]);
    else if (c < 0x10000)
        sprintf(b, "\\u%04" PRIx32, c);
    else
        sprintf(b, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (c >> 10), 0xdc00 + (c & 0x3ff));
    jinja_sink_text(h, s, b);
}

static void write_string(struct heap *h, struct text_sink *s, const struct str *t, bool ascii)
{
    int64_t from = 0;
    jinja_heap_spend_bytes(h, t->n);
    jinja_sink_text(h, s, "\"");
    for (int64_t i = 0, n; i < t->n; i += n) {
        const uint32_t c = jinja_chars_get(t->p + i);
        n = jinja_chars_size(t->p[i]);
        if (c >= 0x20 && c != '"' && c != '\\' && (!ascii || c < 0x7f)) continue;
        jinja_sink_add(h, s, t->p + from, i - from);
        escape(h, s, c);
        from = i + n;
    }
    jinja_sink_add(h, s, t->p + from, t->n - from);
    jinja_sink_text(h, s, "\"");
}

static void write_float(struct heap *h, struct text_sink *s, double d)
{
    char b[32];
    jinja_sink_text(h, s,
                    isnan(d)   ? "NaN"
                    : isinf(d) ? (d < 0 ? "-Infinity" : "Infinity")
                               : jinja_float_repr(b, d));
}

static void write_scalar(struct heap *h, struct text_sink *s, struct pyvalue v)
{
    char b[32];
    switch (v.type) {
    case V_NONE: jinja_sink_text(h, s, "null"); return;
    case V_BOOL: jinja_sink_text(h, s, v.b ? "true" : "false"); return;
    case V_INT:
        sprintf(b, "%" PRId64, v.i);
        jinja_sink_text(h, s, b);
        return;
    case V_FLOAT: write_float(h, s, v.d); return;
    default:
        jinja_heap_fail(h, ERR_INVALID, "Object of type %s is not JSON serializable",
                        jinja_value_type_name(v));
    }
}

static void write_key(struct heap *h, struct text_sink *s, struct pyvalue key, bool ascii)
{
    if (key.type == V_STR) {
        write_string(h, s, key.s, ascii);
        return;
    }
    if (key.type != V_NONE && !jinja_value_is_number(key))
        jinja_heap_fail(h, ERR_INVALID, "keys must be str, int, float, bool or None, not %s",
                        jinja_value_type_name(key));
    jinja_sink_text(h, s, "\"");
    write_scalar(h, s, key);
    jinja_sink_text(h, s, "\"");
}

static void write_level(struct heap *h, struct text_sink *s, struct pyvalue v,
                        const struct json_style *style, int level);

static void new_line(struct heap *h, struct text_sink *s, const struct json_style *style, int level)
{
    if (style->indent.type == V_NONE) return;
    jinja_sink_text(h, s, "\n");
    for (int i = 0; i < level; i++) jinja_sink_str(h, s, style->indent);
}

static int by_key(const void *a, const void *b)
{
    const struct str *x = ((const struct entry *)a)->key.s, *y = ((const struct entry *)b)->key.s;
    const int c = memcmp(x->p, y->p, (size_t)(x->n < y->n ? x->n : y->n));
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static struct entry *sorted(struct heap *h, const struct dict *d)
{
    const int64_t size = d->n * (int64_t)sizeof *d->e;
    struct entry *e = jinja_heap_grow(h, d->e, size, size);
    for (int64_t i = 0; i < d->n; i++)
        if (e[i].key.type != V_STR)
            jinja_heap_fail(h, ERR_INVALID, "keys of a sorted object must be strings, not %s",
                            jinja_value_type_name(e[i].key));
    jinja_heap_spend(h, d->n);
    qsort(e, (size_t)d->n, sizeof *e, by_key);
    return e;
}

static void write_dict(struct heap *h, struct text_sink *s, const struct dict *d,
                       const struct json_style *style, int level)
{
    const struct entry *e = style->sort && d->n ? sorted(h, d) : d->e;
    jinja_sink_text(h, s, "{");
    for (int64_t i = 0; i < d->n; i++) {
        if (i) jinja_sink_add(h, s, style->comma, style->n_comma);
        new_line(h, s, style, level + 1);
        write_key(h, s, e[i].key, style->ascii);
        jinja_sink_add(h, s, style->colon, style->n_colon);
        write_level(h, s, e[i].value, style, level + 1);
    }
    if (d->n) new_line(h, s, style, level);
    jinja_sink_text(h, s, "}");
}

static void write_seq(struct heap *h, struct text_sink *s, const struct pylist *l,
                      const struct json_style *style, int level)
{
    jinja_sink_text(h, s, "[");
    for (int64_t i = 0; i < l->n; i++) {
        if (i) jinja_sink_add(h, s, style->comma, style->n_comma);
        new_line(h, s, style, level + 1);
        write_level(h, s, l->v[i], style, level + 1);
    }
    if (l->n) new_line(h, s, style, level);
    jinja_sink_text(h, s, "]");
}

static void write_level(struct heap *h, struct text_sink *s, struct pyvalue v,
                        const struct json_style *style, int level)
{
    jinja_heap_spend(h, 1);
    jinja_heap_enter(h);
    switch (v.type) {
    case V_STR: write_string(h, s, v.s, style->ascii); break;
    case V_DICT: write_dict(h, s, v.dict, style, level); break;
    case V_LIST:
    case V_TUPLE: write_seq(h, s, v.list, style, level); break;
    default: write_scalar(h, s, v);
    }
    jinja_heap_leave(h);
}

void jinja_json_write(struct heap *h, struct text_sink *s, struct pyvalue v,
                      const struct json_style *style)
{
    write_level(h, s, v, style, 0);
}
