/* follow.h: the experts that the ranks' rows choose, kept by their passes and brought to the
 * reference, which follows them (worker/model/routing.h). Inside worker/verify. */
#ifndef SEQD_VERIFY_FOLLOW_H
#define SEQD_VERIFY_FOLLOW_H

#include "worker/model/model.h"
#include "worker/model/routing.h"

/* Makes this rank keep its choices for the sequence in `slot` in m->route_room; without that room
 * it keeps none. s stays where it is until the proof ends and m->routing is NULL again. */
void follow_keep(struct model *m, struct routing *s, int slot);

/* Gathers the kept choices of one sample on rank 0, into `to`: [layers, rows, k], of which the
 * sequence's rows come first; NULL on other ranks. Call it after the sample's forward pass.
 * Collective over the ranks of a stage that hold the sequence; with several stages, each calls
 * before its backward pass of the sample, and rank 0 receives theirs, the last stage's first. Adds
 * the expected counts, purpose VERIFY, to *moved. Without choices it does nothing. */
int follow_gather(struct model *m, int32_t *to, int64_t rows, struct comm_count *moved,
                  struct err *e);

#endif
