/* test_pieces.c: checks dense MLPs that are computed in pieces of rows (memory.mlp_chunk_tokens).
 * All families are compared with golden files in float64. Trainings are compared with trainings
 * whose MLPs are not computed in pieces, and must have the same bits on any number of ranks.
 * Memory and work are compared with numbers computed by hand. The planner's decisions and refused
 * jobs are checked, too. engine.h compares the memory and the bytes of every step with the plan.
 * tests: needs golden */
#include "tests/lib/lm.h"
#include "tests/lib/planned.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"

enum { LENGTH = 37, STEPS = 3 };

static struct job_spec spec;

/* ---- goldens --------------------------------------------------------------------------------- */

static const int64_t chunks[] = {1, 3, 7, 1000};

/* Compares a model with a golden file. All memory is filled with NaN first, and attention stays
 * within documents. */
static void golden(const struct lm_golden *g, int P, int64_t chunk, enum recompute_id mode)
{
    struct lm_run r = {.spec.memory = {.recompute = (int32_t)mode, .mlp_chunk_tokens = chunk}};
    char what[64];
    snprintf(what, sizeof what, "%d ranks, pieces of %lld, recompute %d", P, (long long)chunk,
             mode);
    lm_go(&r, g, P);
    lm_check(&r, what);
    lm_free(&r);
}

static void test_goldens(void)
{
    for (int i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        lm_open(&g, lm_names[i]);
        for (int P = 1; P <= 4 && family_mlps(&g.m).dense; P++) {
            if (small_leaves(P + i / 2, 4)) continue;
            golden(&g, P, chunks[(P + i) % 4], (enum recompute_id)(RECOMPUTE_NONE + (P + i) % 3));
        }
        lm_close(&g);
    }
}

/* ---- trainings ------------------------------------------------------------------------------- */

static const char *const names[] = {"mistral", "bert",    "gpt2",        "gemma3",    "granite",
                                    "tnl",     "qwen3_5", "qwen2_moe",   "olmo2",     "modernbert",
                                    "phi3",    "linear",  "qwen3_mixed", "qwen3_next"};
enum { NAMES = sizeof names / sizeof *names };

/* Sets a spec. eps is as large as the gradients. With a small eps, AdamW's first step would be the
 * sign of a gradient, which may be a rounding error. */
static void spec_of(const char *name, enum precision_id precision)
{
    char dir[96];
    struct err e = {0};
    engine_spec(&spec, LENGTH);
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    spec.precision.params = (int32_t)precision;
    spec.train.steps = STEPS;
    spec.train.global_batch = 2;
    spec.optim.eps = 1e-2;
}

struct way {
    int P, dp, zero;
    int64_t chunk, time_chunk;
    enum recompute_id mode;
};

static void train(struct engine_run *r, const struct way *w)
{
    static struct synth y;
    struct job_spec s = spec;
    y = (struct synth){.S = LENGTH, .doc_len = w->time_chunk ? 0 : 15};
    y.vocab = (int32_t)(s.model.shape.vocab < 250 ? s.model.shape.vocab : 250);
    *r = (struct engine_run){.P = w->P, .dp = w->dp, .steps = STEPS};
    r->source = (struct train_source){.batch = synth_batch, .targets = synth_targets, .arg = &y};
    s.parallel.zero = w->zero;
    s.memory.recompute = (int32_t)w->mode;
    s.memory.mlp_chunk_tokens = w->chunk;
    s.memory.time_chunk = w->time_chunk;
    engine_go(r, &s);
    CHECK(r->plan.mlp_chunk == (w->chunk < r->plan.T ? w->chunk : r->plan.T) || !w->chunk ||
          r->plan.rank_bits);
}

/* Compares two trainings. The gradients of the first step differ only because sums, which are in
 * fp32 in every precision, are rounded. The weights after three steps differ because AdamW
 * amplifies these differences. */
