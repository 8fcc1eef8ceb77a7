/* Filters for sequences (sort, unique, batch and others) and filters for any value (length,
 * default and others). */
#include <stdlib.h>
#include <string.h>

#include "worker/jinja/native_key.h"
#include "worker/jinja/run.h"
#include "worker/jinja/text_ops.h"

#define FILTER(name)                                                                               \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)

FILTER(f_length)
{
    if (of.type == V_LOOP) return jinja_value_int(jinja_loop_length(r, of.p));
    return jinja_value_int(jinja_value_len(&r->h, of));
}

FILTER(f_default)
{
    const struct pyvalue preset = a[0].type == V_MISSING ? jinja_value_text(&r->h, "") : a[0];
    if (of.type == V_UNDEFINED) return preset;
    return jinja_value_truth(&r->h, a[1]) && !jinja_value_truth(&r->h, of) ? preset : of;
}

FILTER(f_first)
{
    struct cursor c;
    struct pyvalue v;
    jinja_cursor_init(&r->h, &c, of);
    return jinja_cursor_next(&r->h, &c, &v)
               ? v
               : jinja_value_undefined(&r->h, "No first item, sequence was empty.");
}

/* Returns the items of a value that can be reversed. Python's reversed() accepts sequences and
 * dicts, but neither generators nor undefined values. */
static struct pylist *reversible(struct template_run *r, struct pyvalue of)
{
    if (of.type == V_ITER || of.type == V_UNDEFINED || !jinja_value_iterable(of))
        jinja_heap_fail(&r->h, ERR_INVALID, "'%s' object is not reversible",
                        jinja_value_type_name(of));
    return jinja_value_items(&r->h, of);
}

FILTER(f_last)
{
    const struct pylist *l = reversible(r, of);
    return l->n ? l->v[l->n - 1]
                : jinja_value_undefined(&r->h, "No last item, sequence was empty.");
}

static struct pylist *copy(struct template_run *r, const struct pylist *from)
{
    struct pylist *l = jinja_list_new(&r->h, from->n);
    jinja_heap_spend(&r->h, from->n >> 4);
    for (int64_t i = 0; i < from->n; i++) jinja_list_add(&r->h, l, from->v[i]);
    return l;
}

FILTER(f_list)
{
    return jinja_value_of_list(copy(r, jinja_value_items(&r->h, of)));
}

FILTER(f_reverse)
{
    struct heap *h = &r->h;
    const struct pylist *l = jinja_value_items(h, of);
    struct pylist *out = jinja_list_new(h, l->n);
    jinja_heap_spend(h, l->n >> 4);
    for (int64_t i = l->n; i-- > 0;) jinja_list_add(h, out, l->v[i]);
    if (of.type != V_STR)
        return of.type == V_ITER || of.type == V_UNDEFINED ? jinja_value_of_list(out)
                                                           : jinja_value_iter(h, out);
    struct pyvalue v = jinja_text_join(h, jinja_value_text(h, ""), jinja_value_of_list(out), false);
    v.safe = of.safe;
    return v;
}

FILTER(f_join)
{
    struct heap *h = &r->h;
    const struct pyvalue by = a[0].type == V_MISSING ? jinja_value_text(h, "")
                                                     : jinja_value_to_str(h, a[0]);
    if (a[1].type != V_MISSING && a[1].type != V_NONE) {
        struct pylist *l = jinja_list_new(h, 0);
        const struct pylist *in = jinja_value_items(h, of);
        for (int64_t i = 0; i < in->n; i++) jinja_list_add(h, l, jinja_key_get(r, in->v[i], a[1]));
        of = jinja_value_of_list(l);
    }
    return jinja_text_join(h, by, of, false);
}

FILTER(f_items)
{
    if (of.type == V_UNDEFINED) return jinja_value_iter(&r->h, jinja_list_new(&r->h, 0));
    if (of.type != V_DICT)
        jinja_heap_fail(&r->h, ERR_INVALID, "Can only get item pairs from a mapping.");
    of.type = V_VIEW;
    of.id = VIEW_ITEMS;
    return jinja_value_iter(&r->h, jinja_value_items(&r->h, of));
}

