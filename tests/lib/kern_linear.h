/* kern_linear.h: checks linear attention, as a part of check_kernels. The reference sums over all
 * rows, and for each row over all rows that it sees. The distance of two rows determines the
 * weight of their term. The reference has neither blocks nor states. */
#ifndef SEQD_TESTS_KERN_LINEAR_H
#define SEQD_TESTS_KERN_LINEAR_H

#include <stdio.h>
#include "tests/lib/kern.h"

enum lin_docs { ONE_DOC, FROM_BEFORE, MANY_DOCS, EACH_ROW, AT_BLOCKS };

struct lin_shape {
    int64_t n, H, Dk, Dv;
    enum lin_docs docs;
    /* the slope of head 0; the slope of every later head is half of the slope of the head before
     * it */
    double slope;
    int64_t n_pad;
};

static const struct lin_shape lin_shapes[] = {
    {1, 1, 1, 1, FROM_BEFORE, 0.5, 0},        {1, 2, 16, 16, ONE_DOC, 0, 0},
    {63, 2, 8, 24, FROM_BEFORE, 0.5, 0},      {64, 1, 64, 64, FROM_BEFORE, 0, 0},
    {65, 2, 64, 64, MANY_DOCS, 0.1, 3},       {129, 3, 24, 40, FROM_BEFORE, 4e-8, 0},
    {130, 1, 128, 64, MANY_DOCS, 0.03, 1},    {257, 1, 72, 33, AT_BLOCKS, 0, 0},
    {200, 2, 16, 256, FROM_BEFORE, 1e-3, 70}, {192, 1, 256, 16, MANY_DOCS, 0.01, 64},
    {130, 1, 16, 16, ONE_DOC, 0.01, 0},       {100, 2, 9, 7, EACH_ROW, 0.2, 0},
    {150, 2, 16, 16, FROM_BEFORE, 50, 0},     {40, 1, 16, 16, FROM_BEFORE, 0.1, 40},
    {1000, 1, 16, 16, FROM_BEFORE, 1e-6, 0},  {385, 2, 16, 32, AT_BLOCKS, 0.005, 2},
    {1300, 1, 16, 16, AT_BLOCKS, 1e-3, 5},    {1100, 2, 9, 24, FROM_BEFORE, 1e-4, 150},
    {1200, 1, 8, 8, MANY_DOCS, 1e-3, 0},
};

/* Shapes up to the largest that is supported. In the first shape, values have one column more than
 * keys, for the sum of weights. kernels/cpu computes several heads side by side in one thread; the
 * last shape has more heads than that. */
static const struct lin_shape lin_large_shapes[] = {
    {20, 1, 512, 513, FROM_BEFORE, 0.01, 0}, {100, 2, 288, 40, MANY_DOCS, 0.02, 3},
    {67, 2, 64, 384, AT_BLOCKS, 0.01, 1},    {66, 1, 301, 65, FROM_BEFORE, 1e-3, 0},
    {1050, 1, 264, 9, AT_BLOCKS, 1e-3, 2},   {70, 6, 128, 128, MANY_DOCS, 0.02, 3},
};

/* Shapes for which devices have kernels of their own. The rows begin at multiples of 16 bytes, so
 * that 16 bytes can be read at a time. */
static const struct lin_shape lin_wide_shapes[] = {
    {200, 3, 128, 128, MANY_DOCS, 0.02, 9}, {150, 1, 64, 64, FROM_BEFORE, 0.3, 7},
    {190, 2, 64, 128, EACH_ROW, 0.01, 41},  {193, 1, 128, 64, AT_BLOCKS, 0, 0},
    {1090, 1, 64, 64, AT_BLOCKS, 1e-3, 2},  {1100, 1, 128, 128, FROM_BEFORE, 1e-4, 37},
};

struct lin_case {
    struct lin_shape s;
    struct box q, k, v, d_o, state, d_state;
    double *slope;
    int64_t *lo, *hi, pos, n_valid;
    bool through; /* the last document began before the chunk */
};

