/* rule.h: rules of a job's JSON that are shared by reading, writing and changing a spec. */
#ifndef SEQD_DAEMON_SPEC_RULE_H
#define SEQD_DAEMON_SPEC_RULE_H

#include <jansson.h>
#include "api/core/err.h"

#define PATH_SIZE 96 /* a field's path, with its NUL */

/* A field whose value is a number or the word "auto", and the number that stands for "auto". */
struct auto_field {
    const char *path;
    int value;
};

/* Returns the field's row, which is static, or NULL if the field accepts only numbers. */
const struct auto_field *rule_auto_field(const char *path);

/* Checks a label that a person sets. Labels are for selecting jobs, not for storing data. The
 * caller has checked that value is a string. Fails with ERR_INVALID or ERR_TOO_LARGE. */
int rule_label_check(const char *key, const json_t *value, struct err *e);

#endif
