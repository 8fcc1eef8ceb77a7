/* rules.h: the parts of family_check(), by subject. It is private to worker/plan. If a part fails,
 * the error names the field and what to do. */
#ifndef SEQD_PLAN_RULES_H
#define SEQD_PLAN_RULES_H

#include "api/core/job.h"

/* Tells whether the model's sizes are known. If not, no node has described model.path yet. */
static inline bool rules_known(const struct job_spec *s)
{
    return s->model.shape.width > 0;
}

/* Copies model.rope into the sizes of a model that is known; rope_complete() is called after
 * it. */
int rules_rope(struct job_spec *s, struct err *e);
/* If the job sets model.rope, renames the field of an error about the model's RoPE to the field in
 * model.rope. Returns -1. */
int rules_rope_error(const struct job_spec *s, struct err *e);
/* Checks strategies, layouts and forms of attention against the family. Replaces a strategy and a
 * layout that are "auto", and sets the size of usp's groups. A form or exchange that is "auto" is
 * not replaced. */
int rules_parallel(struct job_spec *s, struct err *e);
/* Checks the rules of parallel.tp, and changes the model's shape to that of the slices of one
 * rank. */
int rules_tensor(struct job_spec *s, struct err *e);
/* Returns the largest degree below tp by which the layers of a model can be divided; at least
 * 1. */
int rules_tensor_below(const struct model_shape *m, int tp);
/* Checks windows in time and contexts, both of which need the states of linear attention. */
int rules_states(const struct job_spec *s, struct err *e);
/* Checks how weights are stored (model.weights), and sets it in the model's shape. Call it after
 * rules_tensor. */
int rules_weights(struct job_spec *s, struct err *e);
/* Finds the tensors that the patterns of train.freeze match, and sets shape_freeze in the model's
 * shape. Call it after rules_weights. Fails if a pattern is too long or matches no tensor, if the
 * job would train nothing, if only some of the tensors that one product reads are frozen, or if
 * the layers are of more than FREEZE_KINDS kinds. */
int rules_freeze(struct job_spec *s, struct err *e);
/* Checks memory.offload and the directory for offloaded activations (memory.offload_dir). */
int rules_offload(const struct job_spec *s, struct err *e);
#define RULES_FIELD_SIZE 32
/* Returns the number of tokens of the longest sequence of all stages. field receives the name of
 * the job's field that gives this number. */
int64_t rules_longest(const struct job_spec *s, char field[RULES_FIELD_SIZE]);
/* Tells whether sequences can have n tokens if positions are rows of a table. They may have more
 * tokens than the table has rows if documents are packed and the positions of each are counted
 * from its start. Then no document may be longer than the table (order_options.longest). */
bool rules_positions(const struct job_spec *s, int64_t n);
/* Checks the rules of a generate job or, for a diffusion model, the rules of samples. */
int rules_generate(struct job_spec *s, struct err *e);
/* Checks that a generate job, which is otherwise valid, can answer several prompts together. */
int rules_batch(const struct job_spec *s, struct err *e);
/* Checks the rules of a diffusion model: sizes are those of its largest latents, and no field
 * counts tokens. */
int rules_flow(const struct job_spec *s, struct err *e);
/* Checks the objective, for which the programs of the shape are written afterwards. */
int rules_objective(struct job_spec *s, struct err *e);
int rules_latents(const struct job_spec *s, struct err *e);

#endif
