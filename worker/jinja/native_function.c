/* The global functions of chat templates: range, dict, namespace, raise_exception, strftime_now. */
#include <string.h>
#include <time.h>

#include "worker/jinja/run.h"

#define FUNCTION(name)                                                                             \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)

#define MAX_RANGE 100000 /* Largest length of a range, which is the limit of jinja2's sandbox. */

FUNCTION(g_range)
{
    struct pyrange *g = jinja_heap_alloc(&r->h, sizeof *g);
    const bool one = a[1].type == V_MISSING;
    const int64_t stop = jinja_run_int(r, a[one ? 0 : 1], "range()");
    g->start = one ? 0 : jinja_run_int(r, a[0], "range()");
    g->step = a[2].type == V_MISSING ? 1 : jinja_run_int(r, a[2], "range()");
    if (!g->step) jinja_heap_fail(&r->h, ERR_INVALID, "range() arg 3 must not be zero");
    const __int128 gap = g->step > 0 ? (__int128)stop - g->start : (__int128)g->start - stop;
    const __int128 step = g->step > 0 ? g->step : -(__int128)g->step;
    const __int128 n = gap > 0 ? (gap - 1) / step + 1 : 0;
    if (n > MAX_RANGE)
        jinja_heap_fail(&r->h, ERR_INVALID,
                        "Range too big. The sandbox blocks ranges larger than %d", MAX_RANGE);
    g->n = (int64_t)n;
    g->stop = stop;
    return (struct pyvalue){.type = V_RANGE, .range = g};
}

static struct dict *make_dict(struct template_run *r, const struct actual *raw)
{
    struct heap *h = &r->h;
    struct dict *d = jinja_dict_new(h);
    if (raw->n > 1) jinja_heap_fail(h, ERR_INVALID, "dict expected at most 1 argument");
    if (raw->n && raw->v[0].type == V_DICT) {
        const struct dict *from = raw->v[0].dict;
        for (int64_t i = 0; i < from->n; i++)
            jinja_dict_set(h, d, from->e[i].key, from->e[i].value);
    } else if (raw->n) {
        const struct pylist *pairs = jinja_value_items(h, raw->v[0]);
        for (int64_t i = 0; i < pairs->n; i++) {
            const struct pylist *pair = jinja_value_items(h, pairs->v[i]);
            if (pair->n != 2) jinja_heap_fail(h, ERR_INVALID, "dict() takes pairs");
            jinja_dict_set(h, d, pair->v[0], pair->v[1]);
        }
    }
    for (int64_t i = 0; i < raw->n_kw; i++) jinja_dict_set(h, d, raw->key[i], raw->kw[i]);
    return d;
}

FUNCTION(g_dict)
{
    return (struct pyvalue){.type = V_DICT, .dict = make_dict(r, raw)};
}

FUNCTION(g_namespace)
{
    struct dict *d = make_dict(r, raw);
    for (int64_t i = 0; i < d->n; i++)
        if (d->e[i].key.type == V_STR && d->e[i].key.s->n && d->e[i].key.s->p[0] == '_')
            jinja_heap_fail(&r->h, ERR_INVALID,
                            "a namespace takes no attribute that begins with _");
    return (struct pyvalue){.type = V_NAMESPACE, .dict = d};
}

FUNCTION(g_raise_exception)
{
    const struct str *s = jinja_value_to_str(&r->h, a[0]).s;
    r->h.raised = true;
    jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)(s->n < 500 ? s->n : 500), s->p);
}

FUNCTION(g_strftime_now)
{
    char format[256], text[1024];
    struct tm tm;
    const time_t now = (time_t)r->now_s;
    if (a[0].type != V_STR || a[0].s->n >= (int64_t)sizeof format)
        jinja_heap_fail(&r->h, ERR_INVALID, "strftime_now() takes a string of less than %zu bytes",
                        sizeof format);
    memcpy(format, a[0].s->p, (size_t)a[0].s->n);
    format[a[0].s->n] = 0;
    if (!gmtime_r(&now, &tm))
        jinja_heap_fail(&r->h, ERR_INVALID, "the time is beyond the calendar");
    const size_t n = strftime(text, sizeof text, format, &tm);
    return jinja_value_str(&r->h, text, (int64_t)n);
}

const struct native jinja_native_functions[] = {
    {"range", "/start /stop /step", 1, g_range},
    {"dict", "*", 0, g_dict},
    {"namespace", "*", 0, g_namespace},
    {"raise_exception", "message", 1, g_raise_exception},
    {"strftime_now", "format", 1, g_strftime_now},
    {NULL, NULL, 0, NULL},
};
