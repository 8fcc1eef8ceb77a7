/* adapter.c: writes and checks adapter_config.json, and reads the tensors of adapters. */
#include "worker/hf/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/utf8.h"
#include "worker/family/family.h"
#include "worker/hf/safetensors.h"

static const char config_file[] = "adapter_config.json";
static const char weights_file[] = "adapter_model.safetensors";

enum { CONFIG_SIZE = 65536, CONFIG_MAX = 1 << 20 };

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes the name of each product of a program that has an adapter, as a part of the package's name
 * of the module. */
static void write_targets(struct jwrite *w, const struct program *p, const uint64_t *on)
{
    static const char suffix[] = ".weight";
    for (int i = 0; i < p->n_weights; i++)
        if (!p->weight[i].adapter && freeze_has(on, i))
            jwrite_strn(w, NULL, p->weight[i].name,
                        strlen(p->weight[i].name) - (sizeof suffix - 1));
}

/* Tells whether an earlier kind of layer has all products of kind k. */
static bool is_listed(const struct model_shape *m, const struct family *f, int k)
{
    for (int j = 0; j < k; j++) {
        bool same = !memcmp(m->adapter.on[j], m->adapter.on[k], sizeof m->adapter.on[j]);
        for (int i = 0; same && i < f->layer[k].n_weights; i++)
            same = i >= f->layer[j].n_weights ||
                   !strcmp(f->layer[j].weight[i].name, f->layer[k].weight[i].name);
        if (same) return true;
    }
    return false;
}

static bool is_transposed(const struct program *p, const uint64_t *on)
{
    for (int i = 0; i < p->n_weights; i++)
        if (freeze_has(on, i) && p->weight[i].transposed) return true;
    return false;
}

static void write_config(struct jwrite *w, const struct model_shape *m, const char *base)
{
    struct model_shape plain = *m;
    plain.adapter.rank = plain.freeze.n_kinds = 0;
    struct family *f = family_new(&plain);
    const bool causal = family_row(m)->task == MODEL_CAUSAL_LM;
    bool turned = false;
    jwrite_object(w, NULL);
    jwrite_str(w, "peft_type", "LORA");
    if (causal) jwrite_str(w, "task_type", "CAUSAL_LM");
    if (*base)
        jwrite_str(w, "base_model_name_or_path", base);
    else
        jwrite_null(w, "base_model_name_or_path");
    jwrite_int(w, "r", m->adapter.rank);
    jwrite_double(w, "lora_alpha", m->adapter.alpha);
    jwrite_double(w, "lora_dropout", m->adapter.dropout);
    jwrite_bool(w, "use_rslora", m->adapter.rslora);
    jwrite_bool(w, "use_dora", false);
    jwrite_str(w, "bias", "none");
    jwrite_array(w, "target_modules");
    for (int k = 0; k < f->n_kinds; k++) {
        turned |= is_transposed(&f->layer[k], m->adapter.on[k]);
        if (!is_listed(m, f, k)) write_targets(w, &f->layer[k], m->adapter.on[k]);
    }
    jwrite_end(w);
    jwrite_bool(w, "fan_in_fan_out", turned);
    jwrite_bool(w, "init_lora_weights", true);
    jwrite_bool(w, "inference_mode", true);
    jwrite_null(w, "modules_to_save");
    jwrite_end(w);
    family_free(f);
}

static int save_config(const char *dir, const struct model_shape *m, const char *base,
                       struct err *e)
{
    char path[FILE_PATH_SIZE], *text = malloc(CONFIG_SIZE);
    struct jwrite w;
    if (!text) return err_set(e, ERR_IO, "out of memory for %s", config_file);
    jwrite_init(&w, text, CONFIG_SIZE);
    write_config(&w, m, base);
    const int64_t n = jwrite_finish(&w);
    int rc = n < 0 ? err_set(e, ERR_INTERNAL, "%s needs %zu bytes", config_file, w.len)
                   : file_join(path, e, "%s/%s", dir, config_file);
    if (!rc) rc = file_write(path, text, (size_t)n, e);
    free(text);
    return rc;
}

int adapter_save(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const char *base, struct st_digest *written, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (written) written->of_tensors = true;
    if (file_make_dir(dir, e) < 0 || save_config(dir, m, base, e) < 0) return -1;
    if (file_join(path, e, "%s/%s", dir, weights_file) < 0) return -1;
    return hf_write_flats(path, m, weights, 1, written, e) < 0 ? -1 : file_sync_dir(dir, e);
}

