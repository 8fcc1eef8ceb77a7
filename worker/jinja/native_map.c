/* Filters that call other filters or tests (map, select, reject and similar filters), and the
 * filter attr. The result of such a filter is computed immediately, but can be iterated only
 * once, like the generators of jinja2. */
#include <string.h>

#include "worker/jinja/native_key.h"
#include "worker/jinja/run.h"
#include "worker/jinja/text_ops.h"

#define FILTER(name)                                                                               \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)

static struct pyvalue part_of(struct heap *h, struct pyvalue part)
{
    int64_t i = 0;
    for (int64_t k = 0; k < part.s->n; k++) {
        if (part.s->p[k] < '0' || part.s->p[k] > '9' || part.s->n > 18) return part;
        i = i * 10 + part.s->p[k] - '0';
    }
    return part.s->n ? jinja_value_int(i) : part;
}

struct pyvalue jinja_key_get(struct template_run *r, struct pyvalue item, struct pyvalue attribute)
{
    struct heap *h = &r->h;
    if (attribute.type == V_MISSING || attribute.type == V_NONE) return item;
    if (attribute.type != V_STR) return jinja_item_get(r, item, attribute);
    const struct pylist *l = jinja_text_split(h, attribute, jinja_value_text(h, "."), -1);
    for (int64_t i = 0; i < l->n; i++) item = jinja_item_get(r, item, part_of(h, l->v[i]));
    return item;
}

static struct pyvalue named(const struct actual *raw, const char *name)
{
    for (int64_t i = 0; i < raw->n_kw; i++)
        if (jinja_value_is_text(raw->key[i], name)) return raw->kw[i];
    return (struct pyvalue){0};
}

static struct pyvalue map_attribute(struct template_run *r, struct pyvalue of,
                                    const struct actual *raw)
{
    struct heap *h = &r->h;
    const struct pyvalue attribute = named(raw, "attribute"), preset = named(raw, "default");
    const struct pylist *in = jinja_value_items(h, of);
    struct pylist *out = jinja_list_new(h, in->n);
    if (raw->n_kw > (preset.type == V_MISSING ? 1 : 2))
        jinja_heap_fail(h, ERR_INVALID, "map() got an unexpected keyword argument");
    for (int64_t i = 0; i < in->n; i++) {
        struct pyvalue v = jinja_key_get(r, in->v[i], attribute);
        jinja_heap_spend(h, 1);
        if (v.type == V_UNDEFINED && preset.type != V_MISSING && preset.type != V_NONE) v = preset;
        jinja_list_add(h, out, v);
    }
    return jinja_value_iter(h, out);
}

static const struct native *find_named(struct template_run *r, struct pyvalue name, bool test)
{
    const struct native *n = NULL;
    if (name.type == V_STR)
        n = test ? jinja_native_find_test(name) : jinja_native_find_filter(name);
    if (!n)
        jinja_heap_fail(&r->h, ERR_INVALID, "No %s named '%.*s'.", test ? "test" : "filter",
                        name.type == V_STR ? (int)name.s->n : 0,
                        name.type == V_STR ? name.s->p : "");
    return n;
}

static struct actual after(const struct actual *raw, int64_t n)
{
    struct actual rest = *raw;
    if (n) rest.v += n; /* if there are no arguments, v is NULL and must not be changed */
    rest.n -= n;
    return rest;
}

FILTER(f_map)
{
    if (!jinja_value_truth(&r->h, of)) return jinja_value_iter(&r->h, jinja_list_new(&r->h, 0));
    if (!raw->n && named(raw, "attribute").type != V_MISSING) return map_attribute(r, of, raw);
    if (!raw->n) jinja_heap_fail(&r->h, ERR_INVALID, "map requires a filter argument");
    const struct native *f = find_named(r, raw->v[0], false);
    const struct actual rest = after(raw, 1);
    const struct pylist *in = jinja_value_items(&r->h, of);
    struct pylist *out = jinja_list_new(&r->h, in->n);
    for (int64_t i = 0; i < in->n; i++)
        jinja_list_add(&r->h, out, jinja_native_call(r, f, in->v[i], &rest));
    return jinja_value_iter(&r->h, out);
}

/* Returns those items for which the result of the test is `wanted`. If the parameter `attr` is
 * true, the first argument names an attribute, and the test is applied to this attribute of
 * each item. */
static struct pyvalue choose(struct template_run *r, struct pyvalue of, const struct actual *raw,
                             bool wanted, bool attr)
{
    struct heap *h = &r->h;
    struct pylist *out = jinja_list_new(h, 0);
    if (!jinja_value_truth(h, of)) return jinja_value_iter(h, out);
    if (attr && !raw->n) jinja_heap_fail(h, ERR_INVALID, "Missing parameter for attribute name");
    const struct native *test = raw->n > attr ? find_named(r, raw->v[attr], true) : NULL;
    const struct actual rest = after(raw, test ? 1 + attr : 0);
    const struct pylist *in = jinja_value_items(h, of);
    for (int64_t i = 0; i < in->n; i++) {
        struct pyvalue v = attr ? jinja_key_get(r, in->v[i], raw->v[0]) : in->v[i];
        jinja_heap_spend(h, 1);
        if (test) v = jinja_native_call(r, test, v, &rest);
        if (jinja_value_truth(h, v) == wanted) jinja_list_add(h, out, in->v[i]);
    }
    return jinja_value_iter(h, out);
}

FILTER(f_select)
{
    return choose(r, of, raw, true, false);
}

FILTER(f_reject)
{
    return choose(r, of, raw, false, false);
}

FILTER(f_selectattr)
{
    return choose(r, of, raw, true, true);
}

FILTER(f_rejectattr)
{
    return choose(r, of, raw, false, true);
}

FILTER(f_attr)
{
    if (a[0].type != V_STR) jinja_heap_fail(&r->h, ERR_INVALID, "attr() takes a string");
    if (of.type == V_DICT && !jinja_native_find(jinja_native_methods_dict, a[0]))
        return jinja_value_undefined(&r->h, "'dict object' has no attribute '%.*s'", (int)a[0].s->n,
                                     a[0].s->p);
    return jinja_attr_get(r, of, a[0]);
}

const struct native jinja_native_filters_map[] = {
    {"map", "*", 0, f_map},
    {"select", "*", 0, f_select},
    {"reject", "*", 0, f_reject},
    {"selectattr", "*", 0, f_selectattr},
    {"rejectattr", "*", 0, f_rejectattr},
    {"attr", "name", 1, f_attr},
    {NULL, NULL, 0, NULL},
};
