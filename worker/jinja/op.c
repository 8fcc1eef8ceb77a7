/* Arithmetic, slices and formats with Python's rules. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "worker/jinja/chars.h"
#include "worker/jinja/lex.h"
#include "worker/jinja/run.h"

int64_t jinja_run_int(struct template_run *r, struct pyvalue v, const char *what)
{
    if (!jinja_value_is_int(v))
        jinja_heap_fail(&r->h, ERR_INVALID, "%s is a %s and not an integer", what,
                        jinja_value_type_name(v));
    return jinja_value_as_int(v);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static _Noreturn void too_large(struct template_run *r)
{
    jinja_heap_fail(&r->h, ERR_TOO_LARGE, "an integer has more than 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

/* Raises a to the power b. Fails if Python raises an error, and also if the result is a
 * complex number in Python. */
static struct pyvalue float_pow(struct template_run *r, double a, double b)
{
    const double out = pow(a, b);
    if (a == 0 && b < 0 && isfinite(b))
        jinja_heap_fail(&r->h, ERR_INVALID, "0 cannot be raised to a negative power");
    if (isfinite(a) && isfinite(b) && isnan(out))
        jinja_heap_fail(&r->h, ERR_UNSUPPORTED, "a power is a complex number");
    if (isfinite(a) && isfinite(b) && isinf(out))
        jinja_heap_fail(&r->h, ERR_INVALID, "a power is too large for a float");
    return jinja_value_float(out);
}

static struct pyvalue int_pow(struct template_run *r, int64_t a, int64_t b)
{
    int64_t out = 1;
    if (b < 0) return float_pow(r, (double)a, (double)b);
    if (a == 0 || a == 1 || a == -1) return jinja_value_int(a == -1 && b % 2 == 0 ? 1 : b ? a : 1);
    for (; b > 0; b--) /* the loop ends after at most 63 iterations, because then the product
                        * overflows */
        if (__builtin_mul_overflow(out, a, &out)) too_large(r);
    return jinja_value_int(out);
}

static struct pyvalue op_int(struct template_run *r, int op, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    if (!b && (op == OP1('/') || op == OP1('%') || op == OP2('/', '/')))
        jinja_heap_fail(&r->h, ERR_INVALID, "division by zero");
    switch (op) {
    case OP1('+'): over = __builtin_add_overflow(a, b, &out); break;
    case OP1('-'): over = __builtin_sub_overflow(a, b, &out); break;
    case OP1('*'): over = __builtin_mul_overflow(a, b, &out); break;
    case OP1('/'): return jinja_value_float((double)((long double)a / (long double)b));
    case OP1('%'):
    case OP2('/', '/'):
        if ((over = a == INT64_MIN && b == -1)) break;
        out = op == OP1('%') ? a - floor_div(a, b) * b : floor_div(a, b);
        break;
    default: return int_pow(r, a, b);
    }
    if (over) too_large(r);
    return jinja_value_int(out);
}

static struct pyvalue op_float(struct template_run *r, int op, double a, double b)
{
    double m;
    if (b == 0 && (op == OP1('/') || op == OP1('%') || op == OP2('/', '/')))
        jinja_heap_fail(&r->h, ERR_INVALID, "float division by zero");
    switch (op) {
    case OP1('+'): return jinja_value_float(a + b);
    case OP1('-'): return jinja_value_float(a - b);
    case OP1('*'): return jinja_value_float(a * b);
    case OP1('/'): return jinja_value_float(a / b);
    case OP1('%'):
    case OP2('/', '/'):
        m = fmod(a, b);
        if (m != 0 && (m < 0) != (b < 0)) m += b;
        if (m == 0) m = copysign(0, b);
        if (op == OP1('%')) return jinja_value_float(m);
        a = (a - m) / b;
        m = floor(a);
        return jinja_value_float(a - m > 0.5 ? m + 1 : m);
    default: return float_pow(r, a, b);
    }
}

