/* stage.h: the stages of a training job, as functions that depend only on the job and the step.
 *
 * Before stages[0].from_step the run uses data.seq_len, optim.lr and the model's rope_theta. A
 * stage changes the fields that it names and keeps the values of all other fields.
 *
 * Every sequence length has its own order of samples (struct data_order). The steps of one length
 *     use the samples of its order one after another, even if steps of other lengths come between
 *     these steps. So the first sample of step k is global_batch * |{ j < k : seq_len(j) ==
 *     seq_len(k) }|
 * in the order of seq_len(k). This index depends only on the spec and on k. It does not depend on
 * the number of ranks, or on the checkpoint from which the run resumed. */
#ifndef SEQD_PLAN_STAGE_H
#define SEQD_PLAN_STAGE_H

#include <stdint.h>
#include "api/core/limits.h"

struct job_spec;

/* Returns the index in stages[] of the stage of step `step`, which is counted from 0. Returns -1
 * before the first stage. */
int stage_at(const struct job_spec *s, int64_t step);
/* Return the values of a stage. Stage -1 is the time before the first stage. rope_theta is the
 * model's value unless a stage sets it. */
int64_t stage_seq_len(const struct job_spec *s, int stage);
/* Returns the length of the windows of an evaluation. This length does not depend on the stage. */
int64_t stage_eval_seq_len(const struct job_spec *s);
double stage_lr(const struct job_spec *s, int stage);
double stage_rope_theta(const struct job_spec *s, int stage);

/* Returns the index of a step's first sample in the order of the step's length. */
int64_t stage_sample(const struct job_spec *s, int64_t step);

/* Returns the number of steps that have `tokens` positions together, and at least 1. Each step has
 * the length of its stage. */
int64_t stage_steps_of_tokens(const struct job_spec *s, int64_t tokens);
/* Returns the number of steps for `passes` passes over the data, and at least 1. A pass at the
 * length of stage i has samples[i + 1] sequences. So a step is the share global_batch / samples[i
 * + 1] of a pass. */
int64_t stage_steps_of_passes(const struct job_spec *s, int64_t passes,
                              const int64_t samples[SPEC_STAGES + 1]);

#endif
