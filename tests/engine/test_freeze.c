/* test_freeze.c: checks trainings in which some tensors are frozen (train.freeze). The gradient of
 * every trained tensor must have the same bits as in a training without frozen tensors. Frozen
 * tensors must keep their initial bits. The training must be the same on every product of axes.
 * engine.h compares the messages of every rank with the formulas, and its memory with the plan.
 * tests: needs golden */
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/engine.h"
#include "tests/lib/freeze.h"
#include "tests/lib/mutant.h"
#include "worker/ckpt/scatter.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/slice.h"

static struct job_spec spec; /* static because it is too large for the stack */
static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

enum { STEPS = 3, N_PATTERNS = FREEZE_PATTERNS };

struct way {
    const char *family; /* directory in tests/golden; NULL means a Llama */
    const char *freeze[N_PATTERNS];
    int P, dp, pp, tp, zero, group, determinism, precision, recompute, tied, offload;
    int64_t batch, mlp_chunk, time_chunk;
    double max_norm, ema;
};

static void set_spec(struct job_spec *s, const struct way *w)
{
    struct err e = {0};
    engine_spec(s, synth.S);
    engine_on_device(s);
    s->model.shape.n_layers = 4;
    if (w->family) {
        char dir[96];
        snprintf(dir, sizeof dir, "tests/golden/%s", w->family);
        CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    }
    s->model.shape.tied = w->family ? s->model.shape.tied : w->tied;
    s->train.steps = STEPS;
    s->train.global_batch = w->batch ? w->batch : w->dp > 1 ? w->dp : 1;
    s->optim.max_grad_norm = w->max_norm;
    /* eps is as large as the gradients, so that a rounding of a tiny gradient does not decide the
     * sign of the first step. */
    s->optim.eps = 1e-2;
    s->ema.decay = w->ema;
    s->precision.params = w->precision;
    s->parallel.zero = w->zero;
    s->parallel.zero_group = w->group;
    s->determinism = w->determinism ? w->determinism : DET_RUN;
    s->parallel.layout = LAYOUT_CONTIGUOUS;
    s->memory.recompute = w->recompute ? w->recompute : RECOMPUTE_NONE;
    s->memory.mlp_chunk_tokens = w->mlp_chunk;
    s->memory.time_chunk = w->time_chunk;
    s->memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    freeze_tensors(s, w->freeze);
}

static float *initial; /* the weights before the first step */

static void keep_first(struct train *t, int rank, void *arg)
{
    (void)rank, (void)arg;
    if (t->step == 0) engine_collect(t, SHARDED_WEIGHTS, initial);
}

static struct engine_run go(struct job_spec *s, const struct way *w)
{
    struct engine_run r = {.P = w->P ? w->P : 1,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &synth},
                           .before_step = initial ? keep_first : NULL};
    set_spec(s, w);
    engine_go(&r, s);
    return r;
}

static void say(const struct way *w, char *out, size_t size)
{
    int n = snprintf(out, size,
                     "%s P %d dp %d pp %d tp %d zero %d group %d determinism %d precision %d "
                     "recompute %d tied %d offload %d batch %lld norm %g:",
                     w->family ? w->family : "llama", w->P, w->dp, w->pp, w->tp, w->zero, w->group,
                     w->determinism, w->precision, w->recompute, w->tied, w->offload,
                     (long long)w->batch, w->max_norm);
    for (int i = 0; i < N_PATTERNS && w->freeze[i]; i++)
        n += snprintf(out + n, size - (size_t)n, " %s", w->freeze[i]);
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* Checks the gradients of the first step. They must have the same bits as in a training without
 * frozen tensors. The norm must be the norm of the trained tensors' gradients. The bits of frozen
 * tensors must not change, and frozen tensors must have no moments. */
static void check_one(const struct way *w)
{
    static struct job_spec whole;
    struct way all = *w;
    char which[400];
    double sum = 0;
    int n_frozen = 0, n_moved = 0;
    say(w, which, sizeof which);
    memset(all.freeze, 0, sizeof all.freeze);
    struct engine_run want = go(&whole, &all);
    initial = calloc((size_t)want.n * 2, sizeof *initial);
    struct engine_run r = go(&spec, w);
    const struct model_shape *m = &spec.model.shape;
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p, q;
        const bool stays = frozen(m, i, &p);
        param_get(&whole.model.shape, i, &q);
        CHECK_STR(p.name, q.name);
        const size_t size = (size_t)p.count * sizeof *initial;
        const bool same = !memcmp(r.weights + p.offset, initial + p.offset, size);
        n_frozen += stays;
        CHECK_MSG(same || !stays, "%s: %s changes", which, p.name);
        n_moved += !same;
        if (!stays)
            CHECK_MSG(!memcmp(r.grad + p.offset, want.grad + q.offset, size),
                      "%s: gradient of %s: rel-L2 %.3g", which, p.name,
                      rel_l2(r.grad + p.offset, want.grad + q.offset, p.count));
        for (int64_t k = 0; k < p.count; k++) {
            sum += (double)r.grad[p.offset + k] * r.grad[p.offset + k];
            if (stays && (r.adam_m[p.offset + k] != 0 || r.adam_v[p.offset + k] != 0))
                CHECK_MSG(0, "%s: %s has moments", which, p.name);
        }
    }
    CHECK(n_frozen > 0 && n_moved > 0);
    if (r.scale == 1)
        CHECK_MSG(fabs(r.norm[0] / sqrt(sum) - 1) < 1e-10, "%s: norm %.17g, %.17g", which,
                  r.norm[0], sqrt(sum));
    CHECK_MSG(r.plan.class_size[PLAN_OPTIMIZER] < want.plan.class_size[PLAN_OPTIMIZER] &&
                  r.plan.flops <= want.plan.flops,
              "%s: no less memory or work", which);
    CHECK(r.loss[0] == want.loss[0]);
    free(initial), initial = NULL;
    engine_free(&want), engine_free(&r);
}

