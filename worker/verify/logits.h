/* logits.h: compares the logits of all ranks with the reference's, sample by sample. Inside
 * worker/verify. */
#ifndef SEQD_VERIFY_LOGITS_H
#define SEQD_VERIFY_LOGITS_H

#include "worker/verify/verify.h"

/* Bytes of logits, or of predictions, that are gathered from all ranks at a time, at most, but at
 * least one row of each rank. Rank 0 holds them; the plan does not count them. */
#define LOGITS_GATHERED ((int64_t)4 << 20)

/* The sums are over all rows compared so far. Zero at first. */
struct logits {
    double diff, norm, max_abs; /* on rank 0 */
    struct comm_count moved;    /* expected counts of this rank, purpose VERIFY */
    struct comm_count rows;     /* the same between ranks that share layers, purpose TENSOR */
};

/* Compares logits row by row, in chunks, after a forward pass over the same sample on both sides.
 * ref: rank 0's, elsewhere NULL. Collective over the ring that rank 0 is in; with several stages,
 * over the last one's ranks, which have the logits, and rank 0. */
int logits_compare(struct model *m, struct model *ref, struct logits *sums, struct err *e);
/* Writes rank 0's result into v. */
void logits_end(const struct logits *sums, struct verify *v);

#endif
