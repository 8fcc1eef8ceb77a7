/* test_verify_routes.c: checks verify jobs of models whose rows choose among experts. In 16 bits,
 * rounding may change a choice. The reference then follows the ranks' choice and judges it
 * (worker/model/routing.h). A wrong router must nevertheless be found. */
/* Not under sanitizers: test_verify is run under them instead. */
#include "api/core/log.h"
#include "tests/lib/mutant.h"
#include "tests/lib/verify.h"
#include "worker/model/routing.h"

#define MANY                                                                                       \
    .n_layers = 8, .width = 48, .n_heads = 6, .head_dim = 8, .ffn_width = 40, .vocab = 260,        \
    .norm_eps = 1e-5, .rope_theta = 10000, .max_pos = 4096, .n_kv_heads = 2, .n_experts = 16,      \
    .experts_per_token = 2

/* "plain" means that experts are weighted by a softmax over all experts. */
static const struct way models[] = {
    {"qwen2_moe of 16 experts, plain",
     {MANY, .family = FAMILY_QWEN2_MOE, .qkv_bias = 1, .expert_width = 16, .shared_width = 24},
     WAY_RSA(LAYOUT_ZIGZAG)},
    {"mixtral of 16 experts", {MANY, .family = FAMILY_MIXTRAL}, WAY_RSA(LAYOUT_CONTIGUOUS)},
};

/* ---- one row, by hand ------------------------------------------------------------------------ */

enum { E = 5, K = 2 };

/* The router's logits of one row, of which experts 3 and 1 are the best. */
static const float logits[E] = {0.5f, 1.25f, -2, 1.5f, 1};

struct met {
    int32_t expert[K];
    float weight[K];
    struct routing routing;
    struct err error;
    int rc;
};

/* Runs a router on the row, and lets it use the experts a and b, which a rank is said to have
 * chosen. */
static struct met meet(int32_t a, int32_t b, bool plain)
{
    struct met m = {.rc = 0};
    float x[E], room[K + E];
    int32_t given[K] = {a, b};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &m.error);
    memcpy(x, logits, sizeof x);
    m.routing = (struct routing){.own = (int32_t *)room, .follow = true, .judged = true};
    struct frame *f = calloc(1, sizeof *f);
    f->be = be, f->routing = &m.routing, f->chosen = given;
    const struct route_args args = {.logits = tensor_f32(x, 1, E, E),
                                    .k = K,
                                    .expert = m.expert,
                                    .weight = m.weight,
                                    .plain = plain};
    be->ops->route(be, &args);
    m.rc = routing_meet(f, &args, &m.error);
    free(f);
    be_close(be);
    return m;
}

static double part(int32_t e, const int32_t *of, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp((double)logits[of[i]]);
    return exp((double)logits[e]) / sum;
}

static void check_weights(const struct met *m, bool plain)
{
    static const int32_t all[E] = {0, 1, 2, 3, 4};
    for (int j = 0; j < K; j++) {
        const double want = plain ? part(m->expert[j], all, E) : part(m->expert[j], m->expert, K);
        CHECK_MSG(fabs(m->weight[j] - want) < 1e-6, "%g, not %g", m->weight[j], want);
    }
}

static void test_row(void)
{
    for (int plain = 0; plain < 2; plain++) {
        /* If only the order of the two experts is different, the choice is the same. */
        struct met m = meet(1, 3, plain);
        CHECK(!m.rc && m.expert[0] == 3 && m.expert[1] == 1);
        CHECK(m.routing.rows == 1 && m.routing.turned == 0 && m.routing.gap == 0);
        check_weights(&m, plain);
        /* The rank has chosen expert 4 instead of expert 1, whose logit is higher by 0.25. */
        m = meet(3, 4, plain);
        CHECK(!m.rc && m.expert[0] == 3 && m.expert[1] == 4 && m.routing.turned == 1);
        double mean = 0, square = 0;
        for (int e = 0; e < E; e++) mean += logits[e] / (double)E;
        for (int e = 0; e < E; e++) square += (logits[e] - mean) * (logits[e] - mean) / E;
        CHECK_MSG(fabs(m.routing.gap - 0.25 / sqrt(square)) < 1e-9, "%g", m.routing.gap);
        check_weights(&m, plain);
        /* The row itself would choose neither of these experts. The gap is the difference between
         * the logit of the best expert that is not used and the logit of the worst expert that is
         * used. */
        m = meet(0, 2, plain);
        CHECK(!m.rc && fabs(m.routing.gap - 3.5 / sqrt(square)) < 1e-9);
        check_weights(&m, plain);
    }
}

/* Checks that verification fails if the gap of a row is NaN, whatever the gaps of the rows after
 * it are. */
static void test_nan(void)
{
    enum { ROWS = 2 };
    float x[ROWS * E], room[ROWS * K + E], weight[ROWS * K];
    int32_t given[ROWS * K] = {3, 4, 3, 4}, expert[ROWS * K];
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    struct routing routing = {.own = (int32_t *)room, .follow = true, .judged = true};
    struct frame *f = calloc(1, sizeof *f);
    memcpy(x, logits, sizeof logits);
    memcpy(x + E, logits, sizeof logits);
    x[4] = NAN;
    f->be = be, f->routing = &routing, f->chosen = given;
    const struct route_args args = {
        .logits = tensor_f32(x, ROWS, E, E), .k = K, .expert = expert, .weight = weight};
    be->ops->route(be, &args);
    CHECK_MSG(!routing_meet(f, &args, &e), "%s", e.text);
    CHECK_MSG(routing.turned == 2 && isnan(routing.gap), "%g", routing.gap);
    free(f);
    be_close(be);
}