static const char *const sets[][N_PATTERNS] = {
    {"model.embed_tokens.*"},
    {"model.embed_tokens.*", "*.layers.0.*", "*.layers.1.*"},
    {"*.self_attn.*"},
    {"*.mlp.*"},
    {"*norm*"},
    {"*proj*", "*embed*", "*lm_head*"},
    {"*.layers.*", "*embed*"},
    {"*.layers.3.*", "model.norm.weight", "lm_head.weight"},
    {"*down_proj*", "*o_proj*"},
    {"*gate_proj*", "*up_proj*", "*.layers.1.self_attn.?_proj.*"}};
enum { N_SETS = sizeof sets / sizeof *sets };

static void use(struct way *w, int set)
{
    memcpy(w->freeze, sets[set], sizeof w->freeze);
}

static void test_one(void)
{
    for (int i = 0; i < N_SETS; i++)
        for (int k = 0; k < 4; k++) {
            struct way w = {.batch = 1 + k % 2,
                            .max_norm = 0.5,
                            .recompute = RECOMPUTE_NONE + k % 3,
                            .tied = k == 3,
                            .mlp_chunk = k == 2 ? 7 : 0,
                            .determinism = k == 1 ? DET_RANKS : DET_RUN};
            use(&w, i);
            check_one(&w);
        }
}

/* ---- products -------------------------------------------------------------------------------- */

static void check_near(const struct engine_run *r, const struct engine_run *one, const char *which)
{
    for (int i = 0; i < STEPS; i++)
        CHECK_MSG(fabs(r->loss[i] - one->loss[i]) <= 1e-5 * one->loss[i] &&
                      fabs(r->norm[i] / one->norm[i] - 1) <= 1e-4,
                  "%s: step %d: loss %.9g, %.9g, norm %.9g, %.9g", which, i, r->loss[i],
                  one->loss[i], r->norm[i], one->norm[i]);
    struct model_shape m = spec.model.shape;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        const bool stays = frozen(&m, i, &p);
        const int64_t n = p.count, at = p.offset;
        const struct {
            const char *name;
            const float *is, *want;
        } of[] = {{"gradient", r->grad, one->grad},
                  {"weights", r->weights, one->weights},
                  {"m", r->adam_m, one->adam_m},
                  {"v", r->adam_v, one->adam_v}};
        if (stays)
            CHECK_MSG(!memcmp(r->weights + at, one->weights + at, (size_t)n * 4), "%s: %s changes",
                      which, p.name);
        /* A gradient that consists only of rounding errors cannot be compared. */
        double length = 0;
        for (int64_t k = 0; k < n; k++) length += (double)one->grad[at + k] * one->grad[at + k];
        if (sqrt(length) < 1e-6 * one->norm[0]) continue;
        for (int k = 0; !stays && k < 4; k++) {
            if (k == 0 && r->plan.fused) continue;
            const double d = rel_l2(of[k].is + at, of[k].want + at, n);
            CHECK_MSG(d <= 2e-5, "%s: %s of %s: rel-L2 %.3g", which, of[k].name, p.name, d);
        }
    }
}

