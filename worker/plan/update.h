/* update.h: the fields that make an optimizer step wait before it may change a weight. Pure.
 * The rows of guard. in spec_fields hold the values that do (FIELD_WAITS_*).
 *
 * Some fields of a job make the update of one bucket depend on the gradients of all: the norm that
 * clipping divides by, a verdict of the guard or of the loss scale that may still skip the step
 * (worker/train/{optim,guard,scale}.h, which ask here). Without them, a step of one micro-batch
 * and one window updates a bucket as soon as its gradient is summed (plan.fused). */
#ifndef SEQD_PLAN_UPDATE_H
#define SEQD_PLAN_UPDATE_H

#include <stdbool.h>

struct job_spec;

/* Tells whether some field makes the update wait. */
bool update_waits(const struct job_spec *s);

/* Tells whether optim.max_grad_norm clips the gradient. */
bool update_clips(const struct job_spec *s);
/* Tells whether precision.params is fp16, whose loss is scaled: a gradient that overflows skips
 * the step. */
bool update_scales(const struct job_spec *s);

#endif
