/* Evaluates the arguments of a call, and calls macros and functions written in C. */
#include <string.h>

#include "worker/jinja/run.h"

struct gather { /* arguments while they are evaluated */
    struct pylist *v, *key, *kw;
};

static void add_kw(struct template_run *r, struct gather *g, struct pyvalue key, struct pyvalue v)
{
    for (int64_t i = 0; i < g->key->n; i++)
        if (jinja_value_eq(&r->h, g->key->v[i], key))
            jinja_heap_fail(&r->h, ERR_INVALID, "got multiple values for keyword argument '%.*s'",
                            (int)key.s->n, key.s->p);
    jinja_list_add(&r->h, g->key, key);
    jinja_list_add(&r->h, g->kw, v);
}

static void add_star_star(struct template_run *r, struct gather *g, struct pyvalue of)
{
    if (of.type != V_DICT)
        jinja_heap_fail(&r->h, ERR_INVALID, "argument after ** must be a mapping, not %s",
                        jinja_value_type_name(of));
    for (int64_t i = 0; i < of.dict->n; i++) {
        if (of.dict->e[i].key.type != V_STR)
            jinja_heap_fail(&r->h, ERR_INVALID, "keywords must be strings");
        add_kw(r, g, of.dict->e[i].key, of.dict->e[i].value);
    }
}

static struct actual eval_args(struct template_run *r, struct scope *scope, const struct args *a,
                               struct pyvalue caller)
{
    struct heap *h = &r->h;
    struct gather g = {jinja_list_new(h, a->n), jinja_list_new(h, a->n_kw),
                       jinja_list_new(h, a->n_kw)};
    for (int i = 0; i < a->n; i++) jinja_list_add(h, g.v, jinja_eval(r, scope, a->v[i]));
    if (a->star) {
        const struct pylist *more = jinja_value_items(h, jinja_eval(r, scope, a->star));
        for (int64_t i = 0; i < more->n; i++) jinja_list_add(h, g.v, more->v[i]);
    }
    for (int i = 0; i < a->n_kw; i++) add_kw(r, &g, a->key[i], jinja_eval(r, scope, a->kw[i]));
    if (caller.type != V_MISSING) add_kw(r, &g, jinja_value_text(h, "caller"), caller);
    if (a->star_star) add_star_star(r, &g, jinja_eval(r, scope, a->star_star));
    return (struct actual){g.v->v, g.v->n, g.key->v, g.kw->v, g.key->n};
}

/* ---- macros --------------------------------------------------------------------------------- */

/* Returns the keyword argument with the given name, and marks this argument as used. Returns
 * V_MISSING if the call has no keyword argument of that name. */
static struct pyvalue take_kw(struct template_run *r, const struct actual *a, struct pyvalue name,
                              bool *taken)
{
    for (int64_t i = 0; i < a->n_kw; i++)
        if (!taken[i] && jinja_value_eq(&r->h, a->key[i], name)) {
            taken[i] = true;
            return a->kw[i];
        }
    return (struct pyvalue){0};
}

static void bind_kwargs(struct template_run *r, struct scope *s, const struct macro *m,
                        const struct actual *a, const bool *taken)
{
    struct dict *rest = jinja_dict_new(&r->h);
    for (int64_t i = 0; i < a->n_kw; i++)
        if (!taken[i]) jinja_dict_set(&r->h, rest, a->key[i], a->kw[i]);
    if (m->takes_kwargs)
        jinja_scope_set(r, s, SYM_KWARGS, (struct pyvalue){.type = V_DICT, .dict = rest});
    else if (rest->n)
        jinja_heap_fail(&r->h, ERR_INVALID, "macro takes no keyword argument '%.*s'",
                        (int)rest->e[0].key.s->n, rest->e[0].key.s->p);
}

