/* kern_attn.h: checks attention, both forward and backward, as a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_ATTN_H
#define SEQD_TESTS_KERN_ATTN_H

#include "tests/lib/kern.h"

enum mask { CAUSAL, FULL, DOCS, DOC_EACH, WINDOW, RAGGED, NO_KEY };

struct attn_shape {
    int64_t Tq, Tk, H, Hk, D;
    enum mask mask;
    /* the number of calls, each of which gets one block of the keys; the blocks have different
     * lengths */
    int n_calls;
    /* the standard deviation of queries and of keys; the standard deviation of scores is its
     * square */
    double deviation;
    float cap; /* soft cap of scores */
};

struct attn_case {
    int64_t Tq, Tk, H, Hk, D;
    enum mask mask;
    int n_calls;
    double deviation;
    float cap;
    /* the members below are filled when the case is used for the first time */
    struct box q, kv, d_o;
    /* used only with 16 bits: the expected o, rounded to 16 bits, from which delta is computed */
    struct box o_act;
    struct mat o, lse, dq, dkv;
    /* used only with 16 bits: the bounds of the error of each element */
    struct mat bound_o, bound_dq, bound_dkv;
    int64_t *lo, *hi;
};

static const struct attn_shape attn_shapes[] = {
    {1, 1, 1, 1, 2, CAUSAL, 1, 1, 0},        {8, 8, 2, 1, 4, CAUSAL, 2, 1, 0},
    {37, 37, 3, 1, 16, CAUSAL, 3, 1, 0},     {64, 64, 2, 2, 64, CAUSAL, 1, 1, 0},
    {65, 130, 4, 2, 32, FULL, 2, 1, 0},      {1, 300, 6, 2, 64, FULL, 3, 1, 0},
    {200, 200, 2, 1, 66, DOCS, 3, 1, 0},     {150, 150, 8, 1, 16, DOC_EACH, 2, 1, 0},
    {300, 300, 2, 2, 24, WINDOW, 4, 1, 0},   {190, 257, 3, 3, 48, RAGGED, 5, 1, 0},
    {70, 90, 2, 1, 10, NO_KEY, 2, 1, 0},     {129, 129, 2, 1, 128, CAUSAL, 2, 1, 0},
    {100, 70, 1, 1, 256, FULL, 2, 1, 0},     {96, 96, 1, 1, 34, RAGGED, 8, 3, 0},
    {1000, 1000, 3, 1, 16, CAUSAL, 8, 1, 0}, {1000, 1000, 1, 1, 64, DOCS, 5, 2, 0},
    {300, 420, 4, 2, 64, CAUSAL, 2, 1, 0},   {260, 700, 2, 1, 128, WINDOW, 2, 2, 0},
    {200, 390, 2, 2, 72, DOCS, 2, 1, 0},     {150, 333, 2, 1, 96, RAGGED, 4, 1, 0},
    {1, 600, 4, 2, 128, FULL, 2, 1, 0},      {70, 900, 2, 1, 64, FULL, 2, 1, 0},
    {128, 896, 1, 1, 128, CAUSAL, 2, 1, 0},  {128, 510, 1, 1, 64, FULL, 2, 1, 0},
    {37, 37, 3, 1, 16, CAUSAL, 3, 1, 1},     {130, 130, 2, 1, 256, WINDOW, 3, 2, 5},
    {70, 300, 4, 2, 34, RAGGED, 2, 3, 2},    {3, 200, 6, 2, 64, FULL, 2, 1, 0.5f},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    {4096, 4096, 1, 1, 16, CAUSAL, 8, 1, 0},
#endif
};

static void attn_mask(struct attn_case *c)
{
    uint64_t seed = 77;
    int64_t shift = c->Tk - c->Tq; /* the queries are the last Tq of the Tk positions */
    for (int64_t i = 0; i < c->Tq; i++) {
        int64_t pos = i + shift, doc = 1 + c->Tk / 5;
        c->lo[i] = 0;
        c->hi[i] = pos + 1;
        if (c->mask == FULL) c->hi[i] = c->Tk;
        if (c->mask == DOCS) c->lo[i] = pos / doc * doc;
        if (c->mask == DOC_EACH) c->lo[i] = pos;
        if (c->mask == WINDOW) c->lo[i] = pos > 70 ? pos - 70 : 0;
        if (c->mask == NO_KEY) c->hi[i] = 0;
        /* each row gets an interval drawn at random, which may be empty or extend beyond the
         * keys */
        if (c->mask == RAGGED) {
            c->lo[i] = (int64_t)(box_rand(&seed) % (uint64_t)(c->Tk + 9)) - 4;
            c->hi[i] = (int64_t)(box_rand(&seed) % (uint64_t)(c->Tk + 9)) - 4;
        }
    }
}

