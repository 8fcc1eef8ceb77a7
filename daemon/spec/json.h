/* json.h: request bodies and stored specs, from JSON to struct job_spec and back. Only this folder
 * uses Jansson in seqd; all other JSON that seqd writes goes through api/core/jwrite.h.
 *
 * Reading is strict: at most JSON_DEPTH levels, no duplicate keys, no NUL, no unknown field (400
 * with a did-you-mean), every value of its type. A stored spec alone may have unknown fields. Any
 * thread; no state is kept between calls. */
#ifndef SEQD_DAEMON_SPEC_JSON_H
#define SEQD_DAEMON_SPEC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"
#include "worker/plan/machine.h"

struct job_spec;

#define JSON_DEPTH     32
#define JSON_SPEC_SIZE (6 * SPEC_TEXT_SIZE + 65536) /* every byte escaped, and the fields */

enum json_form {
    JSON_FOR_PEOPLE, /* specs as a person writes them, and as spec_effective shows them */
    /* Stored specs also have facts that seqd found out: the shape of model.path, derived
     * train.steps. Another version may have written one: fields that this version does not know are
     * ignored. */
    JSON_STORED
};

/* Seeds the hash tables; from here on out of memory ends the process. Call it before any thread
 * starts. */
void json_init(void);

/* Fills *s with defaults and the values of the text; family_check is the caller's next step.
 * fails: ERR_INVALID with the field, or without one for text that holds no object; ERR_TOO_LARGE
 * with the field when the strings exceed 64 KiB, or a label's value is too long. */
int json_spec_read(const char *text, size_t size, enum json_form form, struct job_spec *s,
                   struct err *e);
/* Returns `now` with the fields that only the stored spec `old` has, because this seqd does not
 * know them; malloc'd. NULL: there is no such field, or one of the two is not JSON. */
char *json_spec_merge(const char *old, const char *now);
/* Reads the body of a plan: a spec as a person writes it, and perhaps "hardware", which no job has.
 * fails: also with ERR_INVALID naming a member of hardware. */
int json_plan_read(const char *text, size_t size, struct job_spec *s, struct hardware *h,
                   struct err *e);
/* Writes the canonical JSON of a checked spec, defaults included, which reads back as the same
 * spec. Returns the length, or -1 when size (JSON_SPEC_SIZE is always enough) is too small. */
int64_t json_spec_write(const struct job_spec *s, enum json_form form, char *out, size_t size);

/* Changes a stored spec by the body of a PATCH: {"priority": 7, "labels": {"team": "x", "old":
 * null}}, where null removes a label and others stay. old: a stored spec. Fills *s, as
 * json_spec_read does; family_check is the caller's next step. Returns the new stored spec,
 * malloc'd, or NULL. fails: as json_spec_read; ERR_INVALID for another member. */
char *json_spec_edit(const char *old, const char *change, size_t size, struct job_spec *s,
                     struct err *e);

/* Returns JSON sorted and compact, for fingerprints of request bodies: malloc'd, or NULL with
 * *e. */
char *json_canonical(const char *text, size_t size, struct err *e);

#endif
