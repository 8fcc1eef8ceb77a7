/* Values: strings, lists, dicts as open hash tables in order of insertion; truth, equality, order
 * and iteration. */
#include "worker/jinja/value.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "worker/jinja/chars.h"

enum { FEW = 8 }; /* entries of a dict that are searched one by one */

double value_as_double(struct pyvalue v)
{
    return v.type == V_FLOAT ? v.d : (double)value_as_int(v);
}

struct pyvalue value_view(struct heap *h, const char *p, int64_t n)
{
    struct str *s = heap_alloc(h, sizeof *s);
    *s = (struct str){p, n, chars_count(p, n)};
    return (struct pyvalue){.type = V_STR, .s = s};
}

struct pyvalue value_str(struct heap *h, const char *p, int64_t n)
{
    heap_spend_bytes(h, n);
    return value_view(h, heap_grow(h, p, n, n + 1), n);
}

struct pyvalue value_text(struct heap *h, const char *z)
{
    return value_view(h, z, (int64_t)strlen(z));
}

bool value_is_text(struct pyvalue v, const char *z)
{
    const int64_t n = (int64_t)strlen(z);
    return v.type == V_STR && v.s->n == n && !memcmp(v.s->p, z, (size_t)n);
}

struct pyvalue value_undefined(struct heap *h, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct pyvalue v = value_str(h, text, (int64_t)strlen(text));
    v.type = V_UNDEFINED;
    return v;
}

struct pylist *list_new(struct heap *h, int64_t room)
{
    struct pylist *l = heap_alloc(h, sizeof *l);
    l->room = room;
    l->v = room ? heap_alloc(h, room * (int64_t)sizeof *l->v) : NULL;
    return l;
}

void list_add(struct heap *h, struct pylist *l, struct pyvalue v)
{
    const int64_t size = sizeof v;
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 4;
        l->v = heap_grow(h, l->v, l->n * size, l->room * size);
    }
    l->v[l->n++] = v;
}

struct pyvalue value_tuple(struct heap *h, const struct pyvalue *v, int64_t n)
{
    struct pylist *l = list_new(h, n);
    for (int64_t i = 0; i < n; i++) list_add(h, l, v[i]);
    return (struct pyvalue){.type = V_TUPLE, .list = l};
}

/* ---- dicts ---------------------------------------------------------------------------------- */

bool value_hashable(struct pyvalue v)
{
    if (v.type == V_TUPLE)
        for (int64_t i = 0; i < v.list->n; i++)
            if (!value_hashable(v.list->v[i])) return false;
    return v.type != V_LIST && v.type != V_DICT && v.type != V_VIEW;
}

static uint64_t hash_bytes(const char *p, int64_t n)
{
    uint64_t x = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) x = (x ^ (unsigned char)p[i]) * 0x100000001b3u;
    return x;
}

/* Hashes a value: 1, 1.0 and true are one key. */
static uint64_t hash_of(struct pyvalue v)
{
    if (v.type == V_STR) return hash_bytes(v.s->p, v.s->n);
    if (v.type == V_TUPLE) {
        uint64_t x = 7;
        for (int64_t i = 0; i < v.list->n; i++) x = x * 31 + hash_of(v.list->v[i]);
        return x;
    }
    double d = value_is_number(v) ? value_as_double(v) : 0;
    if (d == 0) d = 0; /* -0.0 */
    return hash_bytes((const char *)&d, sizeof d);
}

static int64_t *probe(struct heap *h, const struct dict *d, struct pyvalue key, int64_t *slot)
{
    const uint64_t mask = (uint64_t)d->n_slots - 1;
    for (uint64_t at = hash_of(key) & mask;; at = (at + 1) & mask) {
        const int64_t i = (int64_t)d->slot[at] - 1;
        if (i < 0 || value_eq(h, d->e[i].key, key)) {
            *slot = (int64_t)at;
            return slot;
        }
    }
}

static struct entry *find(struct heap *h, const struct dict *d, struct pyvalue key)
{
    int64_t at;
    if (d->slot) {
        const int64_t i = (int64_t)d->slot[*probe(h, d, key, &at)] - 1;
        return i < 0 ? NULL : &d->e[i];
    }
    for (int64_t i = 0; i < d->n; i++)
        if (value_eq(h, d->e[i].key, key)) return &d->e[i];
    return NULL;
}

static void rehash(struct heap *h, struct dict *d)
{
    int64_t at;
    d->n_slots = 4 * d->room;
    d->slot = heap_alloc(h, d->n_slots * (int64_t)sizeof *d->slot);
    for (int64_t i = 0; i < d->n; i++) d->slot[*probe(h, d, d->e[i].key, &at)] = (int32_t)i + 1;
}

struct dict *dict_new(struct heap *h)
{
    return heap_alloc(h, sizeof(struct dict));
}

static void check_key(struct heap *h, struct pyvalue key)
{
    if (!value_hashable(key))
        heap_fail(h, ERR_INVALID, "unhashable type: '%s'", value_type_name(key));
}

