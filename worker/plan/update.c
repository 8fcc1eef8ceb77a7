/* update.c: tells, from the values of a job, which of its fields make an update wait. */
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

/* Tells whether the guard may still skip the update because of this field after the gradient is
 * known. The value of the field decides this. With other values, the job ends or returns to older
 * weights, so it does no harm if some weights have already been updated. */
static bool may_skip(const struct job_spec *s, const struct field *f)
{
    const void *at = (const char *)s + f->offset;
    if (f->waits & FIELD_WAITS_IF_SET) return !spec_is_default(s, f, at);
    return f->type == FIELD_ENUM && f->waits & FIELD_WAITS_FOR(*(const int32_t *)at);
}

bool update_waits(const struct job_spec *s)
{
    if (update_clips(s) || update_scales(s)) return true;
    for (const struct field *f = spec_fields; f->path; f++)
        if (f->waits && may_skip(s, f)) return true;
    return false;
}