static void check_same(const struct engine_run *r, const struct engine_run *want, const char *which)
{
    const size_t size = (size_t)want->n * 4;
    CHECK_MSG(!memcmp(r->loss, want->loss, STEPS * sizeof *r->loss), "%s: losses", which);
    CHECK_MSG(!memcmp(r->norm, want->norm, STEPS * sizeof *r->norm), "%s: norms", which);
    CHECK_MSG(!memcmp(r->weights, want->weights, size), "%s: weights", which);
    CHECK_MSG(!memcmp(r->adam_m, want->adam_m, size), "%s: m", which);
    CHECK_MSG(!memcmp(r->adam_v, want->adam_v, size), "%s: v", which);
}

static void check_product(struct way *w)
{
    static struct job_spec plain;
    struct way one = *w;
    char which[400];
    one.P = one.dp = one.pp = one.tp = one.zero = one.group = one.offload = 0;
    one.determinism = DET_RUN;
    if (!one.batch) one.batch = w->dp > 1 ? w->dp : 1;
    w->batch = one.batch;
    say(w, which, sizeof which);
    struct engine_run want = go(&plain, &one), r = go(&spec, w);
    check_near(&r, &want, which);
    engine_free(&r);
    if (w->determinism == DET_RANKS) {
        struct way few = *w;
        few.P = few.pp = few.zero = few.group = 0;
        engine_free(&want);
        want = go(&plain, &few);
        r = go(&spec, w);
        check_same(&r, &want, which);
        engine_free(&r);
    }
    engine_free(&want);
}

static int draw(int seed, int i, int n)
{
    return (int)(synth_hash((uint64_t)seed * 64 + (uint64_t)i) % (uint32_t)n);
}

static void test_products(void)
{
    const char *more = getenv("SEQD_TEST_PRODUCTS");
    const int n = more ? atoi(more) : small_tests() || SANITIZED ? 24 : 96;
    for (int i = 1; i <= n; i++) {
        struct way w = {.P = 1 + draw(i, 0, 3),
                        .dp = 1 + draw(i, 1, 2),
                        .pp = 1 + draw(i, 2, 3),
                        .tp = i % 4 ? 0 : 2,
                        .zero = draw(i, 3, 4),
                        .tied = draw(i, 5, 2),
                        .recompute = RECOMPUTE_NONE + draw(i, 6, 3),
                        .max_norm = draw(i, 7, 2) ? 0.5 : 0,
                        .mlp_chunk = draw(i, 8, 3) ? 0 : 5,
                        .offload = i % 7 == 0,
                        .ema = draw(i, 11, 2) ? 0.9 : 0};
        if (w.P == 3) w.P = 4;
        w.batch = w.dp * (1 + draw(i, 9, 3));
        w.determinism = !w.tp && draw(i, 10, 2) ? DET_RANKS : DET_RUN;
        use(&w, i % N_SETS);
        check_product(&w);
    }
}

/* ---- families -------------------------------------------------------------------------------- */

static void test_families(void)
{
    static const struct way ways[] = {
        {.family = "mixtral", .freeze = {"*.gate.*"}},
        {.family = "mixtral", .freeze = {"*.experts.1.*", "*embed*"}},
        {.family = "mixtral", .freeze = {"*.experts.*"}},
        {.family = "gpt2", .freeze = {"*wpe*"}},
        {.family = "gpt2", .freeze = {"*wte*", "*.h.0.*"}},
        {.family = "gemma3", .freeze = {"*norm*"}},
        {.family = "qwen3", .freeze = {"*.self_attn.?_proj.*", "*embed*"}},
        {.family = "qwen3", .freeze = {"*.q_norm.*", "*layernorm*"}},
        {.family = "qwen3_5", .freeze = {"*A_log*", "*dt_bias*", "*conv1d*"}},
        {.family = "qwen3_next", .freeze = {"*.layers.0.*", "*embed*"}},
        {.family = "tnl", .freeze = {"*.layers.0.*", "*embed*"}},
        {.family = "tnl", .freeze = {"*.layers.0.*", "*embed*"}, .time_chunk = 5},
        {.family = "tnl", .freeze = {"*theta*"}},
        {.family = "minimax", .freeze = {"*embed*", "*.layers.0.*"}},
        {.family = "gpt_oss", .freeze = {"*sinks*", "*.experts.*"}},
        {.family = "bert", .freeze = {"*embeddings*", "*.layer.0.*"}},
        {.family = "phi3", .freeze = {"*qkv_proj*"}},
        /* biases are trained, and their weights are not */
        {.family = "qwen2", .freeze = {"*weight"}},
        {.family = "gpt2", .freeze = {"*weight"}},
        {.family = "gpt2",
         .freeze = {"*wte*", "*wpe*", "*.ln_*", "*.attn.*", "*.c_fc.*", "*.mlp.c_proj.weight"},
         .mlp_chunk = 7},
        {.family = "bert", .freeze = {"*weight"}},
        {.family = "gpt_oss", .freeze = {"*weight", "*proj"}},
        /* theta is trained, and no gradient of its input is wanted */
        {.family = "tnl", .freeze = {"*embed*", "*qkvu_proj*"}}};
    synth.vocab = 250;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.max_norm = 1;
        w.determinism = w.time_chunk || i % 2 ? DET_RUN : DET_RANKS;
        check_one(&w);
        w.P = 2, w.dp = w.time_chunk ? 1 : 2, w.zero = w.time_chunk ? 1 : 1 + (int)i % 3;
        check_product(&w);
    }
    synth.vocab = 61;
}