/* ---- adapter_config.json --------------------------------------------------------------------- */

/* The rank and the factor that the file gives, with peft's defaults. */
struct adapter_config {
    const char *path;
    bool lora;
    int64_t rank;
    double alpha;
    bool rslora;
};

static int refuse(const struct adapter_config *c, const char *key, const char *value,
                  const char *why, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s %s: %s", c->path, key, value, why);
}

/* Copies a string for an error. Control characters are not copied. */
static void copy_text(struct jread *j, char out[64])
{
    if (jread_copy(j, out, 64) || !utf8_plain(out)) snprintf(out, 64, "(a long text)");
}

static int take_type(struct adapter_config *c, struct jread *j, struct err *e)
{
    char text[64];
    if (jread_next(j) == J_STRING && jread_is(j, "LORA")) {
        c->lora = true;
        return 0;
    }
    copy_text(j, text);
    return refuse(c, "peft_type", text, "only LORA is supported: convert it, or train another", e);
}

static int take_bias(struct adapter_config *c, struct jread *j, struct err *e)
{
    char text[64];
    if (jread_next(j) == J_STRING && jread_is(j, "none")) return 0;
    copy_text(j, text);
    return refuse(c, "bias", text,
                  "biases are not trained with an adapter: only \"none\" is supported", e);
}

/* Reads the way in which A and B were initialised. Some of them change the model's own weights. */
static int take_init(struct adapter_config *c, struct jread *j, struct err *e)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", NULL};
    char text[64];
    const enum jtok t = jread_next(j);
    if (t == J_TRUE || t == J_FALSE || t == J_NULL) return 0;
    for (int i = 0; t == J_STRING && fine[i]; i++)
        if (jread_is(j, fine[i])) return 0;
    copy_text(j, text);
    return refuse(c, "init_lora_weights", text,
                  "it may change the weights of the model: save the adapter with peft's "
                  "path_initial_model_for_weight_conversion",
                  e);
}

static int take_rank(struct adapter_config *c, struct jread *j, struct err *e)
{
    if (jread_next(j) == J_NUMBER && !jread_int(j, &c->rank) && c->rank > 0) return 0;
    return err_set(e, ERR_INVALID, "%s: r is no positive integer: save the adapter again", c->path);
}

static int take_alpha(struct adapter_config *c, struct jread *j, struct err *e)
{
    if (jread_next(j) == J_NUMBER && !jread_double(j, &c->alpha) && c->alpha > 0) return 0;
    return err_set(e, ERR_INVALID, "%s: lora_alpha is no positive number: save the adapter again",
                   c->path);
}

static int take_rslora(struct adapter_config *c, struct jread *j, struct err *e)
{
    const enum jtok t = jread_next(j);
    c->rslora = t == J_TRUE;
    if (t == J_TRUE || t == J_FALSE) return 0;
    return err_set(e, ERR_INVALID,
                   "%s: use_rslora is neither true nor false: save the adapter again", c->path);
}

/* Reads a key that changes the computation unless it is null, false, or an empty list, object or
 * text. */
static int take_nothing(struct adapter_config *c, const char *key, struct jread *j, struct err *e)
{
    const enum jtok t = jread_next(j);
    if (t == J_NULL || t == J_FALSE || (t == J_STRING && !j->len)) return 0;
    if ((t == J_ARRAY && jread_next(j) == J_ARRAY_END) ||
        (t == J_OBJECT && jread_next(j) == J_OBJECT_END))
        return 0;
    return refuse(c, key, "is set",
                  "it is not supported: leave it out, and train the adapter again", e);
}

/* Keys that change nothing in the computation of a trained adapter, or that its tensors show. */
static const char *const passed[] = {"task_type",
                                     "base_model_name_or_path",
                                     "revision",
                                     "inference_mode",
                                     "target_modules",
                                     "exclude_modules",
                                     "auto_mapping",
                                     "lora_dropout",
                                     "fan_in_fan_out",
                                     "peft_version",
                                     "loftq_config",
                                     "eva_config",
                                     "megatron_config",
                                     "megatron_core",
                                     "corda_config",
                                     "runtime_config",
                                     "layers_pattern",
                                     "qalora_group_size",
                                     NULL};

static const struct {
    const char *key;
    int (*take)(struct adapter_config *c, struct jread *j, struct err *e);
} keys[] = {
    {"peft_type", take_type},   {"bias", take_bias},         {"r", take_rank},
    {"lora_alpha", take_alpha}, {"use_rslora", take_rslora}, {"init_lora_weights", take_init}};
