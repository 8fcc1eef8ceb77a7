/* scalar.h: reads one JSON scalar into one field of a spec, or sets the error that names the
 * field. read.c finds the field of each member of a document. Only this folder includes this
 * file. */
#ifndef SEQD_DAEMON_SPEC_SCALAR_H
#define SEQD_DAEMON_SPEC_SCALAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "daemon/spec/json.h"

/* The state of reading one spec. */
struct spec_reader {
    struct job_spec *s;
    enum json_form form;
    bool has_batch, has_batch_tokens, has_max_tokens, has_packing;
    int64_t batch_tokens;
    struct hardware *hardware; /* NULL if the text is that of a job, which has no hardware */
    const json_t *config;      /* model.config */
    struct err *e;
};

/* The following functions return 0, or -1 with *r->e, which names the path. */

/* Reads v into the member of *base that f describes. Errors name `path`, because the path in f may
 * be that of an array's element. Fails with ERR_INVALID if v has a wrong type or is out of range,
 * and otherwise as scalar_string does. */
int scalar_set(struct spec_reader *r, const struct field *f, void *base, const char *path,
               const json_t *v);
/* Stores a string in the spec. Fails with ERR_INVALID if v is not a string, or with ERR_TOO_LARGE
 * if all strings of the spec would together exceed SPEC_TEXT_SIZE. */
int scalar_string(struct spec_reader *r, const char *path, const json_t *v, spec_ref *ref);
/* Finds the word v in the array `words`, which ends with NULL, and sets *out to its index. Fails
 * with ERR_INVALID. */
int scalar_word(struct spec_reader *r, const char *path, const char *const *words, const json_t *v,
                int32_t *out);
/* Refuses a member that is no field; the error names the nearest field. If the spec is a stored
 * one, returns 0 without an error. */
int scalar_unknown(struct spec_reader *r, const char *path);
/* Sets ERR_INVALID: the value of path is not `want`, for example "an object". Returns -1. */
int scalar_wrong_type(struct spec_reader *r, const char *path, const char *want, const json_t *v);

#endif
