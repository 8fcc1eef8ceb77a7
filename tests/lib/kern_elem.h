/* kern_elem.h: checks norms, activations, gated units, sums, biases, permutations and squared
 * errors, as a part of check_kernels. */
#ifndef SEQD_TESTS_KERN_ELEM_H
#define SEQD_TESTS_KERN_ELEM_H

#include <stdio.h>
#include "tests/lib/kern.h"

static const int64_t elem_shapes[][2] = {{1, 1}, {3, 17}, {5, 64}, {37, 100}, {4, 9000}};
#define EACH_ELEM_SHAPE(s) for (size_t s = 0; s < sizeof elem_shapes / sizeof elem_shapes[0]; s++)

/* ---- norms ----------------------------------------------------------------------------------- */

struct norm_case {
    int64_t T, C, groups;
    bool rms, g, b, accumulate;
    /* a number that is added to every element of x; subtracting the mean removes it again */
    double offset;
};

struct norm_data {
    struct box x, g, b, y, mean, rstd, dy, dx, dg, db;
    struct mat mx, mg, mb, my, mmean, mrstd, mdy, mdx, mdg, mdb;
};

static void ref_norm_fwd(const struct norm_case *p, struct norm_data *d, double eps)
{
    const int64_t n = p->C / p->groups;
    for (int64_t i = 0; i < p->T * p->groups; i++) {
        const int64_t t = i / p->groups, c0 = i % p->groups * n;
        double mean = 0, sum = 0;
        for (int64_t c = 0; c < n && !p->rms; c++) mean += MAT(d->mx, t, c0 + c) / (double)n;
        for (int64_t c = 0; c < n; c++) sum += pow(MAT(d->mx, t, c0 + c) - mean, 2);
        const double r = 1 / sqrt(sum / (double)n + eps);
        MAT(d->mmean, 0, i) = mean, MAT(d->mrstd, 0, i) = r;
        for (int64_t c = 0; c < n; c++)
            MAT(d->my, t, c0 + c) = (MAT(d->mx, t, c0 + c) - mean) * r * MAT(d->mg, 0, c) +
                                    MAT(d->mb, 0, c);
    }
}

/* Computes the gradients of y = g (x - mean) r by the chain rule, term by term. mean and r depend
 * on every x. */
static void ref_norm_bwd(const struct norm_case *p, struct norm_data *d)
{
    const int64_t n = p->C / p->groups;
    for (int64_t i = 0; i < p->T * p->groups; i++) {
        const int64_t t = i / p->groups, c0 = i % p->groups * n;
        const double mean = MAT(d->mmean, 0, i), r = MAT(d->mrstd, 0, i);
        double dr = 0, dmean = 0;
        for (int64_t c = 0; c < n; c++) {
            const double z = MAT(d->mdy, t, c0 + c) * MAT(d->mg, 0, c);
            dr += z * (MAT(d->mx, t, c0 + c) - mean);
            dmean -= z * r;
        }
        for (int64_t c = 0; c < n; c++) {
            const double x = MAT(d->mx, t, c0 + c) - mean, dy = MAT(d->mdy, t, c0 + c);
            double dx = dy * MAT(d->mg, 0, c) * r - dr * r * r * r * x / (double)n;
            /* there is no such term through r, because r does not change with the mean */
            if (!p->rms) dx += dmean / (double)n;
            MAT(d->mdx, t, c0 + c) = dx + (p->accumulate ? MAT(d->mdx, t, c0 + c) : 0);
            MAT(d->mdg, 0, c) += dy * x * r;
            MAT(d->mdb, 0, c) += dy;
        }
    }
}

static struct norm_data norm_data_new(const struct norm_case *p)
{
    const int64_t n = p->C / p->groups, N = p->T * p->groups;
    struct norm_data d = {.x = box_act(p->T, p->C, 1),
                          .g = box_act(1, n, 0),
                          .b = box_act(1, n, 2),
                          .y = box_act(p->T, p->C, 3),
                          .mean = box_new(1, N, 0),
                          .rstd = box_new(1, N, 1),
                          .dy = box_act(p->T, p->C, 2),
                          .dx = box_act(p->T, p->C, 0),
                          .dg = box_new(1, n, 0),
                          .db = box_new(1, n, 4)};
    box_random(d.x, 1, 2), box_random(d.dy, 4, 1), box_random(d.dx, 5, 1);
    box_random(d.dg, 6, 1), box_random(d.db, 7, 1);
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t c = 0; c < p->C; c++)
            box_set(d.x, t, c, (float)(ref_at(d.x.t, t, c) + p->offset));
    p->g ? box_random(d.g, 2, 1) : box_fill(d.g, 1);
    p->b ? box_random(d.b, 3, 1) : box_fill(d.b, 0);
    d.mx = mat_of(d.x.t), d.mg = mat_of(d.g.t), d.mb = mat_of(d.b.t), d.mdy = mat_of(d.dy.t);
    d.mdx = mat_of(d.dx.t), d.mdg = mat_of(d.dg.t), d.mdb = mat_of(d.db.t);
    d.my = mat_new(p->T, p->C), d.mmean = mat_new(1, N), d.mrstd = mat_new(1, N);
    return d;
}

