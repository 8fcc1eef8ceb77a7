/* populate.h: makes the pages of a training resident before it begins, so that its first step
 * takes no longer than the second. tested: tests/engine/test_populate.c */
#ifndef SEQD_TRAIN_POPULATE_H
#define SEQD_TRAIN_POPULATE_H

#include "worker/train/train.h"

/* Makes resident all buffers in arena and segment that every step uses. Two are left out, the
 * scratch of kernels and the buffer of collectives, because they are so large that they suffice
 * for any job. Contents are kept. On a device with memory of its own this function does
 * nothing. */
void populate_training(const struct train_options *o);

#endif
