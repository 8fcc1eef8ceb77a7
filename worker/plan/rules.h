/* rules.h: the parts of family_check(), by subject. It is private to worker/plan. If a part fails,
 * the error names the field and the remedy. */
#ifndef SEQD_PLAN_RULES_H
#define SEQD_PLAN_RULES_H

#include "api/core/job.h"
#include "worker/program/program.h"

/* Tells whether the model's sizes are known. They are not known if no node has described
 * model.path yet. */
static inline bool rules_known(const struct job_spec *s)
{
    return s->model.shape.width > 0;
}

/* Copies model.rope into the sizes of the model. These sizes must be known. Call rope_complete()
 * afterwards. */
int rules_rope(struct job_spec *s, struct err *e);
/* Changes the field of an error about the model's RoPE to the field in model.rope, if the job sets
 * model.rope. Returns -1. */
int rules_rope_error(const struct job_spec *s, struct err *e);
/* Checks strategies, layouts and forms of attention for the family. Replaces a strategy or layout
 * that is "auto", and sets the size of the groups of usp. Does not replace a form or exchange that
 * is "auto". */
int rules_parallel(struct job_spec *s, struct err *e);
/* Checks the rules of parallel.tp, and changes the model's shape to the shape of one rank's
 * slices. */
int rules_tensor(struct job_spec *s, struct err *e);
/* Returns the largest degree below tp by which the layers of a model can be divided; at least
 * 1. */
int rules_tensor_below(const struct model_shape *m, int tp);
/* Checks memory.time_chunk, windows in time. It comes before other rules of parallel and memory,
 * since only families of linear attention have them. */
int rules_in_time(const struct job_spec *s, struct err *e);
/* Checks contexts, which need the states of linear attention. */
int rules_states(const struct job_spec *s, struct err *e);
/* Checks how weights are stored (model.weights), and sets it in the model's shape. Call it after
 * rules_tensor. */
int rules_weights(struct job_spec *s, struct err *e);
/* Finds the products that have adapters, and sets shape_adapter in the model's shape. Call it after
 * rules_weights. Fails if a target names no product, or if the job has a field that does not go
 * with adapters. */
int rules_adapter(struct job_spec *s, struct err *e);
/* Checks that the program of a layer has room for n adapters of products, of which `on` has those
 * that have at least one. */
int rules_adapter_room(const struct program *p, const uint64_t *on, int n, struct err *e);
/* Checks model.adapters, and sets shape_adapters in the model's shape from the facts of their
 * directories, if all of these are known. Call it before rules_adapter. Fails if the job is not one
 * that has requests with names of models, and as rules_adapter does for each of them; then the
 * error has the field "model.adapters.NAME". */
int rules_adapters(struct job_spec *s, struct err *e);
/* Finds the n modules that are trained whole beside adapters, and sets adapter.saves in the model's
 * shape, which has the adapters. Fails if a name is that of another module than the embedding and
 * the head, or if these are tied. */
int rules_saved(struct job_spec *s, int n, struct err *e);
/* Finds the tensors that the patterns of train.freeze match, and sets shape_freeze in the model's
 * shape. If the model has adapters, only these and saved modules are trained. Call it after
 * rules_adapter. Fails if a pattern is too long or matches no tensor, or if the job would train
 * nothing. Fails if only some of the tensors that one product reads are frozen. Also fails if the
 * layers are of more than FREEZE_KINDS kinds. */
int rules_freeze(struct job_spec *s, struct err *e);
/* Checks memory.offload and the directory for offloaded activations (memory.offload_dir). */
int rules_offload(const struct job_spec *s, struct err *e);
#define RULES_FIELD_SIZE 32
/* Returns the number of tokens of the longest sequence of all stages. Sets *field to the name of
 * the job's field that sets this number. */
int64_t rules_longest(const struct job_spec *s, char field[RULES_FIELD_SIZE]);
/* Tells whether sequences can have n tokens if positions are rows of a table. Usually n must not
 * exceed the number of rows of the table. n may be larger if documents are packed and the
 * positions of each document begin with 0. In this case no document may be longer than the table
 * (order_options.longest). */
bool rules_positions(const struct job_spec *s, int64_t n);
/* Sets serve.task if the model is known and the job leaves it to the model, and refuses fields that
 * then have no effect (check_serve.c). */
int rules_serve(struct job_spec *s, struct err *e);
/* Tells whether the field has its default. */
bool rules_default(const struct job_spec *s, const struct field *f);
/* Checks the rules of a generate job. For a diffusion model, checks the rules of samples. */
int rules_generate(struct job_spec *s, struct err *e);
/* Returns how many prompts or requests a job that generates wants to be answered together, or 0 if
 * the plan decides (auto). rules_together_field returns the field that says it. */
int rules_together(const struct job_spec *s);
const char *rules_together_field(const struct job_spec *s);
/* Checks that a job that generates can answer several prompts together. The job must be valid
 * otherwise. */
int rules_batch(const struct job_spec *s, struct err *e);
/* Checks the rules of a diffusion model. The sizes must be the sizes of its largest latents, and
 * no field may count tokens. */
int rules_flow(const struct job_spec *s, struct err *e);
/* Checks the objective. The programs of the shape are written for this objective afterwards. */
int rules_objective(struct job_spec *s, struct err *e);
/* Checks a job that learns preferences (job_learns_pairs): its data, and the fields that go with
 * its objective. */
int rules_pairs(const struct job_spec *s, struct err *e);
/* Refuses a field that only a job that learns preferences reads, in a job of another objective. If
 * can_pair is true, the job can learn them, and the error says how. */
int rules_unpaired(const struct job_spec *s, bool can_pair, struct err *e);
int rules_latents(const struct job_spec *s, struct err *e);

#endif
