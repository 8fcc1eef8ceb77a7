/* noise.h: measures, on one rank, how much the results of two correct trainings may differ. To
 * measure this, a training is run several times: with different orders of the sums, and with
 * weights that are rounded in the opposite direction.
 *
 * In fp32, each of two correct results is within e of the exact result, so that they differ by at
 * most 2 e. The number e is estimated from one pair of runs. By chance, the difference between the
 * two runs of this pair may be only half as large as for some other pair. The bound is therefore 4
 * times the difference between the two runs.
 *
 * In bf16, products use rounded weights. Usually, two runs round each weight to the same bits.
 * They round a weight differently if it is so near to the midpoint of two bf16 numbers that its
 * fp32 values in the two runs are on different sides of the midpoint. In most steps this happens
 * to none of 16,000 weights, and it seldom happens to more than ten. After it has happened, the
 * runs differ by the value of the last bit of bf16, which is a thousand times their difference
 * before. It depends on chance whether two runs round no weight differently or ten of them. A
 * measurement of one pair of runs is therefore no bound for other pairs. It is enough to measure
 * the effect of one bit after each step. The bound is 2 times that effect.
 *
 * With tp, a product sums activations in a different order than on one rank. Some activations are
 * then rounded in the opposite direction even in the first step. In the worst case, every value
 * that is computed from them is rounded in the opposite direction, too. This has the same effect
 * as changing one element in eight of the embedding by one bit (worker/verify/rounding.h). The
 * bound is 2 times that effect.
 *
 * Differences below 2^-22 (4 roundings of fp32) are smaller than the resolution of the results. */
#ifndef SEQD_TESTS_NOISE_H
#define SEQD_TESTS_NOISE_H

#include "api/core/job.h"
#include "tests/lib/engine.h"

enum { NOISE_STEPS = 5, NOISE_NEAREST = 8, NOISE_FLIPS = 2 };
#define NOISE_LEAST 0x1p-22

/* A training on one rank. Every parallel axis of `spec` is 1, and all values are kept for
 * backward. */
struct trial {
    const struct job_spec *spec;
    struct train_source source;
    int steps; /* at most NOISE_STEPS */
};

/* The largest differences between two trainings. The difference of the losses is absolute, and all
 * other differences are relative. `grad` holds, for each tensor, the difference of its gradient in
 * the first step. `norm` is the difference of the norms of the gradient. `weights`, `m` and `v`
 * are the differences at the end of the trainings. */
struct noise {
    double loss, norm, weights, m, v;
    double *grad; /* [param_tensors]; NULL means that the caller does not need it */
};

/* The fp32 weights before every step and after the last step. */
struct history {
    int64_t n; /* number of weights */
    float *weights[NOISE_STEPS + 1];
};

static inline double noise_most(double a, double b)
{
    return a > b ? a : b;
}

