/* stage.h: the stages of a training job, as functions that depend only on the job and the step.
 *
 * Before stages[0].from_step the run uses data.seq_len, optim.lr and the model's rope_theta. A
 * stage changes the fields that it names and keeps the values of all other fields.
 *
 * Every sequence length has its own order of samples (struct data_order), and the steps of one
 * length walk through that order without a gap, even across steps of another length. So the first
 * sample of step k is
 *     global_batch * |{ j < k : seq_len(j) == seq_len(k) }|
 * in the order of seq_len(k). It depends only on the spec and on k, and neither on the number of
 * ranks nor on the checkpoint from which the run resumed. */
#ifndef SEQD_PLAN_STAGE_H
#define SEQD_PLAN_STAGE_H

#include <stdint.h>
#include "api/core/limits.h"

struct job_spec;

/* Returns the stage of the 0-based step `step`, which is -1 before the first stage, else an index
 * of stages[]. */
int stage_at(const struct job_spec *s, int64_t step);
/* Return the values that are in force in a stage; stage -1 is the time before the first stage. The
 * rope_theta is the model's unless a stage sets it. */
int64_t stage_seq_len(const struct job_spec *s, int stage);
/* Returns the length of an evaluation's windows, which is the same in all stages. */
int64_t stage_eval_seq_len(const struct job_spec *s);
double stage_lr(const struct job_spec *s, int stage);
double stage_rope_theta(const struct job_spec *s, int stage);

/* Returns the first sample of a step, counted in the order of its length. */
int64_t stage_sample(const struct job_spec *s, int64_t step);

/* Returns the number of steps, at least 1, that together have `tokens` positions. The length of
 * each step is that of its stage. */
int64_t stage_steps_of_tokens(const struct job_spec *s, int64_t tokens);
/* Returns the number of steps after which `passes` passes over the data are done; at least 1. A
 * pass at length stage_seq_len(i) is samples[i + 1] sequences, so a step is the share global_batch
 * / samples[i + 1] of a pass. */
int64_t stage_steps_of_passes(const struct job_spec *s, int64_t passes,
                              const int64_t samples[SPEC_STAGES + 1]);

#endif
