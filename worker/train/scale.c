/* scale.c: computes the scale from the counts of overflows and updates, and writes a sentence
 * about an overflow. */
#include "worker/train/scale.h"

#include <math.h>
#include <stdio.h>
#include "worker/plan/update.h"

double scale_of(const struct job_spec *spec, const struct scale_state *s)
{
    return update_scales(spec) ? ldexp(1, SCALE_FIRST + s->up) : 1;
}

double scale_fixed(const struct job_spec *spec, int64_t targets)
{
    const int e = 4 + (targets > 0 ? ilogb((double)targets) : 0);
    return update_scales(spec) ? ldexp(1, e < SCALE_MOST ? e : SCALE_MOST) : 1;
}

bool scale_overflows(const struct job_spec *spec, struct scale_state *s, double loss, double norm)
{
    if (!update_scales(spec) || !isfinite(loss) || isfinite(norm) || SCALE_FIRST + s->up <= 0 ||
        s->streak >= SCALE_STREAK)
        return false;
    s->up--;
    s->streak++;
    s->overflows++;
    s->good = 0;
    return true;
}

void scale_updated(const struct job_spec *spec, struct scale_state *s)
{
    if (!update_scales(spec)) return;
    s->streak = 0;
    if (++s->good < SCALE_PERIOD) return;
    s->good = 0;
    if (SCALE_FIRST + s->up < SCALE_MOST) s->up++;
}

void scale_sentence(const struct job_spec *spec, const struct scale_state *s, int64_t step,
                    double at, char *out, size_t size)
{
    snprintf(out, size,
             "step %lld: gradients do not fit half floats at a loss scale of %.0f: no update, the "
             "scale is now %.0f",
             (long long)step + 1, at, scale_of(spec, s));
}
