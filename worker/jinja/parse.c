/* Parses statements by recursive descent. For each tag there is a function, which reads the
 * body of the tag up to the word that ends it (such as endif). */
#include "worker/jinja/parse.h"

#include <stdio.h>
#include <string.h>
#include "worker/jinja/native.h"
#include "worker/jinja/template.h"

/* ---- tokens --------------------------------------------------------------------------------- */

struct template_node *jinja_parse_node(struct template_parse *p, enum node_type type)
{
    struct template_node *n = jinja_heap_alloc(p->h, sizeof *n);
    n->type = (uint8_t)type;
    n->line = p->h->line = p->at->line;
    return n;
}

void jinja_parse_append(struct template_parse *p, struct template_node *n,
                        struct template_node *item)
{
    const int64_t size = sizeof item;
    if (!(n->n & (n->n - 1))) /* the array has no free element if n is 0 or a power of two */
        n->list = jinja_heap_grow(p->h, n->list, n->n * size, (n->n ? 2 * n->n : 1) * size);
    n->list[n->n++] = item;
}

int jinja_parse_symbol(struct template_parse *p, const struct str *name)
{
    const struct pyvalue key = jinja_value_str(p->h, name->p, name->n);
    const struct pyvalue *old = jinja_dict_get(p->h, p->symbols, key);
    if (old) return (int)old->i;
    jinja_dict_set(p->h, p->symbols, key, jinja_value_int(p->symbols->n));
    return (int)p->symbols->n - 1;
}

bool jinja_parse_is_op(const struct template_parse *p, int op)
{
    return p->at->type == T_OP && p->at->op == op;
}

bool jinja_parse_is_name(const struct template_parse *p, const char *name)
{
    return p->at->type == T_NAME && p->at->text.n == (int64_t)strlen(name) &&
           !memcmp(p->at->text.p, name, strlen(name));
}

bool jinja_parse_skip_op(struct template_parse *p, int op)
{
    const bool yes = jinja_parse_is_op(p, op);
    p->at += yes;
    return yes;
}

bool jinja_parse_skip_name(struct template_parse *p, const char *name)
{
    const bool yes = jinja_parse_is_name(p, name);
    p->at += yes;
    return yes;
}

static const char *describe(const struct token *t, char *out, size_t size)
{
    static const char *const what[] = {[T_END] = "the end of the template",
                                       [T_DATA] = "text",
                                       [T_PRINT] = "{{",
                                       [T_PRINT_END] = "}}",
                                       [T_BLOCK] = "{%",
                                       [T_BLOCK_END] = "%}",
                                       [T_CONST] = "a literal"};
    if (t->type == T_NAME)
        snprintf(out, size, "'%.*s'", (int)(t->text.n < 40 ? t->text.n : 40), t->text.p);
    else if (t->type == T_OP)
        snprintf(out, size, "'%.*s'", t->op & 0xff ? 2 : 1,
                 (char[]){(char)(t->op >> 8), (char)(t->op & 0xff)});
    else
        snprintf(out, size, "%s", what[t->type]);
    return out;
}

_Noreturn void jinja_parse_unexpected(struct template_parse *p, const char *want)
{
    char got[64];
    p->h->line = p->at->line;
    jinja_heap_fail(p->h, ERR_INVALID, "expected %s, got %s", want,
                    describe(p->at, got, sizeof got));
}

void jinja_parse_expect_op(struct template_parse *p, int op)
{
    const char want[] = {'\'', (char)(op >> 8), (char)(op & 0xff ? op & 0xff : '\''),
                         (char)(op & 0xff ? '\'' : 0), 0};
    if (!jinja_parse_skip_op(p, op)) jinja_parse_unexpected(p, want);
}

struct str jinja_parse_expect_name(struct template_parse *p)
{
    if (p->at->type != T_NAME) jinja_parse_unexpected(p, "a name");
    return p->at++->text;
}

void jinja_parse_enter(struct template_parse *p)
{
    /* The limit is twice TEMPLATE_NEST, because each expression calls this function twice,
     * once for itself and once for its first operand. */
    if (++p->depth > 2 * TEMPLATE_NEST)
        jinja_heap_fail(p->h, ERR_TOO_LARGE, "more than %d constructs one inside the other",
                        TEMPLATE_NEST);
}

void jinja_parse_leave(struct template_parse *p)
{
    p->depth--;
}

static void expect_block_end(struct template_parse *p)
{
    if (p->at->type != T_BLOCK_END) jinja_parse_unexpected(p, "%}");
    p->at++;
}

/* ---- statements ----------------------------------------------------------------------------- */

static struct template_node *parse_statement(struct template_parse *p);

/* Returns true if the next tag begins with one of the words in the parameter `words`, which
 * are separated by spaces. Does not skip the tag. */
static bool ends_here(const struct template_parse *p, const char *words)
{
    const struct token *t = p->at + 1;
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (t->type == T_NAME && t->text.n == (int64_t)n && !memcmp(t->text.p, words, n))
            return true;
    }
    return false;
}

