/* pipe.h: says which sections of a model are in each stage of a pipeline (parallel.pp). Pure
 * arithmetic.
 *
 * Sections are numbered as buckets are (worker/plan/zero.h): 0 is `in`, 1 .. L the layers, L + 1
 * `out`. Stage p has sections [first[p], first[p + 1]), of which at least one is a layer; the
 * first stage has `in` and the last one `out`.
 *
 * A step's n micro-batches, of which each is a sequence, run as 1F1B: stage p first runs
 * pipe_ahead() forward passes, then alternates one forward and one backward pass, and at the end
 * runs the remaining backward passes. Both kinds of pass process the sequences in ascending order.
 * At most min(n, pp - p) sequences are kept between their two passes. tested:
 * tests/engine/test_stages.c */
#ifndef SEQD_PLAN_PIPE_H
#define SEQD_PLAN_PIPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

#define PIPE_SECTIONS 1026 /* sections of ZERO_LAYERS_MAX layers */

struct pipe {
    int n, at;                    /* number of stages; the stage of a plan */
    int first[JOB_MAX_RANKS + 1]; /* sections of stage p: [first[p], first[p + 1]) */
};

static inline bool pipe_first(const struct pipe *p)
{
    return p->at == 0;
}
static inline bool pipe_last(const struct pipe *p)
{
    return p->at == p->n - 1;
}
/* pipe_begin and pipe_end return the sections of the plan's stage, [pipe_begin, pipe_end); the
 * next two functions return the layers among them. */
static inline int pipe_begin(const struct pipe *p)
{
    return p->first[p->at];
}
static inline int pipe_end(const struct pipe *p)
{
    return p->first[p->at + 1];
}
static inline int pipe_layers(const struct pipe *p)
{
    return pipe_end(p) - pipe_begin(p) - pipe_first(p) - pipe_last(p);
}
/* Tells whether the plan's stage has a section. */
static inline bool pipe_has(const struct pipe *p, int section)
{
    return section >= pipe_begin(p) && section < pipe_end(p);
}

/* Returns the stage that has a section. */
int pipe_stage(const struct pipe *p, int section);

/* Returns the division into a single stage, which has all n_layers layers. */
struct pipe pipe_whole(int n_layers);

/* Divides n_layers + 2 sections, whose costs are cost[], into n stages, such that the cost of the
 * most expensive stage is as low as possible. Within this limit, later stages get as many sections
 * as possible, because earlier stages keep more micro-batches. n is at most n_layers. */
struct pipe pipe_cut(const double *cost, int n_layers, int n);

/* Memory of a stage in bytes. One part does not depend on the stage's sections. Each section then
 * adds two parts: a part that exists once, and a part for each sequence that the stage keeps. */
struct pipe_memory {
    double fixed[JOB_MAX_RANKS];
    const double *once, *kept; /* by section */
    int64_t n_sequences;       /* micro-batches of a step */
    double limit;
};

/* Divides as pipe_cut does, but only into stages that all keep within their memory limits. Returns
 * false if there is no such division. */
bool pipe_cut_within(const double *cost, const struct pipe_memory *m, int n_layers, int n,
                     struct pipe *out);

/* pipe_kept returns how many of n micro-batches a stage keeps at a time. pipe_ahead returns how
 * many forward passes a stage runs before forward and backward passes alternate. */
int64_t pipe_kept(const struct pipe *p, int64_t n);
int64_t pipe_ahead(const struct pipe *p, int64_t n);

/* For a tied embedding, the last stage sends n gradients to the first stage in a step: the i-th
 * after its backward pass B(i), and the first stage receives it in its own B(i). Returns how many
 * of them may be under way at a time if the last stage is not to wait. The result is the same
 * whatever stage p describes.
 *
 * Before B(j), where j = i - (pp - 1), the first stage runs F(i). B(j) on the first stage and F(i)
 * on the second begin at the same time, which is when the first stage has finished F(i) and the
 * second B(j). F(i) then passes through pp - 1 stages, and the last of them runs B(i). So the j-th
 * gradient has been received when the i-th is sent, unless B(j) on the first stage takes longer
 * than all these passes together. */
int64_t pipe_lent(const struct pipe *p, int64_t n);

#endif
