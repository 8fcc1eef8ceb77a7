/* Parses expressions with the precedence of jinja2's parser. From the weakest to the
 * strongest, the operators are or, and, not, comparisons, + -, ~, * / // %, **, unary,
 * postfix, filters and tests. */
#include "worker/jinja/parse.h"

#include <string.h>
#include "worker/jinja/native.h"

/* Parses an expression that is not of the form "x if y". */
static struct template_node *parse_or(struct template_parse *p);
static struct template_node *parse_unary(struct template_parse *p, bool with_filter);

static struct template_node *binary(struct template_parse *p, enum node_type type,
                                    struct template_node *a, struct template_node *b)
{
    struct template_node *n = jinja_parse_node(p, type);
    n->line = a->line;
    n->a = a;
    n->b = b;
    return n;
}

static struct template_node *constant(struct template_parse *p, struct pyvalue v)
{
    struct template_node *n = jinja_parse_node(p, N_CONST);
    n->value = v;
    return n;
}

static struct pyvalue name_value(struct template_parse *p, struct str s)
{
    return jinja_value_str(p->h, s.p, s.n);
}

/* ---- literals and names --------------------------------------------------------------------- */

static bool is(struct str s, const char *z)
{
    return s.n == (int64_t)strlen(z) && !memcmp(s.p, z, (size_t)s.n);
}

/* If the symbol is a special variable, records in each open macro that the macro's body reads
 * it. */
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
    const struct str s = jinja_parse_expect_name(p);
    if (is(s, "true") || is(s, "True")) return constant(p, jinja_value_bool(true));
    if (is(s, "false") || is(s, "False")) return constant(p, jinja_value_bool(false));
    if (is(s, "none") || is(s, "None")) return constant(p, jinja_value_none());
    struct template_node *n = jinja_parse_node(p, N_NAME);
    n->symbol = jinja_parse_symbol(p, &s);
    if (with_ns && jinja_parse_skip_op(p, OP1('.'))) {
        n->type = N_NSREF;
        n->value = name_value(p, jinja_parse_expect_name(p));
    }
    note_name(p, n->symbol);
    return n;
}

static struct template_node *parse_strings(struct template_parse *p)
{
    struct template_node *n = constant(p, p->at++->value);
    while (n->value.type == V_STR && p->at->type == T_CONST && p->at->value.type == V_STR) {
        struct text_sink s = {0};
        jinja_sink_str(p->h, &s, n->value);
        jinja_sink_str(p->h, &s, p->at++->value);
        n->value = jinja_sink_value(p->h, &s);
    }
    return n;
}

static struct template_node *parse_brackets(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_LIST);
    p->at++;
    while (!jinja_parse_is_op(p, OP1(']'))) {
        if (n->n) jinja_parse_expect_op(p, OP1(','));
        if (jinja_parse_is_op(p, OP1(']'))) break;
        jinja_parse_append(p, n, jinja_parse_expression(p));
    }
    p->at++;
    return n;
}

static struct template_node *parse_braces(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_DICT);
    p->at++;
    while (!jinja_parse_is_op(p, OP1('}'))) {
        if (n->n) jinja_parse_expect_op(p, OP1(','));
        if (jinja_parse_is_op(p, OP1('}'))) break;
        jinja_parse_append(p, n, jinja_parse_expression(p));
        jinja_parse_expect_op(p, OP1(':'));
        jinja_parse_append(p, n, jinja_parse_expression(p));
    }
    p->at++;
    return n;
}

static bool tuple_ends(const struct template_parse *p)
{
    return p->at->type == T_PRINT_END || p->at->type == T_BLOCK_END ||
           jinja_parse_is_op(p, OP1(')')) || jinja_parse_is_op(p, OP1('=')) ||
           jinja_parse_is_name(p, "in");
}

static struct template_node *parse_primary(struct template_parse *p, bool with_ns)
{
    struct template_node *n;
    jinja_parse_enter(p);
    if (p->at->type == T_NAME) {
        n = parse_name(p, with_ns);
    } else if (p->at->type == T_CONST) {
        n = parse_strings(p);
    } else if (jinja_parse_skip_op(p, OP1('('))) {
        n = jinja_parse_is_op(p, OP1(')')) ? jinja_parse_node(p, N_TUPLE)
                                           : jinja_parse_tuple(p, true);
        jinja_parse_expect_op(p, OP1(')'));
    } else if (jinja_parse_is_op(p, OP1('['))) {
        n = parse_brackets(p);
    } else if (jinja_parse_is_op(p, OP1('{'))) {
        n = parse_braces(p);
    } else {
        jinja_parse_unexpected(p, "an expression");
    }
    jinja_parse_leave(p);
    return n;
}

/* ---- postfix -------------------------------------------------------------------------------- */