static void norm_data_free(struct norm_data *d)
{
    struct box *boxes[] = {&d->x,    &d->g,  &d->b,  &d->y,  &d->mean,
                           &d->rstd, &d->dy, &d->dx, &d->dg, &d->db};
    struct mat *mats[] = {&d->mx,    &d->mg,  &d->mb,  &d->my,  &d->mmean,
                          &d->mrstd, &d->mdy, &d->mdx, &d->mdg, &d->mdb};
    for (int i = 0; i < 10; i++) box_free(boxes[i]), mat_free(mats[i]);
}

static const struct tensor no_tensor = {0};

/* Checks that neither another number of threads nor leaving out the first rows changes the
 * bits. */
static void check_norm_bits(const struct norm_case *p, const struct norm_data *d, struct box dx0,
                            struct box dg0, struct box db0)
{
    const int64_t r0 = p->T / 3, n = p->T - r0;
    struct box y = box_act(n, p->C, 0), mean = box_new(1, n * p->groups, 0);
    struct box rstd = box_new(1, n * p->groups, 0);
    const struct tensor g = p->g ? d->g.t : no_tensor, b = p->b ? d->b.t : no_tensor;
    CALL(be_other, norm_fwd,
         &(struct norm_fwd_args){tensor_sub(d->x.t, r0, n, 0, p->C), y.t, g, b, mean.t.data,
                                 rstd.t.data, p->groups, p->rms, 1e-5f, NULL, 0});
    CHECK(box_same_bits(y, d->y, r0) && box_intact(y) && box_intact(rstd));
    CHECK(!memcmp(rstd.t.data, box_at(d->rstd, 0, r0 * p->groups), (size_t)(n * p->groups) * 4));
    CALL(be_other, norm_bwd,
         &(struct norm_bwd_args){d->x.t, d->dy.t, dx0.t, g, d->mean.t.data, d->rstd.t.data,
                                 dg0.t.data, db0.t.data, p->groups, p->rms, p->accumulate, NULL, 0,
                                 0});
    CHECK(box_same_bits(dx0, d->dx, 0) && box_same_bits(dg0, d->dg, 0));
    CHECK(box_same_bits(db0, d->db, 0));
    box_free(&y), box_free(&mean), box_free(&rstd);
}

/* Checks that rmsnorm has the same bits as norm with the options rms and weight. */
static void check_norm_is_rmsnorm(const struct norm_case *p, const struct norm_data *d,
                                  struct box dx0)
{
    struct box y = box_act(p->T, p->C, 0), dx = box_copy(dx0, 0), rstd = box_new(1, p->T, 0);
    struct box dg = box_new(1, p->C, 0);
    box_random(dg, 6, 1);
    CALL(be, rmsnorm_fwd, &(struct rmsnorm_fwd_args){d->x.t, y.t, d->g.t, rstd.t.data, 1e-5f});
    CALL(be, rmsnorm_bwd,
         &(struct rmsnorm_bwd_args){d->x.t, d->dy.t, dx.t, d->g.t, rstd.t.data, dg.t.data,
                                    p->accumulate});
    CHECK(box_same_bits(y, d->y, 0) && box_same_bits(rstd, d->rstd, 0));
    CHECK(box_same_bits(dx, d->dx, 0) && box_same_bits(dg, d->dg, 0));
    box_free(&y), box_free(&dx), box_free(&rstd), box_free(&dg);
}

/* Checks rows whose columns are divided into two parts, as between two ranks. Each call gets the
 * sum over both parts, and computes the gradient of its own part. */
static void check_norm_parts(const struct norm_case *p, const struct norm_data *d, struct box dx0,
                             struct box dg0)
{
    const int64_t cut[3] = {0, p->C / 3, p->C};
    float *sum[2] = {ARRAY(float, p->T), ARRAY(float, p->T)}, *part = ARRAY(float, p->T);
    struct box y = box_act(p->T, p->C, 0), rstd = box_new(1, p->T, 0);
    for (int back = 0; back < 2; back++)
        for (int i = 0; i < 2; i++) {
            const int64_t c = cut[i], n = cut[i + 1] - c;
            const struct tensor x = tensor_sub(d->x.t, 0, p->T, c, n);
            const struct tensor dy = tensor_sub(d->dy.t, 0, p->T, c, n);
            const struct tensor g = p->g ? tensor_sub(d->g.t, 0, 1, c, n) : no_tensor;
            CALL(be, norm_part, &(struct norm_part_args){x, back ? dy : no_tensor, g, part});
            for (int64_t t = 0; t < p->T; t++)
                sum[back][t] = (i ? sum[back][t] : 0) + part[t] * (float)(1 + back);
        }
    for (int i = 0; i < 2; i++) {
        const int64_t c = cut[i], n = cut[i + 1] - c;
        const struct tensor x = tensor_sub(d->x.t, 0, p->T, c, n);
        const struct tensor dy = tensor_sub(d->dy.t, 0, p->T, c, n);
        const struct tensor dx = tensor_sub(dx0.t, 0, p->T, c, n);
        const struct tensor g = p->g ? tensor_sub(d->g.t, 0, 1, c, n) : no_tensor;
        CALL(be, norm_fwd,
             &(struct norm_fwd_args){.x = x,
                                     .y = tensor_sub(y.t, 0, p->T, c, n),
                                     .g = g,
                                     .rstd = rstd.t.data,
                                     .groups = 1,
                                     .rms = true,
                                     .eps = 1e-5f,
                                     .sums = sum[0],
                                     .n_all = p->C});
        CALL(be, norm_bwd,
             &(struct norm_bwd_args){.x = x,
                                     .dy = dy,
                                     .dx = dx,
                                     .g = g,
                                     .rstd = rstd.t.data,
                                     .dg = box_at(dg0, 0, c),
                                     .groups = 1,
                                     .rms = true,
                                     .accumulate = p->accumulate,
                                     .sums = sum[1],
                                     .n_all = p->C,
                                     .n_same = 2});
    }
    const double few = ULP * sqrt((double)p->C);
    CHECK(ref_rel_l2(y.t, d->my) <= 6 * ULP + few && box_intact(y));
    CHECK(ref_rel_l2(rstd.t, d->mrstd) <= 4 * ULP + few && box_intact(rstd));
    CHECK(ref_rel_l2(dx0.t, d->mdx) <= 10 * ULP + 4 * few && box_intact(dx0));
    CHECK(ref_rel_l2(dg0.t, d->mdg) <= 8 * ULP + few && box_intact(dg0));
    box_free(&y), box_free(&rstd);
}