/* Computes bounds of the errors that 16-bit types may cause. Probabilities and ds are rounded
 * before they enter products. In bf16, this changes them by at most 2^-8 of their value. In fp16,
 * it changes them by at most 2^-11 of their value or by half of the smallest subnormal number.
 * Sums are in fp32. A score is a sum of D products. Its size is D^0.5 (2 deviation)^2 if all
 * products are large, and exp turns its absolute error into a relative one. The terms of the keys
 * are then summed tile by tile, and each sum loses at most as much as cut_most returns. */
static void attn_bounds(struct attn_case *c, const struct ref_attn *ra, struct mat q, struct mat kv,
                        struct mat o, struct mat d_o)
{
    const double chain = cut_most(act, (double)c->D), size = 4 * c->deviation * c->deviation;
    const double rows = cut_most(act, (double)c->Tk) + cut_most(act, (double)c->Tq);
    const double eps = ULP * ((chain + 8) * sqrt((double)c->D) * size + chain + rows);
    c->bound_o = mat_new(c->Tq, c->H * c->D);
    c->bound_dq = mat_new(c->Tq, c->H * c->D);
    c->bound_dkv = mat_new(c->Tk, 2 * c->Hk * c->D);
    const bool fp16 = act == DT_F16;
    ref_attn_bounds(ra, ldexp(1, fp16 ? -11 : -8), fp16 ? ldexp(1, -25) : 0, eps, q, kv, o, c->lse,
                    d_o, c->bound_o, c->bound_dq, c->bound_dkv);
}

static void attn_prepare(struct attn_case *c, const struct attn_shape *s)
{
    if (c->lo) return;
    *c = (struct attn_case){.Tq = s->Tq,
                            .Tk = s->Tk,
                            .H = s->H,
                            .Hk = s->Hk,
                            .D = s->D,
                            .mask = s->mask,
                            .n_calls = s->n_calls,
                            .deviation = s->deviation,
                            .cap = s->cap};
    c->lo = twin_new(c->Tq * (int64_t)sizeof *c->lo);
    c->hi = twin_new(c->Tq * (int64_t)sizeof *c->hi);
    attn_mask(c);
    /* If n_calls is even, rows begin at multiples of 16 bytes, so that a device may copy packs of
     * 16 bytes. If it is odd, rows may begin at other addresses. */
    const bool packs = c->n_calls % 2 == 0;
    c->q = box_act(c->Tq, c->H * c->D, packs ? 8 : 4);
    c->kv = box_act(c->Tk, 2 * c->Hk * c->D, packs ? 8 : 6);
    c->d_o = box_act(c->Tq, c->H * c->D, packs ? 8 : 1);
    c->o_act = box_act(c->Tq, c->H * c->D, 3);
    box_random(c->q, 11, c->deviation);
    box_random(c->kv, 12, c->deviation);
    box_random(c->d_o, 13, 1);
    struct ref_attn ra = {c->H, c->Hk, c->D, 1 / sqrt((double)c->D), c->lo, c->hi, 0, c->cap};
    struct mat q = mat_of(c->q.t), kv = mat_of(c->kv.t), d_o = mat_of(c->d_o.t), o;
    c->o = mat_new(c->Tq, c->H * c->D);
    c->lse = mat_new(c->H, c->Tq);
    c->dq = mat_new(c->Tq, c->H * c->D);
    c->dkv = mat_new(c->Tk, 2 * c->Hk * c->D);
    ref_attn_fwd(&ra, q, kv, c->o, c->lse);
    for (int64_t i = 0; i < c->Tq; i++)
        for (int64_t j = 0; j < c->H * c->D; j++) box_set(c->o_act, i, j, (float)MAT(c->o, i, j));
    o = act != DT_F32 ? mat_of(c->o_act.t) : c->o;
    ref_attn_bwd(&ra, q, kv, o, c->lse, d_o, c->dq, c->dkv);
    if (act != DT_F32) {
        attn_bounds(c, &ra, q, kv, o, d_o);
        mat_free(&o);
    }
    mat_free(&q), mat_free(&kv), mat_free(&d_o);
}

static void attn_case_free(struct attn_case *c)
{
    box_free(&c->q), box_free(&c->kv), box_free(&c->d_o), box_free(&c->o_act);
    mat_free(&c->o), mat_free(&c->lse), mat_free(&c->dq), mat_free(&c->dkv);
    if (act != DT_F32) mat_free(&c->bound_o), mat_free(&c->bound_dq), mat_free(&c->bound_dkv);
    twin_free(c->lo), twin_free(c->hi);
}

