/* gather.h: sharded state (parallel.zero, gradients by bucket, slices of parallel.tp, stages),
 * gathered on rank 0 for a proof. Collective, like the pass that it is part of: every rank calls,
 * rank 0 keeps.
 *
 * A stage of several first sums its own gradients, and a tied embedding's two parts meet on the
 * stage where they do in a training; then buckets go to rank 0 piece by piece, from the first
 * ring's ranks in its place. */
#ifndef SEQD_VERIFY_GATHER_H
#define SEQD_VERIFY_GATHER_H

#include "worker/model/tied.h"

struct gathered {
    struct model *model;
    struct model_buckets own; /* callbacks that take the model's buckets in a training */
    struct tied_sends sends;  /* messages with a tied embedding's gradient; a training's are idle */
    float *grad; /* rank 0's: gradients of all ranks, the whole model's; NULL: dropped */
    struct comm_count moved; /* expected counts of slices that this rank moves, purpose VERIFY */
};

/* From here on the gradients of by_bucket are summed over ranks into w->grad, of n elements,
 * instead of where a training puts them, and nothing is updated. Not by bucket: nothing. w must
 * stay where it is until gather_end. */
void gather_begin(struct gathered *w, struct model *m, float *grad, int64_t n);
void gather_end(struct gathered *w);
/* parallel.tp, several stages; not by bucket: the model's gradient, which has been summed over
 * ranks of the stage, is added to w->grad. Otherwise does nothing. */
int gather_gradient(struct gathered *w, struct err *e);
/* Several stages, by bucket. gather_stages, before the own backward pass of a sample: rank 0
 * receives the gradients that the stages after it send in theirs; the others do nothing.
 * gather_passed, after that pass: sends the last stage's part of a tied embedding, which the first
 * takes in its own pass. */
int gather_stages(struct gathered *w, struct err *e);
int gather_passed(struct gathered *w, struct err *e);
/* Waits until all messages of the last stage were received. */
int gather_settle(struct gathered *w, struct err *e);

/* zero 3, parallel.tp, several stages: sends all weights to params of the model's dtype (NULL: only
 * sent). Afterwards the head's are fetched, so that model_logits works. Otherwise does nothing. */
int gather_weights(struct gathered *w, void *params, struct err *e);

#endif