/* ---- from one product to another ------------------------------------------------------------- */

enum { STOP = 1 };

struct stop {
    char dir[64];
    struct ckpt_info info;
};

static void load(struct train *t, int rank, void *arg)
{
    const struct stop *x = arg;
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct model_shape whole = slice_whole(&t->model.shape);
    struct ckpt_state s;
    struct err e = {0};
    if (t->step != STOP) return;
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : checkpoint_load(x->info.path, &whole, &a, &s, &e) ||
                               scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
}

static void save(struct train *t, int rank, void *arg)
{
    struct stop *x = arg;
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    const struct model_shape whole = slice_whole(&t->model.shape);
    const struct ckpt_state s = {.step = t->step, .next_sample = t->step};
    struct err e = {0};
    if (t->step != STOP) return;
    const int bad = rank ? scatter_serve(&t->state, &e)
                         : ckpt_save(x->dir, 1, &whole, &a, &s, &x->info, &e) ||
                               scatter_end(&t->state, &e);
    CHECK_MSG(!bad, "rank %d: %s", rank, e.text);
}

/* Checks the files of a checkpoint. Only trained tensors have moments. If weights have 16 bits,
 * only trained tensors have master weights. The model has all tensors. */
static void check_files(const struct stop *at, const struct way *w)
{
    static const char *const kinds[] = {"exp_avg:", "exp_avg_sq:", "master:"};
    char path[CKPT_PATH_SIZE + 32], name[128];
    struct err e = {0};
    struct param p;
    snprintf(path, sizeof path, "%s/optim.safetensors", at->info.path);
    struct st_file *f = st_open(path, &e);
    snprintf(path, sizeof path, "%s/hf/model.safetensors", at->info.path);
    struct st_file *hf = st_open(path, &e);
    CHECK_MSG(f && hf, "%s", e.text);
    struct model_shape m = spec.model.shape;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        const bool stays = frozen(&m, i, &p);
        CHECK_MSG(st_find(hf, p.name), "hf/ lacks %s", p.name);
        for (int k = 0; k < 2 + (w->precision != PRECISION_FP32); k++) {
            snprintf(name, sizeof name, "%s%s", kinds[k], p.name);
            CHECK_MSG(!st_find(f, name) == stays, "%s: %s", path, name);
        }
    }
    st_close(f), st_close(hf);
    snprintf(path, sizeof path, "%s/hf_ema/model.safetensors", at->info.path);
    CHECK_MSG(!access(path, R_OK) == (w->ema > 0), "%s", path);
}

static struct engine_run leg(const struct way *w, struct stop *at, int steps)
{
    const bool resumes = at->info.path[0];
    struct engine_run r = {.P = w->P,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = steps,
                           .first_step = resumes ? STOP : 0,
                           .before_step = resumes ? load : NULL,
                           .after_step = resumes ? NULL : save,
                           .arg = at,
                           .source = {synth_batch, synth_targets, &synth}};
    set_spec(&spec, w);
    spec.model.shape.vocab = 258; /* the vocabulary of the byte tokenizer */
    spec.model.shape.max_pos = 4096;
    freeze_tensors(&spec, w->freeze);
    engine_go(&r, &spec);
    return r;
}

/* Checks a training that stops after a step and continues on a different product of axes. At its
 * end, the weights must be nearly the same as in a training that does not stop. */
