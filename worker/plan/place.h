/* place.h: the memory of a plan whose choices are made, on the rank that needs most. Inside
 * worker/plan. */
#ifndef SEQD_PLAN_PLACE_H
#define SEQD_PLAN_PLACE_H

#include "worker/plan/plan.h"

/* Cuts the stages of a pipeline and places the stage that needs most; all segments are as large as
 * the largest. limit: bytes of each rank, by which stages may be cut; 0: none.
 * fails: as memory_place, which places a rank. */
int place_ranks(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e);

#endif
