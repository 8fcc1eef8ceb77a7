/* check_kernels: every slot of struct be_ops, on every instruction set of this machine, with 1 and
 * 2 threads, against tests/ref.h. Outputs lie between sentinels, scratch is NaN before every call,
 * and bits must not depend on threads or on which other rows are in the call.
 *
 * Tolerances: products and attention as said at their checks; operations on rows are chains of a
 * few roundings (each at most 2^-24 relative) whose count is written beside each bound. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include "tests/box.h"
#include "tests/ref.h"
#include "tests/test.h"

#define ULP (FLT_EPSILON / 2) /* 2^-24: one rounding */

static struct be *be;       /* the device under test ... */
static struct be *be_other; /* ... and one of the same instruction set with 3 threads */

static void poison(struct be *b)
{
    memset(b->scratch, 0xff, (size_t)b->n_threads * BE_SCRATCH_PER_THREAD);
}

#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        poison(b);                                                                                 \
        (b)->ops->op(b, __VA_ARGS__);                                                              \
    } while (0)

/* ---- products ------------------------------------------------------------------------------ */

/* What a plain loop in float makes of c = op(a) op(b): the yardstick for the kernel's error. */
static double naive_gemm_error(const struct gemm_args *a, struct tensor c0, struct mat want)
{
    double diff = 0, norm = 0;
    int64_t K = a->trans_a ? a->a.rows : a->a.cols;
    const float *pa = a->a.data, *pb = a->b.data, *pc = c0.data;
    for (int64_t i = 0; i < c0.rows; i++)
        for (int64_t j = 0; j < c0.cols; j++) {
            float s = a->accumulate ? pc[i * c0.ld + j] : 0;
            for (int64_t k = 0; k < K; k++)
                s += (a->trans_a ? pa[k * a->a.ld + i] : pa[i * a->a.ld + k]) *
                     (a->trans_b ? pb[j * a->b.ld + k] : pb[k * a->b.ld + j]);
            diff += (s - MAT(want, i, j)) * (s - MAT(want, i, j));
            norm += MAT(want, i, j) * MAT(want, i, j);
        }
    return norm > 0 ? sqrt(diff / norm) : 0;
}

static void check_gemm(int64_t M, int64_t N, int64_t K, bool ta, bool tb, bool acc)
{
    struct box a = box_new(ta ? K : M, ta ? M : K, 3), b = box_new(tb ? N : K, tb ? K : N, 5);
    struct box c = box_new(M, N, 2), c2, part;
    box_random(a, 1, 1);
    box_random(b, 2, 1);
    box_random(c, 3, 1);
    struct gemm_args args = {a.t, b.t, c.t, ta, tb, acc};
    struct mat ma = mat_of(a.t), mb = mat_of(b.t), want = mat_of(c.t);
    ref_gemm(ma, ta, mb, tb, want, acc);
    double naive = naive_gemm_error(&args, c.t, want);
    c2 = box_copy(c, 0);
    int64_t r0 = M / 3, n = (M - r0 + 1) / 2;
    part = box_new(n, N, 1);
    for (int64_t i = 0; i < n; i++) memcpy(box_at(part, i, 0), box_at(c, r0 + i, 0), (size_t)N * 4);
    if (!acc) box_fill(c, NAN);
    CALL(be, gemm, &args);
    double err = ref_rel_l2(c.t, want);
    /* twice a plain loop's error, and one rounding where that is exact by luck */
    CHECK_MSG(err <= 2 * naive + ULP, "%lldx%lldx%lld %d%d%d: %g, naive %g", (long long)M,
              (long long)N, (long long)K, ta, tb, acc, err, naive);
    CHECK(box_intact(c));
    args.c = c2.t;
    CALL(be_other, gemm, &args);
    CHECK_MSG(box_same_bits(c2, c, 0), "bits depend on threads at %lldx%lldx%lld", (long long)M,
              (long long)N, (long long)K);
    args.c = part.t;
    args.a = ta ? tensor_sub(a.t, 0, K, r0, n) : tensor_sub(a.t, r0, n, 0, K);
    CALL(be, gemm, &args);
    CHECK_MSG(box_same_bits(part, c, r0), "bits depend on other rows at %lldx%lldx%lld",
              (long long)M, (long long)N, (long long)K);
    CHECK(box_intact(part) && box_intact(c2));
    mat_free(&ma), mat_free(&mb), mat_free(&want);
    box_free(&a), box_free(&b), box_free(&c), box_free(&c2), box_free(&part);
}

