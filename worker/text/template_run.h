/* template_run.h: one rendering: statements in template_run.c, expressions in template_eval.c,
 * operators in template_op.c, attributes in template_attr.c, calls in template_call.c. */
#ifndef SEQD_TEXT_TEMPLATE_RUN_H
#define SEQD_TEXT_TEMPLATE_RUN_H

#include "worker/text/native.h"
#include "worker/text/template.h"
#include "worker/text/template_ast.h"

/* Calls of macros one inside the other. */
#define RUN_CALLS 64

/* Variables of one block; a block sees those of the blocks around it. */
struct scope {
    struct scope *up; /* NULL: the root, whose variables are v[symbol] */
    struct value *v;  /* beyond the root: [n] with their symbols beside them */
    int *symbol;
    int n, room;
};

struct run {
    struct heap h;
    const struct template *t;
    struct scope root;
    struct sink *out;  /* where statements write */
    struct sink *main; /* the output itself */
    int64_t now_s;
    int calls;                     /* macros that are open */
    struct template_output *spans; /* takes what {% generation %} encloses */
};

/* A loop that runs: what the variable `loop` is. */
struct loop {
    struct cursor items;
    struct value after, now, before, changed; /* after: V_MISSING when it was not looked at */
    const struct node *node;
    struct scope *scope;       /* around the loop */
    int64_t index0, depth0, n; /* n: its length, -1 before it is known */
    bool over;                 /* no item follows `after` */
};

struct macro_value {
    const struct macro *def;
    struct scope *scope; /* where it was defined */
};

struct bound { /* a method and what it is called on */
    const struct native *native;
    struct value of;
};

/* Changes the variables after they were read and before the template sees them. */
struct run_prepare {
    void (*fn)(struct run *r, struct dict *vars, const void *context);
    const void *context;
};
/* template_render with that; prepare may be NULL. */
int run_template(const struct template *t, const char *json, int64_t size, int64_t now_s,
                 const struct run_prepare *prepare, struct template_output *o, struct err *e);

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

enum flow run_body(struct run *r, const struct node *body, struct scope *scope);
/* What the body writes, as a string. */
struct value run_capture(struct run *r, const struct node *body, struct scope *scope);
struct value run_loop_again(struct run *r, struct loop *l, struct value items);
void run_loop(struct run *r, const struct node *n, struct scope *scope, struct value items,
              int64_t depth0);
bool loop_next(struct run *r, struct loop *l, struct value *out);
void loop_peek(struct run *r, struct loop *l);
int64_t loop_length(struct run *r, struct loop *l);

struct value scope_get(struct run *r, const struct scope *scope, int symbol); /* V_MISSING: none */
void scope_set(struct run *r, struct scope *scope, int symbol, struct value v);
struct scope *scope_new(struct run *r, struct scope *up);
/* fails: ERR_INVALID when a tuple has another number of items. */
void run_assign(struct run *r, struct scope *scope, const struct node *target, struct value v);

struct value eval(struct run *r, struct scope *scope, const struct node *n);
/* fails: ERR_INVALID for types without the operator, division by zero, more than 64 bits. */
struct value op_binary(struct run *r, int op, struct value a, struct value b);
struct value op_negate(struct run *r, struct value v, bool minus);
struct value op_slice(struct run *r, struct value v, const struct value bound[3]);
struct value attr_get(struct run *r, struct value of, struct value name);  /* of.name */
struct value item_get(struct run *r, struct value of, struct value index); /* of[index] */
struct value call_value(struct run *r, struct value f, const struct actual *raw);
struct value call_node(struct run *r, struct scope *scope, const struct node *n,
                       struct value caller); /* caller V_MISSING: none */
struct value call_native(struct run *r, struct scope *scope, const struct node *n, struct value of);
/* "" % args; escape(): the five characters of HTML. */
struct value op_format(struct run *r, struct value format, struct value args);
struct value op_escape(struct run *r, struct value v);

/* An argument as an integer. fails: ERR_INVALID naming what it is for. */
int64_t run_int(struct run *r, struct value v, const char *what);

#endif
