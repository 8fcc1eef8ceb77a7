/* json.h: converts request bodies and stored specs from JSON to struct job_spec and back. In seqd
 * only this folder uses Jansson; all other JSON of seqd is written by api/core/jwrite.h.
 *
 * Reading is strict. A text may have at most JSON_DEPTH levels, no duplicate keys and no NUL, and
 * every value must be of its type. An unknown field is refused, and the error names a similar
 * field. Only a stored spec may have unknown fields. The functions may be called on any thread and
 * keep no state between calls. */
#ifndef SEQD_DAEMON_SPEC_JSON_H
#define SEQD_DAEMON_SPEC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/limits.h"
#include "worker/plan/machine.h"

struct job_spec;

#define JSON_DEPTH 32
/* bytes of a spec's JSON: all its strings with every byte escaped, and the fields */
#define JSON_SPEC_SIZE (6 * SPEC_TEXT_SIZE + 65536)

enum json_form {
    JSON_FOR_PEOPLE, /* the form in which a person writes a spec, and in which spec_effective shows
                      * it */
    /* The form of stored specs, which also has facts that seqd has found out: the sizes of
     * model.path, and train.steps if it was computed. A reader ignores fields that this version
     * does not know, because a newer or an older version may have written the spec. */
    JSON_STORED
};

/* Seeds the hash tables. If Jansson runs out of memory after this call, seqd exits. Must be called
 * before any thread starts. */
void json_init(void);

/* Fills *s with defaults and with the values of the text. The caller must call family_check next.
 * Fails with ERR_INVALID, or with ERR_TOO_LARGE if the strings exceed 64 KiB or a label's value is
 * too long. The error names the field, unless the text is not an object. */
int json_spec_read(const char *text, size_t size, enum json_form form, struct job_spec *s,
                   struct err *e);
/* Adds to the spec `now` the fields of the stored spec `old` that this seqd does not know. Returns
 * the result, malloc'd. Returns NULL if there is no such field, or if `old` or `now` is not
 * JSON. */
char *json_spec_merge(const char *old, const char *now);
/* Reads the body of a plan. It is a spec as a person writes it, and may also have the member
 * "hardware", which no job has. Fails as json_spec_read does. Also fails with ERR_INVALID if a
 * member of hardware is wrong; the error names it. */
int json_plan_read(const char *text, size_t size, struct job_spec *s, struct hardware *h,
                   struct err *e);
/* Writes the canonical JSON of a checked spec, including defaults. It reads back as the same spec.
 * Returns the length, or -1 if `size` is too small; JSON_SPEC_SIZE is always enough. */
int64_t json_spec_write(const struct job_spec *s, enum json_form form, char *out, size_t size);

/* Changes a stored spec, old, by the body of a PATCH: {"priority": 7, "labels": {"team": "x",
 * "old": null}}. A null removes its label; labels that are not named are unchanged. Fills *s as
 * json_spec_read does; the caller must call family_check next. Returns the new stored spec,
 * malloc'd, or NULL after a failure. Fails as json_spec_read does, and with ERR_INVALID if the
 * body has any other member. */
char *json_spec_edit(const char *old, const char *change, size_t size, struct job_spec *s,
                     struct err *e);

/* Returns the JSON text in sorted and compact form, malloc'd, for fingerprints of request bodies.
 * Returns NULL with *e after a failure. */
char *json_canonical(const char *text, size_t size, struct err *e);

#endif
