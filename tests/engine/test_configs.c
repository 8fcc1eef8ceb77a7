/* test_configs.c: reads config.json files of every family, complete and with keys left out.
 * Compares the number of parameters, the names and shapes of tensors, and the sizes that no shape
 * shows with those of the Python package transformers. make_configs.py wrote the latter to
 * tests/golden/configs.txt.
 * tests: needs golden/configs.txt */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/sha256.h"
#include "tests/lib/test.h"
#include "worker/family/config.h"
#include "worker/family/shape.h"
#include "worker/hf/hf.h"

enum { MAX_KEYS = 64 };

struct block {
    char name[64];
    const char *key[MAX_KEYS]; /* each element is the text "key": value */
    int n_keys;
};

static struct err e;
static int n_cases;

static bool is_key(const char *line, const char *key)
{
    const size_t n = strlen(key);
    return !strncmp(line + 1, key, n) && line[1 + n] == '"';
}

/* Writes the object without the key `without`. If `without` is "*", it writes only the keys that
 * identify the model. */
static void write_text(const struct block *b, const char *without, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "{");
    for (int i = 0; i < b->n_keys; i++) {
        const char *k = b->key[i];
        const bool house = is_key(k, "architectures") || is_key(k, "model_type") ||
                           is_key(k, "pad_token_id");
        if (is_key(k, without) || (!strcmp(without, "*") && !house)) continue;
        n += (size_t)snprintf(out + n, size - n, "%s%s", n > 1 ? "," : "", k);
    }
    snprintf(out + n, size - n, "}");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "name dim,dim". */
