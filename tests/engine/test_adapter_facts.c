/* test_adapter_facts.c: describes directories of adapters, of the package and of every family, and
 * hostile ones. Checks that the description gives a job the products of the directory, and that a
 * job that names another value is refused.
 * tests: needs golden */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/test.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/plan/adapter_facts.h"
#include "worker/text/full_match.h"

static char dir[64]; /* the directory of the test */
static struct job_spec spec, other;

static const char lora[] =
    "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5,\"lora_dropout\":0.25}";

static const char *path_of(const char *name)
{
    static char path[2][160];
    static int k;
    k = !k;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static void put(const char *name, const char *bytes, size_t size)
{
    struct err e = {0};
    CHECK_MSG(!file_write(path_of(name), bytes, size, &e), "%s", e.text);
}

static void put_config(const char *text)
{
    put("adapter_config.json", text, strlen(text));
}

static void begin(void)
{
    strcpy(dir, "/tmp/test_facts.XXXXXX");
    if (!mkdtemp(dir)) abort();
    put_config(lora);
}

static void end(void)
{
    struct err e;
    CHECK(!file_remove(dir, &e));
}

/* Type of the elements, and rank of the matrices, that put_tensors writes. */
static const char *type = "F32";
static int rank = 3;

/* Writes adapter_model.safetensors with n matrices, each of one row or column, of zeros. */
static void put_tensors(const char *(*name)(const void *of, int i), const void *of, int n)
{
    const size_t room = (size_t)n * 320 + 64, each = 4 * (size_t)rank;
    char *bytes = calloc(1, room + each * (size_t)n);
    size_t at = 8;
    if (!bytes) abort();
    at += (size_t)snprintf(bytes + at, room - at, "{");
    for (int i = 0; i < n; i++) {
        const char *const is = name(of, i);
        const bool is_b = strstr(is, ".lora_B.") != NULL;
        at += (size_t)snprintf(
            bytes + at, room - at,
            "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%zu,%zu]}",
            i ? "," : "", is, type, is_b ? 1 : rank, is_b ? rank : 1, each * (size_t)i,
            each * (size_t)(i + 1));
    }
    at += (size_t)snprintf(bytes + at, room - at, "}");
    const uint64_t size = at - 8;
    memcpy(bytes, &size, sizeof size); /* little endian, as every machine that seqd runs on */
    put("adapter_model.safetensors", bytes, at + each * (size_t)n);
    free(bytes);
}

static const char *in_list(const void *of, int i)
{
    return ((const char *const *)of)[i];
}

static int describe(struct adapter_facts *f, struct err *e)
{
    char json[SPEC_CONFIG_SIZE];
    const int64_t n = adapter_describe(dir, json, sizeof json, e);
    return n < 0 ? -1 : adapter_facts_read(json, (size_t)n, f, e);
}

/* ---- every family ---------------------------------------------------------------------------- */

static const char *of_param(const void *of, int i)
{
    static char name[256];
    snprintf(name, sizeof name, ADAPTER_PREFIX "%s", ((const struct param *)of)[i].name);
    return name;
}

/* Writes the tensors of the adapters of spec's model. */
static void put_model(void)
{
    struct err e = {0};
    int n;
    struct param *list = hf_sorted(&spec.model.shape, &n, &e);
    CHECK_MSG(list, "%s", e.text);
    n = hf_of_adapter(list, n);
    CHECK(n > 0);
    put_tensors(of_param, list, n);
    free(list);
}

/* Checks that the products of a directory are those that the word names in the model. */
static void check_family(const char *config, const char *word)
{
    struct err e = {0};
    struct adapter_facts f;
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    if (config_read_dir(config, &spec.model.shape, &e)) return; /* no model */
    if (family_diffusion(&spec.model.shape)) return;
    other = spec;
    spec.adapter.type = ADAPTER_LORA;
    spec.adapter.rank = 3;
    CHECK(!spec_intern(&spec, word, strlen(word), &spec.adapter.targets[0]));
    if (rules_adapter(&spec, &e)) return; /* the model has no such product */
    put_model();
    memset(&e, 0, sizeof e);
    CHECK_MSG(!describe(&f, &e), "%s, %s: %s", config, word, e.text);
    CHECK_MSG(!adapter_facts_fill(&other, &f, &e) && !rules_adapter(&other, &e), "%s, %s: %s",
              config, word, e.text);
    CHECK_MSG(!memcmp(other.model.shape.adapter.on, spec.model.shape.adapter.on,
                      sizeof spec.model.shape.adapter.on),
              "%s: the products of \"%s\" are others", config, word);
    CHECK(other.adapter.rank == 3 && other.adapter.alpha == 5 && other.adapter.dropout == 0.25);
}

static void test_families(void)
{
    static const char *const words[] = {"all-linear", "attention", "mlp"};
    DIR *d = opendir("tests/golden");
    int n = 0;
    CHECK(d);
    begin();
    for (struct dirent *x; d && (x = readdir(d));) {
        char config[300];
        snprintf(config, sizeof config, "tests/golden/%s", x->d_name);
        if (*x->d_name == '.' || access(config, X_OK) || access(config, F_OK)) continue;
        for (size_t k = 0; k < sizeof words / sizeof *words; k++, n++)
            check_family(config, words[k]);
    }
    CHECK(n > 60);
    if (d) closedir(d);
    end();
}

/* ---- the package's own directories ----------------------------------------------------------- */

static void test_golden(void)
{
    static const char want[] =
        "{\"rank\":3,\"alpha\":5,\"rslora\":false,\"dropout\":0,\"layers\":2,\"targets\":["
        "\"mlp.down_proj\",\"mlp.gate_proj\",\"mlp.up_proj\","
        "\"self_attn.k_proj\",\"self_attn.o_proj\",\"self_attn.q_proj\","
        "\"self_attn.v_proj\"]}\n";
    char json[SPEC_CONFIG_SIZE];
    struct err e = {0};
    CHECK_MSG(adapter_describe("tests/golden/adapter/qwen3", json, sizeof json, &e) ==
                  (int64_t)strlen(want),
              "%s", e.text);
    CHECK_STR(json, want);
    CHECK(adapter_describe("tests/golden/adapter/qwen3", json, sizeof want, &e) > 0);
    CHECK(adapter_describe("tests/golden/adapter/qwen3", json, sizeof want - 1, &e) < 0);
    CHECK(e.code == ERR_TOO_LARGE);
}

/* Checks a directory that has whole modules, with and without modules_to_save in its
 * configuration, as the package saves embeddings on its own. */
static void test_saved(void)
{
    static const char *const name[] = {
        ADAPTER_PREFIX "lm_head.bias", ADAPTER_PREFIX "lm_head.weight",
        ADAPTER_PREFIX "model.embed_tokens.weight", ADAPTER_PREFIX "model.layers.0.a.lora_A.weight",
        ADAPTER_PREFIX "score.weight"};
    struct adapter_facts f;
    struct err e = {0};
    char json[SPEC_CONFIG_SIZE];
    CHECK(adapter_describe("tests/golden/adapter/phi3_both", json, sizeof json, &e) > 0);
    CHECK_MSG(strstr(json, "\"modules_to_save\":[\"lm_head\",\"embed_tokens\"]}"), "%s", json);
    CHECK(adapter_describe("tests/golden/adapter/mixtral_head", json, sizeof json, &e) > 0);
    CHECK_MSG(strstr(json, "\"modules_to_save\":[\"lm_head\"]}"), "%s", json);
    begin();
    put_tensors(in_list, name, 4);
    CHECK_MSG(!describe(&f, &e) && f.n == 1 && f.n_saved == 2, "%s", e.text);
    CHECK_STR(f.saved[0], "lm_head");
    CHECK_STR(f.saved[1], "embed_tokens");
    put_config("{\"peft_type\":\"LORA\",\"r\":3,\"modules_to_save\":[\"model.embed_tokens\",\"lm_"
               "head\"]}");
    CHECK_MSG(!describe(&f, &e), "%s", e.text);
    put_config("{\"peft_type\":\"LORA\",\"r\":3,\"modules_to_save\":[\"classifier\"]}");
    CHECK(describe(&f, &e) && strstr(e.text, "modules_to_save names classifier"));
    put_config(lora);
    put_tensors(in_list, name, 5);
    CHECK(describe(&f, &e) && strstr(e.text, "score.weight, which is neither embedding nor head"));
    end();
}

/* ---- refused directories --------------------------------------------------------------------- */

static void refused(enum err_code code, const char *says)
{
    struct adapter_facts f;
    struct err e = {0};
    CHECK_MSG(describe(&f, &e), "%s is taken", says);
    CHECK_MSG(e.code == code && strstr(e.text, says), "%s: %s", err_name(e.code), e.text);
    for (const char *c = e.text; *c; c++) CHECK((unsigned char)*c >= ' ');
}

#define NAME(x) ADAPTER_PREFIX x

static void test_tensors(void)
{
    static const struct {
        const char *name, *says;
    } rows[] = {
        {"model.layers.0.self_attn.q_proj.lora_A.weight", "is no matrix lora_A or lora_B"},
        {NAME("model.layers.0.self_attn.q_proj.weight"), "is no matrix lora_A or lora_B"},
        {NAME("model.layers.0.self_attn.q_proj.lora_C.weight"), "is no matrix lora_A or lora_B"},
        {NAME("model.embed_tokens.lora_embedding_A"), "is no matrix lora_A or lora_B"},
        {NAME("lm_head.lora_A.weight"), "is of no layer"},
        {NAME("model.layers.0.lora_A.weight"), "is of no layer"},
        {NAME("model.layers.0.a b.lora_A.weight"), "names no product"},
        {NAME("model.layers.0.a\\\"b.lora_A.weight"), "names no product"},
        {NAME("model.layers.0..lora_A.weight"), "is of no layer"},
        {NAME("model.layers.0.a234567890123456789012345678901234567890123456789012345678901234."
              "lora_A.weight"),
         "names no product"},
        {NAME("model.layers.0.mlp.gate.bias"), "is no matrix lora_A or lora_B"},
        {NAME("lm_head.base_layer"), "is no matrix lora_A or lora_B"},
        {NAME("lm_head..weight"), "is no matrix lora_A or lora_B"},
        {NAME("lora_A.weight"), "is no matrix lora_A or lora_B"},
        {"lora_A.weight", "is no matrix lora_A or lora_B"}};
    begin();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_tensors(in_list, &rows[i].name, 1);
        refused(ERR_UNSUPPORTED, rows[i].says);
    }
    put_tensors(in_list, NULL, 0);
    refused(ERR_INVALID, "has no tensors");
    put("adapter_model.safetensors", "x", 1);
    refused(ERR_CORRUPT, "adapter_model.safetensors");
    CHECK(!unlink(path_of("adapter_model.safetensors")));
    refused(ERR_NOT_FOUND, "has no adapter_model.safetensors: give the whole directory");
    put("adapter_model.bin", "PK", 2);
    refused(ERR_NOT_FOUND, "save the adapter with safe_serialization=True");
    CHECK(!symlink("/dev/zero", path_of("adapter_model.safetensors")));
    refused(ERR_INVALID, "adapter_model.safetensors");
    end();
}