struct pyvalue jinja_op_negate(struct template_run *r, struct pyvalue v, bool minus)
{
    if (v.type == V_FLOAT) return jinja_value_float(minus ? -v.d : v.d);
    if (v.type == V_UNDEFINED) jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)v.s->n, v.s->p);
    if (!jinja_value_is_int(v))
        jinja_heap_fail(&r->h, ERR_INVALID, "bad operand type for unary %c: '%s'",
                        minus ? '-' : '+', jinja_value_type_name(v));
    const int64_t i = jinja_value_as_int(v);
    if (minus && i == INT64_MIN) too_large(r);
    return jinja_value_int(minus ? -i : i);
}

/* ---- sequences ------------------------------------------------------------------------------ */

struct pyvalue jinja_op_escape(struct template_run *r, struct pyvalue v)
{
    static const char from[] = "&<>'\"";
    static const char *const to[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    struct text_sink s = {0};
    if (v.type == V_STR && v.safe) return v;
    const struct str *t = jinja_value_to_str(&r->h, v).s;
    jinja_heap_spend_bytes(&r->h, t->n);
    for (int64_t i = 0; i < t->n; i++) {
        const char *hit = t->p[i] ? strchr(from, t->p[i]) : NULL;
        if (hit)
            jinja_sink_text(&r->h, &s, to[hit - from]);
        else
            jinja_sink_add(&r->h, &s, t->p + i, 1);
    }
    v = jinja_sink_value(&r->h, &s);
    v.safe = 1;
    return v;
}

static struct pyvalue add_str(struct template_run *r, struct pyvalue a, struct pyvalue b)
{
    struct text_sink s = {0};
    const bool safe = a.safe || b.safe;
    if (safe) {
        a = jinja_op_escape(r, a);
        b = jinja_op_escape(r, b);
    }
    jinja_sink_str(&r->h, &s, a);
    jinja_sink_str(&r->h, &s, b);
    struct pyvalue v = jinja_sink_value(&r->h, &s);
    v.safe = safe;
    return v;
}

static struct pyvalue add_list(struct template_run *r, struct pyvalue a, struct pyvalue b)
{
    struct pylist *l = jinja_list_new(&r->h, a.list->n + b.list->n);
    jinja_heap_spend(&r->h, l->room >> 4);
    for (int64_t i = 0; i < a.list->n; i++) jinja_list_add(&r->h, l, a.list->v[i]);
    for (int64_t i = 0; i < b.list->n; i++) jinja_list_add(&r->h, l, b.list->v[i]);
    a.list = l;
    return a;
}

static struct pyvalue repeat(struct template_run *r, struct pyvalue v, int64_t n)
{
    if (v.type == V_STR) {
        struct text_sink s = {0};
        if (n > 0 && v.s->n && n > SINK_LIMIT / v.s->n) n = SINK_LIMIT + 1;
        jinja_heap_spend(&r->h, v.s->n && n > 0 ? n >> 8 : 0);
        for (int64_t i = 0; v.s->n && i < n; i++) jinja_sink_str(&r->h, &s, v);
        const uint8_t safe = v.safe;
        v = jinja_sink_value(&r->h, &s);
        v.safe = safe;
        return v;
    }
    struct pylist *l = jinja_list_new(&r->h, 0);
    for (int64_t k = 0; v.list->n && k < n; k++) {
        jinja_heap_spend(&r->h, 1 + (v.list->n >> 4));
        for (int64_t i = 0; i < v.list->n; i++) jinja_list_add(&r->h, l, v.list->v[i]);
    }
    v.list = l;
    return v;
}

static bool is_sequence(struct pyvalue v)
{
    return v.type == V_STR || jinja_value_is_seq(v);
}

/* Computes a slice's first index, step and number of items, as Python's slice.indices() does. */
static void slice_range(struct template_run *r, const struct pyvalue b[3], int64_t n,
                        struct pyrange *out)
{
    const int64_t step = b[2].type == V_NONE ? 1 : jinja_run_int(r, b[2], "a slice's step");
    if (!step) jinja_heap_fail(&r->h, ERR_INVALID, "slice step cannot be zero");
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    int64_t at[2];
    for (int i = 0; i < 2; i++) {
        if (b[i].type == V_NONE) {
            at[i] = (step < 0) == (i == 0) ? high : low;
            continue;
        }
        int64_t x = jinja_run_int(r, b[i], "a slice's bound");
        if (x < 0) x = x < -n ? -1 : x + n; /* -1 means the position before the first item */
        at[i] = x < low ? low : x > high ? high : x;
    }
    const int64_t gap = step > 0 ? at[1] - at[0] : at[0] - at[1];
    const uint64_t width = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    out->start = at[0];
    out->stop = at[1];
    out->step = step;
    out->n = gap > 0 ? (int64_t)(((uint64_t)gap - 1) / width) + 1 : 0;
}

static struct pyvalue slice_str(struct template_run *r, struct pyvalue v, const struct pyrange *g)
{
    const struct str *s = v.s;
    const uint8_t safe = v.safe;
    jinja_heap_spend_bytes(&r->h, s->n);
    if (g->step == 1 || g->n <= 1) {
        const int64_t from = s->n == s->n_chars ? g->start : jinja_chars_at(s->p, s->n, g->start);
        const int64_t size = s->n == s->n_chars ? g->n
                                                : jinja_chars_at(s->p + from, s->n - from, g->n);
        v = g->n ? jinja_value_view(&r->h, s->p + from, size) : jinja_value_text(&r->h, "");
    } else {
        const struct pylist *l = jinja_value_items(&r->h, v);
        struct text_sink out = {0};
        for (int64_t i = 0; i < g->n; i++)
            jinja_sink_str(&r->h, &out, l->v[g->start + i * g->step]);
        v = jinja_sink_value(&r->h, &out);
    }
    v.safe = safe;
    return v;
}

/* Returns the range that Python returns for a slice of a range. The returned range begins at
 * the slice's first item. Its stop is the value that would follow the slice's last item. */
static struct pyrange *slice_of_range(struct template_run *r, const struct pyrange *of,
                                      const struct pyrange *g)
{
    struct pyrange *out = jinja_heap_alloc(&r->h, sizeof *out);
    *out = (struct pyrange){.n = g->n};
    if (__builtin_mul_overflow(of->step, g->start, &out->start) ||
        __builtin_add_overflow(of->start, out->start, &out->start) ||
        __builtin_mul_overflow(of->step, g->stop, &out->stop) ||
        __builtin_add_overflow(of->start, out->stop, &out->stop) ||
        __builtin_mul_overflow(of->step, g->step, &out->step))
        too_large(r);
    return out;
}

struct pyvalue jinja_op_slice(struct template_run *r, struct pyvalue v,
                              const struct pyvalue bound[3])
{
    struct pyrange g;
    if (v.type == V_UNDEFINED) jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)v.s->n, v.s->p);
    if (!is_sequence(v) && v.type != V_RANGE)
        jinja_heap_fail(&r->h, ERR_INVALID, "a %s cannot be sliced", jinja_value_type_name(v));
    slice_range(r, bound, jinja_value_len(&r->h, v), &g);
    if (v.type == V_STR) return slice_str(r, v, &g);
    if (v.type == V_RANGE) {
        v.range = slice_of_range(r, v.range, &g);
        return v;
    }
    struct pylist *l = jinja_list_new(&r->h, g.n);
    jinja_heap_spend(&r->h, g.n >> 4);
    for (int64_t i = 0; i < g.n; i++) jinja_list_add(&r->h, l, v.list->v[g.start + i * g.step]);
    v.list = l;
    return v;
}

