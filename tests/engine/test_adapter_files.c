/* test_adapter_files.c: directories of adapters in the form of the package peft. Checks the names
 * that modules have in each class of a model, the modules that the package would adapt, and
 * files that lack products of the job's fields.
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

/* Gives the golden model of a family adapters of rank 3 of n products. */
static void use(const char *family, const char *const *targets, int n)
{
    struct err e = {0};
    char path[100];
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    snprintf(path, sizeof path, "tests/golden/%s", family);
    CHECK_MSG(!config_read_dir(path, &spec.model.shape, &e), "%s", e.text);
    spec.adapter.rank = 3;
    spec.adapter.alpha = 5;
    adapter_targets(&spec, targets, n);
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
        for (int64_t k = 0; p.adapter && k < p.count; k++)
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

int main(void)
{
    struct err e = {0};
    scratch_dir(dir, sizeof dir, "adapter");
    RUN(test_classes);
    RUN(test_wrapped);
    RUN(test_wraps);
    RUN(test_excluded);
    RUN(test_missing);
    RUN(test_shapes);
    CHECK(!file_remove(dir, &e));
    return test_done("adapter_files");
}