/* Checks matrices of another type or rank, and the number of layers. */
static void test_matrices(void)
{
    static const char *const name[] = {NAME("model.layers.11.mlp.experts.50.up.lora_A.weight"),
                                       NAME("model.layers.2.mlp.up.lora_B.weight")};
    static const char *const far[] = {NAME("model.layers.99999999999999999999.up.lora_B.weight")};
    struct adapter_facts f;
    struct err e = {0};
    begin();
    put_tensors(in_list, name, 2);
    CHECK_MSG(!describe(&f, &e) && f.layers == 12, "%s", e.text);
    spec.model.shape.n_layers = 12;
    CHECK(!adapter_facts_check_layers(&spec, &f, &e));
    spec.model.shape.n_layers = 11;
    CHECK(adapter_facts_check_layers(&spec, &f, &e) && !strcmp(e.field, "model.adapter"));
    CHECK_MSG(strstr(e.text, "layer 11, counted from 0, and the model has 11 layers"), "%s",
              e.text);
    put_tensors(in_list, far, 1);
    CHECK_MSG(!describe(&f, &e) && adapter_facts_check_layers(&spec, &f, &e), "%s", e.text);
    rank = 4;
    for (int i = 0; i < 2; i++) {
        put_tensors(in_list, name + i, 1);
        refused(ERR_INVALID, "is of rank 4, and r of adapter_config.json is 3: fetch both");
    }
    rank = 3;
    type = "I32";
    put_tensors(in_list, name, 2);
    refused(ERR_UNSUPPORTED, "has the type I32: save the adapter in float32");
    type = "F32";
    end();
}

