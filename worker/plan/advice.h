/* advice.h: the settings under which a job that does not fit needs less. Inside worker/plan. */
#ifndef SEQD_PLAN_ADVICE_H
#define SEQD_PLAN_ADVICE_H

#include "worker/plan/plan.h"
#include "worker/plan/sentence.h"

#define ADVICE_SIZE  384 /* bytes of all advice, with its NUL */
#define ADVICE_PLANS 30  /* plans made for a refusal, at most */

/* Adds "; FIELD VALUE needs BYTES" for each setting with which the job needs less, as far as there
 * is room for all of it. If none of them fits, two settings that fit together come first, "FIELD
 * VALUE and FIELD VALUE". Each has been set in a copy of the spec that family_check() accepts, and
 * that was planned. A ring of one rank gets the strategy and the layout that "auto" means for more.
 * s: has passed family_check. p: its plan, placed. limit: bytes of each rank, which p exceeds. */
void advice_add(struct sentence *out, const struct job_spec *s, const struct plan *p,
                int64_t limit);

#endif