static void check_norm_case(const struct norm_case *p)
{
    const int failures = test_failures_now;
    struct norm_data d = norm_data_new(p);
    struct box dx0 = box_copy(d.dx, 1), dx1 = box_copy(d.dx, 0), dg0 = box_copy(d.dg, 0);
    struct box db0 = box_copy(d.db, 0), dx2 = box_copy(d.dx, 2), dg2 = box_copy(d.dg, 0);
    const struct tensor g = p->g ? d.g.t : no_tensor, b = p->b ? d.b.t : no_tensor;
    ref_norm_fwd(p, &d, 1e-5);
    ref_norm_bwd(p, &d);
    CALL(be, norm_fwd,
         &(struct norm_fwd_args){d.x.t, d.y.t, g, b, d.mean.t.data, d.rstd.t.data, p->groups,
                                 p->rms, 1e-5f, NULL, 0});
    /* A mean is a sum of n numbers that are as large as the offset. Its error appears in y in
     * units of x's deviation. All other errors are as large as in rmsnorm, whose r is computed
     * from a sum of n squares. */
    const double n = (double)p->C / (double)p->groups, size = 1 + p->offset / 2;
    const double sum = ULP * sqrt(n), off = p->rms ? 0 : ULP * (sqrt(n) + 2) * size;
    /* With few columns, mean((x - mean)^2) can be close to eps. The error then consists of the
     * rounding of x - mean. */
    const double few = n < 8 ? 8 : 1;
    CHECK_MSG(ref_rel_l2(d.y.t, d.my) <= few * (6 * ULP + sum + off), "y %g",
              ref_rel_l2(d.y.t, d.my));
    CALL(be, norm_bwd,
         &(struct norm_bwd_args){d.x.t, d.dy.t, d.dx.t, g, d.mean.t.data, d.rstd.t.data,
                                 d.dg.t.data, d.db.t.data, p->groups, p->rms, p->accumulate, NULL,
                                 0, 0});
    /* in a group of one column the exact gradient is 0: its terms cancel, and the computed result
     * consists only of their rounding errors */
    CHECK_MSG(n == 1 || ref_rel_l2(d.dx.t, d.mdx) <= few * (10 * ULP + 4 * sum + 4 * off), "dx %g",
              ref_rel_l2(d.dx.t, d.mdx));
    CHECK_MSG(n == 1 || ref_rel_l2(d.dg.t, d.mdg) <= few * (8 * ULP + sum + 2 * off), "dg %g",
              ref_rel_l2(d.dg.t, d.mdg));
    CHECK(ref_rel_l2(d.db.t, d.mdb) <= ULP);
    CHECK(box_intact(d.y) && box_intact(d.mean) && box_intact(d.rstd) && box_intact(d.dx));
    CHECK(box_intact(d.dg) && box_intact(d.db));
    check_norm_bits(p, &d, dx0, dg0, db0);
    if (p->rms && p->groups == 1 && p->g && !p->b) check_norm_is_rmsnorm(p, &d, dx1);
    if (p->rms && p->groups == 1 && !p->b && p->C > 8) check_norm_parts(p, &d, dx2, dg2);
    if (test_failures_now > failures)
        printf("  ^ T %lld C %lld groups %lld rms %d g %d b %d\n", (long long)p->T, (long long)p->C,
               (long long)p->groups, p->rms, p->g, p->b);
    norm_data_free(&d);
    box_free(&dx0), box_free(&dx1), box_free(&dg0), box_free(&db0);
    box_free(&dx2), box_free(&dg2);
}

