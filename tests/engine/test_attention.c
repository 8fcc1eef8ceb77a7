/* Compares the output and the gradients of ring attention with results that are computed in
 * float64 from the definition (tests/lib/ring.h). */
#include "tests/lib/ledger_check.h"
#include "tests/lib/mutant.h"
#include "tests/lib/variants.h"

/* Checks p with every step-th of the twelve pairs (number of ranks, layout), from index `first`
 * on. */
static void check_problem(struct problem p, int first, int step)
{
    truth(&p);
    for (int i = first; i < 2 * N_DEGREES; i += step)
        check_variant(&p, &(struct variant){.P = degrees[i / 2],
                                            .layout = LAYOUT_CONTIGUOUS + i % 2,
                                            .strategy = STRATEGY_RSA,
                                            .fused = (i / 2 + i) & 1,
                                            .n_threads = 1});
    problem_free(&p);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* The short form checks each problem with a fifth of the pairs; successive problems use different
 * pairs. */
static void product(int64_t S, const struct heads *heads, int n_heads, int first, int step)
{
    const bool few = small_tests() && !SANITIZED;
    int cell = 0;
    for (int h = 0; h < n_heads; h++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int causal = 0; causal < 2; causal++, cell++)
                check_problem(
                    problem_make(S, heads[h].H, heads[h].Hk, heads[h].D, (enum docs)docs, causal),
                    few ? cell % 5 : first, few ? 5 : step);
}

/* The heads of the tests that follow. These tests check all combinations for lengths with fewer
 * tokens than ranks, and for 37 tokens, a length that no number of ranks divides. */
static const struct heads small[] = {{2, 2, 24}, {6, 2, 8}, {8, 1, 64}};

static void test_1(void)
{
    product(1, small, 3, 0, 1);
}

static void test_8(void)
{
    product(8, small, 3, 0, 1);
}

static void test_37(void)
{
    product(37, small, 3, 0, 1);
}

static void test_1000(void)
{
    static const struct heads heads[] = {{2, 2, 16}, {3, 1, 24}, {8, 1, 8}};
    product(1000, heads, 3, 0, 1);
}

/* Checks 4096 tokens. Each of the 18 cells is checked with only 4 of the 12 pairs of a number of
 * ranks and a layout; successive cells use different pairs. Most of the time is spent on the
 * reference, which computes 16 million pairs of positions. */
static void test_4096(void)
{
    static const struct heads heads[] = {{1, 1, 16}, {3, 1, 16}, {8, 1, 16}};
    int cell = 0;
    for (int h = 0; h < 3; h++)
        for (int docs = 0; docs < DOCS_N; docs++)
            for (int causal = 0; causal < 2; causal++, cell++)
                check_problem(problem_make(4096, heads[h].H, heads[h].Hk, 16, docs, causal),
                              cell % 3, 3);
}

/* Makes a problem in which all queries see one key whose score is thousands above all other
 * scores. Partial results that include this key are merged with partial results that do not. The
 * merge must neither overflow nor lose the key. */
static struct problem extreme_scores(void)
{
    struct problem p = problem_make(40, 2, 1, 8, DOCS_ONE, false);
    for (int64_t i = 0; i < p.S; i++) {
        for (int64_t c = 0; c < 16; c++) p.q[i * 16 + c] = c % 8 == 0 ? 100 : 0;
        p.kv[i * 16] = i == 29 ? 300 : -300; /* scores of +-10607 */
    }
    return p;
}

static void test_extreme_scores(void)
{
    check_problem(extreme_scores(), 0, 1);
}

/* Checks that under determinism "ranks" 1, 2, 4 and 8 ranks with 1 and 2 threads give the bits of
 * one rank without a ring. Also checks that the results are right. */
static void check_bits(struct problem p)
{
    truth(&p);
    struct variant one = {.P = 1,
                          .layout = LAYOUT_CONTIGUOUS,
                          .rank_bits = true,
                          .strategy = STRATEGY_LOCAL,
                          .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    int64_t n_bad = run(&p, &one, &want);
    CHECK(n_bad == 0 && within(compare(&p, &want)));
    for (int P = 1; P <= 8; P *= 2)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            struct variant v = one;
            v.P = P;
            v.n_threads = n_threads;
            v.strategy = STRATEGY_RSA;
            v.fused = n_threads == 2;
            CHECK(run(&p, &v, &got) == 0);
            CHECK_MSG(same_bits(&p, &got, &want),
                      "S %lld causal %d: %d ranks of %d threads differ from one rank",
                      (long long)p.S, p.causal, P, n_threads);
        }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_rank_bits(void)
{
    check_bits(problem_make(1, 2, 2, 16, DOCS_ONE, true));
    for (int causal = 0; causal < 2; causal++) {
        check_bits(problem_make(37, 6, 2, 16, DOCS_ONE, causal));
        check_bits(problem_make(1000, 3, 1, 24, DOCS_FIVE, causal));
    }
    check_bits(problem_make(1000, 2, 2, 64, DOCS_ONE, true));
    check_bits(problem_make(4096, 1, 1, 16, DOCS_ONE, true));
}

/* Checks that a run that is repeated gives the same bits, although messages have other delays. */
static void test_run_to_run_bits(void)
{
    struct problem p = problem_make(1000, 3, 1, 16, DOCS_FIVE, true);
    struct variant v = {.P = 3, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 2};
    struct result a = result_make(&p), b = result_make(&p);
    run(&p, &v, &a);
    run(&p, &v, &b);
    CHECK(!memcmp(a.o, b.o, (size_t)(p.S * p.H * p.D) * 4));
    CHECK(!memcmp(a.dq, b.dq, (size_t)(p.S * p.H * p.D) * 4));
    CHECK(!memcmp(a.dkv, b.dkv, (size_t)(p.S * 2 * p.Hk * p.D) * 4));
    result_free(&a);
    result_free(&b);
    problem_free(&p);
}

/* Checks that sockets, and nodes of two ranks with sockets between them, give the same bits as
 * shared memory. */
static void test_transports_give_one_result(void)
{
    static const enum transport_id transports[] = {TRANSPORT_SHM, TRANSPORT_TCP, TRANSPORT_AUTO};
    struct problem p = problem_make(1000, 3, 1, 16, DOCS_FIVE, true);
    struct variant v = {.P = 4, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    CHECK(run(&p, &v, &want) == 0);
    for (int i = 0; i < 3; i++) {
        v.transport = transports[i];
        v.n_local = i == 2 ? 2 : 0;
        CHECK(run(&p, &v, &got) == 0);
        CHECK_MSG(same_bits(&p, &got, &want), "transport %d", (int)v.transport);
    }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

/* Checks that the size of the ring's buffers depends on T and not on P. In all tests above, the
 * segment has exactly 4 T rows, and all other memory is guarded. Here T is fixed and P grows. */
static void test_workspace_is_independent_of_ranks(void)
{
    int64_t T = 24, size = 0;
    for (int P = 1; P <= 8; P++) {
        struct problem p = problem_make(T * P, 2, 1, 16, DOCS_ONE, true);
        struct variant v = {
            .P = P, .layout = LAYOUT_ZIGZAG, .strategy = STRATEGY_RSA, .n_threads = 1};
        CHECK(rows_of(&p, &v) == T);
        if (P == 1) size = ring_size(&p, T);
        CHECK(ring_size(&p, T) == size);
        truth(&p);
        check_variant(&p, &v);
        problem_free(&p);
    }
}

/* Checks the instruction sets below the best one. */
static void test_other_isas(void)
{
    for (const char *const *i = be_isas() + 1; *i; i++) {
        /* in fp32, the avx512 sets use the same instructions as the best set */
        if (!strncmp(*i, "avx512", 6)) continue;
        devices_close();
        isa = *i;
        product(37, small, 3, 1, 2);
        check_problem(problem_make(1000, 3, 1, 24, DOCS_FIVE, true), 0, 1);
        check_problem(problem_make(4096, 1, 1, 16, DOCS_ONE, false), 2, 9);
        check_bits(problem_make(1000, 6, 2, 16, DOCS_ONE, true));
    }
    devices_close();
    isa = NULL;
}

/* ---- decoding -------------------------------------------------------------------------------- */

enum { DECODED = 3 };

/* A decoding case. Token i of a pass is row S - n + i, which sees the keys 0 to S - n + i. `rows`
 * tells how the keys are split over the ranks. There is one pass with all n tokens, and then one
 * pass for each token. */
struct decode {
    const struct problem *p;
    int64_t n, rows[MAX_P], start[MAX_P];
    float o[MAX_P][DECODED * 8 * 64], alone[MAX_P][DECODED * 8 * 64];
};

static struct tensor decode_keys(const struct decode *d, int rank, int64_t i)
{
    const struct problem *p = d->p;
    const int64_t cols = 2 * p->Hk * p->D, left = p->S - d->n + 1 + i - d->start[rank];
    const int64_t n = left < 0 ? 0 : left < d->rows[rank] ? left : d->rows[rank];
    return tensor_f32(p->kv + d->start[rank] * cols, n, cols, cols);
}

static void decode_body(struct ranks *g, int rank, void *arg)
{
    struct decode *d = arg;
    const struct problem *p = d->p;
    const int64_t q_cols = p->H * p->D, n = d->n;
    struct err e;
    struct sp_keys keys[DECODED];
    const struct tensor sink = {p->sink, 1, p->H, p->H, DT_F32};
    struct sp sp = {
        .ops = sp_find(g->P == 1 ? STRATEGY_LOCAL : STRATEGY_RSA, FORM_BLOCKWISE),
        .be = device(rank, 1),
        .comm = g->comm[rank],
        .shape = {p->H, p->Hk, p->D, (float)(1 / sqrt((double)p->D)), (float)p->cap, sink},
        .buf = {.part = comm_segment(g->comm[rank])}};
    memset(sp.buf.part, 0xff, (size_t)volume_decode_size(g->P, p->H, p->D, n));
    if (shard_init(&sp.shard, p->S, g->P, rank, LAYOUT_CONTIGUOUS, false, &e)) abort();
    for (int64_t i = 0; i < n; i++) {
        const struct tensor kv = decode_keys(d, rank, i);
        keys[i] = (struct sp_keys){.kv = kv, .n = kv.rows};
    }
    const struct sp_decode_args all = {
        .q = tensor_f32(p->q + (p->S - n) * q_cols, n, q_cols, q_cols),
        .o = tensor_f32(d->o[rank], n, q_cols, q_cols),
        .keys = keys};
    int rc = 0;
    for (int again = 0; again < 3 && !rc; again++) /* several layers use the same buffer */
        rc = sp.ops->attn_decode(&sp, &all, &e);
    for (int64_t i = 0; i < n && !rc; i++) {
        const struct sp_decode_args one = {
            .q = tensor_sub(all.q, i, 1, 0, q_cols),
            .o = tensor_f32(d->alone[rank] + i * q_cols, 1, q_cols, q_cols),
            .keys = &keys[i]};
        rc = sp.ops->attn_decode(&sp, &one, &e);
    }
    if (rc) ranks_fail(g, rank, &e);
}

/* Runs one case. If even is set, the ranks have equal parts of the keys. If not, rank 0 has no
 * keys, and the last rank has all keys that are left. */
static void decode_case(const struct problem *p, int P, int64_t n, bool even)
{
    static struct decode d;
    struct ranks g;
    int64_t q_cols = p->H * p->D, at = 0;
    d.p = p;
    d.n = n;
    for (int r = 0; r < P; r++) {
        d.rows[r] = r == P - 1 ? p->S - at : even || r ? p->S / P : 0;
        d.start[r] = at;
        at += d.rows[r];
    }
    ranks_open(&g, P, volume_decode_size(P, p->H, p->D, n),
               &(struct comm_options){.delay_seed = ++n_runs, .delay_max_us = 100});
    ranks_run(&g, decode_body, &d);
    ranks_check(&g);
    struct comm_count want[PURPOSE_N] = {0};
    volume_add(&want[PURPOSE_DECODE], volume_decode(P, p->H, p->D, n), 3);
    volume_add(&want[PURPOSE_DECODE], volume_decode(P, p->H, p->D, 1), n);
    for (int r = 0; r < P; r++) {
        struct err e;
        CHECK_MSG(!ledger_check(comm_ledger(g.comm[r]), want, &e), "P %d rank %d: %s", P, r,
                  e.text);
        for (int64_t i = 0; i < n; i++) {
            double err = norms_ratio(
                norms(d.o[r] + i * q_cols, p->o + (p->S - n + i) * q_cols, 1, q_cols, 0, q_cols),
                0);
            CHECK_MSG(err <= TOL_OUT, "P %d rank %d token %d: %.2e", P, r, (int)i, err);
        }
        CHECK(!memcmp(d.o[r], d.o[0], (size_t)(n * q_cols) * 4));
        CHECK(!memcmp(d.o[r], d.alone[r], (size_t)(n * q_cols) * 4));
    }
    ranks_close(&g);
}

static void test_decode(void)
{
    for (int h = 0; h < 3; h++) {
        struct problem p = problem_make(101, small[h].H, small[h].Hk, small[h].D, DOCS_ONE, true);
        truth(&p);
        for (int i = 0; i < N_DEGREES; i++) {
            decode_case(&p, degrees[i], 1, true);
            decode_case(&p, degrees[i], DECODED, true);
            decode_case(&p, degrees[i], DECODED, false);
        }
        problem_free(&p);
    }
    struct problem one = problem_make(1, 2, 2, 24, DOCS_ONE, true); /* only one rank has a key */
    truth(&one);
    for (int i = 0; i < N_DEGREES; i++) decode_case(&one, degrees[i], 1, true);
    problem_free(&one);
}

/* ---- sinks ----------------------------------------------------------------------------------- */

/* Checks sinks of the same size as the scores, in every way that supports sinks. */
static void check_sinks(struct problem p)
{
    static const struct variant ways[] = {
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_CONTIGUOUS},
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG, .maps = true},
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG, .form = FORM_ALL_GATHER},
        {.strategy = STRATEGY_ULYSSES, .layout = LAYOUT_CONTIGUOUS},
        {.strategy = STRATEGY_USP, .layout = LAYOUT_CONTIGUOUS, .maps = true},
        {.strategy = STRATEGY_USP, .layout = LAYOUT_ZIGZAG}};
    static int turn;
    problem_sinks(&p);
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++, turn++) {
            struct variant v = ways[k];
            if (small_leaves(turn, 5)) continue;
            v.P = degrees[i];
            v.n_threads = 1 + i % 2;
            check_variant(&p, &v);
        }
    problem_free(&p);
}