static void lin_docs(struct lin_case *c)
{
    uint64_t seed = 9;
    int64_t start = c->s.docs == ONE_DOC ? 0 : -50;
    for (int64_t i = 0; i < c->s.n; i++) {
        bool first = c->s.docs == EACH_ROW;
        if (c->s.docs == MANY_DOCS) first = box_rand(&seed) % 40 == 0;
        if (c->s.docs == AT_BLOCKS) first = i == 64 || i == 128 || i == 127;
        if (first) start = i;
        c->lo[i] = c->pos + start;
        c->hi[i] = i < c->n_valid ? c->pos + i + 1 : c->lo[i];
    }
    c->through = c->n_valid == 0 || c->lo[c->n_valid - 1] < c->pos;
}

/* Makes a case. `gap` is the gap between two rows of d_o. The gaps of q and v are multiples of it,
 * and k has no gap. */
static struct lin_case lin_new(const struct lin_shape *s, int64_t gap)
{
    struct lin_case c = {.s = *s, .pos = 1000003, .n_valid = s->n - s->n_pad};
    c.lo = ARRAY(int64_t, s->n), c.hi = ARRAY(int64_t, s->n), c.slope = ARRAY(double, s->H);
    for (int64_t h = 0; h < s->H; h++) c.slope[h] = ldexp(s->slope, (int)-h);
    lin_docs(&c);
    c.q = box_act(s->n, s->H * s->Dk, 3 * gap), c.k = box_act(s->n, s->H * s->Dk, 0);
    c.v = box_act(s->n, s->H * s->Dv, 5 * gap), c.d_o = box_act(s->n, s->H * s->Dv, gap);
    c.state = box_new(s->H * s->Dk, s->Dv, 0), c.d_state = box_new(s->H * s->Dk, s->Dv, 0);
    box_random(c.q, 1, 1), box_random(c.k, 2, 1), box_random(c.v, 3, 1), box_random(c.d_o, 4, 1);
    box_random(c.state, 5, 2), box_random(c.d_state, 6, 2);
    for (int64_t i = c.n_valid; i < s->n; i++) { /* padding may hold anything */
        for (int64_t j = 0; j < s->H * s->Dk; j++) box_set(c.q, i, j, NAN), box_set(c.k, i, j, NAN);
        for (int64_t j = 0; j < s->H * s->Dv; j++)
            box_set(c.v, i, j, NAN), box_set(c.d_o, i, j, NAN);
    }
    return c;
}

static void lin_free(struct lin_case *c)
{
    box_free(&c->q), box_free(&c->k), box_free(&c->v), box_free(&c->d_o);
    box_free(&c->state), box_free(&c->d_state);
}

#define LIN_SCALE 0.3f

static struct linear_args lin_args(const struct lin_case *c)
{
    return (struct linear_args){c->q.t, c->k.t,  c->v.t,  c->slope,  c->lo, c->hi, c->pos,
                                c->s.H, c->s.Dk, c->s.Dv, LIN_SCALE, NULL,  false};
}

/* ---- the reference --------------------------------------------------------------------------- */

struct lin_ref {
    struct mat o, m, dq, dk, dv, dm; /* results for a state of zero before the chunk */
    struct mat eo, edq, edk, edv;    /* the terms that the incoming states add to the results */
};

static double lin_pow(double slope, int64_t d)
{
    return d == 0 ? 1 : exp(-slope * (double)d);
}

