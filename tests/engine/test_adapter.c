/* test_adapter.c: trainings of adapters (LoRA). Checks that the base keeps its bits, that the first
 * loss is that of the base alone, and that the training is the same on every product of axes.
 * engine.h compares the messages of every rank with the formulas, and the memory that the rank
 * placed with the plan.
 * tests: needs golden */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"
#include "worker/ckpt/scatter.h"
#include "worker/family/family.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/slice.h"

static struct job_spec spec; /* off the stack */
static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

enum { STEPS = 3 };

struct way {
    const char *family; /* directory in tests/golden; NULL means a Llama */
    const char *target; /* NULL means all products */
    int P, dp, pp, tp, zero, group, determinism, precision, recompute, tied, offload, zigzag;
    int64_t batch, mlp_chunk, time_chunk, rank;
    double max_norm, drop;
};

static void set_spec(struct job_spec *s, const struct way *w)
{
    struct err e = {0};
    engine_spec(s, synth.S);
    engine_on_device(s);
    s->model.shape.n_layers = 4;
    if (w->family) {
        char dir[96];
        snprintf(dir, sizeof dir, "tests/golden/%s", w->family);
        CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    }
    s->model.shape.tied = w->family ? s->model.shape.tied : w->tied;
    s->train.steps = STEPS;
    s->train.global_batch = w->batch ? w->batch : w->dp > 1 ? w->dp : 1;
    s->optim.max_grad_norm = w->max_norm;
    /* eps is as large as the gradients, so that a rounding of a tiny gradient does not decide the
     * sign of the first step. */
    s->optim.eps = 1e-2;
    s->precision.params = w->precision;
    s->parallel.zero = w->zero;
    s->parallel.zero_group = w->group;
    s->determinism = w->determinism ? w->determinism : DET_RUN;
    s->parallel.layout = w->zigzag ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
    s->memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    s->memory.time_chunk = w->time_chunk;
    s->memory.mlp_chunk_tokens = w->mlp_chunk;
    s->memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    s->adapter.rank = w->rank ? w->rank : 3;
    s->adapter.alpha = 5;
    s->adapter.dropout = w->drop;
    adapter_targets(s, &w->target, w->target ? 1 : 0);
}

static float *initial; /* the weights before the first step */

static void keep_first(struct train *t, int rank, void *arg)
{
    (void)rank, (void)arg;
    if (t->step == 0) engine_collect(t, SHARDED_WEIGHTS, initial);
}

static struct engine_run go(struct job_spec *s, const struct way *w, float *weights)
{
    struct engine_run r = {.P = w->P ? w->P : 1,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .initial = weights,
                           .source = {synth_batch, synth_targets, &synth},
                           .before_step = initial ? keep_first : NULL};
    set_spec(s, w);
    engine_go(&r, s);
    return r;
}

static void say(const struct way *w, char *out, size_t size)
{
    snprintf(out, size,
             "%s %s P %d dp %d pp %d tp %d zero %d group %d determinism %d precision %d recompute "
             "%d tied %d offload %d batch %lld chunk %lld norm %g drop %g",
             w->family ? w->family : "llama", w->target ? w->target : "all-linear", w->P, w->dp,
             w->pp, w->tp, w->zero, w->group, w->determinism, w->precision, w->recompute, w->tied,
             w->offload, (long long)w->batch, (long long)w->mlp_chunk, w->max_norm, w->drop);
}

/* Returns weights in which no element of an adapter is 0, and the model's are those that
 * model_random draws. */
static float *weights_of(const struct way *w)
{
    struct way one = *w;
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = 0;
    set_spec(&spec, &one);
    const int64_t n = param_count(&spec.model.shape);
    float *x = calloc((size_t)n, sizeof *x);
    initial = calloc((size_t)n, sizeof *initial);
    struct engine_run r = go(&spec, &one, NULL);
    memcpy(x, initial, (size_t)n * sizeof *x);
    free(initial), initial = NULL;
    engine_free(&r);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        for (int64_t k = 0; p.adapter && k < p.count; k++)
            x[p.offset + k] = (float)((double)synth_hash((uint64_t)(i * 100003 + k)) /
                                          4294967296.0 -
                                      0.5) *
                              0.4f;
    }
    return x;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Checks that the base keeps its bits and has no moments, that all tensors of adapters move, and
 * that the first loss is that of the model without adapters, because B is 0. */
