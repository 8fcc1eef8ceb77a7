/* schedule.h: computes the learning rate as a pure function of the step, so that a resumed run
 * continues exactly.
 * Let p be the peak rate of the step's stage, low = schedule.min_lr_ratio * p, w = warmup_steps, N
 * = train.steps, and k the step, counted from 0:
 *   k < w      p (k + 1) / w
 *   cosine     low + (p - low) (1 + cos(pi x)) / 2       x = (k - w) / (N - w)
 *   linear     low + (p - low) (1 - x)
 *   constant   p
 *   wsd        p until D = max(N - round(decay_fraction N), w); then, with y = (k - D) / (N - D):
 *              linear       low + (p - low) (1 - y)
 *              1-sqrt       low + (p - low) (1 - sqrt(y))   Haegele et al. 2024, arXiv 2405.18392
 *              cosine       low + (p - low) (1 + cos(pi y)) / 2
 *              exponential  p min_lr_ratio ^ y
 *   k >= N     low, but p for constant
 * A run never reaches y = 1, because its last step is N - 1.
 * tested: tests/engine/test_schedule.c */
#ifndef SEQD_TRAIN_SCHEDULE_H
#define SEQD_TRAIN_SCHEDULE_H

#include <stdint.h>
struct job_spec;

double schedule_lr(const struct job_spec *spec, int64_t step);
/* Returns the rate of modules that are trained whole beside adapters: the same with the peak p
 * optim.lr_saved / optim.lr, or schedule_lr if lr_saved is 0. */
double schedule_lr_saved(const struct job_spec *spec, int64_t step);

#endif
