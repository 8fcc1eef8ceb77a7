/* Appends to growing text, and prints values as Python's str() and repr() do. */
#include "worker/jinja/sink.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "worker/jinja/chars.h"

static char *reserve(struct heap *h, struct text_sink *s, int64_t n)
{
    if (n > SINK_LIMIT - s->n)
        jinja_heap_fail(h, ERR_TOO_LARGE, "makes a text of more than %d MiB",
                        (int)(SINK_LIMIT >> 20));
    if (s->n + n > s->room) {
        int64_t room = s->room ? 2 * s->room : 128;
        while (room < s->n + n) room *= 2;
        s->p = jinja_heap_grow(h, s->p, s->n, room);
        s->room = room;
    }
    s->n += n;
    return s->p + s->n - n;
}

void jinja_sink_add(struct heap *h, struct text_sink *s, const char *p, int64_t n)
{
    if (!n) return;
    memcpy(reserve(h, s, n), p, (size_t)n);
    jinja_heap_spend(h, n >> HEAP_STEP_LOG);
}

void jinja_sink_text(struct heap *h, struct text_sink *s, const char *z)
{
    jinja_sink_add(h, s, z, (int64_t)strlen(z));
}

void jinja_sink_char(struct heap *h, struct text_sink *s, uint32_t c)
{
    char b[4];
    jinja_sink_add(h, s, b, jinja_chars_put(b, c));
}

void jinja_sink_fill(struct heap *h, struct text_sink *s, char c, int64_t n)
{
    if (n <= 0) return;
    memset(reserve(h, s, n), c, (size_t)n);
    jinja_heap_spend(h, n >> HEAP_STEP_LOG);
}

struct pyvalue jinja_sink_value(struct heap *h, const struct text_sink *s)
{
    return jinja_value_view(h, s->n ? s->p : "", s->n);
}

/* Prints the shortest digits that read back as d, in the form that Python uses. Python uses
 * scientific notation if the decimal exponent is below -4 or at least 16. */
