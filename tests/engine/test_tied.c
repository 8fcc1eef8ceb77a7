/* Checks a tied embedding in a pipeline. The last stage sends the gradient of the head to the
 * first stage after each sequence. The stages must nevertheless compute at the same time. */
#include <errno.h>
#include <time.h>
#include "api/core/job.h"
#include "tests/lib/engine.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { STEPS = 2, SAMPLES = 6, MAX_RANKS = 16, PATIENCE_S = 60 };

struct way {
    int dp, pp, sp, zero, determinism;
    double max_norm;
};

static struct synth synth = {.S = 37, .doc_len = 11, .vocab = 61};

static void set_spec(const struct way *w)
{
    engine_spec(&spec, synth.S);
    spec.model.shape.n_layers = 4;
    spec.model.shape.tied = 1;
    spec.train.global_batch = SAMPLES * w->dp;
    spec.optim.max_grad_norm = w->max_norm;
    spec.parallel.zero = w->zero;
    spec.parallel.layout = LAYOUT_CONTIGUOUS;
    spec.determinism = w->determinism;
}

/* The number of backward passes that each rank of the last stage has begun, in all steps
 * together. */
static struct board {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t begun[MAX_RANKS];
} board = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

/* The progress of the rank that this thread runs. A pass begins when the rank reads the pass's
 * sample. */
static _Thread_local struct {
    int rank;
    const struct plan *plan;
    int64_t sample[SAMPLES]; /* the indices of the samples whose forward passes have begun */
    int64_t n_forward, n_back, before;
} here;

static void begin_step(struct train *t, int rank, void *arg)
{
    (void)arg;
    here.rank = rank;
    here.plan = t->plan;
    here.n_forward = here.n_back = 0;
    here.before = t->step * SAMPLES;
}

static void tell(int64_t begun)
{
    pthread_mutex_lock(&board.lock);
    board.begun[here.rank] = begun;
    pthread_cond_broadcast(&board.moved);
    pthread_mutex_unlock(&board.lock);
}

static bool has_begun(int64_t want)
{
    for (int r = 0; r < here.plan->n_ranks; r++)
        if (plan_place(here.plan, r).p == here.plan->pp - 1 && board.begun[r] < want) return false;
    return true;
}

/* Waits until every rank of the last stage has begun `want` backward passes. */
static int await(int64_t want, struct err *e)
{
    struct timespec until;
    int rc = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&board.lock);
    while (!has_begun(want) && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&board.moved, &board.lock, &until);
    const bool late = !has_begun(want);
    pthread_mutex_unlock(&board.lock);
    return late ? err_set(e, ERR_TIMEOUT, "the last stage waits for the first") : 0;
}

/* Reads a sample. The first stage may begin the backward pass of a sequence only after the last
 * stage has begun the backward pass of the latest sequence that the first stage has sent on. */
static int batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    const struct pipe *p = &here.plan->pipe;
    if (here.n_back == here.n_forward || here.sample[here.n_back] != n) {
        here.sample[here.n_forward++] = n;
        return synth_batch(arg, sh, n, b, e);
    }
    here.n_back++;
    if (pipe_last(p)) tell(here.before + here.n_back);
    if (pipe_first(p) && await(here.before + here.n_forward, e)) return -1;
    return synth_batch(arg, sh, n, b, e);
}

static void check_way(const struct way *w)
{
    set_spec(w);
    memset(board.begun, 0, sizeof board.begun);
    struct engine_run r = {.P = w->sp,
                           .dp = w->dp,
                           .pp = w->pp,
                           .steps = STEPS,
                           .before_step = begin_step,
                           .source = {batch, synth_targets, &synth}};
    engine_go(&r, &spec);
    CHECK(r.plan.micro_batches == SAMPLES && (r.plan.by_bucket || r.plan.rank_bits));
    CHECK(here.plan == NULL); /* the state belongs to a different thread */
    engine_free(&r);
}

static void test_side_by_side(void)
{
    static const struct way ways[] = {
        {.dp = 1, .pp = 2, .sp = 1, .determinism = DET_RANKS, .max_norm = 1},
        {.dp = 1, .pp = 4, .sp = 1, .determinism = DET_RANKS, .max_norm = 1},
        {.dp = 2, .pp = 3, .sp = 2, .zero = 1, .determinism = DET_RANKS, .max_norm = 1},
        {.dp = 2, .pp = 2, .sp = 1, .zero = 2, .max_norm = 1},
        {.dp = 1, .pp = 3, .sp = 2, .zero = 3, .determinism = DET_RANKS},
        {.dp = 2, .pp = 4, .sp = 1, .zero = 3, .max_norm = 1},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_way(&ways[i]);
}

int main(void)
{
    RUN(test_side_by_side);
    return test_done("tied");
}
