/* ast.h: the syntax tree of a chat template, which the parser makes and the interpreter walks. */
#ifndef SEQD_JINJA_AST_H
#define SEQD_JINJA_AST_H

#include "worker/jinja/value.h"

enum node_type {
    /* expressions */
    N_CONST,
    N_NAME,   /* symbol */
    N_LIST,   /* list */
    N_TUPLE,  /* list */
    N_DICT,   /* list: key, value, key, value ... */
    N_ATTR,   /* a.value */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a[list[0]:list[1]:list[2]]; an element is NULL if it was left out */
    N_CALL,   /* a(args) */
    N_FILTER, /* a | native(args); if a is NULL, it filters the text of the enclosing block */
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
    N_IF,           /* list has condition, body, condition, body ... ; c is the else branch, or
                     * NULL */
    N_FOR,          /* a: target, b: iterable, test, body, c: else branch or NULL; op is 1 if
                     * recursive */
    N_SET,          /* a: target, b */
    N_SET_BLOCK,    /* a: target, b: filters or NULL, body */
    N_MACRO,        /* macro */
    N_CALL_BLOCK,   /* a is the call, and macro the body that caller() runs */
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
    int line, symbol, n; /* n: of list */
    struct template_node *a, *b, *c, *test, *body;
    struct template_node **list;
    uint8_t *ops; /* [n - 1] of N_COMPARE: enum compare */
    struct pyvalue value;
    struct args *args;
    const struct native
        *native; /* NULL for a filter or test that jinja2 lacks, too; value is then its name */
    struct macro *macro;
};

struct args {
    struct template_node **v; /* [n] */
    int n;
    struct pyvalue *key; /* [n_kw] names */
    struct template_node **kw;
    int n_kw;
    struct template_node *star, *star_star; /* *a, **b, or NULL */
};

struct macro {
    struct pyvalue name; /* V_NONE for the body that caller() runs */
    int symbol;          /* symbol of name; -1 if there is none */
    int *param;          /* [n_params] symbols */
    struct pyvalue *param_name;
    struct template_node **preset; /* [n_params] defaults; NULL if there is none */
    int n_params;
    bool takes_caller, takes_kwargs, takes_varargs; /* the body reads this variable */
    bool names_caller;                              /* a parameter is named caller */
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
