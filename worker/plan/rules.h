/* rules.h: the parts of family_check(), by what they are about. Inside worker/plan.
 * Each fails with the field and the way out. */
#ifndef SEQD_PLAN_RULES_H
#define SEQD_PLAN_RULES_H

#include "api/core/job.h"

/* Else a model.path that no node has described yet. */
static inline bool rules_known(const struct job_spec *s)
{
    return s->model.shape.width > 0;
}

/* model.rope, into the sizes of a model that is known; rope_complete() comes after it. */
int rules_rope(struct job_spec *s, struct err *e);
/* Of an error of a rule that model.rope names: by its own field. Returns -1. */
int rules_rope_error(const struct job_spec *s, struct err *e);
/* Strategies, layouts and forms of attention that the family takes; sets those that are "auto". */
int rules_parallel(struct job_spec *s, struct err *e);
/* What parallel.tp asks; the model's shape becomes that of slices. */
int rules_tensor(struct job_spec *s, struct err *e);
/* Windows in time, and contexts kept: what states of linear attention alone can do. */
int rules_states(const struct job_spec *s, struct err *e);
/* Where what is offloaded goes. */
int rules_offload(const struct job_spec *s, struct err *e);
/* Can sequences have n tokens where positions are rows of a table? More than the table has where
 * documents are packed and each counts its own positions; none may be longer than the table then
 * (order_options.longest). */
bool rules_positions(const struct job_spec *s, int64_t n);
/* What a generate job asks; of a diffusion model, samples. */
int rules_generate(struct job_spec *s, struct err *e);
/* Can prompts of a generate job that is otherwise sound be answered several at once? */
int rules_batch(const struct job_spec *s, struct err *e);
/* Of a diffusion model: sizes are those of its largest latents, and nothing counts tokens. */
int rules_flow(const struct job_spec *s, struct err *e);
/* Which objective: programs of the shape are then written for it. */
int rules_objective(struct job_spec *s, struct err *e);
int rules_latents(const struct job_spec *s, struct err *e);

#endif
