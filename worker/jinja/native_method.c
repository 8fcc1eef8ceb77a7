/* The methods that templates may call on strings, lists, dicts and loops. Their results are those
 * of Python. */
#include <stdlib.h>
#include <string.h>

#include "worker/jinja/run.h"
#include "worker/jinja/text_ops.h"

#define METHOD(name)                                                                               \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)

/* ---- str ------------------------------------------------------------------------------------ */

METHOD(s_strip)
{
    return jinja_text_strip(&r->h, of, a[0], STRIP_LEFT | STRIP_RIGHT);
}

METHOD(s_lstrip)
{
    return jinja_text_strip(&r->h, of, a[0], STRIP_LEFT);
}

METHOD(s_rstrip)
{
    return jinja_text_strip(&r->h, of, a[0], STRIP_RIGHT);
}

static int64_t most(struct template_run *r, struct pyvalue v)
{
    return v.type == V_MISSING ? -1 : jinja_run_int(r, v, "the number of splits");
}

METHOD(s_split)
{
    return jinja_value_of_list(jinja_text_split(&r->h, of, a[0], most(r, a[1])));
}

METHOD(s_rsplit)
{
    return jinja_value_of_list(jinja_text_rsplit(&r->h, of, a[0], most(r, a[1])));
}

METHOD(s_splitlines)
{
    return jinja_value_of_list(jinja_text_lines(&r->h, of, jinja_value_truth(&r->h, a[0])));
}

METHOD(s_upper)
{
    return jinja_text_case(&r->h, of, CASE_UPPER);
}

METHOD(s_lower)
{
    return jinja_text_case(&r->h, of, CASE_LOWER);
}

METHOD(s_title)
{
    return jinja_text_title(&r->h, of);
}

METHOD(s_capitalize)
{
    return jinja_text_capitalize(&r->h, of);
}

METHOD(s_replace)
{
    const struct pyvalue with = of.safe ? jinja_op_escape(r, a[1]) : a[1];
    return jinja_text_replace(&r->h, of, a[0], with,
                              a[2].type == V_MISSING ? -1 : jinja_run_int(r, a[2], "the count"));
}

METHOD(s_join)
{
    if (!of.safe) return jinja_text_join(&r->h, of, a[0], true);
    struct pylist *l = jinja_list_new(&r->h, 0);
    const struct pylist *in = jinja_value_items(&r->h, a[0]);
    for (int64_t i = 0; i < in->n; i++) jinja_list_add(&r->h, l, jinja_op_escape(r, in->v[i]));
    return jinja_text_join(&r->h, of, jinja_value_of_list(l), true);
}

static bool affix(struct pyvalue part, struct pyvalue what, bool end)
{
    if (what.s->n > part.s->n) return false;
    return !memcmp(part.s->p + (end ? part.s->n - what.s->n : 0), what.s->p, (size_t)what.s->n);
}

static struct pyvalue has_affix(struct template_run *r, struct pyvalue of, const struct pyvalue *a,
                                bool end)
{
    const struct pyvalue part = jinja_text_part(&r->h, of, a[1], a[2]);
    const struct pyvalue *w = a[0].type == V_TUPLE ? a[0].list->v : a;
    const int64_t n = a[0].type == V_TUPLE ? a[0].list->n : 1;
    for (int64_t i = 0; i < n; i++) {
        if (w[i].type != V_STR)
            jinja_heap_fail(&r->h, ERR_INVALID,
                            "%s first arg must be str or a tuple of str, not %s",
                            end ? "endswith" : "startswith", jinja_value_type_name(w[i]));
        if (part.type == V_STR && affix(part, w[i], end)) return jinja_value_bool(true);
    }
    return jinja_value_bool(false);
}

METHOD(s_startswith)
{
    return has_affix(r, of, a, false);
}

METHOD(s_endswith)
{
    return has_affix(r, of, a, true);
}

