/* logits.h: compares the logits of all ranks with the reference's, sample by sample. It
 * is private to worker/verify. */
#ifndef SEQD_VERIFY_LOGITS_H
#define SEQD_VERIFY_LOGITS_H

#include "worker/verify/verify.h"

/* Largest number of bytes of logits, or of predictions, that are gathered from all ranks in one
 * step. If one row of each rank has more bytes, a step gathers one row of each rank. The buffer is
 * on rank 0, and the plan does not count it. */
#define LOGITS_GATHERED ((int64_t)4 << 20)

/* Sums over all rows that have been compared so far. They are zero before the first row. */
struct logits {
    double diff, norm, max_abs; /* on rank 0 */
    struct comm_count moved;    /* expected counts of this rank's messages, with purpose VERIFY */
    /* expected counts of the messages between ranks that share layers, with purpose TENSOR */
    struct comm_count rows;
};

/* Compares logits row by row, in chunks. The ranks and the reference must have run a forward pass
 * over the same sample. ref is the reference on rank 0, and NULL on the other ranks. It is
 * collective over rank 0's ring. If there are several stages, it is collective over rank 0 and the
 * ranks of the last stage, which have the logits. */
int logits_compare(struct model *m, struct model *ref, struct logits *sums, struct err *e);
/* Writes the result of rank 0 into v. */
void logits_end(const struct logits *sums, struct verify *v);

#endif
