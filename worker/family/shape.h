/* shape.h: the sizes of a model by name, as a table of the members of struct model_shape. A
 * family's row lists the sizes of that family and their names in its files. */
#ifndef SEQD_FAMILY_SHAPE_H
#define SEQD_FAMILY_SHAPE_H

#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/model_shape.h"

/* Paths begin with "model.config."; offsets are into struct model_shape. kinds 0 means that only a
 * directory has the field. fallback is the value in a job that lacks the field. The last entry has
 * path NULL. */
extern const struct field shape_fields[];

/* Names of the modules of sentence-transformers that change a vector. The last name, "another",
 * means any other module. NULL-terminated. */
extern const char *const shape_embed_module_words[];
#define MODULE_UNKNOWN 15

/* Finds a field by its name in model.config. Returns NULL if no family has such a size. */
const struct field *shape_field(const char *name);
const char *shape_name(const struct field *f); /* "hidden_size" */

/* Returns the index of the element that f is in an array, or -1 if f is another field. An array
 * has one row for each element, NAME.0, NAME.1, and so on, which follow each other. */
int shape_element(const struct field *f);

/* Sets f in m to v, which is truncated if f is an integer. */
void shape_set(struct model_shape *m, const struct field *f, double v);
/* Sets the sizes of a job that gives no sizes. */
void shape_defaults(struct model_shape *m);
bool shape_equal(const struct model_shape *a, const struct model_shape *b, const struct field *f);
/* Returns the first size that differs, among those that a person may write, or NULL if none
 * differs. */
const struct field *shape_difference(const struct model_shape *a, const struct model_shape *b);
/* Returns the size in the form that it has in model.config: a number or a word. */
const char *shape_text(const struct model_shape *m, const struct field *f, char out[32]);
/* Tells whether the size f of m has the neutral value, which is 0 or the fallback. A model without
 * that size has this value. */
bool shape_neutral(const struct model_shape *m, const struct field *f);
/* Checks the range of every size. Fails with ERR_INVALID; the error names the first size outside
 * its range. */
int shape_check_ranges(const struct model_shape *m, struct err *e);

#endif