static void compare(const char *name, const struct way *w, const struct engine_run *whole,
                    const struct engine_run *cut)
{
    const struct model_shape *m = &spec.model.shape;
    const bool half = spec.precision.params != PRECISION_FP32;
    const double all = lm_norm(whole->grad, whole->plan.n_params);
    struct param p;
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(fabs(cut->loss[k] - whole->loss[k]) <=
                      (k ? half ? 2e-3 : 1e-5 : 1e-6) * fabs(whole->loss[k]),
                  "%s, %d ranks, step %d: loss %.9g, whole %.9g", name, w->P, k, cut->loss[k],
                  whole->loss[k]);
    for (int i = 0; i < param_tensors(m); i++) {
        param_get(m, i, &p);
        const float *a = cut->grad + p.offset, *b = whole->grad + p.offset;
        const double d = rel_l2(a, b, p.count);
        const bool rounding = lm_norm(b, p.count) < 1e-6 * all;
        CHECK_MSG(d <= LM_WANTED || rounding, "%s, %d ranks, zero %d: gradient of %s off by %g",
                  name, w->P, w->zero, p.name, d);
        const double e = rel_l2(cut->weights + p.offset, whole->weights + p.offset, p.count);
        CHECK_MSG(e <= 1e-4 || rounding, "%s, %d ranks, zero %d: %s off by %g after %d steps", name,
                  w->P, w->zero, p.name, e, STEPS);
    }
}

/* Compares a training in pieces with the same training without pieces. */
static void beside(const char *name, struct way w)
{
    struct engine_run whole, cut;
    const int64_t chunk = w.chunk;
    train(&cut, &w);
    w.chunk = 0;
    train(&whole, &w);
    CHECK(whole.norm[0] > 1e-4 && !whole.plan.mlp_chunk && cut.plan.mlp_chunk > 0);
    CHECK_MSG(cut.plan.item[PLAN_KEPT].size < whole.plan.item[PLAN_KEPT].size ||
                  w.mode != RECOMPUTE_NONE,
              "%s: pieces of %lld keep no less", name, (long long)chunk);
    compare(name, &w, &whole, &cut);
    engine_free(&whole);
    engine_free(&cut);
}

static void test_beside_whole(void)
{
    for (int i = 0; i < NAMES; i++)
        for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
            spec_of(names[i], (enum precision_id)precision);
            for (int P = 1; P <= 4; P++) {
                if (small_leaves(i + precision + 2 * P, 5)) continue;
                beside(names[i], (struct way){.P = P,
                                              .zero = (P + i) % 4,
                                              .chunk = chunks[(P + i / 2) % 3],
                                              .mode = (enum recompute_id)(
                                                  RECOMPUTE_NONE + (P + i + precision) % 3)});
            }
        }
}

static void test_tied_and_rings(void)
{
    for (int zero = 0; zero <= 3; zero++)
        for (int tied = 0; tied < 2; tied++) {
            spec_of("mistral", PRECISION_FP32);
            spec.model.shape.tied = tied;
            /* 0 means that updates are within the backward pass */
            spec.optim.max_grad_norm = tied ? 0 : 1;
            spec.train.global_batch = 4;
            beside("mistral", (struct way){.P = 1 + zero % 2,
                                           .dp = 2,
                                           .zero = zero,
                                           .chunk = 4,
                                           .mode = RECOMPUTE_SELECTIVE});
        }
    spec_of("mistral", PRECISION_FP32);
    spec.train.global_batch = 1;
    spec.optim.max_grad_norm = 0;
    struct engine_run r;
    train(&r, &(struct way){.P = 2, .zero = 2, .chunk = 5, .mode = RECOMPUTE_NONE});
    CHECK(r.plan.fused && r.plan.mlp_chunk == 5);
    engine_free(&r);
}