static void add_kw(struct template_parse *p, struct args *a)
{
    a->key = jinja_heap_grow(p->h, a->key, a->n_kw * (int64_t)sizeof *a->key,
                             (a->n_kw + 1) * (int64_t)sizeof *a->key);
    a->kw = jinja_heap_grow(p->h, a->kw, a->n_kw * (int64_t)sizeof *a->kw,
                            (a->n_kw + 1) * (int64_t)sizeof *a->kw);
    a->key[a->n_kw] = name_value(p, jinja_parse_expect_name(p));
    for (int i = 0; i < a->n_kw; i++)
        if (jinja_value_eq(p->h, a->key[i], a->key[a->n_kw]))
            jinja_heap_fail(p->h, ERR_INVALID, "keyword argument '%.*s' is given twice",
                            (int)a->key[i].s->n, a->key[i].s->p);
    p->at++; /* = */
    a->kw[a->n_kw++] = jinja_parse_expression(p);
}

static void add_arg(struct template_parse *p, struct args *a)
{
    const struct token *next = p->at->type == T_END ? p->at : p->at + 1;
    if (jinja_parse_skip_op(p, OP1('*')) && !a->star && !a->star_star) {
        a->star = jinja_parse_expression(p);
    } else if (jinja_parse_skip_op(p, OP2('*', '*')) && !a->star_star) {
        a->star_star = jinja_parse_expression(p);
    } else if (p->at->type == T_NAME && next->type == T_OP && next->op == OP1('=') &&
               !a->star_star) {
        add_kw(p, a);
    } else if (!a->star && !a->star_star && !a->n_kw) {
        const int64_t size = sizeof(struct template_node *);
        if (!(a->n & (a->n - 1))) /* whenever n is a power of two, the array has no free element */
            a->v = jinja_heap_grow(p->h, a->v, a->n * size, (a->n ? 2 * a->n : 1) * size);
        a->v[a->n++] = jinja_parse_expression(p);
    } else {
        jinja_parse_unexpected(p, "a keyword argument");
    }
}

static struct args *parse_args(struct template_parse *p)
{
    struct args *a = jinja_heap_alloc(p->h, sizeof *a);
    jinja_parse_expect_op(p, OP1('('));
    while (!jinja_parse_is_op(p, OP1(')'))) {
        add_arg(p, a);
        if (!jinja_parse_is_op(p, OP1(')'))) jinja_parse_expect_op(p, OP1(','));
    }
    p->at++;
    return a;
}

static struct template_node *parse_call(struct template_parse *p, struct template_node *of)
{
    struct template_node *n = jinja_parse_node(p, N_CALL);
    if (of->type == N_ATTR) jinja_native_check_method(p->h, of->value);
    if (of->type == N_NAME) jinja_native_check_function(p->h, p->symbols->e[of->symbol].key);
    n->a = of;
    n->args = parse_args(p);
    return n;
}

static struct template_node *parse_slice(struct template_parse *p, struct template_node *of,
                                         struct template_node *first)
{
    struct template_node *n = jinja_parse_node(p, N_SLICE);
    n->a = of;
    jinja_parse_append(p, n, first);
    for (int i = 1; i < 3; i++) {
        const bool colon = jinja_parse_skip_op(p, OP1(':'));
        const bool more = colon && !jinja_parse_is_op(p, OP1(':')) &&
                          !jinja_parse_is_op(p, OP1(']'));
        jinja_parse_append(p, n, more ? jinja_parse_expression(p) : NULL);
    }
    return n;
}

static struct template_node *parse_subscript(struct template_parse *p, struct template_node *of)
{
    struct template_node *n;
    if (jinja_parse_skip_op(p, OP1('.'))) {
        if (p->at->type == T_NAME) {
            n = jinja_parse_node(p, N_ATTR);
            n->value = name_value(p, jinja_parse_expect_name(p));
        } else if (p->at->type == T_CONST && p->at->value.type == V_INT) {
            n = binary(p, N_ITEM, of, constant(p, p->at->value));
            p->at++;
        } else {
            jinja_parse_unexpected(p, "a name or a number");
        }
        n->a = of;
        return n;
    }
    p->at++;
    struct template_node *first = jinja_parse_is_op(p, OP1(':')) ? NULL : jinja_parse_expression(p);
    n = jinja_parse_is_op(p, OP1(':')) ? parse_slice(p, of, first) : binary(p, N_ITEM, of, first);
    if (jinja_parse_is_op(p, OP1(',')))
        jinja_heap_fail(p->h, ERR_UNSUPPORTED, "a subscript with a comma is not supported");
    jinja_parse_expect_op(p, OP1(']'));
    return n;
}

