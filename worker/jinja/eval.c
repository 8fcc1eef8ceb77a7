/* Evaluates the expressions of a chat template. jinja_eval() passes each node to the function for
 * its type. */
#include <string.h>

#include "worker/jinja/run.h"

static struct pyvalue eval_list(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    struct pylist *l = jinja_list_new(&r->h, n->n);
    for (int i = 0; i < n->n; i++) jinja_list_add(&r->h, l, jinja_eval(r, scope, n->list[i]));
    struct pyvalue v = jinja_value_of_list(l);
    if (n->type == N_TUPLE) v.type = V_TUPLE;
    return v;
}

static struct pyvalue eval_dict(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    struct dict *d = jinja_dict_new(&r->h);
    for (int i = 0; i < n->n; i += 2) {
        const struct pyvalue key = jinja_eval(r, scope, n->list[i]);
        jinja_dict_set(&r->h, d, key, jinja_eval(r, scope, n->list[i + 1]));
    }
    return (struct pyvalue){.type = V_DICT, .dict = d};
}

static struct pyvalue eval_name(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    const struct pyvalue v = jinja_scope_get(r, scope, n->symbol);
    if (v.type != V_MISSING) return v;
    const struct str *s = r->t->symbol[n->symbol].s;
    return jinja_value_undefined(&r->h, "'%.*s' is undefined", (int)s->n, s->p);
}

static struct pyvalue eval_slice(struct template_run *r, struct scope *scope,
                                 const struct template_node *n)
{
    struct pyvalue bound[3];
    const struct pyvalue of = jinja_eval(r, scope, n->a);
    for (int i = 0; i < 3; i++)
        bound[i] = n->list[i] ? jinja_eval(r, scope, n->list[i]) : jinja_value_none();
    return jinja_op_slice(r, of, bound);
}

static struct pyvalue eval_concat(struct template_run *r, struct scope *scope,
                                  const struct template_node *n)
{
    struct text_sink s = {0};
    for (int i = 0; i < n->n; i++) jinja_sink_str(&r->h, &s, jinja_eval(r, scope, n->list[i]));
    return jinja_sink_value(&r->h, &s);
}

static bool compare(struct template_run *r, enum compare op, struct pyvalue a, struct pyvalue b)
{
    struct heap *h = &r->h;
    switch (op) {
    case CMP_EQ: return jinja_value_eq(h, a, b);
    case CMP_NE: return !jinja_value_eq(h, a, b);
    case CMP_IN: return jinja_value_in(h, a, b);
    case CMP_NOT_IN: return !jinja_value_in(h, a, b);
    case CMP_LT: return jinja_value_order(h, a, b, ORDER_LT);
    case CMP_LE: return jinja_value_order(h, a, b, ORDER_LE);
    case CMP_GT: return jinja_value_order(h, a, b, ORDER_GT);
    default: return jinja_value_order(h, a, b, ORDER_GE);
    }
}

/* Evaluates a chain of comparisons. For example, a < b < c means a < b and b < c. */
static struct pyvalue eval_compare(struct template_run *r, struct scope *scope,
                                   const struct template_node *n)
{
    struct pyvalue a = jinja_eval(r, scope, n->list[0]);
    for (int i = 1; i < n->n; i++) {
        const struct pyvalue b = jinja_eval(r, scope, n->list[i]);
        if (!compare(r, (enum compare)n->ops[i - 1], a, b)) return jinja_value_bool(false);
        a = b;
    }
    return jinja_value_bool(true);
}

static struct pyvalue eval_cond(struct template_run *r, struct scope *scope,
                                const struct template_node *n)
{
    if (jinja_value_truth(&r->h, jinja_eval(r, scope, n->a))) return jinja_eval(r, scope, n->b);
    if (n->c) return jinja_eval(r, scope, n->c);
    return jinja_value_undefined(&r->h,
                                 "the inline if-expression evaluated to false and no else section "
                                 "was defined.");
}

static struct pyvalue eval_logic(struct template_run *r, struct scope *scope,
                                 const struct template_node *n)
{
    const struct pyvalue a = jinja_eval(r, scope, n->a);
    return jinja_value_truth(&r->h, a) == (n->type == N_AND) ? jinja_eval(r, scope, n->b) : a;
}

static struct pyvalue eval_operation(struct template_run *r, struct scope *scope,
                                     const struct template_node *n)
{
    struct pyvalue a;
    switch (n->type) {
    case N_NOT: return jinja_value_bool(!jinja_value_truth(&r->h, jinja_eval(r, scope, n->a)));
    case N_NEG:
    case N_POS: return jinja_op_negate(r, jinja_eval(r, scope, n->a), n->type == N_NEG);
    case N_AND:
    case N_OR: return eval_logic(r, scope, n);
    case N_BINARY:
        a = jinja_eval(r, scope, n->a);
        return jinja_op_binary(r, n->op, a, jinja_eval(r, scope, n->b));
    case N_CONCAT: return eval_concat(r, scope, n);
    case N_COMPARE: return eval_compare(r, scope, n);
    case N_COND: return eval_cond(r, scope, n);
    case N_ATTR: return jinja_attr_get(r, jinja_eval(r, scope, n->a), n->value);
    case N_ITEM:
        a = jinja_eval(r, scope, n->a);
        return jinja_item_get(r, a, jinja_eval(r, scope, n->b));
    case N_SLICE: return eval_slice(r, scope, n);
    case N_LIST:
    case N_TUPLE: return eval_list(r, scope, n);
    case N_DICT: return eval_dict(r, scope, n);
    case N_CALL: return jinja_call_node(r, scope, n, (struct pyvalue){0});
    default:
        return jinja_call_native(r, scope, n,
                                 n->a ? jinja_eval(r, scope, n->a) : jinja_value_none());
    }
}

struct pyvalue jinja_eval(struct template_run *r, struct scope *scope,
                          const struct template_node *n)
{
    if (n->type == N_CONST) return n->value;
    if (n->type == N_NAME) return eval_name(r, scope, n);
    jinja_heap_enter(&r->h);
    jinja_heap_spend(&r->h, 1);
    r->h.line = n->line;
    const struct pyvalue v = eval_operation(r, scope, n);
    jinja_heap_leave(&r->h);
    return v;
}
