/* profile.c: writes and reads a profile as JSON with one table of its fields. */
#include "api/core/profile.h"

#include <math.h>
#include <stdbool.h>
#include "api/core/jread.h"
#include "api/core/jwrite.h"

const double profile_widths[PROFILE_SIZES] = {16, 32, 256};
const double profile_heads[PROFILE_SIZES] = {8, 32, 128};

#define ONE(key, m)                                                                                \
    {                                                                                              \
        key, offsetof(struct profile, m), 1                                                        \
    }
#define MANY(key, m)                                                                               \
    {                                                                                              \
        key, offsetof(struct profile, m), PROFILE_SIZES                                            \
    }
const struct profile_field profile_fields[PROFILE_FIELDS] = {
    MANY("gemm_f32_flops", gemm_f32),
    MANY("gemm_bf16_flops", gemm_bf16),
    MANY("attention_f32_flops", attn_f32),
    MANY("attention_bf16_flops", attn_bf16),
    MANY("attention_back_f32_flops", attn_back_f32),
    MANY("attention_back_bf16_flops", attn_back_bf16),
    MANY("linear_attention_flops", linear),
    MANY("linear_attention_back_flops", linear_back),
    ONE("norm_elements_s", norm),
    ONE("activation_elements_s", point),
    ONE("rotation_elements_s", turn),
    ONE("update_elements_s", update),
    ONE("copy_bytes_s", copy),
    ONE("hop_s", hop),
};

static double *member(struct profile *p, int i)
{
    return (double *)((char *)p + profile_fields[i].offset);
}

static const double *values(const struct profile *p, int i)
{
    return (const double *)((const char *)p + profile_fields[i].offset);
}

int64_t profile_write(const struct profile *p, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    for (int i = 0; i < PROFILE_FIELDS; i++) {
        const struct profile_field *f = &profile_fields[i];
        if (f->n > 1) jwrite_array(&w, f->key);
        for (int k = 0; k < f->n; k++) jwrite_double(&w, f->n > 1 ? NULL : f->key, values(p, i)[k]);
        if (f->n > 1) jwrite_end(&w);
    }
    jwrite_end(&w);
    return jwrite_finish(&w);
}

int profile_check(const struct profile *p, struct err *e)
{
    for (int i = 0; i < PROFILE_FIELDS; i++)
        for (int k = 0; k < profile_fields[i].n; k++)
            if (!(values(p, i)[k] > 0 && isfinite(values(p, i)[k])))
                return err_field(e, ERR_INVALID, profile_fields[i].key,
                                 "%s is %g: a rate and a time are positive numbers",
                                 profile_fields[i].key, values(p, i)[k]);
    return 0;
}

/* Reads a number, or an array of f->n numbers. */
static int read_field(struct jread *j, const struct profile_field *f, double *out, struct err *e)
{
    if (f->n > 1 && jread_next(j) != J_ARRAY)
        return err_field(e, ERR_INVALID, f->key, "%s is an array of %d numbers", f->key, f->n);
    for (int k = 0; k < f->n; k++)
        if (jread_next(j) != J_NUMBER || jread_double(j, &out[k]))
            return err_field(e, ERR_INVALID, f->key, "%s is %d numbers: number %d is missing",
                             f->key, f->n, k + 1);
    if (f->n > 1 && jread_next(j) != J_ARRAY_END)
        return err_field(e, ERR_INVALID, f->key, "%s has more than %d numbers", f->key, f->n);
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
        if (i == PROFILE_FIELDS) { /* the field is one of a later version */
            if (jread_skip(&j)) break;
            continue;
        }
        if (*member(out, i) > 0)
            return err_set(e, ERR_INVALID, "%s is given twice", profile_fields[i].key);
        if (read_field(&j, &profile_fields[i], member(out, i), e)) return -1;
    }
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "the profile cannot be read: %s",
                       j.err.code ? j.err.text : "it is not one object");
    return profile_check(out, e);
}
