/* place.h: the memory of a plan whose choices are made, on the rank that needs most. Inside
 * worker/plan, but for plan_try. */
#ifndef SEQD_PLAN_PLACE_H
#define SEQD_PLAN_PLACE_H

#include "worker/plan/plan.h"

#define PLAN_MLP_CHUNK 2048 /* rows of a piece if the plan decides: each piece reads the weights */

/* Makes the choices of a plan (plan.c): sets its fields from the spec, with sp ranks of a ring, and
 * resolves every auto but those of the memory. fails: ERR_INVALID, ERR_TOO_LARGE. */
int plan_choose(const struct job_spec *s, int sp, struct plan *p, struct err *e);
/* Makes a plan as plan_make() does; a refusal for memory has no advice, which takes up to 30
 * plans more. */
int plan_try(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e);
/* Cuts the stages of a pipeline and places the stage that needs most; all segments are as large as
 * the largest. limit: bytes of each rank, by which stages may be cut; 0: none.
 * fails: as memory_place, which places a rank. */
int place_ranks(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e);

#endif