/* Adds the terms of the pair of rows i and j. Row i sees row j. */
static void lin_ref_pair(const struct lin_case *c, struct lin_ref *r, const struct mat x[4],
                         int64_t h, int64_t i, int64_t j)
{
    const int64_t K = c->s.Dk, V = c->s.Dv;
    const double *q = &MAT(x[0], i, h * K), *k = &MAT(x[1], j, h * K);
    const double *v = &MAT(x[2], j, h * V), *g = &MAT(x[3], i, h * V);
    double *restrict o = &MAT(r->o, i, h * V), *restrict dv = &MAT(r->dv, j, h * V);
    double *restrict dq = &MAT(r->dq, i, h * K), *restrict dk = &MAT(r->dk, j, h * K);
    const double p = LIN_SCALE * lin_pow(c->slope[h], i - j);
    double qk = 0, gv = 0; /* the products q_i k_j and dO_i v_j */
    for (int64_t a = 0; a < K; a++) qk += q[a] * k[a];
    for (int64_t b = 0; b < V; b++) gv += g[b] * v[b];
    for (int64_t b = 0; b < V; b++) o[b] += p * qk * v[b], dv[b] += p * qk * g[b];
    for (int64_t a = 0; a < K; a++) dq[a] += p * gv * k[a], dk[a] += p * gv * q[a];
}

/* Adds the terms of row i and the states. If `from` is set, row i sees the state before the chunk.
 * If `to` is set, row i contributes to the state after the chunk. */
static void lin_ref_state(const struct lin_case *c, struct lin_ref *r, const struct mat x[4],
                          const struct mat state[2], int64_t h, int64_t i, bool from, bool to)
{
    const int64_t K = c->s.Dk, V = c->s.Dv;
    const double pf = from ? LIN_SCALE * lin_pow(c->slope[h], i) : 0;
    const double pt = to ? lin_pow(c->slope[h], c->n_valid - i) : 0;
    const double *v = &MAT(x[2], i, h * V), *g = &MAT(x[3], i, h * V);
    double *restrict eo = &MAT(r->eo, i, h * V), *restrict edv = &MAT(r->edv, i, h * V);
    if (!from && !to) return;
    for (int64_t a = 0; a < K; a++) {
        const double q = MAT(x[0], i, h * K + a), k = MAT(x[1], i, h * K + a);
        const double *s = &MAT(state[0], h * K + a, 0), *ds = &MAT(state[1], h * K + a, 0);
        double *restrict m = &MAT(r->m, h * K + a, 0), *restrict dm = &MAT(r->dm, h * K + a, 0);
        double gs = 0, vds = 0;
        for (int64_t b = 0; b < V; b++) eo[b] += pf * q * s[b], dm[b] += pf * q * g[b];
        for (int64_t b = 0; b < V; b++) m[b] += pt * k * v[b], edv[b] += pt * k * ds[b];
        for (int64_t b = 0; b < V; b++) gs += g[b] * s[b], vds += v[b] * ds[b];
        MAT(r->edq, i, h * K + a) += pf * gs;
        MAT(r->edk, i, h * K + a) += pt * vds;
    }
}

static struct lin_ref lin_ref(const struct lin_case *c)
{
    const int64_t n = c->s.n, HK = c->s.H * c->s.Dk, HV = c->s.H * c->s.Dv;
    struct lin_ref r = {mat_new(n, HV), mat_new(HK, c->s.Dv), mat_new(n, HK), mat_new(n, HK),
                        mat_new(n, HV), mat_new(HK, c->s.Dv), mat_new(n, HV), mat_new(n, HK),
                        mat_new(n, HK), mat_new(n, HV)};
    struct mat x[4] = {mat_of(c->q.t), mat_of(c->k.t), mat_of(c->v.t), mat_of(c->d_o.t)};
    struct mat state[2] = {mat_of(c->state.t), mat_of(c->d_state.t)};
    for (int64_t h = 0; h < c->s.H; h++)
        for (int64_t i = 0; i < c->n_valid; i++) {
            for (int64_t j = 0; j <= i; j++)
                if (c->pos + j >= c->lo[i]) lin_ref_pair(c, &r, x, h, i, j);
            lin_ref_state(c, &r, x, state, h, i, c->lo[i] < c->pos,
                          c->pos + i >= c->lo[c->n_valid - 1]);
        }
    for (int i = 0; i < 4; i++) mat_free(&x[i]);
    mat_free(&state[0]), mat_free(&state[1]);
    return r;
}

