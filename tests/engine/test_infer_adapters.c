/* test_infer_adapters.c: checks generate jobs whose requests choose from several adapters
 * (model.adapters). The line of each request must have the bytes that a job with its adapter alone
 * writes, or one without an adapter, however many requests are answered at once, on any number of
 * ranks, for every kind of cache and storage of weights. */
#include <math.h>
#include <stdlib.h>

#include "api/core/file.h"
#include "api/core/job_paths.h"
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/reading.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/infer.h"
#include "worker/model/host_copy.h"
#include "worker/model/stored.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/check.h"
#include "worker/plan/rules.h"

static char scratch[64];

/* clang-format off */
static const struct kind {
    const char *name;
    int32_t precision, weights;
    struct model_shape shape; /* fields in addition to those that all models have */
} models[] = {
    {"llama", PRECISION_FP32, WEIGHTS_MODEL, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"bf16", PRECISION_BF16, WEIGHTS_MODEL, {.family = FAMILY_LLAMA, .n_kv_heads = 2, .qkv_bias = 1}},
    {"int8", PRECISION_BF16, WEIGHTS_INT8, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"int4", PRECISION_FP32, WEIGHTS_INT4, {.family = FAMILY_LLAMA, .n_kv_heads = 2}},
    {"window", PRECISION_FP32, WEIGHTS_MODEL, {.family = FAMILY_LLAMA, .n_kv_heads = 4, .window = 9}},
    {"gpt2", PRECISION_FP32, WEIGHTS_MODEL, {.family = FAMILY_GPT2, .max_pos = 128, .tied = 1}},
    {"qwen3_next", PRECISION_FP32, WEIGHTS_MODEL,
     {.family = FAMILY_QWEN3_NEXT, .n_kv_heads = 2, .layer_mask = {1}, .dense_mask = {1},
      .delta_heads = 4, .delta_key_heads = 2, .delta_key_dim = 6, .delta_value_dim = 5,
      .conv_width = 3, .n_experts = 3, .experts_per_token = 2, .expert_width = 12,
      .shared_width = 10}},
};
enum { N_MODELS = sizeof models / sizeof *models };

/* The adapters. Their names are in the order of model.adapters. */
static const struct {
    const char *name, *facts;
} adapters[] = {
    {"wide", "{\"rank\":5,\"alpha\":9,\"rslora\":true,\"dropout\":0,\"layers\":2,\"targets\":[\"all-linear\"]}"},
    {"a.b-1", "{\"rank\":3,\"alpha\":6,\"rslora\":false,\"dropout\":0.1,\"layers\":2,\"targets\":[\"attention\"]}"},
    {"mlp", "{\"rank\":1,\"alpha\":4,\"rslora\":false,\"dropout\":0,\"layers\":0,\"targets\":[\"mlp\"]}"},
};
enum { N_ADAPTERS = sizeof adapters / sizeof *adapters, NONE = N_ADAPTERS };

#define LINE(id, body)                                                                             \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" body "}}\n"
static const char requests[] =
    LINE("0", "\"model\":\"wide\",\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true")
    LINE("1", "\"model\":\"a.b-1\",\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true")
    LINE("2", "\"model\":\"mlp\",\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true,\"logprobs\":2")
    LINE("3", "\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true")
    LINE("4", "\"model\":\"mlp\",\"prompt\":\"a\",\"max_tokens\":2")
    LINE("5", "\"model\":\"other\",\"prompt\":\"a\"")
    LINE("6", "\"model\":\"a.b-1\",\"prompt\":[104,105],\"top_k\":5,\"n\":3,\"max_tokens\":9")
    LINE("7", "\"model\":\"base\",\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":3,\"logprobs\":1")
    LINE("8", "\"model\":\"wide\",\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":3,\"logprobs\":1")
    LINE("9", "\"model\":\"wide\",\"prompt\":\"0123456789\",\"temperature\":0.3,\"max_tokens\":17")
    LINE("10", "\"model\":null,\"prompt\":\"one two\",\"max_tokens\":1")
    LINE("11", "\"model\":\"mlp\",\"prompt\":\"0123456789\",\"temperature\":0.3,\"max_tokens\":17");
