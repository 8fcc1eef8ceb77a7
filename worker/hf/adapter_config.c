/* adapter_config.c: reads adapter_config.json, and compares it with the adapters of a job. A key is
 * refused if it changes the computation in a way that a job does not have. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/utf8.h"
#include "worker/hf/adapter.h"

static const char config_file[] = "adapter_config.json";

enum { CONFIG_MAX = 1 << 20 };

static int refuse(const struct adapter_config *c, const char *key, const char *value,
                  const char *why, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED, "%s: %s %s: %s", c->path, key, value, why);
}

/* Copies the last token for an error, which is t. Control characters are not copied. */
static void copy_text(struct jread *j, enum jtok t, char out[64])
{
    const bool is_text = t == J_KEY || t == J_STRING;
    if (!is_text)
        snprintf(out, 64, "(not a text)");
    else if (jread_copy(j, out, 64) || !utf8_plain(out))
        snprintf(out, 64, "(not a word)");
}

static int take_type(struct adapter_config *c, struct jread *j, struct err *e)
{
    char text[64];
    const enum jtok t = jread_next(j);
    if (t == J_STRING && jread_is(j, "LORA")) {
        c->lora = true;
        return 0;
    }
    copy_text(j, t, text);
    return refuse(c, "peft_type", text, "only LORA is supported: convert it, or train another", e);
}

static int take_bias(struct adapter_config *c, struct jread *j, struct err *e)
{
    char text[64];
    const enum jtok t = jread_next(j);
    if (t == J_STRING && jread_is(j, "none")) return 0;
    copy_text(j, t, text);
    return refuse(c, "bias", text, "only \"none\" is supported: train the adapter without biases",
                  e);
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
    copy_text(j, t, text);
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
    if (jread_next(j) == J_NUMBER && !jread_double(j, &c->alpha) && c->alpha > 0 &&
        isfinite(c->alpha))
        return 0;
    return err_set(e, ERR_INVALID, "%s: lora_alpha is no positive number: save the adapter again",
                   c->path);
}

static int take_dropout(struct adapter_config *c, struct jread *j, struct err *e)
{
    if (jread_next(j) == J_NUMBER && !jread_double(j, &c->dropout) && c->dropout >= 0 &&
        c->dropout <= 1)
        return 0;
    return err_set(e, ERR_INVALID, "%s: lora_dropout is not from 0 to 1: save the adapter again",
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

/* Returns the reason why a key that is set is not supported, and the fix. */
static const char *why_not(const char *key)
{
    static const char *const of_experts[] = {"target_parameters", "alpha_pattern", "rank_pattern"};
    if (!strcmp(key, "use_dora")) return "DoRA is not supported: train the adapter without it";
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++)
        if (!strcmp(key, of_experts[i]))
            return "products of experts, for which peft sets it, have no adapter, and all others "
                   "have one r and one lora_alpha: train the adapter with a list in target_modules";
    return "it is not supported: leave it out, and train the adapter again";
}

/* Reads the names of the modules that the directory has whole, or null. */
static int take_saved(struct adapter_config *c, struct jread *j, struct err *e)
{
    enum jtok t = jread_next(j);
    if (t == J_NULL) return 0;
    if (t == J_ARRAY)
        while ((t = jread_next(j)) == J_STRING) {
            if (c->n_saved == ADAPTER_SAVED)
                return refuse(c, "modules_to_save", "has more than 4 names",
                              "only the embedding and the head are supported: train without the "
                              "others",
                              e);
            if (jread_copy(j, c->saved[c->n_saved], SPEC_TARGET_SIZE) || !*c->saved[c->n_saved] ||
                !utf8_plain(c->saved[c->n_saved]))
                break;
            c->n_saved++;
        }
    if (t == J_ARRAY_END) return 0;
    return err_set(e, ERR_INVALID,
                   "%s: modules_to_save is no list of names of modules: save the adapter again",
                   c->path);
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
    return refuse(c, key, "is set", why_not(key), e);
}

/* Keys that change nothing in the computation of a trained adapter, or that its tensors show. */
static const char *const passed[] = {"task_type",         "base_model_name_or_path",
                                     "revision",          "inference_mode",
                                     "target_modules",    "exclude_modules",
                                     "auto_mapping",      "fan_in_fan_out",
                                     "peft_version",      "loftq_config",
                                     "eva_config",        "megatron_config",
                                     "megatron_core",     "corda_config",
                                     "runtime_config",    "layers_pattern",
                                     "qalora_group_size", NULL};

static const struct {
    const char *key;
    int (*take)(struct adapter_config *c, struct jread *j, struct err *e);
} keys[] = {{"peft_type", take_type},
            {"bias", take_bias},
            {"r", take_rank},
            {"lora_alpha", take_alpha},
            {"use_rslora", take_rslora},
            {"init_lora_weights", take_init},
            {"lora_dropout", take_dropout},
            {"modules_to_save", take_saved}};
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
    copy_text(j, J_KEY, key);
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

/* Refuses a number that no job can have. */
static int check_limit(const struct adapter_config *c, const char *key, double value,
                       const char *field, struct err *e)
{
    const struct field *f = spec_field(field);
    if (value >= f->min && value <= f->max) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "%s: %s is %.17g, and %s is from %g to %g: train an adapter whose %s is in this "
                   "range",
                   c->path, key, value, field, f->min, f->max, key);
}

/* Compares with adapter k of m. */
static int compare(const struct adapter_config *c, const struct model_shape *m, int k,
                   struct err *e)
{
    const struct shape_choice *of = m->adapters.n ? &m->adapters.of[k] : NULL;
    const struct shape_choice own = {
        .rank = m->adapter.rank, .rslora = m->adapter.rslora, .alpha = m->adapter.alpha};
    const struct shape_choice *a = of ? of : &own;
    if (check_limit(c, "r", (double)c->rank, "adapter.rank", e) ||
        check_limit(c, "lora_alpha", c->alpha, "adapter.alpha", e))
        return -1;
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
    return adapter_saved_compare(c, m, e);
}

int adapter_read_config(const char *dir, struct adapter_config *out, struct err *e)
{
    size_t size;
    *out = (struct adapter_config){.rank = 8, .alpha = 8}; /* peft's defaults */
    if (file_join(out->path, e, "%s/%s", dir, config_file) < 0) return -1;
    char *text = file_read(out->path, CONFIG_MAX, &size, e);
    if (!text) return -1;
    const int rc = parse(out, text, size, e);
    free(text);
    return rc;
}

int adapter_check_at(const char *dir, const struct model_shape *m, int k, struct err *e)
{
    struct adapter_config c;
    return adapter_read_config(dir, &c, e) ? -1 : compare(&c, m, k, e);
}

int adapter_check(const char *dir, const struct model_shape *m, struct err *e)
{
    return adapter_check_at(dir, m, 0, e);
}
