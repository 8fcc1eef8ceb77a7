/* ast.h: the syntax tree of a chat template. The parser makes the tree, and the interpreter walks
 * it. */
#ifndef SEQD_JINJA_AST_H
#define SEQD_JINJA_AST_H

#include "worker/jinja/value.h"

enum node_type {
    /* expressions */
    N_CONST,
    N_NAME,   /* symbol */
    N_LIST,   /* list */
    N_TUPLE,  /* list */
    N_DICT,   /* `list` has key, value, key, value ... */
    N_ATTR,   /* a.value */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[list[0]:list[1]:list[2]]; an element is NULL if it was left out */
    N_CALL,   /* a(args) */
    N_FILTER, /* a | native(args); if a is NULL, the filter is applied to the text of the
               * enclosing block */
    N_TEST,   /* a is native(args) */
    N_NOT,
    N_NEG,
    N_POS,
    N_AND, /* a and b */
    N_OR,
    N_BINARY,  /* a op b, where op is an operator of the lexer */
    N_CONCAT,  /* list joined by ~ */
    N_COMPARE, /* list[0] ops[0] list[1] ops[1] ... */
    N_COND,    /* b if a else c; undefined if c is NULL */
    N_NSREF,   /* symbol.value as the target of an assignment */
    /* statements */
    N_BODY,         /* list */
    N_DATA,         /* value */
    N_PRINT,        /* a */
    N_IF,           /* list has condition, body, condition, body ...; c is the else branch or
                     * NULL */
    N_FOR,          /* a is the target, b is the iterable, and c is the else branch or NULL;
                     * the members test and body are used, too; op is 1 if the loop is
                     * recursive */
    N_SET,          /* a: target, b */
    N_SET_BLOCK,    /* a: target, b: filters or NULL, body */
    N_MACRO,        /* macro */
    N_CALL_BLOCK,   /* a is the call, and macro is the body that caller() runs */
    N_FILTER_BLOCK, /* b: filters, body */
    N_WITH,         /* list: target, value ...; body */
    N_GENERATION,   /* body */
    N_BREAK,
    N_CONTINUE
};

enum compare { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };

struct template_node {
    uint8_t type;
    uint16_t op;
    int line, symbol, n; /* `n` is the number of elements of `list` */
    struct template_node *a, *b, *c, *test, *body;
    struct template_node **list;
    uint8_t *ops; /* [n - 1] of N_COMPARE: enum compare */
    struct pyvalue value;
    struct args *args;
    /* Row of the called function. NULL for a filter or test that jinja2 does not have; in that
     * case `value` has its name. */
    const struct native *native;
    struct macro *macro;
};

struct args {
    struct template_node **v; /* [n] */
    int n;
    struct pyvalue *key; /* [n_kw] names */
    struct template_node **kw;
    int n_kw;
    struct template_node *star, *star_star; /* the arguments *a and **b; NULL if the call does
                                             * not have them */
};

struct macro {
    struct pyvalue name; /* V_NONE for the body that caller() runs */
    int symbol;          /* symbol of name; -1 if the macro has no name */
    int *param;          /* [n_params] symbols */
    struct pyvalue *param_name;
    /* [n_params] defaults; NULL for a parameter without a default */
    struct template_node **preset;
    int n_params;
    bool takes_caller, takes_kwargs, takes_varargs; /* set if the body reads the variable of
                                                     * this name */
    bool names_caller;                              /* set if a parameter has the name caller */
    struct template_node *body;
};

/* Symbols of the variables that the interpreter itself sets. */
enum { SYM_LOOP, SYM_CALLER, SYM_KWARGS, SYM_VARARGS, SYM_N };

struct template
{
    struct arena arena;
    struct template_node *root;
    struct pyvalue *symbol; /* [n_symbols] names */
    int n_symbols;
    const char *source; /* [size] */
    int64_t size;
    bool has_generation;
};

#endif
