/* windowed.h: computes the gradient of one sample in windows (memory.time_chunk;
 * worker/model/in_time.h). */
#ifndef SEQD_TRAIN_WINDOWED_H
#define SEQD_TRAIN_WINDOWED_H

#include "worker/train/train.h"

/* Does the work of model_grad for the whole sample: adds the sample's gradient, and sets *nll to
 * the sum of this rank. Fills the batch of t->model for every window. Collective. */
int windowed_sample(struct train *t, int64_t sample, float scale, double *nll, struct err *e);

#endif
