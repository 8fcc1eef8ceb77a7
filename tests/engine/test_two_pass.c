/* Compares Ring Self-Attention as published (two passes, with complete rows of scores) with
 * results that are computed in float64 from the definition (tests/lib/ring.h). */
#include "tests/lib/mutant.h"
#include "tests/lib/variants.h"

/* Checks p on every number of ranks. Successive runs alternate between the layouts, between the
 * two forms of backward, between separate tensors and views of wider ones, and between numbers of
 * threads. */
static void check_problem(struct problem p)
{
    static int turn;
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++, turn++) {
        if (small_leaves(turn, 5)) continue;
        check_variant(
            &p, &(struct variant){.P = degrees[i],
                                  .layout = LAYOUT_CONTIGUOUS + turn % 2,
                                  .strategy = STRATEGY_RSA,
                                  .form = turn / 2 % 2 ? FORM_TWO_PASS : FORM_TWO_PASS_SCATTER,
                                  .fused = turn / 3 % 2,
                                  .n_threads = 1 + turn / 5 % 2});
    }
    problem_free(&p);
}

static const struct heads heads[] = {{2, 2, 24}, {6, 2, 8}, {3, 1, 64}};

static void each(int64_t S)
{
    each_problem(S, heads, (int)(sizeof heads / sizeof *heads), check_problem);
}

/* Checks sequences that have fewer tokens than there are ranks, the same number, one more and one
 * less. Also checks lengths that are not a multiple of any number of ranks. */
static void test_few_tokens(void)
{
    each(1);
    each(4);
    each(7);
    each(9);
}

static void test_37(void)
{
    each(37);
}

static void test_129(void)
{
    each(129);
}

static void test_long(void)
{
    check_problem(problem_make(701, 3, 1, 24, DOCS_FIVE, true));
    check_problem(problem_make(701, 2, 2, 16, DOCS_ONE, false));
}

static void test_window_and_dropout(void)
{
    for (int docs = 0; docs < DOCS_N; docs++)
        for (int k = 1; k < 4; k++) {
            struct problem p = problem_make(53, 6, 2, 8, docs, k & 2);
            p.window = k & 1 ? 11 : 0;
            p.drop = k & 2 ? 0.3 : 0;
            check_problem(p);
        }
    struct problem p = problem_make(53, 2, 2, 16, DOCS_ONE, false);
    p.drop = 0.1;
    check_problem(p);
}

/* Checks scores of +-10607. The softmax of a row must not overflow, and must not lose the key with
 * the positive score. */
static void test_extreme_scores(void)
{
    struct problem p = problem_make(40, 2, 1, 8, DOCS_ONE, false);
    for (int64_t i = 0; i < p.S; i++) {
        for (int64_t c = 0; c < 16; c++) p.q[i * 16 + c] = c % 8 == 0 ? 100 : 0;
        p.kv[i * 16] = i == 29 ? 300 : -300;
    }
    check_problem(p);
}

/* Checks the published volumes in elements of one layer. Forward has 2 (P-1) H E. Backward has 6
 * (P-1) H E, or 4 (P-1) H E if the gradients are reduce-scattered. If there are fewer KV heads
 * than query heads, only the KV heads are sent. */
static void test_published_volumes(void)
{
    for (int P = 1; P <= 8; P++)
        for (int Hk = 1; Hk <= 4; Hk *= 2) {
            const int64_t T = 1024, D = 64, E = T * D, hops = P - 1;
            const int64_t forward = volume_two_pass_kv(P, T, Hk, D, PRECISION_FP32).bytes_sent / 4;
            const int64_t paper = volume_two_pass_dkv(P, T, Hk, D, true).bytes_sent / 4;
            const int64_t scatter = volume_two_pass_dkv(P, T, Hk, D, false).bytes_sent / 4;
            CHECK(forward == 2 * hops * Hk * E);
            CHECK(forward + paper == 6 * hops * Hk * E);
            CHECK(forward + scatter == 4 * hops * Hk * E);
            CHECK(volume_two_pass_kv(P, T, Hk, D, PRECISION_FP32).messages_sent == 2 * hops);
        }
}

#ifdef SEQD_MUTANTS
static void check_mutant(int mutant, double drop)
{
    for (int P = 2; P <= 3; P++) {
        struct problem p = problem_make(37, 2, 1, 16, DOCS_ONE, true);
        struct variant v = {
            .P = P, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .form = FORM_TWO_PASS};
        struct result out = result_make(&p);
        v.n_threads = 1;
        p.drop = drop;
        truth(&p);
        CHECK(run(&p, &v, &out) == 0 && within(compare(&p, &out)));
        v.mutant = mutant;
        run(&p, &v, &out);
        mutant_report(mutant, !within(compare(&p, &out)),
                      P == 2 ? "two passes, P 2" : "two passes, P 3");
        result_free(&out);
        problem_free(&p);
    }
}

static void test_mutants_are_caught(void)
{
    check_mutant(MUTANT_GRAD_OVER_P, 0);
    check_mutant(MUTANT_STALE_KV, 0);
    check_mutant(MUTANT_HOP_OFF_BY_ONE, 0);
    check_mutant(MUTANT_ZIGZAG_SWAPPED, 0);
    check_mutant(MUTANT_SCALE, 0);
    check_mutant(MUTANT_DROPOUT_LOCAL, 0.3);
}
#endif

int main(void)
{
#ifdef SEQD_MUTANTS
    RUN(test_mutants_are_caught);
#endif
    RUN(test_few_tokens);
    RUN(test_37);
    RUN(test_129);
    RUN(test_long);
    RUN(test_window_and_dropout);
    RUN(test_extreme_scores);
    RUN(test_published_volumes);
    return variants_done("two_pass");
}
