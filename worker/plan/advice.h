/* advice.h: finds settings with which a job that does not fit needs less memory. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_ADVICE_H
#define SEQD_PLAN_ADVICE_H

#include "worker/plan/plan.h"
#include "worker/plan/sentence.h"

#define ADVICE_SIZE  384 /* bytes of all advice, with its NUL */
#define ADVICE_PLANS 30  /* plans made for a refusal, at most */

/* Adds "; FIELD VALUE needs BYTES" to out for each setting with which the job needs less memory,
 * as long as out has room for the whole text. If no single setting makes the job fit, a pair of
 * settings that does so comes first, as "FIELD VALUE and FIELD VALUE". Each setting has been
 * tried: it was set in a copy of the spec, family_check() accepted the copy, and the copy was
 * planned. A longer ring than one of one rank is tried with the strategy and the layout that were
 * asked for, since family_check() replaced "auto" by those of one rank.
 * s has passed family_check; before, it was `asked`. p is its plan, which is placed. limit is the
 * bytes of each rank, which p exceeds. */
void advice_add(struct sentence *out, const struct job_spec *asked, const struct job_spec *s,
                const struct plan *p, int64_t limit);

#endif
