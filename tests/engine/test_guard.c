/* Checks how the guard decides whether a step changes the weights. The guard's statistics are
 * compared with plain sums over all values. Also runs trainings with a bad step in the middle. */
#include <float.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/shapes.h"
#include "worker/family/shape.h"
#include "worker/plan/update.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */
static struct guard guards[4];

static void fresh(struct guard *g)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    *g = (struct guard){.spec = &spec};
}

/* Returns a value of 3 +- 1 that varies without a pattern. */
static double value(int64_t i)
{
    return 2 + 2 * (double)(synth_hash((uint64_t)i * 77 + 5) >> 8) / (1 << 24);
}

static void feed(struct guard *g, int64_t from, int64_t to)
{
    for (int64_t k = from; k < to; k++)
        CHECK(guard_judge(g, k, value(k), value(k + 1000)) == GUARD_ACCEPT);
}

/* ---- the windows ----------------------------------------------------------------------------- */

/* Checks the statistics of the first GUARD_WINDOW values, which are the mean and the variance of
 * all values so far. The test computes the expected values in two passes. */
static void test_welford(void)
{
    struct guard *g = &guards[0];
    fresh(g);
    for (int64_t n = 1; n <= GUARD_WINDOW; n++) {
        double mean = 0, var = 0;
        feed(g, n - 1, n);
        for (int64_t i = 0; i < n; i++) mean += value(i) / (double)n;
        for (int64_t i = 0; i < n; i++) var += pow(value(i) - mean, 2) / (double)n;
        /* Each of the two sums has n additions of values below 4. */
        const double allowed = 8 * (double)n * DBL_EPSILON;
        CHECK_MSG(fabs(g->state.loss.mean - mean) <= allowed, "%d: mean off by %.3g", (int)n,
                  g->state.loss.mean - mean);
        CHECK_MSG(fabs(g->state.loss.var - var) <= 4 * allowed, "%d: variance off by %.3g", (int)n,
                  g->state.loss.var - var);
    }
    CHECK(g->state.norm.n == GUARD_WINDOW && g->state.norm.mean != g->state.loss.mean);
}

/* Checks the statistics after the first GUARD_WINDOW values. Value i of n then has the weight (1 -
 * w)^(n-1-i) w, and the first GUARD_WINDOW values share the remaining weight equally. */
static void test_window_forgets(void)
{
    struct guard *g = &guards[0];
    const double w = 1.0 / GUARD_WINDOW;
    const int64_t n = 5 * GUARD_WINDOW;
    double mean = 0, square = 0, left = 1;
    fresh(g);
    feed(g, 0, n);
    for (int64_t i = n - 1; i >= GUARD_WINDOW; i--, left *= 1 - w) {
        mean += left * w * value(i);
        square += left * w * value(i) * value(i);
    }
    for (int64_t i = 0; i < GUARD_WINDOW; i++) {
        mean += left * w * value(i);
        square += left * w * value(i) * value(i);
    }
    CHECK_MSG(fabs(g->state.loss.mean - mean) <= 1e-12, "mean %.17g, %.17g", g->state.loss.mean,
              mean);
    CHECK_MSG(fabs(g->state.loss.var - (square - mean * mean)) <= 1e-12, "variance %.17g, %.17g",
              g->state.loss.var, square - mean * mean);
}

/* ---- outliers -------------------------------------------------------------------------------- */

static void test_outliers(void)
{
    struct guard *g = &guards[0];
    fresh(g);
    CHECK(guard_judge(g, 0, 1e30, 1e30) == GUARD_ACCEPT); /* no limit is set */
    fresh(g);
    spec.guard.loss_z = 4;
    spec.guard.grad_norm_z = 6;
    feed(g, 0, GUARD_MIN - 1);
    const struct guard_state few = g->state;
    /* there are too few values to decide */
    CHECK(guard_judge(g, GUARD_MIN - 1, 1e3, 3) == GUARD_ACCEPT);
    g->state = few;
    feed(g, GUARD_MIN - 1, GUARD_MIN + 10);
    const struct guard_window w = g->state.loss, v = g->state.norm;
    const double edge = w.mean + 4 * sqrt(w.var), over = edge * (1 + 1e-9);
    CHECK(guard_z(&w, w.mean) == 0 && guard_z(&w, w.mean - 100) == 0);
    CHECK(guard_judge(g, 26, over, 3) == GUARD_SKIP && g->reason == GUARD_LOSS);
    CHECK(fabs(g->z - 4) < 1e-6);
    /* a skipped loss does not enter the statistics */
    CHECK(!memcmp(&g->state.loss, &w, sizeof w));
    CHECK(guard_judge(g, 27, 3, v.mean + 7 * sqrt(v.var)) == GUARD_SKIP && g->reason == GUARD_NORM);
    CHECK(g->state.skipped == 2 && g->state.streak == 2);
    /* a loss that is much lower is not an outlier */
    CHECK(guard_judge(g, 28, w.mean - 1e3, 0) == GUARD_ACCEPT);
    CHECK(g->state.skipped == 2 && g->state.streak == 0);
}

