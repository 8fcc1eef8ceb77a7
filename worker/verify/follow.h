/* follow.h: sends the experts that the ranks' rows choose to the reference, which then uses these
 * experts (worker/model/routing.h). The ranks' passes keep the choice. It is private to
 * worker/verify. */
#ifndef SEQD_VERIFY_FOLLOW_H
#define SEQD_VERIFY_FOLLOW_H

#include "worker/model/model.h"
#include "worker/model/routing.h"

/* Makes this rank keep its choices for the sequence in `slot` in m->route_room. If the plan has no
 * room for choices, the rank keeps none. s must exist until the proof ends and m->routing is NULL
 * again. */
void follow_keep(struct model *m, struct routing *s, int slot);

/* Gathers the kept choices of one sample in `to` on rank 0. `to` is [layers, rows, k], and the
 * rows of the sequence come first. `to` is NULL on the other ranks. Call it after the sample's
 * forward pass. It is collective over the ranks of a stage that hold the sequence. If there are
 * several stages, each stage calls it before its backward pass of the sample, and rank 0 receives
 * the choices of all stages, beginning with the last. Adds the expected counts, with purpose
 * VERIFY, to *moved. If the model has no choice of experts, it does nothing. */
int follow_gather(struct model *m, int32_t *to, int64_t rows, struct comm_count *moved,
                  struct err *e);

#endif