/* Checks sinks if heads are divided among ranks. The bits must be the same as on one rank, which
 * sums the rows of its chunks as a tree. */
static void check_sink_heads(struct problem p)
{
    struct variant v = {.P = 1,
                        .layout = LAYOUT_CONTIGUOUS,
                        .rank_bits = true,
                        .strategy = STRATEGY_LOCAL,
                        .n_threads = 1};
    struct result want = result_make(&p), got = result_make(&p);
    problem_sinks(&p);
    truth(&p);
    CHECK(run(&p, &v, &want) == 0 && within(compare(&p, &want)));
    v.strategy = STRATEGY_ULYSSES;
    for (v.P = 2; v.P <= 4; v.P *= 2) {
        CHECK(run(&p, &v, &got) == 0);
        CHECK_MSG(same_bits(&p, &got, &want), "%d ranks differ from one", v.P);
    }
    v.strategy = STRATEGY_USP;
    for (v.P = 2, v.u = 1; v.P <= 8; v.P *= 2, v.u = p.Hk % 2 ? 1 : 2) {
        CHECK(run(&p, &v, &got) == 0);
        CHECK_MSG(same_bits(&p, &got, &want), "%d ranks in groups of %d differ from one", v.P, v.u);
    }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_sinks(void)
{
    each_problem(37, small, 3, check_sinks);
    struct problem wide = problem_make(150, 2, 1, 256, DOCS_FIVE, true);
    wide.window = 40;
    check_sinks(wide);
    struct problem drop = problem_make(101, 6, 2, 8, DOCS_FIVE, true);
    drop.drop = 0.3;
    check_sinks(drop);
    struct problem bits = problem_make(1000, 3, 1, 24, DOCS_FIVE, true);
    problem_sinks(&bits);
    check_bits(bits);
    check_sink_heads(problem_make(333, 8, 4, 16, DOCS_FIVE, true));
    struct problem one = problem_make(101, 6, 2, 8, DOCS_ONE, true);
    problem_sinks(&one);
    truth(&one);
    for (int i = 0; i < N_DEGREES; i++) decode_case(&one, degrees[i], DECODED, false);
    for (int i = 0; i < N_DEGREES; i++) decode_case(&one, degrees[i], DECODED, true);
    problem_free(&one);
}

/* Checks sinks that are far above all scores. Also checks sinks that are lower than all scores by
 * hundreds, with which the result must be the same as without sinks. */
static void test_extreme_sinks(void)
{
    for (int k = 0; k < 2; k++) {
        struct problem p = problem_make(40, 2, 1, 8, DOCS_ONE, true);
        p.sink = random_floats(p.H, 0);
        for (int64_t h = 0; h < p.H; h++) p.sink[h] = k ? -500 : 20;
        check_problem(p, 0, 1);
    }
}

/* ---- a soft cap ------------------------------------------------------------------------------ */

/* Checks scores of a few units with caps of the same size, in every way that supports a cap. */
static void check_cap(struct problem p)
{
    static const struct variant ways[] = {
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_CONTIGUOUS},
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG, .maps = true},
        {.strategy = STRATEGY_RSA, .layout = LAYOUT_ZIGZAG, .form = FORM_ALL_GATHER},
        {.strategy = STRATEGY_ULYSSES, .layout = LAYOUT_CONTIGUOUS},
        {.strategy = STRATEGY_USP, .layout = LAYOUT_CONTIGUOUS, .maps = true},
        {.strategy = STRATEGY_USP, .layout = LAYOUT_ZIGZAG}};
    static int turn;
    p.cap = p.causal ? 1.25 : 0.5;
    truth(&p);
    for (int i = 0; i < N_DEGREES; i++)
        for (size_t k = 0; k < sizeof ways / sizeof *ways; k++, turn++) {
            struct variant v = ways[k];
            if (small_leaves(turn, 5)) continue;
            v.P = degrees[i];
            v.n_threads = 1 + i % 2;
            check_variant(&p, &v);
        }
    problem_free(&p);
}

