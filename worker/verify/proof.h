/* proof.h: declarations that the files of a proof share. Inside worker/verify.
 *
 *   verify.c      the ranks' pass of one stage, and the verdict
 *   stages.c      the ranks' passes of several stages
 *   reference.c   the one rank: its batches, its passes
 *   logits.c      logits of all ranks beside the reference's
 *   follow.c      experts that rows of the ranks choose, for the reference to follow
 *   gather.c      gradients and weights that no rank has whole
 *   rounding.c    the reference again, with other roundings
 *   flow.c        diffusion models
 *   keep.c        artifacts */
#ifndef SEQD_VERIFY_PROOF_H
#define SEQD_VERIFY_PROOF_H

#include "worker/verify/gather.h"
#include "worker/verify/reference.h"
#include "worker/verify/verify.h"

struct proof {
    const struct verify_args *a;
    struct data_order *order;
    struct reference *ref; /* rank 0's; NULL elsewhere */
    struct verify *v;
    struct routing kept; /* the experts that rows of this rank choose */
};

/* Returns the number of rings. All rings run the same tokens, so a sum over rings is this many
 * times that of one ring. */
int proof_copies(const struct model *m);
/* Drops a tensor's gradient on the ranks of place 0 in their rings, under the fault
 * MUTANT_GRAD_DROPPED. */
void proof_drop_gradient(struct model *m);
/* Sets v->ledger_equal on a rank to true only if it is true on all of c. */
int proof_agree(struct comm *c, const struct model *m, struct verify *v, struct err *e);

/* Runs the samples through the stages of a pipeline as a training does, and each on the reference
 * while the ranks have it. v: targets, losses of the ranks, logits, the ledger. Collective. */
int proof_stages(struct proof *p, struct err *e);

#endif