/* Parses up to a tag that begins with one of the words in the parameter `words`, and stops
 * before this word. If `words` is NULL, parses to the end of the template. */
static struct template_node *parse_body(struct template_parse *p, const char *words)
{
    struct template_node *body = jinja_parse_node(p, N_BODY), *n;
    jinja_parse_enter(p);
    jinja_parse_enter(p);
    while (p->at->type != T_END) {
        if (p->at->type == T_DATA) {
            n = jinja_parse_node(p, N_DATA);
            n->value = jinja_value_str(p->h, p->at->text.p, p->at->text.n);
            p->at++;
        } else if (p->at->type == T_PRINT) {
            p->at++;
            n = jinja_parse_node(p, N_PRINT);
            n->a = jinja_parse_tuple(p, true);
            if (p->at->type != T_PRINT_END) jinja_parse_unexpected(p, "}}");
            p->at++;
        } else {
            const bool ends = words && ends_here(p, words);
            p->at++;
            if (ends) break;
            n = parse_statement(p);
            expect_block_end(p);
        }
        if (n) jinja_parse_append(p, body, n);
    }
    if (words && p->at->type == T_END)
        jinja_heap_fail(p->h, ERR_INVALID, "the template ends before '%s' of the tag of line %d",
                        words, body->line);
    jinja_parse_leave(p);
    jinja_parse_leave(p);
    return body;
}

/* Parses the body of a tag up to one of the words that can end the tag. */
static struct template_node *parse_block(struct template_parse *p, const char *words)
{
    jinja_parse_skip_op(p, OP1(':'));
    expect_block_end(p);
    return parse_body(p, words);
}

/* Parses the body of a tag that only one word can end, and skips that word. p->soft is false
 * in the body, because a condition around the tag does not apply to the body. */
static struct template_node *parse_scope(struct template_parse *p, const char *word)
{
    const bool soft = p->soft;
    p->soft = false;
    struct template_node *body = parse_block(p, word);
    p->soft = soft;
    p->at++;
    return body;
}

static struct template_node *parse_if(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_IF);
    const bool soft = p->soft;
    p->soft = true;
    do {
        jinja_parse_append(p, n, jinja_parse_tuple(p, false));
        jinja_parse_append(p, n, parse_block(p, "elif else endif"));
    } while (jinja_parse_skip_name(p, "elif"));
    if (jinja_parse_skip_name(p, "else")) n->c = parse_block(p, "endif");
    p->at++;
    p->soft = soft;
    return n;
}

static struct template_node *parse_for(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_FOR);
    const bool soft = p->soft;
    n->a = jinja_parse_target(p, false);
    if (n->a->type == N_NAME && n->a->symbol == SYM_LOOP)
        jinja_heap_fail(p->h, ERR_INVALID, "can't assign to the variable loop of a for");
    if (!jinja_parse_skip_name(p, "in")) jinja_parse_unexpected(p, "'in'");
    n->b = jinja_parse_tuple(p, false);
    n->test = jinja_parse_skip_name(p, "if") ? jinja_parse_expression(p) : NULL;
    n->op = jinja_parse_skip_name(p, "recursive");
    p->soft = false;
    p->loops++;
    n->body = parse_block(p, "endfor else");
    p->loops--;
    if (jinja_parse_skip_name(p, "else")) n->c = parse_block(p, "endfor");
    p->at++;
    p->soft = soft;
    return n;
}

static struct template_node *parse_set(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_SET);
    n->a = jinja_parse_target(p, true);
    if (jinja_parse_skip_op(p, OP1('='))) {
        n->b = jinja_parse_tuple(p, true);
        return n;
    }
    n->type = N_SET_BLOCK;
    n->b = jinja_parse_filters(p, NULL, false);
    n->body = parse_scope(p, "endset");
    return n;
}

static void parse_signature(struct template_parse *p, struct macro *m)
{
    jinja_parse_expect_op(p, OP1('('));
    while (!jinja_parse_is_op(p, OP1(')'))) {
        const int64_t n = m->n_params;
        if (n) jinja_parse_expect_op(p, OP1(','));
        const struct str s = jinja_parse_expect_name(p);
        m->param = jinja_heap_grow(p->h, m->param, n * (int64_t)sizeof *m->param,
                                   (n + 1) * (int64_t)sizeof *m->param);
        m->param_name = jinja_heap_grow(p->h, m->param_name, n * (int64_t)sizeof *m->param_name,
                                        (n + 1) * (int64_t)sizeof *m->param_name);
        m->preset = jinja_heap_grow(p->h, m->preset, n * (int64_t)sizeof *m->preset,
                                    (n + 1) * (int64_t)sizeof *m->preset);
        m->param[n] = jinja_parse_symbol(p, &s);
        m->param_name[n] = jinja_value_str(p->h, s.p, s.n);
        m->names_caller |= m->param[n] == SYM_CALLER;
        if (jinja_parse_skip_op(p, OP1('=')))
            m->preset[n] = jinja_parse_expression(p);
        else if (n && m->preset[n - 1])
            jinja_heap_fail(p->h, ERR_INVALID, "non-default argument follows default argument");
        m->n_params++;
    }
    p->at++;
}

