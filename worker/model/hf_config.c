/* config.json. The sizes are the spec_fields rows below model.config, which has the same key names;
 * here stand only the keys that may ask for another computation than ours. */
#include "worker/model/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/model/tokenizer.h"

#define PREFIX "model.config."
enum { MAX_SEEN = 64 };

struct config {
    struct jread j;
    const char *path;
    struct model_shape *m;
    const char *seen[MAX_SEEN]; /* known keys met so far */
    int n_seen;
    double theta; /* from a rope object, 0: none */
    struct err *e;
};

static int invalid(struct config *c, const char *key, const char *want)
{
    if (c->j.err.code) return err_set(c->e, ERR_INVALID, "%s: %s", c->path, c->j.err.text);
    return err_set(c->e, ERR_INVALID, "%s: %s must be %s", c->path, key, want);
}

static int refuse(struct config *c, const char *key, const char *why)
{
    return err_set(c->e, ERR_UNSUPPORTED, "%s: %s: %s", c->path, key, why);
}

/* ---- keys that must not ask for more than we compute ----------------------------------------- */

static int want_false(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_FALSE || t == J_NULL) return 0;
    return t == J_TRUE ? refuse(c, key, "true is not supported") : invalid(c, key, "a bool");
}

static int want_null(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    return t == J_ERROR ? invalid(c, key, "null") : refuse(c, key, "only null is supported");
}

static int want_number(struct config *c, const char *key, double only)
{
    double v;
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_NUMBER || jread_double(&c->j, &v) < 0) return invalid(c, key, "a number");
    return v == only ? 0
                     : refuse(c, key, only == 0 ? "only 0 is supported" : "only 1 is supported");
}

static int want_zero(struct config *c, const char *key)
{
    return want_number(c, key, 0);
}

static int want_one(struct config *c, const char *key)
{
    return want_number(c, key, 1);
}

static int want_silu(struct config *c, const char *key)
{
    if (jread_next(&c->j) != J_STRING) return invalid(c, key, "a string");
    return jread_is(&c->j, "silu") ? 0 : refuse(c, key, "only \"silu\" is supported");
}

static int want_full_layers(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_ARRAY) return invalid(c, key, "an array");
    while ((t = jread_next(&c->j)) == J_STRING)
        if (!jread_is(&c->j, "full_attention"))
            return refuse(c, key, "only \"full_attention\" is supported");
    return t == J_ARRAY_END ? 0 : invalid(c, key, "an array of strings");
}

/* rope_scaling of v4 and rope_parameters of v5. */
static int want_plain_rope(struct config *c, const char *key)
{
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0;
    if (t != J_OBJECT) return invalid(c, key, "an object or null");
    while ((t = jread_next(&c->j)) == J_KEY) {
        if (jread_is(&c->j, "rope_type") || jread_is(&c->j, "type")) {
            if (jread_next(&c->j) != J_STRING) return invalid(c, "rope_type", "a string");
            if (!jread_is(&c->j, "default"))
                return refuse(c, key, "only rope_type \"default\" is supported");
        } else if (jread_is(&c->j, "rope_theta")) {
            if (jread_next(&c->j) != J_NUMBER || jread_double(&c->j, &c->theta) < 0 || c->theta < 1)
                return invalid(c, "rope_theta", "a number of at least 1");
        } else if (jread_is(&c->j, "partial_rotary_factor")) {
            if (want_one(c, "partial_rotary_factor") < 0) return -1;
        } else {
            t = jread_next(&c->j);
            if (t == J_OBJECT) return refuse(c, key, "parameters by layer type are not supported");
            if (jread_skip(&c->j) < 0) break;
        }
    }
    return t == J_OBJECT_END ? 0 : invalid(c, key, "an object");
}

static const struct {
    const char *key;
    int (*check)(struct config *, const char *key);
} limits[] = {
    {"attention_bias", want_false},       {"mlp_bias", want_false},
    {"attention_dropout", want_zero},     {"partial_rotary_factor", want_one},
    {"sliding_window", want_null},        {"quantization_config", want_null},
    {"text_config", want_null},           {"hidden_act", want_silu},
    {"layer_types", want_full_layers},    {"rope_scaling", want_plain_rope},
    {"rope_parameters", want_plain_rope},
};

/* ---- sizes ---------------------------------------------------------------------------------- */

static void *member(struct model_shape *m, const struct field *f)
{
    return (char *)m + (f->offset - offsetof(struct job_spec, model.shape));
}

static bool is_shape_field(const struct field *f)
{
    return !strncmp(f->path, PREFIX, sizeof PREFIX - 1);
}