/* clang-format on */
enum { N_REQUESTS = 12, REFUSED = 5 };
static const int chosen[N_REQUESTS] = {0, 1, 2, NONE, 2, -1, 1, NONE, 0, 0, NONE, 2};

struct job {
    struct job_spec spec;
    struct prompts p;
    char dir[128];
    int only; /* the only adapter, or NONE; -1 if the job has all of them */
    int bad;  /* the adapter whose tensors have a NaN, or -1 */
    char *line[N_REQUESTS];
    char *text; /* the lines */
};

/* ---- the weights of adapters ----------------------------------------------------------------- */

/* Returns element i of a tensor of adapter k. */
static float element(int k, const char *name, int64_t i)
{
    uint32_t x = 2166136261u + (uint32_t)k;
    for (const char *c = name; *c; c++) x = (x ^ (unsigned char)*c) * 16777619u;
    x = (x ^ (uint32_t)i) * 2654435761u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    return ((float)(x & 0xffff) / 65536 - 0.5f) * 0.6f;
}

/* Fills A and B of all adapters, in the same way whether a job has one or all of them. */
static int fill(struct model *m, const struct job *j, struct err *e)
{
    struct device_array there = {m->be, m->dtype, m->params};
    int rc = 0;
    for (int i = 0; i < param_tensors(&m->shape) && !rc; i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        if (!p.adapter) continue;
        const int k = j->only < 0 ? p.of_adapter : j->only;
        float *x = malloc((size_t)p.count * sizeof *x);
        for (int64_t c = 0; c < p.count; c++) x[c] = element(k, p.name, c);
        if (k == j->bad) x[0] = NAN;
        rc = m->shape.quant ? stored_take(m, p.offset, p.count, x, e)
                            : device_array_write(&there, p.offset, p.count, x, e);
        free(x);
    }
    return rc;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

/* Checks that the error of a job with a NaN names the adapter that has it. */
static void check_blamed(const struct job *j, int rc, const struct err *e)
{
    char field[JOB_ADAPTER_FIELD];
    job_adapter_field(&j->spec, j->bad, field);
    CHECK_MSG(rc && e->code == ERR_CORRUPT && !strcmp(e->field, field) &&
                  !strncmp(e->text, field, strlen(field)) &&
                  strstr(e->text, "of the adapter holds one"),
              "%s: %s", e->field, e->text);
}

static void generate_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct infer_text out = {0};
    struct told told;
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    told_open(&told);
    struct infer in = {.model = &t->model,
                       .spec = &j->spec,
                       .job_dir = j->dir,
                       .stopped = never,
                       .progress = &told.p};
    if (!rc) rc = fill(&t->model, j, &e);
    if (!rc) rc = infer_generate(&in, &j->p, &out, &e);
    if (rc && j->bad < 0) ranks_fail(g, rank, &e);
    if (j->bad >= 0) check_blamed(j, rc, &e);
    CHECK(rc || out.ledger_equal);
    /* only rank 0 holds the log-probabilities of answers */
    CHECK_MSG(rc || rank || t->model.placed_size == t->plan.arena_size + t->plan.segment_size,
              "held %lld, planned %lld", (long long)t->model.placed_size,
              (long long)(t->plan.arena_size + t->plan.segment_size));
    infer_text_fini(&out);
    tiny_close(t);
    free(t);
}

static void give_all(struct job_spec *s)
{
    for (int i = 0; i < N_ADAPTERS; i++)
        s->model.adapters[i] = (struct spec_adapter){tiny_text(s, adapters[i].name),
                                                     tiny_text(s, "/adapter"),
                                                     tiny_text(s, adapters[i].facts)};
}

