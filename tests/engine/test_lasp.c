/* Compares the output and the gradients of linear attention over ranks with results that are
 * computed in float64 from the definition (tests/lib/linear.h). */
#include "tests/lib/mutant.h"
#include "tests/lib/linear.h"

/* On the reference device everything is float64. A sum of n products of size 1 has an error of
 * about sqrt(n) 1e-16 of its value. The bound is a thousand times as large, and is still smaller
 * than the effect of any mistake. */
#define TOL_64   1e-12
#define TOL_OUT  2e-6
#define TOL_GRAD 5e-6

static const int degrees[] = {1, 2, 3, 4, 7, 8};
enum { N_DEGREES = 6 };
static struct lin_errors worst[3]; /* the largest errors by dtype, of runs that passed */

static int pieces_of(int64_t Dk)
{
    return Dk % 4 == 0 ? 4 : Dk % 3 == 0 ? 3 : Dk % 2 == 0 ? 2 : 1;
}

static bool within(struct lin_errors e, enum dtype t)
{
    return t == DT_F64 ? e.fwd <= TOL_64 && e.bwd <= TOL_64 : e.fwd <= TOL_OUT && e.bwd <= TOL_GRAD;
}

static void check_variant(const struct lin_problem *p, const struct lin_variant *v)
{
    struct lin_run x;
    int64_t n_bad = lin_run(p, v, &x);
    struct lin_errors e = lin_compare(&x);
    worst[v->dtype].fwd = fmax(worst[v->dtype].fwd, e.fwd);
    worst[v->dtype].bwd = fmax(worst[v->dtype].bwd, e.bwd);
    CHECK_MSG(within(e, v->dtype) && n_bad == 0,
              "S %lld-%lld H %lld Dk %lld Dv %lld docs %d carry %d slope %g P %d exchange %d: "
              "fwd %.2e bwd %.2e, %lld bad",
              (long long)p->S, (long long)(p->S - p->n_tokens), (long long)p->H, (long long)p->Dk,
              (long long)p->Dv, (int)p->docs, p->carry, p->slope[0][0], v->P, (int)v->exchange,
              e.fwd, e.bwd, (long long)n_bad);
    lin_run_free(&x);
}

static struct lin_variant variant(const struct lin_problem *p, int P, enum exchange_id x,
                                  enum dtype t)
{
    return (struct lin_variant){.P = P,
                                .groups = 1,
                                .exchange = x,
                                .pieces = pieces_of(p->Dk),
                                .apart = P % 2 == 0,
                                .dtype = t,
                                .n_threads = 1};
}

/* Checks p with some of the pairs of a number of ranks and an exchange: with the pairs whose
 * indices are first, first + step, and so on. */
static void check_problem(struct lin_problem p, enum dtype t, int first, int step)
{
    for (int i = first; i < 3 * N_DEGREES; i += step) {
        struct lin_variant v = variant(&p, degrees[i / 3], EXCHANGE_RING + i % 3, t);
        if (v.P == 1 && v.exchange != EXCHANGE_RING) continue;
        check_variant(&p, &v);
    }
    lin_free(&p);
}

/* ---- float64 --------------------------------------------------------------------------------- */

/* Checks all combinations of documents, slopes and carry at one length, with a state that is not
 * square. */
static void product(struct lin_sizes z, enum dtype t, int step)
{
    int cell = 0;
    for (int docs = 0; docs < LIN_DOCS_N; docs++)
        for (int slopes = 0; slopes < LIN_SLOPES_N; slopes++)
            for (int carry = 0; carry < (z.pad ? 1 : 2); carry++, cell++)
                check_problem(lin_make(z, (enum lin_docs)docs, (enum lin_slopes)slopes, carry), t,
                              cell % step, step);
}

static void test_64_more_ranks_than_tokens(void)
{
    product((struct lin_sizes){3, 2, 3, 2, 0}, DT_F64, 1);
}

static void test_64_one_token(void)
{
    product((struct lin_sizes){1, 2, 4, 4, 0}, DT_F64, 2);
}

/* Checks 37 tokens, a length that no number of ranks divides. The last of 7 ranks has 1 token, and
 * the last of 8 ranks has 2 tokens. */
static void test_64_odd_length(void)
{
    product((struct lin_sizes){37, 3, 4, 6, 0}, DT_F64, 1);
}

/* Checks a rank that has only padding: 33 tokens are divided among 8 ranks with 5 rows each. Also
 * checks padding within the sequence. */
static void test_64_padding(void)
{
    product((struct lin_sizes){33, 2, 6, 4, 0}, DT_F64, 3);
    product((struct lin_sizes){40, 2, 6, 4, 13}, DT_F64, 2);
}

/* Checks two groups of ranks that run at the same time. The first rank of the second group is not
 * rank 0. */
static void test_64_groups(void)
{
    struct lin_problem p = lin_make((struct lin_sizes){29, 2, 4, 3, 0}, LIN_MISS, LIN_LAST, true);
    for (int i = 0; i < 9; i++) {
        struct lin_variant v = variant(&p, 2 + i / 3, EXCHANGE_RING + i % 3, DT_F64);
        v.groups = 2;
        check_variant(&p, &v);
    }
    lin_free(&p);
}