/* Returns the first row of keys in block b. The blocks have different lengths on purpose. */
static int64_t attn_cut(const struct attn_case *c, int b)
{
    return b == 0 ? 0 : b == c->n_calls ? c->Tk : (c->Tk * b + b % 3) / c->n_calls;
}

struct attn_out {
    struct box o, m, l, delta, dq, dkv;
    struct box out; /* the output in 16 bits; if act is fp32, `out` is o itself */
};

/* Computes query rows [r0, r0 + n) of a case by attn_fwd, attn_finish, attn_delta and attn_bwd. */
static struct attn_out attn_run(struct be *b, struct attn_case *c, int64_t r0, int64_t n)
{
    /* 1 makes the gaps between rows odd, so that some pairs of floats do not begin at a multiple
     * of 8 bytes */
    const int64_t odd = c->n_calls % 2;
    struct attn_out x = {box_new(n, c->H * c->D, 2 + odd),
                         box_new(c->H, n, 3),
                         box_new(c->H, n, 3),
                         box_new(c->H, n, 3),
                         box_new(n, c->H * c->D, 4 + odd),
                         box_new(c->Tk, 2 * c->Hk * c->D, 2 + odd),
                         box_new_as(act == DT_F32 ? DT_BF16 : act, n, c->H * c->D, 1)};
    box_fill(x.o, 0), box_fill(x.m, -INFINITY), box_fill(x.l, 0);
    box_fill(x.dq, 0), box_fill(x.dkv, 0);
    struct tensor q = tensor_sub(c->q.t, r0, n, 0, c->H * c->D);
    struct tensor d_o = tensor_sub(c->d_o.t, r0, n, 0, c->H * c->D);
    float scale = (float)(1 / sqrt((double)c->D));
    int64_t w = 2 * c->Hk * c->D;
    const bool half = act != DT_F32;
    for (int k = 0; k < c->n_calls; k++) {
        int64_t t0 = attn_cut(c, k), t1 = attn_cut(c, k + 1);
        CALL(b, attn_fwd,
             &(struct attn_fwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), x.o.t, x.m.t.data,
                                     x.l.t.data, x.m.t.ld, c->lo + r0, c->hi + r0, t0, c->H, c->Hk,
                                     c->D, scale, NULL, c->cap, NULL, 0});
    }
    CALL(b, attn_finish,
         &(struct attn_finish_args){x.o.t, half ? x.out.t : x.o.t, x.m.t.data, x.l.t.data, x.m.t.ld,
                                    c->H, c->D});
    CALL(b, attn_delta,
         &(struct attn_delta_args){half ? tensor_sub(c->o_act.t, r0, n, 0, c->H * c->D) : x.o.t,
                                   d_o, x.delta.t.data, x.delta.t.ld, c->H, c->D});
    for (int k = 0; k < c->n_calls; k++) {
        int64_t t0 = attn_cut(c, k), t1 = attn_cut(c, k + 1);
        CALL(b, attn_bwd,
             &(struct attn_bwd_args){q, tensor_sub(c->kv.t, t0, t1 - t0, 0, w), d_o, x.dq.t,
                                     tensor_sub(x.dkv.t, t0, t1 - t0, 0, w), x.m.t.data,
                                     x.delta.t.data, x.m.t.ld, c->lo + r0, c->hi + r0, t0, c->H,
                                     c->Hk, c->D, scale, NULL, c->cap});
    }
    return x;
}

static void attn_out_free(struct attn_out *x)
{
    box_free(&x->o), box_free(&x->m), box_free(&x->l), box_free(&x->delta);
    box_free(&x->dq), box_free(&x->dkv), box_free(&x->out);
}

/* Checks lse. In a row that sees a key, it must be within a few roundings of the float64 result.
 * In all other rows it must be exactly -inf.
 *
 * The bound at deviation 1 is 8 * (4 + lse) ULP, and the rows whose scores have these errors see
 * tens of keys. In tensor cores, truncation changes a score by D / CUT_K half units of its last
 * place (kern.h). The partial sums of a score are two thirds of it on average, so at D = 256
 * truncation amounts to 21 ULP of the score. The error of lse is the average error of the scores.
 * As the scores are at most 2 deviations, this makes 42 ULP. */
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

/* Checks results with the bounds of the blockwise ring (2e-6 and 5e-6), which hold for scores of a
 * few units. A score's rounding error is relative to its size, and exp passes it on to the result.
 * The bounds therefore grow in proportion to the scores. */