static void job_of(struct job *j, const struct kind *x, int only, int P, int batch)
{
    char path[128];
    struct adapter_facts facts;
    struct err e = {0};
    struct job_spec *s = &j->spec;
    *j = (struct job){.only = only, .bad = -1};
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_GENERATE;
    s->model.shape = x->shape;
    small_sizes(&s->model.shape, 64);
    s->seed = 3;
    s->name = tiny_text(s, only >= 0 && only < N_ADAPTERS ? adapters[only].name : "base");
    s->precision.params = x->precision;
    s->model.weights = x->weights;
    s->resources.ranks = P;
    s->resources.threads = 1;
    s->data.seq_len = 64;
    s->sampling.max_tokens = 20;
    s->sampling.temperature = 0.8;
    s->infer.batch = batch;
    snprintf(path, sizeof path, "%s/batch.jsonl", scratch);
    s->input.source = (struct spec_source){tiny_text(s, path), tiny_text(s, "text"),
                                           DATA_OPENAI_BATCH, 0, -1};
    if (only < 0) give_all(s);
    if (only < 0 || only == NONE) return;
    s->model.adapter = tiny_text(s, "/adapter");
    CHECK(!adapter_facts_read(adapters[only].facts, strlen(adapters[only].facts), &facts, &e));
    CHECK_MSG(!adapter_facts_fill(s, &facts, &e), "%s", e.text);
}

/* Reads the lines of the results, by the number in their custom_id. */
static void read_lines(struct job *j)
{
    char path[192];
    size_t size;
    struct err e = {0};
    char *end, *rest = NULL;
    snprintf(path, sizeof path, "%s/artifacts/results.jsonl", j->dir);
    j->text = file_read(path, 1 << 24, &size, &e);
    CHECK_MSG(j->text, "%s", e.text);
    for (char *at = j->text; (end = strtok_r(at, "\n", &rest)); at = NULL) {
        const char *id = strstr(end, "\"custom_id\":\"");
        const int i = id ? atoi(id + 13) : -1;
        CHECK(i >= 0 && i < N_REQUESTS && !j->line[i]);
        if (i >= 0 && i < N_REQUESTS) j->line[i] = end;
    }
}

static void run_ranks(struct job *j)
{
    struct err e = {0};
    snprintf(j->dir, sizeof j->dir, "%s/job", scratch);
    CHECK(!file_remove(j->dir, &e));
    reading_prompts(&j->spec, scratch, &j->p);
    reading_run(&j->spec, j->spec.resources.ranks, generate_body, j);
    prompts_fini(&j->p);
}

static void run(struct job *j)
{
    run_ranks(j);
    read_lines(j);
}

/* ---- the same bytes -------------------------------------------------------------------------- */

static struct job alone[N_ADAPTERS + 1], mixed;

/* Tells whether each request has the line of its job alone. */
static bool same(const struct kind *x, int P, int batch, bool loud)
{
    bool all = true;
    for (int i = 0; i < N_REQUESTS; i++) {
        if (i == REFUSED) continue;
        const char *want = alone[chosen[i]].line[i], *is = mixed.line[i];
        const bool equal = want && is && !strcmp(want, is);
        all &= equal;
        if (loud)
            CHECK_MSG(equal, "%s, P %d, batch %d, request %d:\n%s\n%s", x->name, P, batch, i,
                      want ? want : "none", is ? is : "none");
    }
    return all;
}

static void run_alone(const struct kind *x, int P)
{
    for (int k = 0; k <= N_ADAPTERS; k++) {
        job_of(&alone[k], x, k, P, 1);
        run(&alone[k]);
    }
}

static void free_alone(void)
{
    for (int k = 0; k <= N_ADAPTERS; k++) free(alone[k].text);
}

/* Returns the answer's text in a line, from its member "choices" on. */
static const char *answer(const struct job *j, int i)
{
    const char *at = j->line[i] ? strstr(j->line[i], "\"choices\"") : NULL;
    return at ? at : "";
}

