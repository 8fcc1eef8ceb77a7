/* Checks data-parallel rings and ZeRO. For every product of dp, sp, stage of ZeRO and group, a
 * training must give the same result as on one rank. Every rank must send the bytes of the formula
 * (engine_steps checks this) and use the memory of the plan. A training must be able to resume
 * from a checkpoint that any other product of axes has saved. SEQD_TEST_PRODUCTS=N runs N random
 * products instead of a few. */
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "kernels/half.h"
#include "tests/lib/checkpoint.h"
#include "tests/lib/noise.h"
#include "worker/ckpt/scatter.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { STEPS = NOISE_STEPS };

/* A way to run the same training. */
struct way {
    int dp, sp, zero, recompute, layout, determinism;
    const char *isa;
    int group; /* zero_group; 0 means all ranks */
};

/* zero_group; 0 means a single group of all ranks */
struct what {
    struct synth y;
    int precision, tied;
    int64_t batch;
    double max_norm; /* 0 means no clipping; updates are then fused if a ring has one sample */
    bool may_skip;   /* a guard may skip steps, so updates are never fused */
};

static void set_spec(const struct what *x, const struct way *w)
{
    engine_spec(&spec, x->y.S);
    spec.model.shape.tied = x->tied;
    spec.model.shape.vocab = 67;
    spec.precision.params = x->precision;
    spec.train.global_batch = x->batch;
    spec.optim.max_grad_norm = x->max_norm;
    spec.guard.nonfinite = x->may_skip ? NONFINITE_SKIP : NONFINITE_FAIL;
    spec.parallel.zero = w->zero;
    spec.parallel.zero_group = w->group;
    spec.parallel.layout = w->layout;
    spec.memory.recompute = w->recompute;
    spec.determinism = w->determinism;
}

static struct engine_run go(struct what *x, const struct way *w, struct train_source source)
{
    set_spec(x, w);
    struct engine_run r = {
        .P = w->sp, .dp = w->dp, .steps = STEPS, .isa = w->isa, .source = source};
    engine_go(&r, &spec);
    return r;
}

static struct train_source source_of(struct what *x)
{
    return (struct train_source){synth_batch, synth_targets, &x->y};
}

static void say(const struct what *x, const struct way *w, char *out, size_t size)
{
    snprintf(out, size,
             "dp %d sp %d zero %d group %d recompute %d layout %d det %d batch %lld tied %d "
             "precision %d norm %g",
             w->dp, w->sp, w->zero, w->group, w->recompute, w->layout, w->determinism,
             (long long)x->batch, x->tied, x->precision, x->max_norm);
}

/* ---- random products against one rank -------------------------------------------------------- */

/* Checks that the gradient's norm is the norm of all its elements, whichever ranks own them. The
 * test sums at most 10^5 positive squares in double, so the rounding error of the sum is below
 * 10^5 * 2^-53 of it. The relative error of the root is half of that. */
static void check_norm(const struct engine_run *r, const char *which)
{
    double sum = 0;
    /* with fused updates no rank has the complete gradient, so the norm is compared with the norm
     * on one rank */
    if (r->plan.fused) return;
    for (int64_t i = 0; i < r->plan.n_params; i++) sum += (double)r->grad[i] * r->grad[i];
    CHECK_MSG(fabs(r->norm[0] / sqrt(sum) - 1) <= 1e5 * 0x1p-54, "%s: norm %.17g, want %.17g",
              which, r->norm[0], sqrt(sum));
}

/* ---- a product ------------------------------------------------------------------------------- */

static void check_product(struct what *x, const struct way *w)
{
    static const struct way plain = {.dp = 1,
                                     .sp = 1,
                                     .recompute = RECOMPUTE_NONE,
                                     .determinism = DET_RUN,
                                     .layout = LAYOUT_CONTIGUOUS};
    static struct job_spec trial, own;
    struct engine_run one;
    struct noise e = {0}, d = {0};
    char which[200];
    set_spec(x, &plain);
    trial = spec;
    noise_measure(&(struct trial){&trial, source_of(x), STEPS}, &own, 2, &one, &e);
    struct engine_run r = go(x, w, source_of(x));
    noise_differ(&r, &one, &d);
    say(x, w, which, sizeof which);
    CHECK_MSG(d.loss <= noise_most(e.loss, 4 * NOISE_LEAST), "%s: loss %.3g, %.3g", which, d.loss,
              e.loss);
    CHECK_MSG(d.norm <= noise_most(e.norm, NOISE_LEAST), "%s: norm %.3g, %.3g", which, d.norm,
              e.norm);
    CHECK_MSG(d.weights <= noise_most(e.weights, NOISE_LEAST), "%s: weights %.3g, %.3g", which,
              d.weights, e.weights);
    CHECK_MSG(d.m <= noise_most(e.m, NOISE_LEAST), "%s: m %.3g, %.3g", which, d.m, e.m);
    CHECK_MSG(d.v <= noise_most(e.v, NOISE_LEAST), "%s: v %.3g, %.3g", which, d.v, e.v);
    if (x->precision == PRECISION_FP32)
        CHECK_MSG(d.loss <= 1e-5, "%s: loss off by %.3g", which, d.loss);
    CHECK(r.plan.zero == (w->dp * w->sp > 1 ? w->zero : 0) && r.plan.dp == w->dp);
    CHECK(r.plan.zero_group == (w->group && r.plan.zero ? w->group : r.plan.n_ranks));
    check_norm(&r, which);
    engine_free(&one), engine_free(&r);
}