static void check_attn_fp32(const struct attn_case *c, const struct attn_out *x)
{
    double size = c->deviation * c->deviation, eo = ref_rel_l2(x->o.t, c->o);
    double eq = ref_rel_l2(x->dq.t, c->dq), ekv = ref_rel_l2(x->dkv.t, c->dkv);
    /* If every row sees a single key, dq is exactly 0. The computed dq then consists only of the
     * rounding error of dp - delta. */
    if (c->mask == DOC_EACH) eq /= sqrt((double)(c->Tq * c->H * c->D));
    CHECK_MSG(eo <= 2e-6 * size, "o %g", eo);
    CHECK_MSG(eq <= 5e-6 * size, "dq %g", eq);
    CHECK_MSG(ekv <= 5e-6 * size, "dkv %g", ekv);
}

static void check_attn_half(const struct attn_case *c, const struct attn_out *x)
{
    CHECK_MSG(ref_within(x->out.t, c->o, c->bound_o), "o %g", ref_rel_l2(x->out.t, c->o));
    CHECK_MSG(ref_within(x->dq.t, c->dq, c->bound_dq), "dq %g", ref_rel_l2(x->dq.t, c->dq));
    CHECK_MSG(ref_within(x->dkv.t, c->dkv, c->bound_dkv), "dkv %g", ref_rel_l2(x->dkv.t, c->dkv));
}

static void check_attn_case(struct attn_case *c)
{
    struct attn_out x = attn_run(be, c, 0, c->Tq), y = attn_run(be_other, c, 0, c->Tq);
    (act == DT_F32 ? check_attn_fp32 : check_attn_half)(c, &x);
    CHECK(lse_close(x.m, c->lse, c->deviation * c->deviation));
    CHECK(box_intact(x.o) && box_intact(x.m) && box_intact(x.l) && box_intact(x.delta));
    CHECK(box_intact(x.dq) && box_intact(x.dkv) && box_intact(x.out));
    CHECK(box_same_bits(y.o, x.o, 0) && box_same_bits(y.m, x.m, 0));
    CHECK(box_same_bits(y.out, x.out, 0) && box_same_bits(y.delta, x.delta, 0));
    CHECK(box_same_bits(y.dq, x.dq, 0) && box_same_bits(y.dkv, x.dkv, 0));
    int64_t r0 = c->Tq / 3, n = (c->Tq - r0 + 1) / 2;
    struct attn_out part = attn_run(be, c, r0, n);
    CHECK(box_same_bits(part.o, x.o, r0) && box_same_bits(part.dq, x.dq, r0));
    CHECK(box_same_bits(part.out, x.out, r0));
    attn_out_free(&x), attn_out_free(&y), attn_out_free(&part);
    if (test_failures_now)
        printf("  ^ Tq %lld Tk %lld H %lld Hk %lld D %lld mask %d calls %d\n", (long long)c->Tq,
               (long long)c->Tk, (long long)c->H, (long long)c->Hk, (long long)c->D, c->mask,
               c->n_calls);
}

static void check_attn(void)
{
    enum { N = sizeof attn_shapes / sizeof attn_shapes[0] };
    /* static, so that the references are computed only once */
    static struct attn_case with[DT_F16 + 1][N];
    for (int i = 0; i < N; i++) {
        /* left out because this shape would take more time and test nothing that the other shapes
         * do not test */
        if (act != DT_F32 && attn_shapes[i].Tq > 1000) continue;
        if (act == DT_F16 && i % 3 == 1) continue;
        if (quick && attn_shapes[i].Tq > 200) continue;
        if (attn_shapes[i].D < least_dim) continue;
        attn_prepare(&with[act][i], &attn_shapes[i]);
        check_attn_case(&with[act][i]);
    }
}

/* Checks attention of few queries to many keys on a device that may divide the keys into pieces.
 * The error must be within the bounds for keys that are not divided, and two runs must give the
 * same bits. */
