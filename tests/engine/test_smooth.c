/* test_smooth: compares five steps whose loss has smoothed labels and a z-loss, or whose embeddings
 * have noise, with those of PyTorch in float64 (tests/golden/make_smooth_golden.py): losses, norms,
 * and gradients of the first step, on one rank and on products of axes. The logits of one model
 * have a soft cap, and the head of another has a bias. engine.h compares the messages of every rank
 * with the formulas. Also checks that evaluations compute the loss without these terms, and that
 * ranks do not change a bit under determinism "ranks".
 * tests: needs golden */
#include "api/core/job.h"
#include "tests/lib/lm.h"
#include "worker/ckpt/scatter.h"
#include "worker/plan/slice.h"
#include "worker/train/eval.h"

static struct job_spec spec; /* static because it is too large for the stack */

/* The terms of a loss and the noise, as the golden files name them. */
struct terms {
    const char *name;
    double smoothing, z_loss, noise;
    bool gradients; /* the golden files have some gradients */
};
static const struct terms terms[] = {{"smooth", 0.2, 0, 0, false},
                                     {"z", 0, 0.05, 0, false},
                                     {"both", 0.1, 0.02, 0, true},
                                     {"noise", 0, 0, 15, true}};

/* A way to run the golden training. */
struct way {
    int P, dp, pp, tp, zero;
    enum determinism_id determinism;
    enum recompute_id recompute;
    int64_t loss_chunk;
};

enum { GOLDEN_STEPS = 5 };

static struct lm_golden golden;

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    (void)arg, (void)e;
    lm_fill(&golden, n % golden.n, sh, b);
    b->sample = n;
    return 0;
}

static int64_t golden_targets(void *arg, int64_t n, struct err *e)
{
    int64_t count = 0;
    (void)arg, (void)e;
    for (int64_t i = 0; i < golden.S; i++)
        count += golden.targets[n % golden.n * golden.S + i] >= 0;
    return count;
}

/* Checks that an evaluation computes -log p alone. */
static void evaluate(struct train *t, int rank)
{
    struct comm_count want[PURPOSE_N];
    struct err e = {0};
    struct eval got;
    const struct plan_eval v = {golden.S, golden.n};
    const struct eval_args a = {.source = {golden_batch, golden_targets, NULL},
                                .n_windows = golden.n,
                                .seq_len = golden.S,
                                .want = want};
    CHECK(!plan_eval_comm(&spec.model.shape, t->plan, rank, &v, want, &e));
    CHECK_MSG(!eval_run(t, &a, &got, &e), "%s", e.text);
    CHECK(got.ledger_equal);
    CHECK_MSG(fabs(got.loss - golden.loss) <= LM_WANTED * golden.loss, "%s: %.9g, not %.9g",
              golden.name, got.loss, golden.loss);
}

/* Loads the weights before the first step, and evaluates them. */
static void begin(struct train *t, int rank, void *arg)
{
    const struct model_shape whole = slice_whole(&t->model.shape);
    struct err e = {0};
    (void)arg;
    if (t->step) return;
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : scatter_model(&t->state, golden.dir, &whole, NULL, &e) ||
                               scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
    evaluate(t, rank);
}

static void set_golden(struct job_spec *s, const struct way *w, const struct terms *l)
{
    engine_spec(s, golden.S);
    engine_on_device(s);
    s->model.shape = golden.m;
    s->train.steps = GOLDEN_STEPS;
    s->train.global_batch = 2;
    s->optim.eps = 1e-4;
    s->optim.max_grad_norm = 0.5;
    s->schedule.type = SCHEDULE_CONSTANT;
    s->schedule.warmup_steps = 0;
    s->parallel.zero = w->zero;
    s->determinism = (int32_t)w->determinism;
    s->memory.recompute = (int32_t)w->recompute;
    s->memory.loss_chunk_tokens = w->loss_chunk;
    s->objective.label_smoothing = l->smoothing;
    s->objective.z_loss = l->z_loss;
    s->train.neftune_alpha = l->noise;
}

static const struct st_tensor *find(struct st_file *f, const struct terms *l, const char *array)
{
    char name[160];
    snprintf(name, sizeof name, "%s.%s", l->name, array);
    return st_find(f, name);
}

static void check_steps(struct st_file *f, const struct engine_run *r, const struct terms *l,
                        const char *which)
{
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
    memcpy(loss, st_data(f, find(f, l, "loss")), sizeof loss);
    memcpy(norm, st_data(f, find(f, l, "norm")), sizeof norm);
    for (int k = 0; k < GOLDEN_STEPS; k++)
        CHECK_MSG(fabs(r->loss[k] - loss[k]) <= 1e-5 * loss[k] &&
                      fabs(r->norm[k] - norm[k]) <= 1e-4 * norm[k],
                  "%s: step %d: loss %.9g, want %.9g; norm %.9g, want %.9g", which, k, r->loss[k],
                  loss[k], r->norm[k], norm[k]);
}

