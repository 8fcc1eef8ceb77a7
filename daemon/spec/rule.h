/* rule.h: rules of a job's JSON that reading shares with writing and changing. */
#ifndef SEQD_DAEMON_SPEC_RULE_H
#define SEQD_DAEMON_SPEC_RULE_H

#include <jansson.h>
#include "api/core/err.h"

#define PATH_SIZE 96 /* a field's path, with its NUL */

/* A number that may also be the word "auto", and the value that stands for it. */
struct auto_field {
    const char *path;
    int value;
};

/* Returns the field's row, which is static; NULL: the field takes numbers alone. */
const struct auto_field *rule_auto_field(const char *path);

/* Checks a label that a person sets: labels select jobs and do not hold data. The caller refuses a
 * value that is no string. fails: ERR_INVALID, ERR_TOO_LARGE. */
int rule_label_check(const char *key, const json_t *value, struct err *e);

#endif
