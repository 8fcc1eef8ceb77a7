/* pipe.h: says which sections of a model are in each stage of a pipeline (parallel.pp). Pure
 * arithmetic.
 *
 * Sections have the same numbers as buckets (worker/plan/zero.h): 0 is `in`, 1 .. L are the
 * layers, and L + 1 is `out`. Stage p has sections [first[p], first[p + 1]). At least one of these
 * sections is a layer. The first stage has `in`, and the last stage has `out`.
 *
 * A step has n micro-batches, each of which is a sequence. They run as 1F1B: stage p first runs
 * pipe_ahead() forward passes, then alternates one forward and one backward pass, and at the end
 * runs the remaining backward passes. Forward passes run in ascending order of the sequences, and
 * so do backward passes. A stage keeps a sequence from its forward pass until its backward pass.
 * It keeps at most min(n, pp - p) sequences at a time. tested: tests/engine/test_stages.c */
#ifndef SEQD_PLAN_PIPE_H
#define SEQD_PLAN_PIPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

#define PIPE_SECTIONS 1026 /* sections of ZERO_LAYERS_MAX layers */

struct pipe {
    int n, at;                    /* n: number of stages; at: index of the stage of a plan */
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
/* pipe_begin and pipe_end return the sections of the plan's stage, [pipe_begin, pipe_end).
 * pipe_layers returns the number of layers among them. */
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
/* Tells whether the plan's stage has this section. */
static inline bool pipe_has(const struct pipe *p, int section)
{
    return section >= pipe_begin(p) && section < pipe_end(p);
}

/* Returns the stage that has a section. */
int pipe_stage(const struct pipe *p, int section);

/* Returns the division into a single stage, which has all sections. */
struct pipe pipe_whole(int n_layers);

/* Divides n_layers + 2 sections into n stages, n <= n_layers. cost[] has the cost of each section.
 * The cost of the most expensive stage becomes as low as possible. Within this limit, later stages
 * get as many sections as possible, because earlier stages keep more micro-batches. */
struct pipe pipe_cut(const double *cost, int n_layers, int n);

/* Memory of a stage in bytes. `fixed` does not depend on the stage's sections. Each section adds
 * `once`, and `kept` for each sequence that the stage keeps. */
struct pipe_memory {
    double fixed[JOB_MAX_RANKS];
    const double *once, *kept; /* by section */
    int64_t n_sequences;       /* micro-batches of a step */
    double limit;
};

/* Divides as pipe_cut does, but only in such a way that every stage fits within its memory limit.
 * Returns false if that is not possible. */
bool pipe_cut_within(const double *cost, const struct pipe_memory *m, int n_layers, int n,
                     struct pipe *out);

/* pipe_kept returns how many of n micro-batches a stage keeps at a time. pipe_ahead returns how
 * many forward passes a stage runs before it alternates forward and backward passes. */
int64_t pipe_kept(const struct pipe *p, int64_t n);
int64_t pipe_ahead(const struct pipe *p, int64_t n);

/* For a tied embedding, the last stage sends n gradients to the first stage in a step. It sends
 * gradient i after its backward pass B(i), and the first stage receives gradient i in its own
 * backward pass B(i). Returns how many of these gradients may be sent but not received at a time,
 * if the last stage must not wait. The result does not depend on the stage of p.
 *
 * Let j = i - (pp - 1). Before B(j), the first stage runs F(i). When the first stage has finished
 * F(i) and the second stage has finished B(j), B(j) on the first stage and F(i) on the second
 * begin at the same time. F(i) then passes through pp - 1 stages, and the last of these stages
 * runs B(i). So gradient j has been received when gradient i is sent, unless B(j) on the first
 * stage takes longer than all these passes together. */
int64_t pipe_lent(const struct pipe *p, int64_t n);

#endif
