/* advice.h: finds settings with which a job that does not fit would need less memory. It is
 * private to worker/plan. */
#ifndef SEQD_PLAN_ADVICE_H
#define SEQD_PLAN_ADVICE_H

#include "worker/plan/place.h"
#include "worker/plan/sentence.h"

#define ADVICE_SIZE  384 /* bytes of all advice, with its NUL */
#define ADVICE_PLANS 30  /* largest number of plans that are made for one refusal */

/* Adds "; FIELD VALUE needs BYTES" to out for each setting with which the job needs less memory,
 * as long as out has room for the whole text. If no single setting makes the job fit, a pair of
 * settings that makes it fit comes first, as "FIELD VALUE and FIELD VALUE". Each setting has been
 * tried: it was set in a copy of the spec, family_check() accepted the copy, and the copy was
 * planned. If the ring of s has one rank, a longer ring is tried with the strategy and the layout
 * of `asked`, because family_check() has replaced "auto" in s by the values for one rank. `asked`
 * is the job before family_check() and s is the job after it. p is the plan of s and is placed.
 * p needs more than the bytes of `limits`. A ring of more ranks than there are devices comes last,
 * with their number. */
void advice_add(struct sentence *out, const struct job_spec *asked, const struct job_spec *s,
                const struct plan *p, const struct plan_limits *limits);

#endif
