/* pipelined.h: runs the samples of a step through the stages of a pipeline, in the order of 1F1B
 * (worker/plan/pipe.h). Used only inside worker/train.
 *
 * Every stage runs the backward passes of the samples in ascending order, so that weight gradients
 * are added in the order that they have in a model without stages. The batch of a sample is read
 * again for its backward pass, because between the two passes only the stage's activations are
 * kept. */
#ifndef SEQD_TRAIN_PIPELINED_H
#define SEQD_TRAIN_PIPELINED_H

#include "worker/train/train.h"

struct pipelined {
    int64_t first;       /* the first of the plan.micro_batches samples of the ring */
    float scale;         /* as in model_grad() */
    struct train *train; /* pipelined_samples sets it */
    /* Results: value has the sums over all ranks (train_add_sample), and is the same on every
     * stage. n_tokens is the number of tokens of the ring. */
    double value[PREFER_VALUES];
    int64_t n_tokens;
};
/* Computes the samples of the ring. Sums gradients in the same way as accumulate() of train.c.
 * Collective. */
int pipelined_samples(struct train *t, struct pipelined *p, struct err *e);

#endif