static void check_one(const struct way *w)
{
    static struct job_spec plain;
    char which[400];
    int n_base = 0, n_adapter = 0;
    say(w, which, sizeof which);
    set_spec(&spec, w);
    initial = calloc((size_t)param_count(&spec.model.shape), sizeof *initial);
    struct engine_run r = go(&spec, w, NULL);
    const struct model_shape *m = &spec.model.shape;
    struct way bare = *w;
    float *kept = initial;
    initial = NULL;
    set_spec(&plain, &bare);
    plain.model.shape.adapter.rank = plain.model.shape.freeze.n_kinds = 0;
    struct engine_run want = {.P = 1, .steps = 1, .source = {synth_batch, synth_targets, &synth}};
    engine_go(&want, &plain);
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const float *is = r.weights + p.offset;
        const bool same = !memcmp(is, kept + p.offset, (size_t)p.count * sizeof *is);
        CHECK_MSG(p.trained == p.adapter, "%s: %s", which, p.name);
        CHECK_MSG(same != p.adapter, "%s: %s %s", which, p.name, same ? "stays" : "changes");
        n_base += !p.adapter, n_adapter += p.adapter;
        for (int64_t k = 0; k < p.count && !p.adapter; k++)
            if (r.adam_m[p.offset + k] != 0 || r.adam_v[p.offset + k] != 0)
                CHECK_MSG(0, "%s: %s has moments", which, p.name);
    }
    CHECK(n_base > 0 && n_adapter > 0 && n_adapter % 2 == 0);
    CHECK_MSG(n_base == param_tensors(&plain.model.shape), "%s: %d tensors", which, n_base);
    CHECK_MSG(r.loss[0] == want.loss[0], "%s: first loss %.17g, %.17g", which, r.loss[0],
              want.loss[0]);
    CHECK(r.plan.class_size[PLAN_OPTIMIZER] < want.plan.class_size[PLAN_OPTIMIZER]);
    free(kept);
    engine_free(&r), engine_free(&want);
}

