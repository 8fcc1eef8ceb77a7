/* populate.h: makes the pages of a training resident before it begins, so that its first step
 * takes no longer than its second step. tested: tests/engine/test_populate.c */
#ifndef SEQD_TRAIN_POPULATE_H
#define SEQD_TRAIN_POPULATE_H

#include "worker/train/train.h"

/* Makes resident all buffers in arena and segment that every step uses, except two: the scratch of
 * kernels and the buffer of collectives. These two buffers are large enough for any job, and a
 * step uses only a part of them. Contents are kept. If the device has memory of its own, this
 * function does nothing. */
void populate_training(const struct train_options *o);

#endif
