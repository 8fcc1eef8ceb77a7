/* test_adapter_files.c: directories of adapters in the form of the package peft. Checks the names
 * that modules have in each class of a model, the modules that the package would adapt, files that
 * lack products of the job's fields, and hostile files.
 * tests: needs golden */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/scratch.h"
#include "worker/family/config.h"
#include "worker/hf/adapter.h"
#include "worker/hf/safetensors.h"

static struct job_spec spec; /* off the stack */
static char dir[200];

static const struct adapter_base plain = {"base", false}, wrapped = {"base", true};

static char *path_of(const char *file)
{
    static char path[2][300];
    static int at;
    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", dir, file);
    return path[at];
}

/* Gives the golden model of a family adapters of rank 3 of n products, beside whole modules. */
static void use_saved(const char *family, const char *const *targets, int n, int saves)
{
    struct err e = {0};
    char path[100];
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    snprintf(path, sizeof path, "tests/golden/%s", family);
    CHECK_MSG(!config_read_dir(path, &spec.model.shape, &e), "%s", e.text);
    spec.adapter.rank = 3;
    spec.adapter.alpha = 5;
    adapter_saves(&spec, saves);
    adapter_targets(&spec, targets, n);
}

static void use(const char *family, const char *const *targets, int n)
{
    use_saved(family, targets, n, 0);
}

/* Returns numbers for the flat layout. The caller frees them. */
static float *numbers(void)
{
    const int64_t n = param_count(&spec.model.shape);
    float *x = calloc((size_t)n, sizeof *x);
    if (!x) abort();
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        for (int64_t k = 0; adapter_learns(&p) && k < p.count; k++)
            x[p.offset + k] = (float)(i * 1000 + k % 997);
    }
    return x;
}

static void save(const float *x, const struct adapter_base *base)
{
    struct err e = {0};
    const struct hf_flat w = {ADAPTER_PREFIX, x, DT_F32, .trained = true};
    CHECK_MSG(!adapter_save(dir, &spec.model.shape, &w, base, NULL, &e), "%s", e.text);
}

struct loaded {
    float *x;     /* flat layout */
    int64_t next; /* first element that may come next */
};

static int take(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    struct loaded *to = arg;
    (void)e;
    CHECK(offset >= to->next);
    to->next = offset + n;
    memcpy(to->x + offset, x, (size_t)n * sizeof *x);
    return 0;
}

/* Loads the directory. Returns what adapter_load returns. If it loads, its numbers must be those of
 * `want`, which may be NULL. */
static int load(const float *want, struct err *e)
{
    const size_t n = (size_t)param_count(&spec.model.shape);
    struct loaded to = {calloc(n, sizeof(float)), 0};
    if (!to.x) abort();
    memset(e, 0, sizeof *e);
    const int rc = adapter_load(dir, &spec.model.shape, &(struct hf_sink){take, &to}, e);
    if (!rc && want) CHECK(!memcmp(to.x, want, n * sizeof(float)));
    CHECK(rc == 0 || *e->text);
    free(to.x);
    return rc;
}

static void put_config(const char *text)
{
    struct err e = {0};
    CHECK(!file_write(path_of("adapter_config.json"), text, strlen(text), &e));
}

static void has_text(const char *file, const char *want, bool has)
{
    struct err e = {0};
    char *text = file_read(path_of(file), 1 << 20, NULL, &e);
    CHECK_MSG(text && !strstr(text, want) == !has, "%s: %s", want, text ? text : e.text);
    free(text);
}

/* Writes the tensors of the directory again. Their names begin with `to` in place of `from`. A name
 * that contains `less` is left out. If `both` is set, the old names stay, too. */
