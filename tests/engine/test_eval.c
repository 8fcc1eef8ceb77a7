/* Checks evaluation on held-out data within a training. Checks the loss on every number of ranks
 * and rings, and the number of bytes that ranks send in an evaluation. The evaluation must not
 * change a bit of the training. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/train/eval.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { WINDOWS = 5, EVAL_S = 45, STEPS = 4 };

/* Held-out windows are shorter than the sequences of the training, and their documents have
 * different lengths. Window 3 has targets in its first half only. */
static struct synth held = {.S = EVAL_S, .doc_len = 13, .vocab = 61};

static int64_t held_targets(void *arg, int64_t n, struct err *e)
{
    struct synth y = held;
    if (n == 3) y.bare_from = EVAL_S / 2;
    return synth_targets(&y, n + 1000, e);
}

static int held_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    struct synth y = held;
    if (n == 3) y.bare_from = EVAL_S / 2;
    return synth_batch(&y, sh, n + 1000, b, e);
}

struct probe {
    const struct job_spec *spec;
    struct eval got[64][STEPS]; /* by rank and step */
    bool falsify;               /* the plan of rank 1 is wrong by one message */
};

static void evaluate(struct train *t, int rank, void *arg)
{
    struct probe *p = arg;
    struct comm_count want[PURPOSE_N];
    struct err e = {0};
    const struct eval_args a = {.source = {held_batch, held_targets, NULL},
                                .n_windows = WINDOWS,
                                .seq_len = EVAL_S,
                                .want = want};
    const int64_t before = t->model.placed_size;
    const struct plan_eval v = {EVAL_S, WINDOWS};
    CHECK(!plan_eval_comm(&p->spec->model.shape, t->plan, rank, &v, want, &e));
    if (p->falsify && rank == 1) want[PURPOSE_RING_KV].messages_sent++;
    CHECK_MSG(!eval_run(t, &a, &p->got[rank][t->step], &e), "%s", e.text);
    CHECK(t->model.placed_size == before && t->model.sp.shard.S == t->plan->S);
}

/* A product of axes. 0 means 1. */
struct way {
    int sp, dp, pp, tp, zero, determinism, strategy, layout;
};

static struct engine_run training(const struct way *w, struct probe *p)
{
    static struct synth y = {.S = 70, .doc_len = 30, .vocab = 61};
    engine_spec(&spec, y.S);
    spec.determinism = w->determinism ? w->determinism : DET_RUN;
    spec.parallel.zero = w->zero;
    spec.parallel.strategy = w->strategy;
    spec.parallel.layout = w->layout;
    spec.parallel.ulysses = w->strategy == STRATEGY_USP ? 2 : 0;
    spec.train.global_batch = 6;
    struct engine_run r = {.P = w->sp,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &y}};
    if (p) {
        p->spec = &spec;
        r.before_step = evaluate;
        r.arg = p;
    }
    engine_go(&r, &spec);
    return r;
}

/* Computes the nll of each window in an independent way: by a training step on that window only,
 * with a learning rate of 0. */
static double slow_loss(int64_t *targets)
{
    double nll = 0;
    *targets = 0;
    for (int64_t w = 0; w < WINDOWS; w++) {
        struct err e = {0};
        engine_spec(&spec, EVAL_S);
        spec.optim.lr = 0;
        struct engine_run r = {
            .P = 1, .steps = 1, .first_step = w, .source = {held_batch, held_targets, NULL}};
        engine_go(&r, &spec);
        const int64_t n = held_targets(NULL, w, &e);
        nll += r.loss[0] * (double)n;
        *targets += n;
        engine_free(&r);
    }
    return nll / (double)*targets;
}

/* The ways include zero 3. With zero 3, a ring that has no window in the last round must still
 * provide its weights. The ways also include ranks that share layers, each of which has the logits
 * of a part of the ids. */
