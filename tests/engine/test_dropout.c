/* Checks attention dropout in a training. Each step must have new masks, which depend only on the
 * seed and on the index of the step. tests/engine/test_forms.c checks that masks do not depend on
 * the number of ranks. */
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "tests/lib/mutant.h"

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { STEPS = 4, S = 40 };

static struct synth text = {.S = S, .doc_len = 17, .vocab = 61};

/* Gives the same sample in every step, so that only the masks differ. */
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

/* Trains with a learning rate of 0, so that the weights never change, and stores the losses. */
static void losses(double rate, int64_t seed, int64_t first, int64_t n, int P, int mutant,
                   double *out)
{
    engine_spec(&spec, S);
    spec.train.attention_dropout = rate;
    spec.optim.lr = 0;
    struct engine_run r = {
        .P = P, .steps = n, .first_step = first, .source = {same_batch, same_targets, &text}};
    if (seed != spec.seed) { /* with other masks, the losses of the same weights must differ */
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

/* Returns how many pairs of steps have losses with the same bits. */
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
    CHECK(n_alike(loss) == STEPS * (STEPS - 1) / 2); /* without dropout all losses are the same */
    for (int P = 1; P <= 2; P++) {
        losses(0.3, 5, 0, STEPS, P, MUTANT_NONE, loss);
        CHECK_MSG(n_alike(loss) == 0, "%g %g %g %g", loss[0], loss[1], loss[2], loss[3]);
        /* begins at step 2, like a run that is resumed */
        losses(0.3, 5, 2, 2, P, MUTANT_NONE, later);
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