static void check_norm(void)
{
    static const struct norm_case cases[] = {
        {1, 1, 1, true, true, false, false, 0},     {3, 17, 1, false, true, true, false, 0},
        {5, 64, 1, false, false, false, true, 3},   {37, 100, 1, true, true, false, true, 0},
        {37, 100, 1, true, false, false, false, 0}, {130, 768, 1, false, true, true, false, 50},
        {130, 768, 1, true, true, false, false, 0}, {21, 72 * 3, 3, true, true, false, false, 0},
        {9, 24 * 5, 5, false, true, true, true, 1}, {40, 768, 12, true, true, false, true, 0},
        {2, 9, 9, true, false, false, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_norm_case(&cases[i]);
}

/* ---- activations and gated units ------------------------------------------------------------- */

static double ref_act(enum act_id fn, double x)
{
    switch (fn) {
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case ACT_GELU_TANH: /* (1 + tanh(u)) / 2 = 1 / (1 + e^-2u) */
        return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_ELU1: return x > 0 ? x + 1 : exp(x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_TANH: return tanh(x);
    case ACT_IDENTITY:
    case ACT_N: break;
    }
    return x;
}

/* Returns the slope of a function, computed by differences of order four. In double the values are
 * accurate to 1e-16, and the slope to 1e-11. */
static double ref_slope(enum act_id fn, double x)
{
    const double h = 1e-3;
    if (fn == ACT_RELU) return x > 0;
    if (fn == ACT_ELU1) return x > 0 ? 1 : exp(x); /* kinks */
    return (8 * (ref_act(fn, x + h) - ref_act(fn, x - h)) -
            (ref_act(fn, x + 2 * h) - ref_act(fn, x - 2 * h))) /
           (12 * h);
}

/* Bounds the errors, in roundings. An exponential and the steps after it lose at most 8. The
 * polynomial for the normal distribution loses 5. Its argument x^2 / 2 loses at most 5 wherever
 * the function is not flat. */
static const double act_error = 12 * ULP;

static void act_inputs(struct box x)
{
    static const float special[] = {0,        -0.0f,   200,    -200, 0.62499f,
                                    0.62501f, -0.625f, 1e-20f, 9,    -9};
    box_random(x, 21, 2);
    for (int64_t i = 0; i < x.t.cols && i < 10 && x.t.cols > 10; i++) box_set(x, 0, i, special[i]);
}

static void check_act_fn(enum act_id fn, int64_t T, int64_t C)
{
    struct box x = box_act(T, C, 1), y = box_act(T, C, 2), dy = box_act(T, C, 0);
    struct box dx = box_act(T, C, 3), dx0;
    act_inputs(x), box_random(dy, 22, 1), box_random(dx, 23, 1);
    dx0 = box_copy(dx, 0);
    struct mat my = mat_of(x.t), mdx = mat_of(dy.t), sum = mat_of(dx.t);
    for (int64_t i = 0; i < T * C; i++) {
        mdx.p[i] *= ref_slope(fn, my.p[i]);
        my.p[i] = ref_act(fn, my.p[i]);
        sum.p[i] += mdx.p[i];
    }
    CALL(be, act_fwd, &(struct act_fwd_args){fn, x.t, y.t});
    CHECK_MSG(ref_rel_l2(y.t, my) <= act_error, "act %d: y %g", fn, ref_rel_l2(y.t, my));
    CALL(be, act_bwd, &(struct act_bwd_args){fn, x.t, dy.t, dx.t, true});
    CHECK_MSG(ref_rel_l2(dx.t, sum) <= 2 * act_error, "act %d: dx %g", fn, ref_rel_l2(dx.t, sum));
    CHECK(box_intact(y) && box_intact(dx));
    CALL(be_other, act_bwd, &(struct act_bwd_args){fn, x.t, dy.t, dx0.t, true});
    CHECK(box_same_bits(dx0, dx, 0));
    CALL(be_other, act_fwd,
         &(struct act_fwd_args){fn, tensor_sub(x.t, T / 2, T - T / 2, 0, C),
                                tensor_sub(x.t, T / 2, T - T / 2, 0, C)});
    for (int64_t t = T / 2; t < T; t++) /* in place, for other rows */
        CHECK(!memcmp(box_ptr(x, t, 0), box_ptr(y, t, 0), (size_t)(C * dtype_size(act))));
    act_inputs(x);
    CALL(be, act_bwd, &(struct act_bwd_args){fn, x.t, dy.t, dy.t, false});
    CHECK_MSG(ref_rel_l2(dy.t, mdx) <= 2 * act_error, "act %d: dx %g", fn, ref_rel_l2(dy.t, mdx));
    mat_free(&my), mat_free(&mdx), mat_free(&sum);
    box_free(&x), box_free(&y), box_free(&dy), box_free(&dx), box_free(&dx0);
}

/* Checks the tails of the functions element by element, because errors there would not be seen in
 * a norm over many elements. */
static void check_act_tails(void)
{
    enum { N = 400 };
    struct box x = box_new(1, N, 0), y = box_new(1, N, 0);
    for (int64_t i = 0; i < N; i++) *box_at(x, 0, i) = (float)(i - N / 2) / 24; /* to +-8.3 */
    for (enum act_id fn = 0; fn < ACT_N; fn++) {
        CALL(be, act_fwd, &(struct act_fwd_args){fn, x.t, y.t});
        for (int64_t i = 0; i < N; i++) {
            const double at = *box_at(x, 0, i), want = ref_act(fn, at), got = *box_at(y, 0, i);
            /* the steps that compute the exponential's argument round it; for gelu, the argument
             * is up to at^2 */
            CHECK_MSG(fabs(got - want) <= (12 + 4 * at * at) * ULP * fabs(want),
                      "act %d at %g: %g, not %g", fn, at, got, want);
        }
        *box_at(y, 0, 0) = NAN, *box_at(y, 0, 1) = INFINITY;
        CALL(be, act_fwd, &(struct act_fwd_args){fn, y.t, y.t});
        CHECK_MSG(isnan(*box_at(y, 0, 0)), "act %d hides a NaN", fn);
        CHECK_MSG(*box_at(y, 0, 1) == (float)ref_act(fn, INFINITY), "act %d of infinity", fn);
    }
    box_free(&x), box_free(&y);
}

/* Checks that a bounded activation maps an infinity to its limit. */
static void check_act_ends(void)
{
    static const struct {
        enum act_id fn;
        float minus, plus;
    } ends[] = {
        {ACT_RELU, 0, INFINITY}, {ACT_ELU1, 0, INFINITY}, {ACT_SIGMOID, 0, 1}, {ACT_TANH, -1, 1}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct box x = box_act(1, 2, 0), y = box_act(1, 2, 0);
        box_set(x, 0, 0, -INFINITY), box_set(x, 0, 1, INFINITY);
        CALL(be, act_fwd, &(struct act_fwd_args){ends[i].fn, x.t, y.t});
        const double minus = ref_at(y.t, 0, 0), plus = ref_at(y.t, 0, 1);
        CHECK_MSG(minus == (double)ends[i].minus && plus == (double)ends[i].plus,
                  "activation %d: %g and %g", ends[i].fn, minus, plus);
        box_free(&x), box_free(&y);
    }
}

static void check_act(void)
{
    for (enum act_id fn = 0; fn < ACT_N; fn++)
        EACH_ELEM_SHAPE(s) check_act_fn(fn, elem_shapes[s][0], elem_shapes[s][1]);
    check_act_tails();
    check_act_ends();
}

static void check_glu_fn(enum act_id fn, int64_t T, int64_t C)
{
    struct box a = box_act(T, C, 1), b = box_act(T, C, 2), y = box_act(T, C, 0);
    struct box dy = box_act(T, C, 3), da = box_act(T, C, 1), db = box_act(T, C, 0), db0;
    act_inputs(a), box_random(b, 32, 1), box_random(dy, 33, 1), box_random(da, 34, 1);
    box_random(db, 35, 1);
    db0 = box_copy(db, 2);
    struct mat my = mat_of(b.t), mda = mat_of(dy.t), mdb = mat_of(db.t), ma = mat_of(a.t);
    for (int64_t i = 0; i < T * C; i++) {
        mdb.p[i] += mda.p[i] * ref_act(fn, ma.p[i]);
        mda.p[i] *= ref_slope(fn, ma.p[i]) * my.p[i];
        my.p[i] *= ref_act(fn, ma.p[i]);
    }
    CALL(be, glu_fwd, &(struct glu_fwd_args){fn, a.t, b.t, y.t});
    CHECK_MSG(ref_rel_l2(y.t, my) <= act_error + ULP, "glu %d: y %g", fn, ref_rel_l2(y.t, my));
    CALL(be, glu_bwd, &(struct glu_bwd_args){fn, a.t, b.t, dy.t, da.t, db.t, false, true});
    CHECK_MSG(ref_rel_l2(da.t, mda) <= 2 * act_error, "glu %d: da %g", fn, ref_rel_l2(da.t, mda));
    CHECK_MSG(ref_rel_l2(db.t, mdb) <= 2 * act_error, "glu %d: db %g", fn, ref_rel_l2(db.t, mdb));
    CHECK(box_intact(y) && box_intact(da) && box_intact(db));
    CALL(be_other, glu_bwd,
         &(struct glu_bwd_args){fn, a.t, b.t, dy.t, no_tensor, db0.t, false, true});
    CHECK(box_same_bits(db0, db, 0) && box_intact(db0));
    CALL(be_other, glu_fwd, &(struct glu_fwd_args){fn, a.t, b.t, db0.t});
    CHECK(box_same_bits(db0, y, 0));
    struct box a0 = box_copy(a, 1);
    CALL(be, glu_fwd, &(struct glu_fwd_args){fn, a0.t, b.t, a0.t}); /* in place */
    CHECK(box_same_bits(a0, y, 0) && box_intact(a0));
    box_free(&a0);
    CALL(be_other, glu_bwd, /* in place */
         &(struct glu_bwd_args){fn, a.t, b.t, dy.t, a.t, b.t, false, false});
    CHECK(box_same_bits(a, da, 0) && box_intact(a) && box_intact(b));
    mat_free(&my), mat_free(&mda), mat_free(&mdb), mat_free(&ma);
    box_free(&a), box_free(&b), box_free(&y), box_free(&dy), box_free(&da), box_free(&db);
    box_free(&db0);
}

/* Checks values below, above and exactly at each of the limits. */
static void check_clamp_glu_of(int64_t T, int64_t C)
{
    const float limit = 1.5f, alpha = 1.702f;
    struct box a = box_act(T, C, 1), b = box_act(T, C, 2), y = box_act(T, C, 0);
    struct box dy = box_act(T, C, 3), da = box_act(T, C, 1), db = box_act(T, C, 0);
    box_random(a, 1, 2), box_random(b, 2, 2), box_random(dy, 3, 1);
    box_set(a, 0, 0, limit), box_set(b, 0, C - 1, -limit);
    struct mat my = mat_of(a.t), mb = mat_of(b.t), mda = mat_of(dy.t), mdb = mat_of(dy.t);
    for (int64_t i = 0; i < T * C; i++) {
        const double x = my.p[i], z = mb.p[i], g = fmin(x, limit), u = fmax(-limit, fmin(z, limit));
        const double s = 1 / (1 + exp(-(double)alpha * g));
        mda.p[i] *= x > limit ? 0 : (u + 1) * (s + (double)alpha * g * s * (1 - s));
        mdb.p[i] *= z > limit || z < -limit ? 0 : g * s;
        my.p[i] = g * s * (u + 1);
    }
    CALL(be, clamp_glu_fwd, &(struct clamp_glu_fwd_args){a.t, b.t, y.t, alpha, limit});
    CHECK_MSG(ref_rel_l2(y.t, my) <= act_error + 2 * ULP, "y %g", ref_rel_l2(y.t, my));
    CALL(be, clamp_glu_bwd, &(struct clamp_glu_bwd_args){a.t, b.t, dy.t, da.t, db.t, alpha, limit});
    CHECK_MSG(ref_rel_l2(da.t, mda) <= 2 * act_error, "da %g", ref_rel_l2(da.t, mda));
    CHECK_MSG(ref_rel_l2(db.t, mdb) <= 2 * act_error, "db %g", ref_rel_l2(db.t, mdb));
    CHECK(box_intact(y) && box_intact(da) && box_intact(db));
    struct box a0 = box_copy(a, 1);
    CALL(be_other, clamp_glu_fwd, &(struct clamp_glu_fwd_args){a0.t, b.t, a0.t, alpha, limit});
    CHECK(box_same_bits(a0, y, 0) && box_intact(a0));
    CALL(be_other, clamp_glu_bwd, /* in place */
         &(struct clamp_glu_bwd_args){a.t, b.t, dy.t, a.t, b.t, alpha, limit});
    CHECK(box_same_bits(a, da, 0) && box_same_bits(b, db, 0) && box_intact(a) && box_intact(b));
    mat_free(&my), mat_free(&mb), mat_free(&mda), mat_free(&mdb);
    box_free(&a), box_free(&b), box_free(&y), box_free(&dy), box_free(&da), box_free(&db);
    box_free(&a0);
}

static void check_clamp_glu(void)
{
    EACH_ELEM_SHAPE(s) check_clamp_glu_of(elem_shapes[s][0], elem_shapes[s][1]);
}

/* Checks that the gated unit with SiLU has the same bits as swiglu. */
static void check_glu_is_swiglu(void)
{
    enum { T = 21, I = 83 };
    struct box gu = box_act(T, 2 * I, 0), a = box_act(T, I, 0), y = box_act(T, I, 1);
    struct box da = box_act(T, I, 0), dgu = box_act(T, 2 * I, 0), d2 = box_act(T, 2 * I, 0);
    box_random(gu, 1, 3), box_random(da, 2, 1);
    const struct tensor gate = tensor_sub(gu.t, 0, T, 0, I), up = tensor_sub(gu.t, 0, T, I, I);
    CALL(be, swiglu_fwd, &(struct swiglu_fwd_args){gu.t, a.t});
    CALL(be, glu_fwd, &(struct glu_fwd_args){ACT_SILU, gate, up, y.t});
    CHECK(box_same_bits(y, a, 0));
    CALL(be, swiglu_bwd, &(struct swiglu_bwd_args){gu.t, da.t, dgu.t});
    CALL(be, glu_bwd,
         &(struct glu_bwd_args){ACT_SILU, gate, up, da.t, tensor_sub(d2.t, 0, T, 0, I),
                                tensor_sub(d2.t, 0, T, I, I), false, false});
    CHECK(box_same_bits(d2, dgu, 0));
    box_free(&gu), box_free(&a), box_free(&y), box_free(&da), box_free(&dgu), box_free(&d2);
}

static void check_glu(void)
{
    for (enum act_id fn = 0; fn < ACT_N; fn++)
        EACH_ELEM_SHAPE(s) check_glu_fn(fn, elem_shapes[s][0], elem_shapes[s][1]);
    check_glu_is_swiglu();
}

/* ---- sums, biases, permutations, squared errors ---------------------------------------------- */

static void check_mix_types(int64_t T, int64_t C, int types)
{
    const enum dtype of[] = {DT_F32, act}, ta = of[types & 1], tb = of[types >> 1 & 1];
    const enum dtype ty = of[types >> 2];
    struct box a = box_new_as(ta, T, C, 1), b = box_new_as(tb, T, C, 2);
    struct box y = box_new_as(ty, T, C, 0), z = box_new_as(ty, T, C, 3);
    box_random(a, 1, 1), box_random(b, 2, 1);
    struct mat want = mat_of(a.t), mb = mat_of(b.t);
    for (int64_t i = 0; i < T * C; i++) want.p[i] = 0.7f * want.p[i] + -1.3f * mb.p[i];
    CALL(be, mix, &(struct mix_args){a.t, b.t, y.t, 0.7f, -1.3f});
    CHECK(ref_rel_l2(y.t, want) <= 2 * ULP && box_intact(y)); /* two products and a sum */
    CALL(be_other, mix, &(struct mix_args){a.t, b.t, z.t, 0.7f, -1.3f});
    CHECK(box_same_bits(z, y, 0));
    if (ta == ty) { /* in place */
        CALL(be, mix, &(struct mix_args){a.t, b.t, a.t, 0.7f, -1.3f});
        CHECK(box_same_bits(a, y, 0) && box_intact(a));
    }
    CALL(be, mix, &(struct mix_args){b.t, no_tensor, z.t, -2, NAN});
    /* the product is exact, except at the ends of a 16-bit type's range */
    for (int64_t i = 0; i < T * C; i++) want.p[i] = -2 * mb.p[i];
    CHECK(ref_rel_l2(z.t, want) == 0 && box_intact(z));
    mat_free(&want), mat_free(&mb);
    box_free(&a), box_free(&b), box_free(&y), box_free(&z);
}

static void check_mix(void)
{
    EACH_ELEM_SHAPE(s)
    for (int types = 0; types < 8; types++)
        if (act != DT_F32 || types == 0)
            check_mix_types(elem_shapes[s][0], elem_shapes[s][1], types);
}

static void check_bias(void)
{
    EACH_ELEM_SHAPE(s)
    {
        const int64_t T = elem_shapes[s][0], C = elem_shapes[s][1];
        struct box y = box_act(T, C, 1), b = box_act(1, C, 0), db = box_new(1, C, 2), db0;
        box_random(y, 1, 1), box_random(b, 2, 1), box_random(db, 3, 1);
        db0 = box_copy(db, 0);
        struct mat my = mat_of(y.t), mb = mat_of(b.t), mdb = mat_of(db.t);
        for (int64_t i = 0; i < T * C; i++) mdb.p[i % C] += my.p[i];
        CALL(be, bias_bwd, &(struct bias_bwd_args){y.t, db.t.data});
        /* each sum is computed in double and rounded once */
        CHECK(ref_rel_l2(db.t, mdb) <= ULP && box_intact(db));
        CALL(be_other, bias_bwd, &(struct bias_bwd_args){y.t, db0.t.data});
        CHECK(box_same_bits(db0, db, 0));
        for (int64_t i = 0; i < T * C; i++) my.p[i] += mb.p[i % C];
        CALL(be, bias_fwd, &(struct bias_fwd_args){y.t, b.t});
        CHECK(ref_rel_l2(y.t, my) <= ULP && box_intact(y));
        mat_free(&my), mat_free(&mb), mat_free(&mdb);
        box_free(&y), box_free(&b), box_free(&db), box_free(&db0);
    }
}

/* Checks permutations of blocks of any size, with gaps between them. Every byte must be in its
 * place, and no byte outside of the blocks may be written. */
static void check_permute(void)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 4},  {2, 3, 5, 8},   {4, 1, 7, 96},
                                        {3, 37, 2, 2}, {8, 5, 9, 500}, {0, 3, 2, 8}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        const int64_t *n = shapes[s], size = n[3], total = n[0] * n[1] * n[2] * size;
        char *src = ARRAY(char, total + 1), *dst = ARRAY(char, 2 * total + 1);
        uint64_t seed = 5;
        int64_t n_bad = 0;
        for (int64_t i = 0; i < total; i++) src[i] = (char)box_rand(&seed);
        memset(dst, 0x5a, (size_t)(2 * total) + 1);
        /* the axes [n0, n1, n2] become [n2, n0, n1]; in the result, each block is followed by a
         * gap as large as the block */
        struct permute_args a = {dst,
                                 src,
                                 {n[0], n[1], n[2]},
                                 {2 * n[1] * size, 2 * size, 2 * n[0] * n[1] * size},
                                 {n[1] * n[2] * size, n[2] * size, size},
                                 size};
        CALL(be, permute, &a);
        for (int64_t i = 0; i < total; i++) {
            const int64_t b = i / size, i2 = b % n[2], i1 = b / n[2] % n[1], i0 = b / n[2] / n[1];
            const char *to = dst + ((i2 * n[0] + i0) * n[1] + i1) * 2 * size;
            n_bad += to[i % size] != src[i] || to[size + i % size] != 0x5a;
        }
        CHECK(n_bad == 0 && dst[2 * total] == 0x5a);
    }
}

