/* Compares learning rates with independent formulas, and checks the arithmetic of stages. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/train/schedule.h"
#include "worker/plan/stage.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

/* `got` and `want` are computed by a few operations in double. Their rounding errors together are
 * at most 8 roundings of a number as large as the peak. */
#define NEAR(got, want)                                                                            \
    CHECK_MSG(fabs((got) - (want)) <= 8 * DBL_EPSILON * 2, "%.17g, want %.17g", got, want)

/* Sets a schedule of 100 steps, with 10 of warmup and a peak of 2, which ends at a quarter of the
 * peak. */
static void fresh(int type)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.train.steps = 100;
    spec.train.global_batch = 1;
    spec.data.seq_len = 64;
    spec.optim.lr = 2;
    spec.schedule.type = type;
    spec.schedule.warmup_steps = 10;
    spec.schedule.min_lr_ratio = 0.25;
    spec.schedule.decay_fraction = 0.2;
}

static void test_warmup(void)
{
    for (int type = 0; type < SCHEDULE_N; type++) {
        fresh(type);
        NEAR(schedule_lr(&spec, 0), 0.2);
        NEAR(schedule_lr(&spec, 4), 1.0);
        CHECK(schedule_lr(&spec, 9) == 2); /* the last step of warmup has the peak */
        CHECK(schedule_lr(&spec, 10) == 2);
        spec.schedule.warmup_steps = 0;
        CHECK(schedule_lr(&spec, 0) == 2);
        spec.schedule.warmup_steps = 100; /* the warmup has as many steps as the run */
        CHECK(schedule_lr(&spec, 99) == 2);
    }
}

static void test_cosine(void)
{
    fresh(SCHEDULE_COSINE);
    /* halfway through the decay, so the rate is the mean of 2 and 0.5 */
    NEAR(schedule_lr(&spec, 55), 1.25);
    /* a third of the decay, where the cosine of the schedule is cos(60 degrees) = 0.5 */
    NEAR(schedule_lr(&spec, 40), 0.5 + 0.75 * (1 + 0.5));
    NEAR(schedule_lr(&spec, 99), 0.5 + 1.5 * pow(sin(M_PI / 2 / 90), 2)); /* half-angle */
    CHECK(schedule_lr(&spec, 100) == 0.5 && schedule_lr(&spec, 100000) == 0.5);
}

static void test_linear(void)
{
    fresh(SCHEDULE_LINEAR);
    NEAR(schedule_lr(&spec, 11), 2 - 1.5 / 90);
    NEAR(schedule_lr(&spec, 55), 1.25);
    NEAR(schedule_lr(&spec, 99), 0.5 + 1.5 / 90);
    CHECK(schedule_lr(&spec, 100) == 0.5);
}

static void test_constant(void)
{
    fresh(SCHEDULE_CONSTANT);
    CHECK(schedule_lr(&spec, 50) == 2 && schedule_lr(&spec, 99) == 2);
}

/* Checks the decay in steps 80 to 99. At step 80 the rate has not decreased yet. */
static void test_wsd(void)
{
    static const struct {
        int shape;
        double quarter, half, last; /* at 85, 90 and 99 */
    } rows[] = {
        {DECAY_LINEAR, 0.5 + 1.5 * 0.75, 1.25, 0.5 + 1.5 / 20},
        {DECAY_ONE_MINUS_SQRT, 0.5 + 1.5 * 0.5, 0.5 + 1.5 * (1 - M_SQRT1_2),
         2 - 1.5 * 0.97467943448089639}, /* root of 19/20 */
        {DECAY_COSINE, 0.5 + 0.75 * (1 + M_SQRT1_2), 1.25,
         0.5 + 1.5 * 0.0061558297024311},                            /* (1 - cos 9 degrees) / 2 */
        {DECAY_EXPONENTIAL, M_SQRT2, 1.0, 2 * 0.26794336563407328}}; /* 4^(-1/4, -1/2, -19/20) */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fresh(SCHEDULE_WSD);
        spec.schedule.decay_shape = rows[i].shape;
        CHECK(schedule_lr(&spec, 79) == 2 && schedule_lr(&spec, 80) == 2);
        NEAR(schedule_lr(&spec, 85), rows[i].quarter);
        NEAR(schedule_lr(&spec, 90), rows[i].half);
        NEAR(schedule_lr(&spec, 99), rows[i].last);
        NEAR(schedule_lr(&spec, 100), 0.5);
        for (int64_t k = 80; k < 99; k++)
            CHECK_MSG(schedule_lr(&spec, k + 1) < schedule_lr(&spec, k), "step %d", (int)k);
        spec.schedule.decay_fraction = 0; /* never decays */
        CHECK(schedule_lr(&spec, 99) == 2);
        spec.schedule.decay_fraction = 1; /* decays from the end of the warmup on */
        CHECK(schedule_lr(&spec, 10) == 2 && schedule_lr(&spec, 11) < 2);
        spec.schedule.min_lr_ratio = 1; /* the rate decays to the value that it already has */
        CHECK(schedule_lr(&spec, 95) == 2);
    }
}

/* Checks rounding. A decay_fraction of 0.1 of 25 steps is 2.5 steps. It is rounded to three steps,
 * and the decay begins at step 22. */
static void test_wsd_rounds(void)
{
    fresh(SCHEDULE_WSD);
    spec.train.steps = 25;
    spec.schedule.decay_fraction = 0.1;
    spec.schedule.decay_shape = DECAY_LINEAR;
    CHECK(schedule_lr(&spec, 22) == 2);
    NEAR(schedule_lr(&spec, 23), 1.5);
    NEAR(schedule_lr(&spec, 24), 1.0);
}