/* Checks keys of the configuration that contradict the tensors, and others that do not. */
static void test_targets(void)
{
    static const char *const name[] = {NAME("model.layers.0.self_attn.q_proj.lora_A.weight"),
                                       NAME("model.layers.0.self_attn.q_proj.lora_B.weight"),
                                       NAME("model.layers.11.mlp.up_proj.lora_A.weight")};
    static const struct {
        const char *keys, *says; /* NULL: the directory is taken */
    } rows[] = {
        {"\"target_modules\":[\"q_proj\",\"mlp.up_proj\"]", NULL},
        {"\"target_modules\":[\"q_proj\",\"up_proj\",\"query\"]", NULL},
        {"\"target_modules\":[\"model.layers.0.self_attn.q_proj\",\"up_proj\"]", NULL},
        {"\"target_modules\":\"all-linear\",\"exclude_modules\":[\"lm_head\"]", NULL},
        {"\"target_modules\":[]", NULL},
        {"\"target_modules\":[1]", NULL},
        {"\"target_modules\":null,\"exclude_modules\":null", NULL},
        {"\"target_modules\":[\"proj\"]", "target_modules does not name model.layers.0.self_attn."},
        {"\"target_modules\":[\"q_proj\"]", "does not name model.layers.11.mlp.up_proj, and"},
        {"\"target_modules\":[\"layers.1.mlp.up_proj\",\"q_proj\"]", "model.layers.11.mlp.up_proj"},
        {"\"exclude_modules\":[\"up_proj\"]", "exclude_modules names model.layers.11.mlp.up_proj"},
        {"\"exclude_modules\":[\"p_proj\"]", NULL},
        /* expressions */
        {"\"target_modules\":\".*\\\\.(q|up)_proj\"", NULL},
        {"\"target_modules\":\".*q_proj\"", "does not name model.layers.11.mlp.up_proj"},
        {"\"target_modules\":\"q_proj\"", "does not name model.layers.0.self_attn.q_proj"},
        {"\"exclude_modules\":\".*\\\\.11\\\\..*\"", "names model.layers.11.mlp.up_proj"},
        {"\"target_modules\":\"(\"", NULL},
        {"\"target_modules\":\"(.*)*(.*)*(.*)*x_proj\"", NULL}, /* takes too many steps */
    };
    char text[256];
    static const char last[] = "\"exclude_modules\":[\"p_proj\"]";
    struct full_match *any = full_match_create("a", 1);
    const bool expressions = any != NULL; /* a build without PCRE2 has none */
    struct adapter_facts f;
    full_match_destroy(any);
    begin();
    put_tensors(in_list, name, 3);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        snprintf(text, sizeof text, "{\"peft_type\":\"LORA\",\"r\":3,%s}", rows[i].keys);
        put_config(text);
        if (rows[i].says)
            refused(ERR_INVALID, rows[i].says);
        else
            CHECK_MSG(!describe(&f, &e), "%s: %s", rows[i].keys, e.text);
        if (!strcmp(rows[i].keys, last) && !expressions) break;
    }
    end();
}

