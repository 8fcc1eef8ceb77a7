/* test_adapter.c: trainings of adapters (LoRA). Checks that the base keeps its bits, that the first
 * loss is that of the base alone, and that the training is the same on every product of axes.
 * tests: needs golden */
#include "tests/lib/adapter_train.h"
#include "tests/lib/mutant.h"
#include "worker/program/adapt.h"

/* ---- one rank -------------------------------------------------------------------------------- */

/* Checks that the base keeps its bits and has no moments, that all tensors of adapters move, and
 * that the first loss is that of the model without adapters, because B is 0. */
static void check_one(const struct way *w)
{
    static struct job_spec plain;
    char which[400];
    int n_base = 0, n_adapter = 0, n_saved = 0;
    say(w, which, sizeof which);
    set_spec(&spec, w);
    initial = calloc((size_t)param_count(&spec.model.shape), sizeof *initial);
    struct engine_run r = go(&spec, w, NULL);
    const struct model_shape *m = &spec.model.shape;
    struct way bare = *w;
    float *kept = initial;
    initial = NULL;
    set_spec(&plain, &bare);
    plain.model.shape.adapter.rank = plain.model.shape.freeze.n_kinds = 0;
    struct engine_run want = {.P = 1, .steps = 1, .source = {synth_batch, synth_targets, &synth}};
    engine_go(&want, &plain);
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const float *is = r.weights + p.offset;
        const bool same = !memcmp(is, kept + p.offset, (size_t)p.count * sizeof *is);
        const bool learns = adapter_learns(&p);
        CHECK_MSG(p.trained == learns, "%s: %s", which, p.name);
        CHECK_MSG(same != learns, "%s: %s %s", which, p.name, same ? "stays" : "changes");
        n_saved += p.saved;
        n_base += !p.adapter, n_adapter += p.adapter;
        for (int64_t k = 0; k < p.count && !learns; k++)
            if (r.adam_m[p.offset + k] != 0 || r.adam_v[p.offset + k] != 0)
                CHECK_MSG(0, "%s: %s has moments", which, p.name);
    }
    CHECK(n_base > 0 && n_adapter > 0 && n_adapter % 2 == 0);
    CHECK_MSG(n_saved >= (w->saves & 1) + (w->saves >> 1), "%s: %d saved", which, n_saved);
    CHECK_MSG(n_base == param_tensors(&plain.model.shape), "%s: %d tensors", which, n_base);
    CHECK_MSG(r.loss[0] == want.loss[0], "%s: first loss %.17g, %.17g", which, r.loss[0],
              want.loss[0]);
    CHECK(r.plan.class_size[PLAN_OPTIMIZER] < want.plan.class_size[PLAN_OPTIMIZER]);
    free(kept);
    engine_free(&r), engine_free(&want);
}

static void test_one(void)
{
    static const char *const targets[] = {NULL, "q_proj", "mlp", "attention"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++) {
            const struct way w = {.target = targets[i],
                                  .recompute = RECOMPUTE_NONE + k,
                                  .tied = k == 1,
                                  .saves = k == 1 ? 0 : i,
                                  .max_norm = k == 2 ? 0.5 : 0};
            check_one(&w);
        }
}

static int draw(int seed, int i, int n)
{
    return (int)(synth_hash((uint64_t)seed * 64 + (uint64_t)i) % (uint32_t)n);
}

static void test_products(void)
{
    static const char *const targets[] = {NULL, NULL, "attention", "down_proj", "k_proj"};
    const char *more = getenv("SEQD_TEST_PRODUCTS");
    const int n = more ? atoi(more) : small_tests() || SANITIZED ? 16 : 64;
    for (int i = 1; i <= n; i++) {
        struct way w = {.P = 1 + draw(i, 0, 3),
                        .dp = 1 + draw(i, 1, 2),
                        .pp = 1 + draw(i, 2, 3),
                        .tp = i % 4 ? 0 : 2,
                        .zero = draw(i, 3, 4),
                        .tied = draw(i, 5, 2),
                        .recompute = RECOMPUTE_NONE + draw(i, 6, 3),
                        .max_norm = draw(i, 7, 2) ? 0.5 : 0,
                        .offload = i % 7 == 0,
                        .target = targets[draw(i, 8, 5)],
                        .rank = 1 + draw(i, 11, 5)};
        if (w.P == 3) w.P = 4;
        w.batch = w.dp * (1 + draw(i, 9, 3));
        w.determinism = !w.tp && draw(i, 10, 2) ? DET_RANKS : DET_RUN;
        w.drop = i % 3 == 0 ? 0.25 : 0;
        w.mlp_chunk = i % 5 < 2 ? 5 : 0;
        w.saves = w.tied ? 0 : draw(i, 12, 4);
        check_product(&w);
    }
}

/* Checks that dropout changes a training, and that it is the same where ranks have two segments, or
 * parts of rows. */
