/* memory.c: what the planner says a rank holds, against real trainings on CPU ranks. Three books
 * that the planner does not keep: where the model's own code ends placing its buffers, which
 * pages the kernel says were touched, and every allocation of the process while steps run. */
#include <sys/mman.h>
#include "tests/engine.h"
#include "tests/paper/report.h"

struct watch {
    pthread_barrier_t line;
    int64_t before, grown;                /* heap: live before the steps, and the most above it */
    int64_t placed, pages, planned, last; /* last: the step after which all is read */
};

/* All ranks are ready, none is in a step. The first step warms what the C library keeps. */
static void before(struct train *t, int rank, void *arg)
{
    struct watch *w = arg;
    pthread_barrier_wait(&w->line);
    if (rank == 0 && t->step == 1) heap_mark(), w->before = heap_live();
    pthread_barrier_wait(&w->line);
}

static int64_t pages_of(void *base, int64_t size)
{
    const int64_t n = size / PLAN_PAGE;
    unsigned char *seen = calloc((size_t)n, 1);
    int64_t sum = 0;
    if (!seen || mincore(base, (size_t)size, seen)) abort();
    for (int64_t i = 0; i < n; i++) sum += seen[i] & 1;
    free(seen);
    return sum * PLAN_PAGE;
}

static void after(struct train *t, int rank, void *arg)
{
    struct watch *w = arg;
    pthread_barrier_wait(&w->line);
    if (rank == 0 && t->step == w->last) {
        char *arena = (char *)t->model.params - t->plan->item[PLAN_PARAMS].offset;
        w->grown = heap_most() - w->before;
        w->placed = t->model.placed_size;
        w->pages = pages_of(arena, t->plan->arena_size);
        w->planned = t->plan->arena_size + t->plan->segment_size;
    }
    pthread_barrier_wait(&w->line);
}

static struct job_spec spec;

struct shape {
    const char *name;
    enum model_family family;
    enum strategy_id strategy;
    enum form_id form;
    int P, dp, zero;
    int64_t S;
    enum recompute_id recompute;
    enum precision_id precision;
    int64_t time_chunk; /* LASP in time: tokens that a rank holds at once */
};

/* As a person would submit it. fails: as job_check, where this version cannot run it. */
static int describe(const struct shape *s, struct err *e)
{
    spec_defaults(&spec);
    spec.kind = JOB_TRAIN;
    struct model_shape *m = &spec.model.shape;
    m->family = s->family;
    m->n_layers = 2, m->width = 64, m->n_heads = 4, m->ffn_width = 176, m->vocab = 258;
    if (s->time_chunk) m->n_layers = 1, m->width = 32, m->n_heads = 2, m->ffn_width = 32;
    spec.memory.time_chunk = s->time_chunk;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    if (spec_intern(&spec, "/synthetic", 10, &spec.data.train[0].path)) abort();
    spec.data.seq_len = s->S;
    spec.train.steps = 3;
    spec.train.global_batch = s->dp;
    spec.parallel.strategy = s->strategy;
    spec.parallel.form = s->form;
    spec.parallel.sp = s->P;
    spec.parallel.dp = s->dp;
    spec.parallel.zero = s->zero;
    spec.memory.recompute = s->recompute;
    spec.precision.params = s->precision;
    return job_check(&spec, e);
}

/* synth_batch without counting the targets anew for each of many windows. */
static int64_t one_document_targets(void *arg, int64_t n, struct err *e)
{
    return ((const struct synth *)arg)->S - 1;
}

static int one_document(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    const struct synth *y = arg;
    b->n_tokens = y->S;
    b->n_targets = y->S - 1;
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t pos = shard_pos(sh, i);
        const bool real = pos < y->S;
        b->ids[i] = real ? synth_token(y, n, pos) : 0;
        b->targets[i] = real ? synth_target(y, n, pos) : -1;
        b->lo[i] = 0;
        b->hi[i] = real ? pos + 1 : 0;
        b->pos[i] = real ? pos : 0;
    }
    return 0;
}