struct pyvalue *dict_get(struct heap *h, const struct dict *d, struct pyvalue key)
{
    check_key(h, key);
    struct entry *e = find(h, d, key);
    return e ? &e->value : NULL;
}

struct pyvalue *dict_get_text(struct heap *h, const struct dict *d, const char *z)
{
    return dict_get(h, d, value_text(h, z));
}

void dict_set(struct heap *h, struct dict *d, struct pyvalue key, struct pyvalue v)
{
    struct pyvalue *old = dict_get(h, d, key);
    if (old) {
        *old = v;
        return;
    }
    const int64_t size = sizeof *d->e;
    if (d->n == d->room) {
        d->room = d->room ? 2 * d->room : 4;
        d->e = heap_grow(h, d->e, d->n * size, d->room * size);
        if (d->room > FEW) rehash(h, d);
    }
    d->e[d->n++] = (struct entry){key, v};
    int64_t at;
    if (d->slot) d->slot[*probe(h, d, key, &at)] = (int32_t)d->n;
}

/* ---- truth, equality, order ----------------------------------------------------------------- */

bool value_has_len(struct pyvalue v)
{
    switch (v.type) {
    case V_UNDEFINED:
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_RANGE:
    case V_VIEW: return true;
    default: return false;
    }
}

int64_t value_len(struct heap *h, struct pyvalue v)
{
    switch (v.type) {
    case V_UNDEFINED: return 0;
    case V_STR: return v.s->n_chars;
    case V_LIST:
    case V_TUPLE: return v.list->n;
    case V_DICT:
    case V_VIEW: return v.dict->n;
    case V_RANGE: return v.range->n;
    default: heap_fail(h, ERR_INVALID, "object of type '%s' has no len()", value_type_name(v));
    }
}

bool value_truth(struct heap *h, struct pyvalue v)
{
    switch (v.type) {
    case V_MISSING:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.d != 0;
    default: return !value_has_len(v) || value_len(h, v) > 0;
    }
}

static int cmp_numbers(struct pyvalue a, struct pyvalue b) /* 2: one is NaN */
{
    if (value_is_int(a) && value_is_int(b)) {
        const int64_t x = value_as_int(a), y = value_as_int(b);
        return (x > y) - (x < y);
    }
    /* 64 bits and a double both fit exactly. */
    const long double x = a.type == V_FLOAT ? (long double)a.d : (long double)value_as_int(a);
    const long double y = b.type == V_FLOAT ? (long double)b.d : (long double)value_as_int(b);
    return x != x || y != y ? 2 : (x > y) - (x < y);
}

static int cmp_str(const struct str *a, const struct str *b)
{
    const int c = memcmp(a->p, b->p, (size_t)(a->n < b->n ? a->n : b->n));
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static bool eq_seq(struct heap *h, const struct pylist *a, const struct pylist *b)
{
    if (a->n != b->n) return false;
    bool same = true;
    heap_enter(h);
    for (int64_t i = 0; same && i < a->n; i++) same = value_eq(h, a->v[i], b->v[i]);
    heap_leave(h);
    return same;
}

static bool eq_dict(struct heap *h, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n) return false;
    bool same = true;
    heap_enter(h);
    for (int64_t i = 0; same && i < a->n; i++) {
        const struct pyvalue *v = dict_get(h, b, a->e[i].key);
        same = v && value_eq(h, a->e[i].value, *v);
    }
    heap_leave(h);
    return same;
}

bool value_eq(struct heap *h, struct pyvalue a, struct pyvalue b)
{
    if (value_is_number(a) && value_is_number(b)) return cmp_numbers(a, b) == 0;
    if (a.type != b.type) return false;
    switch (a.type) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STR: heap_spend(h, a.s->n >> HEAP_STEP_LOG); return !cmp_str(a.s, b.s);
    case V_LIST:
    case V_TUPLE: heap_spend(h, 1); return a.list == b.list || eq_seq(h, a.list, b.list);
    case V_DICT: heap_spend(h, 1); return a.dict == b.dict || eq_dict(h, a.dict, b.dict);
    case V_RANGE:
        return a.range->n == b.range->n &&
               (!a.range->n || (a.range->start == b.range->start &&
                                (a.range->n == 1 || a.range->step == b.range->step)));
    default: return a.p == b.p && a.id == b.id;
    }
}

static bool order_of(int c, enum pyorder op)
{
    switch (op) {
    case ORDER_LT: return c < 0;
    case ORDER_LE: return c <= 0;
    case ORDER_GT: return c > 0;
    default: return c >= 0;
    }
}

static bool order_seq(struct heap *h, const struct pylist *a, const struct pylist *b,
                      enum pyorder op)
{
    int64_t i = 0;
    heap_enter(h);
    while (i < a->n && i < b->n && value_eq(h, a->v[i], b->v[i])) i++;
    const bool yes = i < a->n && i < b->n ? value_order(h, a->v[i], b->v[i], op)
                                          : order_of((a->n > b->n) - (a->n < b->n), op);
    heap_leave(h);
    return yes;
}

