/* Compares training with a float64 oracle, and several ranks with one rank. Under determinism
 * "ranks" the bits must be equal.
 * tests: needs golden */
#include <errno.h>
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/train/schedule.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

/* ---- golden: 20 steps of tests/golden/make_golden.py (float64, PyTorch) ---------------------- */

struct golden {
    char *file;
    int64_t S, B, steps, n_params;
    const int32_t *samples; /* for each sample, S ids, S targets, S pos and S lo */
    const double *loss, *norm;
    const float *initial, *final;
};

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    const struct golden *g = arg;
    const int32_t *s = g->samples + n * 4 * g->S;
    b->n_tokens = g->S;
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t p = shard_pos(sh, i);
        const bool pad = p >= g->S;
        b->ids[i] = pad ? 257 : s[p];
        b->targets[i] = pad ? -1 : s[g->S + p];
        b->pos[i] = pad ? 0 : s[2 * g->S + p];
        b->lo[i] = pad ? 0 : s[3 * g->S + p];
        b->hi[i] = pad ? 0 : p + 1;
    }
    return 0;
}

static int64_t golden_targets(void *arg, int64_t n, struct err *e)
{
    const struct golden *g = arg;
    int64_t count = 0;
    for (int64_t i = 0; i < g->S; i++) count += g->samples[(n * 4 + 1) * g->S + i] >= 0;
    return count;
}

static void golden_spec(const int64_t h[14], const double d[9])
{
    engine_spec(&spec, h[8]);
    spec.model.shape = (struct model_shape){.n_layers = (int32_t)h[0],
                                            .width = h[1],
                                            .n_heads = h[2],
                                            .n_kv_heads = h[3],
                                            .head_dim = h[4],
                                            .ffn_width = h[5],
                                            .vocab = h[6],
                                            .tied = (int32_t)h[7],
                                            .norm_eps = d[0],
                                            .rope_theta = d[1]};
    spec.train.global_batch = h[9];
    spec.train.steps = h[10];
    spec.schedule.warmup_steps = h[11];
    spec.optim.lr = d[2];
    spec.optim.beta1 = d[3];
    spec.optim.beta2 = d[4];
    spec.optim.eps = d[5];
    spec.optim.weight_decay = d[6];
    spec.optim.max_grad_norm = d[7];
    spec.schedule.min_lr_ratio = d[8];
}

static bool golden_open(struct golden *g, const char *name)
{
    char path[256];
    *g = (struct golden){0};
    snprintf(path, sizeof path, "tests/golden/%s", name);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "%s: run from the repository's root", path);
    if (!f) return false;
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    g->file = malloc((size_t)size);
    const bool ok = g->file && fread(g->file, 1, (size_t)size, f) == (size_t)size &&
                    !memcmp(g->file, "SEQDGOLD", 8);
    fclose(f);
    CHECK_MSG(ok, "%s is not a golden file", path);
    if (!ok) return false;
    const int64_t *h = (const int64_t *)(g->file + 8);
    golden_spec(h, (const double *)(g->file + 8 + 14 * 8));
    g->S = h[8], g->B = h[9], g->steps = h[10], g->n_params = h[12];
    g->samples = (const int32_t *)(g->file + 8 + 14 * 8 + 9 * 8);
    g->loss = (const double *)(g->samples + g->steps * g->B * 4 * g->S);
    g->norm = g->loss + g->steps;
    g->initial = (const float *)(g->norm + g->steps);
    g->final = g->initial + g->n_params;
    CHECK((const char *)(g->final + g->n_params) == g->file + size);
    return true;
}

/* Copies the tensors of the file, which are stored without gaps, to our layout, in which tensors
 * are aligned. */
static float *spread(const float *packed)
{
    float *out = calloc((size_t)param_count(&spec.model.shape), 4);
    struct param p;
    if (!out) abort();
    for (int i = 0; i < param_tensors(&spec.model.shape); i++, packed += p.count) {
        param_get(&spec.model.shape, i, &p);
        memcpy(out + p.offset, packed, (size_t)p.count * 4);
    }
    return out;
}

