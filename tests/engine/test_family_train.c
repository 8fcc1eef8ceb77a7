/* test_family_train.c: trains language models of every family by their programs. Any number of
 * ranks must give the same bits, under every stage of ZeRO and with accumulated gradients.
 * Data-parallel rings are checked, too. The bytes that are sent and the bytes in memory must equal
 * the plan (engine.h compares them in every step).
 * tests: needs golden */
/* Not under sanitizers: test_family and test_train run the same code. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/test.h"
#include "worker/hf/hf.h"

static const char *const names[] = {"bert",    "tnl",     "linear",    "retnet",
                                    "minimax", "mistral", "ministral", "qwen3_mixed",
                                    "gpt_oss", "qwen3_5", "qwen3_next"};
enum { NAMES = sizeof names / sizeof *names, STEPS = 2 };

static void spec_of(struct job_spec *s, const char *name)
{
    char dir[96];
    struct err e = {0};
    engine_spec(s, 37);
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->memory.recompute = RECOMPUTE_SELECTIVE;
    s->optim.max_grad_norm = 1;
}

static void go(struct engine_run *r, const struct job_spec *spec, struct synth *y, int P, int dp,
               int zero)
{
    struct job_spec s = *spec;
    *y = (struct synth){.S = 37, .doc_len = 15, .vocab = 250};
    *r = (struct engine_run){.P = P, .dp = dp, .steps = STEPS};
    r->source = (struct train_source){.batch = synth_batch, .targets = synth_targets, .arg = y};
    s.parallel.zero = zero;
    engine_go(r, &s);
}

static void same(const char *name, const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->plan.n_params * 4;
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k],
                  "%s, %d ranks, zero %d, step %d: loss %.17g, %.17g; norm %.17g, %.17g", name,
                  a->P, a->plan.zero, k, a->loss[k], b->loss[k], a->norm[k], b->norm[k]);
    CHECK_MSG(!memcmp(a->weights, b->weights, size), "%s, %d ranks, zero %d: weights differ", name,
              a->P, a->plan.zero);
    CHECK_MSG(!memcmp(a->adam_m, b->adam_m, size), "%s, %d ranks, zero %d: moments differ", name,
              a->P, a->plan.zero);
}

static void test_rank_bits(void)
{
    static const int P[] = {2, 4, 4, 2, 8}, zero[] = {0, 1, 2, 3, 3};
    for (size_t i = 0; i < NAMES; i++) {
        struct job_spec s;
        struct synth y;
        struct engine_run one, more;
        spec_of(&s, names[i]);
        s.determinism = DET_RANKS;
        go(&one, &s, &y, 1, 1, 0);
        CHECK(one.norm[0] > 1e-3 && one.loss[0] > 1);
        for (size_t k = 0; k < sizeof P / sizeof *P; k++) {
            go(&more, &s, &y, P[k], 1, zero[k]);
            same(names[i], &more, &one);
            engine_free(&more);
        }
        engine_free(&one);
    }
}

/* Checks data-parallel rings with any number of ranks. Their sums differ in rounding. Weights
 * cannot be compared, because in the first step AdamW changes a weight only by the sign of its
 * gradient. Losses and norms are compared instead. */
static void test_rings(void)
{
    static const int P[] = {3, 2, 1}, dp[] = {1, 2, 2}, zero[] = {1, 3, 2};
    for (size_t i = 0; i < NAMES; i++) {
        struct job_spec s;
        struct synth y;
        struct engine_run one, more;
        spec_of(&s, names[i]);
        go(&one, &s, &y, 1, 1, 0);
        for (size_t k = 0; k < sizeof P / sizeof *P; k++) {
            go(&more, &s, &y, P[k], dp[k], zero[k]);
            CHECK_MSG(fabs(more.loss[0] - one.loss[0]) <= 2e-6 * one.loss[0] &&
                          fabs(more.norm[0] - one.norm[0]) <= 5e-5 * one.norm[0],
                      "%s, %d rings of %d: loss %.9g, %.9g, norm %.9g, %.9g", names[i], dp[k], P[k],
                      more.loss[0], one.loss[0], more.norm[0], one.norm[0]);
            engine_free(&more);
        }
        engine_free(&one);
    }
}

/* Checks families with softmax attention, with every form of attention. The result must be the
 * same as on one rank, and the bytes must equal the plan. Groups of query heads share keys.
 * Ulysses can divide these groups among 2 ranks, but not among 3. */
static void test_ways(void)
{
    static const struct {
        enum strategy_id strategy;
        enum form_id form;
    } ways[] = {{STRATEGY_RSA, FORM_TWO_PASS},
                {STRATEGY_RSA, FORM_TWO_PASS_SCATTER},
                {STRATEGY_ULYSSES, FORM_AUTO}};
    static const char *const softmax[] = {"bert", "mistral", "qwen3", "ministral"};
    for (size_t i = 0; i < sizeof softmax / sizeof *softmax; i++)
        for (int k = 0; k < 3; k++)
            for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
                struct job_spec s;
                struct synth y;
                struct engine_run one, more;
                spec_of(&s, softmax[i]);
                s.memory.recompute = mode;
                go(&one, &s, &y, 1, 1, 0);
                s.parallel.strategy = ways[k].strategy;
                s.parallel.form = ways[k].form;
                go(&more, &s, &y, 2 + mode % 2, 1, mode);
                CHECK(more.plan.strategy == ways[k].strategy);
                CHECK_MSG(fabs(more.loss[0] - one.loss[0]) <= 2e-6 * one.loss[0] &&
                              fabs(more.norm[0] - one.norm[0]) <= 5e-5 * one.norm[0],
                          "%s, way %d, recompute %d: loss %.9g, %.9g, norm %.9g, %.9g", softmax[i],
                          k, mode, more.loss[0], one.loss[0], more.norm[0], one.norm[0]);
                engine_free(&more);
                engine_free(&one);
            }
}

/* Checks the gated delta rule with maps of states. The result must be the same as on one rank, up
 * to rounding errors. In the second step, the weights contain rounding errors of the first
 * step. */
static void test_maps(void)
{
    for (int i = 0; i < 16; i++) {
        struct job_spec s;
        struct synth y;
        struct engine_run one, more;
        const int P = (int[]){2, 3, 4, 8}[i / 4];
        spec_of(&s, i / 2 % 2 ? "qwen3_5_wide" : "qwen3_5");
        s.memory.recompute = RECOMPUTE_NONE + i % 3;
        go(&one, &s, &y, 1, 1, 0);
        s.parallel.exchange = i % 2 ? EXCHANGE_SCAN : EXCHANGE_ALL_GATHER;
        go(&more, &s, &y, P, 1, i % 4);
        CHECK((int32_t)more.plan.exchange == s.parallel.exchange);
        for (int k = 0; k < STEPS; k++)
            CHECK_MSG(fabs(more.loss[k] - one.loss[k]) <= 2e-6 * (1 + 9 * k) * one.loss[k] &&
                          fabs(more.norm[k] - one.norm[k]) <= 5e-5 * (1 + 9 * k) * one.norm[k],
                      "exchange %d, %d ranks, step %d: loss %.9g, %.9g, norm %.9g, %.9g",
                      s.parallel.exchange, P, k, more.loss[k], one.loss[k], more.norm[k],
                      one.norm[k]);
        engine_free(&more);
        engine_free(&one);
    }
}

int main(void)
{
    RUN(test_rank_bits);
    RUN(test_rings);
    RUN(test_ways);
    RUN(test_maps);
    return test_done("family_train");
}
