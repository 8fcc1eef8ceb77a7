/* stage.h: the stages of a training job, as functions of the step alone.
 *
 * The run before stages[0].from_step has data.seq_len, optim.lr and the model's rope_theta; a stage
 * changes the fields that it names and keeps the rest.
 *
 * The samples of a step: every sequence length has an order of its own (struct data_order),
 * and the steps of one length walk it without a gap, even across steps of another length. So the
 * first sample of step k is
 *     global_batch * |{ j < k : seq_len(j) == seq_len(k) }|
 * in the order of seq_len(k): a function of the spec and of k alone. It depends neither on the
 * number of ranks nor on the checkpoint that the run resumed from. */
#ifndef SEQD_PLAN_STAGE_H
#define SEQD_PLAN_STAGE_H

#include <stdint.h>
#include "api/core/limits.h"

struct job_spec;

/* Returns the stage of the 0-based step `step`: -1 before the first, else an index of stages[]. */
int stage_at(const struct job_spec *s, int64_t step);
/* Return the values in a stage (-1: before the first). rope_theta: the model's unless a stage sets
 * it. */
int64_t stage_seq_len(const struct job_spec *s, int stage);
/* Returns the length of an evaluation's windows, the same in all stages. */
int64_t stage_eval_seq_len(const struct job_spec *s);
double stage_lr(const struct job_spec *s, int stage);
double stage_rope_theta(const struct job_spec *s, int stage);

/* Returns the first sample of a step, counted in the order of its length. */
int64_t stage_sample(const struct job_spec *s, int64_t step);

/* Counts the steps that hold `tokens` positions, over the stages' lengths; at least 1. */
int64_t stage_steps_of_tokens(const struct job_spec *s, int64_t tokens);
/* Returns the steps after which `passes` passes over the data are done; at least 1. A pass at
 * length stage_seq_len(i) is samples[i + 1] sequences, so a step is global_batch / samples[i + 1]
 * of it. */
int64_t stage_steps_of_passes(const struct job_spec *s, int64_t passes,
                              const int64_t samples[SPEC_STAGES + 1]);

#endif
