/* schedule.c: computes the learning rate of a step: a linear warmup, and after it a rate between
 * low and peak by the job's schedule. */
#include "worker/train/schedule.h"

#include <math.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "worker/plan/stage.h"

/* Returns the progress of `step` in [from, to), which is 0 at `from`, and 1 at `to` and all later
 * steps. */
static double progress(int64_t from, int64_t to, int64_t step)
{
    if (step >= to) return 1;
    return step <= from ? 0 : (double)(step - from) / (double)(to - from);
}

static double cosine(double x)
{
    return 0.5 * (1 + cos(M_PI * x));
}

/* Returns (rate - low) / (peak - low) at y, the progress of the decay. */
static double wsd_left(const struct job_spec *s, double y)
{
    switch (s->schedule.decay_shape) {
    case DECAY_ONE_MINUS_SQRT: return 1 - sqrt(y);
    case DECAY_COSINE: return cosine(y);
    case DECAY_EXPONENTIAL: {
        const double r = s->schedule.min_lr_ratio;
        return r < 1 ? (pow(r, y) - r) / (1 - r) : 1;
    }
    default: return 1 - y;
    }
}

static int64_t decay_start(const struct job_spec *s)
{
    const int64_t n = s->train.steps;
    const int64_t start = n - llround(s->schedule.decay_fraction * (double)n);
    return start > s->schedule.warmup_steps ? start : s->schedule.warmup_steps;
}

static double rate(const struct job_spec *s, int64_t step, double peak)
{
    const double low = s->schedule.min_lr_ratio * peak;
    const int64_t warmup = s->schedule.warmup_steps, n = s->train.steps;
    double left;
    if (step < warmup) return peak * (double)(step + 1) / (double)warmup;
    switch (s->schedule.type) {
    case SCHEDULE_CONSTANT: return peak;
    case SCHEDULE_LINEAR: left = 1 - progress(warmup, n, step); break;
    case SCHEDULE_WSD: left = wsd_left(s, progress(decay_start(s), n, step)); break;
    default: left = cosine(progress(warmup, n, step));
    }
    return left < 1 ? low + (peak - low) * left : peak;
}

double schedule_lr(const struct job_spec *s, int64_t step)
{
    return rate(s, step, stage_lr(s, stage_at(s, step)));
}

double schedule_lr_saved(const struct job_spec *s, int64_t step)
{
    const double peak = stage_lr(s, stage_at(s, step));
    return rate(s, step, s->optim.lr_saved > 0 ? peak / s->optim.lr * s->optim.lr_saved : peak);
}
