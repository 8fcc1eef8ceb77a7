/* gather.h: sharded state (parallel.zero, gradients by bucket, slices of parallel.tp, stages),
 * gathered on rank 0 for a proof. Collective, like the pass that it is part of: every rank calls,
 * rank 0 keeps.
 *
 * Each of several stages first sums its own gradients. A tied embedding's two parts are added on
 * the first stage, as in a training. Then buckets go to rank 0 piece by piece, from the ranks of
 * the first ring that have rank 0's place in it. */
#ifndef SEQD_VERIFY_GATHER_H
#define SEQD_VERIFY_GATHER_H

#include "worker/model/tied.h"

struct gathered {
    struct model *model;
    struct model_buckets own; /* callbacks that take the model's buckets in a training */
    struct tied_sends sends;  /* messages with a tied embedding's gradient; training's are idle */
    float *grad; /* rank 0's: gradients of all ranks, the whole model's; NULL: dropped */
    struct comm_count moved; /* expected counts of slices that this rank moves, purpose VERIFY */
};

/* Begins to sum by_bucket gradients over ranks into w->grad, of n elements, in place of a
 * training's sums; no weight is updated. Not by bucket: changes no sum. w must stay where it is
 * until gather_end. */
void gather_begin(struct gathered *w, struct model *m, float *grad, int64_t n);
void gather_end(struct gathered *w);
/* Adds the model's gradient, which has been summed over ranks of the stage, to w->grad: for
 * parallel.tp or several stages, not by bucket. Otherwise does nothing. */
int gather_gradient(struct gathered *w, struct err *e);
/* gather_stages comes before this rank's backward pass of a sample, for several stages, by bucket:
 * rank 0 receives the gradients that the stages after it send in their passes; the others do
 * nothing. gather_passed comes after that pass: it sends the last stage's part of a tied
 * embedding, which the first stage takes in its own pass. */
int gather_stages(struct gathered *w, struct err *e);
int gather_passed(struct gathered *w, struct err *e);
/* Waits until all messages of the last stage were received. */
int gather_settle(struct gathered *w, struct err *e);

/* Puts all weights into rank 0's params, of the model's dtype, for zero 3, parallel.tp or several
 * stages; otherwise, and where reference_fills, does nothing. params is NULL on other ranks, which
 * only send. Under zero 3 a tied head's weights are then fetched again, so that model_logits
 * works. */
int gather_weights(struct gathered *w, void *params, struct err *e);

#endif