static void check_resumed(const struct way *from, const struct way *to)
{
    struct stop at = {.dir = "/tmp/test_freeze.XXXXXX"}, none = {.dir = "/tmp/test_freeze.XXXXXX"};
    struct err e = {0};
    char which[400];
    say(to, which, sizeof which);
    if (!mkdtemp(at.dir) || !mkdtemp(none.dir)) abort();
    struct engine_run want = leg(from, &none, STEPS), first = leg(from, &at, STOP);
    check_files(&at, from);
    struct engine_run r = leg(to, &at, STEPS - STOP);
    struct model_shape m = spec.model.shape;
    const double most = to->precision == PRECISION_FP32 ? 2e-5 : 1e-2;
    m.tp = 0;
    for (int i = 0; i < param_tensors(&m); i++) {
        struct param p;
        const bool stays = frozen(&m, i, &p);
        const double d = rel_l2(r.weights + p.offset, want.weights + p.offset, p.count);
        CHECK_MSG(stays ? d == 0 : d <= most, "%s: weights of %s: rel-L2 %.3g", which, p.name, d);
        if (stays) continue;
        const double v = rel_l2(r.adam_v + p.offset, want.adam_v + p.offset, p.count);
        CHECK_MSG(v <= 2 * most, "%s: v of %s: rel-L2 %.3g", which, p.name, v);
    }
    engine_free(&want), engine_free(&first), engine_free(&r);
    CHECK(!file_remove(at.dir, &e) && !file_remove(none.dir, &e));
}

/* Divides the model into two stages, and freezes all tensors of the first stage or of the last
 * one. */
static void use_stage(struct way *w, int set)
{
    static const char *const stages[][N_PATTERNS] = {
        {"*embed*", "*.layers.0.*", "*.layers.1.*", "*.layers.2.*"},
        {"*.layers.1.*", "*.layers.2.*", "*.layers.3.*", "*norm.weight", "lm_head*"}};
    memcpy(w->freeze, stages[set], sizeof w->freeze);
}

/* Checks stages without a trained tensor, which have neither moments nor an average. */
static void test_idle_stages(void)
{
    for (int set = 0; set < 2; set++) {
        struct way staged = {.P = 1, .pp = 2, .batch = 4, .max_norm = 0.5, .ema = 0.9};
        use_stage(&staged, set);
        struct way ranks = staged;
        ranks.P = 2, ranks.pp = 0, ranks.zero = 1;
        check_resumed(&staged, &ranks);
        check_resumed(&ranks, &staged);
    }
}

static void test_resumed(void)
{
    static const struct way ways[][2] = {
        {{.P = 1, .batch = 4}, {.P = 2, .dp = 2, .batch = 4, .zero = 1}},
        {{.P = 2, .zero = 3, .batch = 4}, {.P = 1, .pp = 2, .tied = 0, .batch = 4}},
        {{.P = 1, .pp = 3, .zero = 2, .batch = 4, .tied = 1},
         {.P = 2, .zero = 3, .batch = 4, .tied = 1}},
        {{.P = 2, .zero = 2, .batch = 4, .precision = PRECISION_BF16, .ema = 0.9},
         {.P = 1,
          .dp = 2,
          .pp = 2,
          .zero = 3,
          .batch = 4,
          .precision = PRECISION_BF16,
          .ema = 0.9}},
        {{.P = 1, .tp = 2, .batch = 4}, {.P = 2, .zero = 1, .batch = 4}}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        for (int set = 0; set < 3; set++) {
            struct way from = ways[i][0], to = ways[i][1];
            from.max_norm = to.max_norm = 0.5;
            use(&from, set), use(&to, set);
            check_resumed(&from, &to);
        }
}

/* ---- faults ---------------------------------------------------------------------------------- */

#ifdef SEQD_MUTANTS
/* Returns the number of tensors whose weights differ from those of the training on one rank by
 * more than rounding errors. */
static int n_wrong(struct way *w, int mutant)
{
    static struct job_spec plain;
    struct way one = *w;
    int n = 0;
    one.P = one.dp = one.zero = 0;
    struct engine_run want = go(&plain, &one);
    mutant_choose(mutant);
    struct engine_run r = go(&spec, w);
    mutant_choose(MUTANT_NONE);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        n += !(rel_l2(r.weights + p.offset, want.weights + p.offset, p.count) < 2e-5);
    }
    engine_free(&want), engine_free(&r);
    return n;
}