/* ---- fp32 on the CPU ------------------------------------------------------------------------- */

static void test_32_products(void)
{
    product((struct lin_sizes){37, 3, 4, 6, 0}, DT_F32, 5);
    product((struct lin_sizes){3, 2, 8, 2, 0}, DT_F32, 7);
    product((struct lin_sizes){40, 2, 6, 4, 13}, DT_F32, 7);
}

/* Checks chunks of several blocks of the kernel, with sizes that models have. */
static void test_32_long(void)
{
    static const struct lin_sizes z[] = {{1000, 2, 16, 16, 0}, {777, 2, 24, 48, 9}};
    int cell = 0;
    for (int i = 0; i < 2; i++)
        for (int docs = 0; docs < LIN_DOCS_N; docs += 2)
            for (int slopes = 0; slopes < LIN_SLOPES_N; slopes += 2, cell++)
                check_problem(lin_make(z[i], (enum lin_docs)docs, (enum lin_slopes)slopes, !i),
                              DT_F32, cell % 5, 5);
}

/* Checks the largest heads. Their values have one column more than their keys, for the sum of
 * weights. */
static void test_32_large(void)
{
    check_problem(lin_make((struct lin_sizes){70, 1, 512, 513, 0}, LIN_SPAN, LIN_LAST, true),
                  DT_F32, 0, 4);
    check_problem(lin_make((struct lin_sizes){37, 2, 256, 512, 5}, LIN_MISS, LIN_LAST, false),
                  DT_F32, 1, 3);
    check_problem(lin_make((struct lin_sizes){67, 1, 384, 288, 0}, LIN_HIT, LIN_FIRST, true),
                  DT_F32, 2, 4);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Checks that under determinism "ranks" the bits are the same for 1, 2, 4 and 8 ranks, for 1 and 2
 * threads, and for all exchanges. The bits must also be the same whether or not summaries are
 * computed in a separate call. */
static void check_bits(struct lin_problem p, enum dtype t)
{
    struct lin_variant one = variant(&p, 1, EXCHANGE_RING, t);
    struct lin_run want, got;
    one.rank_bits = true;
    CHECK(lin_run(&p, &one, &want) == 0);
    CHECK(within(lin_compare(&want), t));
    for (int P = 1; P <= 8; P *= 2)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++) {
            struct lin_variant v = variant(&p, P, (enum exchange_id)x, t);
            v.rank_bits = true;
            v.n_threads = 1 + x % 2;
            v.apart = P != 4;
            CHECK(lin_run(&p, &v, &got) == 0);
            CHECK_MSG(lin_same_bits(&got, &want), "S %lld docs %d: %d ranks, exchange %d",
                      (long long)p.S, (int)p.docs, P, x);
            lin_run_free(&got);
        }
    lin_run_free(&want);
    lin_free(&p);
}

static void bits_of(enum dtype t)
{
    for (int docs = 0; docs < LIN_DOCS_N; docs++) {
        check_bits(lin_make((struct lin_sizes){37, 2, 8, 6, 0}, docs, LIN_LAST, docs % 2), t);
        check_bits(lin_make((struct lin_sizes){41, 3, 6, 4, 7}, docs, LIN_FIRST, false), t);
    }
    check_bits(lin_make((struct lin_sizes){5, 2, 4, 4, 0}, LIN_ONE, LIN_FLAT, true), t);
    check_bits(lin_make((struct lin_sizes){1, 2, 4, 4, 0}, LIN_ONE, LIN_FLAT, true), t);
}

static void test_64_bits(void)
{
    bits_of(DT_F64);
}

static void test_32_bits(void)
{
    bits_of(DT_F32);
    check_bits(lin_make((struct lin_sizes){1000, 2, 16, 32, 0}, LIN_SPAN, LIN_LAST, true), DT_F32);
    check_bits(lin_make((struct lin_sizes){37, 1, 288, 512, 0}, LIN_SPAN, LIN_LAST, true), DT_F32);
}

/* ---- decoding -------------------------------------------------------------------------------- */

/* Decodes token by token from the carried state. The outputs, and the state after the last token,
 * must equal those of a call for the complete sequence. */
static void decode_all(const struct lin_problem *p, struct be *be, enum dtype t, double *o,
                       double *state_out)
{
    const struct lin_arrays *a = &p->layer[1];
    const int64_t k = p->H * p->Dk, v = p->H * p->Dv, s = lin_state_count(p);
    struct sp_linear sp = {.be = be, .state_dtype = t, .buf = {.m = lin_poison(s, t)}};
    struct linear_decode d = {.shape = {p->H, p->Dk, p->Dv, (float)p->scale, p->slope[1]},
                              .state = lin_load_state(p, t, a->carry_in)};
    for (int64_t i = 0; i < p->S; i++) {
        d.q = lin_load(p, t, i, 1, k, a->q);
        d.k = lin_load(p, t, i, 1, k, a->k);
        d.v = lin_load(p, t, i, 1, v, a->v);
        d.o = lin_tensor(t, 1, v);
        linear_decode(&sp, &d);
        for (int64_t c = 0; c < v; c++) o[i * v + c] = lin_get(d.o.data, t, c);
        free(d.q.data);
        free(d.k.data);
        free(d.v.data);
        free(d.o.data);
    }
    for (int64_t i = 0; i < s; i++) state_out[i] = lin_get(d.state, t, i);
    free(d.state);
    free(sp.buf.m);
}