static inline double noise_length(const float *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

/* Tells whether a tensor's gradient consists only of rounding errors, which is assumed if its norm
 * is less than a millionth of the norm of all gradients. */
static inline bool noise_rounds(const struct engine_run *r, const struct param *p)
{
    return noise_length(r->grad + p->offset, p->count) <
           1e-6 * noise_length(r->grad, r->plan.n_params);
}

static inline void noise_differ(const struct engine_run *a, const struct engine_run *b,
                                struct noise *d)
{
    const struct model_shape *m = &b->spec->model.shape;
    const int64_t n = b->plan.n_params;
    for (int64_t k = 0; k < b->steps; k++) {
        d->loss = noise_most(d->loss, fabs(a->loss[k] - b->loss[k]));
        d->norm = noise_most(d->norm, fabs(a->norm[k] / b->norm[k] - 1));
    }
    d->weights = noise_most(d->weights, rel_l2(a->weights, b->weights, n));
    d->m = noise_most(d->m, rel_l2(a->adam_m, b->adam_m, n));
    d->v = noise_most(d->v, rel_l2(a->adam_v, b->adam_v, n));
    for (int i = 0; d->grad && i < param_tensors(m); i++) {
        struct param p;
        param_get(m, i, &p);
        d->grad[i] = noise_most(d->grad[i],
                                rel_l2(a->grad + p.offset, b->grad + p.offset, p.count));
    }
}

static inline void noise_keep(struct train *t, int rank, void *arg)
{
    struct history *h = arg;
    if (t->plan->n_params != h->n || t->step > NOISE_STEPS) abort();
    engine_collect(t, SHARDED_WEIGHTS, h->weights[t->step]);
}

/* Runs the training x. *spec becomes the spec of this run, and the caller must keep it as long as
 * the result. The parameters `determinism` and `isa` choose the order of the sums. */
static inline struct engine_run noise_run(const struct trial *x, struct job_spec *spec,
                                          int determinism, const char *isa, struct history *h)
{
    *spec = *x->spec;
    spec->determinism = determinism;
    struct engine_run r = {.P = 1,
                           .steps = x->steps,
                           .isa = isa,
                           .source = x->source,
                           .before_step = h ? noise_keep : NULL,
                           .after_step = h ? noise_keep : NULL,
                           .arg = h};
    engine_go(&r, spec);
    return r;
}

/* ---- roundings of bf16 ----------------------------------------------------------------------- */

/* A weight that a run changes before a step. */
struct nudge {
    int64_t step, at;
    float to;
    /* the distance of the weight from the midpoint, in units of the last bit of fp32 */
    int distance;
};

static inline void noise_move(struct train *t, int rank, void *arg)
{
    const struct nudge *g = arg;
    if (t->step == g->step) sharded_write(&t->state, SHARDED_WEIGHTS, g->at, 1, &g->to);
}

/* Finds the weights that are nearest to a midpoint of two bf16 numbers before a step. For each of
 * these weights, `to` is set to a value on the other side of its midpoint. */
static inline void noise_nearest(const struct history *h, int64_t step, struct nudge *g)
{
    for (int k = 0; k < NOISE_NEAREST; k++) g[k] = (struct nudge){.distance = 1 << 16};
    for (int64_t i = 0; i < h->n; i++) {
        uint32_t bits;
        memcpy(&bits, &h->weights[step][i], 4);
        struct nudge now = {.step = step, .at = i, .distance = abs((int)(bits & 0xffff) - 0x8000)};
        /* in a tie, the weight is rounded to the even number */
        const bool up = (bits & 0xffff) + (bits >> 16 & 1) > 0x8000;
        bits = (bits & 0xffff0000u) | (up ? 0x7fff : 0x8001);
        memcpy(&now.to, &bits, 4);
        for (int k = 0; k < NOISE_NEAREST; k++)
            if (now.distance < g[k].distance) {
                const struct nudge farther = g[k];
                g[k] = now;
                now = farther;
            }
    }
}

/* Measures the effect of one bit of one weight after a step. The training is run once for each of
 * the weights that are most likely to be rounded differently, and only that weight is changed in
 * the run. */
static inline void noise_of_a_bit(const struct trial *x, const struct engine_run *one,
                                  const struct history *h, int64_t step, struct noise *e)
{
    static struct job_spec spec;
    struct nudge g[NOISE_NEAREST];
    noise_nearest(h, step, g);
    for (int k = 0; k < NOISE_NEAREST; k++) {
        spec = *x->spec;
        struct engine_run r = {.P = 1,
                               .steps = x->steps,
                               .source = x->source,
                               .before_step = noise_move,
                               .arg = &g[k]};
        engine_go(&r, &spec);
        noise_differ(&r, one, e);
        engine_free(&r);
    }
}

/* ---- roundings of activations ---------------------------------------------------------------- */

struct flips {
    const struct history *h;
    int number;
};

/* Changes one element in eight of the embedding by one bit of bf16, before the first step. */
static inline void noise_flip(struct train *t, int rank, void *arg)
{
    const struct flips *f = arg;
    const int64_t n = param_section(&t->model.shape, 1);
    for (int64_t i = 0; i < n && t->step == 0; i++) {
        uint32_t bits;
        float to;
        if ((uint64_t)(i + 1 + f->number * n) * 0x9e3779b97f4a7c15u >> 61) continue;
        memcpy(&bits, &f->h->weights[0][i], 4);
        bits ^= 0x10000;
        memcpy(&to, &bits, 4);
        sharded_write(&t->state, SHARDED_WEIGHTS, i, 1, &to);
    }
}

/* Measures the effect of rounding every activation in the opposite direction. */
static inline void noise_of_rounding(const struct trial *x, const struct engine_run *one,
                                     const struct history *h, int number, struct noise *e)
{
    static struct job_spec spec;
    struct flips f = {h, number};
    spec = *x->spec;
    struct engine_run r = {
        .P = 1, .steps = x->steps, .source = x->source, .before_step = noise_flip, .arg = &f};
    engine_go(&r, &spec);
    noise_differ(&r, one, e);
    engine_free(&r);
}

/* ---- a training's noise ---------------------------------------------------------------------- */

/* Sets each member of *to to the maximum of its value and `times` multiplied by the member of
 * *from with the same name. */
static inline void noise_join(struct noise *to, const struct noise *from, double times, int tensors)
{
    to->loss = noise_most(to->loss, times * from->loss);
    to->norm = noise_most(to->norm, times * from->norm);
    to->weights = noise_most(to->weights, times * from->weights);
    to->m = noise_most(to->m, times * from->m);
    to->v = noise_most(to->v, times * from->v);
    for (int i = 0; to->grad && i < tensors; i++)
        to->grad[i] = noise_most(to->grad[i], times * from->grad[i]);
}

/* Trains x and stores the run in *one. *own becomes the spec of that run, so the caller must keep
 * it as long as *one. *bound becomes the largest difference from *one that a correct result may
 * have. In bf16, the measured difference between two orders of sums is multiplied by the parameter
 * `pairs`. Pass 4 if the run to be judged sums activations in a different order than *one, and 2
 * if only its sums of gradients have a different order. In fp32 the factor is always 4. */
static inline void noise_measure(const struct trial *x, struct job_spec *own, double pairs,
                                 struct engine_run *one, struct noise *bound)
{
    static struct job_spec spec;
    const struct model_shape *shape = &x->spec->model.shape;
    const int tensors = param_tensors(shape);
    struct history h = {.n = param_count(shape)};
    const bool half = x->spec->precision.params == PRECISION_BF16;
    struct noise orders = {.grad = calloc((size_t)tensors, 8)};
    struct noise bits = {.grad = calloc((size_t)tensors, 8)};
    if (!orders.grad || !bits.grad) abort();
    for (int k = 0; k <= NOISE_STEPS; k++) {
        h.weights[k] = calloc((size_t)h.n, 4);
        if (!h.weights[k]) abort();
    }
    *one = noise_run(x, own, DET_RUN, NULL, half ? &h : NULL);
    struct engine_run other = noise_run(x, &spec, DET_RANKS, NULL, NULL);
    noise_differ(&other, one, &orders);
    engine_free(&other);
    other = noise_run(x, &spec, DET_RUN, "portable", NULL);
    noise_differ(&other, one, &orders);
    engine_free(&other);
    for (int step = 1; step < x->steps && half; step++) noise_of_a_bit(x, one, &h, step, &bits);
    for (int k = 0; k < NOISE_FLIPS && half && pairs > 2; k++)
        noise_of_rounding(x, one, &h, k, &bits);
    noise_join(bound, &orders, half ? pairs : 4, tensors);
    noise_join(bound, &bits, 2, tensors);
    for (int k = 0; k <= NOISE_STEPS; k++) free(h.weights[k]);
    free(orders.grad), free(bits.grad);
}

#endif
