/* kern_xent.h: checks the cross-entropy of whole rows and of rows whose columns are divided into
 * parts, with soft caps, smoothed labels, z-loss and weights of rows, as a part of
 * check_kernels. */
#ifndef SEQD_TESTS_KERN_XENT_H
#define SEQD_TESTS_KERN_XENT_H

#include "tests/lib/kern.h"

/* Returns a tensor for the gradient that uses the memory of the logits. A row of 16-bit numbers is
 * stored at the start of the fp32 row that it replaces. */
static struct tensor in_place(struct box logits)
{
    struct tensor d = logits.t;
    if (act != DT_F32) d = tensor_of(act, d.data, d.rows, d.cols, 2 * d.ld);
    return d;
}

/* A loss that is checked. weighted tells whether rows have weights. */
struct xent_case {
    float cap;
    double smoothing, z_loss;
    bool weighted;
};

/* Allocates weights of T rows, some of which are negative or 0. */
static const float *xent_weights(const struct xent_case *p, int64_t T)
{
    if (!p->weighted) return NULL;
    float *weight = ARRAY(float, T);
    for (int64_t t = 0; t < T; t++) weight[t] = (float)(t % 7) / 2 - 1;
    return weight;
}

static struct ref_xent xent_ref(const struct xent_case *p, const float *weight)
{
    return (struct ref_xent){0.25, (double)p->cap, p->smoothing, p->z_loss, weight};
}

static struct xent_args xent_call(const struct xent_case *p, struct tensor x, struct tensor dx,
                                  const int32_t *target, double *nll)
{
    return (struct xent_args){.logits = x,
                              .dlogits = dx,
                              .targets = target,
                              .nll = nll,
                              .scale = 0.25f,
                              .backward = true,
                              .cap = p->cap,
                              .smoothing = p->smoothing,
                              .z_loss = p->z_loss,
                              .vocab = x.cols};
}

/* Compares losses and gradients with those of the reference. The argument of an exponential
 * reaches 40, and its rounding of 20 ulp is the largest part of the error. */
static void check_xent_result(const double *nll, const double *want_nll, const int32_t *target,
                              struct tensor dx, struct mat want)
{
    double sum = 0, want_sum = 0;
    for (int64_t t = 0; t < dx.rows; t++) {
        CHECK(target[t] >= 0 || nll[t] == 0);
        sum += nll[t], want_sum += want_nll[t];
    }
    CHECK_MSG(fabs(sum - want_sum) <= 4 * ULP * (double)dx.rows + 20 * ULP * fabs(want_sum),
              "%g %g", sum, want_sum);
    CHECK_MSG(ref_rel_l2(dx, want) <= 24 * ULP, "%g", ref_rel_l2(dx, want));
}

/* Computes the loss in chunks of 7 rows, as a model does, and writes the gradient to `apart`. */
static void run_xent_chunks(const struct xent_case *p, struct box x, struct box apart,
                            const int32_t *target, double *nll, const float *weight)
{
    const int64_t T = x.t.rows, V = x.t.cols;
    for (int64_t r = 0; r < T; r += 7) {
        const int64_t n = T - r < 7 ? T - r : 7;
        struct xent_args a = xent_call(p, tensor_sub(x.t, r, n, 0, V),
                                       tensor_sub(apart.t, r, n, 0, V), target + r, nll + r);
        if (weight) a.weight = weight + r;
        CALL(be_other, xent, &a);
    }
}

static void check_xent_random(const struct xent_case *p)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {20, 258}, {33, 1000}, {4, 50257}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t T = shapes[s][0], V = shapes[s][1];
        int32_t *target = ARRAY(int32_t, T);
        double *nll = ARRAY(double, T), *again = ARRAY(double, T);
        const float *weight = xent_weights(p, T);
        double want_nll[33];
        for (int64_t t = 0; t < T; t++) target[t] = t % 4 == 2 ? -1 : (int32_t)(t * 7919 % V);
        struct box x = box_new(T, V, 3), y, apart = box_act(T, V, 1);
        box_random(x, 41, 4);
        y = box_copy(x, 3);
        struct mat want = mat_of(x.t);
        const struct ref_xent ref = xent_ref(p, weight);
        ref_xent(want, target, &ref, want_nll);
        struct tensor dx = in_place(x);
        struct xent_args a = xent_call(p, x.t, dx, target, nll);
        a.weight = weight;
        CALL(be, xent, &a);
        check_xent_result(nll, want_nll, target, dx, want);
        CHECK(box_intact(x));
        a = xent_call(p, y.t, y.t, target, again), a.backward = false;
        CALL(be_other, xent, &a);
        CHECK(!memcmp(nll, again, (size_t)T * sizeof nll[0]) && box_intact(y));
        run_xent_chunks(p, y, apart, target, again, weight);
        CHECK(!memcmp(nll, again, (size_t)T * sizeof nll[0]));
        CHECK(box_same_bits(apart, (struct box){.t = dx}, 0) && box_intact(apart));
        mat_free(&want), box_free(&x), box_free(&y), box_free(&apart);
    }
}

