/* test_adapter.c: trainings of adapters (LoRA). Checks that the base keeps its bits, that the first
 * loss is that of the base alone, and that the training is the same on every product of axes.
 * engine.h compares the messages of every rank with the formulas, and the memory that the rank
 * placed with the plan.
 * tests: needs golden */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/adapter.h"
#include "tests/lib/engine.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"

static struct job_spec spec; /* off the stack */
static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

enum { STEPS = 3 };

struct way {
    const char *family; /* directory in tests/golden; NULL means a Llama */
    const char *target; /* NULL means all products */
    int P, dp, pp, tp, zero, group, determinism, precision, recompute, tied, offload;
    int64_t batch, time_chunk, rank;
    double max_norm;
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
    s->parallel.layout = LAYOUT_CONTIGUOUS;
    s->memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    s->memory.time_chunk = w->time_chunk;
    s->memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    s->adapter.rank = w->rank ? w->rank : 3;
    s->adapter.alpha = 5;
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
             "%d tied %d offload %d batch %lld norm %g",
             w->family ? w->family : "llama", w->target ? w->target : "all-linear", w->P, w->dp,
             w->pp, w->tp, w->zero, w->group, w->determinism, w->precision, w->recompute, w->tied,
             w->offload, (long long)w->batch, w->max_norm);
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
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = 0;
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
        check_product(&w);
    }
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

int main(void)
{
    RUN(test_one);
    RUN(test_products);
    RUN(test_families);
    return test_done("adapter");
}