/* Checks losses that rise to a higher level and remain there. The statistics must adapt to this
 * level, so that steps are not skipped forever. */
static void test_new_level(void)
{
    struct guard *g = &guards[0];
    fresh(g);
    spec.guard.loss_z = 4;
    feed(g, 0, 50);
    int64_t k = 50;
    while (guard_judge(g, k, 1000 + value(k), 3) == GUARD_SKIP && k < 500) k++;
    CHECK_MSG(k == 50 + GUARD_STREAK, "accepted at step %d", (int)k);
    for (k++; k < 120; k++) CHECK(guard_judge(g, k, 1000 + value(k), 3) == GUARD_ACCEPT);
}

/* Checks that a stage of the training with a different sequence length begins with new statistics,
 * because its losses differ. */
static void test_stage_starts_anew(void)
{
    struct guard *g = &guards[0];
    fresh(g);
    spec.guard.loss_z = 4;
    spec.n_stages = 1;
    spec.stages[0] = (struct spec_stage){.from_step = 40, .seq_len = 128};
    feed(g, 0, 40);
    CHECK(guard_judge(g, 40, 50, 3) == GUARD_ACCEPT && g->state.loss.n == 1);
}

/* ---- NaN and infinity ------------------------------------------------------------------------ */

static void test_policies(void)
{
    struct guard *g = &guards[0];
    fresh(g);
    spec.guard.nonfinite = NONFINITE_FAIL;
    CHECK(guard_judge(g, 3, NAN, 1) == GUARD_FAIL && guard_judge(g, 3, 1, INFINITY) == GUARD_FAIL);
    spec.guard.nonfinite = NONFINITE_SKIP;
    for (int k = 0; k < GUARD_STREAK; k++) CHECK(guard_judge(g, 3 + k, NAN, 1) == GUARD_SKIP);
    /* after GUARD_STREAK bad steps in succession, the guard gives up */
    CHECK(guard_judge(g, 3 + GUARD_STREAK, NAN, 1) == GUARD_FAIL);
    fresh(g);
    spec.guard.rollbacks = 2;
    CHECK(guard_judge(g, 7, NAN, 1) == GUARD_ROLLBACK && g->state.rollbacks == 1);
    CHECK(guard_judge(g, 7, NAN, 1) == GUARD_SKIP && g->reason == GUARD_MARKED);
    /* a marked step is skipped, whatever its values are */
    CHECK(guard_judge(g, 7, 1, 1) == GUARD_SKIP);
    CHECK(guard_judge(g, 8, 1, INFINITY) == GUARD_ROLLBACK);
    CHECK(guard_judge(g, 9, NAN, 1) == GUARD_FAIL);
    fresh(g);
    CHECK(!spec_intern(&spec, "dir", 3, &spec.model.path));
    CHECK(guard_judge(g, 0, NAN, 1) == GUARD_FAIL); /* the weights were NaN from the beginning */
    CHECK(guard_judge(g, 1, NAN, 1) == GUARD_ROLLBACK);
    fresh(g);
    CHECK(!spec_intern(&spec, "dir", 3, &spec.model.path));
    spec.model.init = MODEL_INIT_RANDOM;
    CHECK(guard_judge(g, 0, NAN, 1) == GUARD_ROLLBACK); /* the weights came from no directory */
}