static char *tensor_line(const struct param *p)
{
    char text[160];
    const int64_t plain[] = {p->rows, p->cols};
    const int n_dims = p->n_dims ? p->n_dims : p->cols ? 2 : 1;
    const int64_t *dims = p->n_dims ? p->dims : plain;
    int n = snprintf(text, sizeof text, "%s ", p->name);
    for (int i = 0; i < n_dims; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%" PRId64, i ? "," : "", dims[i]);
    snprintf(text + n, sizeof text - (size_t)n, "\n");
    return strdup(text);
}

static int64_t digest(const struct model_shape *m, char hex[SHA256_HEX])
{
    struct sha256 sum;
    int64_t count = 0;
    const int n = param_tensors(m);
    struct param *p = malloc((size_t)n * sizeof *p);
    char **line = malloc((size_t)n * sizeof *line);
    param_list(m, p, n);
    for (int i = 0; i < n; i++) {
        line[i] = tensor_line(&p[i]);
        count += p[i].count;
    }
    qsort(line, (size_t)n, sizeof *line, by_text);
    sha256_init(&sum);
    for (int i = 0; i < n; i++) sha256_add(&sum, line[i], strlen(line[i]));
    sha256_hex(&sum, hex);
    for (int i = 0; i < n; i++) free(line[i]);
    free(line);
    free(p);
    return count;
}

static double size_of(const struct model_shape *m, const char *name)
{
    const struct field *f = shape_field(name);
    const char *at = (const char *)m;
    if (!strcmp(name, "layer_mask"))
        return (double)m->layer_mask[0] + (double)m->layer_mask[1] * 4294967296.0;
    if (!strcmp(name, "dense_mask"))
        return (double)m->dense_mask[0] + (double)m->dense_mask[1] * 4294967296.0;
    CHECK_MSG(f, "%s: not a name of model.config", name);
    if (!f) return -1;
    at += f->offset;
    switch (f->type) {
    case FIELD_INT: return (double)*(const int64_t *)at;
    case FIELD_DOUBLE: return *(const double *)at;
    default: return *(const int32_t *)at;
    }
}

static double wanted(struct jread *j, const char *name)
{
    const struct field *f = shape_field(name);
    double v = -1;
    switch (jread_next(j)) {
    case J_NUMBER: jread_double(j, &v); return v;
    case J_TRUE: return 1;
    case J_FALSE: return 0;
    case J_STRING:
        for (int i = 0; f && f->words && f->words[i]; i++)
            if (jread_is(j, f->words[i])) return i;
        return -1;
    default: return -1;
    }
}

static void check_sizes(const struct model_shape *m, const char *json, const char *what)
{
    struct jread j;
    char name[64];
    jread_init(&j, json, strlen(json));
    CHECK(jread_next(&j) == J_OBJECT);
    while (jread_next(&j) == J_KEY) {
        CHECK(jread_copy(&j, name, sizeof name) == 0);
        const double want = wanted(&j, name), have = size_of(m, name);
        CHECK_MSG(have == want, "%s: %s %g, transformers %g", what, name, have, want);
    }
}

static void check_case(const struct block *b, const char *line)
{
    static char text[8192];
    static struct model_shape m;
    static struct job_spec job;
    char without[64], want[17], what[160], hex[SHA256_HEX];
    int64_t count;
    int at = 0;
    if (sscanf(line, "%63s %" SCNd64 " %16s %n", without, &count, want, &at) != 3 || !at) abort();
    write_text(b, without, text, sizeof text);
    snprintf(what, sizeof what, "%s without %s", b->name, without);
    e = (struct err){0};
    CHECK_MSG(config_parse(text, strlen(text), "config.json", &m, &e) == 0, "%s: %s", what, e.text);
    if (e.code) return;
    const int64_t have = digest(&m, hex);
    CHECK_MSG(have == count, "%s: %" PRId64 " parameters, transformers %" PRId64, what, have,
              count);
    CHECK_MSG(!strncmp(hex, want, 16), "%s: names or shapes of tensors differ", what);
    check_sizes(&m, line + at, what);
    /* a job's model.config must be read in the same way, because it has a key that only
     * transformers writes */
    spec_defaults(&job);
    CHECK_MSG(config_take(&job, text, strlen(text), CONFIG_JOB, &e) == 0, "%s: %s", what, e.text);
    CHECK_MSG(!hf_shape_diff(&m, &job.model.shape), "%s: %s is another as model.config", what,
              hf_shape_diff(&m, &job.model.shape));
    CHECK(m.max_pos == job.model.shape.max_pos && !strstr(job.model.config, "\"feature_map"));
    /* the config must also be read in the form in which it is sent to nodes */
    CHECK(config_open(&job, &e) == 0 && !hf_shape_diff(&m, &job.model.shape));
    n_cases++;
}

static void test_as_the_package(void)
{
    static struct block b;
    char *all = file_read("tests/golden/configs.txt", 1 << 20, NULL, &e), *next = NULL;
    CHECK_MSG(all, "%s (run from the repository's root)", e.text);
    for (char *l = all ? strtok_r(all, "\n", &next) : NULL; l; l = strtok_r(NULL, "\n", &next)) {
        if (!strncmp(l, "config ", 7)) {
            b.n_keys = 0;
            snprintf(b.name, sizeof b.name, "%s", l + 7);
        } else if (!strncmp(l, "key ", 4)) {
            CHECK(b.n_keys < MAX_KEYS);
            b.key[b.n_keys++] = l + 4;
        } else {
            check_case(&b, l + 5);
        }
    }
    CHECK_MSG(n_cases > 400, "%d cases", n_cases);
    free(all);
}

/* Checks a config that has no key that only transformers writes, as a user would write it. Missing
 * keys must have the defaults of jobs. */
static void test_as_a_person(void)
{
    static const char text[] =
        "{\"model_type\":\"gpt2\",\"hidden_size\":48,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4%s}";
    static struct job_spec job;
    char given[256];
    for (int k = 0; k < 3; k++) {
        static const char *const marks[] = {"", ",\"architectures\":[\"GPT2LMHeadModel\"]",
                                            ",\"transformers_version\":\"5.0.0\""};
        spec_defaults(&job);
        snprintf(given, sizeof given, text, marks[k]);
        CHECK_MSG(config_take(&job, given, strlen(given), CONFIG_JOB, &e) == 0, "%s", e.text);
        CHECK(job.model.shape.tied == (k > 0));
        CHECK(job.model.shape.vocab == (k ? 50257 : 258));
        CHECK(job.model.shape.max_pos == (k ? 1024 : 1 << 20));
    }
    /* both errors name the field */
    snprintf(given, sizeof given, "{\"architectures\":[],\"model_type\":\"llama\",\"wings\":2}");
    CHECK(config_take(&job, given, strlen(given), CONFIG_JOB, &e) == -1);
    CHECK_STR(e.field, "model.config.wings");
}

/* Checks keys that every model of transformers may have. Their default values must be accepted,
 * and all other values must be refused. */
static void test_neutral(void)
{
    static const struct {
        const char *key, *value, *says; /* NULL means that it is accepted */
    } v[] = {
        {"is_encoder_decoder", "false", NULL},
        {"is_encoder_decoder", "null", NULL},
        {"is_encoder_decoder", "true", "is_encoder_decoder: true is not supported"},
        {"tie_encoder_decoder", "false", NULL},
        {"tie_encoder_decoder", "true", "true is not"},
        {"add_cross_attention", "false", NULL},
        {"add_cross_attention", "true", "true is not"},
        {"cross_attention_hidden_size", "null", NULL},
        {"cross_attention_hidden_size", "8", "size"},
        {"pruned_heads", "{}", NULL},
        {"pruned_heads", "null", NULL},
        {"pruned_heads", "{\"1\":[0]}", "pruned_heads: only {} is supported"},
        {"pruned_heads", "3", "pruned_heads: only {} is supported"},
        {"per_layer_config", "{}", NULL},
        {"is_encoder_decoder", "3", "is_encoder_decoder must be"},
    };
    static const struct {
        const char *type, *more, *says;
    } task[] = {{"llama", "\"is_decoder\":true", NULL},
                {"llama", "\"is_causal\":true", NULL},
                {"llama", "\"is_causal\":false", "is_causal: false is not supported"},
                {"bert", "\"is_decoder\":false", NULL},
                {"bert", "\"is_decoder\":true", "is_decoder: true is not supported"},
                {"bert", "\"is_causal\":false", NULL},
                {"modernbert", "\"is_causal\":true", "is_causal: true is not supported"}};
    static const char *const types[] = {"llama", "gpt2", "bert", "minimax", "qwen3_next"};
    static struct model_shape m;
    char text[256];
    for (size_t i = 0; i < 5 * sizeof v / sizeof *v; i++) {
        const char *says = v[i / 5].says;
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"%s\":%s}", types[i % 5], v[i / 5].key,
                 v[i / 5].value);
        const int rc = config_parse(text, strlen(text), "config.json", &m, &e);
        CHECK_MSG(says ? rc && strstr(e.text, says) : !rc, "%s: %s", text, e.text);
    }
    for (size_t i = 0; i < sizeof task / sizeof *task; i++) {
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",%s}", task[i].type, task[i].more);
        const int rc = config_parse(text, strlen(text), "config.json", &m, &e);
        CHECK_MSG(task[i].says ? rc && strstr(e.text, task[i].says) : !rc, "%s: %s", text, e.text);
    }
}

