/* shape.h: the sizes of a model by name: the table of the members of struct model_shape. A
 * family's row lists the sizes of that family, and their names in its files. */
#ifndef SEQD_FAMILY_SHAPE_H
#define SEQD_FAMILY_SHAPE_H

#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/model_shape.h"

/* Paths begin with "model.config."; offsets are into struct model_shape; kinds 0: only a directory
 * has the field; fallback: the value in a job without the field. Ends with path NULL. */
extern const struct field shape_fields[];

/* Modules of sentence-transformers that change a vector; the last word is "another".
 * NULL-terminated. */
extern const char *const shape_embed_module_words[];
#define MODULE_UNKNOWN 15

/* Finds a field by its name in model.config. NULL: no family has such a size. */
const struct field *shape_field(const char *name);
const char *shape_name(const struct field *f); /* "hidden_size" */

/* Returns the index of an array's element, or -1 for other fields. An array has a row for each
 * element, NAME.0, NAME.1, ..., one after the other. */
int shape_element(const struct field *f);

/* Sets f in m; v is truncated if f holds integers. */
void shape_set(struct model_shape *m, const struct field *f, double v);
/* Sets the sizes of a job that does not give any. */
void shape_defaults(struct model_shape *m);
bool shape_equal(const struct model_shape *a, const struct model_shape *b, const struct field *f);
/* Returns the first size that differs, among those that a person may write; NULL: there is
 * none. */
const struct field *shape_difference(const struct model_shape *a, const struct model_shape *b);
/* Returns the size in the form of model.config: a number, or a word. */
const char *shape_text(const struct model_shape *m, const struct field *f, char out[32]);
/* Tells whether f in m has the value of a model without that size: 0, or the fallback. */
bool shape_neutral(const struct model_shape *m, const struct field *f);
/* Checks every size. fails: ERR_INVALID with the first size outside its range. */
int shape_check_ranges(const struct model_shape *m, struct err *e);

#endif
