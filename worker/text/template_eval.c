#include <string.h>

#include "worker/text/template_run.h"

static struct value eval_list(struct run *r, struct scope *scope, const struct node *n)
{
    struct list *l = list_new(&r->h, n->n);
    for (int i = 0; i < n->n; i++) list_add(&r->h, l, eval(r, scope, n->list[i]));
    struct value v = value_of_list(l);
    if (n->type == N_TUPLE) v.type = V_TUPLE;
    return v;
}

static struct value eval_dict(struct run *r, struct scope *scope, const struct node *n)
{
    struct dict *d = dict_new(&r->h);
    for (int i = 0; i < n->n; i += 2) {
        const struct value key = eval(r, scope, n->list[i]);
        dict_set(&r->h, d, key, eval(r, scope, n->list[i + 1]));
    }
    return (struct value){.type = V_DICT, .dict = d};
}

static struct value eval_name(struct run *r, struct scope *scope, const struct node *n)
{
    const struct value v = scope_get(r, scope, n->symbol);
    if (v.type != V_MISSING) return v;
    const struct str *s = r->t->symbol[n->symbol].s;
    return value_undefined(&r->h, "'%.*s' is undefined", (int)s->n, s->p);
}

static struct value eval_slice(struct run *r, struct scope *scope, const struct node *n)
{
    struct value bound[3];
    const struct value of = eval(r, scope, n->a);
    for (int i = 0; i < 3; i++) bound[i] = n->list[i] ? eval(r, scope, n->list[i]) : value_none();
    return op_slice(r, of, bound);
}

static struct value eval_concat(struct run *r, struct scope *scope, const struct node *n)
{
    struct sink s = {0};
    for (int i = 0; i < n->n; i++) sink_str(&r->h, &s, eval(r, scope, n->list[i]));
    return sink_value(&r->h, &s);
}

static bool compare(struct run *r, enum compare op, struct value a, struct value b)
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

/* a < b < c is a < b and b < c. */
static struct value eval_compare(struct run *r, struct scope *scope, const struct node *n)
{
    struct value a = eval(r, scope, n->list[0]);
    for (int i = 1; i < n->n; i++) {
        const struct value b = eval(r, scope, n->list[i]);
        if (!compare(r, (enum compare)n->ops[i - 1], a, b)) return value_bool(false);
        a = b;
    }
    return value_bool(true);
}

static struct value eval_cond(struct run *r, struct scope *scope, const struct node *n)
{
    if (value_truth(&r->h, eval(r, scope, n->a))) return eval(r, scope, n->b);
    if (n->c) return eval(r, scope, n->c);
    return value_undefined(&r->h, "the inline if-expression evaluated to false and no else section "
                                  "was defined.");
}

static struct value eval_logic(struct run *r, struct scope *scope, const struct node *n)
{
    const struct value a = eval(r, scope, n->a);
    return value_truth(&r->h, a) == (n->type == N_AND) ? eval(r, scope, n->b) : a;
}

static struct value eval_operation(struct run *r, struct scope *scope, const struct node *n)
{
    struct value a;
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
    case N_CALL: return call_node(r, scope, n, (struct value){0});
    default: return call_native(r, scope, n, n->a ? eval(r, scope, n->a) : value_none());
    }
}

struct value eval(struct run *r, struct scope *scope, const struct node *n)
{
    if (n->type == N_CONST) return n->value;
    if (n->type == N_NAME) return eval_name(r, scope, n);
    heap_enter(&r->h);
    heap_spend(&r->h, 1);
    r->h.line = n->line;
    const struct value v = eval_operation(r, scope, n);
    heap_leave(&r->h);
    return v;
}