static int read_enum(struct config *c, const struct field *f, const char *key)
{
    char list[128] = "";
    if (jread_next(&c->j) != J_STRING) return invalid(c, key, "a string");
    for (int i = 0; f->words[i]; i++) {
        if (jread_is(&c->j, f->words[i])) {
            *(int32_t *)member(c->m, f) = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "only supported: ", f->words[i]);
    }
    return refuse(c, key, list);
}

static int read_field(struct config *c, const struct field *f, const char *key)
{
    char want[96];
    int64_t i = 0;
    double d = 0;
    if (f->type == FIELD_ENUM) return read_enum(c, f, key);
    enum jtok t = jread_next(&c->j);
    if (t == J_NULL) return 0; /* as if the key were absent */
    if (f->type == FIELD_BOOL) {
        if (t != J_TRUE && t != J_FALSE) return invalid(c, key, "true or false");
        *(int32_t *)member(c->m, f) = t == J_TRUE;
        return 0;
    }
    bool real = f->type == FIELD_DOUBLE;
    snprintf(want, sizeof want, "%s from %.15g to %.15g", real ? "a number" : "an integer", f->min,
             f->max);
    if (t != J_NUMBER || (real ? jread_double(&c->j, &d) : jread_int(&c->j, &i)) < 0)
        return invalid(c, key, want);
    if (!real) d = (double)i;
    if (d < f->min || d > f->max) return invalid(c, key, want);
    if (real)
        *(double *)member(c->m, f) = d;
    else if (f->type == FIELD_INT)
        *(int64_t *)member(c->m, f) = i;
    else
        *(int32_t *)member(c->m, f) = (int32_t)i;
    return 0;
}

static int once(struct config *c, const char *key)
{
    for (int i = 0; i < c->n_seen; i++)
        if (!strcmp(c->seen[i], key))
            return err_set(c->e, ERR_INVALID, "%s: %s occurs twice", c->path, key);
    if (c->n_seen < MAX_SEEN) c->seen[c->n_seen++] = key;
    return 0;
}

static int read_key(struct config *c)
{
    char path[96] = PREFIX, *key = path + sizeof PREFIX - 1;
    if (jread_copy(&c->j, key, sizeof path - sizeof PREFIX) < 0) key[0] = 0; /* too long for us */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (!strcmp(key, limits[i].key))
            return once(c, limits[i].key) < 0 ? -1 : limits[i].check(c, limits[i].key);
    const struct field *f = key[0] ? spec_field(path) : NULL;
    if (f) return once(c, f->path + sizeof PREFIX - 1) < 0 ? -1 : read_field(c, f, key);
    return jread_skip(&c->j) < 0 ? invalid(c, key, "a value") : 0;
}

static bool met(const struct config *c, const char *key)
{
    for (int i = 0; i < c->n_seen; i++)
        if (!strcmp(c->seen[i], key)) return true;
    return false;
}

/* What transformers assumes where a key is absent, and what the sizes must satisfy together. */
static int finish(struct config *c)
{
    static const char *const needed[] = {"model_type",        "vocab_size",
                                         "hidden_size",       "intermediate_size",
                                         "num_hidden_layers", "num_attention_heads"};
    struct model_shape *m = c->m;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!met(c, needed[i]))
            return err_set(c->e, ERR_INVALID, "%s: %s is missing", c->path, needed[i]);
    if (!m->vocab || !m->width || !m->ffn_width || !m->n_layers || !m->n_heads)
        return err_set(c->e, ERR_INVALID, "%s: a size is null", c->path);
    if (!m->n_kv_heads) m->n_kv_heads = m->n_heads;
    if (!m->head_dim && m->width % m->n_heads)
        return err_set(c->e, ERR_INVALID,
                       "%s: hidden_size %lld is no multiple of num_attention_heads"
                       " %lld, and head_dim is missing",
                       c->path, (long long)m->width, (long long)m->n_heads);
    if (!m->head_dim) m->head_dim = m->width / m->n_heads;
    if (m->n_heads % m->n_kv_heads)
        return err_set(c->e, ERR_INVALID,
                       "%s: num_attention_heads %lld is no multiple of "
                       "num_key_value_heads %lld",
                       c->path, (long long)m->n_heads, (long long)m->n_kv_heads);
    if (m->head_dim % 2)
        return err_set(c->e, ERR_INVALID, "%s: head_dim %lld is odd", c->path,
                       (long long)m->head_dim);
    if (m->head_dim > JOB_MAX_HEAD)
        return err_set(c->e, ERR_INVALID, "%s: head_dim %lld: at most %d is supported", c->path,
                       (long long)m->head_dim, JOB_MAX_HEAD);
    if (c->theta && met(c, "rope_theta") && m->rope_theta != c->theta)
        return err_set(c->e, ERR_INVALID, "%s: rope_theta is %g at the top and %g inside", c->path,
                       m->rope_theta, c->theta);
    if (c->theta) m->rope_theta = c->theta;
    return 0;
}

