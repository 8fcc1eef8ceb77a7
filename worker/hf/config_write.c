/* config_write.c: writes a new config.json, or edits an old config.json member by member. Also
 * writes shapes as JSON, and compares shapes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"
#include "api/core/field.h"
#include "api/core/file.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"
#include "worker/program/rope.h"
#include "worker/family/shape.h"
#include "worker/hf/hf.h"
#include "worker/hf/tokenizer.h"

static const struct field *row_of(const struct hf_field *x)
{
    return shape_field(x->name);
}

static const void *value_of(const struct model_shape *m, const struct field *f)
{
    return (const char *)m + f->offset;
}

static const struct hf_family *family_of(const struct model_shape *m)
{
    const struct family_row *row = family_row(m);
    return row ? row->config : NULL;
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
        /* The size max_position_embeddings may differ if it is not the size of a table. */
        if (!strcmp(x->name, "max_position_embeddings") && !family_row(a)->position_table) continue;
        if (x->flags & HF_FIXED) continue;
        if (memcmp(value_of(a, f), value_of(b, f), sizes[f->type]))
            return x->key ? x->key : x->name;
    }
    return family_row(a)->rope_kinds && rope_differs(a, b) ? "rope_parameters" : NULL;
}

int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size)
{
    static const struct model_shape none;
    int64_t n_params = 0;
    int n;
    if (!family_of(m)) return -1;
    struct param *list = hf_list(m, &n, NULL);
    if (!list) return -1;
    for (int i = 0; i < n; i++) n_params += list[i].count;
    free(list);
    const int64_t len = config_write(m, &none, out, size);
    if (len < 0) return -1;
    const int more = snprintf(out + len - 1, size - (size_t)len + 1, ",\"n_params\":%lld}",
                              (long long)n_params);
    return len - 1 + more < (int64_t)size ? len - 1 + more : -1;
}

static const char *dtype_word(enum dtype dtype)
{
    static const char *const words[] = {
        [DT_F32] = "float32", [DT_BF16] = "bfloat16", [DT_F16] = "float16"};
    return words[dtype];
}

static const struct {
    const char *key;
    int byte; /* id in the byte tokenizer */
} token_ids[] = {
    {"bos_token_id", TOKEN_EOD}, {"eos_token_id", TOKEN_EOD}, {"pad_token_id", TOKEN_PAD}};
enum { N_TOKEN_IDS = sizeof token_ids / sizeof *token_ids };

/* Returns true if the id of special token i is one of the model's sizes. In that case the id
 * does not depend on the tokenizer. */
static bool is_size(const struct model_shape *m, int i)
{
    for (const struct hf_special *x = family_of(m)->specials; x->key; x++)
        if (!strcmp(x->key, token_ids[i].key)) return true;
    return false;
}

/* Writes the id of a special token. If each byte of text is a token, writes the id of the byte
 * tokenizer. Otherwise writes null, because the package transformers would use a default id if
 * the key were missing. */
static void write_token_id(struct jwrite *w, int i, bool bytes)
{
    if (bytes)
        jwrite_int(w, token_ids[i].key, token_ids[i].byte);
    else
        jwrite_null(w, token_ids[i].key);
}

/* Writes the family's keys. If `which` is not NULL, writes only the keys for which `which` returns
 * true. */
static void write_keys(struct jwrite *w, const struct model_shape *m, bool (*which)(const char *))
{
    const struct hf_family *family = family_of(m);
    for (const struct hf_field *x = family->fields; x->name; x++) {
        const char *key = x->key ? x->key : x->name;
        if (!(x->flags & (HF_UNWRITTEN | HF_FIXED)) && (!which || which(key)))
            config_write_value(w, key, row_of(x), m);
    }
    for (const struct hf_special *x = family->specials; x->key; x++)
        if (x->write && (!which || which(x->key))) x->write(w, x->key, m);
}