enum { FAR_V = 1000 }; /* columns of logits far from zero */

/* Makes two rows of logits whose target is 7. */
static struct box far_logits(double offset)
{
    struct box x = box_new(2, FAR_V, 3);
    for (int64_t c = 0; c < FAR_V; c++) {
        *box_at(x, 0, c) = (float)(offset + (c == 7));
        *box_at(x, 1, c) = (float)(offset + (c == 9 ? 100000 : 0));
    }
    return x;
}

/* Checks the same logits with smoothed labels. `want` is the first row's loss without smoothing. A
 * quarter of the target's distance from the mean of the logits is added to the loss. */
static void check_xent_far_mean(double offset, double want)
{
    struct box x = far_logits(offset);
    int32_t *target = ARRAY(int32_t, 2);
    double *nll = ARRAY(double, 2);
    target[0] = target[1] = 7;
    const struct xent_case p = {.smoothing = 0.25};
    struct xent_args a = xent_call(&p, x.t, x.t, target, nll);
    a.backward = false;
    CALL(be, xent, &a);
    want += 0.25 * (1 - 1. / FAR_V);
    CHECK_MSG(fabs(nll[0] - want) <= 4 * ULP, "at %g: %.9g, not %.9g", offset, nll[0], want);
    CHECK_MSG(fabs(nll[1] - 99975) <= 1e-6, "at %g: %.9g", offset, nll[1]);
    box_free(&x);
}

/* Checks that the loss is accurate if the logits are far from zero, and if they are far from each
 * other. All differences between logits are integers, so only the exponentials and their sum are
 * rounded. */
static void check_xent_far(void)
{
    static const double offsets[] = {0, 3000, -50000, 1 << 20};
    for (size_t k = 0; k < sizeof offsets / sizeof offsets[0]; k++) {
        struct box x = far_logits(offsets[k]);
        int32_t *target = ARRAY(int32_t, 2);
        double *nll = ARRAY(double, 2);
        target[0] = target[1] = 7;
        struct tensor d = in_place(x);
        struct xent_args a = xent_call(&(struct xent_case){0}, x.t, d, target, nll);
        a.scale = 1;
        CALL(be, xent, &a);
        const double want = log(1 + (FAR_V - 1) * exp(-1));
        CHECK_MSG(fabs(nll[0] - want) <= 4 * ULP, "at %g: %.9g, not %.9g", offsets[k], nll[0],
                  want);
        CHECK_MSG(nll[1] == 100000, "at %g: %.9g", offsets[k], nll[1]);
        CHECK(ref_at(d, 1, 7) == -1 && ref_at(d, 1, 9) == 1 && ref_at(d, 1, 0) == 0);
        check_xent_far_mean(offsets[k], want);
        box_free(&x);
    }
}

/* Checks that a NaN among the logits makes the loss NaN, whatever its position. If it did not, a
 * training would continue without noticing the NaN. */
static void check_xent_nan(void)
{
    enum { V = 37 };
    for (int64_t at = 0; at < V; at++) {
        struct box x = box_new(1, V, 0);
        int32_t *target = ARRAY(int32_t, 1);
        double *nll = ARRAY(double, 1);
        target[0] = 7;
        box_random(x, 43, 2);
        *box_at(x, 0, at) = NAN;
        const struct xent_args a = xent_call(&(struct xent_case){0}, x.t, in_place(x), target, nll);
        CALL(be, xent, &a);
        CHECK_MSG(isnan(nll[0]), "NaN at %lld: nll %g", (long long)at, nll[0]);
        box_free(&x);
    }
}

/* Logits whose columns are divided into parts. Each part is computed separately. The last parts
 * are short or empty. */
struct xent_parts {
    int64_t T, V, part;
    int n;
    struct box x, d;
    struct xent_stat *stat;
    int32_t *target;
    double *nll;
    const float *weight;
};

static struct tensor part_of(const struct xent_parts *p, struct tensor t, int i)
{
    const int64_t first = i * p->part < p->V ? i * p->part : p->V;
    return tensor_sub(t, 0, p->T, first, first + p->part < p->V ? p->part : p->V - first);
}