/* Parses a body that runs as a function. break cannot leave such a body. */
static void parse_macro_body(struct template_parse *p, struct macro *m, const char *word)
{
    const int loops = p->loops;
    p->loops = 0;
    p->macro[p->n_macros++] = m;
    m->body = parse_scope(p, word);
    p->n_macros--;
    p->loops = loops;
}

static struct macro *new_macro(struct template_parse *p)
{
    struct macro *m = jinja_heap_alloc(p->h, sizeof *m);
    m->name = jinja_value_none();
    m->symbol = -1;
    return m;
}

static struct template_node *parse_macro(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_MACRO);
    const struct str s = jinja_parse_expect_name(p);
    n->macro = new_macro(p);
    n->macro->name = jinja_value_str(p->h, s.p, s.n);
    n->macro->symbol = jinja_parse_symbol(p, &s);
    parse_signature(p, n->macro);
    parse_macro_body(p, n->macro, "endmacro");
    return n;
}

static struct template_node *parse_call_block(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_CALL_BLOCK);
    n->macro = new_macro(p);
    if (jinja_parse_is_op(p, OP1('('))) parse_signature(p, n->macro);
    n->a = jinja_parse_expression(p);
    if (n->a->type != N_CALL) jinja_parse_unexpected(p, "a call");
    parse_macro_body(p, n->macro, "endcall");
    return n;
}

static struct template_node *parse_generation(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_GENERATION);
    struct macro *m = new_macro(p);
    p->t->has_generation = true;
    parse_macro_body(p, m, "endgeneration");
    n->body = m->body;
    return n;
}

static struct template_node *parse_filter_block(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_FILTER_BLOCK);
    n->b = jinja_parse_filters(p, NULL, true);
    n->body = parse_scope(p, "endfilter");
    return n;
}

static struct template_node *parse_with(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_WITH);
    while (p->at->type != T_BLOCK_END) {
        if (n->n) jinja_parse_expect_op(p, OP1(','));
        jinja_parse_append(p, n, jinja_parse_target(p, false));
        jinja_parse_expect_op(p, OP1('='));
        jinja_parse_append(p, n, jinja_parse_expression(p));
    }
    n->body = parse_scope(p, "endwith");
    return n;
}

static struct template_node *parse_print(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_PRINT);
    n->a = jinja_parse_node(p, N_CONCAT);
    while (p->at->type != T_BLOCK_END) {
        if (n->a->n) jinja_parse_expect_op(p, OP1(','));
        jinja_parse_append(p, n->a, jinja_parse_expression(p));
    }
    return n;
}

static struct template_node *parse_leave_loop(struct template_parse *p)
{
    struct template_node *n = jinja_parse_node(p, N_BREAK);
    const bool is_continue = p->at[-1].text.n == 8;
    if (!p->loops) jinja_heap_fail(p->h, ERR_INVALID, "break or continue outside of a loop");
    if (is_continue) n->type = N_CONTINUE;
    return n;
}

static struct template_node *parse_statement(struct template_parse *p)
{
    static const struct {
        const char *name;
        /* parse is NULL if the tag is not supported */
        struct template_node *(*parse)(struct template_parse *);
    } row[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"filter", parse_filter_block},
        {"with", parse_with},
        {"print", parse_print},
        {"generation", parse_generation},
        {"break", parse_leave_loop},
        {"continue", parse_leave_loop},
        {"include", NULL},
        {"import", NULL},
        {"from", NULL},
        {"extends", NULL},
        {"block", NULL},
        {"autoescape", NULL},
    };
    p->h->line = p->at->line;
    const struct str s = jinja_parse_expect_name(p);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (s.n == (int64_t)strlen(row[i].name) && !memcmp(s.p, row[i].name, (size_t)s.n)) {
            if (row[i].parse) return row[i].parse(p);
            jinja_heap_fail(p->h, ERR_UNSUPPORTED, "the tag '%s' is not supported", row[i].name);
        }
    jinja_heap_fail(p->h, ERR_INVALID, "unknown tag '%.*s'", (int)(s.n < 64 ? s.n : 64), s.p);
}

void jinja_parse(struct heap *h, struct template *t, const struct template_tokens *tokens)
{
    static const char *const special[SYM_N] = {"loop", "caller", "kwargs", "varargs"};
    struct template_parse p = {.h = h, .t = t, .at = tokens->t, .symbols = jinja_dict_new(h)};
    for (int i = 0; i < SYM_N; i++) {
        const struct str s = {special[i], (int64_t)strlen(special[i]), 0};
        jinja_parse_symbol(&p, &s);
    }
    t->root = parse_body(&p, NULL);
    t->n_symbols = (int)p.symbols->n;
    t->symbol = jinja_heap_alloc(h, t->n_symbols * (int64_t)sizeof *t->symbol);
    for (int i = 0; i < t->n_symbols; i++) t->symbol[i] = p.symbols->e[i].key;
}
