/* value.h: the values of expressions in a chat template. They are those values of Python that
 * a template can use. Strings are UTF-8 and are counted in code points. Dicts keep the order
 * of insertion. Only a namespace can change after it was made, as in jinja2's
 * ImmutableSandboxedEnvironment. A struct pyvalue has 16 bytes and is passed by value. The
 * struct to which it points is in the heap's arena. */
#ifndef SEQD_JINJA_VALUE_H
#define SEQD_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "worker/jinja/heap.h"

enum value_type {
    V_MISSING, /* no value, for an argument that was not passed or a variable that was never set */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT, /* 64 bits; because Python has no limit, an overflow is an error */
    V_FLOAT,
    V_STR,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_RANGE,
    V_VIEW, /* dict.keys(), .values() or .items(): id is an enum pyview */
    V_ITER, /* a generator, whose items can be read only once */
    V_NAMESPACE,
    V_LOOP,
    V_MACRO,
    V_BOUND,   /* a method of a value */
    V_FUNCTION /* a global function */
};

enum pyview { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct pyvalue {
    uint8_t type;
    uint8_t safe; /* set if the V_STR is a Markup of markupsafe; strings that are added to a
                   * Markup are escaped */
    uint16_t id;
    union {
        bool b;
        int64_t i;
        double d;
        /* the string; for V_UNDEFINED, the text of the error that a use of the value causes,
         * or NULL */
        const struct str *s;
        struct pylist *list;
        struct dict *dict; /* used for V_DICT, V_NAMESPACE and V_VIEW */
        struct pyrange *range;
        struct cursor *iter;
        void *p;
    };
};

struct str {
    const char *p; /* not NUL-terminated */
    int64_t n, n_chars;
};

struct pylist {
    struct pyvalue *v;
    int64_t n, room;
    bool read; /* whether an iteration has begun, or an item was looked up */
};

struct dict {
    struct entry {
        struct pyvalue key, value;
    } * e;
    int64_t n, room;
    int32_t *slot; /* [n_slots], where n_slots is a power of two: 1 + the index of an entry, or
                    * 0 if the slot is free; `slot` is NULL while the dict has few entries */
    int64_t n_slots;
};

struct pyrange {
    int64_t start, step, n, stop; /* stop is the value with which the range was made; it is
                                   * needed for repr */
};

/* Cursor over the items of a value. */
struct cursor {
    struct pyvalue of;
    struct pylist *items; /* NULL if `of` is a range, a generator or undefined */
    int64_t i, n;
};

static inline struct pyvalue jinja_value_none(void)
{
    return (struct pyvalue){.type = V_NONE};
}
static inline struct pyvalue jinja_value_bool(bool b)
{
    return (struct pyvalue){.type = V_BOOL, .b = b};
}
static inline struct pyvalue jinja_value_int(int64_t i)
{
    return (struct pyvalue){.type = V_INT, .i = i};
}
static inline struct pyvalue jinja_value_float(double d)
{
    return (struct pyvalue){.type = V_FLOAT, .d = d};
}
static inline struct pyvalue jinja_value_of_list(struct pylist *l)
{
    return (struct pyvalue){.type = V_LIST, .list = l};
}
static inline bool jinja_value_is_seq(struct pyvalue v)
{
    return v.type == V_LIST || v.type == V_TUPLE;
}
static inline bool jinja_value_is_int(struct pyvalue v) /* returns the result of isinstance(v,
                                                         * int) */
{
    return v.type == V_INT || v.type == V_BOOL;
}
static inline int64_t jinja_value_as_int(struct pyvalue v)
{
    return v.type == V_BOOL ? v.b : v.i;
}
static inline bool jinja_value_is_number(struct pyvalue v)
{
    return jinja_value_is_int(v) || v.type == V_FLOAT;
}
double jinja_value_as_double(struct pyvalue v);

/* Returns an undefined value. The parameter has the text of the error that a use of the value
 * causes. */
struct pyvalue jinja_value_undefined(struct heap *h, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
struct pyvalue jinja_value_str(struct heap *h, const char *p, int64_t n); /* copies */
/* p must be valid as long as the value is used. */
struct pyvalue jinja_value_view(struct heap *h, const char *p, int64_t n);
/* z must be valid as long as the value is used. */
struct pyvalue jinja_value_text(struct heap *h, const char *z);
/* Returns true if v is a string that is equal to z. */
bool jinja_value_is_text(struct pyvalue v, const char *z);

struct pylist *jinja_list_new(struct heap *h, int64_t room);
void jinja_list_add(struct heap *h, struct pylist *l, struct pyvalue v);
struct pyvalue jinja_value_tuple(struct heap *h, const struct pyvalue *v, int64_t n);

struct dict *jinja_dict_new(struct heap *h);
/* Finds the value of a key. Returns NULL if the dict does not have the key. Fails with
 * ERR_INVALID for a key that cannot be hashed. */
struct pyvalue *jinja_dict_get(struct heap *h, const struct dict *d, struct pyvalue key);
struct pyvalue *jinja_dict_get_text(struct heap *h, const struct dict *d, const char *z);
void jinja_dict_set(struct heap *h, struct dict *d, struct pyvalue key, struct pyvalue v);
bool jinja_value_hashable(struct pyvalue v);

bool jinja_value_truth(struct heap *h, struct pyvalue v);
bool jinja_value_eq(struct heap *h, struct pyvalue a, struct pyvalue b);
enum pyorder { ORDER_LT, ORDER_LE, ORDER_GT, ORDER_GE };
/* Compares two values by the operator op. Fails with ERR_INVALID for types that have no order. */
bool jinja_value_order(struct heap *h, struct pyvalue a, struct pyvalue b, enum pyorder op);
bool jinja_value_in(struct heap *h, struct pyvalue item, struct pyvalue of);
bool jinja_value_has_len(struct pyvalue v);
int64_t jinja_value_len(struct heap *h, struct pyvalue v); /* fails for a value without len() */

bool jinja_value_iterable(struct pyvalue v);
/* Begins to iterate over v. If v is a generator, the iteration has the remaining items of the
 * generator. Fails with ERR_INVALID for a value that cannot be iterated. */
void jinja_cursor_init(struct heap *h, struct cursor *c, struct pyvalue v);
bool jinja_cursor_next(struct heap *h, struct cursor *c, struct pyvalue *out);
struct pylist *jinja_value_items(struct heap *h,
                                 struct pyvalue v); /* returns a list of all items of v; the
                                                     * list is borrowed */
/* Returns a generator of the items of l. */
struct pyvalue jinja_value_iter(struct heap *h, struct pylist *l);
struct pyvalue jinja_range_at(const struct pyrange *r, int64_t i);

const char *jinja_value_type_name(struct pyvalue v);

#endif
