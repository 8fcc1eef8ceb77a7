/* run.h: one rendering of a template. Statements run in run.c, expressions in eval.c, operators in
 * op.c, attributes in attr.c, and calls in call.c. */
#ifndef SEQD_JINJA_RUN_H
#define SEQD_JINJA_RUN_H

#include "worker/jinja/native.h"
#include "worker/jinja/template.h"
#include "worker/jinja/ast.h"

/* Limit of nested macro calls. */
#define RUN_CALLS 64

/* Variables of one block. Code in a block can also read the variables of the blocks around it. */
struct scope {
    struct scope *up;  /* NULL for the root, whose variables are v[symbol] */
    struct pyvalue *v; /* in every scope except the root, the values of n variables, whose
                        * symbols are in `symbol` */
    int *symbol;
    int n, room;
};

struct template_run {
    struct heap h;
    const struct template *t;
    struct scope root;
    struct text_sink *out;  /* sink to which statements write their text */
    struct text_sink *main; /* the output itself */
    int64_t now_s;
    int calls;                     /* number of macro calls that are running */
    struct template_output *spans; /* output to which the spans of {% generation %} tags are
                                    * added */
};

/* A running loop: the value of the variable `loop`. */
struct template_loop {
    struct cursor items;
    struct pyvalue after, now, before, changed; /* `after` is V_MISSING until it is read */
    const struct template_node *node;
    struct scope *scope;       /* scope around the loop */
    int64_t index0, depth0, n; /* n is the length of the loop, or -1 while the length is not
                                * known */
    bool over;                 /* set if there is no item after `after` */
};

struct macro_value {
    const struct macro *def;
    struct scope *scope; /* scope in which the macro was defined */
};

struct bound { /* a method, and the value on which it is called */
    const struct native *native;
    struct pyvalue of;
};

/* Functions that jinja_run_template calls. Each pointer may be NULL. fn() may change the
 * variables before the rendering. after() is called when the rendering has ended. It can check
 * how the template used the variables. If the rendering has failed, failed() is called instead
 * of after(). failed() must not allocate from the heap. */
struct run_prepare {
    void (*fn)(struct template_run *r, struct dict *vars, const void *context);
    const void *context;
    void (*after)(struct template_run *r, const void *context);
    void (*failed)(const struct template_run *r, const void *context);
};
/* Renders as jinja_render does, and calls the functions of `prepare`, which may be NULL. */
int jinja_run_template(const struct template *t, const char *json, int64_t size, int64_t now_s,
                       const struct run_prepare *prepare, struct template_output *o, struct err *e);

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

/* Returns the output of the body, as a string. */
struct pyvalue jinja_run_capture(struct template_run *r, const struct template_node *body,
                                 struct scope *scope);
struct pyvalue jinja_run_loop_again(struct template_run *r, struct template_loop *l,
                                    struct pyvalue items);
void jinja_loop_peek(struct template_run *r, struct template_loop *l);
int64_t jinja_loop_length(struct template_run *r, struct template_loop *l);

struct pyvalue jinja_scope_get(struct template_run *r, const struct scope *scope,
                               int symbol); /* returns V_MISSING if the variable has no value */
void jinja_scope_set(struct template_run *r, struct scope *scope, int symbol, struct pyvalue v);
struct scope *jinja_scope_new(struct template_run *r, struct scope *up);

struct pyvalue jinja_eval(struct template_run *r, struct scope *scope,
                          const struct template_node *n);
/* Apply an operator. Fail with ERR_INVALID if the operator is not defined for the types of the
 * operands, or if a number is divided by zero. Fail with ERR_TOO_LARGE if the result is an
 * integer that does not fit 64 bits, or a text that is longer than SINK_LIMIT. Fail with
 * ERR_UNSUPPORTED for a % format that is not implemented. */
struct pyvalue jinja_op_binary(struct template_run *r, int op, struct pyvalue a, struct pyvalue b);
struct pyvalue jinja_op_negate(struct template_run *r, struct pyvalue v, bool minus);
struct pyvalue jinja_op_slice(struct template_run *r, struct pyvalue v,
                              const struct pyvalue bound[3]);
struct pyvalue jinja_attr_get(struct template_run *r, struct pyvalue of,
                              struct pyvalue name); /* of.name */
struct pyvalue jinja_item_get(struct template_run *r, struct pyvalue of,
                              struct pyvalue index); /* of[index] */
struct pyvalue jinja_call_node(struct template_run *r, struct scope *scope,
                               const struct template_node *n,
                               /* the parameter `caller` is V_MISSING if there is no caller */
                               struct pyvalue caller);
struct pyvalue jinja_call_native(struct template_run *r, struct scope *scope,
                                 const struct template_node *n, struct pyvalue of);
/* Returns str(v), marked as safe, in which the five special characters of HTML are escaped.
 * Returns a safe string unchanged. */
struct pyvalue jinja_op_escape(struct template_run *r, struct pyvalue v);

/* Returns an argument as an integer. Fails with ERR_INVALID. The parameter `what` is the
 * purpose of the argument. It is used in the text of the error. */
int64_t jinja_run_int(struct template_run *r, struct pyvalue v, const char *what);

#endif