/* Formats one value for a format such as "%s %d". Supports %s, %r, %d, %i and %f, with the flags,
 * width and precision of C. */
static const char *format_one(struct template_run *r, struct text_sink *out, const char *p,
                              const char *end, struct pyvalue v)
{
    char spec[16] = "%", text[400];
    int n = 1;
    while (p < end && strchr("-+ 0123456789.", *p) && n < 6) spec[n++] = *p++;
    const char c = p < end ? *p++ : 0;
    struct text_sink s = {0};
    if (c == 's' || c == 'r') {
        if (n > 1) jinja_heap_fail(&r->h, ERR_UNSUPPORTED, "%%%c with a width is not supported", c);
        if (c == 's')
            jinja_sink_str(&r->h, &s, v);
        else
            jinja_sink_repr(&r->h, &s, v);
        jinja_sink_add(&r->h, out, s.p, s.n);
    } else if ((c == 'd' || c == 'i') && jinja_value_is_number(v)) {
        strcpy(spec + n, "lld");
        snprintf(text, sizeof text, spec,
                 v.type == V_FLOAT ? (long long)v.d : (long long)jinja_value_as_int(v));
        jinja_sink_text(&r->h, out, text);
    } else if (c == 'f' && jinja_value_is_number(v)) {
        strcpy(spec + n, "f");
        snprintf(text, sizeof text, spec, jinja_value_as_double(v));
        jinja_sink_text(&r->h, out, text);
    } else {
        jinja_heap_fail(&r->h, ERR_UNSUPPORTED, "the format %%%c of a %s is not supported",
                        c ? c : ' ', jinja_value_type_name(v));
    }
    return p;
}