static void training(const struct shape *s)
{
    struct synth y = {.S = s->S, .doc_len = 0, .vocab = 258};
    struct watch w = {.last = s->time_chunk ? 2 : 3};
    char what[160];
    struct engine_run r = {.P = s->P,
                           .dp = s->dp,
                           .steps = w.last,
                           .before_step = before,
                           .after_step = after,
                           .arg = &w,
                           .source = {one_document, one_document_targets, &y}};
    pthread_barrier_init(&w.line, NULL, (unsigned)(s->P * s->dp));
    const int failures = test_failures_now;
    engine_go(&r, &spec);
    engine_free(&r);
    pthread_barrier_destroy(&w.line);
    const bool ok = failures == test_failures_now && w.placed == w.planned && w.grown == 0 &&
                    w.pages > 0 && w.pages <= w.planned;
    char ours[48];
    struct claim c = {.what = what,
                      .source = "-",
                      .claimed_text = "-",
                      .ours_text = ours,
                      .verdict = ok ? HOLDS : BROKEN,
                      .why = "plan == high-water to the byte; bytes of every step == formula"};
    snprintf(what, sizeof what, "%s: S %lld, sp %d x dp %d", s->name, (long long)s->S, s->P, s->dp);
    snprintf(ours, sizeof ours, "%lld bytes", (long long)w.planned);
    snprintf(c.measured, sizeof c.measured, "%lld bytes, heap +%lld in %lld steps, %.1f %% touched",
             (long long)w.placed, (long long)w.grown, (long long)w.last - 1,
             100.0 * (double)w.pages / (double)r.plan.arena_size);
    report_claim(&c);
}

static const struct shape shapes[] = {
    {"decoder, one rank", FAMILY_LLAMA, STRATEGY_LOCAL, FORM_AUTO, 1, 1, 0, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"decoder, blockwise ring", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 1, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32},
    {"decoder, blockwise ring", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 4, 1, 1, 1000,
     RECOMPUTE_SELECTIVE, PRECISION_FP32},
    {"decoder, blockwise ring, all recomputed", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 3, 1, 2,
     1000, RECOMPUTE_FULL, PRECISION_FP32},
    {"decoder, blockwise rings, bf16", FAMILY_LLAMA, STRATEGY_RSA, FORM_BLOCKWISE, 2, 2, 3, 512,
     RECOMPUTE_SELECTIVE, PRECISION_BF16},
    {"decoder, RSA as published", FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS, 4, 1, 1, 512,
     RECOMPUTE_NONE, PRECISION_FP32},
    {"decoder, Ulysses", FAMILY_LLAMA, STRATEGY_ULYSSES, FORM_AUTO, 4, 1, 1, 512, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 4, 1, 1, 1000, RECOMPUTE_NONE,
     PRECISION_FP32},
    {"TNL, LASP, all recomputed", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 2, 1000,
     RECOMPUTE_FULL, PRECISION_FP32},
    {"TNL, LASP in time, 1024 tokens at once", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 0, 32768,
     RECOMPUTE_NONE, PRECISION_FP32, 1024},
    {"TNL, LASP in time, 8192 tokens at once", FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, 2, 1, 0,
     4194304, RECOMPUTE_NONE, PRECISION_FP32, 8192},
};
#define N_SHAPES ((int)(sizeof shapes / sizeof *shapes))

void paper_memory(void)
{
    struct err refused[N_SHAPES] = {{0}};
    report_section(
        "Plan and high-water of real trainings",
        "Small models, three optimizer steps on CPU ranks. The arena lies between two "
        "pages that nobody may touch. Touched is below 100 % where a buffer has room for "
        "the largest case of any job, the kernels' scratch above all.");
    report_table();
    const bool quick = getenv("SEQD_PAPER_QUICK") != NULL; /* make check */
    for (int i = 0; i < N_SHAPES; i++)
        if (!(quick && shapes[i].S > 1 << 20) && !describe(&shapes[i], &refused[i]))
            training(&shapes[i]);
    for (int i = 0; i < N_SHAPES; i++)
        if (refused[i].code) report_absent(shapes[i].name, refused[i].text);
}
