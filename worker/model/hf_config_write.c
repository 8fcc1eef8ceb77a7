/* Writing config.json, and a shape as one line of JSON; comparing shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "worker/model/hf_config.h"
#include "worker/model/tokenizer.h"

#define PREFIX "model.config."

static const struct field *row_of(const struct hf_field *x)
{
    char path[128];
    snprintf(path, sizeof path, PREFIX "%s", x->name);
    return spec_field(path);
}

static const void *value_of(const struct model_shape *m, const struct field *f)
{
    return (const char *)m + (f->offset - offsetof(struct job_spec, model.shape));
}

static void write_value(struct jwrite *w, const char *key, const struct field *f, const void *v)
{
    switch (f->type) {
    case FIELD_ENUM: jwrite_str(w, key, f->words[*(const int32_t *)v]); break;
    case FIELD_BOOL: jwrite_bool(w, key, *(const int32_t *)v); break;
    case FIELD_INT32: jwrite_int(w, key, *(const int32_t *)v); break;
    case FIELD_INT: jwrite_int(w, key, *(const int64_t *)v); break;
    default: jwrite_double(w, key, *(const double *)v);
    }
}

static const struct hf_family *family_of(const struct model_shape *m)
{
    return m->family >= 0 && m->family < FAMILY_N ? hf_families[m->family] : NULL;
}

const char *hf_shape_diff(const struct model_shape *a, const struct model_shape *b)
{
    static const size_t sizes[] = {[FIELD_INT] = sizeof(int64_t),
                                   [FIELD_INT32] = sizeof(int32_t),
                                   [FIELD_DOUBLE] = sizeof(double),
                                   [FIELD_BOOL] = sizeof(int32_t),
                                   [FIELD_ENUM] = sizeof(int32_t)};
    const struct hf_family *family = family_of(a);
    if (a->family != b->family || !family) return "model_type";
    for (const struct hf_field *x = family->fields; x->name; x++) {
        const struct field *f = row_of(x);
        /* informational, but where positions are a table */
        if (!strcmp(x->name, "max_position_embeddings") && a->family != FAMILY_BERT) continue;
        if (x->flags & HF_FIXED) continue;
        if (memcmp(value_of(a, f), value_of(b, f), sizes[f->type]))
            return x->key ? x->key : x->name;
    }
    return NULL;
}

static bool lists(const struct hf_family *family, const char *name)
{
    for (const struct hf_field *x = family->fields; x->name; x++)
        if (!strcmp(x->name, name)) return true;
    return false;
}

/* What every shape has, whether or not the family's config.json has a key for it. */
static void write_usual(struct jwrite *w, const struct model_shape *m,
                        const struct hf_family *family)
{
    static const struct hf_field usual[] = {
        {"max_position_embeddings", NULL, 0}, {"rms_norm_eps", NULL, 0}, {"rope_theta", NULL, 0}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (!lists(family, usual[i].name))
            write_value(w, usual[i].name, row_of(&usual[i]), value_of(m, row_of(&usual[i])));
}

int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size)
{
    const struct hf_family *family = family_of(m);
    struct jwrite w;
    int64_t n_params = 0;
    int n;
    if (!family) return -1;
    struct param *list = hf_list(m, &n, NULL);
    if (!list) return -1;
    for (int i = 0; i < n; i++) n_params += list[i].count;
    free(list);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    const struct field *type = spec_field(PREFIX "model_type");
    write_value(&w, "model_type", type, &m->family);
    for (const struct hf_field *x = family->fields; x->name; x++)
        write_value(&w, x->name, row_of(x), value_of(m, row_of(x)));
    write_usual(&w, m, family);
    jwrite_int(&w, "n_params", n_params);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

static void write_config(struct jwrite *w, const struct model_shape *m, enum dtype dtype)
{
    static const char *const words[] = {
        [DT_F32] = "float32", [DT_BF16] = "bfloat16", [DT_F16] = "float16"};
    const struct hf_family *family = family_of(m);
    jwrite_object(w, NULL);
    jwrite_array(w, "architectures");
    jwrite_str(w, NULL, family->architecture(m));
    jwrite_end(w);
    jwrite_str(w, "model_type", family->type(m));
    for (const struct hf_field *x = family->fields; x->name; x++)
        if (!(x->flags & (HF_UNWRITTEN | HF_FIXED)))
            write_value(w, x->key ? x->key : x->name, row_of(x), value_of(m, row_of(x)));
    for (const struct hf_special *x = family->specials; x->key; x++)
        if (x->write) x->write(w, x->key, m);
    jwrite_int(w, "bos_token_id", TOKEN_EOD);
    jwrite_int(w, "eos_token_id", TOKEN_EOD);
    jwrite_int(w, "pad_token_id", TOKEN_PAD);
    jwrite_str(w, "torch_dtype", words[dtype]);
    jwrite_end(w);
}

int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype, struct err *e)
{
    char path[FILE_PATH_SIZE], text[65536]; /* a word for each of 1024 layers */
    struct jwrite w;
    if (!family_of(m))
        return err_set(e, ERR_UNSUPPORTED, "a model of this family has no config.json");
    jwrite_init(&w, text, sizeof text);
    write_config(&w, m, dtype);
    int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "config.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/config.json", dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}
