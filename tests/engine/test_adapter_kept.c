/* test_adapter_kept.c: adapters in checkpoints and in directories of peft, and jobs whose fields do
 * not fit.
 * tests: needs golden */
#include "api/core/file.h"
#include "tests/lib/adapter_train.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/planned.h"
#include "worker/ckpt/merge.h"
#include "worker/ckpt/scatter.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/slice.h"

/* ---- from one product to another ------------------------------------------------------------- */

enum { STOP = 1, BOTH = ADAPTER_SAVES_EMBEDDING | ADAPTER_SAVES_HEAD };

struct stop {
    char dir[64];
    struct ckpt_info info;
};

static void load(struct train *t, int rank, void *arg)
{
    const struct stop *x = arg;
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct model_shape whole = slice_whole(&t->model.shape);
    struct ckpt_state s;
    struct err e = {0};
    if (t->step != STOP) return;
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : checkpoint_load(x->info.path, &whole, &a, &s, &e) ||
                               scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
}

static void save(struct train *t, int rank, void *arg)
{
    struct stop *x = arg;
    struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct model_shape whole = slice_whole(&t->model.shape);
    const struct ckpt_state s = {.step = t->step, .next_sample = t->step};
    struct err e = {0};
    if (t->step != STOP) return;
    a.base = "/models/base";
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : ckpt_save(x->dir, 1, &whole, &a, &s, &x->info, &e) ||
                               scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
}

/* Checks that a checkpoint has the adapters and their moments, and no weights of the model. */
static void check_files(const struct stop *at)
{
    char path[CKPT_PATH_SIZE + 64], name[160];
    struct err e = {0};
    struct param p;
    snprintf(path, sizeof path, "%s/optim.safetensors", at->info.path);
    struct st_file *f = st_open(path, &e);
    snprintf(path, sizeof path, "%s/adapter/adapter_model.safetensors", at->info.path);
    struct st_file *own = st_open(path, &e);
    CHECK_MSG(f && own, "%s", e.text);
    snprintf(path, sizeof path, "%s/hf", at->info.path);
    CHECK(!file_exists(path));
    struct model_shape m = spec.model.shape;
    int n = 0;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        param_get(&m, i, &p);
        snprintf(name, sizeof name, "exp_avg:%s", p.name);
        CHECK_MSG(!st_find(f, name) == !adapter_learns(&p), "%s", name);
        snprintf(name, sizeof name, ADAPTER_PREFIX "%s", p.name);
        CHECK_MSG(!st_find(own, name) == !adapter_learns(&p), "%s", name);
        n += adapter_learns(&p);
    }
    CHECK(st_count(own) == n && st_count(f) == 2 * n);
    st_close(f), st_close(own);
}

static struct engine_run leg(const struct way *w, struct stop *at, int steps)
{
    const bool resumes = at->info.path[0];
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = steps,
                           .first_step = resumes ? STOP : 0,
                           .before_step = resumes ? load : NULL,
                           .after_step = resumes ? NULL : save,
                           .arg = at,
                           .source = {synth_batch, synth_targets, &synth}};
    set_spec(&spec, w);
    engine_go(&r, &spec);
    return r;
}

/* Checks that a training that stops after a step, and continues on another product of axes, has
 * nearly the same weights at its end as a training that does not stop. */
static void check_resumed(const struct way *from, const struct way *to)
{
    struct stop at = {.dir = "/tmp/test_adapter_kept.XXXXXX"},
                none = {.dir = "/tmp/test_adapter_kept.XXXXXX"};
    struct err e = {0};
    char which[400];
    say(to, which, sizeof which);
    if (!mkdtemp(at.dir) || !mkdtemp(none.dir)) abort();
    struct engine_run want = leg(from, &none, STEPS), first = leg(from, &at, STOP);
    check_files(&at);
    struct engine_run r = leg(to, &at, STEPS - STOP);
    struct model_shape m = spec.model.shape;
    const double most = to->precision == PRECISION_FP32 ? 2e-5 : 1e-2;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        param_get(&m, i, &p);
        const double d = rel_l2(r.weights + p.offset, want.weights + p.offset, p.count);
        const bool learns = adapter_learns(&p);
        CHECK_MSG(!learns ? d == 0 : d <= most, "%s: weights of %s: rel-L2 %.3g", which, p.name, d);
        if (!learns) continue;
        const double v = rel_l2(r.adam_v + p.offset, want.adam_v + p.offset, p.count);
        CHECK_MSG(v <= 4 * most, "%s: v of %s: rel-L2 %.3g", which, p.name, v);
    }
    engine_free(&want), engine_free(&first), engine_free(&r);
    CHECK(!file_remove(at.dir, &e) && !file_remove(none.dir, &e));
}