static void rename_all(const char *from, const char *to, const char *less, bool both)
{
    struct err e = {0};
    struct st_file *f = st_open(path_of("adapter_model.safetensors"), &e);
    CHECK_MSG(f, "%s", e.text);
    const int n = st_count(f);
    struct st_out *items = calloc((size_t)n * 2, sizeof *items);
    char(*names)[ST_NAME_SIZE] = calloc((size_t)n, sizeof *names);
    int k = 0;
    for (int i = 0; i < n; i++) {
        const struct st_tensor *t = st_at(f, i);
        if (less && strstr(t->name, less)) continue;
        CHECK_MSG(!strncmp(t->name, from, strlen(from)), "%s", t->name);
        snprintf(names[i], sizeof names[i], "%s%s", to, t->name + strlen(from));
        for (int twice = 0; twice < 1 + both; twice++) {
            items[k] = (struct st_out){
                twice ? t->name : names[i], t->dtype, t->n_dims, {0}, st_data(f, t)};
            memcpy(items[k++].dims, t->dims, sizeof t->dims);
        }
    }
    CHECK_MSG(!st_write(path_of("again"), items, k, &e), "%s", e.text);
    st_close(f);
    CHECK(!rename(path_of("again"), path_of("adapter_model.safetensors")));
    free(names);
    free(items);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Checks that adapters of every class of a model are read. */
static void test_classes(void)
{
    static const struct {
        const char *family, *base, *others[4]; /* prefixes of names */
    } cases[] = {{"qwen3", "model.", {""}},
                 {"gpt2", "transformer.", {""}},
                 {"bert", "bert.", {""}},
                 {"roberta", "roberta.", {""}},
                 {"gemma3",
                  "model.",
                  {"", "model.language_model.", "language_model.model.", "language_model."}},
                 {"mistral", "model.", {"", "model.language_model.", "language_model.model."}},
                 {"qwen3_5", "model.", {"", "model.language_model.", "language_model."}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        char from[100], to[100];
        use(cases[i].family, NULL, 0);
        float *x = numbers();
        for (int k = 0; k < 4 && cases[i].others[k]; k++) {
            save(x, &plain);
            CHECK_MSG(!load(x, &e), "%s", e.text);
            snprintf(from, sizeof from, ADAPTER_PREFIX "%s", cases[i].base);
            snprintf(to, sizeof to, ADAPTER_PREFIX "%s", cases[i].others[k]);
            rename_all(from, to, NULL, false);
            CHECK_MSG(!load(x, &e), "%s: %s: %s", cases[i].family, to, e.text);
            save(x, &plain);
            rename_all(from, to, NULL, true);
            CHECK_MSG(load(x, &e) && strstr(e.text, "are one tensor"), "%s", e.text);
        }
        free(x);
    }
}

/* Checks the names of an adapter whose model is in a wrapper. */
static void test_wrapped(void)
{
    static const char *const families[] = {"gemma3", "mistral", "qwen3_5", "qwen3_5_moe"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct err e = {0};
        use(families[i], NULL, 0);
        float *x = numbers();
        save(x, &wrapped);
        struct st_file *f = st_open(path_of("adapter_model.safetensors"), &e);
        CHECK_MSG(f && st_count(f) > 0, "%s", e.text);
        for (int k = 0; k < st_count(f); k++)
            CHECK_MSG(
                !strncmp(st_at(f, k)->name, "base_model.model.model.language_model.layers.", 45),
                "%s", st_at(f, k)->name);
        st_close(f);
        CHECK_MSG(!load(x, &e), "%s", e.text);
        has_text("adapter_config.json", "\"exclude_modules\":\"(vision_tower\\\\.|", true);
        has_text("adapter_config.json", "|model\\\\.visual\\\\.).*\"", true);
        has_text("adapter_config.json", "task_type", false);
        save(x, &plain);
        has_text("adapter_config.json", "\"task_type\":\"CAUSAL_LM\"", true);
        has_text("adapter_config.json", "\"exclude_modules\":null", true);
        free(x);
    }
}

enum { BOTH = ADAPTER_SAVES_EMBEDDING | ADAPTER_SAVES_HEAD };

/* Checks the names of whole modules, in a class of its own and in a wrapper. */
static void test_saved(void)
{
    static const struct {
        const char *family;
        bool wrapped;
        const char *names[3]; /* after ADAPTER_PREFIX; NULL if there are no more */
        const char *modules;
    } cases[] = {
        {"phi3",
         false,
         {"model.embed_tokens.weight", "lm_head.weight"},
         "embed_tokens\",\"lm_head"},
        {"retnet", false, {"model.embeddings.weight", "lm_head.weight"}, "embeddings\",\"lm_head"},
        {"bert_wide",
         false,
         {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight",
          "cls.predictions.decoder.bias"},
         "word_embeddings\",\"decoder"},
        {"mistral",
         true,
         {"model.language_model.embed_tokens.weight", "lm_head.weight"},
         "embed_tokens\",\"lm_head"},
        {"qwen3_5",
         true,
         {"model.language_model.embed_tokens.weight", "lm_head.weight"},
         "embed_tokens\",\"lm_head"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        char text[160];
        use_saved(cases[i].family, NULL, 0, BOTH);
        float *x = numbers();
        save(x, cases[i].wrapped ? &wrapped : &plain);
        struct st_file *f = st_open(path_of("adapter_model.safetensors"), &e);
        CHECK_MSG(f, "%s", e.text);
        for (int k = 0; k < 3 && cases[i].names[k]; k++) {
            snprintf(text, sizeof text, ADAPTER_PREFIX "%s", cases[i].names[k]);
            CHECK_MSG(st_find(f, text), "%s lacks %s", cases[i].family, text);
        }
        st_close(f);
        snprintf(text, sizeof text, "\"modules_to_save\":[\"%s\"]", cases[i].modules);
        has_text("adapter_config.json", text, true);
        CHECK_MSG(!load(x, &e), "%s", e.text);
        rename_all("", "", "lm_head", false);
        CHECK(load(NULL, &e) == (i == 2 ? 0 : -1));
        if (i != 2) CHECK_MSG(strstr(e.text, "does not have lm_head.weight"), "%s", e.text);
        free(x);
    }
}

/* Checks that a job without a head passes over the head of a directory, and no other tensor. */
static void test_unused(void)
{
    struct err e;
    use_saved("phi3", NULL, 0, BOTH);
    float *x = numbers();
    save(x, &plain);
    spec.model.shape.no_head = 1;
    adapter_targets(&spec, NULL, 0);
    CHECK(spec.model.shape.adapter.saves == BOTH);
    CHECK_MSG(!load(NULL, &e), "%s", e.text);
    rename_all(ADAPTER_PREFIX, ADAPTER_PREFIX "x.", NULL, true);
    CHECK(load(NULL, &e));
    CHECK_STR(e.field, "adapter.modules_to_save");
    CHECK_MSG(strstr(e.text, "of which the job's adapter.modules_to_save says nothing"), "%s",
              e.text);
    free(x);
}

/* Checks the directory of a model whose vocabulary was resized. */
static void test_resized(void)
{
    struct err e;
    use_saved("phi3", NULL, 0, BOTH);
    spec.model.shape.vocab += 8;
    adapter_targets(&spec, NULL, 0);
    float *x = numbers();
    save(x, &plain);
    free(x);
    use_saved("phi3", NULL, 0, BOTH);
    CHECK(load(NULL, &e));
    CHECK_MSG(strstr(e.text, "and the model's is [263, ") && strstr(e.text, "was resized"), "%s",
              e.text);
}

/* Checks which directories are those of wrappers. */
static void test_wraps(void)
{
    static const struct {
        const char *text;
        bool wraps;
    } cases[] = {{"{\"model_type\":\"gemma3\",\"text_config\":{}}", true},
                 {"{\"model_type\":\"mistral3\",\"text_config\":{}}", true},
                 {"{\"model_type\":\"gemma3_text\"}", false},
                 {"{\"model_type\":\"llama\"}", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        bool is = !cases[i].wraps;
        CHECK(!file_write(path_of("config.json"), cases[i].text, strlen(cases[i].text), &e));
        CHECK_MSG(!config_wraps(dir, &is, &e), "%s", e.text);
        CHECK_MSG(is == cases[i].wraps, "%s", cases[i].text);
    }
    struct err e = {0};
    bool is;
    CHECK(config_wraps(path_of("none"), &is, &e) && *e.text);
}

/* Checks that the package would adapt no other module: an encoder's output.dense ends the name of
 * its attention's product, too. */
static void test_excluded(void)
{
    static const char *const mlp = "mlp", *const attention = "attention";
    static const char *const families[] = {"bert", "roberta"};
    for (int i = 0; i < 2; i++) {
        use(families[i], &mlp, 1);
        float *x = numbers();
        save(x, &plain);
        has_text("adapter_config.json", "\"exclude_modules\":[\"attention.output.dense\"]", true);
        free(x);
        use(families[i], &attention, 1);
        x = numbers();
        save(x, &plain);
        has_text("adapter_config.json", "\"exclude_modules\":null", true);
        free(x);
    }
}

/* ---- files that do not fit the job ----------------------------------------------------------- */

/* Checks the error about products that the job asks for and the file does not have. */
static void test_missing(void)
{
    static const char *const some[] = {"q_proj", "v_proj"}, *const named[] = {"self_attn.q_proj",
                                                                              "self_attn.v_proj"};
    struct err e;
    use("qwen3", some, 2);
    float *x = numbers();
    save(x, &plain);
    use("qwen3", NULL, 0);
    CHECK(load(NULL, &e));
    CHECK_STR(e.field, "adapter.targets");
    CHECK_MSG(strstr(e.text, "set adapter.targets to "
                             "[\"self_attn.q_proj\", \"self_attn.v_proj\"]"),
              "%s", e.text);
    use("qwen3", named, 2);
    CHECK_MSG(!load(x, &e), "%s", e.text);
    rename_all("", "", "layers.1.self_attn.q_proj", false);
    CHECK(load(NULL, &e));
    CHECK_STR(e.field, "");
    CHECK_MSG(strstr(e.text, "layers.1.self_attn.q_proj.lora_A.weight is missing"), "%s", e.text);
    rename_all("", "", "lora", false);
    CHECK(load(NULL, &e));
    CHECK_MSG(strstr(e.text, "has no tensors"), "%s", e.text);
    free(x);
}

static void test_shapes(void)
{
    struct err e;
    use("qwen3", NULL, 0);
    float *x = numbers();
    save(x, &plain);
    put_config("{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":5}"); /* its tensors have r 3 */
    spec.adapter.rank = 2;
    adapter_targets(&spec, NULL, 0);
    CHECK(load(NULL, &e));
    CHECK_MSG(strstr(e.text, "give an adapter of this model"), "%s", e.text);
    free(x);
}

/* Checks that the dropout of a directory does not bind a job. */
static void test_dropout(void)
{
    struct adapter_config c;
    struct err e = {0};
    use("qwen3", NULL, 0);
    float *x = numbers();
    spec.model.shape.adapter.dropout = 0.25;
    save(x, &plain);
    CHECK(!adapter_read_config(dir, &c, &e) && c.dropout == 0.25);
    spec.model.shape.adapter.dropout = 0;
    CHECK_MSG(!load(x, &e), "%s", e.text);
    free(x);
}

/* ---- hostile files --------------------------------------------------------------------------- */

static const struct {
    const char *more, *says; /* members beside peft_type */
} hostile[] = {
    {"\"r\":2048", "r is 2048, and adapter.rank is from 1 to 1024"},
    {"\"r\":9223372036854775807", "and adapter.rank is from 1 to 1024"},
    {"\"r\":1e30", "r is no positive integer"},
    {"\"r\":99999999999999999999", "r is no positive integer"},
    {"\"r\":-3", "r is no positive integer"},
    {"\"r\":0", "r is no positive integer"},
    {"\"r\":3.5", "r is no positive integer"},
    {"\"r\":null", "r is no positive integer"},
    {"\"r\":[3]", "r is no positive integer"},
    {"\"r\":3,\"lora_alpha\":1e308", "lora_alpha is 1e+308, and adapter.alpha is from"},
    {"\"r\":3,\"lora_alpha\":1e-300", "and adapter.alpha is from"},
    {"\"r\":3,\"lora_alpha\":1e999", "lora_alpha is no positive number"},
    {"\"r\":3,\"lora_alpha\":NaN", "fetch the file again"},
    {"\"r\":3,\"lora_alpha\":-5", "lora_alpha is no positive number"},
    {"\"r\":3,\"lora_alpha\":true", "lora_alpha is no positive number"},
    {"\"r\":3,\"lora_alpha\":{}", "lora_alpha is no positive number"},
    {"\"r\":3,\"lora_dropout\":1.5", "lora_dropout is not from 0 to 1"},
    {"\"r\":3,\"lora_dropout\":-0.1", "lora_dropout is not from 0 to 1"},
    {"\"r\":3,\"lora_dropout\":null", "lora_dropout is not from 0 to 1"},
    {"\"r\":3,\"lora_dropout\":0,\"lora_dropout\":0.5", "lora_dropout occurs twice"},
    {"\"r\":3,\"peft_type\":\"LORA\"", "peft_type occurs twice"},
    {"\"r\":3,\"use_rslora\":1", "use_rslora is neither true nor false"},
    {"\"r\":3,\"bias\":{\"a\":1}", "bias (not a text)"},
    {"\"r\":3,\"bias\":\"\\u001b[2J\"", "bias (not a word)"},
    {"\"r\":3,\"init_lora_weights\":7", "init_lora_weights (not a text)"},
    {"\"r\":3,\"\\u001b]0;x\\u0007\":1", "(not a word) is set"},
    {"\"r\":3,\"a\\u0000b\":1", "(not a word) is set"},
    {"\"r\":3,\"rank_pattern\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]"
     "]]]]]]]]]]]]]]]",
     "rank_pattern is set"},
    {"\"r\":3,\"target_modules\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]"
     "]]]]]]]]]]]]]]]]]",
     "fetch the file again"},
    {"\"r\":3,\"target_modules\":\xff", "fetch the file again"},
};

/* Checks that every hostile adapter_config.json is refused with a sentence in which a terminal
 * reads nothing but text. */
static void test_hostile(void)
{
    char text[1024];
    use("qwen3", NULL, 0);
    float *x = numbers();
    save(x, &plain);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct err e;
        snprintf(text, sizeof text, "{\"peft_type\":\"LORA\",%s}", hostile[i].more);
        put_config(text);
        CHECK_MSG(load(NULL, &e), "%s", text);
        CHECK_MSG(strstr(e.text, hostile[i].says), "%s: %s", text, e.text);
        for (const char *c = e.text; *c; c++) CHECK_MSG((unsigned char)*c >= ' ', "%s", text);
    }
    free(x);
}

/* Checks that no cut and no changed byte of a file is read beyond its end. */
static void test_cut(void)
{
    struct err e = {0};
    size_t size;
    use("qwen3", NULL, 0);
    float *x = numbers();
    save(x, &plain);
    char *text = file_read(path_of("adapter_config.json"), 1 << 20, &size, &e);
    for (size_t n = 0; n < size; n++) {
        CHECK(!file_write(path_of("adapter_config.json"), text, n, &e));
        CHECK_MSG(load(NULL, &e), "%zu bytes", n);
    }
    CHECK(!file_write(path_of("adapter_config.json"), text, size, &e));
    free(text);
    text = file_read(path_of("adapter_model.safetensors"), 1 << 24, &size, &e);
    for (size_t n = 0; n < 600; n++) {
        text[n] ^= 0x11;
        CHECK(!file_write(path_of("adapter_model.safetensors"), text, size, &e));
        load(NULL, &e); /* if it fails, it says why */
        text[n] ^= 0x11;
    }
    free(text);
    free(x);
}

int main(void)
{
    struct err e = {0};
    scratch_dir(dir, sizeof dir, "adapter");
    RUN(test_classes);
    RUN(test_wrapped);
    RUN(test_saved);
    RUN(test_unused);
    RUN(test_resized);
    RUN(test_wraps);
    RUN(test_excluded);
    RUN(test_missing);
    RUN(test_shapes);
    RUN(test_dropout);
    RUN(test_hostile);
    RUN(test_cut);
    CHECK(!file_remove(dir, &e));
    return test_done("adapter_files");
}