static void check_golden(const struct golden *g, const struct engine_run *r)
{
    for (int64_t k = 0; k < g->steps; k++) {
        CHECK_MSG(fabs(r->loss[k] - g->loss[k]) <= 1e-5 * g->loss[k], "P %d step %lld: %.9g, %.9g",
                  r->P, (long long)k, r->loss[k], g->loss[k]);
        CHECK_MSG(fabs(r->norm[k] - g->norm[k]) <= 1e-4 * g->norm[k],
                  "P %d step %lld norm: %.9g, %.9g", r->P, (long long)k, r->norm[k], g->norm[k]);
    }
    float *want = spread(g->final);
    struct param p;
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        param_get(&spec.model.shape, i, &p);
        const double d = rel_l2(r->weights + p.offset, want + p.offset, p.count);
        CHECK_MSG(d <= 1e-4, "P %d %s: rel-L2 %.3g", r->P, p.name, d);
    }
    free(want);
}

static void run_golden(const char *name)
{
    static const struct {
        int P, determinism, recompute, threads;
        int64_t chunk;   /* the number of tokens in a chunk of the loss; 0 means "auto", and 3 is
                          * less than a logical chunk */
        const char *isa; /* NULL means the best instruction set */
    } ways[] = {{1, DET_RUN, RECOMPUTE_NONE, 1, 0, "portable"},
                {1, DET_RUN, RECOMPUTE_NONE, 1, 7, NULL},
                {1, DET_RANKS, RECOMPUTE_FULL, 2, 3, NULL},
                {2, DET_RUN, RECOMPUTE_SELECTIVE, 1, 0, NULL},
                {3, DET_RUN, RECOMPUTE_FULL, 1, 7, "portable"},
                {3, DET_RUN, RECOMPUTE_FULL, 1, 3, NULL},
                {4, DET_RANKS, RECOMPUTE_NONE, 1, 3, NULL},
                {4, DET_RANKS, RECOMPUTE_SELECTIVE, 1, 0, "portable"}};
    struct golden g;
    if (!golden_open(&g, name)) return;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        float *initial = spread(g.initial);
        spec.determinism = ways[i].determinism;
        spec.memory.recompute = ways[i].recompute;
        spec.resources.threads = ways[i].threads;
        spec.memory.loss_chunk_tokens = ways[i].chunk;
        struct engine_run r = {.P = ways[i].P,
                               .steps = g.steps,
                               .isa = ways[i].isa,
                               .initial = initial,
                               .source = {golden_batch, golden_targets, &g}};
        engine_go(&r, &spec);
        if (r.weights) check_golden(&g, &r);
        engine_free(&r);
        free(initial);
    }
    free(g.file);
}

static void test_golden_untied(void)
{
    run_golden("llama_untied.bin");
}

static void test_golden_tied(void)
{
    run_golden("llama_tied.bin");
}

/* ---- to the bit: determinism "ranks" --------------------------------------------------------- */

/* Under sanitizers, only a few steps of the short sequences are run. These steps run the same code
 * as all steps, in a tenth of the time. */
enum { BITS_STEPS = SANITIZED ? 4 : 20 };

struct bits_case {
    int64_t S, accumulation, doc_len;
    int tied, recompute;
    const char *isa; /* NULL means the best instruction set */
};

static struct engine_run bits_run(const struct bits_case *c, struct synth *y, int P, int threads)
{
    engine_spec(&spec, c->S);
    spec.determinism = DET_RANKS;
    spec.model.shape.tied = c->tied;
    spec.train.global_batch = c->accumulation;
    spec.resources.threads = threads;
    spec.memory.recompute = c->recompute;
    spec.memory.loss_chunk_tokens = c->recompute == RECOMPUTE_FULL ? 50 : 0;
    /* the time of attention grows with S x S; with fewer heads the same code is run in less
     * time */
    if (c->S > 1000) {
        spec.model.shape.n_layers = 1;
        spec.model.shape.n_heads = 2;
        spec.model.shape.n_kv_heads = 1;
        spec.model.shape.width = 16;
        spec.model.shape.ffn_width = 24;
    }
    *y = (struct synth){.S = c->S, .doc_len = c->doc_len, .vocab = 61};
    struct engine_run r = {
        .P = P, .steps = BITS_STEPS, .isa = c->isa, .source = {synth_batch, synth_targets, y}};
    engine_go(&r, &spec);
    return r;
}

