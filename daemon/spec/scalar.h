/* scalar.h: one JSON scalar into one field of a spec, or the error that names the field. read.c
 * knows which member of a document belongs to which field. Private to this folder. */
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
    bool has_batch, has_batch_tokens, has_max_tokens;
    int64_t batch_tokens;
    struct hardware *hardware; /* NULL: the text is a job, which has no hardware */
    const json_t *config;      /* model.config */
    struct err *e;
};

/* These return 0, or -1 with *r->e, which names the path. */

/* Reads v into the member of *base that f describes. path: the field's name in errors, where f is
 * a row of an array's element. fails: ERR_INVALID for a wrong type or a value out of range; as
 * scalar_string. */
int scalar_set(struct spec_reader *r, const struct field *f, void *base, const char *path,
               const json_t *v);
/* Keeps a string in the spec. fails: ERR_INVALID; ERR_TOO_LARGE when the spec's strings exceed
 * SPEC_TEXT_SIZE together. */
int scalar_string(struct spec_reader *r, const char *path, const json_t *v, spec_ref *ref);
/* Finds a word in the list, which ends with NULL. fails: ERR_INVALID. */
int scalar_word(struct spec_reader *r, const char *path, const char *const *words, const json_t *v,
                int32_t *out);
/* Refuses a member that no field is for, with the nearest field; 0 in a stored spec. */
int scalar_unknown(struct spec_reader *r, const char *path);
/* Fails with ERR_INVALID: the value of path is not what it must be, as in "an object". */
int scalar_wrong_type(struct spec_reader *r, const char *path, const char *want, const json_t *v);

#endif