static void test_dropout(void)
{
    struct way w = {.drop = 0.5}, none = {0};
    struct engine_run a = go(&spec, &w, NULL), b = go(&spec, &none, NULL);
    CHECK(a.loss[0] == b.loss[0] && a.loss[1] != b.loss[1]); /* B is 0 in the first step */
    engine_free(&a), engine_free(&b);
    for (int zero = 0; zero < 4; zero += 3)
        for (int layout = 0; layout < 2; layout++) {
            struct way two = {.P = 2, .drop = 0.5, .zero = zero, .zigzag = layout};
            check_product(&two);
        }
    for (int P = 2; P <= 4; P += 2) check_product(&(struct way){.P = P, .tp = 2, .drop = 0.5});
}

/* Checks dropout of rows that are more than two tiles. */
static void test_tiles(void)
{
    synth.S = 2 * ADAPT_TILE + 19;
    for (int pieces = 0; pieces < 2; pieces++)
        check_product(&(struct way){.P = 2,
                                    .drop = 0.5,
                                    .zigzag = 1 - pieces,
                                    .target = "mlp",
                                    .mlp_chunk = pieces ? ADAPT_TILE + 5 : 0});
    synth.S = 37;
}

/* ---- families -------------------------------------------------------------------------------- */

static void test_families(void)
{
    enum { HEAD = ADAPTER_SAVES_HEAD, BOTH = ADAPTER_SAVES_EMBEDDING | HEAD };
    static const struct way ways[] = {{.family = "mixtral", .saves = BOTH},
                                      {.family = "gpt2"},
                                      {.family = "gemma3"},
                                      {.family = "qwen3"},
                                      {.family = "qwen3_5", .saves = HEAD},
                                      {.family = "qwen3_next"},
                                      {.family = "qwen2_moe"},
                                      {.family = "phi3", .saves = BOTH},
                                      {.family = "smollm3"},
                                      {.family = "olmo2"},
                                      {.family = "granite"},
                                      {.family = "gpt_oss", .saves = BOTH},
                                      {.family = "minimax"},
                                      {.family = "tnl", .saves = BOTH},
                                      {.family = "bert"},
                                      {.family = "bert_wide", .saves = BOTH},
                                      {.family = "modernbert"},
                                      {.family = "tnl", .time_chunk = 5, .saves = BOTH}};
    synth.vocab = 250;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.max_norm = 1;
        check_one(&w);
        w.P = 2, w.dp = w.time_chunk ? 1 : 2, w.zero = w.time_chunk ? 1 : 1 + (int)i % 3;
        check_product(&w);
    }
    synth.vocab = 61;
}

/* Checks that windows of time draw the dropout and the noise that the whole sequence has. */
static void test_windows(void)
{
    static const struct way ways[] = {
        {.family = "tnl", .time_chunk = 5, .drop = 0.3, .max_norm = 1},
        {.family = "tnl", .P = 2, .time_chunk = 5, .drop = 0.3, .noise = 9, .zero = 1},
        {.family = "retnet", .time_chunk = 11, .drop = 0.2, .recompute = RECOMPUTE_FULL},
        {.family = "linear", .P = 3, .time_chunk = 4, .noise = 20, .batch = 2, .max_norm = 0.5},
        {.family = "linear", .P = 2, .dp = 2, .time_chunk = 7, .drop = 0.1, .mlp_chunk = 5}};
    synth.vocab = 250;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        check_product(&w);
    }
    synth.vocab = 61;
}

/* ---- a base in blocks ------------------------------------------------------------------------ */

/* Checks that a training whose base is in blocks of model.weights has the results of a training
 * whose base has the values of these blocks as numbers. */
static void check_blocks(const struct way *w)
{
    static struct job_spec plain;
    struct way one = *w;
    char which[400];
    one.blocks = WEIGHTS_MODEL;
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = 0;
    one.batch = w->batch ? w->batch : w->dp > 1 ? w->dp : 1;
    struct way own = *w;
    own.batch = one.batch;
    say(w, which, sizeof which);
    set_spec(&spec, &own);
    const int64_t n = param_count(&spec.model.shape);
    initial = calloc((size_t)n, sizeof *initial);
    struct engine_run r = go(&spec, &own, NULL);
    float *values = initial;
    initial = NULL;
    const int64_t blocks = r.plan.item[PLAN_PARAMS].size;
    one.tied = w->tied;
    set_spec(&plain, &one);
    plain.model.shape.ffn_width = 64;
    struct engine_run want = {
        .P = 1, .steps = STEPS, .initial = values, .source = {synth_batch, synth_targets, &synth}};
    engine_go(&want, &plain);
    check_near(&r, &want, which);
    if (w->pp < 2 && w->tp < 2)
        CHECK_MSG(blocks < want.plan.item[PLAN_PARAMS].size, "%s: %lld bytes", which,
                  (long long)blocks);
    engine_free(&r), engine_free(&want);
    free(values);
}