static const char *numbered(const void *of, int i)
{
    static char name[160];
    const int per_layer = *(const int *)of;
    snprintf(name, sizeof name, NAME("model.layers.%d.m%d.lora_%c.weight"), i / (2 * per_layer),
             i / 2 % per_layer, "AB"[i % 2]);
    return name;
}

/* Checks 100,000 tensors, first of as many products of a layer as a job can name, and then of one
 * more. */
static void test_many(void)
{
    struct adapter_facts f;
    struct err e = {0};
    int per_layer = SPEC_TARGETS;
    begin();
    put_tensors(numbered, &per_layer, 100000);
    CHECK_MSG(!describe(&f, &e), "%s", e.text);
    CHECK(f.n == SPEC_TARGETS);
    per_layer++;
    put_tensors(numbered, &per_layer, 100000);
    refused(ERR_UNSUPPORTED, "more than 32 products");
    end();
}

static void test_directories(void)
{
    static const char *const name[] = {NAME("model.layers.0.a.lora_A.weight")};
    struct adapter_facts f;
    struct err e = {0};
    begin();
    put_tensors(in_list, name, 1);
    CHECK_MSG(!describe(&f, &e), "%s", e.text);
    put("config.json", "{}", 2);
    CHECK(!unlink(path_of("adapter_config.json")));
    refused(ERR_INVALID, "is the directory of a model");
    CHECK(!unlink(path_of("config.json")));
    refused(ERR_INVALID, "has no adapter_config.json");
    CHECK(!mkdir(path_of("adapter"), 0700));
    put("adapter/adapter_config.json", lora, strlen(lora));
    refused(ERR_INVALID, "is a checkpoint of an adapter: set model.adapter");
    CHECK(!symlink("/dev/zero", path_of("adapter_config.json")));
    refused(ERR_INVALID, "adapter_config.json");
    CHECK(!unlink(path_of("adapter_config.json")));
    put_config("{\"peft_type\":\"IA3\"}");
    refused(ERR_UNSUPPORTED, "only LORA is supported");
    put_config("{\"peft_type\":\"LORA\",\"lora_dropout\":\"much\"}");
    refused(ERR_INVALID, "lora_dropout");
    rank = 2048;
    put_tensors(in_list, name, 1);
    put_config("{\"peft_type\":\"LORA\",\"r\":2048}");
    refused(ERR_UNSUPPORTED, "adapter.rank lies between 1 and 1024");
    rank = 8; /* peft's default */
    put_tensors(in_list, name, 1);
    put_config("{\"peft_type\":\"LORA\",\"lora_alpha\":1e300}");
    refused(ERR_UNSUPPORTED, "adapter.alpha lies between");
    rank = 3;
    put_tensors(in_list, name, 1);
    put_config("{\"peft_type\":\"LORA\",\"r\":3,\"target_modules\":\".*a\"}");
    CHECK_MSG(!describe(&f, &e) && f.n == 1 && f.alpha == 8, "%s", e.text);
    end();
    refused(ERR_NOT_FOUND, "adapter_config.json");
}

