/* noise.c: the loss of predicted noise and of its variance (kernels/backend.h). All instruction
 * sets share one build of this file, because most of the time is spent in exp in double, which
 * would not become faster. */
#include <math.h>
#include "kernels/cpu/cpu.h"
#include "kernels/shapes.h"

enum { NOISE_ROWS = 16 }; /* rows of a task */

static const double LEAST = 1e-12; /* lower bound of a probability whose logarithm is taken */
static const double STEP = 1.0 / 255, EDGE = 0.999;

/* A value of the loss, and its derivative with respect to the logarithm of the variance. */
struct noise_bound {
    double value, slope;
};

/* Returns the divergence between two normal distributions, in nats. d is the distance of their
 * means. */
static struct noise_bound divergence(double log_min, double s, double d)
{
    const double ratio = exp(log_min - s), apart = d * d * exp(-s);
    return (struct noise_bound){0.5 * (s - log_min - 1 + ratio + apart), 0.5 * (1 - ratio - apart)};
}

/* Approximates the normal distribution function by a tanh, as the definition of the loss does.
 * Sets *density to the function's derivative by s, where x is proportional to exp(-s / 2). */
static double below(double x, double *density)
{
    const double root = sqrt(2 / M_PI), cubic = 0.044715;
    const double h = tanh(root * (x + cubic * x * x * x));
    *density = 0.5 * (1 - h * h) * root * (1 + 3 * cubic * x * x) * (-0.5 * x);
    return 0.5 * (1 + h);
}

/* Returns -log P, where P is the probability of z's interval under a normal distribution whose
 * mean is z - d. */
static struct noise_bound likelihood(double z, double s, double d)
{
    const double inverse = exp(-0.5 * s);
    double upper, lower;
    double p = below(inverse * (d + STEP), &upper), q = below(inverse * (d - STEP), &lower);
    if (z < -EDGE)
        q = lower = 0;
    else if (z > EDGE)
        p = 1, upper = 0;
    if (p - q < LEAST) return (struct noise_bound){-log(LEAST), 0};
    return (struct noise_bound){-log(p - q), -(upper - lower) / (p - q)};
}

static double noise_row(const struct noise_args *a, int64_t t, double weight)
{
    const int64_t C = a->x.cols / 2;
    const float *x = (const float *)a->x.data + t * a->x.ld;
    const float *y = (const float *)a->y.data + t * a->y.ld;
    float *dx = a->dx.data ? (float *)a->dx.data + t * a->dx.ld : NULL;
    const double scale = (double)a->scale * weight, half = 0.5 * (a->log_max - a->log_min);
    double sum = 0;
    for (int64_t c = 0; c < C; c++) {
        const double miss = (double)x[c] - (double)y[c], d = a->slope * miss;
        const double s = a->log_min + half * ((double)x[C + c] + 1);
        const struct noise_bound b = a->last ? likelihood(y[C + c], s, d)
                                             : divergence(a->log_min, s, d);
        /* Values that are clamped or not read must not hide NaN or infinity. */
        sum += miss * miss + b.value / M_LN2 + 0 * (s + (double)y[C + c]);
        if (!dx) continue;
        dx[c] = (float)(2 * scale * miss);
        dx[C + c] = (float)(scale * half * b.slope / M_LN2);
    }
    return sum;
}

struct noise_call {
    const struct noise_args *a;
};

static void noise_task(void *arg, int64_t task, int worker)
{
    const struct noise_args *a = ((struct noise_call *)arg)->a;
    const int64_t first = task * NOISE_ROWS, end = cpu_min(first + NOISE_ROWS, a->x.rows);
    (void)worker;
    for (int64_t t = first; t < end; t++) {
        const double weight = a->weight[t];
        a->row_loss[t] = weight * noise_row(a, t, weight);
    }
}

void cpu_noise(struct be *be, const struct noise_args *a)
{
    struct noise_call call = {a};
    shape_noise(a);
    cpu_run(be, noise_task, &call, cpu_div_up(a->x.rows, NOISE_ROWS));
}