static void test_mixed(void)
{
    static const int batches[] = {1, 3, 5, 16};
    for (int m = 0; m < N_MODELS; m++)
        for (int P = 1; P <= 2; P++) {
            run_alone(&models[m], P);
            /* the adapters change the answers */
            CHECK(strcmp(answer(&alone[0], 0), answer(&alone[NONE], 0)) != 0);
            CHECK(strcmp(answer(&alone[1], 0), answer(&alone[NONE], 0)) != 0);
            CHECK(strcmp(answer(&alone[2], 0), answer(&alone[NONE], 0)) != 0);
            CHECK(strcmp(answer(&alone[1], 0), answer(&alone[0], 0)) != 0);
            for (int b = 0; b < 4; b++) {
                if (m && b != 1 + (m + P) % 3) continue;
                job_of(&mixed, &models[m], -1, P, batches[b]);
                run(&mixed);
                same(&models[m], P, batches[b], true);
                const char *refused = mixed.line[REFUSED] ? mixed.line[REFUSED] : "";
                CHECK_MSG(strstr(refused, "\"status_code\":400") &&
                              strstr(refused, "model \\\"other\\\" is none of model.adapters, "
                                              "which has wide, a.b-1, mlp:") &&
                              strstr(refused, "\"param\":\"model\""),
                          "%s", refused);
                free(mixed.text);
            }
            free_alone();
        }
}

/* Checks weights that are not finite, in each of the adapters. */
static void test_not_finite(void)
{
    for (int k = 0; k < N_ADAPTERS; k++) {
        job_of(&mixed, &models[0], -1, 1 + k % 2, 3);
        mixed.bad = k;
        run_ranks(&mixed);
    }
}

/* Checks that the plan counts A and B of all adapters, and the operations of the largest
 * adapter. */
static void test_plan(void)
{
    static struct plan all, one[N_ADAPTERS + 1];
    struct err e = {0};
    double most = 0;
    int64_t base = 0, more = 0; /* elements without adapters, and elements of adapters */
    for (int k = 0; k <= N_ADAPTERS; k++) {
        job_of(&alone[k], &models[0], k, 1, 2);
        CHECK_MSG(!family_check(&alone[k].spec, &e), "%s", e.text);
        CHECK_MSG(!plan_make(&alone[k].spec, 0, &one[k], &e), "%s", e.text);
        most = fmax(most, one[k].flops);
        base = param_count(&alone[k].spec.model.shape);
        more += base;
    }
    job_of(&mixed, &models[0], -1, 1, 2);
    CHECK_MSG(!family_check(&mixed.spec, &e), "%s", e.text);
    CHECK_MSG(!plan_make(&mixed.spec, 0, &all, &e), "%s", e.text);
    more -= (N_ADAPTERS + 1) * base;
    CHECK_MSG(more > 0 && param_count(&mixed.spec.model.shape) == base + more, "%lld, not %lld",
              (long long)param_count(&mixed.spec.model.shape), (long long)(base + more));
    CHECK_MSG(all.flops == most, "%.0f, not %.0f", all.flops, most);
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* clang-format off */
static const struct {
    const char *field, *says;
    int32_t kind, format;
    const char *name, *facts, *adapter, *load, *target, *saved, *job, *path;
    int rank;
} refusals[] = {
    {"model.adapters", "belongs to a generate or serve job, and a score job has one adapter", JOB_SCORE},
    {"model.adapters", "requests of input.format \"openai_batch\" choose", .format = DATA_JSONL},
    {"model.adapters", "beside model.adapter: requests choose", .adapter = "/x"},
    {"model.adapters", "name 2 has the byte 0x41", .name = "Alpha"},
    {"model.adapters", "name 2 has the byte 0x2f", .name = "a/b"},
    {"model.adapters", "has the name wide twice: rename one", .name = "wide"},
    {"model.adapters", "a name of 65 bytes", .name = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
    {"model.adapters.a.b-1", "model.adapters.a.b-1 has the name of the job, by which requests", .job = "a.b-1"},
    {"model.adapters.wide", "model.adapters.wide has the text of model.path, by which", .path = "wide"},
    {"model.adapters.a.b-1", "model.adapters.a.b-1: it has whole modules (modules_to_save), here lm_head",
     .facts = "{\"rank\":3,\"alpha\":6,\"rslora\":false,\"dropout\":0,\"layers\":2,\"targets\":[\"mlp\"],\"modules_to_save\":[\"lm_head\"]}"},
    {"model.adapters.a.b-1", "names no product of the model's layers",
     .facts = "{\"rank\":3,\"alpha\":6,\"rslora\":false,\"dropout\":0,\"layers\":2,\"targets\":[\"c_attn\"]}"},
    {"model.adapters.a.b-1", "model.adapters.a.b-1 has an adapter of layer 2, counted from 0, and the model has 2",
     .facts = "{\"rank\":3,\"alpha\":6,\"rslora\":false,\"dropout\":0,\"layers\":3,\"targets\":[\"mlp\"]}"},
    {"model.adapters.a.b-1", "model.adapters.a.b-1 has rank 5000",
     .facts = "{\"rank\":5000,\"alpha\":6,\"rslora\":false,\"dropout\":0,\"layers\":2,\"targets\":[\"mlp\"]}"},
    {"model.adapters.a.b-1", "description of an adapter is none", .facts = "{\"rank\":1}"},
    {"context.load", "a context is of one adapter", .load = "/c"},
    {"adapter.rank", "beside model.adapters, each of which has a form of its own", .rank = 4},
    {"adapter.targets", "adapter.targets beside model.adapters", .target = "q_proj"},
    {"adapter.modules_to_save", "beside model.adapters, each of which", .saved = "lm_head"},
};
/* clang-format on */

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct err e = {0};
        struct job_spec *s = &mixed.spec;
        job_of(&mixed, &models[0], -1, 1, 1);
        if (refusals[i].kind) s->kind = refusals[i].kind;
        if (refusals[i].format) s->input.source.format = refusals[i].format;
        if (refusals[i].name) s->model.adapters[1].name = tiny_text(s, refusals[i].name);
        if (refusals[i].job) s->name = tiny_text(s, refusals[i].job);
        if (refusals[i].path) s->model.path = tiny_text(s, refusals[i].path);
        if (refusals[i].facts) s->model.adapters[1].facts = tiny_text(s, refusals[i].facts);
        if (refusals[i].adapter) s->model.adapter = tiny_text(s, refusals[i].adapter);
        if (refusals[i].load) s->context.load = tiny_text(s, refusals[i].load);
        if (refusals[i].target) s->adapter.targets[0] = tiny_text(s, refusals[i].target);
        if (refusals[i].saved) s->adapter.modules_to_save[0] = tiny_text(s, refusals[i].saved);
        s->adapter.rank = refusals[i].rank;
        CHECK_MSG(adapter_list_check(s, &e) || rules_adapters(s, &e), "%zu passes", i);
        CHECK_MSG(!strcmp(e.field, refusals[i].field) && strstr(e.text, refusals[i].says),
                  "%zu: %s: %s", i, e.field, e.text);
    }
}