static void check_gemm_all(void)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {1, 7, 300},   {2, 33, 5},    {5, 64, 16},
                                        {13, 31, 257}, {14, 32, 256}, {29, 65, 100}, {100, 96, 768},
                                        {128, 1, 64},  {3, 1100, 40}, {530, 70, 33}, {64, 128, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (int f = 0; f < 8; f++)
            check_gemm(shapes[s][0], shapes[s][1], shapes[s][2], f & 1, f & 2, f & 4);
}

/* ---- attention ----------------------------------------------------------------------------- */

enum mask { CAUSAL, FULL, DOCS, DOC_EACH, WINDOW, RAGGED, NOBODY };

struct attn_case {
    int64_t Tq, Tk, H, Hk, D;
    enum mask mask;
    int n_calls;      /* the keys come in so many blocks of uneven length */
    double deviation; /* of queries and keys: scores get its square */
    /* filled on first use */
    struct box q, kv, d_o;
    struct mat o, lse, dq, dkv;
    int64_t *lo, *hi;
};

static struct attn_case attn_cases[] = {
    {1, 1, 1, 1, 2, CAUSAL, 1, 1},        {8, 8, 2, 1, 4, CAUSAL, 2, 1},
    {37, 37, 3, 1, 16, CAUSAL, 3, 1},     {64, 64, 2, 2, 64, CAUSAL, 1, 1},
    {65, 130, 4, 2, 32, FULL, 2, 1},      {1, 300, 6, 2, 64, FULL, 3, 1},
    {200, 200, 2, 1, 66, DOCS, 3, 1},     {150, 150, 8, 1, 16, DOC_EACH, 2, 1},
    {300, 300, 2, 2, 24, WINDOW, 4, 1},   {190, 257, 3, 3, 48, RAGGED, 5, 1},
    {70, 90, 2, 1, 10, NOBODY, 2, 1},     {129, 129, 2, 1, 128, CAUSAL, 2, 1},
    {100, 70, 1, 1, 256, FULL, 2, 1},     {96, 96, 1, 1, 34, RAGGED, 8, 3},
    {1000, 1000, 3, 1, 16, CAUSAL, 8, 1}, {1000, 1000, 1, 1, 64, DOCS, 5, 2},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {4096, 4096, 1, 1, 16, CAUSAL, 8, 1},
#endif
};

static void attn_mask(struct attn_case *c)
{
    uint64_t seed = 77;
    int64_t shift = c->Tk - c->Tq; /* the queries are the last Tq positions */
    for (int64_t i = 0; i < c->Tq; i++) {
        int64_t pos = i + shift, doc = 1 + c->Tk / 5;
        c->lo[i] = 0;
        c->hi[i] = pos + 1;
        if (c->mask == FULL) c->hi[i] = c->Tk;
        if (c->mask == DOCS) c->lo[i] = pos / doc * doc;
        if (c->mask == DOC_EACH) c->lo[i] = pos;
        if (c->mask == WINDOW) c->lo[i] = pos > 70 ? pos - 70 : 0;
        if (c->mask == NOBODY) c->hi[i] = 0;
        if (c->mask == RAGGED) { /* any interval, empty ones and ones past the keys too */
            c->lo[i] = (int64_t)(box_rand(&seed) % (uint64_t)(c->Tk + 9)) - 4;
            c->hi[i] = (int64_t)(box_rand(&seed) % (uint64_t)(c->Tk + 9)) - 4;
        }
    }
}

static void attn_prepare(struct attn_case *c)
{
    if (c->lo) return;
    c->lo = malloc((size_t)c->Tq * sizeof *c->lo);
    c->hi = malloc((size_t)c->Tq * sizeof *c->hi);
    attn_mask(c);
    c->q = box_new(c->Tq, c->H * c->D, 4);
    c->kv = box_new(c->Tk, 2 * c->Hk * c->D, 6);
    c->d_o = box_new(c->Tq, c->H * c->D, 1);
    box_random(c->q, 11, c->deviation);
    box_random(c->kv, 12, c->deviation);
    box_random(c->d_o, 13, 1);
    struct ref_attn ra = {c->H, c->Hk, c->D, 1 / sqrt((double)c->D), c->lo, c->hi, 0};
    struct mat q = mat_of(c->q.t), kv = mat_of(c->kv.t), d_o = mat_of(c->d_o.t);
    c->o = mat_new(c->Tq, c->H * c->D);
    c->lse = mat_new(c->H, c->Tq);
    c->dq = mat_new(c->Tq, c->H * c->D);
    c->dkv = mat_new(c->Tk, 2 * c->Hk * c->D);
    ref_attn_fwd(&ra, q, kv, c->o, c->lse);
    ref_attn_bwd(&ra, q, kv, c->o, c->lse, d_o, c->dq, c->dkv);
    mat_free(&q), mat_free(&kv), mat_free(&d_o);
}

