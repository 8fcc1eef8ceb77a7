/* test_axes.c: draws jobs from a seed, with all products of parallel axes and all settings of
 * memory, and uses the jobs that family_check accepts. Each job is compared with the same training
 * on one rank: its losses, the gradient of every tensor in the first step, and the weights and
 * moments after three steps. engine.h compares the bytes that every rank sent with the formulas,
 * and the memory of every rank with the plan. SEQD_TEST_PRODUCTS=N sets the number of products;
 * make soak uses 500. It also checks trainings that are continued on a different product of axes.
 *
 * The bounds are those of noise.h. If ranks share layers, the bounds also include the error of a
 * second training on one rank, in which the ids have the opposite order. Under determinism "ranks"
 * the bits must be the same as with rings alone, where all axes but sp are 1.
 * tests: needs golden */
/* Not under sanitizers: each axis has a test of its own, which is run under them. */
#include "api/core/file.h"
#include "api/core/job.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/noise.h"
#include "worker/ckpt/scatter.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/plan/check.h"

/* The factor `pairs` of noise_measure. */
#define NOISE_PAIRS 4

enum { STEPS = 3, N_PRODUCTS = 64, N_FEW = 12, MOST_RANKS = 16, MOST_TENSORS = 256 };

static const char *const families[] = {"mistral", "bert",  "gpt2",    "gemma3", "tnl",
                                       "qwen3_5", "olmo2", "granite", "linear", "phi3"};
enum { N_FAMILIES = sizeof families / sizeof *families };
/* Models whose layers ranks can share, because the sizes are divisible by two and by four. */
static const struct model_shape shared[] = {
    {.family = FAMILY_LLAMA, .n_kv_heads = 2},
    {.family = FAMILY_BERT, .n_kv_heads = 4, .type_vocab = 2, .max_pos = 64},
    {.family = FAMILY_OLMO2, .n_kv_heads = 2},
    {.family = FAMILY_PHI3, .n_kv_heads = 2, .rotary_dim = 4}};
static const char *const shared_names[] = {"shared llama", "shared bert", "shared olmo2",
                                           "shared phi3"};
enum { N_SHARED = sizeof shared / sizeof *shared };

struct product {
    const char *family;
    int seed;
    struct synth y;
    struct job_spec spec;
};

/* ---- drawing --------------------------------------------------------------------------------- */

/* Returns the i-th random number of a draw, in [0, n). */
static int draw(int seed, int i, int n)
{
    return (int)(synth_hash((uint64_t)seed * 256 + (uint64_t)i) % (uint32_t)n);
}

/* Returns a divisor of n. */
static int draw_divisor(int seed, int i, int n)
{
    int d = 1 + draw(seed, i, n);
    while (n % d) d--;
    return d;
}

enum { DP = 1, SP = 2, PP = 4, TP = 8 };

/* A set has a bit for each axis of a product that is above 1. Successive products have successive
 * sets. In a round, each set occurs once, and the set of all axes twice. */
enum { ALL_AXES = DP | SP | PP | TP, N_SETS = ALL_AXES + 1 };

static int set_of(int product)
{
    const int set = product % N_SETS;
    return set ? set : ALL_AXES;
}

/* Draws the numbers of ranks. In two of three rounds, USP splits the sequences. A ring then has
 * one or two groups, and the two or three ranks of a group share heads. */
static void draw_axes(struct job_spec *s, int product, int seed)
{
    const int set = set_of(product);
    s->parallel.dp = set & DP ? 2 + draw(seed, 0, 3) : 1;
    s->parallel.sp = set & SP ? 2 + draw(seed, 1, 3) : 1;
    s->parallel.pp = set & PP ? 2 + draw(seed, 4, 2) : 1;
    s->parallel.tp = set & TP ? 2 << draw(seed, 5, 2) : 1;
    if (!(set & SP) || product / N_SETS % 3 == 2) return;
    s->parallel.strategy = STRATEGY_USP;
    s->parallel.ulysses = 2 + draw(seed, 2, 2);
    s->parallel.sp = s->parallel.ulysses * (1 + draw(seed, 3, 2));
}

static int n_ranks(const struct job_spec *s)
{
    return s->parallel.dp * s->parallel.pp * s->parallel.sp * s->parallel.tp;
}

static bool offloads(const struct job_spec *s)
{
    return s->memory.offload == OFFLOAD_ACTIVATIONS;
}