static void write_new(struct jwrite *w, const struct model_shape *m, enum dtype dtype, bool bytes)
{
    const struct hf_model *model = config_model(m);
    jwrite_object(w, NULL);
    jwrite_array(w, "architectures");
    jwrite_str(w, NULL, model->classes[0]);
    jwrite_end(w);
    jwrite_str(w, "model_type", model->type);
    write_keys(w, m, NULL);
    for (int i = 0; i < N_TOKEN_IDS && !family_diffusion(m); i++)
        if (!is_size(m, i)) write_token_id(w, i, bytes);
    jwrite_str(w, "torch_dtype", dtype_word(dtype));
    jwrite_end(w);
}

/* ---- an older config.json, key by key -------------------------------------------------------- */

/* CONFIG_SIZE limits the old file; CONFIG_MORE is room to grow */
enum { CONFIG_SIZE = 4 << 20, CONFIG_MORE = 65536 };

struct edit {
    struct jwrite w;
    const struct model_shape *m;
    enum dtype dtype;
    /* `bytes`: whether to change the ids of special tokens; `theta`: whether to change
     * rope_theta */
    bool bytes, theta;
    bool rope;   /* whether to change the rule of RoPE's frequencies, and all keys of this
                        * rule */
    bool flow;   /* whether to write the objective on which the weights were trained */
    bool inside; /* whether this object is the text_config of a wrapper; the keys that every
                  * config.json has are not in text_config, but in the object of the wrapper */
    bool seen_id[N_TOKEN_IDS];
    bool seen_dtype, seen_theta, seen_objective;
    /* for a wrapper, whether to change rope_theta and the rule of RoPE in text_config */
    bool text_theta, text_rope;
    bool failed;
    char *key, *value; /* owned; key has room for the size of the file, and value has room for
                        * twice that size */
};

static bool token_id(struct edit *d)
{
    const size_t n = strlen(d->key);
    if (!d->bytes || n < 9 || strcmp(d->key + n - 9, "_token_id") != 0) return false;
    for (int i = 0; i < N_TOKEN_IDS; i++) {
        if (strcmp(d->key, token_ids[i].key) != 0) continue;
        if (is_size(d->m, i)) return false;
        if (!d->seen_id[i]) write_token_id(&d->w, i, true);
        d->seen_id[i] = true;
    }
    return true; /* leave out the ids of the old tokenizer's other special tokens (cls, sep, mask
                  * ...) */
}

/* Copies the text of the next value. Call it directly after the key of the value was read. */
static int take_value(char *value, struct jread *j)
{
    const char *at = j->p;
    if (jread_skip(j) < 0) return -1;
    while (at < j->p && (*at == ':' || *at == ' ' || *at == '\t' || *at == '\r' || *at == '\n'))
        at++;
    memcpy(value, at, (size_t)(j->p - at));
    value[j->p - at] = 0;
    return 0;
}

/* Copies an object of RoPE's parameters, but changes rope_theta. If the object has parameters
 * for each kind of layer, changes the parameters of layers without a window. The caller has
 * checked the object's syntax. */
static void edit_rope(struct edit *d, const char *key, const char *text, size_t size)
{
    char name[64];
    struct jread j;
    char *value = d->value + strlen(d->value) + 1; /* the second half of the buffer */
    bool seen = false, layers = false;
    jread_init(&j, text, size);
    jread_next(&j);
    jwrite_object(&d->w, key);
    while (jread_next(&j) == J_KEY) {
        if (jread_copy(&j, name, sizeof name) < 0) break;
        const bool full = !strcmp(name, "full_attention");
        const char *at = j.p;
        if (take_value(value, &j) < 0) break;
        if (full && value[0] == '{')
            edit_rope(d, "full_attention", strchr(at, '{'), strlen(value));
        else if (strcmp(name, "rope_theta"))
            jwrite_raw(&d->w, name, value);
        else
            jwrite_double(&d->w, name, d->m->rope_theta);
        seen |= full || !strcmp(name, "rope_theta");
        layers |= !strcmp(name, "sliding_attention");
    }
    if (!seen && layers) jwrite_object(&d->w, "full_attention");
    if (!seen && layers) jwrite_str(&d->w, "rope_type", "default");
    if (!seen) jwrite_double(&d->w, "rope_theta", d->m->rope_theta);
    if (!seen && layers) jwrite_end(&d->w);
    jwrite_end(&d->w);
}

