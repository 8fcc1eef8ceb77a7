/* gather.h: gathers sharded state (parallel.zero, gradients by bucket, slices of parallel.tp,
 * stages) on rank 0 for a proof. It is collective: every rank calls it, and rank 0 keeps the
 * state.
 *
 * If there are several stages, each first sums its own gradients. The two parts of a tied
 * embedding's gradient are added on the first stage, as in a training. Then each stage sends its
 * buckets to rank 0 piece by piece. In each stage, only ranks of the first ring that have place 0
 * in this ring take part. */
#ifndef SEQD_VERIFY_GATHER_H
#define SEQD_VERIFY_GATHER_H

#include "worker/model/tied.h"

struct gathered {
    struct model *model;
    struct model_buckets own; /* the callbacks for the model's buckets in a training */
    /* messages with a tied embedding's gradient; the messages of the training are not used now */
    struct tied_sends sends;
    /* on rank 0, the gradients of the whole model, summed over all ranks; NULL to drop them */
    float *grad;
    /* expected counts, with purpose VERIFY, of the slices that this rank sends and receives */
    struct comm_count moved;
};

/* Until gather_end, gradients by bucket are summed over ranks into w->grad, which has n elements.
 * They are not added to a training's sums, and no weight is updated. If gradients are not summed
 * by bucket, sums are formed as usual. w must exist until gather_end. */
void gather_begin(struct gathered *w, struct model *m, float *grad, int64_t n);
void gather_end(struct gathered *w);
/* Adds the model's gradient to w->grad. The gradient has already been summed over the ranks of the
 * stage. This is needed with parallel.tp and with several stages, but only if gradients are not by
 * bucket. In all other cases it does nothing. */
int gather_gradient(struct gathered *w, struct err *e);
/* Both functions are for several stages with gradients by bucket. Call gather_stages before this
 * rank's backward pass of a sample, and gather_passed after it. In gather_stages, rank 0 receives
 * the gradients that the later stages send in their passes, and the other ranks do nothing. In
 * gather_passed, the last stage sends its part of a tied embedding's gradient. The first stage
 * receives this part in its own pass. */
int gather_stages(struct gathered *w, struct err *e);
int gather_passed(struct gathered *w, struct err *e);
/* Waits until all messages of the last stage have been received. */
int gather_settle(struct gathered *w, struct err *e);

/* Copies all weights to params on rank 0, in the form in which they are stored. params is NULL
 * on the other ranks, which only send. This is needed with zero 3, with parallel.tp and with
 * several stages. In all other cases, and if reference_fills returns true, it does nothing. With
 * zero 3, the weights of a tied head are fetched again afterwards, because model_logits needs
 * them. */
int gather_weights(struct gathered *w, void *params, struct err *e);

#endif