bool value_order(struct heap *h, struct pyvalue a, struct pyvalue b, enum pyorder op)
{
    static const char *const sign[] = {"<", "<=", ">", ">="};
    heap_spend(h, 1);
    if (value_is_number(a) && value_is_number(b)) {
        const int c = cmp_numbers(a, b);
        return c != 2 && order_of(c, op);
    }
    if (a.type == V_STR && b.type == V_STR) return order_of(cmp_str(a.s, b.s), op);
    if (a.type == b.type && value_is_seq(a)) return order_seq(h, a.list, b.list, op);
    heap_fail(h, ERR_INVALID, "'%s' not supported between instances of '%s' and '%s'", sign[op],
              value_type_name(a), value_type_name(b));
}

bool value_in(struct heap *h, struct pyvalue item, struct pyvalue of)
{
    if (of.type == V_STR) {
        if (item.type != V_STR)
            heap_fail(h, ERR_INVALID, "'in <string>' requires string as left operand, not %s",
                      value_type_name(item));
        heap_spend_bytes(h, of.s->n);
        return memmem(of.s->p, (size_t)of.s->n, item.s->p, (size_t)item.s->n) != NULL;
    }
    if (of.type == V_DICT) return dict_get(h, of.dict, item) != NULL;
    if (!value_iterable(of))
        heap_fail(h, ERR_INVALID, "argument of type '%s' is not iterable", value_type_name(of));
    struct cursor c;
    struct pyvalue v;
    for (cursor_init(h, &c, of); cursor_next(h, &c, &v);) {
        heap_spend(h, 1);
        if (value_eq(h, v, item)) return true;
    }
    return false;
}

/* ---- iteration ------------------------------------------------------------------------------ */

bool value_iterable(struct pyvalue v)
{
    return value_has_len(v) || v.type == V_ITER;
}

struct pyvalue range_at(const struct pyrange *r, int64_t i)
{
    return value_int(r->start + i * r->step);
}

static struct pylist *chars_of(struct heap *h, const struct str *s)
{
    struct pylist *l = list_new(h, s->n_chars);
    heap_spend(h, s->n_chars >> 4);
    for (int64_t i = 0, n; i < s->n; i += n) {
        n = chars_size(s->p[i]);
        list_add(h, l, value_view(h, s->p + i, n));
    }
    return l;
}

static struct pylist *view_of(struct heap *h, const struct dict *d, enum pyview view)
{
    struct pylist *l = list_new(h, d->n);
    for (int64_t i = 0; i < d->n; i++) {
        const struct pyvalue pair[2] = {d->e[i].key, d->e[i].value};
        list_add(h, l,
                 view == VIEW_ITEMS    ? value_tuple(h, pair, 2)
                 : view == VIEW_VALUES ? pair[1]
                                       : pair[0]);
    }
    return l;
}

/* Begins to walk v. A loop itself is not walked here, but where it is used. */
void cursor_init(struct heap *h, struct cursor *c, struct pyvalue v)
{
    *c = (struct cursor){.of = v};
    switch (v.type) {
    case V_LIST:
    case V_TUPLE:
        c->items = v.list;
        c->items->read = true;
        break;
    case V_STR: c->items = chars_of(h, v.s); break;
    case V_DICT: c->items = view_of(h, v.dict, VIEW_KEYS); break;
    case V_VIEW: c->items = view_of(h, v.dict, (enum pyview)v.id); break;
    case V_RANGE: c->n = v.range->n; return;
    case V_UNDEFINED: return;
    case V_ITER: return;
    default: heap_fail(h, ERR_INVALID, "'%s' object is not iterable", value_type_name(v));
    }
    c->n = c->items->n;
}

bool cursor_next(struct heap *h, struct cursor *c, struct pyvalue *out)
{
    if (c->of.type == V_ITER) return cursor_next(h, c->of.iter, out);
    if (c->i >= c->n) return false;
    *out = c->items ? c->items->v[c->i] : range_at(c->of.range, c->i);
    c->i++;
    return true;
}

struct pylist *value_items(struct heap *h, struct pyvalue v)
{
    struct cursor c;
    struct pyvalue item;
    cursor_init(h, &c, v);
    if (c.items) return c.items;
    struct pylist *l = list_new(h, c.n);
    while (cursor_next(h, &c, &item)) list_add(h, l, item);
    return l;
}

struct pyvalue value_iter(struct heap *h, struct pylist *l)
{
    struct cursor *c = heap_alloc(h, sizeof *c);
    cursor_init(h, c, value_of_list(l));
    return (struct pyvalue){.type = V_ITER, .iter = c};
}

const char *value_type_name(struct pyvalue v)
{
    static const char *const view[] = {"dict_keys", "dict_values", "dict_items"};
    static const char *const name[] = {
        [V_MISSING] = "Undefined",
        [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_STR] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_DICT] = "dict",
        [V_RANGE] = "range",
        [V_ITER] = "generator",
        [V_NAMESPACE] = "Namespace",
        [V_LOOP] = "LoopContext",
        [V_MACRO] = "Macro",
        [V_BOUND] = "method",
        [V_FUNCTION] = "function",
    };
    return v.type == V_VIEW ? view[v.id] : name[v.type];
}
