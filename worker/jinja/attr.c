/* Attributes and items: looks up obj.name and obj[index] as jinja2's sandbox does. */
#include <string.h>

#include "worker/jinja/chars.h"
#include "worker/jinja/run.h"

static struct pyvalue bind(struct template_run *r, const struct native *native, struct pyvalue of)
{
    struct bound *b = jinja_heap_alloc(&r->h, sizeof *b);
    *b = (struct bound){native, of};
    return (struct pyvalue){.type = V_BOUND, .p = b};
}

static const struct native *method_of(struct pyvalue of, struct pyvalue name)
{
    switch (of.type) {
    case V_STR: return jinja_native_find(jinja_native_methods_str, name);
    case V_DICT: return jinja_native_find(jinja_native_methods_dict, name);
    case V_LIST:
    case V_TUPLE: return jinja_native_find(jinja_native_methods_list, name);
    case V_LOOP: return jinja_native_find(jinja_native_methods_loop, name);
    default: return NULL;
    }
}

/* Returns true if the attribute is a method that changes a value, or if it is private
 * (__name__). The sandbox refuses attributes of these two kinds. */
static bool is_unsafe(struct pyvalue of, struct pyvalue name)
{
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update", NULL};
    static const char *const list[] = {"append", "clear",  "pop",    "reverse", "insert",
                                       "sort",   "extend", "remove", NULL};
    const char *const *p = of.type == V_DICT ? dict : of.type == V_LIST ? list : NULL;
    for (; p && *p; p++)
        if (jinja_value_is_text(name, *p)) return true;
    return name.s->n > 4 && !memcmp(name.s->p, "__", 2) &&
           !memcmp(name.s->p + name.s->n - 2, "__", 2);
}

static struct pyvalue unsafe(struct template_run *r, struct pyvalue of, struct pyvalue name)
{
    return jinja_value_undefined(&r->h, "access to attribute '%.*s' of '%s' object is unsafe.",
                                 (int)(name.s->n < 64 ? name.s->n : 64), name.s->p,
                                 jinja_value_type_name(of));
}

static struct pyvalue no_attribute(struct template_run *r, struct pyvalue of, struct pyvalue name)
{
    return jinja_value_undefined(&r->h, "'%s object' has no attribute '%.*s'",
                                 jinja_value_type_name(of), (int)(name.s->n < 64 ? name.s->n : 64),
                                 name.s->p);
}

static struct pyvalue item_or_undefined(struct pyvalue v, struct template_run *r, const char *what)
{
    return v.type == V_MISSING ? jinja_value_undefined(&r->h, "there is no %s item", what) : v;
}

static struct pyvalue loop_attr(struct template_run *r, struct template_loop *l,
                                struct pyvalue name)
{
    if (jinja_value_is_text(name, "index")) return jinja_value_int(l->index0 + 1);
    if (jinja_value_is_text(name, "index0")) return jinja_value_int(l->index0);
    if (jinja_value_is_text(name, "first")) return jinja_value_bool(l->index0 == 0);
    if (jinja_value_is_text(name, "depth")) return jinja_value_int(l->depth0 + 1);
    if (jinja_value_is_text(name, "depth0")) return jinja_value_int(l->depth0);
    if (jinja_value_is_text(name, "length")) return jinja_value_int(jinja_loop_length(r, l));
    if (jinja_value_is_text(name, "revindex"))
        return jinja_value_int(jinja_loop_length(r, l) - l->index0);
    if (jinja_value_is_text(name, "revindex0"))
        return jinja_value_int(jinja_loop_length(r, l) - l->index0 - 1);
    if (jinja_value_is_text(name, "previtem")) return item_or_undefined(l->before, r, "previous");
    jinja_loop_peek(r, l);
    if (jinja_value_is_text(name, "last")) return jinja_value_bool(l->after.type == V_MISSING);
    if (jinja_value_is_text(name, "nextitem")) return item_or_undefined(l->after, r, "next");
    return (struct pyvalue){0};
}