/* Returns true if the key belongs to the rule of RoPE in at least one version of transformers
 * or in at least one family. */
static bool says_rope(const char *key)
{
    static const char *const keys[] = {"rope_theta",
                                       "rope_scaling",
                                       "rope_parameters",
                                       "rope_local_base_freq",
                                       "partial_rotary_factor",
                                       "original_max_position_embeddings",
                                       NULL};
    for (const char *const *k = keys; *k; k++)
        if (!strcmp(*k, key)) return true;
    return false;
}

/* Returns the key of rope_theta in the family's files. */
static const char *theta_key(const struct model_shape *m)
{
    for (const struct hf_field *x = family_of(m)->fields; x->name; x++)
        if (!strcmp(x->name, "rope_theta") && x->key) return x->key;
    return "rope_theta";
}

static bool rope_theta(struct edit *d)
{
    const bool top = !strcmp(d->key, theta_key(d->m));
    const bool inside = !strcmp(d->key, "rope_parameters") || !strcmp(d->key, "rope_scaling");
    if (!d->theta || (!top && !(inside && d->value[0] == '{'))) return false;
    d->seen_theta = true;
    if (top)
        jwrite_double(&d->w, d->key, d->m->rope_theta);
    else
        edit_rope(d, d->key, d->value, strlen(d->value));
    return true;
}

static int edit_object(struct edit *d, const char *name, const char *text, size_t size);

/* Edits the text model's keys of a wrapper. */
static bool edit_inside(struct edit *d)
{
    if (d->inside || strcmp(d->key, "text_config") != 0 || d->value[0] != '{') return false;
    const size_t size = strlen(d->value);
    struct edit in = {.w = d->w, .m = d->m, .dtype = d->dtype, .bytes = d->bytes, .inside = true};
    in.theta = d->text_theta;
    in.rope = d->text_rope;
    in.key = malloc(size + 1);
    in.value = malloc(2 * size + 2);
    if (!in.key || !in.value || edit_object(&in, d->key, d->value, size) < 0) d->failed = true;
    free(in.key);
    free(in.value);
    d->w = in.w;
    return true;
}

static void edit_key(struct edit *d)
{
    if (edit_inside(d)) return;
    if (!strcmp(d->key, "torch_dtype") || !strcmp(d->key, "dtype")) {
        jwrite_str(&d->w, d->key, dtype_word(d->dtype));
        d->seen_dtype = true;
    } else if (d->flow && !strcmp(d->key, "objective")) {
        if (!d->seen_objective) jwrite_str(&d->w, d->key, family_objective(d->m));
        d->seen_objective = true;
    } else if (!strcmp(d->key, "quantization_config") && strcmp(d->value, "null")) {
        return; /* the weights are written unquantized */
    } else if (d->rope && says_rope(d->key)) {
        return;
    } else if (!token_id(d) && !rope_theta(d)) {
        jwrite_raw(&d->w, d->key, d->value);
    }
}

static void edit_missing(struct edit *d)
{
    for (int i = 0; d->bytes && !d->inside && i < N_TOKEN_IDS; i++)
        if (!d->seen_id[i] && !is_size(d->m, i)) write_token_id(&d->w, i, true);
    if (d->rope)
        write_keys(&d->w, d->m, says_rope);
    else if (d->theta && !d->seen_theta)
        jwrite_double(&d->w, theta_key(d->m), d->m->rope_theta);
    if (d->flow && !d->seen_objective) jwrite_str(&d->w, "objective", family_objective(d->m));
    if (!d->seen_dtype && !d->inside) jwrite_str(&d->w, "torch_dtype", dtype_word(d->dtype));
}

static int edit_object(struct edit *d, const char *name, const char *text, size_t size)
{
    struct jread j;
    enum jtok t;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    jwrite_object(&d->w, name);
    while ((t = jread_next(&j)) == J_KEY) {
        /* a key with a NUL is left out */
        const bool named = jread_copy(&j, d->key, size + 1) == 0;
        if (take_value(d->value, &j) < 0) return -1;
        if (named) edit_key(d);
    }
    edit_missing(d);
    jwrite_end(&d->w);
    return t == J_OBJECT_END && !d->failed ? 0 : -1;
}