static struct pyvalue without_affix(struct template_run *r, struct pyvalue of, struct pyvalue what,
                                    bool end)
{
    if (what.type != V_STR) jinja_heap_fail(&r->h, ERR_INVALID, "an affix must be str");
    if (!affix(of, what, end)) return of;
    struct pyvalue v = jinja_value_view(&r->h, of.s->p + (end ? 0 : what.s->n),
                                        of.s->n - what.s->n);
    v.safe = of.safe;
    return v;
}

METHOD(s_removeprefix)
{
    return without_affix(r, of, a[0], false);
}

METHOD(s_removesuffix)
{
    return without_affix(r, of, a[0], true);
}

METHOD(s_find)
{
    return jinja_value_int(jinja_text_find(&r->h, of, a[0], a[1], a[2], false));
}

METHOD(s_rfind)
{
    return jinja_value_int(jinja_text_find(&r->h, of, a[0], a[1], a[2], true));
}

static struct pyvalue found(struct template_run *r, struct pyvalue at)
{
    if (at.i < 0) jinja_heap_fail(&r->h, ERR_INVALID, "substring not found");
    return at;
}

METHOD(s_index)
{
    return found(r, s_find(r, of, a, raw));
}

METHOD(s_rindex)
{
    return found(r, s_rfind(r, of, a, raw));
}

METHOD(s_count)
{
    return jinja_value_int(jinja_text_count(&r->h, of, a[0]));
}

static struct pyvalue parted(struct template_run *r, struct pyvalue of, struct pyvalue by,
                             bool last)
{
    struct heap *h = &r->h;
    const struct pyvalue empty = jinja_value_text(h, "");
    if (by.type == V_NONE) jinja_heap_fail(h, ERR_INVALID, "must be str, not NoneType");
    const struct pylist *l = last ? jinja_text_rsplit(h, of, by, 1)
                                  : jinja_text_split(h, of, by, 1);
    if (l->n == 2) return jinja_value_tuple(h, (struct pyvalue[]){l->v[0], by, l->v[1]}, 3);
    return last ? jinja_value_tuple(h, (struct pyvalue[]){empty, empty, of}, 3)
                : jinja_value_tuple(h, (struct pyvalue[]){of, empty, empty}, 3);
}

METHOD(s_partition)
{
    return parted(r, of, a[0], false);
}

METHOD(s_rpartition)
{
    return parted(r, of, a[0], true);
}

static struct pyvalue padded(struct template_run *r, struct pyvalue of, const struct pyvalue *a,
                             bool left)
{
    struct text_sink s = {0};
    const struct pyvalue fill = a[1].type == V_MISSING ? jinja_value_text(&r->h, " ") : a[1];
    const int64_t n = jinja_run_int(r, a[0], "the width") - of.s->n_chars;
    if (fill.type != V_STR || fill.s->n_chars != 1)
        jinja_heap_fail(&r->h, ERR_INVALID,
                        "The fill character must be exactly one character long");
    if (!left) jinja_sink_str(&r->h, &s, of);
    for (int64_t i = 0; i < n; i++) jinja_sink_str(&r->h, &s, fill);
    if (left) jinja_sink_str(&r->h, &s, of);
    return jinja_sink_value(&r->h, &s);
}

METHOD(s_ljust)
{
    return padded(r, of, a, false);
}

METHOD(s_rjust)
{
    return padded(r, of, a, true);
}

METHOD(s_zfill)
{
    struct text_sink s = {0};
    const int64_t n = jinja_run_int(r, a[0], "the width") - of.s->n_chars;
    const bool sign = of.s->n && (of.s->p[0] == '-' || of.s->p[0] == '+');
    jinja_sink_add(&r->h, &s, of.s->p, sign);
    jinja_sink_fill(&r->h, &s, '0', n);
    jinja_sink_add(&r->h, &s, of.s->p + sign, of.s->n - sign);
    return jinja_sink_value(&r->h, &s);
}

static bool all(struct template_run *r, const struct str *s, bool (*is)(uint32_t))
{
    jinja_heap_spend_bytes(&r->h, s->n);
    for (int64_t i = 0; i < s->n; i += jinja_chars_size(s->p[i]))
        if (!is(jinja_chars_get(s->p + i))) return false;
    return s->n > 0;
}

static bool is_alnum(uint32_t c)
{
    return jinja_chars_alpha(c) || jinja_chars_numeric(c);
}