static struct pyvalue macro_attr(struct template_run *r, const struct macro *m, struct pyvalue name)
{
    if (jinja_value_is_text(name, "name")) return m->name;
    if (jinja_value_is_text(name, "caller")) return jinja_value_bool(m->takes_caller);
    if (jinja_value_is_text(name, "catch_kwargs")) return jinja_value_bool(m->takes_kwargs);
    if (jinja_value_is_text(name, "catch_varargs")) return jinja_value_bool(m->takes_varargs);
    if (jinja_value_is_text(name, "arguments"))
        return jinja_value_tuple(&r->h, m->param_name, m->n_params);
    return (struct pyvalue){0};
}

/* Returns getattr(of, name). Returns V_MISSING if Python would raise AttributeError. */
static struct pyvalue own_attr(struct template_run *r, struct pyvalue of, struct pyvalue name)
{
    const struct native *m = method_of(of, name);
    const struct pyvalue *v;
    if (m) return bind(r, m, of);
    if (is_unsafe(of, name)) return unsafe(r, of, name);
    switch (of.type) {
    case V_UNDEFINED: jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)of.s->n, of.s->p);
    case V_NAMESPACE: v = jinja_dict_get(&r->h, of.dict, name); return v ? *v : (struct pyvalue){0};
    case V_LOOP: return loop_attr(r, of.p, name);
    case V_MACRO: return macro_attr(r, ((struct macro_value *)of.p)->def, name);
    default: return (struct pyvalue){0};
    }
}

static struct pyvalue char_at(struct template_run *r, struct pyvalue of, int64_t i)
{
    const struct str *s = of.s;
    const int64_t at = s->n == s->n_chars ? i : jinja_chars_at(s->p, s->n, i);
    jinja_heap_spend(&r->h, at >> HEAP_STEP_LOG);
    struct pyvalue v = jinja_value_view(&r->h, s->p + at, jinja_chars_size(s->p[at]));
    v.safe = of.safe;
    return v;
}

/* Returns of[index]. Returns V_MISSING if Python would raise LookupError or TypeError. */
static struct pyvalue own_item(struct template_run *r, struct pyvalue of, struct pyvalue index)
{
    const struct pyvalue none = {0};
    if (of.type == V_DICT) {
        const struct pyvalue *v = jinja_value_hashable(index)
                                      ? jinja_dict_get(&r->h, of.dict, index)
                                      : NULL;
        return v ? *v : none;
    }
    if (of.type == V_UNDEFINED) jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)of.s->n, of.s->p);
    if (!jinja_value_is_int(index)) return none;
    if (of.type != V_STR && !jinja_value_is_seq(of) && of.type != V_RANGE) return none;
    const int64_t n = jinja_value_len(&r->h, of);
    int64_t i = jinja_value_as_int(index);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return none;
    if (jinja_value_is_seq(of)) of.list->read = true;
    return of.type == V_STR     ? char_at(r, of, i)
           : of.type == V_RANGE ? jinja_range_at(of.range, i)
                                : of.list->v[i];
}

struct pyvalue jinja_attr_get(struct template_run *r, struct pyvalue of, struct pyvalue name)
{
    struct pyvalue v = own_attr(r, of, name);
    if (v.type == V_MISSING) v = own_item(r, of, name);
    return v.type == V_MISSING ? no_attribute(r, of, name) : v;
}

struct pyvalue jinja_item_get(struct template_run *r, struct pyvalue of, struct pyvalue index)
{
    struct pyvalue v = own_item(r, of, index);
    if (v.type == V_MISSING && index.type == V_STR) v = own_attr(r, of, index);
    if (v.type != V_MISSING) return v;
    if (index.type == V_STR) return no_attribute(r, of, index);
    return jinja_value_undefined(&r->h, "%s object has no such element", jinja_value_type_name(of));
}
