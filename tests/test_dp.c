/* Rings side by side and ZeRO: any dp x sp x stage trains what one rank trains, sends what the formula
 * says and holds what the plan says. */
#include "tests/engine.h"

static struct job_spec spec; /* 75 KiB: off the stack */

enum { STEPS = 5 };

struct way {
    int dp, sp, zero, tied, accumulation, determinism, recompute;
    double max_norm;
};

static struct engine_run go(const struct way *w, struct synth *y)
{
    engine_spec(&spec, y->S);
    spec.model.shape.tied = w->tied;
    spec.train.global_batch = w->accumulation;
    spec.parallel.zero = w->zero;
    spec.determinism = w->determinism;
    spec.memory.recompute = w->recompute;
    spec.optim.max_grad_norm = w->max_norm;
    struct engine_run r = {
        .P = w->sp, .dp = w->dp, .steps = STEPS, .source = {synth_batch, synth_targets, y}};
    engine_go(&r, &spec);
    return r;
}

static void test_dp_equals_one(void)
{
    struct synth y = {.S = 50, .doc_len = 17, .vocab = 61};
    for (int i = 0; i < 8; i++) {
        struct way w = {.dp = 1, .sp = 1, .accumulation = i & 1 ? 4 : 2, .tied = i >> 1 & 1, .determinism = DET_RUN, .max_norm = i & 4 ? 0 : 1};
        struct engine_run one = go(&w, &y);
        for (w.dp = 1; w.dp <= 2; w.dp++)
            for (w.sp = 1; w.sp <= 3; w.sp++)
                for (w.zero = 0; w.zero <= 3; w.zero++) {
                    struct engine_run r = go(&w, &y);
                    for (int k = 0; k < STEPS; k++)
                        CHECK_MSG(fabs(r.loss[k] - one.loss[k]) <= 1e-5,
                                  "dp %d sp %d zero %d step %d: %.9g %.9g", w.dp, w.sp, w.zero, k,
                                  r.loss[k], one.loss[k]);
                    const double d = rel_l2(r.weights, one.weights, one.plan.n_params);
                    CHECK_MSG(d < 1e-4, "dp %d sp %d zero %d tied %d acc %d norm %g: %.3g", w.dp, w.sp, w.zero, w.tied, w.accumulation, w.max_norm, d);
                    engine_free(&r);
                }
        engine_free(&one);
    }
}

int main(void)
{
    RUN(test_dp_equals_one);
    return test_done("dp");
}
