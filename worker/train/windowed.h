/* windowed.h: one sample's gradient by windows (memory.time_chunk; worker/model/in_time.h). */
#ifndef SEQD_TRAIN_WINDOWED_H
#define SEQD_TRAIN_WINDOWED_H

#include "worker/train/train.h"

/* Does as model_grad does for the whole sample: gradients are added, *nll is this rank's sum. Fills
 * t->model's batch again for every window. Collective. */
int windowed_sample(struct train *t, int64_t sample, float scale, double *nll, struct err *e);

#endif