static void bind_macro(struct template_run *r, struct scope *s, const struct macro *m,
                       const struct actual *a)
{
    bool *taken = jinja_heap_alloc(&r->h, a->n_kw + 1);
    struct pyvalue *v = jinja_heap_alloc(&r->h, (m->n_params + 1) * (int64_t)sizeof *v);
    for (int i = 0; i < m->n_params; i++)
        v[i] = i < a->n ? a->v[i] : take_kw(r, a, m->param_name[i], taken);
    if (m->takes_caller && !m->names_caller) {
        const struct pyvalue c = take_kw(r, a, jinja_value_text(&r->h, "caller"), taken);
        jinja_scope_set(r, s, SYM_CALLER,
                        c.type == V_MISSING ? jinja_value_undefined(&r->h, "No caller defined")
                                            : c);
    }
    bind_kwargs(r, s, m, a, taken);
    if (m->takes_varargs)
        jinja_scope_set(r, s, SYM_VARARGS,
                        a->n > m->n_params
                            ? jinja_value_tuple(&r->h, a->v + m->n_params, a->n - m->n_params)
                            : jinja_value_tuple(&r->h, NULL, 0));
    else if (a->n > m->n_params)
        jinja_heap_fail(&r->h, ERR_INVALID, "macro takes not more than %d argument(s)",
                        m->n_params);
    for (int i = 0; i < m->n_params; i++) { /* a default may use earlier parameters */
        if (v[i].type == V_MISSING && m->preset[i]) v[i] = jinja_eval(r, s, m->preset[i]);
        if (v[i].type == V_MISSING)
            v[i] = jinja_value_undefined(&r->h, "parameter '%.*s' was not provided",
                                         (int)m->param_name[i].s->n, m->param_name[i].s->p);
        jinja_scope_set(r, s, m->param[i], v[i]);
    }
}

static struct pyvalue call_macro(struct template_run *r, const struct macro_value *m,
                                 const struct actual *a)
{
    if (++r->calls > RUN_CALLS)
        jinja_heap_fail(&r->h, ERR_TOO_LARGE, "more than %d calls of macros one inside the other",
                        RUN_CALLS);
    struct scope *s = jinja_scope_new(r, m->scope);
    bind_macro(r, s, m->def, a);
    const struct pyvalue v = jinja_run_capture(r, m->def->body, s);
    r->calls--;
    return v;
}

/* ---- any call ------------------------------------------------------------------------------- */

static struct pyvalue call_value(struct template_run *r, struct pyvalue f, const struct actual *a)
{
    const struct bound *b = f.p;
    jinja_heap_spend(&r->h, 1);
    switch (f.type) {
    case V_MACRO: return call_macro(r, f.p, a);
    case V_BOUND: return jinja_native_call(r, b->native, b->of, a);
    case V_FUNCTION: return jinja_native_call(r, f.p, jinja_value_none(), a);
    case V_LOOP:
        if (a->n == 1 && !a->n_kw) return jinja_run_loop_again(r, f.p, a->v[0]);
        jinja_heap_fail(&r->h, ERR_INVALID, "loop() takes one argument");
    case V_UNDEFINED: jinja_heap_fail(&r->h, ERR_INVALID, "%.*s", (int)f.s->n, f.s->p);
    default:
        jinja_heap_fail(&r->h, ERR_INVALID, "'%s' object is not callable",
                        jinja_value_type_name(f));
    }
}

struct pyvalue jinja_call_node(struct template_run *r, struct scope *scope,
                               const struct template_node *n, struct pyvalue caller)
{
    const struct pyvalue f = jinja_eval(r, scope, n->a);
    const struct actual a = eval_args(r, scope, n->args, caller);
    r->h.line = n->line;
    return call_value(r, f, &a);
}

struct pyvalue jinja_call_native(struct template_run *r, struct scope *scope,
                                 const struct template_node *n, struct pyvalue of)
{
    const struct actual a = eval_args(r, scope, n->args, (struct pyvalue){0});
    r->h.line = n->line;
    if (!n->native)
        jinja_heap_fail(&r->h, ERR_INVALID, "No %s named '%.*s' found.",
                        n->type == N_FILTER ? "filter" : "test", (int)n->value.s->n, n->value.s->p);
    return jinja_native_call(r, n->native, of, &a);
}
