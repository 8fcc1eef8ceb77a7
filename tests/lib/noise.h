/* noise.h: measures on one rank how far apart two right trainings may lie. It runs the same
 * training with sums in other orders, and with weights that are rounded to the other side.
 *
 * fp32: each of two right results lies within e of the exact one, so that they lie at most 2 e
 * apart. e is known from one pair, which by chance may lie half as far apart as others. So the
 * bound is 4 times the distance of the pair.
 *
 * bf16: products take rounded weights. Two runs round all of them to the same bits until a weight
 * lies so near the midpoint of two bf16 numbers that the runs' last bits of fp32 fall to both
 * sides of it. After a step this happens to none of 16,000 weights in most runs, and seldom to
 * more than ten. From then on the runs differ by the value of that bit, a thousand times their
 * difference before. By chance none or ten of the weights are rounded otherwise than on one rank,
 * and one pair tells nothing about the chance of another. The effect of one bit after each step
 * suffices: the bound is 2 times that. If a product sums activations in an order of its own (tp),
 * some activations are rounded to the other side in the first step, too, and by chance so is every
 * value that follows from them. At worst all values are, as after one element in eight of the
 * embedding was moved by a bit (worker/verify/rounding.h): the bound is 2 times that.
 *
 * Below 2^-22 (4 roundings of fp32) results cannot be told apart. */
#ifndef SEQD_TESTS_NOISE_H
#define SEQD_TESTS_NOISE_H

#include "api/core/job.h"
#include "tests/lib/engine.h"

enum { NOISE_STEPS = 5, NOISE_NEAREST = 8, NOISE_FLIPS = 2 };
#define NOISE_LEAST 0x1p-22

/* A training on one rank: no parallel axis of `spec` is above 1, and it keeps all values. */
struct trial {
    const struct job_spec *spec;
    struct train_source source;
    int steps; /* at most NOISE_STEPS */
};

/* The largest differences of two trainings. That of losses is absolute. The others are relative:
 * the first step's gradient by tensor, the norms, and weights and moments in the end. */
struct noise {
    double loss, norm, weights, m, v;
    double *grad; /* [param_tensors]; NULL: not asked for */
};

/* The fp32 weights before every step, and after the last one. */
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

/* Tells whether a tensor's gradient is nothing but rounding: it is less than a millionth of the
 * whole. */
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

/* Makes a run of x. spec: the run's own copy, which lives as long as the run. determinism and isa
 * choose the order of its sums. */
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

/* A weight that is moved before a step. */
struct nudge {
    int64_t step, at;
    float to;
    int distance; /* from the midpoint, in last bits of fp32 */
};

static inline void noise_move(struct train *t, int rank, void *arg)
{
    const struct nudge *g = arg;
    if (t->step == g->step) sharded_write(&t->state, SHARDED_WEIGHTS, g->at, 1, &g->to);
}

/* Finds the weights that are nearest to a midpoint before a step, each of which is to be moved to
 * the other side of it. */
static inline void noise_nearest(const struct history *h, int64_t step, struct nudge *g)
{
    for (int k = 0; k < NOISE_NEAREST; k++) g[k] = (struct nudge){.distance = 1 << 16};
    for (int64_t i = 0; i < h->n; i++) {
        uint32_t bits;
        memcpy(&bits, &h->weights[step][i], 4);
        struct nudge now = {.step = step, .at = i, .distance = abs((int)(bits & 0xffff) - 0x8000)};
        const bool up = (bits & 0xffff) + (bits >> 16 & 1) > 0x8000; /* a tie goes to even */
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

/* Measures the effect of one bit of one weight after a step: on one rank, for each of the weights
 * most likely to be rounded differently, alone. */
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

/* Moves one element in eight of the embedding by a bit of bf16, before the first step. */
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

/* Measures the effect of rounding every activation differently. */
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

/* Sets each member of *to to the larger of its value and `times` that of *from. */
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

/* Trains x into *one. *own receives its spec, which the caller keeps as long as *one. *bound: how
 * far a right result may lie from *one. pairs: in bf16, the factor for the difference of two
 * orders of sums: 4, as in fp32, if a product sums activations in an order of its own; 2 if it
 * sums gradients alone. */
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