/* Checks published models that are not supported. The error must name the missing feature. */
static void test_not_here(void)
{
    static const struct {
        const char *type, *says;
    } v[] = {{"deepseek_v3", "it needs latent attention and shared experts; supported: llama, "},
             {"mamba2", "it needs selective state spaces; supported: "},
             {"what", "\"what\" is not supported; supported: llama, mistral"},
             {"a\\nb", "model_type \"\" is not supported"}};
    static struct model_shape m;
    char text[128];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        e = (struct err){0};
        const int n = snprintf(text, sizeof text, "{\"model_type\":\"%s\"}", v[i].type);
        CHECK(config_parse(text, (size_t)n, "config.json", &m, &e) == -1);
        CHECK_MSG(e.code == ERR_UNSUPPORTED && strstr(e.text, v[i].says), "%s", e.text);
    }
}

/* Checks keys that configs of MiniMax's first releases must have. The code of these releases has
 * no default for these keys, or does not compute as transformers does. */
#define LAYERS(a, b) "\"layer_types\":[\"" a "_attention\",\"" b "_attention\"]"
static void test_first_releases(void)
{
    static const struct {
        const char *more, *says;
    } v[] = {
        {"\"postnorm\":true,\"attn_type_list\":[0,1]", NULL},
        {"\"postnorm\":true", "attn_type_list: missing"},
        {"\"attn_type_list\":[0,1]", "postnorm: missing, which is false of its own code"},
        {"\"postnorm\":false,\"attn_type_list\":[0,1]", "postnorm: false is not supported"},
        {"\"postnorm\":true,\"attn_type_list\":[0,1],\"shared_intermediate_size\":8",
         "shared_intermediate_size: only 0"},
        {"\"postnorm\":true,\"attn_type_list\":[1,1]", "no layer of linear attention"},
        {"\"postnorm\":true,\"attn_type_list\":[0,1]," LAYERS("linear", "full"), NULL},
        {"\"postnorm\":true," LAYERS("full", "linear") ",\"attn_type_list\":[1,0]", NULL},
        {"\"postnorm\":true," LAYERS("full", "linear") ",\"attn_type_list\":null", NULL},
        {"\"postnorm\":true,\"attn_type_list\":[0,1]," LAYERS("full", "linear"),
         "layer_types: layer_types and attn_type_list differ"},
        {"\"postnorm\":true," LAYERS("full", "linear") ",\"attn_type_list\":[0,1]",
         "attn_type_list: layer_types and attn_type_list differ"},
        {"\"postnorm\":true,\"attn_type_list\":[0,1],\"layer_types\":[\"linear_attention\"]",
         "layer_types and attn_type_list differ"},
    };
    static const char *const types[] = {"minimax_text_01", "minimax_m1"};
    static struct model_shape m;
    char text[512];
    for (size_t i = 0; i < 2 * sizeof v / sizeof *v; i++) {
        e = (struct err){0};
        const int n = snprintf(text, sizeof text,
                               "{\"model_type\":\"%s\",\"num_hidden_layers\":2,%s}", types[i % 2],
                               v[i / 2].more);
        const int rc = config_parse(text, (size_t)n, "config.json", &m, &e);
        CHECK_MSG(v[i / 2].says ? rc && strstr(e.text, v[i / 2].says) : !rc, "%s: %s", text,
                  e.text);
        const bool second = strstr(v[i / 2].more, "[\"full") || strstr(v[i / 2].more, "[1,0]");
        CHECK_MSG(rc || m.layer_mask[0] == 1 + second, "%s", text);
    }
}