static void test_no_choice(void)
{
    static const int32_t bad[][K] = {{3, 5}, {3, -1}, {3, 3}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct met m = meet(bad[i][0], bad[i][1], false);
        CHECK_MSG(m.rc && m.error.code == ERR_INTERNAL, "%zu: %s", i, m.error.text);
    }
}

/* ---- proofs ---------------------------------------------------------------------------------- */

enum { TOKENS = 512, SEEDS = 5 };

static struct trial t;

static void prepare(const struct way *w, int sp, int pp, enum precision_id precision, int seed)
{
    trial_set(&t, w, sp, pp > 1 ? TOKENS / 4 : TOKENS, precision);
    t.spec.resources.ranks = sp * pp;
    t.spec.parallel.sp = sp;
    t.spec.parallel.pp = pp;
    t.spec.seed = (uint64_t)seed;
}

static double farthest(const struct verify *v)
{
    double most = fmax(v->logits_rel_l2 / v->allowed_logits_rel_l2, v->routes.gap / v->allowed_gap);
    for (int i = 0; i < v->n_rows; i++) most = fmax(most, v->row[i].rel_l2 / v->row[i].allowed);
    return most;
}

/* Checks that correct ranks are "equal" without a wider bound. Adds the number of rows in which
 * the choices of ranks and reference differ to *turned. Sets *far to the largest ratio of an error
 * to its bound, if *far is smaller. */
static void prove(int64_t *turned, double *far)
{
    const struct model_shape *s = &t.spec.model.shape;
    trial_run(&t);
    const struct verify *v = &t.out;
    CHECK_MSG(v->equal && !v->controlled, "%s, %d ranks, seed %llu: %s", t.way->name, v->n_ranks,
              (unsigned long long)t.spec.seed, t.sentence.text);
    CHECK(v->ledger_equal);
    CHECK(v->routes.rows == (int64_t)s->n_layers * v->n_samples * t.spec.verify.max_tokens);
    *turned += v->routes.turned;
    *far = fmax(*far, farthest(v));
    verify_fini(&t.out);
}

static void test_honest(void)
{
    static const int axes[][2] = {{2, 1}, {4, 1}, {2, 2}, {1, 3}};
    int64_t turned[PRECISION_N] = {0};
    double far[PRECISION_N] = {0};
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++)
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            for (int seed = 1; seed <= SEEDS; seed++)
                for (size_t a = seed % 2; a < sizeof axes / sizeof *axes; a += 2) {
                    prepare(&models[m], axes[a][0], axes[a][1], (enum precision_id)p, seed);
                    prove(&turned[p], &far[p]);
                }
    printf("  choices turned, nearest to a bound: fp32 %lld, %.3f; bf16 %lld, %.3f\n",
           (long long)turned[PRECISION_FP32], far[PRECISION_FP32],
           (long long)turned[PRECISION_BF16], far[PRECISION_BF16]);
    CHECK_MSG(turned[PRECISION_BF16] > 0, "no rounding turned a choice: this test shows nothing");
}

/* Checks rows of padding, in the reference and on the ranks. In a row of padding, the reference
 * does not use the choice of a rank, but makes its own choice. */
static void test_padded(void)
{
    int64_t turned = 0;
    double far = 0;
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        prepare(&models[1], 2, 1, (enum precision_id)p, 1);
        t.spec.determinism = DET_RANKS;
        t.spec.verify.max_tokens = 37;
        prove(&turned, &far);
    }
}

/* Checks that verify.json says how many rows chose experts, and how many chose differently. */
static void test_kept(void)
{
    struct err e = {0};
    prepare(&models[0], 2, 1, PRECISION_FP32, 1);
    t.artifacts = true;
    trial_run(&t);
    char *text = file_read(t.out.artifact[2].path, 1 << 20, NULL, &e);
    CHECK_MSG(text && strstr(text, "\"routes\":{\"rows\":4096,\"turned\":0,\"gap\":0,"), "%s%s",
              e.text, text ? text : "");
    free(text);
    verify_fini(&t.out);
}

#ifdef SEQD_MUTANTS
/* Checks the injected faults. The reference uses the experts that the ranks chose, so a wrong
 * choice gives equal gradients on both sides. Only the check of the choice itself shows the
 * fault. */
static void test_mutants(void)
{
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        prepare(&models[1], 2, 1, (enum precision_id)p, 1);
        t.mutant = MUTANT_ROUTE_BLIND;
        trial_run(&t);
        const bool found = !t.out.equal && t.out.routes.gap >= 2 * t.out.allowed_gap &&
                           strstr(t.sentence.text, "choices of experts");
        CHECK_MSG(found, "gap %g: %s", t.out.routes.gap, t.sentence.text);
        verify_report(MUTANT_ROUTE_BLIND, found, p == PRECISION_FP32 ? "choices" : "choices, bf16");
        verify_fini(&t.out);
    }
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify_routes");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify_routes.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_row);
    RUN(test_nan);
    RUN(test_no_choice);
    RUN(test_honest);
    RUN(test_padded);
    RUN(test_kept);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify_routes");
}