FILTER(f_batch)
{
    struct heap *h = &r->h;
    const int64_t size = jinja_run_int(r, a[0], "the size of a batch");
    const struct pylist *in = jinja_value_items(h, of);
    struct pylist *out = jinja_list_new(h, 0), *now = jinja_list_new(h, 0);
    for (int64_t i = 0; i < in->n; i++) {
        jinja_heap_spend(h, 1);
        if (now->n == size) {
            jinja_list_add(h, out, jinja_value_of_list(now));
            now = jinja_list_new(h, 0);
        }
        jinja_list_add(h, now, in->v[i]);
    }
    const bool fill = now->n && a[1].type != V_MISSING && a[1].type != V_NONE;
    for (; fill && now->n < size; jinja_heap_spend(h, 1)) jinja_list_add(h, now, a[1]);
    if (now->n) jinja_list_add(h, out, jinja_value_of_list(now));
    return jinja_value_iter(h, out);
}

/* ---- order ---------------------------------------------------------------------------------- */

struct seq_pair {
    struct pyvalue key, item;
};

static bool before(struct template_run *r, const struct seq_pair *a, const struct seq_pair *b,
                   bool reverse)
{
    return reverse ? jinja_value_order(&r->h, b->key, a->key, ORDER_LT)
                   : jinja_value_order(&r->h, a->key, b->key, ORDER_LT);
}

/* Sorts as Python does. Items with equal keys remain in their order, even if `reverse` is true. */
static void merge_sort(struct template_run *r, struct seq_pair *p, struct seq_pair *room, int64_t n,
                       bool reverse)
{
    if (n < 2) return;
    const int64_t half = n / 2;
    merge_sort(r, p, room, half, reverse);
    merge_sort(r, p + half, room, n - half, reverse);
    memcpy(room, p, (size_t)half * sizeof *p);
    for (int64_t i = 0, j = half, k = 0; i < half; k++)
        p[k] = j < n && before(r, &p[j], &room[i], reverse) ? p[j++] : room[i++];
}

static struct pyvalue sorted(struct template_run *r, struct seq_pair *p, int64_t n, bool reverse)
{
    struct pylist *out = jinja_list_new(&r->h, n);
    merge_sort(r, p, jinja_heap_alloc(&r->h, (n + 1) * (int64_t)sizeof *p), n, reverse);
    for (int64_t i = 0; i < n; i++) jinja_list_add(&r->h, out, p[i].item);
    return jinja_value_of_list(out);
}

static struct pyvalue fold_case(struct template_run *r, struct pyvalue v, bool sensitive)
{
    return v.type == V_STR && !sensitive ? jinja_text_case(&r->h, v, CASE_LOWER) : v;
}

/* Returns the key of jinja2's sort. It is a list with the value of each attribute that a text such
 * as "a,b" names. */
static struct pyvalue sort_key(struct template_run *r, struct pyvalue item,
                               struct pyvalue attribute, bool sensitive)
{
    struct heap *h = &r->h;
    struct pylist *l = jinja_list_new(h, 1);
    if (attribute.type != V_STR) {
        const struct pyvalue v = attribute.type == V_INT ? jinja_key_get(r, item, attribute) : item;
        jinja_list_add(h, l, fold_case(r, v, sensitive));
        return jinja_value_of_list(l);
    }
    const struct pylist *parts = jinja_text_split(h, attribute, jinja_value_text(h, ","), -1);
    for (int64_t i = 0; i < parts->n; i++)
        jinja_list_add(h, l, fold_case(r, jinja_key_get(r, item, parts->v[i]), sensitive));
    return jinja_value_of_list(l);
}

FILTER(f_sort)
{
    const struct pylist *in = jinja_value_items(&r->h, of);
    struct seq_pair *p = jinja_heap_alloc(&r->h, (in->n + 1) * (int64_t)sizeof *p);
    for (int64_t i = 0; i < in->n; i++)
        p[i] = (struct seq_pair){sort_key(r, in->v[i], a[2], jinja_value_truth(&r->h, a[1])),
                                 in->v[i]};
    return sorted(r, p, in->n, jinja_value_truth(&r->h, a[0]));
}