enum { N_KEYS = sizeof keys / sizeof *keys };

static bool is_passed(const char *key)
{
    for (int i = 0; passed[i]; i++)
        if (!strcmp(passed[i], key)) return true;
    return false;
}

static int take_key(struct adapter_config *c, struct jread *j, unsigned *seen, struct err *e)
{
    char key[64];
    copy_text(j, key);
    for (int i = 0; i < N_KEYS; i++) {
        if (strcmp(keys[i].key, key)) continue;
        if (*seen >> i & 1)
            return err_set(e, ERR_INVALID, "%s: %s occurs twice: remove one", c->path, key);
        *seen |= 1u << i;
        return keys[i].take(c, j, e);
    }
    return is_passed(key) ? jread_skip(j) : take_nothing(c, key, j, e);
}

static int parse(struct adapter_config *c, const char *text, size_t size, struct err *e)
{
    struct jread j;
    enum jtok t = J_ERROR;
    unsigned seen = 0;
    jread_init(&j, text, size);
    if (jread_next(&j) == J_OBJECT)
        while ((t = jread_next(&j)) == J_KEY)
            if (take_key(c, &j, &seen, e)) {
                if (j.err.code) break;
                return -1;
            }
    if (j.err.code || t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_CORRUPT, "%s: %s: fetch the file again", c->path,
                       j.err.code ? j.err.text : "it is not a JSON object");
    if (c->lora) return 0;
    return err_set(e, ERR_INVALID, "%s has no peft_type: it is not the file of an adapter",
                   c->path);
}

static int compare(const struct adapter_config *c, const struct model_shape *m, struct err *e)
{
    const struct shape_adapter *a = &m->adapter;
    if (c->rank != a->rank)
        return err_field(e, ERR_INVALID, "adapter.rank",
                         "%s: r is %lld, and the job's adapter.rank is %d: set adapter.rank %lld",
                         c->path, (long long)c->rank, a->rank, (long long)c->rank);
    if (c->rslora != (a->rslora != 0))
        return err_field(e, ERR_INVALID, "adapter.rslora",
                         "%s: use_rslora is %s, and the job's adapter.rslora is %s: set it to %s",
                         c->path, c->rslora ? "true" : "false", a->rslora ? "true" : "false",
                         c->rslora ? "true" : "false");
    if (c->alpha != a->alpha)
        return err_field(e, ERR_INVALID, "adapter.alpha",
                         "%s: lora_alpha is %.17g, and the job's adapter.alpha is %.17g: set "
                         "adapter.alpha %.17g",
                         c->path, c->alpha, a->alpha, c->alpha);
    return 0;
}

int adapter_check(const char *dir, const struct model_shape *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct adapter_config c = {.path = path, .rank = 8, .alpha = 8};
    size_t size;
    if (file_join(path, e, "%s/%s", dir, config_file) < 0) return -1;
    char *text = file_read(path, CONFIG_MAX, &size, e);
    if (!text) return -1;
    const int rc = parse(&c, text, size, e);
    free(text);
    return rc ? -1 : compare(&c, m, e);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Refuses a tensor of the file that is not one of the n sorted params. */
static int check_unexpected(const struct st_file *f, const struct param *sorted, int n,
                            struct err *e)
{
    const size_t k = sizeof ADAPTER_PREFIX - 1;
    for (int i = 0; i < st_count(f); i++) {
        const char *name = st_at(f, i)->name;
        if (!strncmp(name, ADAPTER_PREFIX, k) && hf_find_param(sorted, n, name + k)) continue;
        return err_field(
            e, ERR_INVALID, "adapter.targets",
            "%s has the tensor %.120s, of which the job's adapter.targets say nothing: "
            "name its module there, if it is a product of a layer",
            st_path(f), name);
    }
    return 0;
}

int adapter_load(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                 struct err *e)
{
    char path[FILE_PATH_SIZE];
    int n, rc = -1;
    if (adapter_check(dir, m, e)) return -1;
    if (file_join(path, e, "%s/%s", dir, weights_file) < 0) return -1;
    struct st_file *f = st_open(path, e);
    if (!f) return -1;
    struct param *list = hf_sorted(m, &n, e);
    if (list) n = hf_of_adapter(list, n), rc = check_unexpected(f, list, n, e);
    free(list);
    if (!rc) rc = hf_read_pieces(f, m, ADAPTER_PREFIX, to, e);
    st_close(f);
    return rc;
}