/* First key row of block b of n: uneven on purpose. */
static int64_t attn_cut(const struct attn_case *c, int b)
{
    return b == 0 ? 0 : b == c->n_calls ? c->Tk : (c->Tk * b + b % 3) / c->n_calls;
}

struct attn_out {
    struct box o, m, l, delta, dq, dkv;
};

/* Query rows [r0, r0 + n) of a case through forward, finish, delta and backward. */
static struct attn_out attn_run(struct be *b, struct attn_case *c, int64_t r0, int64_t n)
{
    struct attn_out x = {box_new(n, c->H * c->D, 2), box_new(c->H, n, 3),
                         box_new(c->H, n, 3),        box_new(c->H, n, 3),
                         box_new(n, c->H * c->D, 5), box_new(c->Tk, 2 * c->Hk * c->D, 3)};
    box_fill(x.o, 0), box_fill(x.m, -INFINITY), box_fill(x.l, 0);
    box_fill(x.dq, 0), box_fill(x.dkv, 0);
    struct tensor q = tensor_sub(c->q.t, r0, n, 0, c->H * c->D);
    struct tensor d_o = tensor_sub(c->d_o.t, r0, n, 0, c->H * c->D);
    float scale = (float)(1 / sqrt((double)c->D));
    int64_t w = 2 * c->Hk * c->D;
    for (int k = 0; k < c->n_calls; k++) {
        int64_t t0 = attn_cut(c, k), t1 = attn_cut(c, k + 1);
        CALL(b, attn_fwd,
             &(struct attn_fwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), x.o.t, x.m.t.data,
                                     x.l.t.data, x.m.t.ld, c->lo + r0, c->hi + r0, t0, c->H, c->Hk,
                                     c->D, scale});
    }
    CALL(b, attn_finish,
         &(struct attn_finish_args){x.o.t, x.o.t, x.m.t.data, x.l.t.data, x.m.t.ld, c->H, c->D});
    CALL(b, attn_delta,
         &(struct attn_delta_args){x.o.t, d_o, x.delta.t.data, x.delta.t.ld, c->H, c->D});
    for (int k = 0; k < c->n_calls; k++) {
        int64_t t0 = attn_cut(c, k), t1 = attn_cut(c, k + 1);
        CALL(b, attn_bwd,
             &(struct attn_bwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), d_o, x.dq.t,
                                     tensor_sub(x.dkv.t, t0, t1 - t0, 0, w), x.m.t.data,
                                     x.delta.t.data, x.m.t.ld, c->lo + r0, c->hi + r0, t0, c->H,
                                     c->Hk, c->D, scale});
    }
    return x;
}

static void attn_out_free(struct attn_out *x)
{
    box_free(&x->o), box_free(&x->m), box_free(&x->l), box_free(&x->delta);
    box_free(&x->dq), box_free(&x->dkv);
}

/* lse of rows that see somebody within a few roundings of float64, -inf exactly for the others. */
static bool lse_close(struct box m, struct mat want, double deviation)
{
    for (int64_t i = 0; i < m.t.rows; i++)
        for (int64_t j = 0; j < m.t.cols; j++) {
            double x = *box_at(m, i, j), y = MAT(want, i, j);
            if (y == -INFINITY ? x != y : !(fabs(x - y) <= 8 * ULP * (fabs(y) + 4 * deviation)))
                return false;
        }
    return true;
}

