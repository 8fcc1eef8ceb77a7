/* weigh.h: declarations shared by the files that make a choice. It is private to worker/plan. */
#ifndef SEQD_PLAN_WEIGH_H
#define SEQD_PLAN_WEIGH_H

#include "worker/plan/choice.h"

struct weighing {
    const struct job_spec *asked;
    const struct machine *m;
    const struct choice_how *how;
    int64_t end_ms;        /* time at which the search ends, by how->clock_ms */
    struct job_spec *spec; /* the alternative that is being weighed */
    struct plan *plan;
    /* the first option that was weighed, which has the product that job_check makes */
    struct option first;
    struct choice *out;
};

/* Sets the alternative in the spec: its strategy, exchange and degrees. Returns false if
 * family_check refuses it. */
bool weigh_set(struct weighing *w, const struct option *o);
/* Makes a plan of w->spec and describes it in *out, even if it does not fit. Returns false if no
 * plan can be made. */
bool weigh_try(struct weighing *w, struct option *out);
/* Appends an option that is only for comparison, unless the list is full. */
void weigh_append(struct weighing *w, const struct option *o);

/* Tells whether a is better than b. Every option that fits is better than all that do not fit.
 * If neither option fits, the smaller option is better. */
bool weigh_better(const struct choice *c, const struct option *a, const struct option *b);

/* compare.c: appends the options that are only for comparison. */
void weigh_compared(struct weighing *w);
/* choice_words.c: sets the reason and the warnings. `checked` is the job with the values of the
 * choice. */
void choice_explain(const struct job_spec *checked, struct choice *c);

#endif
