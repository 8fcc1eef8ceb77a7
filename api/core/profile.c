#include "api/core/profile.h"

#include <math.h>
#include <stdbool.h>
#include "api/core/jread.h"
#include "api/core/jwrite.h"

const struct profile_field profile_fields[PROFILE_FIELDS] = {
    {"gemm_f32_flops", offsetof(struct profile, gemm_f32)},
    {"gemm_bf16_flops", offsetof(struct profile, gemm_bf16)},
    {"attention_f32_flops", offsetof(struct profile, attn_f32)},
    {"attention_bf16_flops", offsetof(struct profile, attn_bf16)},
    {"copy_bytes_s", offsetof(struct profile, copy)},
    {"hop_s", offsetof(struct profile, hop)},
};

static double *member(struct profile *p, int i)
{
    return (double *)((char *)p + profile_fields[i].offset);
}

static double value(const struct profile *p, int i)
{
    return *(const double *)((const char *)p + profile_fields[i].offset);
}

int64_t profile_write(const struct profile *p, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    for (int i = 0; i < PROFILE_FIELDS; i++) jwrite_double(&w, profile_fields[i].key, value(p, i));
    jwrite_end(&w);
    return jwrite_finish(&w);
}

int profile_check(const struct profile *p, struct err *e)
{
    for (int i = 0; i < PROFILE_FIELDS; i++)
        if (!(value(p, i) > 0 && isfinite(value(p, i))))
            return err_field(e, ERR_INVALID, profile_fields[i].key,
                             "%s is %g: a rate and a time are positive numbers",
                             profile_fields[i].key, value(p, i));
    return 0;
}

int profile_read(const char *json, size_t size, struct profile *out, struct err *e)
{
    struct jread j;
    *out = (struct profile){0};
    jread_init(&j, json, size);
    if (jread_next(&j) != J_OBJECT) return err_set(e, ERR_INVALID, "a profile is an object");
    enum jtok t;
    while ((t = jread_next(&j)) == J_KEY) {
        int i = 0;
        while (i < PROFILE_FIELDS && !jread_is(&j, profile_fields[i].key)) i++;
        if (i == PROFILE_FIELDS) { /* of a later version */
            if (jread_skip(&j)) break;
            continue;
        }
        if (value(out, i) > 0)
            return err_set(e, ERR_INVALID, "%s stands there twice", profile_fields[i].key);
        if (jread_next(&j) != J_NUMBER || jread_double(&j, member(out, i)))
            return err_set(e, ERR_INVALID, "%s is no number", profile_fields[i].key);
    }
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "a profile: %s", j.err.code ? j.err.text : "not one object");
    return profile_check(out, e);
}
