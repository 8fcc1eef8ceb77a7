/* Expressions of a chat template: eval() gives each node to the function for its type. */
#include <string.h>

#include "worker/jinja/run.h"

static struct pyvalue eval_list(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    struct pylist *l = list_new(&r->h, n->n);
    for (int i = 0; i < n->n; i++) list_add(&r->h, l, eval(r, scope, n->list[i]));
    struct pyvalue v = value_of_list(l);
    if (n->type == N_TUPLE) v.type = V_TUPLE;
    return v;
}

static struct pyvalue eval_dict(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    struct dict *d = dict_new(&r->h);
    for (int i = 0; i < n->n; i += 2) {
        const struct pyvalue key = eval(r, scope, n->list[i]);
        dict_set(&r->h, d, key, eval(r, scope, n->list[i + 1]));
    }
    return (struct pyvalue){.type = V_DICT, .dict = d};
}

static struct pyvalue eval_name(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    const struct pyvalue v = scope_get(r, scope, n->symbol);
    if (v.type != V_MISSING) return v;
    const struct str *s = r->t->symbol[n->symbol].s;
    return value_undefined(&r->h, "'%.*s' is undefined", (int)s->n, s->p);
}

static struct pyvalue eval_slice(struct template_run *r, struct scope *scope,
                                 const struct template_node *n)
{
    struct pyvalue bound[3];
    const struct pyvalue of = eval(r, scope, n->a);
    for (int i = 0; i < 3; i++) bound[i] = n->list[i] ? eval(r, scope, n->list[i]) : value_none();
    return op_slice(r, of, bound);
}

static struct pyvalue eval_concat(struct template_run *r, struct scope *scope,
                                  const struct template_node *n)
{
    struct text_sink s = {0};
    for (int i = 0; i < n->n; i++) sink_str(&r->h, &s, eval(r, scope, n->list[i]));
    return sink_value(&r->h, &s);
}

static bool compare(struct template_run *r, enum compare op, struct pyvalue a, struct pyvalue b)
{
    struct heap *h = &r->h;
    switch (op) {
    case CMP_EQ: return value_eq(h, a, b);
    case CMP_NE: return !value_eq(h, a, b);
    case CMP_IN: return value_in(h, a, b);
    case CMP_NOT_IN: return !value_in(h, a, b);
    case CMP_LT: return value_order(h, a, b, ORDER_LT);
    case CMP_LE: return value_order(h, a, b, ORDER_LE);
    case CMP_GT: return value_order(h, a, b, ORDER_GT);
    default: return value_order(h, a, b, ORDER_GE);
    }
}

/* Compares a chain: a < b < c is a < b and b < c. */
static struct pyvalue eval_compare(struct template_run *r, struct scope *scope,
                                   const struct template_node *n)
{
    struct pyvalue a = eval(r, scope, n->list[0]);
    for (int i = 1; i < n->n; i++) {
        const struct pyvalue b = eval(r, scope, n->list[i]);
        if (!compare(r, (enum compare)n->ops[i - 1], a, b)) return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

static struct pyvalue eval_cond(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    if (value_truth(&r->h, eval(r, scope, n->a))) return eval(r, scope, n->b);
    if (n->c) return eval(r, scope, n->c);
    return value_undefined(&r->h, "the inline if-expression evaluated to false and no else section "
                                  "was defined.");
}

static struct pyvalue eval_logic(struct template_run *r, struct scope *scope,
                                 const struct template_node *n)
{
    const struct pyvalue a = eval(r, scope, n->a);
    return value_truth(&r->h, a) == (n->type == N_AND) ? eval(r, scope, n->b) : a;
}

static struct pyvalue eval_operation(struct template_run *r, struct scope *scope,
                                     const struct template_node *n)
{
    struct pyvalue a;
    switch (n->type) {
    case N_NOT: return value_bool(!value_truth(&r->h, eval(r, scope, n->a)));
    case N_NEG:
    case N_POS: return op_negate(r, eval(r, scope, n->a), n->type == N_NEG);
    case N_AND:
    case N_OR: return eval_logic(r, scope, n);
    case N_BINARY: a = eval(r, scope, n->a); return op_binary(r, n->op, a, eval(r, scope, n->b));
    case N_CONCAT: return eval_concat(r, scope, n);
    case N_COMPARE: return eval_compare(r, scope, n);
    case N_COND: return eval_cond(r, scope, n);
    case N_ATTR: return attr_get(r, eval(r, scope, n->a), n->value);
    case N_ITEM: a = eval(r, scope, n->a); return item_get(r, a, eval(r, scope, n->b));
    case N_SLICE: return eval_slice(r, scope, n);
    case N_LIST:
    case N_TUPLE: return eval_list(r, scope, n);
    case N_DICT: return eval_dict(r, scope, n);
    case N_CALL: return call_node(r, scope, n, (struct pyvalue){0});
    default: return call_native(r, scope, n, n->a ? eval(r, scope, n->a) : value_none());
    }
}

struct pyvalue eval(struct template_run *r, struct scope *scope, const struct template_node *n)
{
    if (n->type == N_CONST) return n->value;
    if (n->type == N_NAME) return eval_name(r, scope, n);
    heap_enter(&r->h);
    heap_spend(&r->h, 1);
    r->h.line = n->line;
    const struct pyvalue v = eval_operation(r, scope, n);
    heap_leave(&r->h);
    return v;
}