/* ---- texts of a node ------------------------------------------------------------------------- */

static void test_texts(void)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[\"\"]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[3]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"targets\":[\"a\"],\"modules_to_save\":3}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"targets\":[\"a\"],\"modules_to_save\":[\"\"]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"targets\":[\"a\"],\"modules_to_save\":[\"a\","
        "\"b\","
        "\"c\"]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":0,\"targets\":[\"a\"]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":2,\"rslora\":false,\"targets\":[\"a\"]}",
        "{\"rank\":3,\"alpha\":0,\"dropout\":0,\"rslora\":false,\"targets\":[\"a\"]}",
        "{\"rank\":0,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[\"a\"]}",
        "{\"rank\":3.5,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[\"a\"]}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[\"a\"]} {}",
        "{\"rank\":3,\"alpha\":5,\"dropout\":0,\"rslora\":false,\"targets\":[\"a\"]"};
    static const char good[] =
        "{\"rank\":3,\"of_tomorrow\":[{}],\"alpha\":5,\"dropout\":1,\"rslora\":true,\"targets\":["
        "\"a\",\"b\"]}";
    struct adapter_facts f;
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&e, 0, sizeof e);
        CHECK_MSG(adapter_facts_read(bad[i], strlen(bad[i]), &f, &e), "%s", bad[i]);
        CHECK_MSG(e.code == ERR_PEER, "%s: %s", bad[i], e.text);
    }
    CHECK(!adapter_facts_read(good, strlen(good), &f, &e));
    CHECK(f.rank == 3 && f.alpha == 5 && f.dropout == 1 && f.rslora && f.n == 2);
    CHECK_STR(f.target[1], "b");
}