/* Checks that a refusal ends with one remedy. */
static void test_one_remedy(void)
{
    static const struct {
        const char *config, *end;
    } v[] = {{"\"model_type\":\"mistral\",\"sliding_window\":8," LAYERS("full", "sliding"),
              ": make model_type \"ministral\""},
             {"\"model_type\":\"minimax_m1\",\"postnorm\":true,\"attn_type_list\":[0,1]," LAYERS(
                  "full", "linear"),
              "differ: leave one of them out"},
             {"\"model_type\":\"minimax_m1\",\"postnorm\":true,\"attn_type_list\":[1,1]",
              "no hybrid: use a model that does without it"},
             {"\"model_type\":\"minimax_m1\",\"attn_type_list\":[0,1]",
              "only true is supported: use a model that does without it"},
             {"\"model_type\":\"linear_attn\",\"hidden_size\":64,\"num_heads\":2,\"vocab_size\":9",
              "only elu, relu and identity are supported: use a model that does without it"}};
    static struct model_shape m;
    char text[512];
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        e = (struct err){0};
        const int n = snprintf(text, sizeof text, "{%s,\"num_hidden_layers\":2}", v[i].config);
        CHECK(config_parse(text, (size_t)n, "config.json", &m, &e));
        const size_t size = strlen(e.text), end = strlen(v[i].end);
        CHECK_MSG(size > end && !strcmp(e.text + size - end, v[i].end), "%s: %s", text, e.text);
    }
}

int main(void)
{
    RUN(test_one_remedy);
    RUN(test_as_the_package);
    RUN(test_as_a_person);
    RUN(test_neutral);
    RUN(test_not_here);
    RUN(test_first_releases);
    return test_done("configs");
}