static void check_attn_any_order(void)
{
    static const struct attn_shape shapes[] = {
        {1, 1300, 2, 1, 64, FULL, 1, 1, 0},   {3, 2200, 1, 1, 128, CAUSAL, 2, 1, 0},
        {5, 1200, 1, 1, 24, WINDOW, 1, 1, 0}, {7, 1100, 2, 1, 66, RAGGED, 1, 1, 0},
        {2, 1030, 1, 1, 16, NO_KEY, 1, 1, 0}, {40, 1600, 1, 1, 32, DOCS, 1, 1, 0},
    };
    enum { N = sizeof shapes / sizeof shapes[0] };
    struct err e;
    if (!be->own_memory) return; /* the results of the CPU do not depend on any_order */
    struct be *b[2];
    for (int i = 0; i < 2; i++) {
        b[i] = be_open(&(struct be_options){.device = be->ops->name,
                                            .isa = be->isa,
                                            .n_threads = 1,
                                            .scratch_later = true,
                                            .any_order = true},
                       &e);
        CHECK_MSG(b[i], "%s", e.text);
        if (!b[i]) return;
        twin_give_scratch(b[i]);
    }
    for (int i = 0; i < N; i++) {
        struct attn_case c = {0};
        attn_prepare(&c, &shapes[i]);
        struct attn_out x = attn_run(b[0], &c, 0, c.Tq), y = attn_run(b[1], &c, 0, c.Tq);
        (act == DT_F32 ? check_attn_fp32 : check_attn_half)(&c, &x);
        CHECK(lse_close(x.m, c.lse, c.deviation * c.deviation));
        CHECK(box_intact(x.o) && box_intact(x.m) && box_intact(x.l));
        CHECK(box_same_bits(y.out, x.out, 0) && box_same_bits(y.o, x.o, 0));
        if (test_failures_now) printf("  ^ shape %d\n", i);
        attn_out_free(&x), attn_out_free(&y);
    }
    for (int i = 0; i < 2; i++) twin_take_scratch(b[i]), be_close(b[i]);
}

/* Checks a row in which one key has 2^26 times the weight of every other key, but a value of 0.
 * The expected output therefore comes from the other keys only, although the weight of each of
 * them is too small for fp16. */
static void check_attn_far(void)
{
    enum { Tk = 1024, D = 16 };
    const double u = act == DT_F32 ? ldexp(1, -16) : ldexp(1, act == DT_F16 ? -11 : -8);
    const double p = ldexp(1, -26), most = 18, scale = 26 * log(2) / (most * most);
    struct box q = box_act(1, D, 8), kv = box_act(Tk, 2 * D, 8), d_o = box_act(1, D, 8);
    struct box o = box_new(1, D, 0), out = box_act(1, D, 0), dq = box_new(1, D, 0);
    struct box dkv = box_new(Tk, 2 * D, 0);
    float *m = ARRAY(float, 1), *l = ARRAY(float, 1), *delta = ARRAY(float, 1);
    int64_t *lo = ARRAY(int64_t, 1), *hi = ARRAY(int64_t, 1);
    lo[0] = 0, hi[0] = Tk, m[0] = -INFINITY, l[0] = 0, delta[0] = 0;
    box_fill(q, 0), box_fill(kv, 0), box_fill(d_o, 1), box_fill(o, 0), box_fill(dq, 0);
    box_fill(dkv, 0);
    box_set(q, 0, 0, most), box_set(kv, 500, 0, most);
    for (int64_t t = 0; t < Tk; t++)
        for (int64_t d = 0; d < D; d++) box_set(kv, t, D + d, t == 500 ? 0 : 64);
    CALL(be, attn_fwd,
         &(struct attn_fwd_args){q.t, kv.t, o.t, m, l, 1, lo, hi, 0, 1, 1, D, (float)scale, NULL, 0,
                                 NULL, 0});
    CALL(be, attn_finish,
         &(struct attn_finish_args){o.t, act == DT_F32 ? o.t : out.t, m, l, 1, 1, D});
    CALL(be, attn_bwd,
         &(struct attn_bwd_args){q.t, kv.t, d_o.t, dq.t, dkv.t, m, delta, 1, lo, hi, 0, 1, 1, D,
                                 (float)scale, NULL, 0});
    const double want = 64 * (Tk - 1) * p / (1 + (Tk - 1) * p);
    const double got = ref_at(act == DT_F32 ? o.t : out.t, 0, D - 1);
    /* both p and o are rounded to 16 bits */
    CHECK_MSG(fabs(got / want - 1) <= 2 * u, "o %g, not %g", got, want);
    int64_t n_bad = 0;
    for (int64_t t = 0; t < Tk; t++)
        n_bad += !(fabs(*box_at(dkv, t, D) / (t == 500 ? 1 : p) - 1) <= u + 1024 * p);
    CHECK_MSG(n_bad == 0, "dv of %lld rows: %g, not %g", (long long)n_bad, *box_at(dkv, 0, D), p);
    box_free(&q), box_free(&kv), box_free(&d_o), box_free(&o), box_free(&out), box_free(&dq);
    box_free(&dkv);
}

#endif
