/* test_family.c: runs language models of every family by their programs on any number of ranks,
 * and compares them with golden results (tests/lib/lm.h). Under determinism "ranks" it compares
 * bits.
 * tests: needs golden */
#include "tests/lib/lm.h"
#include "worker/family/family.h"

static void on_ranks(int P)
{
    char what[32];
    snprintf(what, sizeof what, "%d ranks", P);
    for (size_t i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        struct lm_run r = {0};
        if (P > 1 && small_leaves((int64_t)i + P, 3)) continue;
        lm_open(&g, lm_names[i]);
        lm_go(&r, &g, P);
        lm_check(&r, what);
        lm_free(&r);
        lm_close(&g);
    }
}

static void test_one_rank(void)
{
    on_ranks(1);
}

static void test_more_ranks(void)
{
    const int P[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof P / sizeof *P; i++) on_ranks(P[i]);
}

static void test_recompute(void)
{
    for (enum recompute_id mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
        for (size_t i = 0; i < LM_NAMES; i++) {
            struct lm_golden g;
            struct lm_run r = {.spec.memory.recompute = mode};
            if (small_leaves((int64_t)i + mode, 3)) continue;
            lm_open(&g, lm_names[i]);
            lm_go(&r, &g, 3);
            lm_check(&r, mode == RECOMPUTE_NONE        ? "recompute none"
                         : mode == RECOMPUTE_SELECTIVE ? "recompute selective"
                                                       : "recompute full");
            lm_free(&r);
            lm_close(&g);
        }
}

/* ---- every way of softmax attention ---------------------------------------------------------- */

static const struct way {
    enum strategy_id strategy;
    enum form_id form;
    const char *name;
} ways[] = {{STRATEGY_RSA, FORM_TWO_PASS, "two_pass"},
            {STRATEGY_RSA, FORM_TWO_PASS_SCATTER, "two_pass_scatter"},
            {STRATEGY_RSA, FORM_ALL_GATHER, "all_gather"},
            {STRATEGY_ULYSSES, FORM_AUTO, "ulysses"}};

enum { PLAIN = 2 }; /* the ways from here on also support sinks */

/* Checks every form of attention in every recompute mode. The tensors that are kept for backward
 * must not be overwritten. On 3 ranks the heads cannot be split evenly, and rows are padded. */
static void test_ways(void)
{
    static const char *const softmax[] = {"bert",    "bert_wide",  "mistral",   "qwen3",
                                          "olmo2",   "phi3",       "ministral", "gemma3",
                                          "roberta", "modernbert", "gpt_oss"};
    for (size_t i = 0; i < sizeof softmax / sizeof *softmax; i++) {
        struct lm_golden g;
        lm_open(&g, softmax[i]);
        for (size_t k = family_row(&g.m)->sinks ? PLAIN : 0; k < sizeof ways / sizeof *ways; k++)
            for (enum recompute_id mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
                for (int P = 2; P <= 3; P++) {
                    struct lm_run r = {.spec.memory.recompute = mode};
                    char what[64];
                    if (small_leaves((int64_t)(i + k) + mode + P, 4)) continue;
                    r.spec.parallel.strategy = ways[k].strategy;
                    r.spec.parallel.form = ways[k].form;
                    snprintf(what, sizeof what, "%s, %d ranks, recompute %d", ways[k].name, P,
                             mode);
                    lm_go(&r, &g, P);
                    CHECK(r.strategy == ways[k].strategy);
                    lm_check(&r, what);
                    lm_free(&r);
                }
        lm_close(&g);
    }
}

/* ---- every exchange of the delta rule's states ----------------------------------------------- */

/* Checks maps of states. With 8 ranks some ranks have only padding. */
static void test_maps(void)
{
    static const char *const names[] = {"qwen3_5", "qwen3_5_wide"};
    static const int P[] = {2, 3, 4, 8};
    for (size_t i = 0; i < 2 * 2 * sizeof P / sizeof *P; i++) {
        const enum exchange_id x = i % 2 ? EXCHANGE_SCAN : EXCHANGE_ALL_GATHER;
        const int n = P[i / 4];
        struct lm_golden g;
        lm_open(&g, names[i / 2 % 2]);
        for (enum recompute_id mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
            struct lm_run r = {.spec.memory.recompute = mode, .spec.parallel.exchange = (int32_t)x};
            char what[64];
            if (small_leaves((int64_t)(i + i / 2) + mode, 3)) continue;
            snprintf(what, sizeof what, "exchange %d, %d ranks, recompute %d", x, n, mode);
            lm_go(&r, &g, n);
            lm_check(&r, what);
            lm_free(&r);
        }
        lm_decode_by(&g, n, x);
        lm_close(&g);
    }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_same(const struct lm_run *a, const struct lm_run *b, const char *what)
{
    const struct lm_golden *g = a->g;
    const size_t n = (size_t)(g->n * g->S * g->V);
    CHECK_MSG(!memcmp(a->logits, b->logits, n * 4), "%s, %s: logits differ", g->name, what);
    CHECK_MSG(a->loss == b->loss, "%s, %s: loss %.17g, %.17g", g->name, what, a->loss, b->loss);
    for (int i = 0; i < param_tensors(&g->m); i++) {
        struct param p;
        param_get(&g->m, i, &p);
        CHECK_MSG(!memcmp(a->grad + p.offset, b->grad + p.offset, (size_t)p.count * 4),
                  "%s, %s: gradient of %s differs", g->name, what, p.name);
    }
}

static void test_rank_bits(void)
{
    const int P[] = {2, 4, 8};
    for (size_t i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        lm_open(&g, lm_names[i]);
        struct lm_run one = {.spec.determinism = DET_RANKS};
        lm_go(&one, &g, 1);
        lm_check(&one, "determinism \"ranks\"");
        for (size_t k = 0; k < sizeof P / sizeof *P; k++) {
            struct lm_run more = {.spec.determinism = DET_RANKS};
            char what[32];
            snprintf(what, sizeof what, "%d ranks and one", P[k]);
            lm_go(&more, &g, P[k]);
            check_same(&more, &one, what);
            lm_free(&more);
        }
        lm_free(&one);
        lm_close(&g);
    }
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

/* Returns the relative error of the gradients. In bf16 every value is rounded to 8 bits, which
 * changes it by 2^-9 of its value on average. This happens about 60 times between the embedding
 * and a logit, and 60 more times in backward. The squares of independent errors add up, which
 * makes 2^-9 sqrt(60) = 1.5 % for logits and 2^-9 sqrt(120) = 2.1 % for gradients. One rank may
 * have twice these errors. The error of several ranks may be larger than the error of one rank by
 * a quarter.
 *
 * fp16 rounds to 11 bits, so its bounds are an eighth of these. Gradients through ReLU are an
 * exception, because its slope is a step. If rounding changes the sign of a value near 0, the
 * value loses or gains its complete gradient. In bf16 the values have errors of 1 %, so the sign
 * of 0.3 % of them changes. These are 0.6 % of the values with a slope, and the root of 0.6 % is 8
 * %. In fp16 the signs of an eighth as many values change, and the squares of their errors add up.
 * The instruction set decides which values these are. Gradients through the delta rule may have
 * twice this error, because the rule divides queries, keys and its outputs by their lengths. These
 * bounds are not used for two families. RetNet's head norm divides by a difference of nearly equal
 * numbers. MiniMax's router may choose a different expert if the logits of two experts are
 * close. */
static double gradient_error(const struct lm_run *r)
{
    const struct lm_golden *g = r->g;
    return lm_rel_l2(r->grad, g->grad, param_count(&g->m));
}

static void check_half(enum precision_id precision)
{
    const double part = precision == PRECISION_FP16 ? 1.0 / 8 : 1;
    for (size_t i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        if (!strncmp(lm_names[i], "retnet", 6)) continue;
        lm_open(&g, lm_names[i]);
        if (g.m.n_experts) {
            lm_close(&g);
            continue;
        }
        struct lm_run one = {.spec.precision.params = (int32_t)precision}, four = one;
        lm_go(&one, &g, 1);
        lm_go(&four, &g, 4);
        const double a = gradient_error(&one), b = gradient_error(&four);
        const double la = lm_rel_l2(one.logits, g.logits, g.n * g.S * g.V);
        const double lb = lm_rel_l2(four.logits, g.logits, g.n * g.S * g.V);
        CHECK_MSG(la > 1e-4 * part && la <= 0.03 * part && lb <= 1.25 * la,
                  "%s: logits off by %g, %g", g.name, la, lb);
        const double rule = family_row(&g.m)->in_turn ? 2 : 1;
        const bool step = g.m.act == ACT_RELU || g.m.feature_map == ACT_RELU;
        const double back = step ? 2 * sqrt(part) : part * rule;
        CHECK_MSG(a <= 0.042 * back && b <= 1.25 * a, "%s: gradients off by %g, %g", g.name, a, b);
        for (int x = EXCHANGE_ALL_GATHER; family_row(&g.m)->in_turn && x <= EXCHANGE_SCAN; x++) {
            struct lm_run maps = {.spec.precision.params = (int32_t)precision,
                                  .spec.parallel.exchange = x};
            lm_go(&maps, &g, 4);
            const double lm = lm_rel_l2(maps.logits, g.logits, g.n * g.S * g.V);
            CHECK_MSG(lm <= 1.25 * la && gradient_error(&maps) <= 1.25 * a,
                      "%s, exchange %d: logits off by %g, gradients by %g", g.name, x, lm,
                      gradient_error(&maps));
            lm_free(&maps);
        }
        lm_free(&one);
        lm_free(&four);
        lm_close(&g);
    }
}

static void test_half(void)
{
    check_half(PRECISION_BF16), check_half(PRECISION_FP16);
}

/* ---- one token after another ----------------------------------------------------------------- */

static void test_decode(void)
{
    const int P[] = {1, 2, 3, 8};
    for (size_t i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        lm_open(&g, lm_names[i]);
        const bool causal = !family_masked(&g.m);
        for (size_t k = 0; causal && k < sizeof P / sizeof *P; k++) lm_decode_go(&g, P[k]);
        lm_close(&g);
    }
}

int main(void)
{
    RUN(test_one_rank);
    RUN(test_more_ranks);
    RUN(test_recompute);
    RUN(test_ways);
    RUN(test_maps);
    RUN(test_rank_bits);
    RUN(test_half);
    RUN(test_decode);
    return test_done("family");
}