static void lin_ref_free(struct lin_ref *r)
{
    mat_free(&r->o), mat_free(&r->m), mat_free(&r->dq), mat_free(&r->dk), mat_free(&r->dv);
    mat_free(&r->dm), mat_free(&r->eo), mat_free(&r->edq), mat_free(&r->edk), mat_free(&r->edv);
}

/* ---- the checks ------------------------------------------------------------------------------ */

struct lin_out {
    struct box o, m, dq, dk, dv, dm;
};

/* Computes rows [0, n) of a case. If entered is set, it also adds the terms of the state before
 * the chunk, and of the gradient of the state after it. */
static struct lin_out lin_run(struct be *b, const struct lin_case *c, int64_t n, bool entered)
{
    const int64_t HK = c->s.H * c->s.Dk, HV = c->s.H * c->s.Dv;
    struct lin_out x = {box_act(n, HV, 2), box_new(HK, c->s.Dv, 0), box_new(n, HK, 1),
                        box_new(n, HK, 4), box_new(n, HV, 3),       box_new(HK, c->s.Dv, 0)};
    struct linear_args in = lin_args(c);
    in.q.rows = in.k.rows = in.v.rows = n;
    struct tensor d_o = tensor_sub(c->d_o.t, 0, n, 0, HV);
    CALL(b, linear_fwd, &(struct linear_fwd_args){in, x.o.t, x.m.t.data});
    CALL(b, linear_bwd, &(struct linear_bwd_args){in, d_o, x.dq.t, x.dk.t, x.dv.t, x.dm.t.data});
    if (entered) {
        CALL(b, linear_enter, &(struct linear_enter_args){in, x.o.t, c->state.t.data});
        CALL(b, linear_enter_bwd,
             &(struct linear_enter_bwd_args){in, d_o, x.dq.t, x.dk.t, x.dv.t, c->state.t.data,
                                             c->d_state.t.data});
    }
    CHECK(box_intact(x.o) && box_intact(x.m) && box_intact(x.dq) && box_intact(x.dk));
    CHECK(box_intact(x.dv) && box_intact(x.dm));
    return x;
}

static void lin_out_free(struct lin_out *x)
{
    box_free(&x->o), box_free(&x->m), box_free(&x->dq), box_free(&x->dk), box_free(&x->dv);
    box_free(&x->dm);
}

static void lin_close(struct box got, struct mat want, double bar, const char *what)
{
    const double e = ref_rel_l2(got.t, want);
    CHECK_MSG(e <= bar, "%s %g", what, e);
}

static void mat_add(struct mat to, struct mat x)
{
    for (int64_t i = 0; i < to.rows * to.cols; i++) to.p[i] += x.p[i];
}

/* Compares a run with the reference. A result is a sum of up to Dk products, then of 64 products,
 * and then of Dv products, with terms of both signs. The error of each sum grows as the square
 * root of its length, and a state is rounded once per block. The bounds are the same as for
 * blockwise attention: 2e-6 forward and 5e-6 backward. With 16-bit types, the term of the incoming
 * state is added to a sum that was rounded. This is one rounding more than ref_rel_l2 allows for:
 * 2^-9 of the sum in bf16, and 2^-12 in fp16. kernels/cuda also rounds once more, because it adds
 * to o once for every 256 columns of keys.
 *
 * Tensor cores lose half a unit of the last place for each CUT_K products (kern.h). A partial sum
 * is two thirds of the final sum on average, so that each truncation loses ULP / 2. For m and dm
 * there are 64 rows in three terms, which makes 12 ULP, or 0.7e-6. For rows there are Dk and 64
 * products in two terms, which makes 40 ULP at Dk = 256, or 2.4e-6. The part of a row that passes
 * through the state has an error of 3.1e-6 besides (kernels/cuda/linear_bf16.cu). As the errors
 * 2.4e-6 and 3.1e-6 are independent, together they make 4e-6. */