static struct template_node *parse_postfix_of(struct template_parse *p, struct template_node *of)
{
    for (;;)
        if (jinja_parse_is_op(p, OP1('.')) || jinja_parse_is_op(p, OP1('[')))
            of = parse_subscript(p, of);
        else if (jinja_parse_is_op(p, OP1('(')))
            of = parse_call(p, of);
        else
            return of;
}

static struct pyvalue dotted_name(struct template_parse *p)
{
    struct str s = jinja_parse_expect_name(p);
    while (jinja_parse_skip_op(p, OP1('.'))) {
        const struct str more = jinja_parse_expect_name(p);
        s.n = more.p + more.n - s.p;
    }
    return name_value(p, s);
}

struct template_node *jinja_parse_filters(struct template_parse *p, struct template_node *of,
                                          bool started)
{
    while (started || jinja_parse_skip_op(p, OP1('|'))) {
        struct template_node *n = jinja_parse_node(p, N_FILTER);
        n->value = dotted_name(p);
        n->native = jinja_native_filter(p->h, n->value, p->soft);
        n->a = of;
        n->args = jinja_parse_is_op(p, OP1('(')) ? parse_args(p)
                                                 : jinja_heap_alloc(p->h, sizeof *n->args);
        of = n;
        started = false;
    }
    return of;
}

static bool test_has_argument(const struct template_parse *p)
{
    if (p->at->type == T_NAME)
        return !jinja_parse_is_name(p, "else") && !jinja_parse_is_name(p, "or") &&
               !jinja_parse_is_name(p, "and");
    return p->at->type == T_CONST || jinja_parse_is_op(p, OP1('[')) ||
           jinja_parse_is_op(p, OP1('{'));
}

static struct template_node *parse_test(struct template_parse *p, struct template_node *of)
{
    const bool negated = jinja_parse_skip_name(p, "not");
    struct template_node *n = jinja_parse_node(p, N_TEST);
    n->value = dotted_name(p);
    n->native = jinja_native_test(p->h, n->value, p->soft);
    n->a = of;
    if (jinja_parse_is_op(p, OP1('('))) {
        n->args = parse_args(p);
    } else {
        n->args = jinja_heap_alloc(p->h, sizeof *n->args);
        if (test_has_argument(p)) {
            if (jinja_parse_is_name(p, "is"))
                jinja_heap_fail(p->h, ERR_INVALID, "You cannot chain multiple tests with is");
            n->args->v = jinja_heap_alloc(p->h, sizeof *n->args->v);
            n->args->v[n->args->n++] = parse_postfix_of(p, parse_primary(p, false));
        }
    }
    if (!negated) return n;
    struct template_node *not = jinja_parse_node(p, N_NOT);
    not ->a = n;
    return not ;
}

static struct template_node *parse_filters_and_tests(struct template_parse *p,
                                                     struct template_node *of)
{
    for (;;)
        if (jinja_parse_is_op(p, OP1('|')))
            of = jinja_parse_filters(p, of, false);
        else if (jinja_parse_skip_name(p, "is"))
            of = parse_test(p, of);
        else if (jinja_parse_is_op(p, OP1('(')))
            of = parse_call(p, of);
        else
            return of;
}

/* ---- operators ------------------------------------------------------------------------------ */