static void check_mse_shape(int64_t T, int64_t C, bool weighted)
{
    struct box x = box_act(T, C, 1), y = box_act(T, C, 0), dx = box_act(T, C, 2);
    struct box dx2 = box_act(T, C, 0);
    float *weight = ARRAY(float, T);
    double *loss = ARRAY(double, T), *again = ARRAY(double, T), want[64];
    box_random(x, 1, 1), box_random(y, 2, 1);
    struct mat mx = mat_of(x.t), my = mat_of(y.t);
    for (int64_t t = 0; t < T; t++) {
        weight[t] = t % 5 == 3 ? 0 : 0.25f * (float)(1 + t % 7);
        const double w = weighted ? weight[t] : 1;
        want[t] = 0;
        for (int64_t c = 0; c < C; c++) {
            const double d = MAT(mx, t, c) - MAT(my, t, c);
            want[t] += w * d * d;
            MAT(mx, t, c) = 2 * 0.125 * w * d;
        }
    }
    const float *w = weighted ? weight : NULL;
    CALL(be, mse, &(struct mse_args){x.t, y.t, dx.t, w, loss, 0.125f});
    CALL(be_other, mse, &(struct mse_args){x.t, y.t, dx2.t, w, again, 0.125f});
    for (int64_t t = 0; t < T; t++) /* a rounded difference is squared; sums are in double */
        CHECK(fabs(loss[t] - want[t]) <= 3 * ULP * want[t]);
    CHECK(ref_rel_l2(dx.t, mx) <= 3 * ULP && box_intact(dx));
    CHECK(box_same_bits(dx2, dx, 0) && !memcmp(loss, again, (size_t)T * sizeof loss[0]));
    CALL(be_other, mse, &(struct mse_args){x.t, y.t, no_tensor, w, again, 0.125f});
    CHECK(!memcmp(loss, again, (size_t)T * sizeof loss[0]));
    mat_free(&mx), mat_free(&my);
    box_free(&x), box_free(&y), box_free(&dx), box_free(&dx2);
}

