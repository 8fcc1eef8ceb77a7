/* advice.h: the settings under which a job that does not fit needs less. Inside worker/plan. */
#ifndef SEQD_PLAN_ADVICE_H
#define SEQD_PLAN_ADVICE_H

#include "worker/plan/plan.h"
#include "worker/plan/sentence.h"

#define ADVICE_SIZE 384 /* bytes of all advice, with its NUL */

/* Adds "; FIELD VALUE needs BYTES" for each setting with which the job needs less, as far as there
 * is room for all of it. Each has been set in a copy of the spec that family_check() accepts, and
 * that was planned.
 * s: has passed family_check. p: its plan, placed. limit: bytes of each rank, which p exceeds. */
void advice_add(struct sentence *out, const struct job_spec *s, const struct plan *p,
                int64_t limit);

#endif