static void test_resumed(void)
{
    static const struct way ways[][2] = {
        {{.P = 1, .batch = 4}, {.P = 2, .dp = 2, .batch = 4, .zero = 1}},
        {{.P = 2, .zero = 3, .batch = 4}, {.P = 1, .pp = 2, .batch = 4}},
        {{.P = 1, .pp = 3, .zero = 2, .batch = 4, .tied = 1},
         {.P = 2, .zero = 3, .batch = 4, .tied = 1}},
        {{.P = 2, .zero = 2, .batch = 4, .precision = PRECISION_BF16},
         {.P = 1, .dp = 2, .pp = 2, .zero = 3, .batch = 4, .precision = PRECISION_BF16}},
        {{.P = 1, .tp = 2, .batch = 4}, {.P = 2, .zero = 1, .batch = 4}},
        {{.P = 2, .zero = 3, .batch = 4, .saves = BOTH},
         {.P = 1, .tp = 2, .pp = 2, .batch = 4, .saves = BOTH}},
        {{.P = 1, .pp = 2, .batch = 4, .saves = BOTH, .precision = PRECISION_BF16},
         {.P = 2, .zero = 2, .batch = 4, .saves = BOTH, .precision = PRECISION_BF16}},
        {{.P = 2, .zero = 1, .batch = 4}, {.P = 1, .tp = 2, .pp = 2, .batch = 4}}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_resumed(&ways[i][0], &ways[i][1]);
}

/* ---- directories ----------------------------------------------------------------------------- */

static int drop(void *arg, int64_t offset, int64_t n, const float *x, struct err *e)
{
    int64_t *count = arg;
    (void)offset, (void)x, (void)e;
    *count += n;
    return 0;
}

/* Writes a directory with this adapter_config.json and the tensors of a golden adapter, and loads
 * it. Returns what adapter_load returns. */
static int load_text(const char *of, const char *config, struct err *e)
{
    char dir[] = "/tmp/test_adapter_kept.XXXXXX", path[96];
    int64_t n = 0;
    size_t size;
    struct err why = {0};
    if (!mkdtemp(dir)) abort();
    snprintf(path, sizeof path, "tests/golden/adapter/%s/adapter_model.safetensors", of);
    char *tensors = file_read(path, 1 << 20, &size, &why);
    CHECK_MSG(tensors, "%s", why.text);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    CHECK(!file_write(path, tensors, size, &why));
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    CHECK(!file_write(path, config, strlen(config), &why));
    const int rc = adapter_load(dir, &spec.model.shape, &(struct hf_sink){.take = drop, .arg = &n},
                                e);
    CHECK(rc || n > 0);
    free(tensors);
    CHECK(!file_remove(dir, &why));
    return rc;
}

static void use_qwen3(const char *const *targets, int n)
{
    struct err e = {0};
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    CHECK_MSG(!config_read_dir("tests/golden/qwen3", &spec.model.shape, &e), "%s", e.text);
    spec.adapter.rank = 3;
    spec.adapter.alpha = 5;
    adapter_targets(&spec, targets, n);
}

/* Checks that a key that changes the computation is refused by its name, unless it says nothing. */
static void test_configs(void)
{
    static const struct {
        const char *more, *says; /* members beside r and lora_alpha; NULL: it is taken */
    } cases[] = {
        {"", NULL},
        {",\"bias\":\"none\",\"use_dora\":false,\"rank_pattern\":{},\"modules_to_save\":null",
         NULL},
        {",\"init_lora_weights\":\"gaussian\",\"layers_to_transform\":[],\"layer_replication\":"
         "null",
         NULL},
        {",\"bias\":\"all\"", "bias all"},
        {",\"use_dora\":true", "use_dora is set: DoRA"},
        {",\"use_rslora\":true", "set it to true"},
        {",\"rank_pattern\":{\"q_proj\":4}", "rank_pattern is set"},
        {",\"alpha_pattern\":{\"q_proj\":4}",
         "alpha_pattern is set: products of experts, for which peft"},
        {",\"layers_to_transform\":[0]", "layers_to_transform is set"},
        {",\"modules_to_save\":[]", NULL},
        {",\"modules_to_save\":[\"lm_head\"]", "modules_to_save names lm_head"},
        {",\"modules_to_save\":\"lm_head\"", "modules_to_save is no list"},
        {",\"modules_to_save\":[1]", "modules_to_save is no list"},
        {",\"modules_to_save\":[\"\"]", "modules_to_save is no list"},
        {",\"modules_to_save\":[\"a\\u0007\"]", "modules_to_save is no list"},
        {",\"modules_to_save\":[\"a\",\"b\",\"c\",\"d\",\"e\"]", "has more than 4 names"},
        {",\"ensure_weight_tying\":true", "ensure_weight_tying is set"},
        {",\"target_parameters\":[\"x\"]", "target_parameters is set"},
        {",\"init_lora_weights\":\"pissa\"", "init_lora_weights pissa"},
        {",\"lora_bias\":true", "lora_bias is set"},
        {",\"of_tomorrow\":1", "of_tomorrow is set"},
        {",\"r\":3", "r occurs twice"},
        {",\"bias\":", "fetch the file again"}};
    char text[512];
    use_qwen3(NULL, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        snprintf(text, sizeof text, "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5%s}",
                 cases[i].more);
        const int rc = load_text("qwen3", text, &e);
        CHECK_MSG(rc == (cases[i].says ? -1 : 0), "%s: %s", cases[i].more, e.text);
        if (cases[i].says)
            CHECK_MSG(strstr(e.text, cases[i].says), "%s: %s", cases[i].more, e.text);
    }
}

static void test_other_adapters(void)
{
    static const struct {
        const char *text, *field, *says;
    } cases[] = {
        {"{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":5}", "adapter.rank", "set adapter.rank 4"},
        {"{\"peft_type\":\"LORA\",\"r\":3}", "adapter.alpha", "set adapter.alpha 8"},
        {"{\"peft_type\":\"IA3\",\"r\":3}", "", "peft_type IA3"},
        {"{\"r\":3,\"lora_alpha\":5}", "", "no peft_type"},
        {"{\"peft_type\":\"LORA\",\"r\":\"3\"}", "", "r is no positive integer"},
        {"{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":-1}", "", "lora_alpha is no positive"},
        {"[]", "", "not a JSON object"}};
    static const char *const some[] = {"q_proj"};
    struct err e = {0};
    use_qwen3(NULL, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(&e, 0, sizeof e);
        CHECK(load_text("qwen3", cases[i].text, &e));
        CHECK_MSG(strstr(e.text, cases[i].says), "%s", e.text);
        CHECK_STR(e.field, cases[i].field);
    }
    memset(&e, 0, sizeof e);
    use_qwen3(some, 1); /* the directory has more products */
    CHECK(load_text("qwen3", "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5}", &e));
    CHECK_MSG(strstr(e.text, "lora_A") && !strcmp(e.field, "adapter.targets"), "%s", e.text);
    CHECK(!config_read_dir("tests/golden/llama3", &spec.model.shape, &e)); /* another model */
    memset(&e, 0, sizeof e);
    adapter_targets(&spec, NULL, 0);
    CHECK(load_text("qwen3", "{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5}", &e));
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void refused(const char *field, const char *says)
{
    struct err e = {0};
    CHECK(rules_adapter(&spec, &e) && !strcmp(e.field, field));
    CHECK_MSG(strstr(e.text, says), "%s", e.text);
}

static void test_refused(void)
{
    static const char *const none[] = {"q_proj", "w7"};
    use_qwen3(NULL, 0);
    CHECK(!spec_intern(&spec, "w7", 2, &spec.adapter.targets[0]));
    refused("adapter.targets.0", "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
    use_qwen3(NULL, 0);
    CHECK(!spec_intern(&spec, "q\033proj", 6, &spec.adapter.targets[0]));
    refused("adapter.targets.0", "0x1b");
    CHECK(!spec_intern(&spec, "[q_proj]", 8, &spec.adapter.targets[0]));
    refused("adapter.targets.0", "is the text [q_proj]: a list has its names in quotes");
    use_qwen3(none, 1);
    spec.adapter.targets[2] = spec.adapter.targets[0];
    refused("adapter.targets.1", "leave it out");
    use_qwen3(NULL, 0);
    spec.ema.decay = 0.5;
    refused("ema.decay", "average");
    use_qwen3(NULL, 0);
    CHECK(!spec_intern(&spec, "*x*", 3, &spec.train.freeze[0]));
    refused("train.freeze", "leave it out");
    use_qwen3(NULL, 0);
    spec.kind = JOB_SCORE;
    refused("model.adapter", "needs model.adapter");
    use_qwen3(NULL, 0);
    spec.adapter.type = ADAPTER_NONE;
    refused("adapter.rank", "adapter.type");
    struct err e = {0};
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    CHECK(!config_read_dir("tests/golden/stdit3", &spec.model.shape, &e));
    spec.adapter.type = ADAPTER_LORA;
    refused("adapter.type", "diffusion");
}

/* Describes a job with adapters of the golden model of a family and these modules_to_save. */
static void use_saved(const char *family, const char *first, const char *second)
{
    char dir[96];
    struct err e = {0};
    memset(&spec, 0, sizeof spec);
    spec.text_used = 1;
    snprintf(dir, sizeof dir, "tests/golden/%s", family);
    CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    spec.adapter.type = ADAPTER_LORA;
    spec.adapter.rank = 3;
    spec.optim.lr = 1e-3;
    CHECK(!spec_intern(&spec, first, strlen(first), &spec.adapter.modules_to_save[0]));
    CHECK(!spec_intern(&spec, second, strlen(second), &spec.adapter.modules_to_save[1]));
}

static void test_saved(void)
{
    static const struct {
        const char *family, *first, *second;
        int saves; /* 0: the second name, or the first if there is only one, is refused */
        const char *says;
    } cases[] = {{"phi3", "embed_tokens", "lm_head", 3, NULL},
                 {"phi3", "model.embed_tokens", "", 1, NULL},
                 {"phi3", "lm_head", "", 2, NULL},
                 {"qwen3_5", "lm_head", "embed_tokens", 3, NULL},
                 {"retnet", "embeddings", "lm_head", 3, NULL},
                 {"bert_wide", "word_embeddings", "", 1, NULL},
                 {"bert_wide", "decoder", "", 2, NULL},
                 {"phi3", "lm_head", "norm", 0,
                  "which are the embedding, embed_tokens, and the head, lm_head"},
                 {"phi3", "okens", "", 0, "is no module that is trained whole"},
                 {"phi3", "", "lm_head", 0, "is empty: leave it out"},
                 {"phi3", "lm head", "", 0, "0x20"},
                 {"qwen3", "embed_tokens", "", 0, "tie_word_embeddings"},
                 {"qwen3", "lm_head", "", 0, "tie_word_embeddings"},
                 {"gpt2", "wte", "", 0, "tie_word_embeddings"},
                 {"bert", "decoder", "", 0, "tie_word_embeddings"},
                 {"qwen3", "score", "", 0, "embed_tokens, and the head, lm_head"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        use_saved(cases[i].family, cases[i].first, cases[i].second);
        const int rc = rules_adapter(&spec, &e);
        CHECK_MSG(rc == (cases[i].saves ? 0 : -1), "case %zu: %s", i, e.text);
        if (!rc) {
            CHECK_MSG(spec.model.shape.adapter.saves == cases[i].saves, "case %zu", i);
            continue;
        }
        CHECK_MSG(strstr(e.text, cases[i].says), "case %zu: %s", i, e.text);
        CHECK_STR(e.field, *cases[i].second && *cases[i].first ? "adapter.modules_to_save.1"
                                                               : "adapter.modules_to_save.0");
    }
}

/* Checks the fields that go with modules_to_save. */
static void test_saved_fields(void)
{
    use_saved("phi3", "lm_head", "");
    spec.optim.lr_saved = 1e-4;
    struct err e = {0};
    CHECK_MSG(!rules_adapter(&spec, &e), "%s", e.text);
    spec.optim.lr = 0;
    refused("optim.lr_saved", "set optim.lr above 0");
    use_saved("phi3", "", "");
    spec.optim.lr_saved = 1e-4;
    refused("optim.lr_saved", "names none");
    use_saved("phi3", "lm_head", "");
    spec.adapter.type = ADAPTER_NONE;
    spec.adapter.rank = 0;
    refused("adapter.modules_to_save", "adapter.type");
    use_saved("phi3", "", "");
    spec.adapter.type = ADAPTER_NONE;
    spec.adapter.rank = 0;
    spec.optim.lr_saved = 1e-4;
    refused("optim.lr_saved", "adapter.type");
    use_saved("phi3", "lm_head", "");
    spec.objective.type = OBJECTIVE_DPO;
    CHECK_MSG(!rules_adapter(&spec, &e), "%s", e.text);
    CHECK(!spec_intern(&spec, "/a", 2, &spec.model.adapter));
    refused("adapter.modules_to_save", "leave it out if model.adapter has none");
    spec.adapter.modules_to_save[0] = 0;
    spec.optim.lr_saved = 1e-4;
    refused("optim.lr_saved", "names none beside model.adapter: leave it out");
}

/* Checks that a directory's whole modules must be those of the job. */
static void test_saved_directories(void)
{
    static const char wrapped[] = /* the names that a wrapper's class gives them */
        "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":6,\"modules_to_save\":["
        "\"model.language_model.embed_tokens\",\"language_model.lm_head\"]}";
    static const struct {
        const char *first, *second, *field, *says; /* field is NULL if the directory loads */
    } cases[] = {{"embed_tokens", "lm_head", NULL, NULL},
                 {"lm_head", "embed_tokens", NULL, NULL},
                 {"lm_head", "", "adapter.modules_to_save", "modules_to_save names embed_tokens"},
                 {"", "", "adapter.modules_to_save", "modules_to_save names embed_tokens"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        int64_t n = 0;
        use_saved("phi3", cases[i].first, cases[i].second);
        spec.adapter.rank = 4;
        spec.adapter.alpha = 6;
        CHECK_MSG(!rules_adapter(&spec, &e) && !rules_freeze(&spec, &e), "%s", e.text);
        const int rc = adapter_load("tests/golden/adapter/phi3_both", &spec.model.shape,
                                    &(struct hf_sink){.take = drop, .arg = &n}, &e);
        CHECK_MSG(rc == (cases[i].field ? -1 : 0), "case %zu: %s", i, e.text);
        if (!rc) continue;
        CHECK_STR(e.field, cases[i].field);
        CHECK_MSG(strstr(e.text, cases[i].says), "%s", e.text);
    }
    struct err e = {0};
    int64_t n = 0;
    use_saved("phi3", "embed_tokens", "lm_head"); /* the directory has none */
    spec.adapter.rank = 4;
    spec.adapter.alpha = 6;
    CHECK(!rules_adapter(&spec, &e) && !rules_freeze(&spec, &e));
    CHECK_MSG(!load_text("phi3_both", wrapped, &e), "%s", e.text);
    CHECK(adapter_load("tests/golden/adapter/phi3", &spec.model.shape,
                       &(struct hf_sink){.take = drop, .arg = &n}, &e));
    CHECK_STR(e.field, "adapter.modules_to_save");
    CHECK_MSG(strstr(e.text, "does not have"), "%s", e.text);
}

/* Checks which products the words name. */
static void test_targets(void)
{
    static const struct {
        const char *word;
        int n; /* tensors of a layer: A and B of each product */
    } cases[] = {
        {"all-linear", 14}, {"attention", 8}, {"mlp", 6}, {"q_proj", 2}, {"self_attn.q_proj", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        use_qwen3(&cases[i].word, 1);
        for (int k = 0; k < param_tensors(&spec.model.shape); k++) {
            struct param p;
            param_get(&spec.model.shape, k, &p);
            n += p.adapter && strstr(p.name, ".layers.0.");
        }
        CHECK_MSG(n == cases[i].n, "%s: %d tensors", cases[i].word, n);
    }
}

/* ---- merged ---------------------------------------------------------------------------------- */

static int give(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *e)
{
    (void)which, (void)e;
    memcpy(out, (const float *)arg + offset, (size_t)n * sizeof *out);
    return 0;
}

/* Finds the tensor NAME.PART.weight, if `name` is NAME.weight. */
static bool find_part(const char *name, const char *part, struct param *out)
{
    const size_t n = strlen(name) - strlen(".weight");
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        param_get(&spec.model.shape, i, out);
        if (!strncmp(out->name, name, n) && !strncmp(out->name + n + 1, part, strlen(part)) &&
            !strcmp(out->name + n + 1 + strlen(part), ".weight"))
            return true;
    }
    return false;
}

/* Computes element [i, k] of W + 5 / 3 B A in double. */
static double merged_at(const float *x, const struct param *p, const struct param *a,
                        const struct param *b, int64_t i, int64_t k)
{
    double sum = 0;
    for (int64_t j = 0; j < a->rows; j++)
        sum += (double)x[b->offset + i * b->cols + j] * x[a->offset + j * a->cols + k];
    return x[p->offset + i * p->cols + k] + sum * 5 / 3;
}

static void check_merged(const char *family)
{
    const struct way w = {.family = family};
    struct err e = {0};
    int n_adapted = 0;
    float *x = weights_of(&w), *y = malloc(ST_CHUNK * sizeof *y);
    const struct ckpt_flow flow = {.read = give, .arg = x};
    struct merge *g = merge_open(&spec.model.shape, &flow, NULL, &e);
    CHECK(g != NULL);
    for (int t = 0; t < param_tensors(&spec.model.shape); t++) {
        struct param p, a, b;
        double worst = 0;
        param_get(&spec.model.shape, t, &p);
        if (p.adapter) continue;
        const bool has = p.cols && find_part(p.name, "lora_A", &a) &&
                         find_part(p.name, "lora_B", &b);
        n_adapted += has;
        for (int64_t at = 0; at < p.count; at += ST_CHUNK) {
            const int64_t n = p.count - at < ST_CHUNK ? p.count - at : ST_CHUNK;
            CHECK(!merge_read(g, p.offset + at, n, y, &e));
            for (int64_t i = 0; i < n; i++) {
                const int64_t k = at + i;
                const double want = has ? merged_at(x, &p, &a, &b, k / p.cols, k % p.cols)
                                        : x[p.offset + k];
                worst = fmax(worst, fabs(y[i] - want));
            }
        }
        CHECK_MSG(worst <= (has ? 1e-6 : 0), "%s: %s differs by %g", family, p.name, worst);
    }
    CHECK_MSG(n_adapted > 0, "%s", family);
    merge_close(g);
    free(x), free(y);
}

static void test_merged(void)
{
    synth.vocab = 250;
    check_merged("llama3"), check_merged("gpt2"), check_merged("phi3"), check_merged("qwen3_next");
    synth.vocab = 61;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t item(const struct plan *p, enum plan_id id)
{
    return p->item[id].name ? p->item[id].size : 0;
}

/* Plans a training of the 8 B shape at 131,072 tokens on 8 ranks with zero 3. */
static int64_t plan_large(bool adapted, int64_t *activations)
{
    static struct plan p;
    struct err e = {0};
    engine_spec(&spec, 131072);
    engine_on_device(&spec);
    spec.model.shape = (struct model_shape){PLANNED_LLAMA_8B};
    spec.precision.params = PRECISION_BF16;
    spec.parallel.sp = spec.resources.ranks = 8;
    spec.parallel.zero = 3;
    spec.memory.recompute = RECOMPUTE_FULL;
    spec.memory.offload = OFFLOAD_NONE;
    spec.memory.loss_chunk_tokens = 1024;
    spec.adapter.rank = adapted ? 16 : 0;
    if (adapted) adapter_targets(&spec, NULL, 0);
    CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
    *activations = item(&p, PLAN_X) + item(&p, PLAN_KEPT) + item(&p, PLAN_WORK);
    return item(&p, PLAN_PARAMS) + item(&p, PLAN_FETCHED) + item(&p, PLAN_GRAD) +
           item(&p, PLAN_GRAD_ACC) + item(&p, PLAN_MASTER) + item(&p, PLAN_ADAM_M) +
           item(&p, PLAN_ADAM_V);
}

/* Checks that weights, gradients, masters and moments take at most a fifth of those of a training
 * of all weights, and that activations take no more. */
static void test_memory(void)
{
    int64_t whole, own;
    const int64_t all = plan_large(false, &whole), few = plan_large(true, &own);
    CHECK_MSG(few > 0 && 5 * few <= all, "%lld of %lld bytes", (long long)few, (long long)all);
    CHECK_MSG(own > 0 && own <= whole + whole / 100, "%lld, %lld bytes", (long long)own,
              (long long)whole);
}

int main(void)
{
    RUN(test_resumed);
    RUN(test_configs);
    RUN(test_other_adapters);
    RUN(test_refused);
    RUN(test_targets);
    RUN(test_saved);
    RUN(test_saved_fields);
    RUN(test_saved_directories);
    RUN(test_merged);
    RUN(test_memory);
    return test_done("adapter_kept");
}