static void check_mse(void)
{
    EACH_ELEM_SHAPE(s)
    for (int weighted = 0; weighted < 2; weighted++)
        check_mse_shape(elem_shapes[s][0], elem_shapes[s][1], weighted);
}

/* ---- noise and its variance ------------------------------------------------------------------ */

struct noise_case {
    double slope, log_min, log_max;
    bool last;
};

static double noise_cdf(double x)
{
    return 0.5 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * pow(x, 3))));
}

/* Returns the variational bound of one value in bits, as paper 2102.09672 defines it. z is the
 * sample, and d is the difference of the means. v chooses the variance between its lower and its
 * upper limit. */
static double noise_bits(const struct noise_case *k, double z, double d, double v)
{
    const double s = (1 + v) / 2 * k->log_max + (1 - v) / 2 * k->log_min;
    if (!k->last)
        return 0.5 / log(2) * (-1 + s - k->log_min + exp(k->log_min - s) + pow(d, 2) / exp(s));
    const double p = noise_cdf((d + 1.0 / 255) / exp(s / 2));
    const double q = noise_cdf((d - 1.0 / 255) / exp(s / 2));
    return -log(fmax(z < -0.999 ? p : z > 0.999 ? 1 - q : p - q, 1e-12)) / log(2);
}

/* Compares gradients with finite differences. The errors of these differences are well below
 * 1e-5. */