static void test_sentences(void)
{
    struct guard *g = &guards[0];
    char text[256];
    fresh(g);
    spec.guard.loss_z = 4;
    feed(g, 0, 40);
    guard_judge(g, 40, 500, 3);
    guard_sentence(g, 40, 500, 3, text, sizeof text);
    CHECK_MSG(strstr(text, "step 41: loss 500 lies "), "%s", text);
    guard_judge(g, 41, -NAN, 3);
    guard_sentence(g, 41, -NAN, 3, text, sizeof text);
    CHECK_STR(text, "step 42: loss nan, gradient norm 3: no update");
}

/* ---- guard.json ------------------------------------------------------------------------------ */

static void test_record(void)
{
    char dir[] = "/tmp/test_guard.XXXXXX", path[64];
    struct err e = {0};
    struct guard *g = &guards[0], *h = &guards[1];
    if (!mkdtemp(dir)) abort();
    fresh(g);
    fresh(h);
    CHECK(guard_load(g, dir, &e) == 0 && g->n_marks == 0); /* there is no record yet */
    spec.guard.rollbacks = 1000;
    for (int64_t k = 0; k < 1000; k++) CHECK(guard_judge(g, k << 40, NAN, 1) == GUARD_ROLLBACK);
    CHECK_MSG(guard_save(g, dir, &e) == 0, "%s", e.text);
    /* the mark is already known, so it is not added twice */
    h->mark[h->n_marks++] = (int64_t)5 << 40;
    CHECK_MSG(guard_load(h, dir, &e) == 0, "%s", e.text);
    CHECK(h->state.rollbacks == 1000 && h->n_marks == 1000);
    CHECK(guard_judge(h, (int64_t)999 << 40, 1, 1) == GUARD_SKIP);
    snprintf(path, sizeof path, "%s/guard.json", dir);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{\"version\":2,\"rollbacks\":1,\"marks\":[]}",
                                      "{\"version\":1,\"rollbacks\":-1,\"marks\":[]}",
                                      "{\"version\":1,\"marks\":[]}",
                                      "{\"version\":1,\"rollbacks\":1,\"marks\":[-1]}",
                                      "{\"version\":1,\"rollbacks\":1,\"marks\":[1}",
                                      "{\"version\":1,\"rollbacks\":1,\"marks\":[\"1\"]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct guard *b = &guards[2];
        fresh(b);
        CHECK(file_write(path, bad[i], strlen(bad[i]), &e) == 0);
        CHECK_MSG(guard_load(b, dir, &e) == -1 && e.code == ERR_CORRUPT, "%s", bad[i]);
        CHECK_MSG(strstr(e.text, "guard.json"), "%s", e.text);
    }
    CHECK(file_remove(dir, NULL) == 0);
}

/* ---- in a training --------------------------------------------------------------------------- */

enum { BAD = 5, STEPS = 12 }; /* BAD is the number of the bad step, counted from 0 */

/* Makes the weights NaN during one step, on every rank. */
static float kept[4];

static void poison(struct train *t, int rank, void *arg)
{
    float *w = t->model.params;
    kept[rank] = w[3];
    if (t->step == BAD) w[3] = NAN;
}

static void heal(struct train *t, int rank, void *arg)
{
    float *w = t->model.params;
    if (t->step == BAD + 1) w[3] = kept[rank];
    CHECK((t->verdict == GUARD_SKIP) == (t->step == BAD + 1));
}

static struct engine_run skipping(struct synth *y, int P, int64_t first, int64_t n,
                                  const struct engine_run *from, int64_t skipped)
{
    engine_spec(&spec, y->S);
    spec.train.global_batch = 2;
    spec.guard.nonfinite = NONFINITE_SKIP;
    for (int r = 0; r < 4; r++) guards[r] = (struct guard){.spec = &spec, .state.skipped = skipped};
    struct engine_run r = {.P = P,
                           .steps = n,
                           .first_step = first,
                           .guard = guards,
                           .source = {synth_batch, synth_targets, y}};
    if (first <= BAD && BAD < first + n) r.before_step = poison, r.after_step = heal;
    if (from) r.initial = from->weights, r.m = from->adam_m, r.v = from->adam_v;
    engine_go(&r, &spec);
    return r;
}

