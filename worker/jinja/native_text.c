/* The filters of text and numbers: case, trim, indent, truncate, escape, tojson, int, round. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/jinja/run.h"
#include "worker/jinja/text_ops.h"
#include "worker/jinja/value_json.h"

#define FILTER(name)                                                                               \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)

FILTER(f_trim)
{
    return jinja_text_strip(&r->h, jinja_value_soft_str(&r->h, of), a[0], STRIP_LEFT | STRIP_RIGHT);
}

FILTER(f_upper)
{
    return jinja_text_case(&r->h, jinja_value_soft_str(&r->h, of), CASE_UPPER);
}

FILTER(f_lower)
{
    return jinja_text_case(&r->h, jinja_value_soft_str(&r->h, of), CASE_LOWER);
}

FILTER(f_capitalize)
{
    return jinja_text_capitalize(&r->h, jinja_value_soft_str(&r->h, of));
}

static bool begins_word(uint32_t c)
{
    return c == '-' || jinja_chars_space(c) || (c < 0x80 && strchr("({[<", (int)c) && c);
}

/* Writes the title as jinja2 does. The first character of each word is converted to upper
 * case, and the other characters of the word are converted to lower case. */
FILTER(f_title)
{
    struct heap *h = &r->h;
    struct text_sink s = {0};
    const struct pyvalue v = jinja_value_soft_str(h, of);
    const char *p = v.s->p, *end = p + v.s->n;
    while (p < end) {
        const char *q = p;
        while (q < end && begins_word(jinja_chars_get(q)) == begins_word(jinja_chars_get(p)))
            q += jinja_chars_size(*q);
        const int n = jinja_chars_size(*p);
        jinja_sink_str(h, &s, jinja_text_case(h, jinja_value_view(h, p, n), CASE_UPPER));
        jinja_sink_str(h, &s,
                       jinja_text_case(h, jinja_value_view(h, p + n, q - p - n), CASE_LOWER));
        p = q;
    }
    return jinja_sink_value(h, &s);
}

FILTER(f_string)
{
    return jinja_value_soft_str(&r->h, of);
}

FILTER(f_safe)
{
    of = jinja_value_to_str(&r->h, of);
    of.safe = 1;
    return of;
}

FILTER(f_escape)
{
    return jinja_op_escape(r, of);
}

FILTER(f_replace)
{
    const int64_t most = a[2].type == V_MISSING || a[2].type == V_NONE
                             ? -1
                             : jinja_run_int(r, a[2], "count");
    return jinja_text_replace(&r->h, jinja_value_to_str(&r->h, of), jinja_value_to_str(&r->h, a[0]),
                              jinja_value_to_str(&r->h, a[1]), most);
}

FILTER(f_indent)
{
    struct heap *h = &r->h;
    struct text_sink s = {0};
    const struct pyvalue nl = jinja_value_text(h, "\n");
    struct pyvalue by = a[0];
    if (of.type != V_STR)
        jinja_heap_fail(h, ERR_INVALID, "indent of a %s", jinja_value_type_name(of));
    if (by.type != V_STR) {
        struct text_sink spaces = {0};
        jinja_sink_fill(h, &spaces, ' ',
                        by.type == V_MISSING ? 4 : jinja_run_int(r, by, "the width"));
        by = jinja_sink_value(h, &spaces);
    }
    jinja_sink_str(h, &s, of);
    jinja_sink_str(h, &s, nl);
    const struct pylist *l = jinja_text_lines(h, jinja_sink_value(h, &s), false);
    s = (struct text_sink){0};
    if (jinja_value_truth(h, a[1])) jinja_sink_str(h, &s, by);
    for (int64_t i = 0; i < l->n; i++) {
        if (i) jinja_sink_str(h, &s, nl);
        if (i && (l->v[i].s->n || jinja_value_truth(h, a[2]))) jinja_sink_str(h, &s, by);
        jinja_sink_str(h, &s, l->v[i]);
    }
    struct pyvalue v = jinja_sink_value(h, &s);
    v.safe = of.safe;
    return v;
}

FILTER(f_center)
{
    struct heap *h = &r->h;
    struct text_sink s = {0};
    const struct pyvalue v = jinja_value_soft_str(h, of);
    const int64_t width = a[0].type == V_MISSING ? 80 : jinja_run_int(r, a[0], "the width");
    const int64_t pad = width - v.s->n_chars, left = pad / 2 + (pad & width & 1);
    if (pad <= 0) return v;
    jinja_sink_fill(h, &s, ' ', left);
    jinja_sink_str(h, &s, v);
    jinja_sink_fill(h, &s, ' ', pad - left);
    return jinja_sink_value(h, &s);
}