/* ---- fields of a job ------------------------------------------------------------------------- */

static void test_fields(void)
{
    static const struct adapter_facts f = {
        .rank = 4, .alpha = 8, .dropout = 0.1, .rslora = true, .n = 1, .target = {"q_proj"}};
    static const struct {
        int kind, said, type, rank, rslora;
        double alpha, dropout;
        const char *field; /* NULL: the job is taken */
        double then;       /* dropout */
    } rows[] = {
        {.kind = JOB_SCORE},
        {.kind = JOB_TRAIN, .then = 0.1},
        {.kind = JOB_TRAIN, .dropout = 0.3, .then = 0.3},
        {.kind = JOB_TRAIN, .said = ADAPTER_SAID_DROPOUT, .then = 0},
        {.kind = JOB_VERIFY},
        {.type = ADAPTER_LORA, .rank = 4, .alpha = 8, .rslora = 1, .kind = JOB_SCORE},
        {.said = ADAPTER_SAID_TYPE, .type = ADAPTER_LORA, .kind = JOB_SCORE},
        {.said = ADAPTER_SAID_TYPE, .field = "adapter.type"},
        {.rank = 5, .field = "adapter.rank"},
        {.alpha = 4, .field = "adapter.alpha"},
        {.said = ADAPTER_SAID_RSLORA, .field = "adapter.rslora"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        memset(&spec, 0, sizeof spec);
        spec.text_used = 1;
        spec.kind = rows[i].kind;
        spec.adapter.said = rows[i].said;
        spec.adapter.type = rows[i].type;
        spec.adapter.rank = rows[i].rank;
        spec.adapter.rslora = rows[i].rslora;
        spec.adapter.alpha = rows[i].alpha;
        spec.adapter.dropout = rows[i].dropout;
        CHECK_MSG(adapter_facts_fill(&spec, &f, &e) == (rows[i].field ? -1 : 0), "row %zu: %s", i,
                  e.text);
        if (rows[i].field) {
            CHECK_STR(e.field, rows[i].field);
            CHECK_MSG(strstr(e.text, "leave adapter."), "%s", e.text);
            continue;
        }
        CHECK(spec.adapter.type == ADAPTER_LORA && spec.adapter.rank == 4 && spec.adapter.rslora);
        CHECK_MSG(spec.adapter.alpha == 8 && spec.adapter.dropout == rows[i].then, "row %zu", i);
        CHECK_STR(spec_text(&spec, spec.adapter.targets[0]), "q_proj");
    }
}

/* Checks a directory of a dropout that no job can have. */
static void test_whole_dropout(void)
{
    struct adapter_facts f = {.rank = 4, .alpha = 8, .dropout = 1, .n = 1, .target = {"q_proj"}};
    struct err e = {0};
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    spec.kind = JOB_TRAIN;
    CHECK(adapter_facts_fill(&spec, &f, &e) && !strcmp(e.field, "adapter.dropout"));
    spec.kind = JOB_SCORE;
    CHECK(!adapter_facts_fill(&spec, &f, &e));
}

/* Checks errors about whole modules that the job does not name: the directory is at fault, and the
 * fix is none of the field that the job does not have. */
static void test_blamed(void)
{
    static const struct {
        const char *model, *saved, *says;
        bool pairs;
    } rows[] = {{"qwen3", "lm_head",
                 "one tensor (tie_word_embeddings), which no adapter keeps as one: "
                 "save the adapter again without it",
                 false},
                {"phi3", "wte", "and the head, lm_head: save the adapter again without it", false},
                {"phi3", "lm_head", "version: name a merged model in model.path", true}};
    struct adapter_facts f = {.rank = 4, .alpha = 8, .n = 1, .target = {"o_proj"}, .n_saved = 1};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0}, own;
        char config[64];
        memset(&spec, 0, sizeof spec);
        spec.text_used = 1;
        snprintf(config, sizeof config, "tests/golden/%s", rows[i].model);
        CHECK_MSG(!config_read_dir(config, &spec.model.shape, &e), "%s", e.text);
        CHECK(!spec_intern(&spec, "/a", 2, &spec.model.adapter));
        if (rows[i].pairs) spec.objective.type = OBJECTIVE_DPO;
        snprintf(f.saved[0], sizeof f.saved[0], "%s", rows[i].saved);
        CHECK(!adapter_facts_fill(&spec, &f, &e) && rules_adapter(&spec, &e));
        own = e;
        adapter_facts_blame(&spec, &f, ADAPTER_NAMES_SAVED, &own);
        CHECK(!memcmp(&own, &e, sizeof e) && strstr(e.text, "leave it out"));
        adapter_facts_blame(&spec, &f, ADAPTER_NAMES_TARGETS, &e);
        CHECK_STR(e.field, "model.adapter");
        CHECK_MSG(strstr(e.text, rows[i].says) && !strstr(e.text, "leave it out"), "%s", e.text);
    }
}

