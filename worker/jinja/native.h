/* native.h: the functions in C that templates call: filters, tests, methods and global functions,
 * with one row each in native_*.c. */
#ifndef SEQD_JINJA_NATIVE_H
#define SEQD_JINJA_NATIVE_H

#include "worker/jinja/sink.h"

#define NATIVE_PARAMS 6

struct template_run;

/* Arguments of a call, evaluated; *a and **b are expanded. */
struct actual {
    const struct pyvalue *v; /* [n] */
    int64_t n;
    const struct pyvalue *key, *kw; /* [n_kw] */
    int64_t n_kw;
};

/* Function of a row. of: the value on which a filter, test or method is called. a: one value for
 * each parameter, V_MISSING if it was not passed. raw: all arguments. */
typedef struct pyvalue native_fn(struct template_run *r, struct pyvalue of, const struct pyvalue *a,
                                 const struct actual *raw);

struct native {
    const char *name;
    const char
        *params; /* names separated by spaces; "*": fn reads raw itself; "/a": a is positional */
    int n_required;
    native_fn *fn;
};

/* Tables that end with a NULL name. */
extern const struct native jinja_native_filters_text[], jinja_native_filters_seq[],
    jinja_native_filters_map[], jinja_native_tests[], jinja_native_methods_str[],
    jinja_native_methods_list[], jinja_native_methods_dict[], jinja_native_methods_loop[],
    jinja_native_functions[];

/* Find the row of a filter or test when a template is compiled.
 * fails: ERR_UNSUPPORTED if only jinja2 has it, ERR_INVALID if it is unknown. soft: returns NULL
 * for an unknown name instead; a call of it then fails. */
const struct native *jinja_native_filter(struct heap *h, struct pyvalue name, bool soft);
const struct native *jinja_native_test(struct heap *h, struct pyvalue name, bool soft);
/* Return the row of a name, or NULL. */
const struct native *jinja_native_find_filter(struct pyvalue name);
const struct native *jinja_native_find_test(struct pyvalue name);
const struct native *jinja_native_find(const struct native *table, struct pyvalue name);
/* Refuse the name of a method or function that Python or jinja2 has and the tables lack; other
 * names pass. fails: ERR_UNSUPPORTED. */
void jinja_native_check_method(struct heap *h, struct pyvalue name);
void jinja_native_check_function(struct heap *h, struct pyvalue name);

/* Binds the arguments to the parameters, unless these are "*", and calls the function. fails:
 * ERR_INVALID when there are too many or too few arguments, or when an argument is given twice or
 * has an unknown name; else as the function. */
struct pyvalue jinja_native_call(struct template_run *r, const struct native *native,
                                 struct pyvalue of, const struct actual *raw);

#endif
