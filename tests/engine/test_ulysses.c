/* Compares attention that is divided by heads (DeepSpeed-Ulysses) with results that are computed
 * in float64 from the definition (tests/lib/ring.h). */
#include "tests/lib/traffic.h"
#include "tests/lib/variants.h"

static struct comm_count heads_of(int P, int r, const struct traffic_heads *h, bool back)
{
    return traffic_of(STRATEGY_ULYSSES, PURPOSE_HEADS, P, r, h, back);
}

static void check_problem(struct problem p)
{
    static int turn;
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++, turn++) {
        if (small_leaves(turn, 5)) continue;
        check_variant(&p, &(struct variant){.P = degrees[i],
                                            .layout = LAYOUT_CONTIGUOUS,
                                            .strategy = STRATEGY_ULYSSES,
                                            .fused = turn / 3 % 2,
                                            .n_threads = 1 + turn / 5 % 2});
    }
    problem_free(&p);
}

/* Numbers of heads. Some are multiples of P, and others are not. In some cases there are fewer
 * heads than ranks, ranks share KV heads, or the query heads of one KV head are on several
 * ranks. */
static const struct heads heads[] = {{8, 8, 8}, {8, 2, 24}, {6, 2, 8}, {9, 3, 8}, {2, 1, 16}};

static void each(int64_t S)
{
    each_problem(S, heads, (int)(sizeof heads / sizeof *heads), check_problem);
}

static void test_few_tokens(void)
{
    each(1);
    each(7);
    each(9);
}

static void test_37(void)
{
    each(37);
}

static void test_long(void)
{
    check_problem(problem_make(701, 6, 2, 24, DOCS_FIVE, true));
    for (int causal = 0; causal < 2; causal++) {
        struct problem p = problem_make(300, 4, 2, 16, DOCS_FIVE, causal);
        p.window = 50;
        check_problem(p);
    }
    /* masks of dropout must depend on the index of a head in the model, and not on its index in
     * the call */
    for (int h = 0; h < 5; h++) {
        struct problem d = problem_make(53, heads[h].H, heads[h].Hk, heads[h].D, DOCS_FIVE, h & 1);
        d.drop = 0.3;
        check_problem(d);
    }
}

static void check_bits(struct problem p)
{
    truth(&p);
    const struct variant one = {.P = 1,
                                .layout = LAYOUT_CONTIGUOUS,
                                .rank_bits = true,
                                .strategy = STRATEGY_LOCAL,
                                .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    CHECK(run(&p, &one, &want) == 0 && within(compare(&p, &want)));
    for (int P = 1; P <= p.Hk; P *= 2) {
        struct variant v = one;
        v.P = P;
        v.strategy = STRATEGY_ULYSSES;
        v.n_threads = 1 + P % 3 % 2;
        CHECK(run(&p, &v, &got) == 0);
        CHECK_MSG(same_bits(&p, &got, &want), "S %lld H %lld:%lld P %d differs from one rank",
                  (long long)p.S, (long long)p.H, (long long)p.Hk, P);
    }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

/* Checks determinism "ranks" in cases in which all query heads of a KV head are on one rank. */
static void test_rank_bits(void)
{
    check_bits(problem_make(37, 8, 8, 16, DOCS_ONE, true));
    check_bits(problem_make(37, 16, 8, 8, DOCS_FIVE, false));
    check_bits(problem_make(500, 8, 4, 24, DOCS_FIVE, true));
}

/* Checks the published volume per rank and layer, which is (P-1)/P (2H + 2Hk) E elements in each
 * direction, in fp32. */
static void test_published_volume(void)
{
    for (int P = 1; P <= 8; P *= 2)
        for (int64_t Hk = 8; Hk <= 32; Hk *= 2) {
            const int64_t T = 512, D = 64, H = 32, E = T * D;
            const struct traffic_heads h = {T, H, Hk, D, PRECISION_FP32};
            for (int r = 0; r < P; r++)
                for (int back = 0; back < 2; back++) {
                    const struct comm_count c = heads_of(P, r, &h, back);
                    CHECK(c.bytes_sent == (P - 1) * (2 * H + 2 * Hk) * E * 4 / P);
                    CHECK(c.bytes_received == c.bytes_sent && c.messages_sent == 3 * (P - 1));
                }
        }
}

/* Checks that all bytes that are sent are received, even if the heads cannot be divided evenly. */
static void test_sent_is_received(void)
{
    for (int P = 1; P <= 8; P++)
        for (int i = 0; i < 10; i++) {
            const struct traffic_heads h = {64, heads[i / 2].H, heads[i / 2].Hk, 8, PRECISION_BF16};
            struct comm_count sum = {0};
            for (int r = 0; r < P; r++) volume_add(&sum, heads_of(P, r, &h, i % 2), 1);
            CHECK(sum.bytes_sent == sum.bytes_received);
            CHECK(sum.messages_sent == sum.messages_received);
        }
}

int main(void)
{
    RUN(test_few_tokens);
    RUN(test_37);
    RUN(test_long);
    RUN(test_rank_bits);
    RUN(test_published_volume);
    RUN(test_sent_is_received);
    return variants_done("ulysses");
}