/* Checks errors of a rank that loads one of several adapters. */
static void test_changed(void)
{
    struct err e = {0};
    err_field(&e, ERR_INVALID, "adapter.rank",
              "/a: r is 8, and the job's is 4: set adapter.rank 8");
    adapter_facts_changed("model.adapters.x", &e);
    CHECK_STR(e.field, "model.adapters.x");
    CHECK_STR(e.text, "model.adapters.x: /a: r is 8, and the job's is 4: the directory has changed "
                      "since the job was submitted: submit the job again");
    err_set(&e, ERR_IO, "/a: it is damaged: fetch it again");
    adapter_facts_changed("model.adapters.x", &e);
    CHECK_STR(e.field, "model.adapters.x");
    CHECK_STR(e.text, "model.adapters.x: /a: it is damaged: fetch it again");
}

/* Checks that errors about one of several adapters name it where others name model.adapter. */
static void test_listed(void)
{
    static const char *const rows[][2] = {
        {"/a is of a model: leave model.adapter out", "F: /a is of a model: leave F out"},
        {"model.adapter has rank 0, model.adapters 2", "F has rank 0, model.adapters 2"},
        {"leave model.adapter", "F: leave F"},
        {"F: model.adapter, odd", "F: F, odd"},
        {"it is odd", "F: it is odd"},
        {"", "F: "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        err_field(&e, ERR_CORRUPT, "model.adapter", "%s", rows[i][0]);
        adapter_facts_listed("F", &e);
        CHECK(e.code == ERR_CORRUPT);
        CHECK_STR(e.field, "F");
        CHECK_STR(e.text, rows[i][1]);
    }
}

int main(void)
{
    RUN(test_families);
    RUN(test_golden);
    RUN(test_saved);
    RUN(test_tensors);
    RUN(test_matrices);
    RUN(test_targets);
    RUN(test_many);
    RUN(test_directories);
    RUN(test_texts);
    RUN(test_fields);
    RUN(test_whole_dropout);
    RUN(test_blamed);
    RUN(test_changed);
    RUN(test_listed);
    return test_done("adapter_facts");
}