/* Returns the i-th random number of a product, in [0, n). */
static int draw(int product, int i, int n)
{
    return (int)(synth_hash((uint64_t)product * 64 + (uint64_t)i) % (uint32_t)n);
}

/* Draws a divisor of n with the i-th random number of a product. Returns the divisor, or 0 (the
 * default) if the divisor is n. */
static int draw_divisor(int product, int i, int n)
{
    int d = 1 + draw(product, i, n);
    while (n % d) d--;
    return d == n ? 0 : d;
}

static void test_products(void)
{
    const char *more = getenv("SEQD_TEST_PRODUCTS");
    const int n = more ? atoi(more) : small_tests() || SANITIZED ? 8 : 32;
    for (int i = 1; i <= n; i++) {
        struct what x = {.y = {.S = 30 + draw(i, 0, 30), .doc_len = draw(i, 1, 3) * 9, .vocab = 61},
                         .precision = draw(i, 2, 3) ? PRECISION_FP32 : PRECISION_BF16,
                         .tied = draw(i, 3, 2),
                         .max_norm = draw(i, 4, 2) ? 0.5 : 0};
        struct way w = {.dp = 1 + draw(i, 5, 4), .zero = draw(i, 6, 4)};
        w.sp = 1 + draw(i, 7, 8 / w.dp);
        w.group = w.zero ? draw_divisor(i, 12, w.dp * w.sp) : 0;
        w.recompute = RECOMPUTE_NONE + draw(i, 8, 3);
        x.batch = w.dp * (1 + draw(i, 9, 3));
        const bool bits = !(w.sp & (w.sp - 1)) && draw(i, 10, 3) == 0;
        w.determinism = bits ? DET_RANKS : DET_RUN;
        w.layout = bits ? LAYOUT_CONTIGUOUS : LAYOUT_CONTIGUOUS + draw(i, 11, 2);
        check_product(&x, &w);
    }
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void check_bits(struct what *x, const struct way *w, const struct engine_run *want)
{
    char which[200];
    struct engine_run r = go(x, w, source_of(x));
    const size_t size = (size_t)want->plan.n_params * 4;
    say(x, w, which, sizeof which);
    CHECK_MSG(!memcmp(r.loss, want->loss, STEPS * sizeof *r.loss), "%s: losses", which);
    CHECK_MSG(!memcmp(r.norm, want->norm, STEPS * sizeof *r.norm), "%s: norms", which);
    CHECK_MSG(!memcmp(r.weights, want->weights, size), "%s: weights", which);
    CHECK_MSG(!memcmp(r.adam_m, want->adam_m, size), "%s: m", which);
    CHECK_MSG(!memcmp(r.adam_v, want->adam_v, size), "%s: v", which);
    engine_free(&r);
}

/* Checks every group whose size is a power of two, and the group of all ranks. */
static void check_groups(struct what *x, struct way *w, const struct engine_run *want)
{
    static int turn;
    for (w->group = w->zero ? 1 : w->dp * w->sp; w->group < w->dp * w->sp; w->group *= 2)
        if (!small_leaves(turn++, 3)) check_bits(x, w, want);
    w->group = 0;
    check_bits(x, w, want);
}

/* Checks determinism "ranks". If dp is fixed, then sp, the stage of ZeRO and the groups must not
 * change a bit. With one ring, the bits must be the same as on one rank. The cases include
 * accumulated gradients. They also include a tied head, whose two parts are summed separately. */
static void test_bits(void)
{
    const int stages = SANITIZED || small_tests() ? 3 : 1; /* steps through the stages of ZeRO */
    for (int i = 0; i < 4; i++)
        for (int dp = 1; dp <= 2; dp++) {
            struct what x = {.y = {.S = 37, .doc_len = 11, .vocab = 61},
                             .tied = i & 1,
                             .batch = dp * (i & 2 ? 3 : 1),
                             .max_norm = 1};
            struct way w = {.dp = dp,
                            .sp = 1,
                            .recompute = RECOMPUTE_NONE,
                            .layout = LAYOUT_CONTIGUOUS,
                            .determinism = DET_RANKS};
            struct engine_run want = go(&x, &w, source_of(&x));
            for (w.sp = 1; w.sp * dp <= 8; w.sp *= 2)
                for (w.zero = 0; w.zero <= 3; w.zero += stages) check_groups(&x, &w, &want);
            engine_free(&want);
        }
}

/* Checks that an update within the backward pass has the same result as an update after it. */
static void test_fused(void)
{
    for (int i = 0; i < 8; i++) {
        struct what x = {.y = {.S = 40, .vocab = 61}, .tied = i & 1, .batch = 2, .may_skip = true};
        struct way w = {.dp = 2,
                        .sp = 1 + (i >> 1 & 1),
                        .zero = i >> 1,
                        .recompute = RECOMPUTE_NONE,
                        .layout = LAYOUT_CONTIGUOUS,
                        .determinism = DET_RANKS};
        struct engine_run later = go(&x, &w, source_of(&x));
        const int64_t size = later.plan.class_size[PLAN_GRADIENTS];
        CHECK(!later.plan.fused);
        x.may_skip = false;
        struct engine_run now = go(&x, &w, source_of(&x));
        CHECK(now.plan.fused && strstr(now.plan.reason, "fused"));
        /* the plan has memory for a bucket of gradients, and none for a shard */
        CHECK(now.plan.class_size[PLAN_GRADIENTS] < size);
        engine_free(&now);
        check_bits(&x, &w, &later);
        engine_free(&later);
    }
}

/* ---- 200 steps ------------------------------------------------------------------------------- */

static void test_200_steps(void)
{
    struct synth y = {.S = 40, .doc_len = 15, .vocab = 61};
    const int64_t steps = SANITIZED ? 20 : 200;
    struct engine_run r[2];
    for (int i = 0; i < 2; i++) {
        engine_spec(&spec, y.S);
        spec.train.global_batch = 2;
        spec.train.steps = steps;
        spec.parallel.zero = i;
        r[i] = (struct engine_run){
            .P = 1 + i, .dp = 1 + i, .steps = steps, .source = {synth_batch, synth_targets, &y}};
        engine_go(&r[i], &spec);
    }
    double worst = 0;
    for (int64_t k = 0; k < steps; k++)
        worst = noise_most(worst, fabs(r[0].loss[k] - r[1].loss[k]));
    CHECK_MSG(worst <= 1e-5, "losses of %lld steps differ by %.3g", (long long)steps, worst);
    /* The model learns, so trainings could differ. */
    CHECK(r[0].loss[steps - 1] < (SANITIZED ? 1 : 0.9) * r[0].loss[0]);
    engine_free(&r[0]), engine_free(&r[1]);
}

/* ---- targets at uneven places ---------------------------------------------------------------- */

/* Returns sample n. Its first (n * 17) mod 40 tokens have targets. Every fourth sample has no
 * target at all, so that one of four rings has nothing to learn from. */
static struct synth uneven(int64_t n)
{
    struct synth y = {.S = 40, .vocab = 61, .bare_from = n * 17 % 40};
    if (n % 4 == 3 || !y.bare_from) y.doc_len = 1;
    return y;
}

static int64_t uneven_targets(void *arg, int64_t n, struct err *e)
{
    struct synth y = uneven(n);
    return synth_targets(&y, n, e);
}

static int uneven_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    struct synth y = uneven(n);
    return synth_batch(&y, sh, n, b, e);
}

