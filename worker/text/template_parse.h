/* template_parse.h: tokens to a tree: statements in template_parse.c, expressions in
 * template_expr.c. */
#ifndef SEQD_TEXT_TEMPLATE_PARSE_H
#define SEQD_TEXT_TEMPLATE_PARSE_H

#include "worker/text/template_ast.h"
#include "worker/text/template_lex.h"

struct parse {
    struct heap *h;
    struct template *t;
    const struct token *at;
    int depth, loops; /* what is open; loops that break can leave */
    bool soft; /* within a condition: an unknown filter fails when it is reached, as in jinja2 */
    struct macro *macro[64]; /* that are open */
    int n_macros;
    struct dict *symbols; /* name -> number */
};

/* The whole tree of t->root. fails: as template_create. */
void template_parse(struct heap *h, struct template *t, const struct tokens *tokens);

/* Shared by the two files. */
struct node *parse_node(struct parse *p, enum node_type type);
void parse_append(struct parse *p, struct node *n, struct node *item); /* to its list */
int parse_symbol(struct parse *p, const struct str *name);
bool parse_is_op(const struct parse *p, int op);
bool parse_is_name(const struct parse *p, const char *name);
bool parse_skip_op(struct parse *p, int op);
bool parse_skip_name(struct parse *p, const char *name);
void parse_expect_op(struct parse *p, int op);
struct str parse_expect_name(struct parse *p);
void parse_enter(struct parse *p); /* fails: at TEMPLATE_NEST */
void parse_leave(struct parse *p);
_Noreturn void parse_unexpected(struct parse *p, const char *want);

struct node *parse_expression(struct parse *p);
struct node *parse_condition(struct parse *p); /* without "x if y" at its top */
struct node *parse_tuple(struct parse *p,
                         bool with_cond); /* one expression, or a tuple of several */
struct node *parse_target(struct parse *p, bool with_ns);
struct node *parse_filters(struct parse *p, struct node *of, bool started);
struct node *parse_postfix_of(struct parse *p, struct node *of);

#endif