static void lin_compare(const struct lin_case *c, const struct lin_out *x, struct lin_ref *r)
{
    const struct lin_out y = lin_run(be, c, c->s.n, true);
    const double once[] = {[DT_F32] = 2e-6, [DT_BF16] = ldexp(1, -9), [DT_F16] = ldexp(1, -12)};
    const bool in_pieces = be->own_memory && c->s.Dk > 256;
    lin_close(x->o, r->o, in_pieces ? once[act] : 2e-6, "o"), lin_close(x->m, r->m, 2e-6, "m");
    lin_close(x->dq, r->dq, 5e-6, "dq"), lin_close(x->dk, r->dk, 5e-6, "dk");
    lin_close(x->dv, r->dv, 5e-6, "dv"), lin_close(x->dm, r->dm, 5e-6, "dm");
    mat_add(r->eo, r->o), mat_add(r->edq, r->dq), mat_add(r->edk, r->dk), mat_add(r->edv, r->dv);
    lin_close(y.o, r->eo, once[act], "o, entered");
    lin_close(y.dq, r->edq, 5e-6, "dq, entered"), lin_close(y.dk, r->edk, 5e-6, "dk, entered");
    lin_close(y.dv, r->edv, 5e-6, "dv, entered");
    struct lin_out copy = y;
    lin_out_free(&copy);
}

/* Checks that a device with another number of threads gives the same bits. Also checks that
 * leaving out the last rows does not change the bits of the first rows. */
static void lin_bits(const struct lin_case *c, const struct lin_out *x)
{
    struct lin_out y = lin_run(be_other, c, c->s.n, false);
    CHECK(box_same_bits(y.o, x->o, 0) && box_same_bits(y.m, x->m, 0));
    CHECK(box_same_bits(y.dq, x->dq, 0) && box_same_bits(y.dk, x->dk, 0));
    CHECK(box_same_bits(y.dv, x->dv, 0) && box_same_bits(y.dm, x->dm, 0));
    lin_out_free(&y);
    const int64_t n = (c->s.n * 2 + 2) / 3;
    y = lin_run(be, c, n, false);
    CHECK(box_same_bits(y.o, x->o, 0) && box_same_bits(y.dq, x->dq, 0));
    lin_out_free(&y);
}

/* Computes the summary and the output in two calls, and checks that they have the same bits as
 * after a single call. A call must not write an output that it does not request. An input that the
 * call does not need may hold any value. */
static void lin_apart(struct be *b, const struct lin_case *c, const struct lin_out *x)
{
    const int64_t HK = c->s.H * c->s.Dk, HV = c->s.H * c->s.Dv, n = c->s.n;
    struct lin_out y = {box_act(n, HV, 2), box_new(HK, c->s.Dv, 0), box_new(n, HK, 1),
                        box_new(n, HK, 4), box_new(n, HV, 3),       box_new(HK, c->s.Dv, 0)};
    struct box nan = box_act(n, HK > HV ? HK : HV, 0);
    const struct tensor none = {0};
    const struct linear_args in = lin_args(c);
    struct linear_args some = in;
    box_fill(nan, NAN);
    some.q = tensor_sub(nan.t, 0, n, 0, HK);
    CALL(b, linear_fwd, &(struct linear_fwd_args){some, none, y.m.t.data});
    CALL(b, linear_fwd, &(struct linear_fwd_args){in, y.o.t, NULL});
    some = in;
    some.k = tensor_sub(nan.t, 0, n, 0, HK), some.v = tensor_sub(nan.t, 0, n, 0, HV);
    const struct tensor d_o = tensor_sub(c->d_o.t, 0, n, 0, HV);
    CALL(b, linear_bwd, &(struct linear_bwd_args){some, d_o, none, none, none, y.dm.t.data});
    CALL(b, linear_bwd, &(struct linear_bwd_args){in, d_o, y.dq.t, y.dk.t, y.dv.t, NULL});
    CHECK(box_same_bits(y.o, x->o, 0) && box_same_bits(y.m, x->m, 0));
    CHECK(box_same_bits(y.dq, x->dq, 0) && box_same_bits(y.dk, x->dk, 0));
    CHECK(box_same_bits(y.dv, x->dv, 0) && box_same_bits(y.dm, x->dm, 0));
    CHECK(box_intact(y.o) && box_intact(y.m) && box_intact(y.dq) && box_intact(y.dk));
    CHECK(box_intact(y.dv) && box_intact(y.dm));
    box_free(&nan);
    lin_out_free(&y);
}