static void check_attn_case(struct attn_case *c)
{
    attn_prepare(c);
    struct attn_out x = attn_run(be, c, 0, c->Tq), y = attn_run(be_other, c, 0, c->Tq);
    /* The bars of the blockwise ring (2e-6, 5e-6) are for scores of a few units. A score's rounding
     * is relative to its size and goes through exp: larger scores get the bar in proportion. */
    double size = c->deviation * c->deviation;
    double eo = ref_rel_l2(x.o.t, c->o), eq = ref_rel_l2(x.dq.t, c->dq);
    /* Where every row sees one key, dq is 0: what is left is the rounding of dp - delta. */
    if (c->mask == DOC_EACH) eq /= sqrt((double)(c->Tq * c->H * c->D));
    double ekv = ref_rel_l2(x.dkv.t, c->dkv);
    CHECK_MSG(eo <= 2e-6 * size, "o %g", eo);
    CHECK_MSG(eq <= 5e-6 * size, "dq %g", eq);
    CHECK_MSG(ekv <= 5e-6 * size, "dkv %g", ekv);
    CHECK(lse_close(x.m, c->lse, size));
    CHECK(box_intact(x.o) && box_intact(x.m) && box_intact(x.l) && box_intact(x.delta));
    CHECK(box_intact(x.dq) && box_intact(x.dkv));
    CHECK(box_same_bits(y.o, x.o, 0) && box_same_bits(y.m, x.m, 0));
    CHECK(box_same_bits(y.dq, x.dq, 0) && box_same_bits(y.dkv, x.dkv, 0));
    int64_t r0 = c->Tq / 3, n = (c->Tq - r0 + 1) / 2;
    struct attn_out part = attn_run(be, c, r0, n);
    CHECK(box_same_bits(part.o, x.o, r0) && box_same_bits(part.dq, x.dq, r0));
    attn_out_free(&x), attn_out_free(&y), attn_out_free(&part);
    if (test_failures_now)
        printf("  ^ Tq %lld Tk %lld H %lld Hk %lld D %lld mask %d calls %d\n", (long long)c->Tq,
               (long long)c->Tk, (long long)c->H, (long long)c->Hk, (long long)c->D, c->mask,
               c->n_calls);
}

static void check_attn(void)
{
    for (size_t i = 0; i < sizeof attn_cases / sizeof attn_cases[0]; i++)
        check_attn_case(&attn_cases[i]);
}

/* ---- rows ---------------------------------------------------------------------------------- */

static const int64_t row_shapes[][2] = {{1, 1}, {3, 17}, {5, 64}, {37, 100}, {130, 768}};
#define EACH_ROW_SHAPE(s) for (size_t s = 0; s < sizeof row_shapes / sizeof row_shapes[0]; s++)

static void check_rmsnorm(void)
{
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], C = row_shapes[s][1];
        struct box x = box_new(T, C, 1), g = box_new(1, C, 0), y = box_new(T, C, 2);
        struct box r = box_new(1, T, 0), dy = box_new(T, C, 3), dx = box_new(T, C, 1);
        struct box dg = box_new(1, C, 0), dx2, dg2;
        box_random(x, 1, 2), box_random(g, 2, 1), box_random(dy, 3, 1);
        box_random(dx, 4, 1), box_random(dg, 5, 1);
        struct mat mx = mat_of(x.t), mg = mat_of(g.t), mdy = mat_of(dy.t), my = mat_new(T, C);
        struct mat mr = mat_new(T, 1), mdx = mat_of(dx.t), mdg = mat_of(dg.t);
        ref_rmsnorm_fwd(mx, mg, 1e-5, my, mr);
        ref_rmsnorm_bwd(mx, mg, mr, mdy, mdx, mdg);
        CALL(be, rmsnorm_fwd, &(struct rmsnorm_fwd_args){x.t, y.t, g.t, r.t.data, 1e-5f});
        /* x r g: r has the sum of C squares behind it, whose error grows slower than sqrt(C) */
        double sum = ULP * sqrt((double)C);
        CHECK(ref_rel_l2(y.t, my) <= 4 * ULP + sum);
        CHECK(box_intact(y) && box_intact(r));
        dx2 = box_copy(dx, 0), dg2 = box_copy(dg, 0);
        struct rmsnorm_bwd_args bwd = {x.t, dy.t, dx.t, g.t, r.t.data, dg.t.data, true};
        CALL(be, rmsnorm_bwd, &bwd);
        CHECK(ref_rel_l2(dx.t, mdx) <= 8 * ULP + 4 * sum);
        /* each addend of dg carries r's error and two roundings; the sum itself is in double */
        CHECK(ref_rel_l2(dg.t, mdg) <= 8 * ULP + sum);
        CHECK(box_intact(dx) && box_intact(dg));
        bwd.dx = dx2.t, bwd.dg = dg2.t.data;
        CALL(be_other, rmsnorm_bwd, &bwd);
        CHECK(box_same_bits(dx2, dx, 0) && box_same_bits(dg2, dg, 0));
        box_free(&dx2);
        dx2 = box_new(T, C, 0);
        bwd.dx = dx2.t, bwd.accumulate = false;
        CALL(be, rmsnorm_bwd, &bwd);
        struct mat plain = mat_new(T, C), unused = mat_new(1, C);
        ref_rmsnorm_bwd(mx, mg, mr, mdy, plain, unused);
        /* C = 1 leaves nothing but cancellation */
        CHECK(C == 1 || ref_rel_l2(dx2.t, plain) <= 8 * ULP + 4 * sum);
        mat_free(&mx), mat_free(&mg), mat_free(&mdy), mat_free(&my), mat_free(&mr);
        mat_free(&mdx), mat_free(&mdg), mat_free(&plain), mat_free(&unused);
        box_free(&x), box_free(&g), box_free(&y), box_free(&r), box_free(&dy);
        box_free(&dx), box_free(&dg), box_free(&dx2), box_free(&dg2);
    }
}

