/* windowed.h: one sample's gradient by windows (memory.time_chunk; worker/model/in_time.h). */
#ifndef SEQD_TRAIN_WINDOWED_H
#define SEQD_TRAIN_WINDOWED_H

#include "worker/train/train.h"

/* Does the work of model_grad for the whole sample: adds gradients, and sets *nll to this rank's
 * sum. It fills t->model's batch for every window. Collective. */
int windowed_sample(struct train *t, int64_t sample, float scale, double *nll, struct err *e);

#endif