/* Checks that the results in rows of padding are exactly 0. */
static void lin_padding(const struct lin_case *c, const struct lin_out *x)
{
    int64_t n_bad = 0;
    for (int64_t i = c->n_valid; i < c->s.n; i++) {
        for (int64_t j = 0; j < c->s.H * c->s.Dk; j++)
            n_bad += ref_at(x->dq.t, i, j) != 0 || ref_at(x->dk.t, i, j) != 0;
        for (int64_t j = 0; j < c->s.H * c->s.Dv; j++)
            n_bad += ref_at(x->o.t, i, j) != 0 || ref_at(x->dv.t, i, j) != 0;
    }
    CHECK(n_bad == 0);
}

/* Checks a chunk that is divided into two parts, each of which begins with a state of zero. The
 * states are then folded and added. The result must equal the result of the whole chunk. */
static void lin_fold(const struct lin_case *c, const struct lin_ref *r)
{
    const int64_t size = c->s.H * c->s.Dk * c->s.Dv;
    struct box out = box_new(c->s.H * c->s.Dk, c->s.Dv, 0);
    struct mat want = mat_of(c->state.t);
    for (int64_t i = 0; i < size; i++)
        want.p[i] = MAT(r->m, i / c->s.Dv, i % c->s.Dv) +
                    (c->through ? lin_pow(c->slope[i / (c->s.Dk * c->s.Dv)], c->n_valid) : 0) *
                        want.p[i];
    struct box m = box_new(c->s.H * c->s.Dk, c->s.Dv, 0);
    for (int64_t i = 0; i < size; i++)
        *box_at(m, i / c->s.Dv, i % c->s.Dv) = (float)MAT(r->m, i / c->s.Dv, i % c->s.Dv);
    struct linear_fold_args a = {c->slope,   c->s.H,          c->s.Dk,  c->s.Dv,    c->n_valid,
                                 c->through, c->state.t.data, m.t.data, out.t.data, DT_F32};
    CALL(be, linear_fold, &a);
    /* two roundings, because m was rounded, too */
    CHECK(ref_rel_l2(out.t, want) <= 2 * ULP && box_intact(out));
    struct box again = box_copy(c->state, 0);
    a.in = a.out = again.t.data;
    CALL(be_other, linear_fold, &a);
    CHECK(box_same_bits(again, out, 0) && box_intact(again));
    mat_free(&want), box_free(&out), box_free(&m), box_free(&again);
}

static void lin_check(const struct lin_shape *s, int64_t gap)
{
    const int failures = test_failures_now;
    struct lin_case c = lin_new(s, gap);
    struct lin_ref r = lin_ref(&c);
    struct lin_out x = lin_run(be, &c, s->n, false);
    lin_fold(&c, &r);
    lin_compare(&c, &x, &r);
    lin_bits(&c, &x);
    lin_apart(be, &c, &x);
    lin_padding(&c, &x);
    if (test_failures_now > failures)
        printf("  ^ n %lld H %lld Dk %lld Dv %lld docs %d slope %g pad %lld\n", (long long)s->n,
               (long long)s->H, (long long)s->Dk, (long long)s->Dv, s->docs, s->slope,
               (long long)s->n_pad);
    lin_out_free(&x), lin_ref_free(&r), lin_free(&c);
}

