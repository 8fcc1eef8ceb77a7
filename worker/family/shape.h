/* shape.h: a table of the sizes of a model, which are the members of struct model_shape, with
 * their names. A family's row lists the sizes of that family, with their names in its files. */
#ifndef SEQD_FAMILY_SHAPE_H
#define SEQD_FAMILY_SHAPE_H

#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/model_shape.h"

/* Paths begin with "model.config."; offsets are in struct model_shape. If `kinds` is 0, the field
 * is read only from a directory. `fallback` is the value if a job does not have the field. The
 * last entry has path NULL. */
extern const struct field shape_fields[];

/* Names of the modules of sentence-transformers that change a vector. The last name is "another",
 * which means any other module. NULL-terminated. */
extern const char *const shape_embed_module_words[];
#define MODULE_UNKNOWN 15

/* Finds a field by its name in model.config. Returns NULL if no field has this name. */
const struct field *shape_field(const char *name);
const char *shape_name(const struct field *f); /* "hidden_size" */

/* Returns the index of element f in its array, or -1 if f is not an element of an array. An array
 * has one row for each element: NAME.0, NAME.1, and so on. */
int shape_element(const struct field *f);

/* Sets f in m to v. If f is an integer, v is truncated. */
void shape_set(struct model_shape *m, const struct field *f, double v);
/* Sets the sizes of a job that gives no sizes. */
void shape_defaults(struct model_shape *m);
bool shape_equal(const struct model_shape *a, const struct model_shape *b, const struct field *f);
/* Returns the first difference among the sizes that a person may write. Returns NULL if there is
 * no difference. */
const struct field *shape_difference(const struct model_shape *a, const struct model_shape *b);
/* Returns the size in the form that it has in model.config, which is a number or a word. */
const char *shape_text(const struct model_shape *m, const struct field *f, char out[32]);
/* Tells whether the size f of m has the neutral value, which is 0 or the fallback. In a model
 * whose family does not have the size, f has the neutral value. */
bool shape_neutral(const struct model_shape *m, const struct field *f);
/* Checks the range of every size. Fails with ERR_INVALID; the error names the first size outside
 * its range. */
int shape_check_ranges(const struct model_shape *m, struct err *e);

#endif