static void test_soft_cap(void)
{
    each_problem(37, small, 3, check_cap);
    struct problem wide = problem_make(150, 2, 1, 256, DOCS_FIVE, true);
    wide.window = 40;
    check_cap(wide);
    struct problem bits = problem_make(1000, 3, 1, 24, DOCS_FIVE, true);
    bits.cap = 2;
    check_bits(bits);
    struct problem one = problem_make(101, 6, 2, 8, DOCS_ONE, true);
    one.cap = 1;
    truth(&one);
    for (int i = 0; i < N_DEGREES; i++) decode_case(&one, degrees[i], DECODED, false);
    problem_free(&one);
}

/* ---- mutants: each must be caught by the comparison above ------------------------------------ */

#ifdef SEQD_MUTANTS
static void check_mutant(int mutant, enum layout_id layout)
{
    for (int P = 2; P <= 3; P++)
        for (int causal = 0; causal < 2; causal++) {
            struct problem p = problem_make(37, 2, 1, 16, DOCS_ONE, causal);
            struct variant v = {.P = P, .layout = layout, .strategy = STRATEGY_RSA, .n_threads = 1};
            struct result out = result_make(&p);
            truth(&p);
            CHECK(run(&p, &v, &out) == 0 && within(compare(&p, &out)));
            v.mutant = mutant;
            run(&p, &v, &out);
            bool caught = !within(compare(&p, &out));
            /* Without a mask, positions matter only for the padding. */
            bool visible = causal || mutant == MUTANT_GRAD_OVER_P || mutant == MUTANT_STALE_KV;
            if (visible) {
                char by[64];
                snprintf(by, sizeof by, "%s ring, P %d, %s",
                         layout == LAYOUT_ZIGZAG ? "zigzag" : "contiguous", P,
                         causal ? "causal" : "bidirectional");
                mutant_report(mutant, caught, by);
            }
            result_free(&out);
            problem_free(&p);
        }
}