/* Checks windows in time, in which the MLPs of a window run in pieces of the window. */
static void test_windows(void)
{
    for (int P = 1; P <= 3; P++) {
        spec_of(P % 2 ? "tnl" : "linear", PRECISION_FP32);
        beside("in windows",
               (struct way){.P = P, .chunk = 3, .time_chunk = 8 / P, .mode = RECOMPUTE_NONE});
    }
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void same_bits(const char *name, const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->plan.n_params * 4;
    CHECK_MSG(a->plan.mlp_chunk == b->plan.mlp_chunk, "%s: pieces of %lld and %lld", name,
              (long long)a->plan.mlp_chunk, (long long)b->plan.mlp_chunk);
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k],
                  "%s, %d ranks, step %d: loss %.17g, %.17g; norm %.17g, %.17g", name, a->P, k,
                  a->loss[k], b->loss[k], a->norm[k], b->norm[k]);
    CHECK_MSG(!memcmp(a->weights, b->weights, size) && !memcmp(a->adam_m, b->adam_m, size),
              "%s, %d ranks: other bits", name, a->P);
}

/* Checks the bits of ranks. There are 37 tokens. A logical chunk has 5 tokens, which are computed
 * in pieces of 3 and 2. If the given size of a piece exceeds a chunk, a piece is a chunk. The
 * forward pass must have the same bits as without pieces. */
static void test_bits_of_ranks(void)
{
    static const int P[] = {2, 4, 8};
    for (int i = 0; i < NAMES; i++)
        for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
            struct engine_run one, more;
            struct way w = {.P = 1, .chunk = i % 3 ? 3 : 100, .mode = RECOMPUTE_NONE};
            spec_of(names[i], (enum precision_id)precision);
            spec.determinism = DET_RANKS;
            spec.train.global_batch = 3;
            train(&one, &w);
            CHECK(one.plan.mlp_chunk == (i % 3 ? 3 : 5) && one.plan.tree_size > 0);
            for (int k = 0; k < 3; k++) {
                w.P = P[k], w.zero = (k + i) % 4;
                w.mode = (enum recompute_id)(RECOMPUTE_NONE + k);
                spec.resources.threads = 1 + k % 2;
                train(&more, &w);
                same_bits(names[i], &more, &one);
                engine_free(&more);
            }
            w.P = 1, w.chunk = 0;
            train(&more, &w);
            CHECK_MSG(more.loss[0] == one.loss[0], "%s: loss %.17g, whole %.17g", names[i],
                      one.loss[0], more.loss[0]);
            engine_free(&more);
            engine_free(&one);
        }
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Sets a spec of a decoder with 3 layers of width 64, whose MLPs have 4096 columns. */
static void wide_spec(int64_t S, int P)
{
    engine_spec(&spec, S);
    spec.model.shape.n_layers = 3;
    spec.model.shape.width = 64;
    spec.model.shape.n_heads = 8;
    spec.model.shape.ffn_width = 4096;
    spec.memory.recompute = RECOMPUTE_NONE;
    spec.parallel.sp = P;
}

/* Compares the kept memory and the workspace with numbers computed by hand. */
static void test_memory(void)
{
    struct plan whole, cut;
    wide_spec(4096, 2);
    planned(&spec, 0, &whole);
    spec.memory.mlp_chunk_tokens = 128;
    planned(&spec, 0, &cut);
    const int64_t T = 2048, C = 64, I = 4096, n = 128;
    CHECK(whole.item[PLAN_KEPT].size - cut.item[PLAN_KEPT].size == 3 * T * 2 * I * 4);
    /* The workspace holds the norm's output, its rstd and its gradient for all rows. It holds gate
     * and up, the activation and its gradient only for the rows of a piece. The gradients of gate
     * and up use the memory of gate and up. */
    CHECK_MSG(cut.item[PLAN_WORK].size == (2 * T * C + T + n * (2 * I + I + I)) * 4,
              "work: %lld bytes", (long long)cut.item[PLAN_WORK].size);
    CHECK(whole.item[PLAN_WORK].size >= T * 2 * I * 4);
    CHECK(cut.mlp_chunk == 128 && !whole.mlp_chunk && cut.flops == whole.flops);
    spec.memory.mlp_chunk_tokens = 1 << 20;
    CHECK(planned(&spec, 0, &cut)->mlp_chunk == T);
}

/* Checks the estimated time. The products of gate and up are computed a second time in backward,
 * and the estimate must count them as it counts the products that memory.recompute repeats. */
