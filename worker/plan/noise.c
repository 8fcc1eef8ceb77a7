/* noise.c: computes beta, its running product and the posterior's variance. These values are
 * computed for single steps and for the steps that a sampler keeps. */
#include "worker/plan/noise.h"

#include <math.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"

static double beta_at(int64_t t)
{
    const double first = 1e-4, last = 0.02;
    return first + (last - first) * (double)t / (NOISE_STEPS - 1);
}

/* Returns a_t. It is 1 before the first step. */
static double kept(int64_t t)
{
    double a = 1;
    for (int64_t i = 0; i <= t; i++) a *= 1 - beta_at(i);
    return a;
}

static double posterior_variance(int64_t t)
{
    return beta_at(t) * (1 - kept(t - 1)) / (1 - kept(t));
}

struct noise_step noise_step(int64_t t)
{
    assert(t >= 0 && t < NOISE_STEPS);
    const double a = kept(t), beta = beta_at(t);
    return (struct noise_step){.keep = sqrt(a),
                               .noise = sqrt(1 - a),
                               .slope = beta / sqrt((1 - beta) * (1 - a)),
                               .log_min = log(posterior_variance(t > 0 ? t : 1)),
                               .log_max = log(beta),
                               .last = t == 0};
}

/* Returns the step of kept step number k. Number 0 is the lowest. As in the published code, the
 * stride is added k times, and halves are rounded to even. */
static int64_t spaced(int64_t k, int64_t n)
{
    const double stride = (double)(NOISE_STEPS - 1) / (double)(n - 1);
    double at = 0;
    for (int64_t i = 0; i < k; i++) at += stride;
    return (int64_t)(mutant_on(MUTANT_HALF_AWAY) ? round(at) : nearbyint(at));
}

/* A kept step, and the next lower kept step. */
struct kept_step {
    int64_t t;
    double a, below; /* a: a_t of step t; below: a_t of the next lower kept step */
};

static struct kept_step kept_step(int64_t k, int64_t n)
{
    const int64_t t = spaced(k, n);
    return (struct kept_step){t, kept(t), kept(k > 0 ? spaced(k - 1, n) : -1)};
}

struct noise_jump noise_jump(int64_t i, int64_t n)
{
    assert(n >= 2 && n <= NOISE_STEPS && i >= 0 && i < n);
    const struct kept_step s = kept_step(n - 1 - i, n);
    const double alpha = sqrt(s.below / s.a);
    return (struct noise_jump){s.t, alpha, sqrt(1 - s.below) - alpha * sqrt(1 - s.a)};
}

/* Returns beta between a kept step and the next lower kept step. */
static double beta_of(const struct kept_step *s)
{
    return 1 - s->a / s->below;
}

struct noise_draw noise_draw(int64_t i, int64_t n)
{
    assert(n >= 2 && n <= NOISE_STEPS && i >= 0 && i < n);
    const int64_t k = n - 1 - i;
    /* Step 0 has no posterior and uses the variance of step 1. */
    const struct kept_step s = kept_step(k, n), at = k > 0 ? s : kept_step(1, n);
    const double beta = beta_of(&s), of_x0 = beta * sqrt(s.below) / (1 - s.a);
    const double of_x = (1 - s.below) * sqrt(1 - beta) / (1 - s.a);
    return (struct noise_draw){.mean = {s.t, of_x0 / sqrt(s.a) + of_x, -of_x0 * sqrt(1 / s.a - 1)},
                               .log_min = log(beta_of(&at) * (1 - at.below) / (1 - at.a)),
                               .log_max = log(beta),
                               .last = k == 0};
}

double noise_spread(const struct noise_draw *d, double v)
{
    const double share = (v + 1) / 2;
    return d->last ? 0 : exp((share * d->log_max + (1 - share) * d->log_min) / 2);
}
