/* Checks the loss scale of fp16, and when it changes. A step that overflows must change only the
 * scale. The scale must not change the gradient. The bits must not depend on the number of
 * ranks. */
#include <math.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/train/scale.h"

static struct job_spec spec;

static void set_precision(enum precision_id p)
{
    engine_spec(&spec, 120);
    spec.precision.params = (int32_t)p;
}

/* ---- the rules of the scale ------------------------------------------------------------------ */

/* Checks the sixteen halvings from 2^16 to 1. At a scale of 1, the guard decides about the
 * step. */
static void test_down_to_one(void)
{
    struct scale_state s = {0};
    set_precision(PRECISION_FP16);
    CHECK(scale_of(&spec, &s) == 65536);
    for (int i = 1; i <= 16; i++) {
        CHECK(scale_overflows(&spec, &s, 2, i % 2 ? INFINITY : NAN));
        CHECK(scale_of(&spec, &s) == ldexp(1, 16 - i) && s.overflows == i && s.streak == i);
    }
    CHECK(!scale_overflows(&spec, &s, 2, INFINITY) && scale_of(&spec, &s) == 1);
    CHECK(s.overflows == 16);
    scale_updated(&spec, &s);
    CHECK(s.streak == 0 && s.good == 1 && s.overflows == 16);
}

static void test_not_its_fault(void)
{
    struct scale_state s = {0};
    set_precision(PRECISION_FP16);
    CHECK(!scale_overflows(&spec, &s, 2, 3) && !scale_overflows(&spec, &s, NAN, NAN));
    CHECK(!scale_overflows(&spec, &s, INFINITY, INFINITY) && scale_of(&spec, &s) == 65536);
    s.up = SCALE_MOST - SCALE_FIRST;
    for (int i = 0; i < SCALE_STREAK; i++) CHECK(scale_overflows(&spec, &s, 2, NAN));
    CHECK(!scale_overflows(&spec, &s, 2, NAN) && scale_of(&spec, &s) == 16);
}

/* Checks that the scale is doubled after 2000 updates without an overflow, and that an overflow
 * sets the count of updates to 0. */
static void test_up_again(void)
{
    struct scale_state s = {0};
    set_precision(PRECISION_FP16);
    for (int i = 0; i < 1999; i++) scale_updated(&spec, &s);
    CHECK(scale_of(&spec, &s) == 65536 && s.good == 1999);
    CHECK(scale_overflows(&spec, &s, 1, INFINITY));
    for (int i = 0; i < 1999; i++) scale_updated(&spec, &s);
    CHECK(scale_of(&spec, &s) == 32768);
    scale_updated(&spec, &s);
    CHECK(scale_of(&spec, &s) == 65536 && s.good == 0);
    for (int i = 0; i < 10 * 2000; i++) scale_updated(&spec, &s);
    CHECK(scale_of(&spec, &s) == 1 << 24);
}

static void test_other_precisions(void)
{
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        struct scale_state s = {0};
        set_precision(p);
        CHECK(!scale_overflows(&spec, &s, 2, INFINITY) && scale_of(&spec, &s) == 1);
        for (int i = 0; i < 3000; i++) scale_updated(&spec, &s);
        CHECK(scale_of(&spec, &s) == 1 && scale_fixed(&spec, 1000) == 1 && s.overflows == 0);
    }
    set_precision(PRECISION_FP16);
    static const int64_t targets[] = {0, 1, 2, 3, 1000, 1 << 20, (int64_t)1 << 40};
    static const double want[] = {16, 16, 32, 32, 8192, 1 << 24, 1 << 24};
    for (int i = 0; i < 7; i++) CHECK(scale_fixed(&spec, targets[i]) == want[i]);
}

/* ---- in a training --------------------------------------------------------------------------- */

enum { MOST = 1 << 20 };
static float before[JOB_MAX_RANKS][3][MOST]; /* weights, m and v after the steps that overflowed */
static struct scale_state ends[JOB_MAX_RANKS];

/* Lets the first step begin at the largest possible scale. Even the gradient of the logits exceeds
 * the range of fp16, because it is 2^24 / 120 times a value below 1. */
static void begin_high(struct train *t, int rank, void *arg)
{
    (void)rank, (void)arg;
    if (t->step == 0) t->scale.up = SCALE_MOST - SCALE_FIRST;
}

static void look(struct train *t, int rank, void *arg)
{
    const int64_t n = t->plan->n_params;
    float *const at[] = {before[rank][0], before[rank][1], before[rank][2]};
    struct err e = {0};
    (void)arg;
    ends[rank] = t->scale;
    if (!t->overflowed) return;
    CHECK(n <= MOST && t->verdict == GUARD_SKIP && t->scale.overflows == t->step);
    CHECK(t->scale_was == 2 * scale_of(t->spec, &t->scale));
    for (int which = SHARDED_WEIGHTS; which <= SHARDED_V; which++)
        CHECK(!sharded_read(&t->state, which, 0, n, at[which], &e));
}