static void run_parts(const struct xent_parts *p, const struct xent_case *c)
{
    for (int i = 0; i < p->n; i++)
        CALL(be, xent_part,
             &(struct xent_part_args){part_of(p, p->x.t, i), p->target, i * p->part,
                                      p->stat + i * p->T, c->smoothing > 0});
    for (int i = 0; i < p->n; i++) {
        struct xent_args a = xent_call(c, part_of(p, p->x.t, i), part_of(p, p->d.t, i), p->target,
                                       p->nll);
        a.parts = p->stat, a.n_parts = p->n, a.first = i * p->part;
        a.weight = p->weight, a.vocab = p->V;
        CALL(be, xent, &a);
    }
}

/* Draws logits and targets. The logits have no infinity that would make the loss of the case
 * infinite, and none beyond its cap. */
static void draw_parts(const struct xent_parts *p, const struct xent_case *l)
{
    box_random(p->x, 44, 4);
    for (int64_t t = 0; t < p->T; t++) {
        p->target[t] = t % 4 == 2 ? -1 : (int32_t)(t * 7919 % p->V);
        /* one logit is so large that the terms of all other parts vanish */
        if (t % 4 == 3) *box_at(p->x, t, (t * 31) % p->V) = 3000;
        /* the first part has only logits of -inf */
        for (int64_t c = 0; t % 4 == 1 && c < p->part; c++) *box_at(p->x, t, c) = -INFINITY;
        if (t % 4 == 1) p->target[t] = (int32_t)(p->V - 1);
    }
    for (int64_t t = 0; t < p->T; t++)
        for (int64_t c = 0; c < p->V; c++) {
            float *x = box_at(p->x, t, c);
            if (l->cap > 0 && (!isfinite(*x) || *x > l->cap)) *x = -l->cap / 2;
            if (l->smoothing > 0 && !isfinite(*x)) *x = -300;
        }
}

static void check_xent_parts(const struct xent_case *c)
{
    static const int64_t shapes[][3] = {{3, 17, 9}, {20, 258, 86}, {33, 1000, 300}, {5, 7, 3}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct xent_parts p = {.T = shapes[s][0], .V = shapes[s][1], .part = shapes[s][2], .n = 4};
        double want_nll[33];
        p.x = box_new(p.T, p.V, 3), p.d = box_act(p.T, p.V, 1);
        p.stat = ARRAY(struct xent_stat, p.n * p.T);
        p.target = ARRAY(int32_t, p.T), p.nll = ARRAY(double, p.T);
        p.weight = xent_weights(c, p.T);
        draw_parts(&p, c);
        struct mat want = mat_of(p.x.t);
        const struct ref_xent ref = xent_ref(c, p.weight);
        ref_xent(want, p.target, &ref, want_nll);
        run_parts(&p, c);
        check_xent_result(p.nll, want_nll, p.target, p.d.t, want);
        CHECK(box_intact(p.d));
        mat_free(&want), box_free(&p.x), box_free(&p.d);
    }
}

/* Checks that a NaN in one part makes the loss and the gradients of all parts NaN. */
static void check_xent_parts_nan(void)
{
    for (int64_t at = 0; at < 7; at++) {
        struct xent_parts p = {.T = 1, .V = 7, .part = 3, .n = 4};
        p.x = box_new(1, 7, 0), p.d = box_act(1, 7, 0);
        p.stat = ARRAY(struct xent_stat, 4);
        p.target = ARRAY(int32_t, 1), p.nll = ARRAY(double, 1);
        p.target[0] = 5;
        box_random(p.x, 45, 2);
        for (int64_t c = 0; at % 2 && c < 7; c++) *box_at(p.x, 0, c) = -INFINITY;
        *box_at(p.x, 0, at) = NAN;
        run_parts(&p, &(struct xent_case){0});
        CHECK_MSG(isnan(p.nll[0]), "NaN at %lld: nll %g", (long long)at, p.nll[0]);
        for (int64_t c = 0; c < 7; c++) CHECK(isnan(ref_at(p.d.t, 0, c)));
        box_free(&p.x), box_free(&p.d);
    }
}

/* Checks every set of cap, smoothing and z-loss. */
static void check_xent_sets(bool weighted)
{
    for (int f = 0; f < 8; f++) {
        const struct xent_case c = {.cap = f & 1 ? 20 : 0,
                                    .smoothing = f & 2 ? 0.1 : 0,
                                    .z_loss = f & 4 ? 1e-2 : 0,
                                    .weighted = weighted};
        check_xent_parts(&c);
        if (!quick || f == 0 || f == 7) check_xent_random(&c);
    }
}

static void check_xent_weights(void)
{
    check_xent_sets(true);
}

static void check_xent(void)
{
    check_xent_sets(false);
    check_xent_parts_nan();
    check_xent_far();
    check_xent_nan();
}

#endif