/* Draws the model. If activations are offloaded, a stage gets more layers than there are
 * buffers. */
static void draw_model(struct product *x, int seed)
{
    struct model_shape *m = &x->spec.model.shape;
    const int deep = offloads(&x->spec) ? 4 * x->spec.parallel.pp : 0;
    char dir[96];
    struct err e = {0};
    x->family = families[draw(seed, 10, N_FAMILIES)];
    snprintf(dir, sizeof dir, "tests/golden/%s", x->family);
    if (x->spec.parallel.tp == 1) {
        CHECK_MSG(!config_read_dir(dir, m, &e), "%s", e.text);
        if (deep) m->n_layers = deep;
        return;
    }
    *m = shared[draw(seed, 10, N_SHARED)];
    x->family = shared_names[draw(seed, 10, N_SHARED)];
    m->n_layers = deep ? deep : 3, m->width = 32, m->n_heads = 4, m->head_dim = 8,
    m->ffn_width = 40;
    m->vocab = 261, m->norm_eps = 1e-5, m->rope_theta = 10000;
    CHECK_MSG(!family_complete(m, &e), "%s", e.text);
}

static void draw_spec(struct product *x, int product, int seed)
{
    struct job_spec *s = &x->spec;
    x->seed = seed;
    x->y = (struct synth){.S = 26 + draw(seed, 11, 15), .doc_len = draw(seed, 12, 2) * 15};
    engine_spec(s, x->y.S);
    draw_axes(s, product, seed);
    s->memory.offload = draw(seed, 24, 2) ? OFFLOAD_NONE : OFFLOAD_ACTIVATIONS;
    /* With twelve layers, the rounding errors exceed the noise that a few runs show, even without
     * offloading. test_offload checks three stages bit for bit. */
    if (offloads(s) && s->parallel.pp > 2) s->parallel.pp = 2;
    draw_model(x, seed);
    x->y.vocab = (int32_t)(s->model.shape.vocab < 250 ? s->model.shape.vocab : 250);
    const int ranks = s->parallel.dp * s->parallel.sp; /* the ranks that share state */
    s->model.shape.tied = draw(seed, 13, 2);
    s->precision.params = draw(seed, 14, 3) ? PRECISION_FP32 : PRECISION_BF16;
    s->determinism = draw(seed, 15, 4) ? DET_RUN : DET_RANKS;
    s->parallel.layout = LAYOUT_CONTIGUOUS + (draw(seed, 16, 3) == 0);
    s->parallel.zero = draw(seed, 17, 4);
    s->parallel.zero_group = s->parallel.zero ? draw_divisor(seed, 18, ranks) : 0;
    s->memory.recompute = RECOMPUTE_NONE + draw(seed, 19, 3);
    s->memory.mlp_chunk_tokens = draw(seed, 20, 2) ? 1 + draw(seed, 21, 12) : 0;
    s->train.global_batch = s->parallel.dp * (1 + draw(seed, 22, 3));
    s->train.steps = STEPS;
    s->optim.max_grad_norm = draw(seed, 23, 2) ? 0.5 : 0;
    /* eps is as large as the gradients; with a small eps, the first step would depend on the sign
     * of a rounding error */
    s->optim.eps = 1e-2;
}

/* Tells whether a job would be accepted. The fields that engine_spec leaves out are filled in a
 * copy of the spec. */
static bool accepted(const struct job_spec *s, struct err *e)
{
    static struct job_spec job;
    spec_defaults(&job);
    job.model.shape = s->model.shape;
    job.data.n_train = 1;
    spec_source_defaults(&job.data.train[0]);
    job.data.train[0].format = DATA_NPY;
    spec_intern(&job, "a", 1, &job.data.train[0].path);
    job.data.seq_len = s->data.seq_len;
    job.precision = s->precision;
    job.determinism = s->determinism;
    job.parallel = s->parallel;
    job.memory = s->memory;
    job.train = s->train;
    if (offloads(s)) spec_intern(&job, "/a", 2, &job.memory.offload_dir);
    job.resources.ranks = n_ranks(s);
    return !family_check(&job, e);
}

static void draw_product(struct product *x, int product)
{
    struct err e;
    for (int try = 0;; try++) {
        e = (struct err){0};
        draw_spec(x, product, product * 1000 + try);
        if (n_ranks(&x->spec) <= MOST_RANKS && accepted(&x->spec, &e)) return;
        if (getenv("SEQD_TEST_REFUSED")) printf("%d: %s %s\n", product, e.field, e.text);
        if (try == 999) break;
    }
    CHECK_MSG(0, "product %d: 1000 draws are refused, the last: %s", product, e.text);
    abort();
}