/* Checks that a skipped step leaves weights, moments and Adam's count unchanged, on every rank. */
static void test_skip_is_no_update(void)
{
    struct synth y = {.S = 60, .doc_len = 25, .vocab = 61};
    for (int P = 1; P <= 3; P++) {
        struct engine_run whole = skipping(&y, P, 0, STEPS, NULL, 0);
        CHECK(guards[0].state.skipped == 1 && guards[P - 1].state.skipped == 1);
        CHECK(isnan(whole.loss[BAD]) && isfinite(whole.loss[BAD + 1]));
        struct engine_run before = skipping(&y, P, 0, BAD, NULL, 0);
        struct engine_run after = skipping(&y, P, BAD + 1, STEPS - BAD - 1, &before, 1);
        const size_t size = (size_t)whole.plan.n_params * 4;
        CHECK(whole.weights && after.weights && !memcmp(whole.weights, after.weights, size));
        CHECK(!memcmp(whole.adam_v, after.adam_v, size));
        CHECK(!memcmp(whole.loss + BAD + 1, after.loss, (STEPS - BAD - 1) * sizeof(double)));
        /* If Adam's count had been increased, the weights would differ. */
        struct engine_run counted = skipping(&y, P, BAD + 1, STEPS - BAD - 1, &before, 0);
        CHECK(memcmp(whole.weights, counted.weights, size));
        engine_free(&whole), engine_free(&before), engine_free(&after), engine_free(&counted);
    }
}

/* ---- which fields make updates wait ---------------------------------------------------------- */

/* Checks that every field of the guard has a row in the test's table, which tells when the field
 * may skip a step whose gradient is known. */
static void test_every_field_is_ruled(void)
{
    int n = 0;
    for (const struct field *f = spec_fields; f->path; f++) {
        const bool is_guard = !strncmp(f->path, "guard.", 6);
        CHECK_MSG(is_guard == (f->waits != 0),
                  "%s: .waits is for fields of the guard, and for each", f->path);
        CHECK_MSG(f->type == FIELD_ENUM || !(f->waits & (FIELD_WAITS_IF_SET - 1)), "%s: no words",
                  f->path);
        n += is_guard;
    }
    CHECK(n >= 4);
}

/* Tells whether the guard skips any step after the step's loss and norm are known. */
static bool skips(struct guard *g)
{
    static const double bad[][2] = {{1e9, 3}, {3, 1e9}, {NAN, 3}, {3, INFINITY}};
    bool any = false;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        *g = (struct guard){.spec = &spec};
        feed(g, 0, GUARD_MIN + 4);
        any |= guard_judge(g, GUARD_MIN + 4, bad[i][0], bad[i][1]) == GUARD_SKIP;
    }
    return any;
}

/* Checks which updates wait for the guard's verdict. An update that a verdict can skip must wait.
 * Plans must fuse all other updates with the backward pass. */
static void test_updates_wait_for_verdicts(void)
{
    static struct plan plan;
    struct err e = {0};
    for (int i = 0; i < 2 * 2 * 3 * 2 * 2; i++) {
        fresh(&guards[0]);
        spec.kind = JOB_TRAIN;
        spec.model.shape = shape_of(FAMILY_LLAMA);
        spec.data.seq_len = 16;
        spec.train.global_batch = 1;
        spec.resources.threads = spec.parallel.sp = 1;
        spec.guard.rollbacks = 2;
        spec.guard.loss_z = i & 1 ? 4 : 0;
        spec.guard.grad_norm_z = i & 2 ? 4 : 0;
        spec.optim.max_grad_norm = i & 4 ? 1 : 0;
        spec.precision.params = i & 8 ? PRECISION_FP16 : PRECISION_FP32;
        spec.guard.nonfinite = i / 16;
        const bool waits = skips(&guards[0]) || i & 12;
        CHECK_MSG(update_waits(&spec) == waits, "%d: nonfinite %d, loss_z %g, grad_norm_z %g", i,
                  spec.guard.nonfinite, spec.guard.loss_z, spec.guard.grad_norm_z);
        CHECK_MSG(!plan_make(&spec, 0, &plan, &e), "%s: %s", e.field, e.text);
        CHECK_MSG(plan.fused == !waits, "%d: fused %d", i, plan.fused);
    }
}

int main(void)
{
    RUN(test_welford);
    RUN(test_window_forgets);
    RUN(test_outliers);
    RUN(test_new_level);
    RUN(test_stage_starts_anew);
    RUN(test_policies);
    RUN(test_sentences);
    RUN(test_record);
    RUN(test_skip_is_no_update);
    RUN(test_every_field_is_ruled);
    RUN(test_updates_wait_for_verdicts);
    return test_done("guard");
}
