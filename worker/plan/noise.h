/* noise.h: diffusion that predicts noise with a learned variance (IDDPM, 2102.09672), as Latte and
 * Open-Sora 1.0 train and sample it: 1,000 steps whose variances beta rise linearly.
 *
 *   x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise    a_t = product of 1 - beta_i, i <= t; t = 0 .. 999
 *   loss = |e - noise|^2 + bound in bits of p(x_{t-1} | x_t), each the mean over all values
 *
 * The model predicts e, the noise, and v, in about [-1, 1]. v places the logarithm of the variance
 * between the posterior's and beta_t's. DDIM (2010.02502) with eta 0 goes from one kept step to
 * the one below it, x' = sqrt(a') x_0(e) + sqrt(1 - a') e. Ancestral sampling (p_sample_loop)
 * draws x' from the learned p(x' | x_t) in its place, whose betas are those between kept steps.
 * tested: tests/engine/test_noise.c, test_dit.c */
#ifndef SEQD_PLAN_NOISE_H
#define SEQD_PLAN_NOISE_H

#include <stdbool.h>
#include <stdint.h>

enum { NOISE_STEPS = 1000 };

struct noise_step {
    double keep, noise;      /* factors of x_0 and of the noise in x_t */
    double slope;            /* slope of the posterior's mean in e - noise */
    double log_min, log_max; /* logarithms of the variance: the posterior's, beta_t's. Step 0 has
                              * no posterior and takes step 1's */
    bool last;               /* step t = 0, whose bound is the likelihood of x_0 itself */
};
struct noise_step noise_step(int64_t t);

/* Step i of a sample that takes n steps (2 .. NOISE_STEPS), spread evenly over all steps and
 * rounded to whole ones, as in both models' samplers. The model is given t, and x' = alpha x +
 * beta e. */
struct noise_jump {
    int64_t t;
    double alpha, beta;
};
struct noise_jump noise_jump(int64_t i, int64_t n);

/* A step of ancestral sampling: x' = alpha x + beta e + noise_spread(.., v) normal noise. */
struct noise_draw {
    struct noise_jump mean;
    double log_min, log_max; /* logarithms of the variance, as in struct noise_step */
    bool last;               /* no value is drawn */
};
struct noise_draw noise_draw(int64_t i, int64_t n);
/* Returns the standard deviation that v stands for; 0 in the last step. */
double noise_spread(const struct noise_draw *d, double v);

#endif
