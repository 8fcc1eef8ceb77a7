#include "worker/plan/noise.h"

#include <assert.h>
#include <math.h>

static double beta_at(int64_t t)
{
    const double first = 1e-4, last = 0.02;
    return first + (last - first) * (double)t / (NOISE_STEPS - 1);
}

/* a_t; 1 before the first step. */
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

/* Which step the k-th kept one is, from below: the stride is added up, and halves are rounded to
 * even, as published. */
static int64_t spaced(int64_t k, int64_t n)
{
    const double stride = (double)(NOISE_STEPS - 1) / (double)(n - 1);
    double at = 0;
    for (int64_t i = 0; i < k; i++) at += stride;
    return (int64_t)nearbyint(at);
}

struct noise_jump noise_jump(int64_t i, int64_t n)
{
    assert(n >= 2 && n <= NOISE_STEPS && i >= 0 && i < n);
    const int64_t k = n - 1 - i, t = spaced(k, n);
    const double a = kept(t), below = kept(k > 0 ? spaced(k - 1, n) : -1);
    const double alpha = sqrt(below / a);
    return (struct noise_jump){t, alpha, sqrt(1 - below) - alpha * sqrt(1 - a)};
}