static void test_work(void)
{
    const struct hardware h = {.given = 1,
                               .devices = 2,
                               .nodes = 1,
                               .memory_gib = 1,
                               .tflops = 1e-3,
                               .link_gbs = 1,
                               .link_us = 1};
    struct machine m;
    struct plan p;
    struct estimate whole, cut;
    machine_of_hardware(&h, &m);
    wide_spec(4096, 2);
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &whole);
    spec.memory.mlp_chunk_tokens = 512;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &cut);
    const double again = 3 * 2.0 * 2048 * 64 * 2 * 4096 / 1e9;
    CHECK_MSG(fabs((cut.compute_s - whole.compute_s) / again - 1) < 1e-9, "%g s more, want %g",
              cut.compute_s - whole.compute_s, again);
    /* The rate of a product depends on its number of rows. For few rows it is a tenth here. */
    m.rate[RATE_GEMM][PRECISION_FP32][0] /= 10;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &whole);
    spec.memory.mlp_chunk_tokens = 1;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &cut);
    CHECK(cut.compute_s > 5 * whole.compute_s);
}

/* Checks that, of the modes that fit, "auto" chooses the mode that keeps the largest number of
 * bytes. Under determinism "ranks", the choice must not depend on memory. */
static void test_auto(void)
{
    static const struct {
        enum recompute_id mode;
        int64_t chunk;
    } order[] = {{RECOMPUTE_NONE, 0},         {RECOMPUTE_NONE, 2048}, {RECOMPUTE_SELECTIVE, 0},
                 {RECOMPUTE_SELECTIVE, 2048}, {RECOMPUTE_FULL, 0},    {RECOMPUTE_FULL, 2048}};
    static char json[65536];
    enum { N = sizeof order / sizeof *order };
    struct plan p;
    struct err e = {0};
    int64_t size[N];
    wide_spec(32768, 2);
    for (int i = 0; i < N; i++) {
        spec.memory.recompute = (int32_t)order[i].mode;
        spec.memory.mlp_chunk_tokens = order[i].chunk;
        size[i] = planned_size(planned(&spec, 0, &p));
    }
    CHECK(size[1] < size[2]); /* this makes sure that "selective" alone is never needed here */
    for (int i = 0; i < N; i++) {
        int first = 0;
        while (size[first] > size[i]) first++;
        spec.memory.recompute = RECOMPUTE_AUTO;
        spec.memory.mlp_chunk_tokens = -1;
        planned(&spec, size[i], &p);
        CHECK_MSG(p.recompute == order[first].mode && p.mlp_chunk == order[first].chunk &&
                      planned_size(&p) == size[first],
                  "limit of %d: recompute %d, pieces of %lld", i, p.recompute,
                  (long long)p.mlp_chunk);
    }
    CHECK(plan_make(&spec, size[5] - 1, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    planned(&spec, size[1], &p);
    CHECK(plan_json(&spec, &p, json, sizeof json) > 0);
    CHECK_MSG(strstr(json, "\"mlp_chunk_tokens\":2048") &&
                  strstr(json, "MLP in pieces of 2048 tokens: it would not fit whole"),
              "%.900s", json);
    spec.determinism = DET_RANKS;
    CHECK(!planned(&spec, 0, &p)->mlp_chunk);
    engine_legal(&spec);
    CHECK(plan_make(&spec, 4096, &p, &e) && !p.mlp_chunk && p.recompute == RECOMPUTE_FULL);
    CHECK_MSG(strstr(e.text, "; memory.mlp_chunk_tokens 2048 needs "), "%s", e.text);
    spec.determinism = DET_RUN;
    spec.memory.mlp_chunk_tokens = 0;
    CHECK(plan_make(&spec, size[5], &p, &e) && !p.mlp_chunk);
    spec.kind = JOB_SCORE;
    spec.memory.mlp_chunk_tokens = 64;
    CHECK(!planned(&spec, 0, &p)->mlp_chunk);
}

/* Checks a decoder with 8 billion weights at 2^20 tokens on 8 devices, in bf16. */
static void test_large(void)
{
    static const enum recompute_id modes[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int i = 0; i < 3; i++) {
        struct plan whole, cut;
        char a[24], b[24], c[24], d[24];
        engine_spec(&spec, 1 << 20);
        spec.model.shape = (struct model_shape){PLANNED_LLAMA_8B};
        spec.precision.params = PRECISION_BF16;
        spec.parallel.sp = 8;
        spec.parallel.zero = 3;
        spec.memory.recompute = (int32_t)modes[i];
        planned(&spec, 0, &whole);
        spec.memory.mlp_chunk_tokens = 2048;
        planned(&spec, 0, &cut);
        printf("  8 B, 1048576 tokens, 8 ranks, recompute %s: whole %s (work %s), in pieces %s "
               "(work %s)\n",
               spec_field("memory.recompute")->words[modes[i]], plan_bytes(a, planned_size(&whole)),
               plan_bytes(b, whole.item[PLAN_WORK].size), plan_bytes(c, planned_size(&cut)),
               plan_bytes(d, cut.item[PLAN_WORK].size));
        /* Gate, up, the activation and its gradient are not stored for 131072 rows. These values,
         * without those of a piece and without other workspace, need more than 8 GiB. */
        CHECK(planned_size(&whole) - planned_size(&cut) > (int64_t)8 << 30);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void job(int family)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_VERIFY;
    spec.model.shape.family = family;
    spec.model.shape.width = 32;
    spec.model.shape.n_layers = 2;
    spec.model.shape.n_heads = 4;
    spec.model.shape.ffn_width = 48;
    spec.data.seq_len = LENGTH;
    spec.model.shape.n_experts = family == FAMILY_LLAMA ? 0 : 2;
    spec.model.shape.experts_per_token = family == FAMILY_LLAMA ? 0 : 2;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    CHECK(!spec_intern(&spec, "/x", 2, &spec.data.train[0].path));
}

static void test_refused(void)
{
    static const int experts[] = {FAMILY_MIXTRAL, FAMILY_OLMOE, FAMILY_MINIMAX};
    struct err e = {0};
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
        job(experts[i]);
        CHECK_MSG(spec.memory.mlp_chunk_tokens == -1 && !family_check(&spec, &e), "%s", e.text);
        job(experts[i]);
        spec.memory.mlp_chunk_tokens = 0;
        CHECK_MSG(!family_check(&spec, &e), "%s", e.text);
        job(experts[i]);
        spec.memory.mlp_chunk_tokens = 64;
        CHECK(family_check(&spec, &e) && e.code == ERR_UNSUPPORTED);
        CHECK_STR(e.field, "memory.mlp_chunk_tokens");
        CHECK_MSG(strstr(e.text, "mixture of experts: leave it out"), "%s", e.text);
    }
    job(FAMILY_LLAMA);
    spec.memory.mlp_chunk_tokens = 64;
    CHECK_MSG(!family_check(&spec, &e), "%s", e.text);
    job(FAMILY_LLAMA);
    spec.memory.mlp_chunk_tokens = JOB_MAX_SEQ + 1;
    CHECK(family_check(&spec, &e) && e.code == ERR_INVALID);
    CHECK_STR(e.field, "memory.mlp_chunk_tokens");
}

/* Checks that experts are not computed in pieces if there is also an expert that every token uses.
 * The plan's reason must mention this expert. */
static void test_experts_whole(void)
{
    struct plan p;
    spec_of("qwen2_moe", PRECISION_FP32);
    spec.memory.mlp_chunk_tokens = 4;
    planned(&spec, 0, &p);
    CHECK_MSG(strstr(p.reason, "MLP in pieces of 4 tokens, experts whole: asked for"), "%s",
              p.reason);
}

int main(void)
{
    RUN(test_goldens);
    RUN(test_beside_whole);
    RUN(test_tied_and_rings);
    RUN(test_windows);
    RUN(test_bits_of_ranks);
    RUN(test_memory);
    RUN(test_work);
    RUN(test_auto);
    RUN(test_large);
    RUN(test_refused);
    RUN(test_experts_whole);
    return test_done("pieces");
}
