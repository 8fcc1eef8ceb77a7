/* pipelined.h: runs a step's samples through the stages of a pipeline, in the order of 1F1B
 * (worker/plan/pipe.h). Inside worker/train.
 *
 * The samples' backward passes come in ascending order on every stage, so weight gradients are
 * added in the order that one stage has. A sample's arrays are read again for its backward pass:
 * only the stage's activations are kept between its passes. */
#ifndef SEQD_TRAIN_PIPELINED_H
#define SEQD_TRAIN_PIPELINED_H

#include "worker/train/train.h"

struct pipelined {
    int64_t first;       /* the ring's first sample; plan.micro_batches of them */
    float scale;         /* as in model_grad() */
    struct train *train; /* pipelined_samples sets it */
    /* out. nll: the sum over all ranks, the same on every stage. n_tokens: tokens of the ring. */
    double nll;
    int64_t n_tokens;
};
/* Computes the ring's samples; gradients are summed as accumulate() of train.c does it.
 * Collective. */
int pipelined_samples(struct train *t, struct pipelined *p, struct err *e);

#endif
