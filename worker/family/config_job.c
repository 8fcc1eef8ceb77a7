/* config_job.c: reads and writes model.config, the model of a job. */
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/model_shape.h"
#include "worker/family/config_table.h"
#include "worker/family/shape.h"

/* Sets the values of absent keys. If there is a model.path, they are 0, because its config.json
 * gives all sizes of the family. */
static void absent(const struct job_spec *s, struct model_shape *m)
{
    if (*spec_text(s, s->model.path))
        memset(m, 0, sizeof *m);
    else
        shape_defaults(m);
}

int config_take(struct job_spec *s, const char *text, size_t size, enum config_form form,
                struct err *e)
{
    struct config c = {
        .form = form, .job = true, .path = "model.config", .m = &s->model.shape, .e = e};
    assert(form != CONFIG_FILE);
    if (size > MODEL_CONFIG_SIZE)
        return err_field(e, ERR_TOO_LARGE, "model.config", "model.config has %zu bytes, at most %d",
                         size, MODEL_CONFIG_SIZE);
    absent(s, &s->model.shape);
    if (config_read(&c, text, size) < 0) return -1;
    config_keep(s);
    return 0;
}

int config_open(struct job_spec *s, struct err *e)
{
    return config_take(s, s->model.config, strlen(s->model.config), CONFIG_KEPT, e);
}

void config_keep(struct job_spec *s)
{
    struct model_shape base;
    absent(s, &base);
    const int64_t n = config_write(&s->model.shape, &base, s->model.config, sizeof s->model.config);
    assert(n > 0);
}

/* ---- writing --------------------------------------------------------------------------------- */

void config_write_value(struct jwrite *w, const char *key, const struct field *f,
                        const struct model_shape *m)
{
    const void *v = (const char *)m + f->offset;
    switch (f->type) {
    case FIELD_ENUM: jwrite_str(w, key, f->words[*(const int32_t *)v]); break;
    case FIELD_BOOL: jwrite_bool(w, key, *(const int32_t *)v); break;
    case FIELD_INT32: jwrite_int(w, key, *(const int32_t *)v); break;
    case FIELD_INT: jwrite_int(w, key, *(const int64_t *)v); break;
    default: jwrite_double(w, key, *(const double *)v);
    }
}

/* Writes an array up to its last element that is not neutral. f is its first element. If `always`
 * is set, an empty array is written as well. */
static void write_array(struct jwrite *w, const struct field *f, const struct model_shape *m,
                        bool always)
{
    char name[64];
    int n = 0;
    for (int i = 0; f[i].path && shape_element(&f[i]) == i; i++)
        if (!shape_neutral(m, &f[i])) n = i + 1;
    if (!n && !always) return;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(shape_name(f), "."), shape_name(f));
    jwrite_array(w, name);
    for (int i = 0; i < n; i++) config_write_value(w, NULL, &f[i], m);
    jwrite_end(w);
}

int64_t config_write(const struct model_shape *m, const struct model_shape *base, char *out,
                     size_t size)
{
    const struct hf_family *family = family_row(m)->config;
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    for (const struct field *f = shape_fields; f->path; f++) {
        const char *name = shape_name(f);
        const bool type = !strcmp(name, "model_type"), own = config_has(family, name);
        if (shape_element(f) == 0) write_array(&w, f, m, own);
        if (shape_element(f) >= 0) continue;
        if (type || own || !shape_equal(m, base, f)) config_write_value(&w, name, f, m);
    }
    jwrite_end(&w);
    return jwrite_finish(&w);
}
