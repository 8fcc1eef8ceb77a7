/* place.h: the memory of a plan whose choices are made, on the rank that needs the largest amount.
 * It is private to worker/plan, except for plan_asked and plan_try. */
#ifndef SEQD_PLAN_PLACE_H
#define SEQD_PLAN_PLACE_H

#include "worker/plan/plan.h"

/* number of rows of a piece if the job does not set it; with fewer rows, weights would be read
 * more often */
#define PLAN_MLP_CHUNK 2048

/* Makes the choices of a plan (plan.c). Sets the plan's fields from the spec, with sp ranks in a
 * ring, and replaces every "auto", except in the fields of memory. Fails with ERR_INVALID or
 * ERR_TOO_LARGE. */
int plan_choose(const struct job_spec *s, int sp, struct plan *p, struct err *e);
/* The memory and the devices for which a plan is made. */
struct plan_limits {
    int64_t memory; /* bytes of a rank; 0 if there is no limit */
    int ranks; /* number of devices; 0 if it is not known. More ranks are planned all the same */
};
/* Makes a plan of s as plan_make() does. `asked` is the spec that a person wrote, and s has in
 * addition the choices of family_check() and choice_apply(). The advice for a job that does not fit
 * keeps parallel.strategy, layout and ulysses of `asked`, so that the job with that advice is not
 * refused. */
int plan_asked(const struct job_spec *asked, const struct job_spec *s,
               const struct plan_limits *limits, struct plan *p, struct err *e);
/* Makes a plan as plan_make() does; if the job does not fit, the error has no advice, because to
 * find advice takes up to 30 more plans. */
int plan_try(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e);
/* Divides the model into the stages of a pipeline, and places the stage that needs the largest
 * amount of memory. All segments get the size of the largest segment. `limit` is the number of
 * bytes that each rank may use, so that stages can be divided by memory; 0 means that there is no
 * limit. Fails as memory_place does. */
int place_ranks(const struct job_spec *s, int64_t limit, struct plan *p, struct err *e);

#endif
