/* native.h: the functions in C that templates call, which are filters, tests, methods and global
 * functions. Each has one row in native_*.c. */
#ifndef SEQD_JINJA_NATIVE_H
#define SEQD_JINJA_NATIVE_H

#include "worker/jinja/sink.h"

#define NATIVE_PARAMS 6

struct template_run;

/* Evaluated arguments of a call. Arguments of the forms *a and **b have been expanded. */
struct actual {
    const struct pyvalue *v; /* [n] */
    int64_t n;
    const struct pyvalue *key, *kw; /* [n_kw] */
    int64_t n_kw;
};

/* The function of a row. The parameter `of` is the value to which a filter, test or method is
 * applied. The array `a` has one value for each parameter of the filter, test or method. This
 * value is V_MISSING if no argument was passed for the parameter. `raw` has all arguments. */
typedef struct pyvalue native_fn(struct template_run *r, struct pyvalue of, const struct pyvalue *a,
                                 const struct actual *raw);

struct native {
    const char *name;
    /* Names of the parameters, separated by spaces. "*" means that the function fn reads the
     * arguments from `raw`. "/a" means that the parameter a can only be passed by position. */
    const char *params;
    int n_required;
    native_fn *fn;
};

/* Tables, each of which ends with a NULL name. */
extern const struct native jinja_native_filters_text[], jinja_native_filters_seq[],
    jinja_native_filters_map[], jinja_native_tests[], jinja_native_methods_str[],
    jinja_native_methods_list[], jinja_native_methods_dict[], jinja_native_methods_loop[],
    jinja_native_functions[];

/* Find the row of a filter or test when a template is compiled. If the filter or test has no
 * row, fail with ERR_UNSUPPORTED if jinja2 has it, and with ERR_INVALID if jinja2 does not
 * have it either. If the parameter `soft` is true, return NULL instead of failing. In that
 * case only a call of the filter or test fails. */
const struct native *jinja_native_filter(struct heap *h, struct pyvalue name, bool soft);
const struct native *jinja_native_test(struct heap *h, struct pyvalue name, bool soft);
/* Return the row with that name, or NULL. */
const struct native *jinja_native_find_filter(struct pyvalue name);
const struct native *jinja_native_find_test(struct pyvalue name);
const struct native *jinja_native_find(const struct native *table, struct pyvalue name);
/* Fail with ERR_UNSUPPORTED if Python or jinja2 has a method or function of this name, but the
 * tables of this folder have no row for it. Any other name is accepted. */
void jinja_native_check_method(struct heap *h, struct pyvalue name);
void jinja_native_check_function(struct heap *h, struct pyvalue name);

/* Binds the arguments to the parameters, unless the row has the params "*", and calls the
 * function. Fails with ERR_INVALID if there are too many or too few arguments, or if an
 * argument is passed twice or has an unknown name. Also fails as the called function does. */
struct pyvalue jinja_native_call(struct template_run *r, const struct native *native,
                                 struct pyvalue of, const struct actual *raw);

#endif
