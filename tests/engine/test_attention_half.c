/* Compares ring attention in 16-bit types with results that are computed in float64 from the
 * definition. Eight ranks must have no larger error than one rank. Under determinism "ranks" they
 * must have the same bits as one rank. Keys and values are sent in the type in which they are
 * stored. Partial results and sums are sent in fp32. tests/lib/ring.h checks the bytes of every
 * run. */
/* Not under sanitizers: test_attention and check_kernels run the same code. */
#include "tests/lib/ring.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static enum dtype half; /* the type that the running tests use */

/* Returns u, an upper bound of the relative L2 error of one rounding. The error of a single number
 * is at most half a unit in the last place, which is 2 u. The root mean square over many numbers
 * is 0.8 u. */
static double u(void)
{
    return half == DT_F16 ? 0x1p-12 : 0x1p-9;
}

static const struct heads {
    int64_t H, Hk, D;
} heads[] = {{2, 2, 24}, {6, 2, 8}, {8, 1, 64}};

struct squares { /* sums of squares of the errors and of the true values, over all cases */
    double o, dq, dk, dv;
};

static double square(const float *x, const double *ref, int64_t rows, int64_t cols, int64_t c0,
                     int64_t n)
{
    const struct norms s = norms(x, ref, rows, cols, c0, n);
    return s.err * s.err;
}

static void add_squares(struct squares *s, const struct problem *p, const struct result *r)
{
    const int64_t q = p->H * p->D, k = p->Hk * p->D;
    s->o += square(r->o, p->o, p->S, q, 0, q);
    s->dq += square(r->dq, p->dq, p->S, q, 0, q);
    s->dk += square(r->dkv, p->dkv, p->S, 2 * k, 0, k);
    s->dv += square(r->dkv, p->dkv, p->S, 2 * k, k, k);
}

/* Runs one case and checks its errors. Sums are in fp32. A device may round p and ds for its
 * products. o is rounded at the end, and delta is computed from the rounded o. The squares of
 * independent rounding errors add up. The error of dv comes from the rounding of p. The error of o
 * comes from the roundings of p and of o, which makes sqrt(2) u. The errors of dq and dk come from
 * ds, from delta, and from the rounded p that they use. */
static void once(const struct problem *p, const struct variant *v, struct squares *sum)
{
    struct result out = result_make(p);
    CHECK(run(p, v, &out) == 0);
    const struct errors e = compare(p, &out);
    CHECK_MSG(e.o <= M_SQRT2 * u() && e.dv <= u() && e.dq <= 2 * u() && e.dk <= 2 * u(),
              "P %d layout %d causal %d: o %.2f dq %.2f dk %.2f dv %.2f u", v->P, v->layout,
              p->causal, e.o / u(), e.dq / u(), e.dk / u(), e.dv / u());
    add_squares(sum, p, &out);
    result_free(&out);
}

static void check_ratio(const char *name, double many, double one)
{
    const double ratio = sqrt(many / one);
    printf(" %s %.3f", name, ratio);
    CHECK_MSG(one > 0 && ratio <= 1.10, "%s: %g", name, ratio);
}

/* Checks that eight ranks have no larger error than one rank. Each error is a root mean square of
 * about ten thousand numbers from the same distribution, so the two errors agree within a few
 * percent. If a sum were kept in 16 bits between blocks or hops, it would be rounded 7 more times.
 * The error of o would then be sqrt(8) times as large. The error of dkv would grow far more,
 * because dkv is not rounded at all. */
static void test_ranks_add_no_error(void)
{
    struct squares one = {0}, many = {0};
    for (int h = 0; h < 3; h++)
        for (int docs = 0; docs < 2; docs++)
            for (int causal = 0; causal < 2; causal++) {
                struct problem p = problem_make(300, heads[h].H, heads[h].Hk, heads[h].D, docs,
                                                causal);
                problem_round(&p, half);
                truth(&p);
                struct variant v = {.P = 1,
                                    .layout = causal ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS,
                                    .strategy = STRATEGY_RSA,
                                    .n_threads = 1,
                                    .act = half};
                once(&p, &v, &one);
                v.P = 8;
                v.fused = true;
                once(&p, &v, &many);
                problem_free(&p);
            }
    printf("  error of 8 ranks over 1:");
    check_ratio("o", many.o, one.o);
    check_ratio("dq", many.dq, one.dq);
    check_ratio("dk", many.dk, one.dk);
    check_ratio("dv", many.dv, one.dv);
    printf("\n");
}

static void check_bits(int64_t S, const struct heads *h, enum docs docs)
{
    struct problem p = problem_make(S, h->H, h->Hk, h->D, docs, true);
    struct variant v = {.P = 1,
                        .layout = LAYOUT_CONTIGUOUS,
                        .rank_bits = true,
                        .strategy = STRATEGY_LOCAL,
                        .n_threads = 1,
                        .act = half};
    struct result want = result_make(&p), got = result_make(&p);
    problem_round(&p, half);
    CHECK(run(&p, &v, &want) == 0);
    v.strategy = STRATEGY_RSA;
    for (v.P = 1; v.P <= 8; v.P *= 2)
        for (v.n_threads = 1; v.n_threads <= 2; v.n_threads++) {
            v.fused = v.n_threads == 2;
            CHECK(run(&p, &v, &got) == 0);
            CHECK_MSG(same_bits(&p, &got, &want),
                      "S %lld: %d ranks of %d threads differ from one rank", (long long)S, v.P,
                      v.n_threads);
        }
    result_free(&want);
    result_free(&got);
    problem_free(&p);
}

static void test_rank_bits(void)
{
    for (int h = 0; h < 3; h++) {
        check_bits(1, &heads[h], DOCS_ONE);
        check_bits(37, &heads[h], DOCS_ONE);
        check_bits(500, &heads[h], DOCS_FIVE);
    }
}

static void test_other_isas(void)
{
    for (const char *const *i = be_isas() + 1; *i; i++) {
        devices_close();
        isa = *i;
        printf("  %s", isa);
        test_ranks_add_no_error();
        check_bits(500, &heads[1], DOCS_FIVE);
    }
    devices_close();
    isa = NULL;
}

int main(void)
{
    static const enum dtype types[] = {DT_BF16, DT_F16};
    for (int i = 0; i < 2; i++) {
        half = types[i];
        printf("%s\n", half == DT_F16 ? "fp16" : "bf16");
        RUN(test_ranks_add_no_error);
        RUN(test_rank_bits);
        if (!SANITIZED && !small_tests()) RUN(test_other_isas);
    }
    devices_close();
    return test_done("attention_half");
}
