/* Expressions, by the precedence of jinja2's parser: or, and, not, comparisons, + -, ~, * / // %,
 * **, unary, postfix, filters and tests. */
#include "worker/jinja/parse.h"

#include <string.h>
#include "worker/jinja/native.h"

static struct template_node *parse_or(struct template_parse *p);
static struct template_node *parse_unary(struct template_parse *p, bool with_filter);

static struct template_node *binary(struct template_parse *p, enum node_type type,
                                    struct template_node *a, struct template_node *b)
{
    struct template_node *n = parse_node(p, type);
    n->line = a->line;
    n->a = a;
    n->b = b;
    return n;
}

static struct template_node *constant(struct template_parse *p, struct pyvalue v)
{
    struct template_node *n = parse_node(p, N_CONST);
    n->value = v;
    return n;
}

static struct pyvalue name_value(struct template_parse *p, struct str s)
{
    return value_str(p->h, s.p, s.n);
}

/* ---- literals and names --------------------------------------------------------------------- */

static bool is(struct str s, const char *z)
{
    return s.n == (int64_t)strlen(z) && !memcmp(s.p, z, (size_t)s.n);
}

/* Notes in the macros around a name which of their special variables their body reads. */
static void note_name(struct template_parse *p, int symbol)
{
    for (int i = 0; i < p->n_macros; i++) {
        p->macro[i]->takes_caller |= symbol == SYM_CALLER;
        p->macro[i]->takes_kwargs |= symbol == SYM_KWARGS;
        p->macro[i]->takes_varargs |= symbol == SYM_VARARGS;
    }
}

static struct template_node *parse_name(struct template_parse *p, bool with_ns)
{
    const struct str s = parse_expect_name(p);
    if (is(s, "true") || is(s, "True")) return constant(p, value_bool(true));
    if (is(s, "false") || is(s, "False")) return constant(p, value_bool(false));
    if (is(s, "none") || is(s, "None")) return constant(p, value_none());
    struct template_node *n = parse_node(p, N_NAME);
    n->symbol = parse_symbol(p, &s);
    if (with_ns && parse_skip_op(p, OP1('.'))) {
        n->type = N_NSREF;
        n->value = name_value(p, parse_expect_name(p));
    }
    note_name(p, n->symbol);
    return n;
}

static struct template_node *parse_strings(struct template_parse *p)
{
    struct template_node *n = constant(p, p->at++->value);
    while (n->value.type == V_STR && p->at->type == T_CONST && p->at->value.type == V_STR) {
        struct text_sink s = {0};
        sink_str(p->h, &s, n->value);
        sink_str(p->h, &s, p->at++->value);
        n->value = sink_value(p->h, &s);
    }
    return n;
}

static struct template_node *parse_brackets(struct template_parse *p)
{
    struct template_node *n = parse_node(p, N_LIST);
    p->at++;
    while (!parse_is_op(p, OP1(']'))) {
        if (n->n) parse_expect_op(p, OP1(','));
        if (parse_is_op(p, OP1(']'))) break;
        parse_append(p, n, parse_expression(p));
    }
    p->at++;
    return n;
}

static struct template_node *parse_braces(struct template_parse *p)
{
    struct template_node *n = parse_node(p, N_DICT);
    p->at++;
    while (!parse_is_op(p, OP1('}'))) {
        if (n->n) parse_expect_op(p, OP1(','));
        if (parse_is_op(p, OP1('}'))) break;
        parse_append(p, n, parse_expression(p));
        parse_expect_op(p, OP1(':'));
        parse_append(p, n, parse_expression(p));
    }
    p->at++;
    return n;
}

static bool tuple_ends(const struct template_parse *p)
{
    return p->at->type == T_PRINT_END || p->at->type == T_BLOCK_END || parse_is_op(p, OP1(')')) ||
           parse_is_op(p, OP1('=')) || parse_is_name(p, "in");
}

static struct template_node *parse_primary(struct template_parse *p, bool with_ns)
{
    struct template_node *n;
    parse_enter(p);
    if (p->at->type == T_NAME) {
        n = parse_name(p, with_ns);
    } else if (p->at->type == T_CONST) {
        n = parse_strings(p);
    } else if (parse_skip_op(p, OP1('('))) {
        n = parse_is_op(p, OP1(')')) ? parse_node(p, N_TUPLE) : parse_tuple(p, true);
        parse_expect_op(p, OP1(')'));
    } else if (parse_is_op(p, OP1('['))) {
        n = parse_brackets(p);
    } else if (parse_is_op(p, OP1('{'))) {
        n = parse_braces(p);
    } else {
        parse_unexpected(p, "an expression");
    }
    parse_leave(p);
    return n;
}

