/* task_infer.h: functions that the score, generate and embed tasks share. */
#ifndef SEQD_RANK_TASK_INFER_H
#define SEQD_RANK_TASK_INFER_H

#include "worker/rank/run.h"

/* Opens a model for inference and loads its weights. The caller frees the model. Returns NULL
 * on failure. */
struct model *task_open_model(struct run *r, struct err *e);
/* Sends those artifacts of the array that have a name, in the order of the array. */
int task_send_artifacts(struct run *r, const struct artifact_done *const *list, int n,
                        struct err *e);

/* Checks on rank 0 that no later attempt of the job has begun, if nodes share its directory.
 * Fails as fence_check does. */
int task_check_fence(const struct run *r, struct err *e);
/* Fails if all n requests of the job were refused, because in that case the results of the job
 * have no answer. The parameter `first` is the error of the first refused request. Its code is
 * ERR_NONE if an earlier attempt has refused that request. */
int task_check_answered(int64_t n, int64_t n_refused, const struct err *first, struct err *e);

/* Runs a generate job of a diffusion model (task_sample.c). */
int task_sample(struct run *r, struct err *e);

#endif
