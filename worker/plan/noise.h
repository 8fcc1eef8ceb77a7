/* noise.h: diffusion that predicts noise with a learned variance (IDDPM, 2102.09672), as Latte and
 * Open-Sora 1.0 train and sample it, with 1,000 steps whose variances beta rise linearly.
 *
 *   x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise    a_t = product of 1 - beta_i, i <= t; t = 0 .. 999
 *   loss = |e - noise|^2 + bound of p(x_{t-1} | x_t) in bits; both are means over all values
 *
 * The model predicts e, which is the noise, and v, which is in about [-1, 1] and places the
 * logarithm of the variance between two logarithms: that of the posterior's variance and that of
 * beta_t. DDIM (2010.02502) with eta 0 computes the sample x' of the next lower kept step as x' =
 * sqrt(a') x_0(e) + sqrt(1 - a') e. Ancestral sampling (p_sample_loop) instead draws x' at random
 * from the learned p(x' | x_t); its betas are computed between kept steps. tested:
 * tests/engine/test_noise.c, test_dit.c */
#ifndef SEQD_PLAN_NOISE_H
#define SEQD_PLAN_NOISE_H

#include <stdbool.h>
#include <stdint.h>

enum { NOISE_STEPS = 1000 };

struct noise_step {
    double keep, noise; /* factors of x_0 and of the noise, whose sum is x_t */
    double slope;       /* how the posterior's mean changes with e - noise */
    /* Logarithms of two variances, the posterior's and beta_t. Step 0 has no posterior and uses
     * that of step 1. */
    double log_min, log_max;
    bool last; /* this is step t = 0, whose bound is the likelihood of x_0 itself */
};
struct noise_step noise_step(int64_t t);

/* Step i of a sample that uses n steps (2 .. NOISE_STEPS). The n steps are spread evenly over all
 * NOISE_STEPS and rounded to integers, as the samplers of both models do it. The model is given t,
 * and the step computes x' = alpha x + beta e. */
struct noise_jump {
    int64_t t;
    double alpha, beta;
};
struct noise_jump noise_jump(int64_t i, int64_t n);

/* A step of ancestral sampling, which computes x' = alpha x + beta e + noise_spread(.., v) *
 * normal noise. */
struct noise_draw {
    struct noise_jump mean;
    double log_min, log_max; /* logarithms of the variance, as in struct noise_step */
    bool last;               /* no value is drawn */
};
struct noise_draw noise_draw(int64_t i, int64_t n);
/* Returns the standard deviation that v means, or 0 in the last step. */
double noise_spread(const struct noise_draw *d, double v);

#endif