/* ---- postfix -------------------------------------------------------------------------------- */

static void add_kw(struct template_parse *p, struct args *a)
{
    a->key = heap_grow(p->h, a->key, a->n_kw * (int64_t)sizeof *a->key,
                       (a->n_kw + 1) * (int64_t)sizeof *a->key);
    a->kw = heap_grow(p->h, a->kw, a->n_kw * (int64_t)sizeof *a->kw,
                      (a->n_kw + 1) * (int64_t)sizeof *a->kw);
    a->key[a->n_kw] = name_value(p, parse_expect_name(p));
    for (int i = 0; i < a->n_kw; i++)
        if (value_eq(p->h, a->key[i], a->key[a->n_kw]))
            heap_fail(p->h, ERR_INVALID, "keyword argument '%.*s' is given twice",
                      (int)a->key[i].s->n, a->key[i].s->p);
    p->at++; /* = */
    a->kw[a->n_kw++] = parse_expression(p);
}

static void add_arg(struct template_parse *p, struct args *a)
{
    const struct token *next = p->at->type == T_END ? p->at : p->at + 1;
    if (parse_skip_op(p, OP1('*')) && !a->star && !a->star_star) {
        a->star = parse_expression(p);
    } else if (parse_skip_op(p, OP2('*', '*')) && !a->star_star) {
        a->star_star = parse_expression(p);
    } else if (p->at->type == T_NAME && next->type == T_OP && next->op == OP1('=') &&
               !a->star_star) {
        add_kw(p, a);
    } else if (!a->star && !a->star_star && !a->n_kw) {
        const int64_t size = sizeof(struct template_node *);
        if (!(a->n & (a->n - 1))) /* a power of two: full */
            a->v = heap_grow(p->h, a->v, a->n * size, (a->n ? 2 * a->n : 1) * size);
        a->v[a->n++] = parse_expression(p);
    } else {
        parse_unexpected(p, "a keyword argument");
    }
}

static struct args *parse_args(struct template_parse *p)
{
    struct args *a = heap_alloc(p->h, sizeof *a);
    parse_expect_op(p, OP1('('));
    while (!parse_is_op(p, OP1(')'))) {
        add_arg(p, a);
        if (!parse_is_op(p, OP1(')'))) parse_expect_op(p, OP1(','));
    }
    p->at++;
    return a;
}

static struct template_node *parse_call(struct template_parse *p, struct template_node *of)
{
    struct template_node *n = parse_node(p, N_CALL);
    if (of->type == N_ATTR) native_check_method(p->h, of->value);
    if (of->type == N_NAME) native_check_function(p->h, p->symbols->e[of->symbol].key);
    n->a = of;
    n->args = parse_args(p);
    return n;
}

static struct template_node *parse_slice(struct template_parse *p, struct template_node *of,
                                         struct template_node *first)
{
    struct template_node *n = parse_node(p, N_SLICE);
    n->a = of;
    parse_append(p, n, first);
    for (int i = 1; i < 3; i++) {
        const bool colon = parse_skip_op(p, OP1(':'));
        const bool more = colon && !parse_is_op(p, OP1(':')) && !parse_is_op(p, OP1(']'));
        parse_append(p, n, more ? parse_expression(p) : NULL);
    }
    return n;
}

static struct template_node *parse_subscript(struct template_parse *p, struct template_node *of)
{
    struct template_node *n;
    if (parse_skip_op(p, OP1('.'))) {
        if (p->at->type == T_NAME) {
            n = parse_node(p, N_ATTR);
            n->value = name_value(p, parse_expect_name(p));
        } else if (p->at->type == T_CONST && p->at->value.type == V_INT) {
            n = binary(p, N_ITEM, of, constant(p, p->at->value));
            p->at++;
        } else {
            parse_unexpected(p, "a name or a number");
        }
        n->a = of;
        return n;
    }
    p->at++;
    struct template_node *first = parse_is_op(p, OP1(':')) ? NULL : parse_expression(p);
    n = parse_is_op(p, OP1(':')) ? parse_slice(p, of, first) : binary(p, N_ITEM, of, first);
    if (parse_is_op(p, OP1(',')))
        heap_fail(p->h, ERR_UNSUPPORTED, "a subscript with a comma is not supported");
    parse_expect_op(p, OP1(']'));
    return n;
}

struct template_node *parse_postfix_of(struct template_parse *p, struct template_node *of)
{
    for (;;)
        if (parse_is_op(p, OP1('.')) || parse_is_op(p, OP1('[')))
            of = parse_subscript(p, of);
        else if (parse_is_op(p, OP1('(')))
            of = parse_call(p, of);
        else
            return of;
}