FILTER(f_truncate)
{
    struct heap *h = &r->h;
    const int64_t length = a[0].type == V_MISSING ? 255 : jinja_run_int(r, a[0], "the length");
    const struct pyvalue end = a[2].type == V_MISSING ? jinja_value_text(h, "...") : a[2];
    const int64_t leeway = a[3].type == V_MISSING || a[3].type == V_NONE
                               ? 5
                               : jinja_run_int(r, a[3], "the leeway");
    if (of.type != V_STR || end.type != V_STR)
        jinja_heap_fail(h, ERR_INVALID, "truncate of a %s", jinja_value_type_name(of));
    if (length < end.s->n_chars || leeway < 0)
        jinja_heap_fail(h, ERR_INVALID, "expected length >= %lld", (long long)end.s->n_chars);
    if (of.s->n_chars <= length + leeway) return of;
    struct pyvalue v = jinja_text_part(h, of, jinja_value_int(0),
                                       jinja_value_int(length - end.s->n_chars));
    if (!jinja_value_truth(h, a[1])) v = jinja_text_rsplit(h, v, jinja_value_text(h, " "), 1)->v[0];
    struct text_sink s = {0};
    jinja_sink_str(h, &s, v);
    jinja_sink_str(h, &s, end);
    return jinja_sink_value(h, &s);
}

FILTER(f_wordcount)
{
    const struct pyvalue v = jinja_value_soft_str(&r->h, of);
    int64_t n = 0;
    bool within = false;
    jinja_heap_spend_bytes(&r->h, v.s->n);
    for (int64_t i = 0; i < v.s->n; i += jinja_chars_size(v.s->p[i])) {
        const uint32_t c = jinja_chars_get(v.s->p + i);
        const bool word = c == '_' || jinja_chars_alpha(c) || jinja_chars_numeric(c);
        n += word && !within;
        within = word;
    }
    return jinja_value_int(n);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void separators(struct template_run *r, struct pyvalue v, struct json_style *s)
{
    if (v.type == V_MISSING || v.type == V_NONE) return;
    const struct pylist *l = jinja_value_items(&r->h, v);
    if (l->n != 2 || l->v[0].type != V_STR || l->v[1].type != V_STR)
        jinja_heap_fail(&r->h, ERR_INVALID, "separators are two strings");
    s->comma = l->v[0].s->p;
    s->n_comma = l->v[0].s->n;
    s->colon = l->v[1].s->p;
    s->n_colon = l->v[1].s->n;
}

FILTER(f_tojson)
{
    struct heap *h = &r->h;
    struct text_sink spaces = {0}, out = {0};
    struct json_style s = {.ascii = jinja_value_truth(h, a[0]), .sort = jinja_value_truth(h, a[3])};
    s.indent = a[1].type == V_MISSING ? jinja_value_none() : a[1];
    if (s.indent.type != V_NONE && s.indent.type != V_STR) {
        jinja_sink_fill(h, &spaces, ' ', jinja_run_int(r, s.indent, "the indent"));
        s.indent = jinja_sink_value(h, &spaces);
    }
    s.comma = s.indent.type == V_NONE ? ", " : ",";
    s.n_comma = s.indent.type == V_NONE ? 2 : 1;
    s.colon = ": ";
    s.n_colon = 2;
    separators(r, a[2], &s);
    jinja_json_write(h, &out, of, &s);
    return jinja_sink_value(h, &out);
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* Copies the text of a number for int() or float(). White space around the number, and single
 * underscores inside the number, are not copied. */
static bool clean_number(struct template_run *r, struct pyvalue v, char out[64])
{
    const struct str *s = jinja_text_strip(&r->h, v, jinja_value_none(), STRIP_LEFT | STRIP_RIGHT)
                              .s;
    int n = 0;
    for (int64_t i = 0; i < s->n; i++) {
        const char c = s->p[i];
        const bool between = i && i + 1 < s->n && s->p[i - 1] != '_' && s->p[i + 1] != '_';
        if (c == '_' && between) continue;
        if (c == '_' || c <= ' ' || n == 63) return false;
        out[n++] = c;
    }
    out[n] = 0;
    return n > 0;
}

static bool read_int(struct template_run *r, struct pyvalue v, int base, int64_t *out)
{
    char text[64], *stop;
    if (!clean_number(r, v, text)) return false;
    const char *p = text + (*text == '-' || *text == '+');
    const int letter = p[0] == '0' ? p[1] | 32 : 0, size = letter == 'x'   ? 16
                                                           : letter == 'o' ? 8
                                                                           : 2;
    const bool prefixed = letter == 'x' || letter == 'o' || letter == 'b';
    if (base == 0) base = prefixed ? size : 10;
    if (prefixed && base == size) p += 2;
    if (*p == '-' || *p == '+' || base < 2 || base > 36) return false;
    if (base == 16 && p[0] == '0' && (p[1] | 32) == 'x') return false;
    const unsigned long long i = strtoull(p, &stop, base);
    if (*stop || stop == p) return false;
    if (i > INT64_MAX) jinja_heap_fail(&r->h, ERR_TOO_LARGE, "an integer has more than 64 bits");
    *out = *text == '-' ? -(int64_t)i : (int64_t)i;
    return true;
}

static bool read_float(struct template_run *r, struct pyvalue v, double *out)
{
    char text[64], *stop;
    if (jinja_value_is_number(v)) {
        *out = jinja_value_as_double(v);
        return true;
    }
    if (v.type != V_STR || !clean_number(r, v, text) || strpbrk(text, "xXpP(")) return false;
    *out = strtod(text, &stop);
    return !*stop;
}

static void fail_undefined(struct template_run *r, struct pyvalue v)
{
    if (v.type == V_UNDEFINED) jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)v.s->n, v.s->p);
}