static void check_rope(void)
{
    static const int64_t dims[] = {2, 6, 16, 64, 128, 256};
    for (size_t s = 0; s < sizeof dims / sizeof dims[0]; s++) {
        int64_t D = dims[s], H = 3, T = 41, pos[41];
        double freq[128];
        for (int64_t j = 0; j < D / 2; j++) freq[j] = pow(10000, -2.0 * (double)j / (double)D);
        for (int64_t t = 0; t < T; t++) pos[t] = t < 20 ? t : (int64_t)1 << (t - 15); /* to 2^25 */
        /* two more heads that must stay as they are */
        struct box x = box_new(T, (H + 2) * D, 1), first;
        box_random(x, 9, 1);
        first = box_copy(x, 1);
        struct mat want = mat_of(x.t);
        ref_rope(want, pos, freq, H, D, false);
        struct rope_args a = {x.t, pos, freq, H, D, false};
        CALL(be, rope, &a);
        CHECK(ref_rel_l2(x.t, want) <= 3 * ULP); /* two products and a sum of rounded sines */
        CHECK(box_intact(x));
        a.inverse = true;
        CALL(be_other, rope, &a);
        mat_free(&want);
        want = mat_of(first.t);
        CHECK(ref_rel_l2(x.t, want) <= 6 * ULP);
        mat_free(&want), box_free(&x), box_free(&first);
    }
}

static void check_swiglu(void)
{
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], I = row_shapes[s][1];
        struct box gu = box_new(T, 2 * I, 1), a = box_new(T, I, 2), da = box_new(T, I, 0);
        struct box dgu = box_new(T, 2 * I, 3);
        box_random(gu, 21, 3), box_random(da, 22, 1);
        if (I > 1) *box_at(gu, 0, 0) = -200; /* e^200 overflows */
        struct mat mgu = mat_of(gu.t), ma = mat_new(T, I), mda = mat_of(da.t);
        struct mat mdgu = mat_new(T, 2 * I);
        ref_swiglu_fwd(mgu, ma);
        ref_swiglu_bwd(mgu, mda, mdgu);
        CALL(be, swiglu_fwd, &(struct swiglu_fwd_args){gu.t, a.t});
        /* exp (3 roundings), 1 + e, a quotient, two products */
        CHECK(ref_rel_l2(a.t, ma) <= 8 * ULP);
        CALL(be, swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, dgu.t});
        CHECK(ref_rel_l2(dgu.t, mdgu) <= 12 * ULP);
        CHECK(box_intact(a) && box_intact(dgu));
        CALL(be_other, swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, gu.t}); /* in place */
        CHECK(box_same_bits(gu, dgu, 0) && box_intact(gu));
        mat_free(&mgu), mat_free(&ma), mat_free(&mda), mat_free(&mdgu);
        box_free(&gu), box_free(&a), box_free(&da), box_free(&dgu);
    }
}