/* Returns true if the file belongs to a wrapper that has the keys of RoPE in text_config. */
static bool has_text_config(const char *text, size_t size)
{
    struct jread j;
    jread_init(&j, text, size);
    jread_next(&j);
    while (jread_next(&j) == J_KEY) {
        struct jread here = j;
        if (jread_is(&j, "text_config")) return jread_next(&here) == J_OBJECT;
        if (jread_skip(&j) < 0) break;
    }
    return false;
}

/* Writes to out the text of an old config.json with the changes of this job. Returns the length,
 * or -1. */
static int64_t write_edited(const char *path, const char *text, size_t size,
                            const struct model_shape *m, enum dtype dtype, bool bytes, char *out,
                            struct err *e)
{
    struct model_shape was, as;
    struct edit d = {.m = m, .dtype = dtype, .bytes = bytes};
    int64_t n = -1;
    if (config_parse(text, size, path, &was, e) < 0) return -1;
    as = was;
    /* ignore rope_theta and the rule of RoPE in the comparison, because a job may change them */
    as.rope_theta = m->rope_theta;
    as.rope = m->rope;
    const char *key = hf_shape_diff(&as, m);
    if (key) return err_set(e, ERR_CONFLICT, "%s: %s is not the job's", path, key);
    d.theta = was.rope_theta != m->rope_theta;
    d.rope = rope_differs(&was, m);
    d.flow = family_diffusion(m);
    if (has_text_config(text, size)) {
        d.text_theta = d.theta;
        d.text_rope = d.rope;
        d.theta = d.rope = false;
    }
    d.key = malloc(size + 1);
    d.value = malloc(2 * size + 2);
    jwrite_init(&d.w, out, size + CONFIG_MORE);
    if (!d.key || !d.value)
        err_set(e, ERR_IO, "out of memory for %s", path);
    else if (edit_object(&d, NULL, text, size) < 0 || (n = jwrite_finish(&d.w)) < 0)
        err_set(e, ERR_INVALID, "%s cannot be copied key by key", path);
    free(d.key);
    free(d.value);
    return n;
}

/* ---- the file -------------------------------------------------------------------------------- */

static int write_text(const char *dir, const char *text, int64_t n, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (n < 0) return -1;
    if (file_join(path, e, "%s/config.json", dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e);
}

static int write_over(const char *dir, const char *old, const struct model_shape *m,
                      enum dtype dtype, bool bytes, struct err *e)
{
    size_t size;
    char *text = file_read(old, CONFIG_SIZE, &size, e);
    char *out = text ? malloc(size + CONFIG_MORE) : NULL;
    int rc = -1;
    if (out)
        rc = write_text(dir, out, write_edited(old, text, size, m, dtype, bytes, out, e), e);
    else if (text)
        err_set(e, ERR_IO, "out of memory for %s", old);
    free(out);
    free(text);
    return rc;
}

int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype,
                    const struct hf_beside *b, struct err *e)
{
    char old[FILE_PATH_SIZE];
    const bool bytes = !b || b->bytes;
    struct jwrite w;
    if (!family_of(m))
        return err_set(e, ERR_UNSUPPORTED, "a model of this family has no config.json");
    if (b && b->from) {
        if (file_join(old, e, "%s/config.json", b->from) < 0) return -1;
        if (file_exists(old)) return write_over(dir, old, m, dtype, bytes, e);
    }
    char *text = mem_scratch(CONFIG_MORE);
    jwrite_init(&w, text, CONFIG_MORE);
    write_new(&w, m, dtype, bytes);
    const int64_t n = jwrite_finish(&w);
    const int rc = n < 0 ? err_set(e, ERR_INTERNAL, "config.json needs %zu bytes", w.len)
                         : write_text(dir, text, n, e);
    free(text);
    return rc;
}
