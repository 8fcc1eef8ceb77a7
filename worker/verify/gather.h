/* gather.h: gathers sharded state (parallel.zero, gradients by bucket, slices of parallel.tp,
 * stages) on rank 0 for a proof. It is collective, like the pass of which it is a part: every rank
 * calls it, and rank 0 keeps the state.
 *
 * Each of several stages first sums its own gradients. A tied embedding's two parts are added on
 * the first stage, as in a training. Then buckets are sent to rank 0 piece by piece, from those
 * ranks of the first ring that have the same place in it as rank 0. */
#ifndef SEQD_VERIFY_GATHER_H
#define SEQD_VERIFY_GATHER_H

#include "worker/model/tied.h"

struct gathered {
    struct model *model;
    struct model_buckets own; /* callbacks that receive the model's buckets in a training */
    /* messages with a tied embedding's gradient, because those of the training are idle */
    struct tied_sends sends;
    /* on rank 0, the gradients of all ranks, for the whole model; NULL to drop them */
    float *grad;
    /* expected counts, with purpose VERIFY, of the slices that this rank sends and receives */
    struct comm_count moved;
};

/* Makes gradients by bucket be summed over ranks into w->grad, of n elements, instead of into a
 * training's sums; no weight is updated. If gradients are not by bucket, no sum changes. w must
 * exist until gather_end. */
void gather_begin(struct gathered *w, struct model *m, float *grad, int64_t n);
void gather_end(struct gathered *w);
/* Adds the model's gradient, which has been summed over the ranks of the stage, to w->grad. This
 * is needed only if gradients are not by bucket, and only with parallel.tp or several stages. In
 * all other cases it does nothing. */
int gather_gradient(struct gathered *w, struct err *e);
/* Both functions are for several stages with gradients by bucket. Call gather_stages before this
 * rank's backward pass of a sample: rank 0 receives the gradients that the later stages send in
 * their passes, and the other ranks do nothing. Call gather_passed after that pass: it sends the
 * last stage's part of a tied embedding's gradient, which the first stage receives in its own
 * pass. */
int gather_stages(struct gathered *w, struct err *e);
int gather_passed(struct gathered *w, struct err *e);
/* Waits until all messages of the last stage have been received. */
int gather_settle(struct gathered *w, struct err *e);

/* Copies all weights to params on rank 0, in the model's dtype. This is needed with zero 3, with
 * parallel.tp and with several stages. In all other cases, and if reference_fills returns true, it
 * does nothing. params is NULL on the other ranks, which only send. With zero 3, a tied head's
 * weights are then fetched again, so that model_logits works. */
int gather_weights(struct gathered *w, void *params, struct err *e);

#endif