static void check_embed(void)
{
    EACH_ROW_SHAPE(s)
    {
        int64_t T = row_shapes[s][0], C = row_shapes[s][1], V = 11;
        int32_t ids[130];
        for (int64_t t = 0; t < T; t++) ids[t] = (int32_t)((t * t + 3) % V); /* many repeats */
        struct box table = box_new(V, C, 1), x = box_new(T, C, 2), dt = box_new(V, C, 3), dt2;
        box_random(table, 31, 1), box_random(dt, 32, 1);
        struct mat mt = mat_of(table.t), mx = mat_new(T, C), mdt = mat_of(dt.t);
        dt2 = box_copy(dt, 0);
        ref_embed_fwd(mt, ids, mx);
        CALL(be, embed_fwd, &(struct embed_fwd_args){table.t, x.t, ids});
        CHECK(ref_rel_l2(x.t, mx) == 0 && box_intact(x));
        ref_embed_bwd(mdt, ids, mx);
        CALL(be, embed_bwd, &(struct embed_bwd_args){dt.t, x.t, ids});
        /* up to T additions of similar size */
        CHECK(ref_rel_l2(dt.t, mdt) <= ULP * (1 + (double)T) && box_intact(dt));
        CALL(be_other, embed_bwd, &(struct embed_bwd_args){dt2.t, x.t, ids});
        CHECK(box_same_bits(dt2, dt, 0));
        mat_free(&mt), mat_free(&mx), mat_free(&mdt);
        box_free(&table), box_free(&x), box_free(&dt), box_free(&dt2);
    }
}

static void check_xent_random(void)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {20, 258}, {33, 1000}, {4, 50257}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t T = shapes[s][0], V = shapes[s][1];
        int32_t target[33];
        double nll[33], want_nll[33], sum = 0, want_sum = 0;
        for (int64_t t = 0; t < T; t++) target[t] = t % 4 == 2 ? -1 : (int32_t)(t * 7919 % V);
        struct box x = box_new(T, V, 3), y;
        box_random(x, 41, 4);
        y = box_copy(x, 3);
        struct mat want = mat_of(x.t);
        ref_xent(want, target, 0.25, want_nll);
        CALL(be, xent, &(struct xent_args){x.t, x.t, target, nll, 0.25f, true});
        for (int64_t t = 0; t < T; t++) {
            CHECK(target[t] >= 0 || nll[t] == 0);
            sum += nll[t], want_sum += want_nll[t];
        }
        /* an exponential's argument reaches 40: its rounding, 20 ulp, is the largest part */
        CHECK_MSG(fabs(sum - want_sum) <= 4 * ULP * (double)T + 20 * ULP * fabs(want_sum), "%g %g",
                  sum, want_sum);
        CHECK_MSG(ref_rel_l2(x.t, want) <= 24 * ULP, "%g", ref_rel_l2(x.t, want));
        CHECK(box_intact(x));
        double again[33];
        CALL(be_other, xent, &(struct xent_args){y.t, y.t, target, again, 0.25f, false});
        CHECK(!memcmp(nll, again, (size_t)T * sizeof nll[0]) && box_intact(y));
        CALL(be_other, xent, &(struct xent_args){y.t, y.t, target, again, 0.25f, true});
        CHECK(box_same_bits(y, x, 0));
        mat_free(&want), box_free(&x), box_free(&y);
    }
}

/* Far from zero a loss must not lose its digits, and a wide gap must neither overflow nor vanish. The
 * differences are whole numbers, so exponentials and their sum are all that is rounded. */
static void check_xent_far(void)
{
    enum { V = 1000 };
    static const double offsets[] = {0, 3000, -50000, 1 << 20};
    for (size_t k = 0; k < sizeof offsets / sizeof offsets[0]; k++) {
        struct box x = box_new(2, V, 3);
        const int32_t target[2] = {7, 7};
        double nll[2];
        for (int64_t c = 0; c < V; c++) {
            *box_at(x, 0, c) = (float)(offsets[k] + (c == 7));
            *box_at(x, 1, c) = (float)(offsets[k] + (c == 9 ? 100000 : 0));
        }
        CALL(be, xent, &(struct xent_args){x.t, x.t, target, nll, 1, true});
        const double want = log(1 + (V - 1) * exp(-1));
        CHECK_MSG(fabs(nll[0] - want) <= 4 * ULP, "at %g: %.9g, not %.9g", offsets[k], nll[0],
                  want);
        CHECK_MSG(nll[1] == 100000, "at %g: %.9g", offsets[k], nll[1]);
        CHECK(*box_at(x, 1, 7) == -1 && *box_at(x, 1, 9) == 1 && *box_at(x, 1, 0) == 0);
        box_free(&x);
    }
}