int hf_config_parse(const char *text, size_t size, const char *path, struct model_shape *m,
                    struct err *e)
{
    struct config c = {.path = path, .m = m, .e = e};
    enum jtok t;
    memset(m, 0, sizeof *m); /* padding too: shapes are compared and sent as bytes */
    m->max_pos = 2048;
    m->norm_eps = 1e-6;
    m->rope_theta = 10000;
    jread_init(&c.j, text, size);
    if (jread_next(&c.j) != J_OBJECT) return invalid(&c, "it", "one JSON object");
    while ((t = jread_next(&c.j)) == J_KEY)
        if (read_key(&c) < 0) return -1;
    if (t != J_OBJECT_END || jread_next(&c.j) != J_END) return invalid(&c, "it", "one JSON object");
    return finish(&c);
}

int hf_config_read(const char *dir, struct model_shape *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    if (file_join(path, e, "%s/config.json", dir) < 0) return -1;
    if (!file_exists(path))
        return err_set(e, ERR_NOT_FOUND,
                       "%s has no config.json: give a directory as transformers saves it; of a "
                       "checkpoint that is its hf/",
                       dir);
    char *text = file_read(path, 4 << 20, &size, e);
    if (!text) return -1;
    int rc = hf_config_parse(text, size, path, m, e);
    free(text);
    return rc;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void write_shape(struct jwrite *w, const struct model_shape *m)
{
    for (const struct field *f = spec_fields; f->path; f++) {
        if (!is_shape_field(f)) continue;
        const char *key = f->path + sizeof PREFIX - 1;
        const void *v = member((struct model_shape *)m, f);
        if (f->type == FIELD_ENUM)
            jwrite_str(w, key, f->words[*(const int32_t *)v]);
        else if (f->type == FIELD_BOOL)
            jwrite_bool(w, key, *(const int32_t *)v);
        else if (f->type == FIELD_INT32)
            jwrite_int(w, key, *(const int32_t *)v);
        else if (f->type == FIELD_INT)
            jwrite_int(w, key, *(const int64_t *)v);
        else
            jwrite_double(w, key, *(const double *)v);
    }
}

const char *hf_shape_diff(const struct model_shape *a, const struct model_shape *b)
{
    static const size_t sizes[] = {[FIELD_INT] = sizeof(int64_t),
                                   [FIELD_INT32] = sizeof(int32_t),
                                   [FIELD_DOUBLE] = sizeof(double),
                                   [FIELD_BOOL] = sizeof(int32_t),
                                   [FIELD_ENUM] = sizeof(int32_t)};
    for (const struct field *f = spec_fields; f->path; f++) {
        if (!is_shape_field(f) || !strcmp(f->path, PREFIX "max_position_embeddings")) continue;
        if (memcmp(member((struct model_shape *)a, f), member((struct model_shape *)b, f),
                   sizes[f->type]))
            return f->path + sizeof PREFIX - 1;
    }
    return NULL;
}

int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size)
{
    struct jwrite w;
    struct param p;
    int64_t n_params = 0;
    for (int i = 0; i < param_tensors(m); i++) {
        param_get(m, i, &p);
        n_params += p.count;
    }
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    write_shape(&w, m);
    jwrite_int(&w, "n_params", n_params);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype, struct err *e)
{
    char path[FILE_PATH_SIZE], text[4096];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "architectures");
    jwrite_str(&w, NULL, "LlamaForCausalLM");
    jwrite_end(&w);
    write_shape(&w, m);
    jwrite_str(&w, "hidden_act", "silu");
    jwrite_bool(&w, "attention_bias", false);
    jwrite_bool(&w, "mlp_bias", false);
    jwrite_double(&w, "attention_dropout", 0);
    jwrite_null(&w, "rope_scaling");
    jwrite_int(&w, "bos_token_id", TOKEN_EOD);
    jwrite_int(&w, "eos_token_id", TOKEN_EOD);
    jwrite_int(&w, "pad_token_id", TOKEN_PAD);
    jwrite_str(&w, "torch_dtype", dtype == DT_BF16 ? "bfloat16" : "float32");
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "config.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/config.json", dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}