static void check_gradients(struct st_file *f, const struct engine_run *r, const struct terms *l,
                            const char *which)
{
    struct model_shape m = spec.model.shape;
    int n = 0;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        struct err e = {0};
        char name[128];
        param_get(&m, i, &p);
        snprintf(name, sizeof name, "grad:%s", p.name);
        const struct st_tensor *t = find(f, l, name);
        if (!t) continue; /* the file has some of them */
        float *want = malloc((size_t)p.count * sizeof *want);
        CHECK_MSG(t->count == p.count && !st_read_f32(f, t, want, &e), "%s", name);
        const double off = rel_l2(r->grad + p.offset, want, p.count);
        CHECK_MSG(off <= LM_WANTED, "%s: %s: rel-L2 %.3g", which, name, off);
        free(want);
        n++;
    }
    CHECK_MSG((n > 1) == l->gradients, "%s: %d gradients", which, n);
}

/* Runs the steps from the weights of the golden model. The caller frees *r. */
static void run_steps(struct engine_run *r, const struct way *w, const struct terms *l)
{
    set_golden(&spec, w, l);
    *r = (struct engine_run){.P = w->P,
                             .dp = w->dp,
                             .pp = w->pp,
                             .tp = w->tp,
                             .steps = GOLDEN_STEPS,
                             .before_step = begin,
                             .source = {golden_batch, golden_targets, NULL}};
    engine_go(r, &spec);
}

static void check_golden(const char *name, const struct way *w)
{
    char path[96], which[160];
    struct err e = {0};
    lm_open(&golden, name);
    snprintf(path, sizeof path, "tests/golden/smooth/%s.safetensors", name);
    struct st_file *f = st_open(path, &e);
    CHECK_MSG(f, "%s", e.text);
    for (size_t k = 0; f && k < sizeof terms / sizeof *terms; k++) {
        struct engine_run r;
        snprintf(which, sizeof which, "%s %s, P %d dp %d pp %d tp %d zero %d, chunk %lld", name,
                 terms[k].name, w->P, w->dp, w->pp, w->tp, w->zero, (long long)w->loss_chunk);
        run_steps(&r, w, &terms[k]);
        check_steps(f, &r, &terms[k], which);
        if (r.grad) check_gradients(f, &r, &terms[k], which);
        engine_free(&r);
    }
    st_close(f);
    lm_close(&golden);
}

static const struct way ways[] = {
    {.P = 1},
    {.P = 1, .loss_chunk = 7, .recompute = RECOMPUTE_FULL},
    {.P = 2},
    {.P = 4, .zero = 3, .loss_chunk = 3},
    {.P = 1, .dp = 2, .zero = 2},
    {.P = 1, .pp = 2},
    {.P = 2, .pp = 2, .zero = 3},
    {.P = 1, .tp = 2, .loss_chunk = 9},
    {.P = 2, .tp = 2, .zero = 1},
    {.P = 1, .tp = 2, .pp = 2},
    {.P = 2, .determinism = DET_RANKS},
};

/* Ranks of parallel.tp can share the layers of qwen3_mixed alone. */
static void test_golden(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        check_golden("qwen3_mixed", &ways[i]);
        if (ways[i].tp) continue;
        check_golden("gemma2", &ways[i]);
        check_golden("bert", &ways[i]);
    }
}

/* Checks that 1, 2, 4 and 8 ranks compute the same bits. */
static void test_ranks(void)
{
    static const struct terms all = {"all", 0.1, 0.02, 15, false};
    struct engine_run one, r;
    lm_open(&golden, "gemma2");
    run_steps(&one, &(struct way){.P = 1, .determinism = DET_RANKS}, &all);
    for (int P = 2; P <= 8; P *= 2) {
        run_steps(&r, &(struct way){.P = P, .determinism = DET_RANKS}, &all);
        CHECK_MSG(!memcmp(r.loss, one.loss, GOLDEN_STEPS * sizeof *r.loss), "P %d: losses", P);
        CHECK_MSG(!memcmp(r.weights, one.weights, (size_t)one.n * 4), "P %d: weights", P);
        engine_free(&r);
    }
    engine_free(&one);
    lm_close(&golden);
}

int main(void)
{
    RUN(test_golden);
    RUN(test_ranks);
    return test_done("smooth");
}