static void test_uneven_targets(void)
{
    const struct train_source source = {uneven_batch, uneven_targets, NULL};
    struct err e = {0};
    CHECK(uneven_targets(NULL, 3, &e) == 0 && uneven_targets(NULL, 1, &e) == 17);
    for (int zero = 0; zero <= 3; zero++) {
        struct what x = {.y = {.S = 40}, .tied = zero & 1, .batch = 8, .max_norm = 1};
        struct way w = {.dp = 1,
                        .sp = 1,
                        .recompute = RECOMPUTE_NONE,
                        .determinism = DET_RUN,
                        .layout = LAYOUT_CONTIGUOUS};
        struct way chunks = w;
        struct noise noise = {0}, d = {0};
        chunks.determinism = DET_RANKS;
        struct engine_run one = go(&x, &w, source), a = go(&x, &chunks, source);
        noise_differ(&a, &one, &noise);
        w = (struct way){4, 2, zero, RECOMPUTE_FULL, LAYOUT_ZIGZAG, DET_RUN, NULL};
        struct engine_run r = go(&x, &w, source);
        noise_differ(&r, &one, &d);
        CHECK_MSG(d.loss <= noise_most(4 * noise.loss, 0x1p-20) && d.loss <= 1e-5,
                  "zero %d: loss %.3g", zero, d.loss);
        CHECK_MSG(d.weights <= noise_most(4 * noise.weights, 0x1p-22),
                  "zero %d: weights %.3g, %.3g", zero, d.weights, noise.weights);
        engine_free(&one), engine_free(&a), engine_free(&r);
    }
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

enum { LEG = 3, LEGS = 3, BATCH = 4 };

struct journey {
    struct synth y;
    char dir[64];
    struct ckpt_info info;
    int leg;
    int seen[LEG * LEGS * BATCH]; /* how often the first rank of a ring has received this sample */
    float *w, *m, *v, *ema;       /* the arrays that were saved and that the next leg loads */
    float *ema_next;              /* the array that this leg saves */
    struct comm_count moved[8];   /* the bytes that each rank sent for CONTROL while saving */
};

static int log_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    struct journey *j = arg;
    if (sh->r == 0) __atomic_fetch_add(&j->seen[n], 1, __ATOMIC_RELAXED);
    return synth_batch(&j->y, sh, n, b, e);
}

