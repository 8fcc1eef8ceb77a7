/* memory.c: what the planner says a rank holds, against real trainings on CPU ranks. Three books
 * that the planner does not keep: where the model's own code ends placing its buffers, which
 * pages the kernel says were touched, and every allocation of the process while steps run. */
#include <sys/mman.h>
#include "tests/engine.h"
#include "tests/paper/report.h"

struct watch {
    pthread_barrier_t line;
    int64_t before, grown; /* heap: live before the steps, and the most above it */
    int64_t placed, pages, planned;
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
    if (rank == 0 && t->step == 3) {
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
    int P, dp, zero;
    int64_t S;
    enum recompute_id recompute;
    enum precision_id precision;
};

static void training(const struct shape *s)
{
    struct synth y = {.S = s->S, .doc_len = 0, .vocab = 61};
    struct watch w = {0};
    char what[160];
    engine_spec(&spec, s->S);
    spec.model.shape.width = 64;
    spec.model.shape.head_dim = 16;
    spec.model.shape.ffn_width = 176;
    spec.train.global_batch = s->dp;
    spec.parallel.zero = s->zero;
    spec.memory.recompute = s->recompute;
    spec.precision.params = s->precision;
    struct engine_run r = {.P = s->P,
                           .dp = s->dp,
                           .steps = 3,
                           .before_step = before,
                           .after_step = after,
                           .arg = &w,
                           .source = {synth_batch, synth_targets, &y}};
    pthread_barrier_init(&w.line, NULL, (unsigned)(s->P * s->dp));
    const int failures = test_failures_now;
    engine_go(&r, &spec);
    engine_free(&r);
    pthread_barrier_destroy(&w.line);
    const bool ok = failures == test_failures_now && w.placed == w.planned && w.grown == 0 &&
                    w.pages <= w.planned;
    char ours[48];
    struct claim c = {.what = what,
                      .source = "-",
                      .claimed_text = "-",
                      .ours_text = ours,
                      .verdict = ok ? HOLDS : BROKEN,
                      .why = "plan == high-water to the byte; bytes of every step == formula"};
    snprintf(what, sizeof what, "%s: S %lld, sp %d x dp %d", s->name, (long long)s->S, s->P, s->dp);
    snprintf(ours, sizeof ours, "%lld bytes", (long long)w.planned);
    snprintf(c.measured, sizeof c.measured, "%lld bytes, heap +%lld in 2 steps, %.1f %% touched",
             (long long)w.placed, (long long)w.grown,
             100.0 * (double)w.pages / (double)r.plan.arena_size);
    report_claim(&c);
}

void paper_memory(void)
{
    static const struct shape shapes[] = {
        {"decoder, one rank", 1, 1, 0, 512, RECOMPUTE_NONE, PRECISION_FP32},
        {"decoder, blockwise ring", 2, 1, 1, 512, RECOMPUTE_NONE, PRECISION_FP32},
        {"decoder, blockwise ring", 4, 1, 1, 1000, RECOMPUTE_SELECTIVE, PRECISION_FP32},
        {"decoder, blockwise ring, everything recomputed", 3, 1, 2, 1000, RECOMPUTE_FULL,
         PRECISION_FP32},
        {"decoder, blockwise rings, bf16", 2, 2, 3, 512, RECOMPUTE_SELECTIVE, PRECISION_BF16},
    };
    report_section(
        "Plan and high-water of real trainings",
        "A small decoder, three optimizer steps on CPU ranks. The arena lies between two "
        "pages that nobody may touch. Touched is below 100 % where a buffer has room for the "
        "largest case of any job, the kernels' scratch above all.");
    report_table();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) training(&shapes[i]);
}
