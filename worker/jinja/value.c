/* Strings, lists and dicts, and the truth, equality, order and iteration of values. A dict is an
 * open hash table, with its entries in the order of insertion. */
#include "worker/jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/jinja/chars.h"

enum { FEW = 8 }; /* Largest number of entries of a dict whose entries are searched one by one. */

double jinja_value_as_double(struct pyvalue v)
{
    return v.type == V_FLOAT ? v.d : (double)jinja_value_as_int(v);
}

struct pyvalue jinja_value_view(struct heap *h, const char *p, int64_t n)
{
    struct str *s = jinja_heap_alloc(h, sizeof *s);
    *s = (struct str){p, n, jinja_chars_count(p, n)};
    return (struct pyvalue){.type = V_STR, .s = s};
}

struct pyvalue jinja_value_str(struct heap *h, const char *p, int64_t n)
{
    jinja_heap_spend_bytes(h, n);
    return jinja_value_view(h, jinja_heap_grow(h, p, n, n + 1), n);
}

struct pyvalue jinja_value_text(struct heap *h, const char *z)
{
    return jinja_value_view(h, z, (int64_t)strlen(z));
}

bool jinja_value_is_text(struct pyvalue v, const char *z)
{
    const int64_t n = (int64_t)strlen(z);
    return v.type == V_STR && v.s->n == n && !memcmp(v.s->p, z, (size_t)n);
}

struct pyvalue jinja_value_undefined(struct heap *h, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    struct pyvalue v = jinja_value_str(h, text, (int64_t)strlen(text));
    v.type = V_UNDEFINED;
    return v;
}

struct pylist *jinja_list_new(struct heap *h, int64_t room)
{
    struct pylist *l = jinja_heap_alloc(h, sizeof *l);
    l->room = room;
    l->v = room ? jinja_heap_alloc(h, room * (int64_t)sizeof *l->v) : NULL;
    return l;
}

void jinja_list_add(struct heap *h, struct pylist *l, struct pyvalue v)
{
    const int64_t size = sizeof v;
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 4;
        l->v = jinja_heap_grow(h, l->v, l->n * size, l->room * size);
    }
    l->v[l->n++] = v;
}

struct pyvalue jinja_value_tuple(struct heap *h, const struct pyvalue *v, int64_t n)
{
    struct pylist *l = jinja_list_new(h, n);
    for (int64_t i = 0; i < n; i++) jinja_list_add(h, l, v[i]);
    return (struct pyvalue){.type = V_TUPLE, .list = l};
}

/* ---- dicts ---------------------------------------------------------------------------------- */

bool jinja_value_hashable(struct pyvalue v)
{
    if (v.type == V_TUPLE)
        for (int64_t i = 0; i < v.list->n; i++)
            if (!jinja_value_hashable(v.list->v[i])) return false;
    return v.type != V_LIST && v.type != V_DICT && v.type != V_VIEW;
}

static uint64_t hash_bytes(const char *p, int64_t n)
{
    uint64_t x = 0xcbf29ce484222325u;
    for (int64_t i = 0; i < n; i++) x = (x ^ (unsigned char)p[i]) * 0x100000001b3u;
    return x;
}

/* Hashes a value. 1, 1.0 and true must have the same hash, because they are the same key. */
static uint64_t hash_of(struct pyvalue v)
{
    if (v.type == V_STR) return hash_bytes(v.s->p, v.s->n);
    if (v.type == V_TUPLE) {
        uint64_t x = 7;
        for (int64_t i = 0; i < v.list->n; i++) x = x * 31 + hash_of(v.list->v[i]);
        return x;
    }
    double d = jinja_value_is_number(v) ? jinja_value_as_double(v) : 0;
    if (d == 0) d = 0; /* replace -0.0 by 0.0, because both are the same key */
    return hash_bytes((const char *)&d, sizeof d);
}