static void test_peak_of_a_stage(void)
{
    fresh(SCHEDULE_LINEAR);
    spec.n_stages = 2;
    spec.stages[0] = (struct spec_stage){.from_step = 55, .lr = 1};
    spec.stages[1] = (struct spec_stage){.from_step = 60, .seq_len = 128}; /* lr as before */
    NEAR(schedule_lr(&spec, 54), 0.5 + 1.5 * 46 / 90);
    NEAR(schedule_lr(&spec, 55), 0.25 + 0.75 * 45 / 90);
    NEAR(schedule_lr(&spec, 60), 0.25 + 0.75 * 40 / 90);
    NEAR(schedule_lr(&spec, 100), 0.25);
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void three_stages(void)
{
    fresh(SCHEDULE_COSINE);
    spec.model.shape.rope_theta = 1e4;
    spec.train.global_batch = 3;
    spec.n_stages = 3;
    spec.stages[0] = (struct spec_stage){.from_step = 4, .seq_len = 128, .rope_theta = 5e4};
    spec.stages[1] = (struct spec_stage){.from_step = 6, .lr = 1};
    spec.stages[2] = (struct spec_stage){.from_step = 9, .seq_len = 64};
}

static void test_stage_values(void)
{
    three_stages();
    static const struct {
        int64_t step, seq_len, sample;
        int stage;
        double lr, theta;
    } rows[] = {
        {0, 64, 0, -1, 2, 1e4}, {3, 64, 9, -1, 2, 1e4},  {4, 128, 0, 0, 2, 5e4},
        {5, 128, 3, 0, 2, 5e4}, {6, 128, 6, 1, 1, 5e4},  {8, 128, 12, 1, 1, 5e4},
        {9, 64, 12, 2, 1, 5e4}, {10, 64, 15, 2, 1, 5e4}, {1000, 64, 12 + 991 * 3, 2, 1, 5e4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int stage = stage_at(&spec, rows[i].step);
        CHECK_MSG(stage == rows[i].stage, "step %d: stage %d", (int)rows[i].step, stage);
        CHECK(stage_seq_len(&spec, stage) == rows[i].seq_len);
        CHECK(stage_lr(&spec, stage) == rows[i].lr);
        CHECK(stage_rope_theta(&spec, stage) == rows[i].theta);
        CHECK_MSG(stage_sample(&spec, rows[i].step) == rows[i].sample, "step %d: sample %d",
                  (int)rows[i].step, (int)stage_sample(&spec, rows[i].step));
    }
}

/* Checks the samples of every length. The indices of the samples in successive steps must be 0, 1,
 * 2 and so on, without a gap. */
static void test_samples_have_no_gap(void)
{
    three_stages();
    int64_t next[2] = {0};
    for (int64_t k = 0; k < 40; k++) {
        int64_t *n = &next[stage_seq_len(&spec, stage_at(&spec, k)) == 128];
        CHECK(stage_sample(&spec, k) == *n);
        *n += spec.train.global_batch;
    }
}

/* Compares the number of steps with a loop that adds the positions of each step until they are
 * enough. */
static void test_steps_of_tokens(void)
{
    three_stages();
    for (int64_t tokens = 1; tokens < 5000; tokens += 37) {
        int64_t steps = 0, seen = 0;
        while (seen < tokens) seen += 3 * stage_seq_len(&spec, stage_at(&spec, steps++));
        CHECK_MSG(stage_steps_of_tokens(&spec, tokens) == steps, "%d tokens: %d steps, want %d",
                  (int)tokens, (int)stage_steps_of_tokens(&spec, tokens), (int)steps);
    }
}

static void test_steps_of_passes(void)
{
    fresh(SCHEDULE_COSINE);
    const int64_t plain[SPEC_STAGES + 1] = {10};
    spec.train.global_batch = 4; /* the same as without stages: ceil(10 passes / 4) */
    for (int64_t passes = 1; passes < 50; passes++)
        CHECK(stage_steps_of_passes(&spec, passes, plain) == (10 * passes + 3) / 4);
    three_stages();
    /* There are 100 samples of 64 tokens and 50 of 128. The first 4 steps use 12/100 of a pass,
     * and the next 5 steps use 15/50. This leaves 58 % of the pass. At 3/100 per step this is
     * 19.33, so 20 steps are needed. */
    const int64_t some[SPEC_STAGES + 1] = {100, 50, 50, 100};
    CHECK_MSG(stage_steps_of_passes(&spec, 1, some) == 29, "%d",
              (int)stage_steps_of_passes(&spec, 1, some));
}

/* Checks the rate of modules that are trained whole beside adapters. */
static void test_saved(void)
{
    for (int type = 0; type < SCHEDULE_N; type++) {
        fresh(type);
        for (int64_t k = 0; k < 110; k++)
            CHECK(schedule_lr_saved(&spec, k) == schedule_lr(&spec, k));
        spec.optim.lr_saved = 6;
        for (int64_t k = 0; k < 110; k++)
            NEAR(schedule_lr_saved(&spec, k) / 3, schedule_lr(&spec, k));
        CHECK(schedule_lr_saved(&spec, 9) == 6);
        spec.n_stages = 1; /* a stage with half the rate */
        spec.stages[0] = (struct spec_stage){.from_step = 20, .lr = 1};
        NEAR(schedule_lr_saved(&spec, 60) / 3, schedule_lr(&spec, 60));
    }
}

int main(void)
{
    RUN(test_warmup);
    RUN(test_cosine);
    RUN(test_linear);
    RUN(test_constant);
    RUN(test_wsd);
    RUN(test_wsd_rounds);
    RUN(test_peak_of_a_stage);
    RUN(test_stage_values);
    RUN(test_samples_have_no_gap);
    RUN(test_steps_of_tokens);
    RUN(test_steps_of_passes);
    RUN(test_saved);
    return test_done("schedule");
}
