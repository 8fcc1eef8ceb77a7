/* task_infer.h: functions that score, generate and embed share. */
#ifndef SEQD_RANK_TASK_INFER_H
#define SEQD_RANK_TASK_INFER_H

#include "worker/rank/run.h"

/* Opens a model for inference and loads its weights. The caller frees it. Returns NULL on
 * failure. */
struct model *task_open_model(struct run *r, struct err *e);
/* Sends those artifacts that have a name, in the order of the list. */
int task_send_artifacts(struct run *r, const struct artifact_done *const *list, int n,
                        struct err *e);

/* Fails a job if all of its n requests were refused, so that its results have no answer. first is
 * the error of the first refused request; its code is ERR_NONE if an earlier attempt refused this
 * request. */
int task_check_answered(int64_t n, int64_t n_refused, const struct err *first, struct err *e);

/* Runs a generate job of a diffusion model (task_sample.c). */
int task_sample(struct run *r, struct err *e);

#endif