#define ALL(name, is)                                                                              \
    METHOD(name)                                                                                   \
    {                                                                                              \
        return jinja_value_bool(all(r, of.s, is));                                                 \
    }
ALL(s_isalpha, jinja_chars_alpha)
ALL(s_isalnum, is_alnum)
ALL(s_isdigit, jinja_chars_digit)
ALL(s_isdecimal, jinja_chars_decimal)
ALL(s_isnumeric, jinja_chars_numeric)
ALL(s_isspace, jinja_chars_space)

static struct pyvalue by_test(struct template_run *r, struct pyvalue of, const char *test)
{
    return jinja_native_find_test(jinja_value_text(&r->h, test))->fn(r, of, NULL, NULL);
}

METHOD(s_isupper)
{
    return by_test(r, of, "upper");
}

METHOD(s_islower)
{
    return by_test(r, of, "lower");
}

/* ---- format --------------------------------------------------------------------------------- */

/* Returns the argument for a field such as "0", "name" or "". *next is the number of fields
 * without a name that were read so far. A field with an attribute ".a" or an item "[b]" is
 * refused. */
static struct pyvalue format_field(struct template_run *r, const char *p, const char *end,
                                   const struct actual *raw, int64_t *next)
{
    const char *q = p;
    while (q < end && *q != '.' && *q != '[') q++;
    const struct pyvalue name = jinja_value_str(&r->h, p, q - p);
    struct pyvalue v = {0};
    const bool number = q > p && strspn(name.s->p, "0123456789") == (size_t)(q - p);
    const int64_t at = q == p ? (*next)++ : number ? atoi(name.s->p) : -1;
    if (at >= 0 && at < raw->n) v = raw->v[at];
    for (int64_t i = 0; at < 0 && i < raw->n_kw; i++)
        if (jinja_value_eq(&r->h, raw->key[i], name)) v = raw->kw[i];
    if (v.type == V_MISSING) jinja_heap_fail(&r->h, ERR_INVALID, "format() has no such argument");
    if (q < end)
        jinja_heap_fail(&r->h, ERR_UNSUPPORTED, "attributes in a format string are not supported");
    return v;
}

METHOD(s_format)
{
    struct text_sink out = {0};
    int64_t next = 0;
    const char *p = of.s->p, *end = p + of.s->n;
    while (p < end) {
        if (p + 1 < end && p[0] == p[1] && (*p == '{' || *p == '}')) {
            jinja_sink_add(&r->h, &out, p, 1);
            p += 2;
        } else if (*p == '{') {
            const char *close = memchr(p, '}', (size_t)(end - p));
            if (!close) jinja_heap_fail(&r->h, ERR_INVALID, "expected '}' before end of string");
            if (memchr(p, ':', (size_t)(close - p)) || memchr(p, '!', (size_t)(close - p)))
                jinja_heap_fail(&r->h, ERR_UNSUPPORTED, "a format of a field is not supported");
            jinja_sink_str(&r->h, &out, format_field(r, p + 1, close, raw, &next));
            p = close + 1;
        } else if (*p == '}') {
            jinja_heap_fail(&r->h, ERR_INVALID, "Single '}' encountered in format string");
        } else {
            jinja_sink_add(&r->h, &out, p++, 1);
        }
    }
    return jinja_sink_value(&r->h, &out);
}

/* ---- list, tuple, dict, loop ---------------------------------------------------------------- */

METHOD(l_count)
{
    int64_t n = 0;
    jinja_heap_spend(&r->h, of.list->n);
    for (int64_t i = 0; i < of.list->n; i++) n += jinja_value_eq(&r->h, of.list->v[i], a[0]);
    return jinja_value_int(n);
}

METHOD(l_index)
{
    jinja_heap_spend(&r->h, of.list->n);
    for (int64_t i = 0; i < of.list->n; i++)
        if (jinja_value_eq(&r->h, of.list->v[i], a[0])) return jinja_value_int(i);
    jinja_heap_fail(&r->h, ERR_INVALID, "the value is not in the list");
}