static void check_noise_case(const struct noise_case *k, int64_t T, int64_t C)
{
    struct box x = box_new(T, 2 * C, 1), y = box_new(T, 2 * C, 0), dx = box_new(T, 2 * C, 2);
    struct box dx2 = box_new(T, 2 * C, 0);
    float *weight = ARRAY(float, T);
    double *loss = ARRAY(double, T), *again = ARRAY(double, T), h = 1e-5;
    box_random(x, 1, 1), box_random(y, 2, 1);
    /* y is a random value near x. Far from the mean, a probability would be the difference of two
     * numbers that are both close to 1. */
    for (int64_t i = 0; k->slope < 1 && i < T * C; i++)
        box_set(y, i / C, i % C,
                (float)(ref_at(x.t, i / C, i % C) + 0.3 * ref_at(y.t, i / C, i % C)));
    struct mat want = mat_of(x.t), mx = mat_of(x.t), my = mat_of(y.t);
    for (int64_t t = 0; t < T; t++) weight[t] = t % 5 == 3 ? 0 : 0.25f * (float)(1 + t % 7);
    const struct noise_args a = {x.t,    y.t,      dx.t,       weight,     loss,
                                 0.125f, k->slope, k->log_min, k->log_max, k->last};
    struct noise_args b = a;
    b.dx = dx2.t, b.row_loss = again;
    CALL(be, noise, &a);
    CALL(be_other, noise, &b);
    for (int64_t t = 0; t < T; t++) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++) {
            const double miss = MAT(mx, t, c) - MAT(my, t, c), v = MAT(mx, t, C + c);
            const double z = MAT(my, t, C + c), d = k->slope * miss;
            sum += miss * miss + noise_bits(k, z, d, v);
            MAT(want, t, c) = 0.125 * weight[t] * 2 * miss;
            MAT(want, t, C + c) = 0.125 * weight[t] / (2 * h) *
                                  (noise_bits(k, z, d, v + h) - noise_bits(k, z, d, v - h));
        }
        CHECK_MSG(fabs(loss[t] - weight[t] * sum) <= 1e-10 * sum, "%g, want %g", loss[t],
                  weight[t] * sum);
    }
    CHECK_MSG(ref_rel_l2(dx.t, want) <= 1e-5 && box_intact(dx), "slope %g, %lld x %lld: %g",
              k->slope, (long long)T, (long long)C, ref_rel_l2(dx.t, want));
    CHECK(box_same_bits(dx2, dx, 0) && !memcmp(loss, again, (size_t)T * sizeof loss[0]));
    b.dx = no_tensor;
    CALL(be_other, noise, &b);
    CHECK(!memcmp(loss, again, (size_t)T * sizeof loss[0]));
    mat_free(&want), mat_free(&mx), mat_free(&my);
    box_free(&x), box_free(&y), box_free(&dx), box_free(&dx2);
}

static void check_noise(void)
{
    static const struct noise_case cases[] = {
        {0.02, -6.5, -6.4, false},
        {0.3, -9, -4, false},
        {0.01, -10.8, -9.2, true},
        {0.1, -3, 1, true},
        {1e6, -3, 1, true}}; /* this case has the smallest probability that can occur */
    for (int i = 0; i < 5; i++)
        EACH_ELEM_SHAPE(s) check_noise_case(&cases[i], elem_shapes[s][0], elem_shapes[s][1]);
}

#endif
