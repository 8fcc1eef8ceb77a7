/* Looks functions up by name, refuses names that jinja2 or Python has but that are not
 * implemented here, and binds arguments to parameters. */
#include "worker/jinja/native.h"

#include <string.h>
#include "worker/jinja/run.h"

/* Names that jinja2 or Python has, but for which the tables of this folder have no row. These
 * names are refused as unsupported. */
static const char *const other_filters[] = {
    "filesizeformat", "forceescape", "format", "groupby",  "pprint",  "random", "slice",
    "striptags",      "urlencode",   "urlize", "wordwrap", "xmlattr", NULL};
static const char *const other_tests[] = {"filter", "test", "escaped", NULL};
static const char *const other_methods[] = {
    "encode",    "expandtabs", "format_map", "isascii",    "isidentifier", "isprintable",
    "maketrans", "swapcase",   "translate",  "fromkeys",   "unescape",     "striptags",
    "istitle",   "bit_length", "to_bytes",   "is_integer", "hex",          "as_integer_ratio",
    "conjugate", "strftime",   NULL};
static const char *const other_functions[] = {"lipsum", "cycler", "joiner", NULL};

const struct native *jinja_native_find(const struct native *table, struct pyvalue name)
{
    for (; table->name; table++)
        if (jinja_value_is_text(name, table->name)) return table;
    return NULL;
}

static bool listed(const char *const *list, struct pyvalue name)
{
    for (; *list; list++)
        if (jinja_value_is_text(name, *list)) return true;
    return false;
}

const struct native *jinja_native_find_filter(struct pyvalue name)
{
    const struct native *const table[] = {jinja_native_filters_text, jinja_native_filters_seq,
                                          jinja_native_filters_map};
    const struct native *n = NULL;
    for (int i = 0; i < 3 && !n; i++) n = jinja_native_find(table[i], name);
    return n;
}

const struct native *jinja_native_find_test(struct pyvalue name)
{
    return jinja_native_find(jinja_native_tests, name);
}

static void refuse(struct heap *h, const char *what, struct pyvalue name, const char *const *known,
                   bool soft)
{
    const int n = name.s->n < 64 ? (int)name.s->n : 64;
    if (listed(known, name))
        jinja_heap_fail(h, ERR_UNSUPPORTED, "the %s '%.*s' is not supported", what, n, name.s->p);
    if (!soft) jinja_heap_fail(h, ERR_INVALID, "No %s named '%.*s'.", what, n, name.s->p);
}

const struct native *jinja_native_filter(struct heap *h, struct pyvalue name, bool soft)
{
    const struct native *n = jinja_native_find_filter(name);
    if (!n) refuse(h, "filter", name, other_filters, soft);
    return n;
}

const struct native *jinja_native_test(struct heap *h, struct pyvalue name, bool soft)
{
    const struct native *n = jinja_native_find_test(name);
    if (!n) refuse(h, "test", name, other_tests, soft);
    return n;
}

void jinja_native_check_method(struct heap *h, struct pyvalue name)
{
    refuse(h, "method", name, other_methods, true);
}

void jinja_native_check_function(struct heap *h, struct pyvalue name)
{
    refuse(h, "function", name, other_functions, true);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Returns the index of the parameter with this name. Returns -1 if no parameter has this name,
 * or if the parameter may not be passed by name. */
static int place_of(const char *params, struct pyvalue name)
{
    for (int i = 0; *params; i++) {
        const size_t n = strcspn(params, " ");
        if (*params != '/' && (int64_t)n == name.s->n && !memcmp(params, name.s->p, n)) return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static int count_of(const char *params)
{
    int n = *params != 0;
    for (; *params; params++) n += *params == ' ';
    return n;
}

static void bind(struct template_run *r, const struct native *native, const struct actual *raw,
                 struct pyvalue *a)
{
    if (raw->n > count_of(native->params))
        jinja_heap_fail(&r->h, ERR_INVALID, "%s() takes at most %d arguments, not %lld",
                        native->name, count_of(native->params), (long long)raw->n);
    for (int64_t i = 0; i < raw->n; i++) a[i] = raw->v[i];
    for (int64_t i = 0; i < raw->n_kw; i++) {
        const int at = place_of(native->params, raw->key[i]);
        if (at < 0 || a[at].type != V_MISSING)
            jinja_heap_fail(&r->h, ERR_INVALID, "%s() got an unexpected keyword argument '%.*s'",
                            native->name, (int)raw->key[i].s->n, raw->key[i].s->p);
        a[at] = raw->kw[i];
    }
    for (int i = 0; i < native->n_required; i++)
        if (a[i].type == V_MISSING)
            jinja_heap_fail(&r->h, ERR_INVALID, "%s() is missing a required argument",
                            native->name);
}

struct pyvalue jinja_native_call(struct template_run *r, const struct native *native,
                                 struct pyvalue of, const struct actual *raw)
{
    struct pyvalue a[NATIVE_PARAMS] = {{0}};
    jinja_heap_spend(&r->h, 1);
    if (native->params[0] != '*') bind(r, native, raw, a);
    return native->fn(r, of, a, raw);
}