/* A logit that is no number must show in the loss, wherever it stands: training on would hide it. */
static void check_xent_nan(void)
{
    enum { V = 37 };
    for (int64_t at = 0; at < V; at++) {
        struct box x = box_new(1, V, 0);
        const int32_t target[1] = {7};
        double nll[1];
        box_random(x, 43, 2);
        *box_at(x, 0, at) = NAN;
        CALL(be, xent, &(struct xent_args){x.t, x.t, target, nll, 1, true});
        CHECK_MSG(isnan(nll[0]), "NaN at %lld: nll %g", (long long)at, nll[0]);
        box_free(&x);
    }
}

static void check_xent(void)
{
    check_xent_random();
    check_xent_far();
    check_xent_nan();
}

/* ---- flat ranges --------------------------------------------------------------------------- */

static const int64_t flat_sizes[] = {1, 15, 1000, SUMSQ_BLOCK, 2 * SUMSQ_BLOCK + 77};
#define EACH_FLAT(s) for (size_t s = 0; s < sizeof flat_sizes / sizeof flat_sizes[0]; s++)

static void check_add(void)
{
    EACH_FLAT(s)
    {
        int64_t n = flat_sizes[s], n_bad = 0;
        struct box x = box_new(1, n, 0), y = box_new(1, n, 0);
        box_random(x, 51, 1), box_random(y, 52, 1);
        struct mat my = mat_of(y.t);
        CALL(be, add, &(struct add_args){y.t.data, x.t.data, n});
        for (int64_t i = 0; i < n; i++)
            n_bad += *box_at(y, 0, i) != (float)MAT(my, 0, i) + *box_at(x, 0, i);
        CHECK(n_bad == 0 && box_intact(y));
        mat_free(&my), box_free(&x), box_free(&y);
    }
}

static void check_adamw(void)
{
    EACH_FLAT(s)
    {
        int64_t n = flat_sizes[s];
        struct box p = box_new(1, n, 0), m = box_new(1, n, 0), v = box_new(1, n, 0);
        struct box g = box_new(1, n, 0);
        box_random(p, 61, 1), box_fill(m, 0), box_fill(v, 0);
        struct mat mp = mat_of(p.t), mm = mat_of(m.t), mv = mat_of(v.t);
        for (int64_t t = 1; t <= 3; t++) {
            box_random(g, (uint64_t)(70 + t), 0.1);
            struct mat mg = mat_of(g.t);
            ref_adamw(mp.p, mm.p, mv.p, mg.p, n, 1e-2, 0.9, 0.95, 1e-8, 0.1, 0.5, t);
            CALL(be, adamw,
                 &(struct adamw_args){p.t.data, m.t.data, v.t.data, NULL, g.t.data, n, 1e-2, 0.9, 0.95,
                                      1e-8, 0.1, 0.5, t});
            mat_free(&mg);
        }
        /* three steps of under four roundings each, on top of rounded coefficients */
        CHECK_MSG(ref_rel_l2(p.t, mp) <= 12 * ULP, "p %g", ref_rel_l2(p.t, mp));
        CHECK_MSG(ref_rel_l2(m.t, mm) <= 16 * ULP, "m %g", ref_rel_l2(m.t, mm));
        CHECK_MSG(ref_rel_l2(v.t, mv) <= 20 * ULP, "v %g", ref_rel_l2(v.t, mv));
        CHECK(box_intact(p) && box_intact(m) && box_intact(v));
        mat_free(&mp), mat_free(&mm), mat_free(&mv);
        box_free(&p), box_free(&m), box_free(&v), box_free(&g);
    }
}

static void check_sumsq(void)
{
    EACH_FLAT(s)
    {
        int64_t n = flat_sizes[s], n_blocks = (n + SUMSQ_BLOCK - 1) / SUMSQ_BLOCK;
        double out[8], again[8];
        struct box g = box_new(1, n, 0);
        box_random(g, 81, 1);
        struct mat mg = mat_of(g.t);
        CALL(be, sumsq, &(struct sumsq_args){g.t.data, n, out});
        CALL(be_other, sumsq, &(struct sumsq_args){g.t.data, n, again});
        for (int64_t b = 0; b < n_blocks; b++) {
            int64_t len = n - b * SUMSQ_BLOCK < SUMSQ_BLOCK ? n - b * SUMSQ_BLOCK : SUMSQ_BLOCK;
            double want = ref_sumsq(mg.p + b * SUMSQ_BLOCK, len);
            /* squares of floats are exact in double; at most n additions each way */
            CHECK(fabs(out[b] - want) <= DBL_EPSILON * (double)len * want);
        }
        CHECK(!memcmp(out, again, (size_t)n_blocks * sizeof out[0]));
        mat_free(&mg), box_free(&g);
    }
}