static void test_one(void)
{
    static const char *const targets[] = {NULL, "q_proj", "mlp", "attention"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) {
            const struct way w = {.target = targets[i],
                                  .recompute = RECOMPUTE_NONE + k,
                                  .tied = k == 1,
                                  .max_norm = k == 2 ? 0.5 : 0};
            check_one(&w);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

static void check_near(const struct engine_run *r, const struct engine_run *one, const char *which)
{
    for (int i = 0; i < STEPS; i++)
        CHECK_MSG(fabs(r->loss[i] - one->loss[i]) <= 1e-5 * one->loss[i] &&
                      fabs(r->norm[i] / one->norm[i] - 1) <= 1e-4,
                  "%s: step %d: loss %.9g, %.9g, norm %.9g, %.9g", which, i, r->loss[i],
                  one->loss[i], r->norm[i], one->norm[i]);
    struct model_shape m = spec.model.shape;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        param_get(&m, i, &p);
        const int64_t n = p.count, at = p.offset;
        const struct {
            const char *name;
            const float *is, *want;
        } of[] = {{"gradient", r->grad, one->grad},
                  {"weights", r->weights, one->weights},
                  {"m", r->adam_m, one->adam_m},
                  {"v", r->adam_v, one->adam_v}};
        if (!p.adapter)
            CHECK_MSG(!memcmp(r->weights + at, one->weights + at, (size_t)n * 4), "%s: %s changes",
                      which, p.name);
        for (int k = 0; p.adapter && k < 4; k++) {
            double length = 0;
            for (int64_t j = 0; j < n; j++)
                length += (double)of[k].want[at + j] * of[k].want[at + j];
            if ((k == 0 && r->plan.fused) || sqrt(length) < 1e-6 * one->norm[0]) continue;
            const double d = rel_l2(of[k].is + at, of[k].want + at, n);
            CHECK_MSG(d <= 3e-5, "%s: %s of %s: rel-L2 %.3g", which, of[k].name, p.name, d);
        }
    }
}

static void check_same(const struct engine_run *r, const struct engine_run *want, const char *which)
{
    const size_t size = (size_t)want->n * 4;
    CHECK_MSG(!memcmp(r->loss, want->loss, STEPS * sizeof *r->loss), "%s: losses", which);
    CHECK_MSG(!memcmp(r->norm, want->norm, STEPS * sizeof *r->norm), "%s: norms", which);
    CHECK_MSG(!memcmp(r->weights, want->weights, size), "%s: weights", which);
    CHECK_MSG(!memcmp(r->adam_m, want->adam_m, size), "%s: m", which);
}

static void check_product(struct way *w)
{
    static struct job_spec plain;
    struct way one = *w;
    char which[400];
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = one.zigzag = 0;
    one.determinism = DET_RUN;
    if (!one.batch) one.batch = w->dp > 1 ? w->dp : 1;
    w->batch = one.batch;
    say(w, which, sizeof which);
    float *x = w->tp > 1 ? NULL : weights_of(w); /* engine.h takes no slices of given weights */
    struct engine_run want = go(&plain, &one, x), r = go(&spec, w, x);
    check_near(&r, &want, which);
    engine_free(&r);
    if (w->determinism == DET_RANKS) {
        struct way few = *w;
        few.P = few.pp = few.zero = few.group = 0;
        engine_free(&want);
        want = go(&plain, &few, x);
        r = go(&spec, w, x);
        check_same(&r, &want, which);
        engine_free(&r);
    }
    engine_free(&want);
    free(x);
}

static int draw(int seed, int i, int n)
{
    return (int)(synth_hash((uint64_t)seed * 64 + (uint64_t)i) % (uint32_t)n);
}

static void test_products(void)
{
    static const char *const targets[] = {NULL, NULL, "attention", "down_proj", "k_proj"};
    const char *more = getenv("SEQD_TEST_PRODUCTS");
    const int n = more ? atoi(more) : small_tests() || SANITIZED ? 16 : 64;
    for (int i = 1; i <= n; i++) {
        struct way w = {.P = 1 + draw(i, 0, 3),
                        .dp = 1 + draw(i, 1, 2),
                        .pp = 1 + draw(i, 2, 3),
                        .tp = i % 4 ? 0 : 2,
                        .zero = draw(i, 3, 4),
                        .tied = draw(i, 5, 2),
                        .recompute = RECOMPUTE_NONE + draw(i, 6, 3),
                        .max_norm = draw(i, 7, 2) ? 0.5 : 0,
                        .offload = i % 7 == 0,
                        .target = targets[draw(i, 8, 5)],
                        .rank = 1 + draw(i, 11, 5)};
        if (w.P == 3) w.P = 4;
        w.batch = w.dp * (1 + draw(i, 9, 3));
        w.determinism = !w.tp && draw(i, 10, 2) ? DET_RANKS : DET_RUN;
        w.drop = i % 3 == 0 ? 0.25 : 0;
        w.mlp_chunk = i % 5 < 2 ? 5 : 0;
        check_product(&w);
    }
}

/* Checks that dropout changes a training, and that it is the same where rows are computed in several
 * tiles and ranks have two segments. */
static void test_dropout(void)
{
    struct way w = {.drop = 0.5}, none = {0};
    synth.S = 2 * ADAPT_TILE + 19;
    struct engine_run a = go(&spec, &w, NULL), b = go(&spec, &none, NULL);
    CHECK(a.loss[0] == b.loss[0] && a.loss[1] != b.loss[1]); /* B is 0 in the first step */
    engine_free(&a), engine_free(&b);
    for (int zero = 0; zero < 4; zero += 3)
        for (int layout = 0; layout < 2; layout++) {
            struct way two = {.P = 2, .drop = 0.5, .zero = zero, .zigzag = layout};
            check_product(&two);
        }
    for (int P = 2; P <= 4; P += 2) check_product(&(struct way){.P = P, .tp = 2, .drop = 0.5});
    synth.S = 37;
}

/* ---- families -------------------------------------------------------------------------------- */

static void test_families(void)
{
    static const struct way ways[] = {{.family = "mixtral"},
                                      {.family = "gpt2"},
                                      {.family = "gemma3"},
                                      {.family = "qwen3"},
                                      {.family = "qwen3_5"},
                                      {.family = "qwen3_next"},
                                      {.family = "qwen2_moe"},
                                      {.family = "phi3"},
                                      {.family = "smollm3"},
                                      {.family = "olmo2"},
                                      {.family = "granite"},
                                      {.family = "gpt_oss"},
                                      {.family = "minimax"},
                                      {.family = "tnl"},
                                      {.family = "bert"},
                                      {.family = "modernbert"},
                                      {.family = "tnl", .time_chunk = 5}};
    synth.vocab = 250;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.max_norm = 1;
        check_one(&w);
        w.P = 2, w.dp = w.time_chunk ? 1 : 2, w.zero = w.time_chunk ? 1 : 1 + (int)i % 3;
        check_product(&w);
    }
    synth.vocab = 61;
}

