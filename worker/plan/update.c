/* update.c: the table of the fields that make an update wait. */
#include "worker/plan/update.h"

#include "api/core/choices.h"
#include "api/core/job.h"

bool update_clips(const struct job_spec *s)
{
    return s->optim.max_grad_norm > 0;
}

bool update_scales(const struct job_spec *s)
{
    return s->precision.params == PRECISION_FP16;
}

/* Tells whether a value that is not finite skips the update. With other choices the job ends or
 * returns to older weights, so some weights may have been updated. */
static bool skips_nonfinite(const struct job_spec *s)
{
    return s->guard.nonfinite == NONFINITE_SKIP;
}

static bool skips_loss(const struct job_spec *s)
{
    return s->guard.loss_z > 0;
}

static bool skips_norm(const struct job_spec *s)
{
    return s->guard.grad_norm_z > 0;
}

static bool never(const struct job_spec *s)
{
    return false;
}

const struct update_rule update_rules[] = {
    {"guard.nonfinite", skips_nonfinite},
    {"guard.rollbacks", never}, /* it only limits what guard.nonfinite does */
    {"guard.loss_z", skips_loss},
    {"guard.grad_norm_z", skips_norm},
    {"optim.max_grad_norm", update_clips},
    {"precision.params", update_scales},
    {0},
};

bool update_waits(const struct job_spec *s)
{
    for (const struct update_rule *r = update_rules; r->field; r++)
        if (r->waits(s)) return true;
    return false;
}
