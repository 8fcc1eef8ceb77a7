/* The moving average of the weights against one kept in float64 beside the training, by every rank
 * of what it owns: every ZeRO stage, bf16 with its master weights, fused updates, skipped steps. */
#include "tests/engine.h"
#include "tests/test.h"

enum { STEPS = 6, S = 40 };

struct beside { /* of one rank */
    double *ema;
    float *w;
    int64_t n;
};

struct watch {
    struct beside rank[8];
    double decay;
};

/* NaN marks what a rank does not own. */
static void read_own(struct train *t, enum holding_array which, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = NAN;
    struct err e = {0};
    CHECK_MSG(!holding_read(&t->hold, which, 0, n, out, &e), "%s", e.text);
}

static void before(struct train *t, int rank, void *arg)
{
    struct beside *b = &((struct watch *)arg)->rank[rank];
    if (b->ema) return;
    b->n = t->plan->n_params;
    b->ema = malloc((size_t)b->n * sizeof *b->ema);
    b->w = malloc((size_t)b->n * sizeof *b->w);
    if (!b->ema || !b->w) abort();
    read_own(t, HOLD_WEIGHTS, b->w, b->n);
    for (int64_t i = 0; i < b->n; i++) b->ema[i] = b->w[i];
}

/* Each update rounds d ema, (1 - d) w and their sum: at most 3 half units of the largest value seen,
 * and errors of earlier updates shrink by d. */
static void after(struct train *t, int rank, void *arg)
{
    const struct watch *x = arg;
    const struct beside *b = &x->rank[rank];
    int64_t owned = 0;
    float *got = malloc((size_t)b->n * sizeof *got);
    if (!got) abort();
    read_own(t, HOLD_WEIGHTS, b->w, b->n);
    read_own(t, HOLD_EMA, got, b->n);
    for (int64_t i = 0; i < b->n; i++) {
        if (isnan(b->ema[i])) {
            CHECK(isnan(got[i]));
            continue;
        }
        owned++;
        if (t->verdict == GUARD_ACCEPT) b->ema[i] = x->decay * b->ema[i] + (1 - x->decay) * b->w[i];
        const double bound = 0x1p-24 * 3 / (1 - x->decay) * fmax(fabs(b->ema[i]), fabs(b->w[i]));
        /* and d itself is rounded to fp32 */
        CHECK_MSG(fabs(got[i] - b->ema[i]) <= 2 * bound + 1e-30,
                  "rank %d step %lld element %lld: %.9g, want %.9g", rank, (long long)t->step,
                  (long long)i, got[i], b->ema[i]);
    }
    CHECK(owned > 0);
    free(got);
}

struct way {
    int P, dp, zero, precision;
    double max_norm; /* 0: fused */
};

static void run(const struct way *w)
{
    struct job_spec spec;
    struct synth y = {.S = S, .doc_len = 17, .vocab = 61};
    struct watch x = {.decay = 0.75};
    engine_spec(&spec, S);
    spec.ema.decay = x.decay;
    spec.parallel.zero = w->zero;
    spec.precision.params = w->precision;
    spec.optim.max_grad_norm = w->max_norm;
    spec.train.global_batch = w->dp;
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .steps = STEPS,
                           .before_step = before,
                           .after_step = after,
                           .arg = &x,
                           .source = {synth_batch, synth_targets, &y}};
    engine_go(&r, &spec);
    CHECK(r.plan.fused == (w->max_norm == 0));
    CHECK(r.plan.item[PLAN_EMA].size == r.plan.n_shard * 4);
    for (int i = 0; i < 8; i++) free(x.rank[i].ema), free(x.rank[i].w);
    engine_free(&r);
}

static void test_average(void)
{
    static const struct way ways[] = {
        {1, 1, 0, PRECISION_FP32, 1}, {2, 1, 1, PRECISION_FP32, 1}, {2, 2, 2, PRECISION_FP32, 1},
        {2, 2, 3, PRECISION_FP32, 1}, {2, 1, 3, PRECISION_BF16, 1}, {2, 2, 1, PRECISION_BF16, 1},
        {2, 2, 3, PRECISION_FP32, 0}, {1, 1, 0, PRECISION_BF16, 0}, {2, 2, 3, PRECISION_FP16, 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) run(&ways[i]);
}

/* Without ema.decay nothing is held. */
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
    RUN(test_none);
    return test_done("ema");
}
