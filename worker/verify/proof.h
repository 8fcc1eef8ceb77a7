/* proof.h: declarations that the files of a proof share. It is private to worker/verify.
 *
 *   verify.c      the ranks' pass of one stage, and the verdict
 *   stages.c      the ranks' passes of several stages
 *   reference.c   the one rank, with its batches and passes
 *   logits.c      compares the logits of all ranks with the reference's
 *   follow.c      sends the choices of experts, which the reference follows
 *   gather.c      gathers gradients and weights of which no rank has all
 *   rounding.c    runs the reference again, with other roundings
 *   flow.c        diffusion models
 *   pairs.c       preferences
 *   keep.c        writes artifacts */
#ifndef SEQD_VERIFY_PROOF_H
#define SEQD_VERIFY_PROOF_H

#include "worker/verify/gather.h"
#include "worker/verify/pairs.h"
#include "worker/verify/reference.h"
#include "worker/verify/verify.h"

struct proof {
    const struct verify_args *a;
    struct data_order *order;
    struct reference *ref; /* the reference on rank 0; NULL on the other ranks */
    struct verify *v;
    struct routing kept; /* the experts that rows of this rank choose */
    struct pairs_ranks pairs;
};

/* Returns the number of targets or pairs over which the loss is a mean, at least 1. */
static inline int64_t proof_mean_of(int64_t targets, int64_t pairs)
{
    const int64_t n = pairs ? pairs : targets;
    return n > 0 ? n : 1;
}

/* Returns the number of rings. All rings run the same tokens, so a sum over all rings is this
 * number times the sum of one ring. */
int proof_copies(const struct model *m);
/* Drops a tensor's gradient on the ranks that have place 0 in their rings. This is a fault on
 * purpose (MUTANT_GRAD_DROPPED). */
void proof_drop_gradient(struct model *m);
/* Sets v->ledger_equal on each rank to whether it was true on all ranks of c. */
int proof_agree(struct comm *c, const struct model *m, struct verify *v, struct err *e);

/* Runs the samples through the stages of a pipeline as a training does. Runs each sample on the
 * reference as well, while the ranks still have its results. Sets the targets, the losses of the
 * ranks, the logits and the ledger of v. Collective. */
int proof_stages(struct proof *p, struct err *e);

#endif