static const struct way ways[] = {
    {.sp = 1},
    {.sp = 2, .zero = 1},
    {.sp = 3},
    {.sp = 4, .zero = 2},
    {.sp = 1, .dp = 2},
    {.sp = 2, .dp = 2, .zero = 1},
    {.sp = 1, .dp = 3, .zero = 3},
    {.sp = 2, .dp = 2, .zero = 3},
    {.sp = 1, .tp = 2},
    {.sp = 1, .tp = 4},
    {.sp = 2, .tp = 2},
    {.sp = 1, .dp = 2, .tp = 2},
    {.sp = 2, .dp = 2, .tp = 2, .zero = 3},
    {.sp = 1, .pp = 2, .tp = 2},
    {.sp = 2, .dp = 2, .pp = 2, .tp = 2},
    {.sp = 2, .dp = 2, .pp = 2, .tp = 2, .zero = 3},
    {.sp = 4, .pp = 2, .strategy = STRATEGY_USP, .layout = LAYOUT_ZIGZAG},
    {.sp = 4, .pp = 2, .tp = 2, .strategy = STRATEGY_USP, .layout = LAYOUT_ZIGZAG},
};

static void test_every_layout(void)
{
    static struct probe p;
    int64_t targets;
    /* computed before any step, with the weights of the seed */
    const double first = slow_loss(&targets);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        p = (struct probe){0};
        struct engine_run r = training(&ways[i], &p);
        const struct eval *v = &p.got[0][0];
        CHECK(v->targets == targets && v->windows == WINDOWS);
        CHECK_MSG(v->ledger_equal, "way %zu: the ledger differs", i);
        CHECK(v->n_bytes == targets); /* the vocabulary has 61 ids, so every target is one byte */
        CHECK_MSG(fabs(v->loss / first - 1) <= 1e-6, "way %zu: %.9g, want %.9g", i, v->loss, first);
        for (int rank = 1; rank < r.plan.n_ranks; rank++)
            for (int k = 0; k < STEPS; k++)
                CHECK(!memcmp(&p.got[rank][k], &p.got[0][k], sizeof *v));
        CHECK(p.got[0][STEPS - 1].loss < v->loss); /* the training learns */
        engine_free(&r);
    }
}

/* Checks that evaluating before every step changes no bit of the training. */
static void test_leaves_no_trace(void)
{
    static struct probe p;
    for (int way = 0; way < 3; way++) {
        const struct way w = {
            .sp = (int[]){1, 3, 4}[way], .zero = 1, .determinism = way == 2 ? DET_RANKS : DET_RUN};
        struct engine_run without = training(&w, NULL), with = training(&w, &p);
        const size_t size = (size_t)with.plan.n_params * 4;
        CHECK(!memcmp(with.loss, without.loss, STEPS * sizeof(double)));
        CHECK(with.weights && without.weights && !memcmp(with.weights, without.weights, size));
        engine_free(&with);
        engine_free(&without);
    }
}

/* Checks that under determinism "ranks" the held-out loss has the same bits, too. */
static void test_bits(void)
{
    static struct probe one, p;
    struct way w = {.sp = 1, .determinism = DET_RANKS};
    struct engine_run r = training(&w, &one);
    engine_free(&r);
    for (w.sp = 2; w.sp <= 8; w.sp *= 2) {
        r = training(&w, &p);
        for (int k = 0; k < STEPS; k++)
            CHECK_MSG(p.got[0][k].loss == one.got[0][k].loss, "sp %d step %d: %.17g, %.17g", w.sp,
                      k, p.got[0][k].loss, one.got[0][k].loss);
        engine_free(&r);
    }
}

/* Checks a plan of one rank that has one message too few. Every rank must report the
 * difference. */
static void test_ledger_tells(void)
{
    static struct probe p;
    p = (struct probe){.falsify = true};
    struct engine_run r = training(&(struct way){.sp = 3, .zero = 1}, &p);
    for (int rank = 0; rank < 3; rank++) CHECK(!p.got[rank][0].ledger_equal);
    engine_free(&r);
}

static void test_numbers(void)
{
    const struct eval v = {.loss = 2 * M_LN2, .targets = 30, .n_bytes = 20};
    CHECK(fabs(eval_bits_per_byte(&v) - 3) < 1e-12);
    CHECK(isnan(eval_bits_per_byte(&(struct eval){.loss = 1, .targets = 3})));
}

int main(void)
{
    RUN(test_every_layout);
    RUN(test_leaves_no_trace);
    RUN(test_bits);
    RUN(test_ledger_tells);
    RUN(test_numbers);
    return test_done("eval");
}
