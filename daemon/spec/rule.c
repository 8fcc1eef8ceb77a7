/* rule.c: lists the fields that may be "auto", and checks labels. */
#include "daemon/spec/rule.h"

#include <string.h>
#include "api/core/job.h"

/* clang-format off */
static const struct auto_field auto_fields[] = {
    {"parallel.sp", 0},
    {"memory.loss_chunk_tokens", 0},
    {"memory.mlp_chunk_tokens", -1},
    {"limits.step_timeout_s", 0},
    {"schedule.warmup_steps", -1},
    {"infer.batch", 0},
    {"serve.max_requests", 0},
    {"serve.cache_tokens", 0},
    {NULL, 0},
};
/* clang-format on */

const struct auto_field *rule_auto_field(const char *path)
{
    for (const struct auto_field *a = auto_fields; a->path; a++)
        if (!strcmp(a->path, path)) return a;
    return NULL;
}

int rule_label_check(const char *key, const json_t *value, struct err *e)
{
    static const char key_bytes[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
    const size_t n = strlen(key);
    if (!json_is_string(value)) return 0;
    if (!n || n > SPEC_LABEL_KEY || strspn(key, key_bytes) != n)
        return err_field(
            e, ERR_INVALID, "labels",
            "labels: the key \"%.40s\" must have 1 to %d of the characters a-z A-Z 0-9 "
            ". _ / -",
            key, SPEC_LABEL_KEY);
    if (json_string_length(value) > SPEC_LABEL_VALUE)
        return err_field(e, ERR_TOO_LARGE, "labels",
                         "labels: the value of \"%s\" has %zu bytes, at most %d", key,
                         json_string_length(value), SPEC_LABEL_VALUE);
    return 0;
}