/* Checks that adapters of which no node has told anything yet leave the shape as it is. */
static void test_unknown(void)
{
    struct err e = {0};
    job_of(&mixed, &models[0], -1, 1, 1);
    mixed.spec.model.adapters[2].facts = 0;
    CHECK_MSG(!family_check(&mixed.spec, &e), "%s", e.text);
    CHECK(!mixed.spec.model.shape.adapters.n && !mixed.spec.model.shape.freeze.n_kinds);
}

#ifdef SEQD_MUTANTS
/* Checks that an injected fault is found, with which a decoded row has the adapter of the next
 * row. */
static void test_mutant(void)
{
    char by[64];
    for (int P = 1; P <= 2; P++) {
        run_alone(&models[0], P);
        mutant_choose(MUTANT_ADAPTER_ROW);
        job_of(&mixed, &models[0], -1, P, 3);
        run(&mixed);
        mutant_choose(MUTANT_NONE);
        snprintf(by, sizeof by, "requests of 3 adapters at once on P %d", P);
        mutant_report(MUTANT_ADAPTER_ROW, !same(&models[0], P, 3, false), by);
        free(mixed.text);
        free_alone();
    }
    verify_blind(MUTANT_ADAPTER_ROW);
}
#endif

int main(void)
{
    char path[96];
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_infer_adapters");
    snprintf(scratch, sizeof scratch, "/tmp/test_infer_adapters.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    snprintf(path, sizeof path, "%s/batch.jsonl", scratch);
    if (file_write(path, requests, sizeof requests - 1, &e)) return 1;
    RUN(test_refused);
    RUN(test_unknown);
    RUN(test_plan);
    RUN(test_mixed);
    RUN(test_not_finite);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("infer_adapters");
}