static struct pyvalue dotted_name(struct template_parse *p)
{
    struct str s = parse_expect_name(p);
    while (parse_skip_op(p, OP1('.'))) {
        const struct str more = parse_expect_name(p);
        s.n = more.p + more.n - s.p;
    }
    return name_value(p, s);
}

struct template_node *parse_filters(struct template_parse *p, struct template_node *of,
                                    bool started)
{
    while (started || parse_skip_op(p, OP1('|'))) {
        struct template_node *n = parse_node(p, N_FILTER);
        n->value = dotted_name(p);
        n->native = native_filter(p->h, n->value, p->soft);
        n->a = of;
        n->args = parse_is_op(p, OP1('(')) ? parse_args(p) : heap_alloc(p->h, sizeof *n->args);
        of = n;
        started = false;
    }
    return of;
}

static bool test_has_argument(const struct template_parse *p)
{
    if (p->at->type == T_NAME)
        return !parse_is_name(p, "else") && !parse_is_name(p, "or") && !parse_is_name(p, "and");
    return p->at->type == T_CONST || parse_is_op(p, OP1('[')) || parse_is_op(p, OP1('{'));
}

static struct template_node *parse_test(struct template_parse *p, struct template_node *of)
{
    const bool negated = parse_skip_name(p, "not");
    struct template_node *n = parse_node(p, N_TEST);
    n->value = dotted_name(p);
    n->native = native_test(p->h, n->value, p->soft);
    n->a = of;
    if (parse_is_op(p, OP1('('))) {
        n->args = parse_args(p);
    } else {
        n->args = heap_alloc(p->h, sizeof *n->args);
        if (test_has_argument(p)) {
            if (parse_is_name(p, "is"))
                heap_fail(p->h, ERR_INVALID, "You cannot chain multiple tests with is");
            n->args->v = heap_alloc(p->h, sizeof *n->args->v);
            n->args->v[n->args->n++] = parse_postfix_of(p, parse_primary(p, false));
        }
    }
    if (!negated) return n;
    struct template_node *not = parse_node(p, N_NOT);
    not ->a = n;
    return not ;
}

static struct template_node *parse_filters_and_tests(struct template_parse *p,
                                                     struct template_node *of)
{
    for (;;)
        if (parse_is_op(p, OP1('|')))
            of = parse_filters(p, of, false);
        else if (parse_skip_name(p, "is"))
            of = parse_test(p, of);
        else if (parse_is_op(p, OP1('(')))
            of = parse_call(p, of);
        else
            return of;
}

/* ---- operators ------------------------------------------------------------------------------ */

static struct template_node *parse_unary(struct template_parse *p, bool with_filter)
{
    struct template_node *n;
    if (parse_is_op(p, OP1('-')) || parse_is_op(p, OP1('+'))) {
        parse_enter(p);
        n = parse_node(p, parse_is_op(p, OP1('-')) ? N_NEG : N_POS);
        p->at++;
        n->a = parse_unary(p, false);
        parse_leave(p);
    } else {
        n = parse_primary(p, false);
    }
    n = parse_postfix_of(p, n);
    return with_filter ? parse_filters_and_tests(p, n) : n;
}

static struct template_node *operation(struct template_parse *p, struct template_node *a,
                                       struct template_node *(*next)(struct template_parse *))
{
    const uint16_t op = p->at++->op;
    struct template_node *n = binary(p, N_BINARY, a, next(p));
    n->op = op;
    return n;
}

static struct template_node *parse_factor(struct template_parse *p)
{
    return parse_unary(p, true);
}

static struct template_node *parse_pow(struct template_parse *p)
{
    struct template_node *n = parse_factor(p);
    while (parse_is_op(p, OP2('*', '*'))) n = operation(p, n, parse_factor);
    return n;
}

static struct template_node *parse_product(struct template_parse *p)
{
    struct template_node *n = parse_pow(p);
    while (parse_is_op(p, OP1('*')) || parse_is_op(p, OP1('/')) || parse_is_op(p, OP1('%')) ||
           parse_is_op(p, OP2('/', '/')))
        n = operation(p, n, parse_pow);
    return n;
}

static struct template_node *parse_concat(struct template_parse *p)
{
    struct template_node *first = parse_product(p);
    if (!parse_is_op(p, OP1('~'))) return first;
    struct template_node *n = parse_node(p, N_CONCAT);
    parse_append(p, n, first);
    while (parse_skip_op(p, OP1('~'))) parse_append(p, n, parse_product(p));
    return n;
}