static void check_decode(struct be *be, struct lin_sizes z, enum dtype t, double tol)
{
    struct lin_problem p = lin_make(z, LIN_ONE, LIN_LAST, true);
    const int64_t n = p.S * p.H * p.Dv, s = lin_state_count(&p);
    double *o = lin_mem(n, 8), *state = lin_mem(s, 8);
    decode_all(&p, be, t, o, state);
    double e = lin_rel(o, p.layer[1].o, n), f = lin_rel(state, p.layer[1].carry_out, s);
    CHECK_MSG(e <= tol && f <= tol, "outputs %.2e, state %.2e", e, f);
    free(o);
    free(state);
    lin_free(&p);
}

static void test_64_decode(void)
{
    struct be be = device64();
    check_decode(&be, (struct lin_sizes){23, 3, 8, 6, 0}, DT_F64, TOL_64);
}

static void test_32_decode(void)
{
    check_decode(lin_device(0, 1), (struct lin_sizes){23, 3, 8, 6, 0}, DT_F32, TOL_OUT);
    check_decode(lin_device(0, 1), (struct lin_sizes){9, 2, 512, 384, 0}, DT_F32, TOL_OUT);
}

/* ---- volume ---------------------------------------------------------------------------------- */

/* Checks the published bytes of all ranks together, in each direction. A state has H Dk Dv 4
 * bytes. ring and scan send P-1 states, and all_gather sends P (P-1) states. The number does not
 * depend on the length of the sequence. */
static void test_volume_of_all_ranks(void)
{
    const int64_t state = 3 * 8 * 16 * 4;
    for (int P = 1; P <= 8; P++)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++)
            for (int back = 0; back < 2; back++) {
                struct comm_count sum = {0};
                for (int r = 0; r < P; r++)
                    volume_add(&sum, volume_state(x, P, r, 3, 8, 16, 1, 4, back), 1);
                int64_t want = (x == EXCHANGE_ALL_GATHER ? P : 1) * (P - 1) * state;
                CHECK(sum.bytes_sent == want && sum.bytes_received == want);
                CHECK(sum.messages_sent == sum.messages_received);
            }
}

/* ---- mutants: each must be caught by the comparison above ------------------------------------ */

#ifdef SEQD_MUTANTS
/* Checks that an injected fault is caught. At least three ranks are needed, because the fault
 * damages the state that a rank passes on, and only later ranks use it. */
static void check_mutant(int mutant, enum lin_docs docs)
{
    struct lin_problem p = lin_make((struct lin_sizes){37, 3, 8, 6, 0}, docs, LIN_FIRST, false);
    for (int P = 3; P <= 4; P++)
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++) {
            struct lin_variant v = variant(&p, P, (enum exchange_id)x, DT_F64);
            struct lin_run out;
            CHECK(lin_run(&p, &v, &out) == 0 && within(lin_compare(&out), DT_F64));
            lin_run_free(&out);
            v.mutant = mutant;
            lin_run(&p, &v, &out);
            char by[64];
            snprintf(by, sizeof by, "%s, P %d",
                     v.exchange == EXCHANGE_RING   ? "ring"
                     : v.exchange == EXCHANGE_SCAN ? "scan"
                                                   : "all_gather",
                     P);
            mutant_report(mutant, !within(lin_compare(&out), DT_F64), by);
            lin_run_free(&out);
        }
    lin_free(&p);
}

static void test_mutants_are_caught(void)
{
    check_mutant(MUTANT_GRAD_OVER_P, LIN_ONE);
    check_mutant(MUTANT_DECAY_POWER, LIN_ONE);
    check_mutant(MUTANT_STATE_EARLY, LIN_ONE);
    check_mutant(MUTANT_OWN_DROPPED, LIN_ONE);
    check_mutant(MUTANT_HEAD_OFFSET, LIN_ONE);
    check_mutant(MUTANT_STATE_CROSSED, LIN_MISS);
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
    RUN(test_volume_of_all_ranks);
    RUN(test_64_one_token);
    RUN(test_64_more_ranks_than_tokens);
    if (!quick) RUN(test_64_odd_length);
    RUN(test_64_padding);
    RUN(test_64_groups);
    RUN(test_64_bits);
    RUN(test_64_decode);
    if (lin_device(0, 1)->ops->linear_fwd) {
        RUN(test_32_products);
        if (!quick) RUN(test_32_long);
        if (!quick) RUN(test_32_large);
        RUN(test_32_bits);
        RUN(test_32_decode);
    }
    lin_devices_close();
    printf("  worst: float64 %.2e %.2e, fp32 %.2e %.2e\n", worst[DT_F64].fwd, worst[DT_F64].bwd,
           worst[DT_F32].fwd, worst[DT_F32].bwd);
    return test_done("lasp");
}
