/* test_freeze_golden.c: compares five training steps with those of PyTorch in float64
 * (tests/golden/make_freeze_golden.py). Some tensors of the models are frozen. Compares losses,
 * norms, the gradients of trained tensors and the weights after five steps, on one rank and on
 * products of axes.
 * tests: needs golden */
#include "api/core/job.h"
#include "tests/lib/freeze.h"
#include "tests/lib/lm.h"

static struct job_spec spec; /* static because it is too large for the stack */

/* A model, its frozen tensors, and one way to run it. */
struct way {
    const char *name, *freeze[FREEZE_PATTERNS];
    int P, dp, pp, zero;
};

static void say(const struct way *w, char *out, size_t size)
{
    snprintf(out, size, "%s, P %d dp %d pp %d zero %d", w->name, w->P, w->dp, w->pp, w->zero);
}

enum { GOLDEN_STEPS = 5 };

static struct lm_golden golden;

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    (void)arg, (void)e;
    lm_fill(&golden, n % golden.n, sh, b);
    b->n_targets = 0;
    for (int64_t i = 0; i < golden.S; i++)
        b->n_targets += golden.targets[n % golden.n * golden.S + i] >= 0;
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

/* Describes the training that tests/golden/make_freeze_golden.py runs. */
static void set_golden(struct job_spec *s, const struct way *w)
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
    s->parallel.layout = LAYOUT_CONTIGUOUS;
    s->memory.recompute = RECOMPUTE_NONE;
    freeze_tensors(s, w->freeze);
}

static const float *golden_tensor(struct st_file *f, const char *kind, const struct param *p,
                                  float *room)
{
    char name[128];
    struct err e = {0};
    snprintf(name, sizeof name, "%s:%s", kind, p->name);
    const struct st_tensor *t = st_find(f, name);
    CHECK_MSG(t && t->count == p->count, "the golden lacks %s", name);
    if (t) CHECK(!st_read_f32(f, t, room, &e));
    return room;
}

static void check_steps(struct st_file *f, const struct engine_run *r, const char *which)
{
    double loss[GOLDEN_STEPS], norm[GOLDEN_STEPS];
    memcpy(loss, st_data(f, st_find(f, "loss")), sizeof loss);
    memcpy(norm, st_data(f, st_find(f, "norm")), sizeof norm);
    for (int k = 0; k < GOLDEN_STEPS; k++)
        CHECK_MSG(fabs(r->loss[k] - loss[k]) <= 1e-5 * loss[k] &&
                      fabs(r->norm[k] - norm[k]) <= 1e-4 * norm[k],
                  "%s: step %d: loss %.9g, want %.9g; norm %.9g, want %.9g", which, k, r->loss[k],
                  loss[k], r->norm[k], norm[k]);
}

static void check_tensors(struct st_file *f, const struct engine_run *r, const char *which)
{
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        const bool stays = frozen(&spec.model.shape, i, &p);
        float *room = malloc((size_t)p.count * sizeof *room);
        const float *weights = golden_tensor(f, "weight", &p, room), *is = r->weights + p.offset;
        const double off = rel_l2(is, weights, p.count);
        CHECK_MSG(off <= 1e-5, "%s: weights of %s: rel-L2 %.3g", which, p.name, off);
        if (stays)
            CHECK_MSG(!memcmp(is, r->initial + p.offset, (size_t)p.count * 4), "%s: %s changes",
                      which, p.name);
        const double d = stays ? 0
                               : rel_l2(r->grad + p.offset, golden_tensor(f, "grad", &p, room),
                                        p.count);
        CHECK_MSG(d <= 1e-5, "%s: gradient of %s: rel-L2 %.3g", which, p.name, d);
        free(room);
    }
}

static void check_golden(const struct way *w)
{
    char path[96], which[400];
    struct err e = {0};
    lm_open(&golden, w->name);
    snprintf(path, sizeof path, "tests/golden/freeze/%s.safetensors", w->name);
    struct st_file *f = st_open(path, &e);
    CHECK_MSG(f, "%s", e.text);
    set_golden(&spec, w);
    say(w, which, sizeof which);
    float *first = calloc((size_t)param_count(&spec.model.shape), sizeof *first);
    CHECK_MSG(!hf_load(golden.dir, &spec.model.shape, DT_F32, first, &e), "%s", e.text);
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .pp = w->pp,
                           .steps = GOLDEN_STEPS,
                           .initial = first,
                           .source = {golden_batch, golden_targets, NULL}};
    engine_go(&r, &spec);
    check_steps(f, &r, which);
    check_tensors(f, &r, which);
    engine_free(&r);
    free(first);
    st_close(f);
    lm_close(&golden);
}

static void test_golden(void)
{
    static const struct way ways[] = {{.P = 1},
                                      {.P = 2, .zero = 1},
                                      {.P = 1, .dp = 2, .zero = 2},
                                      {.P = 2, .pp = 2, .zero = 3},
                                      {.P = 4, .zero = 3},
                                      {.P = 2, .dp = 2, .zero = 3}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.name = "qwen3", w.freeze[0] = "model.embed_tokens.*", w.freeze[1] = "*.layers.0.*";
        check_golden(&w);
        w.name = "mixtral", w.freeze[0] = "*.gate.*", w.freeze[1] = "*.self_attn.*";
        check_golden(&w);
    }
}

int main(void)
{
    RUN(test_golden);
    return test_done("freeze_golden");
}