/* ---- from one product to another ------------------------------------------------------------- */

enum { STOP = 1 };

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
        CHECK_MSG(!st_find(f, name) == !p.adapter, "%s", name);
        snprintf(name, sizeof name, ADAPTER_PREFIX "%s", p.name);
        CHECK_MSG(!st_find(own, name) == !p.adapter, "%s", name);
        n += p.adapter;
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
    struct stop at = {.dir = "/tmp/test_adapter.XXXXXX"},
                none = {.dir = "/tmp/test_adapter.XXXXXX"};
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
        CHECK_MSG(!p.adapter ? d == 0 : d <= most, "%s: weights of %s: rel-L2 %.3g", which, p.name,
                  d);
        if (!p.adapter) continue;
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

/* Writes a directory with this adapter_config.json and the tensors of the golden adapter, and loads
 * it. Returns what adapter_load returns. */
static int load_text(const char *config, struct err *e)
{
    char dir[] = "/tmp/test_adapter.XXXXXX", path[96];
    int64_t n = 0;
    size_t size;
    struct err why = {0};
    if (!mkdtemp(dir)) abort();
    char *tensors = file_read("tests/golden/adapter/qwen3/adapter_model.safetensors", 1 << 20,
                              &size, &why);
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
        {",\"use_dora\":true", "use_dora is set"},
        {",\"use_rslora\":true", "set it to true"},
        {",\"rank_pattern\":{\"q_proj\":4}", "rank_pattern is set"},
        {",\"alpha_pattern\":{\"q_proj\":4}", "alpha_pattern is set"},
        {",\"layers_to_transform\":[0]", "layers_to_transform is set"},
        {",\"modules_to_save\":[\"lm_head\"]", "modules_to_save is set"},
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
        const int rc = load_text(text, &e);
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
        CHECK(load_text(cases[i].text, &e));
        CHECK_MSG(strstr(e.text, cases[i].says), "%s", e.text);
        CHECK_STR(e.field, cases[i].field);
    }
    memset(&e, 0, sizeof e);
    use_qwen3(some, 1); /* the directory has more products */
    CHECK(load_text("{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5}", &e));
    CHECK_MSG(strstr(e.text, "lora_A") && !strcmp(e.field, "adapter.targets"), "%s", e.text);
    CHECK(!config_read_dir("tests/golden/llama3", &spec.model.shape, &e)); /* another model */
    memset(&e, 0, sizeof e);
    adapter_targets(&spec, NULL, 0);
    CHECK(load_text("{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":5}", &e));
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
    spec.adapter.dropout = 0.1;
    spec.memory.time_chunk = 8;
    refused("adapter.dropout", "memory.time_chunk");
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

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Tells whether a fault changes the adapters of a training on two ranks. */
static bool is_wrong(struct way *w, int mutant)
{
    static struct job_spec plain;
    struct way one = *w;
    int n = 0;
    one.P = one.dp = one.zero = 0;
    float *x = weights_of(w);
    struct engine_run want = go(&plain, &one, x);
    mutant_choose(mutant);
    struct engine_run r = go(&spec, w, x);
    mutant_choose(MUTANT_NONE);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        n += !(rel_l2(r.weights + p.offset, want.weights + p.offset, p.count) < 2e-5);
    }
    engine_free(&want), engine_free(&r);
    free(x);
    return n > 0;
}

static void test_mutants(void)
{
    static const int of[] = {MUTANT_ADAPTER_ALPHA, MUTANT_ADAPTER_OTHER, MUTANT_DROPOUT_LOCAL,
                             MUTANT_FROZEN_MOVED, MUTANT_MOMENTS_SHIFTED};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct way w = {.P = 2, .batch = 2, .zero = 1, .max_norm = 0.5, .drop = 0.2};
        CHECK(!is_wrong(&w, MUTANT_NONE));
        mutant_report(of[k], is_wrong(&w, of[k]), "adapters after three steps");
    }
}
#endif

int main(void)
{
    RUN(test_one);
    RUN(test_products);
    RUN(test_dropout);
    RUN(test_families);
    RUN(test_resumed);
    RUN(test_configs);
    RUN(test_other_adapters);
    RUN(test_refused);
    RUN(test_targets);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("adapter");
}