static void test_blocks(void)
{
    static const struct way ways[] = {
        {.blocks = WEIGHTS_INT8},
        {.blocks = WEIGHTS_INT4, .rank = 8},
        {.blocks = WEIGHTS_INT8, .P = 2, .zero = 1, .batch = 2, .max_norm = 0.5},
        {.blocks = WEIGHTS_INT4, .P = 2, .dp = 2, .zero = 2, .target = "attention"},
        {.blocks = WEIGHTS_INT8, .P = 2, .dp = 2, .determinism = DET_RANKS, .zero = 2},
        {.blocks = WEIGHTS_INT8, .tied = 1, .pp = 2, .batch = 2, .target = "mlp"},
        {.blocks = WEIGHTS_INT4, .P = 2, .pp = 3, .zero = 1, .batch = 2},
        {.blocks = WEIGHTS_INT8, .P = 2, .recompute = RECOMPUTE_FULL, .mlp_chunk = 5},
        {.blocks = WEIGHTS_INT4, .P = 2, .zero = 2, .saves = 3},
        {.blocks = WEIGHTS_INT8, .pp = 2, .batch = 2, .saves = 2},
        {.blocks = WEIGHTS_INT8, .drop = 0.25, .P = 4, .offload = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_blocks(&ways[i]);
}

/* Checks that a training whose base is sharded in blocks (zero 3) has the bits of the training in
 * which every rank has the whole base, in less memory. */
static void check_sharded(struct way *w)
{
    static struct job_spec plain;
    struct way whole = *w;
    char which[400];
    whole.zero = whole.group = 0;
    say(w, which, sizeof which);
    set_spec(&plain, &whole);
    const size_t size = (size_t)param_count(&plain.model.shape) * sizeof *initial;
    float *const want_first = initial = calloc(1, size);
    struct engine_run want = go(&plain, &whole, NULL);
    float *const first = initial = calloc(1, size);
    struct engine_run r = go(&spec, w, NULL);
    initial = NULL;
    check_same(&r, &want, which);
    CHECK_MSG(!memcmp(first, want_first, size), "%s: initial weights", which);
    const int64_t is = r.plan.item[PLAN_PARAMS].size, all = want.plan.item[PLAN_PARAMS].size;
    CHECK_MSG(is < all * 3 / 4, "%s: %lld bytes of %lld", which, (long long)is, (long long)all);
    engine_free(&r), engine_free(&want);
    free(first), free(want_first);
}

static void test_sharded_blocks(void)
{
    static const struct way ways[] = {
        {.blocks = WEIGHTS_INT8, .P = 2},
        {.blocks = WEIGHTS_INT4, .dp = 2, .saves = 3},
        {.blocks = WEIGHTS_INT8, .P = 2, .dp = 2, .tied = 1, .precision = PRECISION_BF16},
        {.blocks = WEIGHTS_INT4, .P = 2, .dp = 2, .group = 2, .recompute = RECOMPUTE_FULL},
        {.blocks = WEIGHTS_INT8, .P = 2, .pp = 2, .tied = 1, .precision = PRECISION_FP16},
        {.blocks = WEIGHTS_INT4, .P = 2, .tp = 2},
        {.blocks = WEIGHTS_INT4, .P = 2, .family = "gpt2"},
        {.blocks = WEIGHTS_INT8, .dp = 2, .family = "mixtral", .saves = 3, .offload = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.zero = 3, w.max_norm = 0.5;
        synth.vocab = w.family ? 250 : 61;
        check_sharded(&w);
    }
    synth.vocab = 61;
}

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Tells whether a fault changes the adapters of a training on two ranks. */
static bool is_wrong(struct way *w, int mutant)
{
    static struct job_spec plain;
    struct way one = *w;
    int n = 0;
    one.P = one.dp = one.zero = 0;
    float *x = weights_of(w);
    struct engine_run want = go(&plain, &one, x);
    mutant_choose(mutant);
    struct engine_run r = go(&spec, w, x);
    mutant_choose(MUTANT_NONE);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        n += !(rel_l2(r.weights + p.offset, want.weights + p.offset, p.count) < 2e-5);
    }
    engine_free(&want), engine_free(&r);
    free(x);
    return n > 0;
}

static void test_mutants(void)
{
    static const int of[] = {MUTANT_ADAPTER_ALPHA,  MUTANT_ADAPTER_OTHER, MUTANT_DROPOUT_LOCAL,
                             MUTANT_FROZEN_MOVED,   MUTANT_SAVED_FROZEN,  MUTANT_SAVED_RATE,
                             MUTANT_MOMENTS_SHIFTED};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        struct way w = {
            .P = 2, .batch = 2, .zero = 1, .max_norm = 0.5, .drop = 0.2, .saves = k % 2 ? 3 : 2};
        CHECK(!is_wrong(&w, MUTANT_NONE));
        mutant_report(of[k], is_wrong(&w, of[k]), "adapters after three steps");
        if (of[k] == MUTANT_SAVED_FROZEN || of[k] == MUTANT_SAVED_RATE) verify_blind(of[k]);
    }
}
#endif

int main(void)
{
    RUN(test_one);
    RUN(test_products);
    RUN(test_dropout);
    RUN(test_tiles);
    RUN(test_families);
    RUN(test_windows);
    RUN(test_blocks);
    RUN(test_sharded_blocks);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("adapter");
}