FILTER(f_int)
{
    int64_t i;
    double d;
    const struct pyvalue preset = a[0].type == V_MISSING ? jinja_value_int(0) : a[0];
    const int64_t base = a[1].type == V_MISSING ? 10 : jinja_run_int(r, a[1], "the base");
    fail_undefined(r, of);
    if (jinja_value_is_int(of)) return jinja_value_int(jinja_value_as_int(of));
    if (of.type == V_STR && base >= 0 && base <= 36 && read_int(r, of, (int)base, &i))
        return jinja_value_int(i);
    if (!read_float(r, of, &d) || isnan(d)) return preset;
    if (isinf(d)) {
        if (of.type == V_STR) return preset;
        jinja_heap_fail(&r->h, ERR_INVALID, "cannot convert float infinity to integer");
    }
    if (fabs(d) >= 0x1p63)
        jinja_heap_fail(&r->h, ERR_TOO_LARGE, "an integer has more than 64 bits");
    return jinja_value_int((int64_t)d);
}

FILTER(f_float)
{
    double d;
    fail_undefined(r, of);
    if (read_float(r, of, &d)) return jinja_value_float(d);
    return a[0].type == V_MISSING ? jinja_value_float(0) : a[0];
}

FILTER(f_abs)
{
    fail_undefined(r, of);
    if (of.type == V_FLOAT) return jinja_value_float(fabs(of.d));
    const int64_t i = jinja_run_int(r, of, "abs()");
    return i < 0 ? jinja_op_negate(r, jinja_value_int(i), true) : jinja_value_int(i);
}

/* Computes round(d, n), half to even. For n >= 0 the result is exact, because the C library
 * prints the exact value of d, rounded to n digits. */
static double round_to(double d, int64_t n)
{
    char text[800];
    if (n > 323 || !isfinite(d)) return d;
    if (n < -308) return 0 * d;
    if (n >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)n, d);
        return strtod(text, NULL);
    }
    const double unit = pow(10, (double)-n);
    return nearbyint(d / unit) * unit;
}

FILTER(f_round)
{
    const int64_t n = a[0].type == V_MISSING ? 0 : jinja_run_int(r, a[0], "the precision");
    const bool common = a[1].type == V_MISSING || jinja_value_is_text(a[1], "common");
    const bool up = jinja_value_is_text(a[1], "ceil");
    if (!common && !up && !jinja_value_is_text(a[1], "floor"))
        jinja_heap_fail(&r->h, ERR_INVALID, "method must be common, ceil or floor");
    if (!jinja_value_is_number(of))
        jinja_heap_fail(&r->h, ERR_INVALID, "round of a %s", jinja_value_type_name(of));
    if (common && jinja_value_is_int(of) && n >= 0) return jinja_value_int(jinja_value_as_int(of));
    if (common && jinja_value_is_int(of))
        return jinja_value_int((int64_t)round_to((double)jinja_value_as_int(of), n));
    if (common) return jinja_value_float(round_to(of.d, n));
    const double scale = pow(10, (double)n), x = jinja_value_as_double(of) * scale;
    return jinja_value_float((up ? ceil(x) : floor(x)) / scale);
}

const struct native jinja_native_filters_text[] = {
    {"trim", "chars", 0, f_trim},
    {"upper", "", 0, f_upper},
    {"lower", "", 0, f_lower},
    {"capitalize", "", 0, f_capitalize},
    {"title", "", 0, f_title},
    {"string", "", 0, f_string},
    {"safe", "", 0, f_safe},
    {"e", "", 0, f_escape},
    {"escape", "", 0, f_escape},
    {"replace", "old new count", 2, f_replace},
    {"indent", "width first blank", 0, f_indent},
    {"center", "width", 0, f_center},
    {"truncate", "length killwords end leeway", 0, f_truncate},
    {"wordcount", "", 0, f_wordcount},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson},
    {"int", "default base", 0, f_int},
    {"float", "default", 0, f_float},
    {"abs", "", 0, f_abs},
    {"round", "precision method", 0, f_round},
    {NULL, NULL, 0, NULL},
};
