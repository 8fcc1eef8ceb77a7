/* Attention dropout in a training: each step has masks of its own, that the seed and the number of
 * the step make and nothing else. That masks do not depend on ranks: tests/engine/test_forms.c. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"

static struct job_spec spec; /* 75 KiB: off the stack */

enum { STEPS = 4, S = 40 };

static struct synth text = {.S = S, .doc_len = 17, .vocab = 61};

/* The same sample in every step, so that nothing but the masks differs. */
static int same_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    (void)n;
    return synth_batch(arg, sh, 0, b, e);
}

static int64_t same_targets(void *arg, int64_t n, struct err *e)
{
    (void)n;
    return synth_targets(arg, 0, e);
}

/* Losses of weights that never change. */
static void losses(double rate, int64_t seed, int64_t first, int64_t n, int P, int mutant,
                   double *out)
{
    engine_spec(&spec, S);
    spec.train.attention_dropout = rate;
    spec.optim.lr = 0;
    struct engine_run r = {
        .P = P, .steps = n, .first_step = first, .source = {same_batch, same_targets, &text}};
    if (seed != spec.seed) { /* other masks on the same weights */
        struct engine_run w = {.P = 1, .steps = 1, .source = r.source};
        static struct job_spec plain;
        plain = spec;
        engine_go(&w, &plain);
        spec.seed = seed;
        r.initial = w.weights;
        engine_go(&r, &spec);
        engine_free(&w);
    } else {
        mutant_choose(mutant);
        engine_go(&r, &spec);
        mutant_choose(MUTANT_NONE);
    }
    memcpy(out, r.loss, (size_t)n * sizeof *out);
    engine_free(&r);
}

/* Pairs of steps whose losses are the same bits. */
static int n_alike(const double *loss)
{
    int n = 0;
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < i; k++) n += loss[i] == loss[k];
    return n;
}

static void test_each_step(void)
{
    double loss[STEPS], later[2], other[1];
    losses(0, 5, 0, STEPS, 1, MUTANT_NONE, loss);
    CHECK(n_alike(loss) == STEPS * (STEPS - 1) / 2); /* without dropout nothing differs */
    for (int P = 1; P <= 2; P++) {
        losses(0.3, 5, 0, STEPS, P, MUTANT_NONE, loss);
        CHECK_MSG(n_alike(loss) == 0, "%g %g %g %g", loss[0], loss[1], loss[2], loss[3]);
        losses(0.3, 5, 2, 2, P, MUTANT_NONE, later); /* as a run that is resumed */
        CHECK(later[0] == loss[2] && later[1] == loss[3]);
        losses(0.3, 6, 0, 1, P, MUTANT_NONE, other);
        CHECK(other[0] != loss[0]);
    }
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    double loss[STEPS];
    losses(0.3, 5, 0, STEPS, 1, MUTANT_DROPOUT_SAME, loss);
    mutant_report(MUTANT_DROPOUT_SAME, n_alike(loss) > 0, "the losses of several steps");
    verify_blind(MUTANT_DROPOUT_SAME);
}
#endif

int main(void)
{
    RUN(test_each_step);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    return test_done("dropout");
}