static int64_t *probe(struct heap *h, const struct dict *d, struct pyvalue key, int64_t *slot)
{
    const uint64_t mask = (uint64_t)d->n_slots - 1;
    for (uint64_t at = hash_of(key) & mask;; at = (at + 1) & mask) {
        const int64_t i = (int64_t)d->slot[at] - 1;
        if (i < 0 || jinja_value_eq(h, d->e[i].key, key)) {
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
        if (jinja_value_eq(h, d->e[i].key, key)) return &d->e[i];
    return NULL;
}

static void rehash(struct heap *h, struct dict *d)
{
    int64_t at;
    d->n_slots = 4 * d->room;
    d->slot = jinja_heap_alloc(h, d->n_slots * (int64_t)sizeof *d->slot);
    for (int64_t i = 0; i < d->n; i++) d->slot[*probe(h, d, d->e[i].key, &at)] = (int32_t)i + 1;
}

struct dict *jinja_dict_new(struct heap *h)
{
    return jinja_heap_alloc(h, sizeof(struct dict));
}

static void check_key(struct heap *h, struct pyvalue key)
{
    if (!jinja_value_hashable(key))
        jinja_heap_fail(h, ERR_INVALID, "unhashable type: '%s'", jinja_value_type_name(key));
}

struct pyvalue *jinja_dict_get(struct heap *h, const struct dict *d, struct pyvalue key)
{
    check_key(h, key);
    struct entry *e = find(h, d, key);
    return e ? &e->value : NULL;
}

struct pyvalue *jinja_dict_get_text(struct heap *h, const struct dict *d, const char *z)
{
    return jinja_dict_get(h, d, jinja_value_text(h, z));
}

void jinja_dict_set(struct heap *h, struct dict *d, struct pyvalue key, struct pyvalue v)
{
    struct pyvalue *old = jinja_dict_get(h, d, key);
    if (old) {
        *old = v;
        return;
    }
    const int64_t size = sizeof *d->e;
    if (d->n == d->room) {
        d->room = d->room ? 2 * d->room : 4;
        d->e = jinja_heap_grow(h, d->e, d->n * size, d->room * size);
        if (d->room > FEW) rehash(h, d);
    }
    d->e[d->n++] = (struct entry){key, v};
    int64_t at;
    if (d->slot) d->slot[*probe(h, d, key, &at)] = (int32_t)d->n;
}

/* ---- truth, equality, order ----------------------------------------------------------------- */

bool jinja_value_has_len(struct pyvalue v)
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

int64_t jinja_value_len(struct heap *h, struct pyvalue v)
{
    switch (v.type) {
    case V_UNDEFINED: return 0;
    case V_STR: return v.s->n_chars;
    case V_LIST:
    case V_TUPLE: return v.list->n;
    case V_DICT:
    case V_VIEW: return v.dict->n;
    case V_RANGE: return v.range->n;
    default:
        jinja_heap_fail(h, ERR_INVALID, "object of type '%s' has no len()",
                        jinja_value_type_name(v));
    }
}

bool jinja_value_truth(struct heap *h, struct pyvalue v)
{
    switch (v.type) {
    case V_MISSING:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_FLOAT: return v.d != 0;
    default: return !jinja_value_has_len(v) || jinja_value_len(h, v) > 0;
    }
}

static int cmp_numbers(struct pyvalue a, struct pyvalue b) /* returns 2 if a or b is NaN */
{
    if (jinja_value_is_int(a) && jinja_value_is_int(b)) {
        const int64_t x = jinja_value_as_int(a), y = jinja_value_as_int(b);
        return (x > y) - (x < y);
    }
    /* This comparison is exact, because a long double can represent all 64-bit integers and
     * doubles. */
    const long double x = a.type == V_FLOAT ? (long double)a.d : (long double)jinja_value_as_int(a);
    const long double y = b.type == V_FLOAT ? (long double)b.d : (long double)jinja_value_as_int(b);
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
    jinja_heap_enter(h);
    for (int64_t i = 0; same && i < a->n; i++) same = jinja_value_eq(h, a->v[i], b->v[i]);
    jinja_heap_leave(h);
    return same;
}

static bool eq_dict(struct heap *h, const struct dict *a, const struct dict *b)
{
    if (a->n != b->n) return false;
    bool same = true;
    jinja_heap_enter(h);
    for (int64_t i = 0; same && i < a->n; i++) {
        const struct pyvalue *v = jinja_dict_get(h, b, a->e[i].key);
        same = v && jinja_value_eq(h, a->e[i].value, *v);
    }
    jinja_heap_leave(h);
    return same;
}

bool jinja_value_eq(struct heap *h, struct pyvalue a, struct pyvalue b)
{
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) return cmp_numbers(a, b) == 0;
    if (a.type != b.type) return false;
    switch (a.type) {
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE: return true;
    case V_STR: jinja_heap_spend(h, a.s->n >> HEAP_STEP_LOG); return !cmp_str(a.s, b.s);
    case V_LIST:
    case V_TUPLE: jinja_heap_spend(h, 1); return a.list == b.list || eq_seq(h, a.list, b.list);
    case V_DICT: jinja_heap_spend(h, 1); return a.dict == b.dict || eq_dict(h, a.dict, b.dict);
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
    jinja_heap_enter(h);
    while (i < a->n && i < b->n && jinja_value_eq(h, a->v[i], b->v[i])) i++;
    const bool yes = i < a->n && i < b->n ? jinja_value_order(h, a->v[i], b->v[i], op)
                                          : order_of((a->n > b->n) - (a->n < b->n), op);
    jinja_heap_leave(h);
    return yes;
}

bool jinja_value_order(struct heap *h, struct pyvalue a, struct pyvalue b, enum pyorder op)
{
    static const char *const sign[] = {"<", "<=", ">", ">="};
    jinja_heap_spend(h, 1);
    if (jinja_value_is_number(a) && jinja_value_is_number(b)) {
        const int c = cmp_numbers(a, b);
        return c != 2 && order_of(c, op);
    }
    if (a.type == V_STR && b.type == V_STR) return order_of(cmp_str(a.s, b.s), op);
    if (a.type == b.type && jinja_value_is_seq(a)) return order_seq(h, a.list, b.list, op);
    jinja_heap_fail(h, ERR_INVALID, "'%s' not supported between instances of '%s' and '%s'",
                    sign[op], jinja_value_type_name(a), jinja_value_type_name(b));
}

bool jinja_value_in(struct heap *h, struct pyvalue item, struct pyvalue of)
{
    if (of.type == V_STR) {
        if (item.type != V_STR)
            jinja_heap_fail(h, ERR_INVALID, "'in <string>' requires string as left operand, not %s",
                            jinja_value_type_name(item));
        jinja_heap_spend_bytes(h, of.s->n);
        return memmem(of.s->p, (size_t)of.s->n, item.s->p, (size_t)item.s->n) != NULL;
    }
    if (of.type == V_DICT) return jinja_dict_get(h, of.dict, item) != NULL;
    if (!jinja_value_iterable(of))
        jinja_heap_fail(h, ERR_INVALID, "argument of type '%s' is not iterable",
                        jinja_value_type_name(of));
    struct cursor c;
    struct pyvalue v;
    for (jinja_cursor_init(h, &c, of); jinja_cursor_next(h, &c, &v);) {
        jinja_heap_spend(h, 1);
        if (jinja_value_eq(h, v, item)) return true;
    }
    return false;
}

/* ---- iteration ------------------------------------------------------------------------------ */

bool jinja_value_iterable(struct pyvalue v)
{
    return jinja_value_has_len(v) || v.type == V_ITER;
}

struct pyvalue jinja_range_at(const struct pyrange *r, int64_t i)
{
    /* The sum fits into 64 bits, although the product may not fit. */
    return jinja_value_int((int64_t)((uint64_t)r->start + (uint64_t)i * (uint64_t)r->step));
}

static struct pylist *chars_of(struct heap *h, const struct str *s)
{
    struct pylist *l = jinja_list_new(h, s->n_chars);
    jinja_heap_spend(h, s->n_chars >> 4);
    for (int64_t i = 0, n; i < s->n; i += n) {
        n = jinja_chars_size(s->p[i]);
        jinja_list_add(h, l, jinja_value_view(h, s->p + i, n));
    }
    return l;
}

static struct pylist *view_of(struct heap *h, const struct dict *d, enum pyview view)
{
    struct pylist *l = jinja_list_new(h, d->n);
    for (int64_t i = 0; i < d->n; i++) {
        const struct pyvalue pair[2] = {d->e[i].key, d->e[i].value};
        jinja_list_add(h, l,
                       view == VIEW_ITEMS    ? jinja_value_tuple(h, pair, 2)
                       : view == VIEW_VALUES ? pair[1]
                                             : pair[0]);
    }
    return l;
}

/* Begins to iterate over v. Fails if v is the variable `loop`. */
void jinja_cursor_init(struct heap *h, struct cursor *c, struct pyvalue v)
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
    default:
        jinja_heap_fail(h, ERR_INVALID, "'%s' object is not iterable", jinja_value_type_name(v));
    }
    c->n = c->items->n;
}

bool jinja_cursor_next(struct heap *h, struct cursor *c, struct pyvalue *out)
{
    if (c->of.type == V_ITER) return jinja_cursor_next(h, c->of.iter, out);
    if (c->i >= c->n) return false;
    *out = c->items ? c->items->v[c->i] : jinja_range_at(c->of.range, c->i);
    c->i++;
    return true;
}

struct pylist *jinja_value_items(struct heap *h, struct pyvalue v)
{
    struct cursor c;
    struct pyvalue item;
    jinja_cursor_init(h, &c, v);
    if (c.items) return c.items;
    struct pylist *l = jinja_list_new(h, c.n);
    while (jinja_cursor_next(h, &c, &item)) jinja_list_add(h, l, item);
    return l;
}

struct pyvalue jinja_value_iter(struct heap *h, struct pylist *l)
{
    struct cursor *c = jinja_heap_alloc(h, sizeof *c);
    jinja_cursor_init(h, c, jinja_value_of_list(l));
    return (struct pyvalue){.type = V_ITER, .iter = c};
}

const char *jinja_value_type_name(struct pyvalue v)
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