char *jinja_float_repr(char *out, double d)
{
    char raw[40];
    if (isnan(d)) return strcpy(out, "nan");
    if (isinf(d)) return strcpy(out, d < 0 ? "-inf" : "inf");
    for (int n = 0; n < 17; n++) {
        snprintf(raw, sizeof raw, "%.*e", n, d);
        if (strtod(raw, NULL) == d) break;
    }
    char digits[24];
    int n = 0;
    for (const char *p = raw; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    digits[n] = 0;
    const int exp = atoi(strchr(raw, 'e') + 1);
    char *p = out;
    if (raw[0] == '-') *p++ = '-';
    if (exp < -4 || exp >= 16) {
        p += sprintf(p, "%c%s%s", digits[0], n > 1 ? "." : "", digits + 1);
        sprintf(p, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        sprintf(p, "0.%.*s%s", -exp - 1, "0000", digits);
    } else if (n <= exp + 1) {
        sprintf(p, "%s%.*s.0", digits, exp + 1 - n, "0000000000000000");
    } else {
        sprintf(p, "%.*s.%s", exp + 1, digits, digits + exp + 1);
    }
    return out;
}

static void repr_char(struct heap *h, struct text_sink *s, uint32_t c, char quote)
{
    char b[16];
    if (c == (unsigned char)quote || c == '\\')
        sprintf(b, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        sprintf(b, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else if (jinja_chars_printable(c))
        b[jinja_chars_put(b, c)] = 0;
    else
        sprintf(b,
                c < 0x100     ? "\\x%02" PRIx32
                : c < 0x10000 ? "\\u%04" PRIx32
                              : "\\U%08" PRIx32,
                c);
    jinja_sink_text(h, s, b);
}

static void repr_str(struct heap *h, struct text_sink *s, const struct str *t)
{
    const bool single = memchr(t->p, '\'', (size_t)t->n) != NULL;
    const char quote = single && !memchr(t->p, '"', (size_t)t->n) ? '"' : '\'';
    jinja_heap_spend_bytes(h, t->n);
    jinja_sink_add(h, s, &quote, 1);
    for (int64_t i = 0; i < t->n; i += jinja_chars_size(t->p[i]))
        repr_char(h, s, jinja_chars_get(t->p + i), quote);
    jinja_sink_add(h, s, &quote, 1);
}

static void repr_seq(struct heap *h, struct text_sink *s, const struct pylist *l, const char *open,
                     const char *close)
{
    jinja_sink_text(h, s, open);
    for (int64_t i = 0; i < l->n; i++) {
        if (i) jinja_sink_text(h, s, ", ");
        jinja_sink_repr(h, s, l->v[i]);
    }
    jinja_sink_text(h, s, close);
}

static void repr_dict(struct heap *h, struct text_sink *s, const struct dict *d)
{
    jinja_sink_text(h, s, "{");
    for (int64_t i = 0; i < d->n; i++) {
        if (i) jinja_sink_text(h, s, ", ");
        jinja_sink_repr(h, s, d->e[i].key);
        jinja_sink_text(h, s, ": ");
        jinja_sink_repr(h, s, d->e[i].value);
    }
    jinja_sink_text(h, s, "}");
}

static void repr_view(struct heap *h, struct text_sink *s, struct pyvalue v)
{
    jinja_sink_text(h, s, jinja_value_type_name(v));
    repr_seq(h, s, jinja_value_items(h, v), "([", "])");
}

static void repr_range(struct heap *h, struct text_sink *s, const struct pyrange *r)
{
    char b[80];
    if (r->step == 1)
        sprintf(b, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop);
    else
        sprintf(b, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start, r->stop, r->step);
    jinja_sink_text(h, s, b);
}

void jinja_sink_repr(struct heap *h, struct text_sink *s, struct pyvalue v)
{
    char b[32];
    jinja_heap_spend(h, 1);
    jinja_heap_enter(h);
    switch (v.type) {
    case V_MISSING:
    case V_UNDEFINED: jinja_sink_text(h, s, "Undefined"); break;
    case V_NONE: jinja_sink_text(h, s, "None"); break;
    case V_BOOL: jinja_sink_text(h, s, v.b ? "True" : "False"); break;
    case V_INT:
        sprintf(b, "%" PRId64, v.i);
        jinja_sink_text(h, s, b);
        break;
    case V_FLOAT: jinja_sink_text(h, s, jinja_float_repr(b, v.d)); break;
    case V_STR:
        if (v.safe) jinja_sink_text(h, s, "Markup(");
        repr_str(h, s, v.s);
        if (v.safe) jinja_sink_text(h, s, ")");
        break;
    case V_LIST: repr_seq(h, s, v.list, "[", "]"); break;
    case V_TUPLE: repr_seq(h, s, v.list, "(", v.list->n == 1 ? ",)" : ")"); break;
    case V_DICT: repr_dict(h, s, v.dict); break;
    case V_NAMESPACE:
        jinja_sink_text(h, s, "<Namespace ");
        repr_dict(h, s, v.dict);
        jinja_sink_text(h, s, ">");
        break;
    case V_VIEW: repr_view(h, s, v); break;
    case V_RANGE: repr_range(h, s, v.range); break;
    default:
        jinja_heap_fail(h, ERR_INVALID, "a %s is printed, which has no text of its own",
                        jinja_value_type_name(v));
    }
    jinja_heap_leave(h);
}

void jinja_sink_str(struct heap *h, struct text_sink *s, struct pyvalue v)
{
    if (v.type == V_STR)
        jinja_sink_add(h, s, v.s->p, v.s->n);
    else if (v.type != V_UNDEFINED && v.type != V_MISSING)
        jinja_sink_repr(h, s, v);
    if ((v.type == V_LIST || v.type == V_DICT) && !h->printed) h->printed = h->line;
}

struct pyvalue jinja_value_to_str(struct heap *h, struct pyvalue v)
{
    struct text_sink s = {0};
    if (v.type == V_STR) {
        v.safe = 0;
        return v;
    }
    jinja_sink_str(h, &s, v);
    return jinja_sink_value(h, &s);
}

struct pyvalue jinja_value_soft_str(struct heap *h, struct pyvalue v)
{
    return v.type == V_STR ? v : jinja_value_to_str(h, v);
}
