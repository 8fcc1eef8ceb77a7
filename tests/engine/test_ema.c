/* Compares the moving average of the weights with an average that the test keeps in float64. Every
 * rank compares the elements that it owns. The trainings use every stage of ZeRO, bf16 with master
 * weights, fused updates, and skipped steps. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"

enum { STEPS = 6, S = 40 };

struct beside { /* arrays of one rank */
    double *ema;
    float *w, *got, *last; /* `last` is the average before the current step */
    int64_t n, n_bad, n_skipped;
    char bad[128]; /* a text about the first wrong element */
};

struct watch {
    struct beside rank[8];
    double decay;
};

/* Reads an array of which this rank owns a part. Sets all elements that this rank does not own to
 * NaN. */
static void read_own(struct train *t, enum sharded_array which, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = NAN;
    struct err e = {0};
    CHECK_MSG(!sharded_read(&t->state, which, 0, n, out, &e), "%s", e.text);
}

static void before(struct train *t, int rank, void *arg)
{
    struct watch *x = arg;
    struct beside *b = &x->rank[rank];
    if (b->ema) return;
    b->n = t->plan->n_params;
    b->ema = malloc((size_t)b->n * sizeof *b->ema);
    b->w = malloc(3 * (size_t)b->n * sizeof *b->w);
    if (!b->ema || !b->w) abort();
    b->got = b->w + b->n, b->last = b->got + b->n;
    read_own(t, SHARDED_WEIGHTS, b->w, b->n);
    read_own(t, SHARDED_EMA, b->got, b->n);
    for (int64_t i = 0; i < b->n; i++) b->ema[i] = b->w[i];
}

static void note(struct beside *b, const struct train *t, int64_t i, double want)
{
    if (!b->n_bad++)
        snprintf(b->bad, sizeof b->bad, "step %lld element %lld: %.9g, want %.9g",
                 (long long)t->step, (long long)i, b->got[i], want);
}

/* Compares the averages after a step. Each update rounds the numbers d ema and (1 - d) w and their
 * sum. Together the three errors are at most 3/2 units in the last place of the largest value so
 * far. The errors of earlier updates are multiplied by d. A skipped step must not change a bit. */
static void after(struct train *t, int rank, void *arg)
{
    struct watch *x = arg;
    struct beside *b = &x->rank[rank];
    int64_t owned = 0;
    memcpy(b->last, b->got, (size_t)b->n * sizeof *b->got);
    read_own(t, SHARDED_WEIGHTS, b->w, b->n);
    read_own(t, SHARDED_EMA, b->got, b->n);
    b->n_skipped += t->verdict == GUARD_SKIP;
    for (int64_t i = 0; i < b->n; i++) {
        if (isnan(b->ema[i])) {
            if (!isnan(b->got[i])) note(b, t, i, b->ema[i]);
            continue;
        }
        owned++;
        if (t->verdict != GUARD_ACCEPT) {
            if (b->got[i] != b->last[i]) note(b, t, i, b->last[i]);
            continue;
        }
        b->ema[i] = x->decay * b->ema[i] + (1 - x->decay) * b->w[i];
        const double bound = 0x1p-24 * 3 / (1 - x->decay) * fmax(fabs(b->ema[i]), fabs(b->w[i]));
        /* d itself is also rounded to fp32 */
        if (!(fabs(b->got[i] - b->ema[i]) <= 2 * bound + 1e-30)) note(b, t, i, b->ema[i]);
    }
    CHECK(owned > 0);
}

struct way {
    int P, dp, zero, precision;
    double max_norm; /* 0 means that updates are fused */
};

/* Steps that a rollback has marked, which are skipped whether or not updates are fused. There are
 * two updates before the first of them, so that the average differs from the weights. */
static const int64_t marked[] = {2, 4};
enum { MARKED = sizeof marked / sizeof *marked };

/* Returns the number of wrong elements on all ranks, added up over all steps. */
static int64_t run(const struct way *w, int mutant, const char **bad)
{
    static struct job_spec spec;
    static struct guard guards[8];
    static struct watch x;
    struct synth y = {.S = S, .doc_len = 17, .vocab = 61};
    int64_t n_bad = 0;
    x = (struct watch){.decay = 0.75};
    engine_spec(&spec, S);
    spec.ema.decay = x.decay;
    spec.parallel.zero = w->zero;
    spec.precision.params = w->precision;
    spec.optim.max_grad_norm = w->max_norm;
    spec.train.global_batch = w->dp;
    for (int i = 0; i < 8; i++) {
        guards[i] = (struct guard){.spec = &spec, .n_marks = MARKED};
        memcpy(guards[i].mark, marked, sizeof marked);
    }
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .steps = STEPS,
                           .guard = guards,
                           .before_step = before,
                           .after_step = after,
                           .arg = &x,
                           .source = {synth_batch, synth_targets, &y}};
    mutant_choose(mutant);
    engine_go(&r, &spec);
    mutant_choose(MUTANT_NONE);
    CHECK(r.plan.fused == (w->max_norm == 0));
    CHECK(r.plan.item[PLAN_EMA].size == r.plan.n_shard * 4);
    for (int i = 0; i < 8; i++) {
        const struct beside *b = &x.rank[i];
        CHECK(!b->ema || b->n_skipped == MARKED);
        if (b->n_bad && !n_bad) *bad = b->bad;
        n_bad += b->n_bad;
        free(b->ema), free(b->w);
    }
    engine_free(&r);
    return n_bad;
}

static const struct way ways[] = {
    {1, 1, 0, PRECISION_FP32, 1}, {2, 1, 1, PRECISION_FP32, 1}, {2, 2, 2, PRECISION_FP32, 1},
    {2, 2, 3, PRECISION_FP32, 1}, {2, 1, 3, PRECISION_BF16, 1}, {2, 2, 1, PRECISION_BF16, 1},
    {2, 2, 3, PRECISION_FP32, 0}, {1, 1, 0, PRECISION_BF16, 0}, {2, 2, 3, PRECISION_FP16, 1},
};
#define EACH_WAY(i) for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)

static void test_average(void)
{
    const char *bad = "";
    EACH_WAY(i) CHECK_MSG(!run(&ways[i], MUTANT_NONE, &bad), "way %zu: %s", i, bad);
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    const char *bad;
    EACH_WAY(i)
    mutant_report(MUTANT_EMA_SKIPPED, run(&ways[i], MUTANT_EMA_SKIPPED, &bad) > 0,
                  "the average after a skipped step");
    verify_blind(MUTANT_EMA_SKIPPED);
}
#endif

/* Checks that without ema.decay the average has no memory. */
static void test_none(void)
{
    struct job_spec spec;
    struct plan p;
    struct err e = {0};
    engine_spec(&spec, S);
    spec.parallel.sp = 1;
    CHECK_MSG(!plan_make(&spec, 0, &p, &e), "%s", e.text);
    CHECK(!p.item[PLAN_EMA].name);
}

int main(void)
{
    RUN(test_average);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_none);
    return test_done("ema");
}