static struct template_node *parse_unary(struct template_parse *p, bool with_filter)
{
    struct template_node *n;
    if (jinja_parse_is_op(p, OP1('-')) || jinja_parse_is_op(p, OP1('+'))) {
        jinja_parse_enter(p);
        n = jinja_parse_node(p, jinja_parse_is_op(p, OP1('-')) ? N_NEG : N_POS);
        p->at++;
        n->a = parse_unary(p, false);
        jinja_parse_leave(p);
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
    while (jinja_parse_is_op(p, OP2('*', '*'))) n = operation(p, n, parse_factor);
    return n;
}

static struct template_node *parse_product(struct template_parse *p)
{
    struct template_node *n = parse_pow(p);
    while (jinja_parse_is_op(p, OP1('*')) || jinja_parse_is_op(p, OP1('/')) ||
           jinja_parse_is_op(p, OP1('%')) || jinja_parse_is_op(p, OP2('/', '/')))
        n = operation(p, n, parse_pow);
    return n;
}

static struct template_node *parse_concat(struct template_parse *p)
{
    struct template_node *first = parse_product(p);
    if (!jinja_parse_is_op(p, OP1('~'))) return first;
    struct template_node *n = jinja_parse_node(p, N_CONCAT);
    jinja_parse_append(p, n, first);
    while (jinja_parse_skip_op(p, OP1('~'))) jinja_parse_append(p, n, parse_product(p));
    return n;
}

static struct template_node *parse_sum(struct template_parse *p)
{
    struct template_node *n = parse_concat(p);
    while (jinja_parse_is_op(p, OP1('+')) || jinja_parse_is_op(p, OP1('-')))
        n = operation(p, n, parse_concat);
    return n;
}

/* Skips a comparison operator and returns its enum compare. Returns -1 if the next token is
 * not a comparison operator. */
static int comparison(struct template_parse *p)
{
    static const struct {
        int op, cmp;
    } row[] = {{OP2('=', '='), CMP_EQ}, {OP2('!', '='), CMP_NE}, {OP1('<'), CMP_LT},
               {OP2('<', '='), CMP_LE}, {OP1('>'), CMP_GT},      {OP2('>', '='), CMP_GE}};
    for (int i = 0; i < 6; i++)
        if (jinja_parse_skip_op(p, row[i].op)) return row[i].cmp;
    if (jinja_parse_skip_name(p, "in")) return CMP_IN;
    if (!jinja_parse_is_name(p, "not")) return -1;
    p->at++;
    if (jinja_parse_skip_name(p, "in")) return CMP_NOT_IN;
    p->at--;
    return -1;
}

static struct template_node *parse_compare(struct template_parse *p)
{
    struct template_node *first = parse_sum(p), *n = NULL;
    for (int cmp; (cmp = comparison(p)) >= 0;) {
        if (!n) {
            n = jinja_parse_node(p, N_COMPARE);
            n->line = first->line;
            jinja_parse_append(p, n, first);
        }
        n->ops = jinja_heap_grow(p->h, n->ops, n->n - 1, n->n);
        n->ops[n->n - 1] = (uint8_t)cmp;
        jinja_parse_append(p, n, parse_sum(p));
    }
    return n ? n : first;
}

static struct template_node *parse_not(struct template_parse *p)
{
    if (!jinja_parse_skip_name(p, "not")) return parse_compare(p);
    jinja_parse_enter(p);
    struct template_node *n = jinja_parse_node(p, N_NOT);
    n->a = parse_not(p);
    jinja_parse_leave(p);
    return n;
}

static struct template_node *parse_and(struct template_parse *p)
{
    struct template_node *n = parse_not(p);
    while (jinja_parse_skip_name(p, "and")) n = binary(p, N_AND, n, parse_not(p));
    return n;
}

static struct template_node *parse_or(struct template_parse *p)
{
    struct template_node *n = parse_and(p);
    while (jinja_parse_skip_name(p, "or")) n = binary(p, N_OR, n, parse_and(p));
    return n;
}

struct template_node *jinja_parse_expression(struct template_parse *p)
{
    const bool soft = p->soft;
    jinja_parse_enter(p);
    struct template_node *n = parse_or(p);
    while (jinja_parse_skip_name(p, "if")) {
        struct template_node *cond = jinja_parse_node(p, N_COND);
        cond->b = n;
        p->soft = true;
        cond->a = parse_or(p);
        cond->c = jinja_parse_skip_name(p, "else") ? jinja_parse_expression(p) : NULL;
        p->soft = soft;
        n = cond;
    }
    jinja_parse_leave(p);
    return n;
}

/* Collects items separated by commas. Returns a tuple if there was a comma. Otherwise returns
 * the single item. */
static struct template_node *collect(struct template_parse *p,
                                     struct template_node *(*item)(struct template_parse *),
                                     const char *want)
{
    struct template_node *first = NULL, *n = NULL;
    while (!tuple_ends(p)) {
        struct template_node *next = item(p);
        if (!first) first = next;
        if (n) jinja_parse_append(p, n, next);
        if (!jinja_parse_is_op(p, OP1(','))) break;
        if (!n) {
            n = jinja_parse_node(p, N_TUPLE);
            jinja_parse_append(p, n, first);
        }
        p->at++;
    }
    if (!first) jinja_parse_unexpected(p, want);
    return n ? n : first;
}

struct template_node *jinja_parse_tuple(struct template_parse *p, bool with_cond)
{
    return collect(p, with_cond ? jinja_parse_expression : parse_or, "an expression");
}

static void check_target(struct template_parse *p, const struct template_node *n)
{
    if (n->type == N_TUPLE)
        for (int i = 0; i < n->n; i++) check_target(p, n->list[i]);
    else if (n->type != N_NAME && n->type != N_NSREF)
        jinja_heap_fail(p->h, ERR_INVALID, "can't assign to this expression");
}

static struct template_node *target_or_namespace(struct template_parse *p)
{
    return parse_primary(p, true);
}

static struct template_node *target_item(struct template_parse *p)
{
    return parse_primary(p, false);
}

struct template_node *jinja_parse_target(struct template_parse *p, bool with_ns)
{
    struct template_node *n = collect(p, with_ns ? target_or_namespace : target_item,
                                      "a name to assign to");
    check_target(p, n);
    return n;
}
