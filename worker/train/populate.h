/* populate.h: makes the pages of a training resident before it begins, so that its first step takes
 * as long as the second. tested: tests/engine/test_populate.c */
#ifndef SEQD_TRAIN_POPULATE_H
#define SEQD_TRAIN_POPULATE_H

#include "worker/train/train.h"

/* Populates every buffer of the plan that each step uses, in arena and segment: all but the
 * scratch of kernels and the buffer of collectives, which have the size of the largest case of any
 * job. Contents are kept. On a device with memory of its own it does nothing. */
void populate_training(const struct train_options *o);

#endif