/* Checks that a NaN in a document does not reach the states of other documents. */
static void lin_nan(int64_t D, int64_t gap)
{
    struct lin_case c = lin_new(&(struct lin_shape){200, 1, D, D, AT_BLOCKS, 0.1, 0}, gap);
    for (int64_t i = 0; i < 200; i++) c.lo[i] = c.pos + (i < 64 ? 0 : i < 128 ? 64 : 128);
    for (int64_t j = 0; j < D; j++) {
        box_set(c.q, 100, j, NAN), box_set(c.k, 100, j, NAN), box_set(c.v, 100, j, NAN);
        box_set(c.d_o, 100, j, NAN);
    }
    struct lin_out x = lin_run(be, &c, 200, false);
    int64_t n_bad = 0;
    for (int64_t i = 0; i < 200; i++)
        for (int64_t j = 0; j < D; j++) {
            const bool own = i >= 64 && i < 128;
            n_bad += !own && isnan(ref_at(x.o.t, i, j)),
                n_bad += !own && isnan(ref_at(x.dq.t, i, j));
            n_bad += !own && isnan(ref_at(x.dk.t, i, j)),
                n_bad += !own && isnan(ref_at(x.dv.t, i, j));
        }
    for (int64_t i = 0; i < D; i++)
        for (int64_t j = 0; j < D; j++)
            n_bad += isnan(ref_at(x.m.t, i, j)) || ref_at(x.dm.t, i, j) != 0;
    CHECK_MSG(n_bad == 0 && isnan(ref_at(x.o.t, 127, 0)), "%lld", (long long)n_bad);
    lin_out_free(&x), lin_free(&c);
}

/* Checks a decay near 1 over thousands of blocks. All elements of q, k and v are 1, so that the
 * last state is a sum of powers whose value is known. */
static void lin_long(void)
{
    enum { N = 1 << 18 };
    double *slope = ARRAY(double, 1);
    struct box x = box_act(N, 1, 0), o = box_act(N, 1, 0), m = box_new(1, 1, 0);
    int64_t *lo = ARRAY(int64_t, N), *hi = ARRAY(int64_t, N);
    for (int64_t i = 0; i < N; i++) lo[i] = 0, hi[i] = i + 1;
    slope[0] = 4e-8;
    box_fill(x, 1);
    const struct linear_args in = {x.t, x.t, x.t, slope, lo, hi, 0, 1, 1, 1, 1, NULL, false};
    CALL(be, linear_fwd, &(struct linear_fwd_args){in, o.t, m.t.data});
    const double want = -expm1(-slope[0] * N) / -expm1(-slope[0]);
    /* Each of the N / 64 = 4096 blocks rounds the sum by a random amount. Together this makes
     * about 64 half ulps. */
    CHECK_MSG(fabs(*box_at(m, 0, 0) / (want * exp(-slope[0])) - 1) <= 64 * ULP, "m %.9g, not %.9g",
              (double)*box_at(m, 0, 0), want * exp(-slope[0]));
    box_free(&x), box_free(&o), box_free(&m);
}

/* Tells whether to check fewer shapes. An emulated device takes minutes for all shapes of fp16,
 * and the kernels for fp16 differ from those for bf16 only in their first steps. */
static bool lin_some(void)
{
    return act == DT_F16 && !strcmp(be->ops->name, "emulated");
}

static void lin_checks(const struct lin_shape *s, size_t n, int64_t gap)
{
    for (size_t i = 0; i < n; i++) {
        if (quick && s[i].n > 200) continue;
        if (lin_some() && i % 3 == 2) continue;
        if (s[i].Dk >= least_dim || s[i].Dv >= least_dim) lin_check(&s[i], gap);
    }
}

static void check_linear(void)
{
    lin_checks(lin_shapes, sizeof lin_shapes / sizeof lin_shapes[0], 1);
    lin_checks(lin_large_shapes, sizeof lin_large_shapes / sizeof lin_large_shapes[0], 8);
    if (least_dim) return;
    lin_checks(lin_wide_shapes, sizeof lin_wide_shapes / sizeof lin_wide_shapes[0], 8);
    lin_nan(16, 1), lin_nan(64, 8);
    if (!quick && !lin_some()) lin_long();
}

#endif