static struct template_node *parse_sum(struct template_parse *p)
{
    struct template_node *n = parse_concat(p);
    while (parse_is_op(p, OP1('+')) || parse_is_op(p, OP1('-'))) n = operation(p, n, parse_concat);
    return n;
}

/* Skips the comparison that begins here. Returns it; -1: none. */
static int comparison(struct template_parse *p)
{
    static const struct {
        int op, cmp;
    } row[] = {{OP2('=', '='), CMP_EQ}, {OP2('!', '='), CMP_NE}, {OP1('<'), CMP_LT},
               {OP2('<', '='), CMP_LE}, {OP1('>'), CMP_GT},      {OP2('>', '='), CMP_GE}};
    for (int i = 0; i < 6; i++)
        if (parse_skip_op(p, row[i].op)) return row[i].cmp;
    if (parse_skip_name(p, "in")) return CMP_IN;
    if (!parse_is_name(p, "not")) return -1;
    p->at++;
    if (parse_skip_name(p, "in")) return CMP_NOT_IN;
    p->at--;
    return -1;
}

static struct template_node *parse_compare(struct template_parse *p)
{
    struct template_node *first = parse_sum(p), *n = NULL;
    for (int cmp; (cmp = comparison(p)) >= 0;) {
        if (!n) {
            n = parse_node(p, N_COMPARE);
            n->line = first->line;
            parse_append(p, n, first);
        }
        n->ops = heap_grow(p->h, n->ops, n->n - 1, n->n);
        n->ops[n->n - 1] = (uint8_t)cmp;
        parse_append(p, n, parse_sum(p));
    }
    return n ? n : first;
}

static struct template_node *parse_not(struct template_parse *p)
{
    if (!parse_skip_name(p, "not")) return parse_compare(p);
    parse_enter(p);
    struct template_node *n = parse_node(p, N_NOT);
    n->a = parse_not(p);
    parse_leave(p);
    return n;
}

static struct template_node *parse_and(struct template_parse *p)
{
    struct template_node *n = parse_not(p);
    while (parse_skip_name(p, "and")) n = binary(p, N_AND, n, parse_not(p));
    return n;
}

static struct template_node *parse_or(struct template_parse *p)
{
    struct template_node *n = parse_and(p);
    while (parse_skip_name(p, "or")) n = binary(p, N_OR, n, parse_and(p));
    return n;
}

struct template_node *parse_condition(struct template_parse *p)
{
    return parse_or(p);
}

struct template_node *parse_expression(struct template_parse *p)
{
    const bool soft = p->soft;
    parse_enter(p);
    struct template_node *n = parse_or(p);
    while (parse_skip_name(p, "if")) {
        struct template_node *cond = parse_node(p, N_COND);
        cond->b = n;
        p->soft = true;
        cond->a = parse_or(p);
        cond->c = parse_skip_name(p, "else") ? parse_expression(p) : NULL;
        p->soft = soft;
        n = cond;
    }
    parse_leave(p);
    return n;
}

/* Collects items up to one that no comma follows: a tuple if there was a comma. */
static struct template_node *collect(struct template_parse *p,
                                     struct template_node *(*item)(struct template_parse *),
                                     const char *want)
{
    struct template_node *first = NULL, *n = NULL;
    while (!tuple_ends(p)) {
        struct template_node *next = item(p);
        if (!first) first = next;
        if (n) parse_append(p, n, next);
        if (!parse_is_op(p, OP1(','))) break;
        if (!n) {
            n = parse_node(p, N_TUPLE);
            parse_append(p, n, first);
        }
        p->at++;
    }
    if (!first) parse_unexpected(p, want);
    return n ? n : first;
}

struct template_node *parse_tuple(struct template_parse *p, bool with_cond)
{
    return collect(p, with_cond ? parse_expression : parse_condition, "an expression");
}

static void check_target(struct template_parse *p, const struct template_node *n)
{
    if (n->type == N_TUPLE)
        for (int i = 0; i < n->n; i++) check_target(p, n->list[i]);
    else if (n->type != N_NAME && n->type != N_NSREF)
        heap_fail(p->h, ERR_INVALID, "can't assign to this expression");
}

static struct template_node *target_or_namespace(struct template_parse *p)
{
    return parse_primary(p, true);
}

static struct template_node *target_item(struct template_parse *p)
{
    return parse_primary(p, false);
}

struct template_node *parse_target(struct template_parse *p, bool with_ns)
{
    struct template_node *n = collect(p, with_ns ? target_or_namespace : target_item,
                                      "a name to assign to");
    check_target(p, n);
    return n;
}
