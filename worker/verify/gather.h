/* gather.h: sharded state (parallel.zero, and gradients by bucket), gathered on rank 0 for a proof.
 * Collective, like the pass that it is part of: every rank calls, rank 0 keeps. */
#ifndef SEQD_VERIFY_GATHER_H
#define SEQD_VERIFY_GATHER_H

#include "worker/model/model.h"

struct gathered {
    struct model *model;
    struct model_buckets own; /* who takes the model's buckets in a training */
    float *grad;              /* [n_params] rank 0's: gradients of all ranks; NULL: dropped */
};

/* From here on the gradients of by_bucket are summed over ranks into w->grad instead of where a
 * training puts them, and nothing is updated. Not by bucket: nothing. w must stay where it is until
 * gather_end. */
void gather_begin(struct gathered *w, struct model *m, float *grad);
void gather_end(struct gathered *w);

/* zero 3: all weights to params [n_params] of the model's dtype (NULL: only sent). Afterwards the
 * head's are fetched, so that model_logits works. Otherwise nothing. */
int gather_weights(struct model *m, void *params, struct err *e);

#endif