static void check_same_bits(const struct bits_case *c, const struct engine_run *r, int threads,
                            const struct engine_run *one)
{
    int64_t k = 0, i = 0;
    while (k < BITS_STEPS && r->loss[k] == one->loss[k]) k++;
    CHECK_MSG(k == BITS_STEPS,
              "S %lld acc %lld tied %d threads %d P %d: step %lld loss %.17g, not %.17g",
              (long long)c->S, (long long)c->accumulation, c->tied, threads, r->P, (long long)k,
              r->loss[k], one->loss[k]);
    if (!r->weights || !one->weights) return;
    while (i < r->plan.n_params && !memcmp(&r->weights[i], &one->weights[i], 4)) i++;
    CHECK_MSG(i == r->plan.n_params, "S %lld acc %lld tied %d threads %d P %d: weight %lld",
              (long long)c->S, (long long)c->accumulation, c->tied, threads, r->P, (long long)i);
}

static void check_bits(const struct bits_case *c)
{
    struct synth y;
    struct engine_run one = bits_run(c, &y, 1, 1);
    for (int threads = 1; threads <= 2; threads++)
        for (int P = 1; P <= 8; P *= 2) {
            if (P == 1 && threads == 1) continue;
            struct engine_run r = bits_run(c, &y, P, threads);
            check_same_bits(c, &r, threads, &one);
            engine_free(&r);
        }
    /* Four steps, as under sanitizers, need not lower the loss of two tokens. */
    CHECK((SANITIZED && c->S == 2) || one.loss[BITS_STEPS - 1] < one.loss[0]);
    engine_free(&one);
}

/* Checks accumulation of 1 and 3 samples, tied and untied, on P = 1, 2, 4 and 8 ranks, each with 1
 * and 2 threads. */
static void bits_product(int64_t S, int64_t doc_len)
{
    for (int i = 0; i < 4; i++)
        check_bits(&(struct bits_case){.S = S,
                                       .accumulation = i & 1 ? 3 : 1,
                                       .tied = i >> 1,
                                       .doc_len = i == 1 || i == 2 ? doc_len : 0,
                                       .recompute = 1 + i % 3});
}

static void test_bits_37(void)
{
    bits_product(37, 11);
}

static void test_bits_1000(void)
{
    bits_product(1000, 130);
}

static void test_bits_4096(void)
{
    bits_product(4096, 700);
}

static void test_bits_other_isas(void)
{
    for (const char *const *isa = be_isas() + 1; *isa; isa++) {
        if (!strncmp(*isa, "avx512", 6))
            continue; /* in fp32, such a set uses the same instructions as the best set */
        check_bits(&(struct bits_case){
            .S = 203, .accumulation = 3, .tied = 1, .doc_len = 90, .recompute = 3, .isa = *isa});
    }
}

/* Checks sequences of three tokens and of two, with which five or six of eight ranks have only
 * padding. A sequence has at least two tokens, because a single token has no target. */
static void test_bits_short(void)
{
    check_bits(&(struct bits_case){.S = 3, .accumulation = 3, .recompute = 1});
    check_bits(&(struct bits_case){.S = 2, .accumulation = 3, .recompute = 1});
}

/* ---- resume ---------------------------------------------------------------------------------- */

static struct engine_run some_steps(struct synth *y, int P, int64_t first, int64_t n,
                                    const struct engine_run *from)
{
    engine_spec(&spec, y->S);
    spec.train.global_batch = 2;
    struct engine_run r = {
        .P = P, .steps = n, .first_step = first, .source = {synth_batch, synth_targets, y}};
    if (from) r.initial = from->weights, r.m = from->adam_m, r.v = from->adam_v;
    engine_go(&r, &spec);
    return r;
}