static void check_memory(void)
{
    struct err e;
    int64_t size = 3 * 4096 + 60, n_bad = 0;
    float *p = be->ops->alloc(be, size, &e), *q = be->ops->alloc(be, size, &e);
    CHECK(p && q && (uintptr_t)p % 64 == 0);
    for (int64_t i = 0; i < size / 4; i++) n_bad += p[i] != 0;
    be->ops->fill(be, p, size / 4 - 1, 2.5f);
    for (int64_t i = 0; i < size / 4; i++) n_bad += p[i] != (i < size / 4 - 1 ? 2.5f : 0);
    be->ops->copy(be, q, p, size);
    n_bad += memcmp(p, q, (size_t)size) != 0;
    float in[5] = {1, 2, 3, 4, 5}, out[5] = {0};
    be->ops->upload(be, p + 7, in, sizeof in);
    be->ops->download(be, out, p + 7, sizeof out);
    n_bad += memcmp(in, out, sizeof in) != 0;
    be->ops->fill(be, p, 3, 0);
    n_bad += p[0] != 0 || p[2] != 0 || p[3] != 2.5f;
    CHECK(n_bad == 0);
    CHECK(!be->ops->sync || be->ops->sync(be, &e) == 0);
    be->ops->free(be, p, size);
    be->ops->free(be, q, size);
}

/* ---- the table ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*check)(void);
    int n_slots; /* slots of struct be_ops that it calls */
} checks[] = {
    {"gemm", check_gemm_all, 1},
    {"attn_fwd, _finish, _delta, _bwd", check_attn, 4},
    {"rmsnorm_fwd, _bwd", check_rmsnorm, 2},
    {"rope", check_rope, 1},
    {"swiglu_fwd, _bwd", check_swiglu, 2},
    {"embed_fwd, _bwd", check_embed, 2},
    {"xent", check_xent, 1},
    {"add", check_add, 1},
    {"adamw", check_adamw, 1},
    {"sumsq", check_sumsq, 1},
    {"fill, copy, upload, download, sync, alloc, free, close", check_memory, 8},
};

/* A slot that nobody checks shows as a wrong count. */
static void test_every_slot(void)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) n += (size_t)checks[i].n_slots;
    CHECK(n == (sizeof(struct be_ops) - sizeof(char *)) / sizeof(void (*)(void)));
}

static void test_unknown_names(void)
{
    struct err e;
    CHECK(!be_open(&(struct be_options){"abacus", NULL, 1, NULL}, &e));
    CHECK(e.code == ERR_UNSUPPORTED && strstr(e.text, "cpu"));
    CHECK(!be_open(&(struct be_options){"cpu", "mmx", 1, NULL}, &e));
    CHECK(e.code == ERR_UNSUPPORTED && strstr(e.text, "portable"));
    CHECK(!be_open(&(struct be_options){"cpu", NULL, 0, NULL}, &e));
    be_close(NULL);
}

int main(void)
{
    RUN(test_every_slot);
    RUN(test_unknown_names);
    for (const char *const *isa = be_isas(); *isa; isa++)
        for (int n_threads = 1; n_threads <= 2; n_threads++) {
            struct err e;
            size_t size = (size_t)n_threads * BE_SCRATCH_PER_THREAD;
            char *scratch = aligned_alloc(64, size);
            be = be_open(&(struct be_options){"cpu", *isa, n_threads, scratch}, &e);
            be_other = be_open(&(struct be_options){"cpu", *isa, 3, NULL}, &e);
            for (size_t i = 0; be && be_other && i < sizeof checks / sizeof checks[0]; i++) {
                char name[128];
                snprintf(name, sizeof name, "%s, %s, %d threads", checks[i].name, *isa, n_threads);
                test_run(name, checks[i].check);
            }
            be_close(be), be_close(be_other);
            free(scratch);
        }
    return test_done("check_kernels");
}
