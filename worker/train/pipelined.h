/* pipelined.h: runs a step's samples through the stages of a pipeline, in the order of 1F1B
 * (worker/plan/pipe.h). Inside worker/train.
 *
 * Every stage runs the samples' backward passes in ascending order, so that weight gradients are
 * added in the order of a model without stages. A sample's batch is read again for its backward
 * pass: between its passes only the stage's activations are kept. */
#ifndef SEQD_TRAIN_PIPELINED_H
#define SEQD_TRAIN_PIPELINED_H

#include "worker/train/train.h"

struct pipelined {
    int64_t first;       /* the first of the ring's plan.micro_batches samples */
    float scale;         /* as in model_grad() */
    struct train *train; /* pipelined_samples sets it */
    /* out. nll: the sum over all ranks, the same on every stage. n_tokens: tokens of the ring. */
    double nll;
    int64_t n_tokens;
};
/* Computes the ring's samples. Gradients are summed in the same way as by accumulate() of train.c.
 * Collective. */
int pipelined_samples(struct train *t, struct pipelined *p, struct err *e);

#endif