static struct engine_run run(struct synth *y, int P, int64_t steps, const float *w, bool high)
{
    static struct job_spec own;
    own = spec;
    struct engine_run r = {.P = P, .steps = steps, .initial = w, .after_step = look};
    if (high) r.before_step = begin_high;
    r.source = (struct train_source){synth_batch, synth_targets, y};
    engine_go(&r, &own);
    return r;
}

/* Checks that steps that overflow change neither weights nor moments, and that Adam does not count
 * them. Adam's first update then changes every weight that has a gradient by exactly lr. In that
 * update, m / (1 - b1) is the gradient, and the root of v / (1 - b2) is its absolute value. */
static void test_overflow(void)
{
    struct synth y = {.S = 120, .doc_len = 50, .vocab = 61};
    set_precision(PRECISION_FP16);
    spec.optim.lr = 1e-3;
    spec.optim.weight_decay = 0;
    spec.optim.max_grad_norm = 0;
    spec.schedule.type = SCHEDULE_CONSTANT;
    struct engine_run r = run(&y, 1, 12, NULL, true);
    const int64_t n = r.plan.n_params, k = ends[0].overflows;
    CHECK_MSG(k >= 2 && k < 11 && ends[0].up == SCALE_MOST - SCALE_FIRST - k, "%lld overflows",
              (long long)k);
    for (int64_t i = 0; i < k; i++) CHECK(isfinite(r.loss[i]) && !isfinite(r.norm[i]));
    for (int64_t i = 0; i < k; i++) CHECK(r.loss[i] > 0 && isfinite(r.norm[k]));
    engine_free(&r);
    r = run(&y, 1, k + 1, NULL, true); /* runs as far as the first update */
    struct engine_run none = run(&y, 1, 1, NULL, false);
    double most = 0;
    int64_t moved = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)r.weights[i] - before[0][0][i]);
        most = fmax(most, d);
        CHECK(before[0][1][i] == 0 && before[0][2][i] == 0);
        moved += d > 0.99e-3;
    }
    CHECK_MSG(most <= 1.001e-3 && moved > n / 2, "%g, %lld of %lld", most, (long long)moved,
              (long long)n);
    CHECK_MSG(fabs(none.norm[0] / r.norm[k] - 1) < 0.5, "%g %g", none.norm[0], r.norm[k]);
    engine_free(&r), engine_free(&none);
}

/* Checks that gradients are divided by the scale again. For every scale, the norm and the gradient
 * must be the same as in fp32, except for rounding errors. */
static void test_taken_off(void)
{
    struct synth y = {.S = 120, .doc_len = 50, .vocab = 61};
    set_precision(PRECISION_FP32);
    struct engine_run one = run(&y, 1, 1, NULL, false);
    set_precision(PRECISION_FP16);
    struct engine_run half = run(&y, 1, 1, NULL, false);
    CHECK(half.scale == 65536);
    CHECK_MSG(fabs(half.norm[0] / one.norm[0] - 1) < 1e-3, "%g, not %g", half.norm[0], one.norm[0]);
    CHECK(rel_l2(half.grad, one.grad, one.plan.n_params) < 1e-2);
    CHECK(rel_l2(half.adam_m, one.adam_m, one.plan.n_params) < 1e-2);
    CHECK(rel_l2(half.adam_v, one.adam_v, one.plan.n_params) < 2e-2);
    engine_free(&one), engine_free(&half);
}

/* Checks that all ranks make the same decisions. Under determinism "ranks" the overflows, the
 * scale and the bits must be the same as on one rank. */
static void test_ranks(void)
{
    struct synth y = {.S = 120, .doc_len = 50, .vocab = 61};
    set_precision(PRECISION_FP16);
    spec.determinism = DET_RANKS;
    spec.train.global_batch = 2;
    struct engine_run one = run(&y, 1, 12, NULL, true);
    const struct scale_state want = ends[0];
    for (int P = 2; P <= 4; P *= 2)
        for (int zero = 0; zero <= 3; zero += 3) {
            spec.parallel.zero = zero;
            struct engine_run r = run(&y, P, 12, NULL, true);
            const size_t size = (size_t)one.plan.n_params * 4;
            CHECK(!memcmp(one.weights, r.weights, size) && !memcmp(one.adam_v, r.adam_v, size));
            CHECK(!memcmp(one.loss, r.loss, sizeof r.loss[0] * 12));
            for (int i = 0; i < P; i++) CHECK(!memcmp(&ends[i], &want, sizeof want));
            engine_free(&r);
        }
    CHECK(want.overflows >= 2 && want.good > 0);
    engine_free(&one);
}

int main(void)
{
    RUN(test_down_to_one);
    RUN(test_not_its_fault);
    RUN(test_up_again);
    RUN(test_other_precisions);
    RUN(test_overflow);
    RUN(test_taken_off);
    RUN(test_ranks);
    return test_done("scale");
}
