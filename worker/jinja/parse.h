/* parse.h: makes a tree from tokens. Statements are parsed in parse.c, and expressions in
 * expr.c. */
#ifndef SEQD_JINJA_PARSE_H
#define SEQD_JINJA_PARSE_H

#include "worker/jinja/ast.h"
#include "worker/jinja/lex.h"

struct template_parse {
    struct heap *h;
    struct template *t;
    const struct token *at;
    int depth, loops; /* `depth` is the number of open jinja_parse_enter() calls; `loops` is
                       * the number of open loops that {% break %} can leave */
    bool soft; /* whether the parser is inside an if; in an if, an unknown filter or test fails
                * only when it runs, as in jinja2 */
    struct macro *macro[64]; /* stack of the macros whose bodies are being parsed */
    int n_macros;
    struct dict *symbols; /* maps a name to the index of its symbol */
};

/* Parses the tokens, and sets t->root. Fails as jinja_create does. */
void jinja_parse(struct heap *h, struct template *t, const struct template_tokens *tokens);

/* Functions that parse.c and expr.c share. */
struct template_node *jinja_parse_node(struct template_parse *p, enum node_type type);
void jinja_parse_append(struct template_parse *p, struct template_node *n,
                        struct template_node *item); /* appends item to n->list */
int jinja_parse_symbol(struct template_parse *p, const struct str *name);
bool jinja_parse_is_op(const struct template_parse *p, int op);
bool jinja_parse_is_name(const struct template_parse *p, const char *name);
bool jinja_parse_skip_op(struct template_parse *p, int op);
bool jinja_parse_skip_name(struct template_parse *p, const char *name);
void jinja_parse_expect_op(struct template_parse *p, int op);
struct str jinja_parse_expect_name(struct template_parse *p);
void jinja_parse_enter(struct template_parse *p); /* fails if more than 2 * TEMPLATE_NEST calls
                                                   * are open */
void jinja_parse_leave(struct template_parse *p);
_Noreturn void jinja_parse_unexpected(struct template_parse *p, const char *want);

struct template_node *jinja_parse_expression(struct template_parse *p);
struct template_node *jinja_parse_tuple(struct template_parse *p,
                                        bool with_cond); /* parses one expression, or several
                                                          * expressions as a tuple */
struct template_node *jinja_parse_target(struct template_parse *p, bool with_ns);
struct template_node *jinja_parse_filters(struct template_parse *p, struct template_node *of,
                                          bool started);

#endif