static void test_mutants(void)
{
    static const int of[] = {MUTANT_FROZEN_MOVED, MUTANT_MOMENTS_SHIFTED};
    for (int k = 0; k < 2; k++) {
        for (int zero = 0; zero <= 3; zero++) {
            struct way w = {.P = 2, .dp = 2, .zero = zero, .batch = 2, .max_norm = 0.5};
            use(&w, 1);
            CHECK(n_wrong(&w, MUTANT_NONE) == 0);
            mutant_report(of[k], n_wrong(&w, of[k]) > 0, "weights after three steps");
        }
        verify_blind(of[k]);
    }
}
#endif

/* ---- refused --------------------------------------------------------------------------------- */

#define SIXTY "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void test_refused(void)
{
    static const struct {
        const char *pattern[9], *field, *says;
    } bad[] = {{{"*.nothing.*"}, "train.freeze.0", "such as model.embed_tokens.weight"},
               {{"*embed*", "*.nothing.*"}, "train.freeze.1", "matches no tensor"},
               {{"*"}, "train.freeze", "every tensor"},
               {{"*.v_proj.*"}, "train.freeze", "k_proj.weight"},
               {{"*.up_proj.*"}, "train.freeze", "gate_proj.weight"},
               {{"", "*embed*"}, "train.freeze.0", "is empty"},
               {{SIXTY SIXTY SIXTY}, "train.freeze.0", "180 bytes, at most 128"},
               {{"*embed*", "*[w]eight"}, "train.freeze.1", "byte 0x5b"},
               {{"*embed*\x1b[31m"}, "train.freeze.0", "byte 0x1b"},
               {{"*embed*\\"}, "train.freeze.0", "byte 0x5c"},
               {{"*.0.*q_proj*", "*.1.*o_proj*", "*.2.*down_proj*", "*.3.*layernorm*",
                 "*.4.*self_attn*", "*.5.*mlp*", "*.6.*post*", "*.7.*input*", "*.8.*"},
                "train.freeze",
                "more than 8 different ways"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err e = {0};
        engine_spec(&spec, 16);
        spec.model.shape.n_layers = 10;
        for (int k = 0; k < 9 && bad[i].pattern[k]; k++)
            CHECK(!spec_intern(&spec, bad[i].pattern[k], strlen(bad[i].pattern[k]),
                               &spec.train.freeze[k]));
        CHECK_MSG(rules_freeze(&spec, &e) == -1 && !spec.model.shape.freeze.n_kinds, "%s is taken",
                  bad[i].pattern[0]);
        CHECK_MSG(!strcmp(e.field, bad[i].field) && strstr(e.text, bad[i].says), "%s: %s", e.field,
                  e.text);
    }
}

/* Checks that a pattern must match the complete name of a tensor. */
static void test_patterns(void)
{
    static const struct {
        const char *pattern;
        int n; /* tensors of two layers that it matches */
    } of[] = {{"model.layers.0.mlp.down_proj.weight", 1},
              {"model.layers.?.mlp.down_proj.weight", 2},
              {"*.mlp.down_proj.weight", 2},
              {"*down*proj*weight*", 2},
              {"**d?wn**", 2},
              {"*layers.1.*", 9},
              {"model.norm.weight", 1},
              {"*.input_layernorm.*", 2},
              {"*q*_proj.weight", 2}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *patterns[FREEZE_PATTERNS] = {of[i].pattern};
        struct param p;
        int n = 0;
        engine_spec(&spec, 16);
        spec.model.shape.n_layers = 2;
        freeze_tensors(&spec, patterns);
        for (int k = 0; k < param_tensors(&spec.model.shape); k++)
            n += frozen(&spec.model.shape, k, &p);
        CHECK_MSG(n == of[i].n, "%s: %d tensors", of[i].pattern, n);
    }
}

/* Checks that a pattern freezes a tied embedding by either of its two names. */
static void test_tied(void)
{
    static const char *const names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    for (int i = 0; i < 2; i++) {
        struct way w = {.tied = 1, .max_norm = 1, .freeze = {names[i]}};
        set_spec(&spec, &w);
        struct param p;
        CHECK(frozen(&spec.model.shape, 0, &p));
        check_one(&w);
    }
}

int main(void)
{
    RUN(test_refused);
    RUN(test_patterns);
    RUN(test_tied);
    RUN(test_one);
    RUN(test_products);
    RUN(test_families);
    RUN(test_resumed);
    RUN(test_idle_stages);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("freeze");
}