static void say(const struct product *x, char *out, size_t size)
{
    const struct job_spec *s = &x->spec;
    snprintf(out, size,
             "%s, seed %d: dp %d pp %d sp %d tp %d groups of %d zero %d group %d layout %d "
             "precision %d determinism %d recompute %d pieces %lld offload %d tied %d documents "
             "%lld batch %lld norm %g",
             x->family, x->seed, s->parallel.dp, s->parallel.pp, s->parallel.sp, s->parallel.tp,
             s->parallel.ulysses, s->parallel.zero, s->parallel.zero_group, s->parallel.layout,
             s->precision.params, s->determinism, s->memory.recompute,
             (long long)s->memory.mlp_chunk_tokens, s->memory.offload, s->model.shape.tied,
             (long long)x->y.doc_len, (long long)s->train.global_batch, s->optim.max_grad_norm);
}

/* ---- the same training elsewhere ------------------------------------------------------------- */

static struct train_source source_of(struct product *x)
{
    return (struct train_source){synth_batch, synth_targets, &x->y};
}

/* Makes the spec of the same training on one rank, which keeps all values. */
static void plain_spec(const struct product *x, struct job_spec *s)
{
    *s = x->spec;
    memset(&s->parallel, 0, sizeof s->parallel);
    s->memory.recompute = RECOMPUTE_NONE;
    s->memory.mlp_chunk_tokens = 0;
    s->memory.offload = OFFLOAD_NONE;
    s->determinism = DET_RUN;
}

static struct engine_run train(struct product *x, struct job_spec *s)
{
    struct engine_run r = {.P = s->parallel.sp,
                           .dp = s->parallel.dp,
                           .pp = s->parallel.pp,
                           .tp = s->parallel.tp,
                           .steps = STEPS,
                           .source = source_of(x)};
    engine_go(&r, s);
    return r;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void check_gradients(const struct engine_run *one, const struct noise *d,
                            const struct noise *e, const char *which)
{
    const struct model_shape *m = &one->spec->model.shape;
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        if (noise_rounds(one, &p)) continue;
        CHECK_MSG(d->grad[i] <= noise_most(e->grad[i], NOISE_LEAST),
                  "%s: gradient of %s off by %.3g, want at most %.3g", which, p.name, d->grad[i],
                  e->grad[i]);
    }
}

/* Compares losses, norms, weights and moments with their bounds. The error of a vector is a mean
 * over thousands of elements. The error of a loss or of a norm is a single random number, and its
 * noise was measured from only a few such numbers. The bounds of losses and norms are therefore
 * twice as large. */
