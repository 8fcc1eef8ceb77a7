/* weigh.h: declarations shared by the files that make a choice. Inside worker/plan. */
#ifndef SEQD_PLAN_WEIGH_H
#define SEQD_PLAN_WEIGH_H

#include "worker/plan/choice.h"

struct weighing {
    const struct job_spec *asked;
    const struct machine *m;
    const struct choice_how *how;
    int64_t end_ms;        /* limit of time, by how->clock_ms */
    struct job_spec *spec; /* the alternative that is weighed */
    struct plan *plan;
    struct option first; /* the first one weighed: the product that job_check makes */
    struct choice *out;
};

/* Sets the alternative: its strategy, exchange and degrees. Returns false if family_check refuses
 * it. */
bool weigh_set(struct weighing *w, const struct option *o);
/* Plans w->spec and describes the plan, also one that does not fit, in *out. Returns false if no
 * plan can be made. */
bool weigh_try(struct weighing *w, struct option *out);
/* Appends an option for comparison only, unless the list is full. */
void weigh_append(struct weighing *w, const struct option *o);

/* Tells whether a is better than b. Options that do not fit come after all that do, by size. */
bool weigh_better(const struct choice *c, const struct option *a, const struct option *b);

/* compare.c: appends the options for comparison only. */
void weigh_compared(struct weighing *w);
/* choice_words.c: sets the reason and the warnings. checked: the job with the chosen values. */
void choice_explain(const struct job_spec *checked, struct choice *c);

#endif