static int64_t log_targets(void *arg, int64_t n, struct err *e)
{
    return synth_targets(&((struct journey *)arg)->y, n, e);
}

/* Loads the checkpoint. Only rank 0 has its directory. */
static void load_first(struct train *t, int rank, void *arg)
{
    struct journey *j = arg;
    struct err e = {0};
    const struct ckpt_arrays a = scatter_arrays(&t->state);
    struct ckpt_state s = {0};
    if (j->leg == 0 || t->step != j->leg * LEG) return;
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
    } else {
        CHECK_MSG(!checkpoint_load(j->info.path, &t->model.shape, &a, &s, &e), "%s", e.text);
        CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
        CHECK(s.step == t->step && s.next_sample == t->step * BATCH);
    }
    /* Every array must have the same bits as before, even if its elements are on other ranks
     * now. */
    const struct {
        enum sharded_array which;
        const float *want;
    } all[] = {
        {SHARDED_WEIGHTS, j->w}, {SHARDED_M, j->m}, {SHARDED_V, j->v}, {SHARDED_EMA, j->ema}};
    const int64_t n = param_count(&t->model.shape);
    for (int i = 0; i < 4; i++) {
        float *got = malloc((size_t)n * 4);
        if (!got) abort();
        memcpy(got, all[i].want, (size_t)n * 4);
        CHECK_MSG(!sharded_read(&t->state, all[i].which, 0, n, got, &e), "%s", e.text);
        CHECK_MSG(!memcmp(got, all[i].want, (size_t)n * 4), "leg %d rank %d array %d", j->leg, rank,
                  i);
        free(got);
    }
}

static void save_last(struct train *t, int rank, void *arg)
{
    struct journey *j = arg;
    struct err e = {0};
    if (t->step != (j->leg + 1) * LEG) return;
    engine_collect(t, SHARDED_EMA, j->ema_next);
    if (t->model.job) comm_ledger_reset(t->model.job);
    if (rank) {
        CHECK_MSG(!scatter_serve(&t->state, &e), "%s", e.text);
    } else {
        const struct ckpt_arrays a = scatter_arrays(&t->state);
        const struct ckpt_state s = {.step = t->step, .next_sample = t->step * BATCH};
        t->state.still_s = 0; /* makes it look as if rank 0 had not reported for a long time */
        CHECK_MSG(!ckpt_save(j->dir, 1, &t->model.shape, &a, &s, &j->info, &e), "%s", e.text);
        CHECK_MSG(!scatter_end(&t->state, &e), "%s", e.text);
    }
    j->moved[rank] = (struct comm_count){0};
    if (t->model.job) j->moved[rank] = comm_ledger(t->model.job)[PURPOSE_CONTROL];
}

/* Checks that rank 0 has received each element that it does not own exactly once. The elements are
 * those of the weights, m, v and the average. In bf16 there are two sets of weights: the weights
 * of the model and the master weights. */