static void test_resume(void)
{
    struct synth y = {.S = 150, .doc_len = 40, .vocab = 61};
    struct engine_run whole = some_steps(&y, 2, 0, 30, NULL), half = some_steps(&y, 2, 0, 10, NULL);
    struct engine_run same = some_steps(&y, 2, 10, 20, &half);
    CHECK(!memcmp(same.loss, whole.loss + 10, 20 * sizeof(double)));
    CHECK(!memcmp(same.weights, whole.weights, (size_t)whole.plan.n_params * 4));
    for (int P = 1; P <= 4; P += P == 1 ? 2 : 1) { /* 1, 3, 4 */
        struct engine_run other = some_steps(&y, P, 10, 20, &half);
        for (int k = 0; k < 20; k++) {
            const double d = fabs(other.loss[k] / whole.loss[10 + k] - 1);
            CHECK_MSG(d <= (k ? 1e-5 : 1e-6), "P %d step %d: off by %.3g", P, k, d);
        }
        engine_free(&other);
    }
    engine_free(&same);
    engine_free(&half);
    engine_free(&whole);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

struct falsified {
    int purpose, number;
};

static void falsify(struct train *t, int rank, void *arg)
{
    const struct falsified *f = arg;
    if (rank == 1 && t->step == 0) ((int64_t *)&t->own[f->purpose])[f->number]++;
}

/* For each purpose, lets one rank count one byte or one message less than it sends. Every rank
 * must report the difference. */
static void test_ledger_tells(void)
{
    static const int purposes[] = {PURPOSE_RING_KV, PURPOSE_RING_DKV, PURPOSE_GRAD,
                                   PURPOSE_PARAM,   PURPOSE_LOSS,     PURPOSE_CONTROL};
    static struct falsified f;
    struct synth y = {.S = 20, .vocab = 61};
    _Static_assert(sizeof(struct comm_count) == 4 * sizeof(int64_t), "four numbers");
    for (size_t i = 0; i < sizeof purposes / sizeof *purposes; i++)
        for (f.number = 0; f.number < 4; f.number++) {
            f.purpose = purposes[i];
            engine_spec(&spec, y.S);
            spec.parallel.zero = 1;
            struct engine_run r = {.P = 3,
                                   .steps = 2,
                                   .before_step = falsify,
                                   .arg = &f,
                                   .ledger_differs = true,
                                   .source = {synth_batch, synth_targets, &y}};
            engine_go(&r, &spec);
            engine_free(&r);
        }
}

/* ---- memory ---------------------------------------------------------------------------------- */

#if !SANITIZED /* sanitizers have a malloc of their own */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t);
void *calloc(size_t, size_t);
void *realloc(void *, size_t);
/* while it is set, every thread of the process counts allocations */
static int watched, n_allocations;

static void count_one(void)
{
    if (__atomic_load_n(&watched, __ATOMIC_RELAXED))
        __atomic_fetch_add(&n_allocations, 1, __ATOMIC_RELAXED);
}

void *malloc(size_t n)
{
    count_one();
    return __libc_malloc(n);
}

void *calloc(size_t a, size_t b)
{
    count_one();
    return __libc_calloc(a, b);
}

void *realloc(void *p, size_t n)
{
    count_one();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count_one();
    return __libc_memalign(align, n);
}

int posix_memalign(void **p, size_t align, size_t n)
{
    count_one();
    *p = __libc_memalign(align, n);
    return *p ? 0 : ENOMEM;
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    count_one();
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
#endif

#if !SANITIZED
/* the barrier at which all ranks wait before and after a step, so that either all ranks are in the
 * step or none is */
static pthread_barrier_t watch_line;

static void watch_on(struct train *t, int rank, void *arg)
{
    pthread_barrier_wait(&watch_line);
    __atomic_store_n(&watched, 1, __ATOMIC_SEQ_CST);
}

static void watch_off(struct train *t, int rank, void *arg)
{
    pthread_barrier_wait(&watch_line);
    __atomic_store_n(&watched, 0, __ATOMIC_SEQ_CST);
    pthread_barrier_wait(&watch_line);
}

static void test_no_allocation(void)
{
    static const struct {
        int P, dp, zero, determinism, recompute, precision, pp;
    } ways[] = {{1, 1, 0, DET_RUN, RECOMPUTE_NONE, PRECISION_FP32},
                {3, 1, 1, DET_RUN, RECOMPUTE_FULL, PRECISION_FP32},
                {4, 1, 0, DET_RANKS, RECOMPUTE_SELECTIVE, PRECISION_FP32},
                {2, 1, 2, DET_RUN, RECOMPUTE_SELECTIVE, PRECISION_BF16},
                {2, 2, 3, DET_RUN, RECOMPUTE_NONE, PRECISION_FP32},
                {2, 1, 2, DET_RUN, RECOMPUTE_NONE, PRECISION_FP32, 2}};
    struct synth y = {.S = 120, .doc_len = 50, .vocab = 61};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        engine_spec(&spec, y.S);
        spec.parallel.zero = ways[i].zero;
        spec.determinism = ways[i].determinism;
        spec.memory.recompute = ways[i].recompute;
        spec.precision.params = ways[i].precision;
        spec.train.global_batch = 2;
        spec.resources.threads = 2;
        struct engine_run r = {.P = ways[i].P,
                               .dp = ways[i].dp,
                               .pp = ways[i].pp,
                               .steps = 3,
                               .before_step = watch_on,
                               .after_step = watch_off,
                               .source = {synth_batch, synth_targets, &y}};
        pthread_barrier_init(&watch_line, NULL, (unsigned)(r.P * r.dp * (r.pp ? r.pp : 1)));
        n_allocations = 0;
        engine_go(&r, &spec);
        CHECK_MSG(n_allocations == 0, "P %d: %d allocations in 3 steps", r.P, n_allocations);
        CHECK(r.weights);
        /* Checks that the hook counts allocations. If `held` were not volatile, the compiler could
         * remove the calls. */
        void *volatile held;
        watched = 1;
        held = malloc(1);
        free(held);
        held = aligned_alloc(64, 64);
        free(held);
        engine_unpage(engine_pages(PLAN_PAGE), PLAN_PAGE);
        watched = 0;
        CHECK(n_allocations == 3);
        engine_free(&r);
        pthread_barrier_destroy(&watch_line);
    }
}
#endif

/* Returns the bytes of the arena's pages that were touched. The scratch of the backend and the
 * buffer of collectives have spare room, because they are as large as any job may need. */
static int64_t arena_bytes(struct train *t)
{
    const struct plan *p = t->plan;
    char *arena = (char *)t->model.params - p->item[PLAN_PARAMS].offset;
    return pages_touched(arena, p->arena_size, &p->item[PLAN_SCRATCH]);
}

struct rss {
    int64_t before, after, arena;
};

static void rss_before(struct train *t, int rank, void *arg)
{
    struct rss *r = arg;
    char *arena = (char *)t->model.params - t->plan->item[PLAN_PARAMS].offset;
    if (!r->before) /* no page of the arena is resident */
        madvise(arena, (size_t)t->plan->arena_size, MADV_DONTNEED);
    sharded_random(&t->state, 1);
    for (int64_t j = 0; j < t->model.shape.head_dim / 2; j++)
        t->model.inv_freq[j] = pow(1e4, -2.0 * (double)j / (double)t->model.shape.head_dim);
    const struct plan_item *item = t->plan->item;
    r->before = pages_anonymous() - item[PLAN_PARAMS].size - item[PLAN_MASTER].size;
}

static void rss_after(struct train *t, int rank, void *arg)
{
    struct rss *r = arg;
    r->arena = arena_bytes(t);
    r->after = pages_anonymous();
}

/* Checks that the memory of the process grows by the pages of the arena, and otherwise only a
 * little, for stacks and libc. */
static void test_pages(void)
{
    struct synth y = {.S = 2000, .doc_len = 90, .vocab = 61};
    for (int i = 0; i < 6; i++) {
        struct rss rss = {0};
        engine_spec(&spec, y.S);
        spec.memory.recompute = RECOMPUTE_NONE + i % 3;
        spec.precision.params = i < 3 ? PRECISION_FP32 : PRECISION_BF16;
        struct engine_run r = {.P = 1,
                               .steps = 1,
                               .before_step = rss_before,
                               .after_step = rss_after,
                               .arg = &rss,
                               .source = {synth_batch, synth_targets, &y}};
        engine_go(&r, &spec);
        const int64_t other = rss.after - rss.before - rss.arena;
        CHECK(rss.arena > 0 && rss.arena <= r.plan.arena_size);
        if (!SANITIZED)
            CHECK_MSG(other <= 512 << 10, "%lld bytes outside the arena", (long long)other);
        engine_free(&r);
    }
}

static void ring_pages(struct train *t, int rank, void *arg)
{
    const struct plan *p = t->plan;
    const struct plan_item *bounce = &p->item[PLAN_BOUNCE];
    CHECK(bounce->in_segment && bounce->offset + bounce->size <= p->segment_size);
    arena_bytes(t);
    pages_touched(comm_segment(t->model.comm), p->segment_size, bounce);
}

/* Checks that every rank of a ring uses each page of its arena and its segment. An access to
 * memory around the arena causes a fault (engine_pages). */
static void test_pages_of_a_ring(void)
{
    struct synth y = {.S = 2000, .doc_len = 90, .vocab = 61};
    for (int P = 2; P <= 5; P++) {
        engine_spec(&spec, y.S);
        spec.determinism = P == 4 ? DET_RANKS : DET_RUN;
        spec.precision.params = P % 2 ? PRECISION_BF16 : PRECISION_FP32;
        spec.train.global_batch = 2;
        spec.memory.recompute = RECOMPUTE_NONE + P % 3;
        struct engine_run r = {.P = P,
                               .steps = 1,
                               .after_step = ring_pages,
                               .source = {synth_batch, synth_targets, &y}};
        engine_go(&r, &spec);
        engine_free(&r);
    }
}

/* ---- learning rates, data without targets ---------------------------------------------------- */

static void test_rate(void)
{
    engine_spec(&spec, 10);
    spec.optim.lr = 2;
    spec.schedule.warmup_steps = 4;
    spec.schedule.min_lr_ratio = 0.25;
    spec.train.steps = 14;
    CHECK(schedule_lr(&spec, 0) == 0.5 && schedule_lr(&spec, 3) == 2 && schedule_lr(&spec, 4) == 2);
    /* halfway through the decay, so the rate is the mean of 2 and 0.5 */
    CHECK(fabs(schedule_lr(&spec, 9) - 1.25) < 1e-15);
    CHECK(schedule_lr(&spec, 14) == 0.5 && schedule_lr(&spec, 1000) == 0.5);
    spec.schedule.warmup_steps = 0;
    CHECK(schedule_lr(&spec, 0) == 2);
}

/* Checks data without any target. Gradients must be exactly 0, and there must be no loss. */
static void test_no_targets(void)
{
    struct synth y = {.S = 24, .doc_len = 1, .vocab = 61}; /* each document has one token */
    for (int P = 1; P <= 3; P++) {
        engine_spec(&spec, y.S);
        struct engine_run r = {.P = P, .steps = 2, .source = {synth_batch, synth_targets, &y}};
        engine_go(&r, &spec);
        CHECK(isnan(r.loss[0]) && isnan(r.loss[1]) && r.norm[0] == 0);
        for (int64_t i = 0; r.grad && i < r.plan.n_params; i++) CHECK(r.grad[i] == 0);
        engine_free(&r);
    }
}

int main(void)
{
    /* tests of memory come first, before any test leaves freed memory to the process */
    test_fresh_memory = true;
    RUN(test_pages);
    RUN(test_pages_of_a_ring);
#if !SANITIZED
    RUN(test_no_allocation);
#endif
    test_fresh_memory = false;
    RUN(test_rate);
    RUN(test_golden_untied);
    RUN(test_golden_tied);
    RUN(test_resume);
    RUN(test_no_targets);
    RUN(test_ledger_tells);
    RUN(test_bits_short);
    RUN(test_bits_37);
    /* the remaining tests take minutes */
    if (SANITIZED || small_tests()) return test_done("train");
    RUN(test_bits_other_isas);
    RUN(test_bits_1000);
    RUN(test_bits_4096);
    return test_done("train");
}
