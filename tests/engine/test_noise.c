/* test_noise.c: checks the steps of a model that predicts noise (worker/plan/noise.h). The
 * expected numbers were computed by numpy from the published definition (GaussianDiffusion and
 * space_timesteps). */
#include <math.h>

#include "tests/lib/mutant.h"
#include "worker/plan/noise.h"

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-10 * fabs(want);
}

/* Compares sqrt_alphas_cumprod, sqrt_one_minus_alphas_cumprod, posterior_mean_coef1 times
 * sqrt_recipm1_alphas_cumprod, posterior_log_variance_clipped, and log(betas). */
static void test_steps(void)
{
    static const struct {
        int64_t t;
        double keep, noise, slope, log_min, log_max;
    } want[] = {{0, 0.9999499987499375, 0.009999999999999449, 0.010000500037500082,
                 -9.81672513529567, -9.210340371976182},
                {1, 0.9998900399904342, 0.014829292900469677, 0.008087176628392633,
                 -9.81672513529567, -9.028686371949341},
                {371, 0.4927917067623049, 0.8701473057743123, 0.008640492298650056,
                 -4.896571159410343, -4.894147725155941},
                {999, 0.006352818087570016, 0.99997982064757, 0.02020345858375528,
                 -3.912023829100455, -3.912023005428146}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct noise_step at = noise_step(want[i].t);
        CHECK_MSG(near(at.keep, want[i].keep) && near(at.noise, want[i].noise), "t %lld: %g, %g",
                  (long long)want[i].t, at.keep, at.noise);
        CHECK_MSG(near(at.slope, want[i].slope), "t %lld: %g", (long long)want[i].t, at.slope);
        CHECK(near(at.log_min, want[i].log_min) && near(at.log_max, want[i].log_max));
        CHECK(at.last == (want[i].t == 0));
    }
}

/* The training steps that a sample with n steps uses. `first` has the first few of these steps.
 * `sum` is a checksum of all of them: the sum of every step multiplied by its place, counted from
 * the lowest step, modulo a prime. */
struct spacing {
    int64_t n, first[4], sum;
};

/* 499.5 is rounded up to an even number, while 166.5 and 832.5 are rounded down. */
static const struct spacing halves = {7, {0, 166, 333, 500}, 15150};

static bool spaced_as(const struct spacing *want)
{
    int64_t sum = 0;
    bool as = true;
    for (int64_t k = 0; k < want->n; k++) {
        const int64_t t = noise_jump(want->n - 1 - k, want->n).t;
        as &= k >= 4 || t == want->first[k];
        sum += k * t;
    }
    return as && sum % 100003 == want->sum;
}

static void test_spacing(void)
{
    static const struct spacing want[] = {{2, {0, 999}, 999},
                                          {3, {0, 500, 999}, 2498},
                                          {50, {0, 20, 41, 61}, 24165},
                                          {250, {0, 4, 8, 12}, 71115},
                                          {1000, {0, 1, 2, 3}, 23516}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK_MSG(spaced_as(&want[i]), "%lld steps", (long long)want[i].n);
    CHECK(spaced_as(&halves));
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    mutant_choose(MUTANT_HALF_AWAY);
    mutant_report(MUTANT_HALF_AWAY, !spaced_as(&halves), "the steps of a sample of 7");
    mutant_choose(MUTANT_NONE);
    verify_blind(MUTANT_HALF_AWAY);
}
#endif

/* Compares ddim_sample with eta 0 for x 0.75, if the predicted noise is -1.25. */
static void test_jumps(void)
{
    static const struct {
        int64_t i, t;
        double x;
    } want[] = {
        {0, 999, 1.1930476335942877}, {24, 510, 0.9798213965831706}, {49, 0, 0.7625381278596081}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct noise_jump j = noise_jump(want[i].i, 50);
        const double x = j.alpha * 0.75 + j.beta * -1.25;
        CHECK_MSG(j.t == want[i].t && near(x, want[i].x), "%lld: %.17g", (long long)j.t, x);
    }
}

/* Compares the mean and the standard deviation of p_sample for the same x and noise, with v
 * 0.375. */
static void test_draws(void)
{
    static const struct {
        int64_t n, i, t;
        double mean, spread;
    } want[] = {{2, 0, 999, 314.80120191669687, 0.23713408019818438},
                {2, 1, 0, 0.76253812785960806, 0},
                {50, 0, 999, 1.4197360947819875, 0.57428827172198915},
                {50, 24, 510, 1.1097749537361872, 0.4361497105203927},
                {50, 49, 0, 0.76253812785960806, 0},
                {1000, 371, 628, 0.77078149891305725, 0.11228884246471353},
                {1000, 998, 1, 0.76015394480033227, 0.0096821214587114283},
                {1000, 999, 0, 0.76253812785960806, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct noise_draw d = noise_draw(want[i].i, want[i].n);
        const double x = d.mean.alpha * 0.75 + d.mean.beta * -1.25, s = noise_spread(&d, 0.375);
        CHECK_MSG(d.mean.t == want[i].t && near(x, want[i].mean) && near(s, want[i].spread),
                  "step %lld of %lld: %.17g, %.17g", (long long)want[i].i, (long long)want[i].n, x,
                  s);
        CHECK(d.last == (want[i].t == 0));
    }
}

int main(void)
{
    RUN(test_steps);
    RUN(test_spacing);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_jumps);
    RUN(test_draws);
    return test_done("noise");
}
