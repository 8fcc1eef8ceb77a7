/* update.h: tells which fields of a job make an optimizer step wait before it may change a weight.
 * The functions are pure. For the fields of guard, the rows of spec_fields say which values make
 * the step wait (FIELD_WAITS_*).
 *
 * Some fields of a job make the update of one bucket depend on the gradients of all buckets. The
 * reason is the norm by which clipping divides, or the guard or the loss scale, which may still
 * skip the step (worker/train/{optim,guard,scale}.h). Without these fields, a step of one
 * micro-batch and one window updates a bucket as soon as its gradient is summed (plan.fused). */
#ifndef SEQD_PLAN_UPDATE_H
#define SEQD_PLAN_UPDATE_H

#include <stdbool.h>

struct job_spec;

/* Tells whether some field makes the update wait. */
bool update_waits(const struct job_spec *s);

/* Tells whether optim.max_grad_norm clips the gradient. */
bool update_clips(const struct job_spec *s);
/* Tells whether precision.params is fp16. In this case the loss is scaled, and a gradient that
 * overflows skips the step. */
bool update_scales(const struct job_spec *s);

#endif