METHOD(l_copy) /* the list itself can be returned as its copy, because no operation can change
                * a list */
{
    return of;
}

METHOD(d_get)
{
    const struct pyvalue *v = jinja_dict_get(&r->h, of.dict, a[0]);
    return v ? *v : a[1].type == V_MISSING ? jinja_value_none() : a[1];
}

static struct pyvalue view_of(struct pyvalue of, enum pyview view)
{
    of.type = V_VIEW;
    of.id = (uint16_t)view;
    return of;
}

METHOD(d_keys)
{
    return view_of(of, VIEW_KEYS);
}

METHOD(d_values)
{
    return view_of(of, VIEW_VALUES);
}

METHOD(d_items)
{
    return view_of(of, VIEW_ITEMS);
}

METHOD(o_cycle)
{
    const struct template_loop *l = of.p;
    if (!raw->n || raw->n_kw) jinja_heap_fail(&r->h, ERR_INVALID, "no items for cycling given");
    return raw->v[l->index0 % raw->n];
}

METHOD(o_changed)
{
    struct template_loop *l = of.p;
    const struct pyvalue now = jinja_value_tuple(&r->h, raw->v, raw->n);
    const bool changed = l->changed.type == V_MISSING || !jinja_value_eq(&r->h, l->changed, now);
    l->changed = now;
    return jinja_value_bool(changed);
}

const struct native jinja_native_methods_str[] = {
    {"strip", "/chars", 0, s_strip},
    {"lstrip", "/chars", 0, s_lstrip},
    {"rstrip", "/chars", 0, s_rstrip},
    {"split", "sep maxsplit", 0, s_split},
    {"rsplit", "sep maxsplit", 0, s_rsplit},
    {"splitlines", "keepends", 0, s_splitlines},
    {"upper", "", 0, s_upper},
    {"lower", "", 0, s_lower},
    {"title", "", 0, s_title},
    {"capitalize", "", 0, s_capitalize},
    {"replace", "/old /new /count", 2, s_replace},
    {"join", "/iterable", 1, s_join},
    {"startswith", "/prefix /start /end", 1, s_startswith},
    {"endswith", "/suffix /start /end", 1, s_endswith},
    {"removeprefix", "/prefix", 1, s_removeprefix},
    {"removesuffix", "/suffix", 1, s_removesuffix},
    {"find", "/sub /start /end", 1, s_find},
    {"rfind", "/sub /start /end", 1, s_rfind},
    {"index", "/sub /start /end", 1, s_index},
    {"rindex", "/sub /start /end", 1, s_rindex},
    {"count", "/sub", 1, s_count},
    {"partition", "/sep", 1, s_partition},
    {"rpartition", "/sep", 1, s_rpartition},
    {"ljust", "/width /fillchar", 1, s_ljust},
    {"rjust", "/width /fillchar", 1, s_rjust},
    {"zfill", "/width", 1, s_zfill},
    {"isalpha", "", 0, s_isalpha},
    {"isalnum", "", 0, s_isalnum},
    {"isdigit", "", 0, s_isdigit},
    {"isdecimal", "", 0, s_isdecimal},
    {"isnumeric", "", 0, s_isnumeric},
    {"isspace", "", 0, s_isspace},
    {"isupper", "", 0, s_isupper},
    {"islower", "", 0, s_islower},
    {"format", "*", 0, s_format},
    {NULL, NULL, 0, NULL},
};

const struct native jinja_native_methods_list[] = {
    {"count", "/value", 1, l_count},
    {"index", "/value", 1, l_index},
    {"copy", "", 0, l_copy},
    {NULL, NULL, 0, NULL},
};

const struct native jinja_native_methods_dict[] = {
    {"get", "/key /default", 1, d_get}, {"keys", "", 0, d_keys}, {"values", "", 0, d_values},
    {"items", "", 0, d_items},          {"copy", "", 0, l_copy}, {NULL, NULL, 0, NULL},
};

const struct native jinja_native_methods_loop[] = {
    {"cycle", "*", 0, o_cycle},
    {"changed", "*", 0, o_changed},
    {NULL, NULL, 0, NULL},
};
