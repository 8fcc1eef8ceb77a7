/* task_infer.h: functions that score, generate and embed share. */
#ifndef SEQD_RANK_TASK_INFER_H
#define SEQD_RANK_TASK_INFER_H

#include "worker/rank/run.h"

/* Opens a model that only infers, with its weights; the caller frees it. NULL on failure. */
struct model *task_open_model(struct run *r, struct err *e);
/* Sends the artifacts that have a name, in this order. */
int task_send_artifacts(struct run *r, const struct artifact_done *const *list, int n,
                        struct err *e);

/* Fails a job all of whose n requests were refused: its results hold no answer. first: the first
 * refusal; ERR_NONE: an earlier attempt met it. */
int task_check_answered(int64_t n, int64_t n_refused, const struct err *first, struct err *e);

/* Runs a generate job of a diffusion model (task_sample.c). */
int task_sample(struct run *r, struct err *e);

#endif