FILTER(f_dictsort)
{
    struct heap *h = &r->h;
    const bool by_value = jinja_value_is_text(a[1], "value"),
               sensitive = jinja_value_truth(h, a[0]);
    if (a[1].type != V_MISSING && !by_value && !jinja_value_is_text(a[1], "key"))
        jinja_heap_fail(h, ERR_INVALID, "You can only sort by either \"key\" or \"value\"");
    if (of.type != V_DICT)
        jinja_heap_fail(h, ERR_INVALID, "dictsort of a %s", jinja_value_type_name(of));
    struct seq_pair *p = jinja_heap_alloc(h, (of.dict->n + 1) * (int64_t)sizeof *p);
    for (int64_t i = 0; i < of.dict->n; i++) {
        const struct pyvalue kv[2] = {of.dict->e[i].key, of.dict->e[i].value};
        p[i] = (struct seq_pair){fold_case(r, kv[by_value], sensitive),
                                 jinja_value_tuple(h, kv, 2)};
    }
    return sorted(r, p, of.dict->n, jinja_value_truth(h, a[2]));
}

FILTER(f_unique)
{
    struct heap *h = &r->h;
    const struct pylist *in = jinja_value_items(h, of);
    struct pylist *out = jinja_list_new(h, 0);
    struct dict *seen = jinja_dict_new(h);
    for (int64_t i = 0; i < in->n; i++) {
        const struct pyvalue key = fold_case(r, jinja_key_get(r, in->v[i], a[1]),
                                             jinja_value_truth(h, a[0]));
        jinja_heap_spend(h, 1);
        if (jinja_dict_get(h, seen, key)) continue;
        jinja_dict_set(h, seen, key, jinja_value_none());
        jinja_list_add(h, out, in->v[i]);
    }
    return jinja_value_iter(h, out);
}

static struct pyvalue extreme(struct template_run *r, struct pyvalue of, const struct pyvalue *a,
                              enum pyorder op)
{
    const struct pylist *in = jinja_value_items(&r->h, of);
    const bool sensitive = jinja_value_truth(&r->h, a[0]);
    struct pyvalue best = {0}, best_key = {0};
    for (int64_t i = 0; i < in->n; i++) {
        const struct pyvalue key = fold_case(r, jinja_key_get(r, in->v[i], a[1]), sensitive);
        if (i && !jinja_value_order(&r->h, key, best_key, op)) continue;
        best = in->v[i];
        best_key = key;
    }
    return in->n ? best : jinja_value_undefined(&r->h, "No aggregated item, sequence was empty.");
}

FILTER(f_min)
{
    return extreme(r, of, a, ORDER_LT);
}

FILTER(f_max)
{
    return extreme(r, of, a, ORDER_GT);
}

FILTER(f_sum)
{
    struct pyvalue sum = a[1].type == V_MISSING ? jinja_value_int(0) : a[1];
    const struct pylist *in = jinja_value_items(&r->h, of);
    if (sum.type == V_STR) jinja_heap_fail(&r->h, ERR_INVALID, "sum() can't sum strings");
    for (int64_t i = 0; i < in->n; i++)
        sum = jinja_op_binary(r, '+' << 8, sum, jinja_key_get(r, in->v[i], a[0]));
    return sum;
}

const struct native jinja_native_filters_seq[] = {
    {"length", "", 0, f_length},
    {"count", "", 0, f_length},
    {"default", "default_value boolean", 0, f_default},
    {"d", "default_value boolean", 0, f_default},
    {"first", "", 0, f_first},
    {"last", "", 0, f_last},
    {"list", "", 0, f_list},
    {"reverse", "", 0, f_reverse},
    {"join", "d attribute", 0, f_join},
    {"items", "", 0, f_items},
    {"batch", "linecount fill_with", 1, f_batch},
    {"sort", "reverse case_sensitive attribute", 0, f_sort},
    {"dictsort", "case_sensitive by reverse", 0, f_dictsort},
    {"unique", "case_sensitive attribute", 0, f_unique},
    {"min", "case_sensitive attribute", 0, f_min},
    {"max", "case_sensitive attribute", 0, f_max},
    {"sum", "attribute start", 0, f_sum},
    {NULL, NULL, 0, NULL},
};