/* An injected fault that only a special case can show: a case with two ranks, with dropout, or
 * with scores that overflow. */
struct fault {
    int layout, P;
    double drop;
    bool extreme, sinks;
};

static void check_fault(int mutant, const struct fault *f)
{
    struct problem p = f->extreme ? extreme_scores() : problem_make(37, 2, 1, 16, DOCS_ONE, true);
    struct variant v = {.P = f->P, .layout = f->layout, .strategy = STRATEGY_RSA, .n_threads = 1};
    struct result out = result_make(&p);
    p.drop = f->drop;
    if (f->sinks) problem_sinks(&p);
    truth(&p);
    CHECK(run(&p, &v, &out) == 0 && within(compare(&p, &out)));
    v.mutant = mutant;
    run(&p, &v, &out);
    mutant_report(mutant, !within(compare(&p, &out)),
                  f->layout == LAYOUT_ZIGZAG ? "zigzag ring" : "contiguous ring");
    result_free(&out);
    problem_free(&p);
}

static void test_mutants_are_caught(void)
{
    check_mutant(MUTANT_GRAD_OVER_P, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_GRAD_OVER_P, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_STALE_KV, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_STALE_KV, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_HOP_OFF_BY_ONE, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_HOP_OFF_BY_ONE, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_ZIGZAG_SWAPPED, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_SCALE, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_SCALE, LAYOUT_ZIGZAG);
    check_mutant(MUTANT_TOKEN_DROPPED, LAYOUT_CONTIGUOUS);
    check_mutant(MUTANT_TOKEN_DROPPED, LAYOUT_ZIGZAG);
    for (int layout = LAYOUT_CONTIGUOUS; layout <= LAYOUT_ZIGZAG; layout++) {
        check_fault(MUTANT_SAME_PEER, &(struct fault){.layout = layout, .P = 2});
        check_fault(MUTANT_DROPOUT_LOCAL, &(struct fault){.layout = layout, .P = 3, .drop = 0.3});
        check_fault(MUTANT_SINK_EACH, &(struct fault){.layout = layout, .P = 2, .sinks = true});
        check_fault(MUTANT_SINK_ROWS, &(struct fault){.layout = layout, .P = 3, .sinks = true});
        check_fault(MUTANT_MERGE, &(struct fault){.layout = layout, .P = 3, .extreme = true});
    }
}
#endif

int main(void)
{
    bool quick = small_tests();
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    quick = true;
#endif
#ifdef SEQD_MUTANTS
    quick = true;
    RUN(test_mutants_are_caught);
#endif
    RUN(test_1);
    RUN(test_8);
    RUN(test_37);
    if (!quick) RUN(test_1000);
    if (!quick) RUN(test_4096);
    RUN(test_extreme_scores);
    if (!quick) RUN(test_rank_bits);
    if (!quick) RUN(test_other_isas);
    RUN(test_run_to_run_bits);
    RUN(test_transports_give_one_result);
    RUN(test_workspace_is_independent_of_ranks);
    RUN(test_decode);
    RUN(test_soft_cap);
    RUN(test_sinks);
    RUN(test_extreme_sinks);
    return variants_done("attention");
}