/* Computes format % args. */
static struct pyvalue op_format(struct template_run *r, struct pyvalue format, struct pyvalue args)
{
    const char *p = format.s->p, *end = p + format.s->n;
    struct text_sink out = {0};
    int64_t next = 0;
    const int64_t n = args.type == V_TUPLE ? args.list->n : 1;
    while (p < end) {
        const char *q = memchr(p, '%', (size_t)(end - p));
        jinja_sink_add(&r->h, &out, p, (q ? q : end) - p);
        if (!q) break;
        p = q + 1;
        if (p < end && *p == '%') {
            jinja_sink_text(&r->h, &out, "%");
            p++;
            continue;
        }
        if (next >= n)
            jinja_heap_fail(&r->h, ERR_INVALID, "not enough arguments for format string");
        p = format_one(r, &out, p, end, args.type == V_TUPLE ? args.list->v[next] : args);
        next++;
    }
    if (next < n && args.type != V_DICT && args.type != V_LIST)
        jinja_heap_fail(&r->h, ERR_INVALID, "not all arguments converted during string formatting");
    return jinja_sink_value(&r->h, &out);
}

struct pyvalue jinja_op_binary(struct template_run *r, int op, struct pyvalue a, struct pyvalue b)
{
    if (jinja_value_is_int(a) && jinja_value_is_int(b))
        return op_int(r, op, jinja_value_as_int(a), jinja_value_as_int(b));
    if (jinja_value_is_number(a) && jinja_value_is_number(b))
        return op_float(r, op, jinja_value_as_double(a), jinja_value_as_double(b));
    if (op == OP1('+') && a.type == V_STR && b.type == V_STR) return add_str(r, a, b);
    if (op == OP1('+') && a.type == b.type && jinja_value_is_seq(a)) return add_list(r, a, b);
    if (op == OP1('*') && is_sequence(a) && jinja_value_is_int(b))
        return repeat(r, a, jinja_value_as_int(b));
    if (op == OP1('*') && is_sequence(b) && jinja_value_is_int(a))
        return repeat(r, b, jinja_value_as_int(a));
    if (op == OP1('%') && a.type == V_STR) return op_format(r, a, b);
    const struct pyvalue bad = a.type == V_UNDEFINED ? a : b;
    if (bad.type == V_UNDEFINED)
        jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)bad.s->n, bad.s->p);
    jinja_heap_fail(&r->h, ERR_INVALID, "unsupported operand type(s) for %.*s: '%s' and '%s'",
                    op & 0xff ? 2 : 1, (char[]){(char)(op >> 8), (char)(op & 0xff)},
                    jinja_value_type_name(a), jinja_value_type_name(b));
}
