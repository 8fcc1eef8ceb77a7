/* logits.h: compares the logits of all ranks with the reference's, sample by sample. It
 * is private to worker/verify. */
#ifndef SEQD_VERIFY_LOGITS_H
#define SEQD_VERIFY_LOGITS_H

#include "worker/verify/verify.h"

/* Most bytes of logits, or of predictions, that are gathered from all ranks in one step. A step
 * gathers at least one row of each rank, even if that is more. Rank 0 has them; the plan does not
 * count
 * them. */
#define LOGITS_GATHERED ((int64_t)4 << 20)

/* Sums over all rows that have been compared so far. They are zero at first. */
struct logits {
    double diff, norm, max_abs; /* on rank 0 */
    struct comm_count moved;    /* expected counts of this rank, with purpose VERIFY */
    /* expected counts between ranks that share layers, with purpose TENSOR */
    struct comm_count rows;
};

/* Compares logits row by row, in chunks, after both sides have run a forward pass over the same
 * sample. ref is the reference on rank 0, and NULL on the other ranks. Collective over rank 0's
 * ring; with several stages, over rank 0 and the ranks of the last stage, which have the
 * logits. */
int logits_compare(struct model *m, struct model *ref, struct logits *sums, struct err *e);
/* Writes rank 0's result into v. */
void logits_end(const struct logits *sums, struct verify *v);

#endif