static void check_steps(const struct noise *d, const struct noise *e, const char *which)
{
    const double one_draw = 2;
    const struct {
        const char *name;
        double is, noise, least;
    } rows[] = {{"loss", d->loss, one_draw * e->loss, 4 * NOISE_LEAST},
                {"norm", d->norm, one_draw * e->norm, NOISE_LEAST},
                {"weights", d->weights, e->weights, NOISE_LEAST},
                {"m", d->m, e->m, NOISE_LEAST},
                {"v", d->v, e->v, NOISE_LEAST}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_MSG(rows[i].is <= noise_most(rows[i].noise, rows[i].least),
                  "%s: %s off by %.3g, want at most %.3g", which, rows[i].name, rows[i].is,
                  rows[i].noise);
}

/* Checks that under determinism "ranks" neither sp nor pp nor the sharding of state changes any
 * bit. */
static void check_bits(struct product *x, const struct engine_run *r, const char *which)
{
    static struct job_spec s;
    if (x->spec.determinism != DET_RANKS) return;
    s = x->spec;
    s.parallel.sp = s.parallel.pp = 1;
    s.parallel.ulysses = s.parallel.zero = s.parallel.zero_group = 0;
    struct engine_run want = train(x, &s);
    const size_t size = (size_t)want.plan.n_params * 4;
    CHECK_MSG(!memcmp(r->loss, want.loss, STEPS * sizeof *r->loss), "%s: losses", which);
    CHECK_MSG(!memcmp(r->weights, want.weights, size), "%s: weights", which);
    CHECK_MSG(!memcmp(r->adam_m, want.adam_m, size), "%s: m", which);
    CHECK_MSG(!memcmp(r->adam_v, want.adam_v, size), "%s: v", which);
    engine_free(&want);
}

static void keep_first(struct train *t, int rank, void *arg)
{
    if (t->step == 0) engine_collect(t, SHARDED_WEIGHTS, arg);
}

/* Reverses the order of rows in all tensors that have a row for each id. */
static void mirror_ids(const struct model_shape *m, float *x)
{
    for (int i = 0; i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        const int64_t cols = p.cols ? p.cols : 1;
        for (int64_t a = 0, b = p.rows - 1; p.of_ids && a < b; a++, b--)
            for (int64_t k = 0; k < cols; k++) {
                float *one = x + p.offset + a * cols + k, *other = x + p.offset + b * cols + k;
                const float was = *one;
                *one = *other;
                *other = was;
            }
    }
}

/* Runs the training on one rank with the ids in the opposite order, and adds its difference to
 * *bound. This is needed because ranks that share layers sum over ids in a different order than
 * one rank. */
static void join_other_ids(struct product *x, const struct engine_run *one, struct noise *bound)
{
    static struct job_spec s;
    static double of_tensors[MOST_TENSORS];
    struct noise d = {.grad = of_tensors};
    const struct model_shape *m = &s.model.shape;
    struct synth other = x->y;
    memset(of_tensors, 0, sizeof of_tensors);
    plain_spec(x, &s);
    float *initial = malloc((size_t)one->n * sizeof *initial);
    if (!initial) abort();
    struct engine_run r = {
        .P = 1, .steps = 1, .source = source_of(x), .before_step = keep_first, .arg = initial};
    engine_go(&r, &s);
    engine_free(&r);
    mirror_ids(m, initial);
    other.mirror = (int32_t)m->vocab;
    r = (struct engine_run){
        .P = 1, .steps = STEPS, .source = {synth_batch, synth_targets, &other}, .initial = initial};
    engine_go(&r, &s);
    float *const all[] = {r.weights, r.grad, r.adam_m, r.adam_v};
    for (int i = 0; i < 4; i++) mirror_ids(m, all[i]);
    noise_differ(&r, one, &d);
    noise_join(bound, &d, NOISE_PAIRS, param_tensors(m));
    engine_free(&r);
    free(initial);
}

static void check_product(struct product *x)
{
    static struct job_spec plain, own, s;
    static double noises[2][MOST_TENSORS];
    struct noise e = {.grad = noises[0]}, d = {.grad = noises[1]};
    struct engine_run one;
    char which[400];
    memset(noises, 0, sizeof noises);
    say(x, which, sizeof which);
    plain_spec(x, &plain);
    CHECK(param_tensors(&plain.model.shape) <= MOST_TENSORS);
    noise_measure(&(struct trial){&plain, source_of(x), STEPS}, &own, NOISE_PAIRS, &one, &e);
    if (x->spec.parallel.tp > 1) join_other_ids(x, &one, &e);
    s = x->spec;
    struct engine_run r = train(x, &s);
    CHECK(!offloads(&s) || r.plan.offload.n_out > 0);
    noise_differ(&r, &one, &d);
    if (!r.plan.fused) check_gradients(&one, &d, &e, which);
    check_steps(&d, &e, which);
    check_bits(x, &r, which);
    engine_free(&r), engine_free(&one);
}

static void test_products(void)
{
    static struct product x;
    const char *more = getenv("SEQD_TEST_PRODUCTS");
    const bool few = small_tests() || SANITIZED;
    const int n = more ? atoi(more) : few ? N_FEW : N_PRODUCTS;
    for (int i = 1; i <= n; i++) {
        draw_product(&x, i);
        check_product(&x);
    }
}

enum { N_AXES = 6 };

/* Checks that the drawn products contain every axis often enough. They must also contain every
 * pair of axes, and dp, sp, pp and tp together. */
static void test_drawn(void)
{
    static struct product x;
    static const char *const names[N_AXES] = {"dp", "sp", "pp", "tp", "ulysses", "offload"};
    int n[N_AXES][N_AXES] = {{0}}, all = 0;
    for (int i = 1; i <= N_PRODUCTS; i++) {
        draw_product(&x, i);
        const struct job_spec *s = &x.spec;
        const bool has[N_AXES] = {s->parallel.dp > 1, s->parallel.sp > 1,      s->parallel.pp > 1,
                                  s->parallel.tp > 1, s->parallel.ulysses > 1, offloads(s)};
        for (int k = 0; k < N_AXES * N_AXES; k++)
            n[k / N_AXES][k % N_AXES] += has[k / N_AXES] && has[k % N_AXES];
        all += has[0] && has[1] && has[2] && has[3];
    }
    for (int a = 0; a < N_AXES; a++)
        for (int b = 0; b <= a; b++)
            CHECK_MSG(n[a][b] >= (a == b ? 20 : 8), "%s with %s: %d", names[a], names[b], n[a][b]);
    CHECK_MSG(all >= 6, "all of dp, sp, pp, tp: %d", all);
}

/* ---- from one product to another ------------------------------------------------------------- */

enum { STOP = 2, ALL_STEPS = 4 };

struct change {
    struct axes from, to;
    int zero[2], tied;
};

/* The end of a first training, which stops after STOP steps. Another training starts from its
 * checkpoint. */
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

static struct engine_run leg(struct product *x, struct stop *at, const struct axes *a, int zero)
{
    static struct job_spec s;
    s = x->spec;
    s.parallel.zero = zero;
    struct engine_run r = {.P = a->sp,
                           .dp = a->dp,
                           .pp = a->pp,
                           .tp = a->tp,
                           .steps = STOP,
                           .first_step = at->info.path[0] ? STOP : 0,
                           .before_step = at->info.path[0] ? load : NULL,
                           .after_step = at->info.path[0] ? NULL : save,
                           .arg = at,
                           .source = source_of(x)};
    engine_go(&r, &s);
    return r;
}

/* Runs both trainings. The result of the second one then has the losses and norms of both. */
static void resume(struct product *x, const struct change *c, struct engine_run *r)
{
    struct stop at = {.dir = "/tmp/test_axes.XXXXXX"};
    struct err e = {0};
    if (!mkdtemp(at.dir)) abort();
    struct engine_run first = leg(x, &at, &c->from, c->zero[0]);
    CHECK(at.info.path[0]);
    *r = leg(x, &at, &c->to, c->zero[1]);
    for (int k = STOP; k-- > 0;) {
        r->loss[STOP + k] = r->loss[k], r->norm[STOP + k] = r->norm[k];
        r->loss[k] = first.loss[k], r->norm[k] = first.norm[k];
    }
    engine_free(&first);
    CHECK_MSG(!file_remove(at.dir, &e), "%s", e.text);
}

static void resumed_spec(struct product *x, const struct change *c)
{
    struct job_spec *s = &x->spec;
    *x = (struct product){.family = "resumed llama", .y = {.S = 37, .doc_len = 15, .vocab = 250}};
    engine_spec(s, x->y.S);
    s->model.shape.n_layers = 3;
    s->model.shape.vocab = 258; /* the vocabulary of the byte tokenizer */
    s->model.shape.max_pos = 4096;
    s->model.shape.tied = c->tied;
    s->train.global_batch = 4;
    s->optim.eps = 1e-2;
}

/* Checks trainings that are continued on a different product of axes. Their results must be within
 * the bounds of a training that one rank runs without a stop. */
static void test_resumed(void)
{
    static const struct change changes[] = {
        {{2, 2, 2, 1}, {1, 1, 4, 2}, {1, 1}, 0}, {{2, 2, 2, 1}, {1, 1, 4, 2}, {3, 2}, 1},
        {{1, 1, 4, 2}, {2, 2, 2, 2}, {0, 3}, 1}, {{2, 2, 2, 2}, {1, 1, 1, 1}, {2, 0}, 0},
        {{2, 2, 2, 2}, {1, 3, 2, 2}, {3, 1}, 1},
    };
    static struct product x;
    static struct job_spec plain, own;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct noise e = {0}, d = {0};
        struct engine_run one, r;
        char which[64];
        resumed_spec(&x, &changes[i]);
        plain_spec(&x, &plain);
        noise_measure(&(struct trial){&plain, source_of(&x), ALL_STEPS}, &own, 4, &one, &e);
        resume(&x, &changes[i], &r);
        noise_differ(&r, &one, &d);
        snprintf(which, sizeof which, "resumed on another product, %zu", i);
        check_steps(&d, &e, which);
        engine_free(&r), engine_free(&one);
    }
}

int main(void)
{
    RUN(test_drawn);
    RUN(test_products);
    RUN(test_resumed);
    return test_done("axes");
}