static void check_moved(const struct journey *j, const struct plan *p)
{
    int64_t others = 0, sent = 0;
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param t;
        param_get(&spec.model.shape, i, &t);
        const struct zero_range own = zero_range(&p->shards, zero_bucket(&p->shards, t.offset), 0);
        const bool here = zero_bucket(&p->shards, t.offset) < p->pipe.first[1];
        const int64_t lo = t.offset > own.begin ? t.offset : own.begin;
        const int64_t end = t.offset + t.count, hi = end < own.end ? end : own.end;
        others += p->zero ? t.count - (here && hi > lo ? hi - lo : 0) : here ? 0 : t.count;
    }
    const int n_arrays = p->precision == PRECISION_BF16 ? 5 : 4;
    for (int r = 1; r < p->n_ranks; r++) {
        sent += j->moved[r].bytes_sent;
        /* Each rank receives at least two messages, even if it has no element to send. The first
         * says that rank 0 is still saving, and the second says that rank 0 has finished. */
        CHECK(j->moved[r].messages_received >= 2);
    }
    CHECK_MSG(j->moved[0].bytes_received == others * 4 * n_arrays, "%lld bytes, want %lld",
              (long long)j->moved[0].bytes_received, (long long)(others * 4 * n_arrays));
    CHECK(sent == j->moved[0].bytes_received);
}

/* Runs one leg of the training. w has these numbers: the ranks of a ring, the rings, zero,
 * zero_group, and the pipeline stages (0 means one). */
static void one_leg(struct journey *j, int precision, const int w[5])
{
    engine_spec(&spec, j->y.S);
    spec.model.shape.vocab = 258; /* the vocabulary of the byte tokenizer */
    spec.model.shape.max_pos = 4096;
    spec.train.global_batch = BATCH;
    spec.precision.params = precision;
    spec.parallel.zero = w[2];
    spec.parallel.zero_group = w[3];
    spec.ema.decay = 0.9;
    j->ema_next = calloc((size_t)param_count(&spec.model.shape), 4);
    if (!j->ema_next) abort();
    struct engine_run r = {.P = w[0],
                           .dp = w[1],
                           .pp = w[4],
                           .steps = LEG,
                           .first_step = j->leg * LEG,
                           .before_step = load_first,
                           .after_step = save_last,
                           .arg = j,
                           .source = {log_batch, log_targets, j}};
    engine_go(&r, &spec);
    check_moved(j, &r.plan);
    free(j->w), free(j->m), free(j->v), free(j->ema);
    j->w = r.weights, j->m = r.adam_m, j->v = r.adam_v, j->ema = j->ema_next;
    free(r.grad);
    j->leg++;
}

/* Checks trainings that continue on different numbers of ranks, for example on 4, then 2, then 8.
 * The cases have one or two rings, every stage of ZeRO, with and without groups, and pipeline
 * stages. The order of the data must be the same as on one rank. */
static void test_resume(void)
{
    static const int ways[][LEGS][5] = {{{4, 1, 1, 0}, {1, 2, 2, 0}, {4, 2, 3, 0}},
                                        {{2, 2, 3, 0}, {2, 1, 0, 0}, {2, 4, 1, 0}},
                                        {{2, 2, 1, 2}, {1, 4, 3, 2}, {4, 2, 2, 4}},
                                        {{4, 2, 3, 2}, {1, 2, 3, 1}, {3, 2, 2, 3}},
                                        {{2, 1, 1, 0, 2}, {2, 2, 3, 2, 2}, {1, 1, 0, 0}},
                                        {{1, 2, 2, 0}, {1, 1, 0, 0, 2}, {1, 4, 3, 0, 2}}};
    for (int i = 0; i < 12; i++) {
        struct journey j = {.y = {.S = 50, .doc_len = 21, .vocab = 61}};
        struct err e = {0};
        snprintf(j.dir, sizeof j.dir, "/tmp/test_dp.XXXXXX");
        if (!mkdtemp(j.dir)) abort();
        for (int leg = 0; leg < LEGS; leg++) {
            one_leg(&j, i & 1 ? PRECISION_BF16 : PRECISION_FP32, ways[i >> 1][leg]);
        }
        for (int n = 0; n < LEG * LEGS * BATCH; n++) {
            const int pp = ways[i >> 1][n / (LEG * BATCH)][4];
            /* each stage reads a sample for both of its passes */
            const int want = pp > 1 ? 2 * pp : 1;
            CHECK_MSG(j.seen[n] == want, "sample %d was taken %d times", n, j.seen[n]);
        }
        CHECK_MSG(!file_remove(j.dir, &e), "%s", e.text);
        free(j.w), free(j.m), free(j.v), free(j.ema);
    }
}

int main(void)
{
    RUN(test_products);
    RUN(test_bits);
    RUN(test_fused);
    RUN(test_200_steps);
    RUN(test_uneven_targets);
    RUN(test_resume);
    return test_done("dp");
}
