/* noise.h: diffusion that predicts noise with a learned variance (IDDPM, 2102.09672). Latte and
 * Open-Sora 1.0 are trained and sampled by this method. There are 1,000 steps, whose variances
 * beta rise linearly.
 *
 *   x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise    a_t = product of 1 - beta_i, i <= t; t = 0 .. 999
 *   loss = |e - noise|^2 + bound of p(x_{t-1} | x_t) in bits; both are means over all values
 *
 * The model predicts two values: e is the noise, and v gives the variance. v is in about [-1, 1].
 * It places the logarithm of the variance between the logarithm of the posterior's variance and
 * the logarithm of beta_t.
 *
 * A sampler uses only some of the steps, the kept steps. From a kept step to the next lower kept
 * step, DDIM (2010.02502) with eta 0 computes
 *   x' = sqrt(a') x_0(e) + sqrt(1 - a') e
 * Ancestral sampling (p_sample_loop) instead draws x' at random from the learned p(x' | x_t). Its
 * betas are computed between kept steps. tested: tests/engine/test_noise.c, test_dit.c */
#ifndef SEQD_PLAN_NOISE_H
#define SEQD_PLAN_NOISE_H

#include <stdbool.h>
#include <stdint.h>

enum { NOISE_STEPS = 1000 };

struct noise_step {
    double keep, noise; /* factors of x_0 and of the noise, whose sum is x_t */
    double slope;       /* change of the posterior's mean divided by e - noise */
    /* Logarithms of two variances: the posterior's variance, and beta_t. Step 0 has no posterior
     * and uses the posterior's variance of step 1. */
    double log_min, log_max;
    bool last; /* set for step t = 0, where the bound is the likelihood of x_0 itself */
};
struct noise_step noise_step(int64_t t);

/* Step i of a sample that uses n steps (2 .. NOISE_STEPS). As in the samplers of both models, the
 * n steps are spread evenly over all NOISE_STEPS and rounded to integers. t is the step that the
 * model gets. The step computes x' = alpha x + beta e. */
struct noise_jump {
    int64_t t;
    double alpha, beta;
};
struct noise_jump noise_jump(int64_t i, int64_t n);

/* A step of ancestral sampling. It computes x' = alpha x + beta e + noise_spread(.., v) * normal
 * noise. */
struct noise_draw {
    struct noise_jump mean;
    double log_min, log_max; /* logarithms of two variances, as in struct noise_step */
    bool last;               /* set in the last step, which draws no value */
};
struct noise_draw noise_draw(int64_t i, int64_t n);
/* Returns the standard deviation for v. Returns 0 in the last step. */
double noise_spread(const struct noise_draw *d, double v);

#endif
