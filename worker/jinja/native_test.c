/* The tests of chat templates, which are the names that follow `is`. */
#include <string.h>

#include "worker/jinja/chars.h"
#include "worker/jinja/run.h"

#define TEST(name)                                                                                 \
    static struct pyvalue name(struct template_run *r, struct pyvalue of, const struct pyvalue *a, \
                               const struct actual *raw)
#define IS(name, expression)                                                                       \
    TEST(name)                                                                                     \
    {                                                                                              \
        return jinja_value_bool(expression);                                                       \
    }

IS(t_defined, of.type != V_UNDEFINED)
IS(t_undefined, of.type == V_UNDEFINED)
IS(t_none, of.type == V_NONE)
IS(t_boolean, of.type == V_BOOL)
IS(t_true, of.type == V_BOOL && of.b)
IS(t_false, of.type == V_BOOL && !of.b)
IS(t_integer, of.type == V_INT)
IS(t_float, of.type == V_FLOAT)
IS(t_number, jinja_value_is_number(of))
IS(t_string, of.type == V_STR)
IS(t_mapping, of.type == V_DICT)
IS(t_iterable, jinja_value_iterable(of) || of.type == V_LOOP)
/* Tests whether len() and [] work on a value. Both work on an undefined value. */
IS(t_sequence, jinja_value_has_len(of) && of.type != V_VIEW)
IS(t_callable, of.type == V_MACRO || of.type == V_BOUND || of.type == V_FUNCTION ||
                   of.type == V_LOOP || of.type == V_UNDEFINED)
IS(t_eq, jinja_value_eq(&r->h, of, a[0]))
IS(t_ne, !jinja_value_eq(&r->h, of, a[0]))
IS(t_lt, jinja_value_order(&r->h, of, a[0], ORDER_LT))
IS(t_le, jinja_value_order(&r->h, of, a[0], ORDER_LE))
IS(t_gt, jinja_value_order(&r->h, of, a[0], ORDER_GT))
IS(t_ge, jinja_value_order(&r->h, of, a[0], ORDER_GE))
IS(t_in, jinja_value_in(&r->h, of, a[0]))
/* Tests whether two values are the same object. Simple values are compared by equality,
 * because in Python, too, they have no stable identity. */
IS(t_sameas, of.type == a[0].type && (of.type <= V_STR ? jinja_value_eq(&r->h, of, a[0])
                                                       : of.p == a[0].p && of.id == a[0].id))

static bool rest_is(struct template_run *r, struct pyvalue v, struct pyvalue by, int64_t want)
{
    const struct pyvalue rest = jinja_op_binary(r, '%' << 8, v, by);
    return jinja_value_eq(&r->h, rest, jinja_value_int(want));
}

IS(t_odd, rest_is(r, of, jinja_value_int(2), 1))
IS(t_even, rest_is(r, of, jinja_value_int(2), 0))
IS(t_divisibleby, rest_is(r, of, a[0], 0))

/* Returns true if the text has letters with a case, and if all letters with a case have the
 * case `want`. */
static bool has_case(struct template_run *r, struct pyvalue v, enum chars_case want,
                     enum chars_case other)
{
    bool any = false;
    const struct str *s = jinja_value_to_str(&r->h, v).s;
    jinja_heap_spend_bytes(&r->h, 16 * s->n);
    for (int64_t i = 0; i < s->n; i += jinja_chars_size(s->p[i])) {
        const uint32_t c = jinja_chars_get(s->p + i);
        if (jinja_chars_is(c, other)) return false;
        any |= jinja_chars_is(c, want);
    }
    return any;
}

IS(t_lower, has_case(r, of, CASE_LOWER, CASE_UPPER))
IS(t_upper, has_case(r, of, CASE_UPPER, CASE_LOWER))

const struct native jinja_native_tests[] = {
    {"defined", "", 0, t_defined},
    {"undefined", "", 0, t_undefined},
    {"none", "", 0, t_none},
    {"boolean", "", 0, t_boolean},
    {"true", "", 0, t_true},
    {"false", "", 0, t_false},
    {"integer", "", 0, t_integer},
    {"float", "", 0, t_float},
    {"number", "", 0, t_number},
    {"string", "", 0, t_string},
    {"mapping", "", 0, t_mapping},
    {"iterable", "", 0, t_iterable},
    {"sequence", "", 0, t_sequence},
    {"callable", "", 0, t_callable},
    {"==", "b", 1, t_eq},
    {"eq", "b", 1, t_eq},
    {"equalto", "b", 1, t_eq},
    {"!=", "b", 1, t_ne},
    {"ne", "b", 1, t_ne},
    {"<", "b", 1, t_lt},
    {"lt", "b", 1, t_lt},
    {"lessthan", "b", 1, t_lt},
    {"<=", "b", 1, t_le},
    {"le", "b", 1, t_le},
    {">", "b", 1, t_gt},
    {"gt", "b", 1, t_gt},
    {"greaterthan", "b", 1, t_gt},
    {">=", "b", 1, t_ge},
    {"ge", "b", 1, t_ge},
    {"in", "seq", 1, t_in},
    {"sameas", "other", 1, t_sameas},
    {"odd", "", 0, t_odd},
    {"even", "", 0, t_even},
    {"divisibleby", "num", 1, t_divisibleby},
    {"lower", "", 0, t_lower},
    {"upper", "", 0, t_upper},
    {NULL, NULL, 0, NULL},
};
