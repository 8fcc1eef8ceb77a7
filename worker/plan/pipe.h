/* pipe.h: the sections of a model in each stage of a pipeline (parallel.pp). Pure arithmetic.
 *
 * Sections are numbered as buckets are (worker/plan/zero.h): 0 is `in`, 1 .. L the layers, L + 1
 * `out`. Stage p holds sections [first[p], first[p + 1]), a layer at least; the first stage has
 * `in` and the last one `out`.
 *
 * A step's n micro-batches, a sequence each, run as 1F1B: stage p runs pipe_ahead() forward
 * passes, then in turn one forward and one backward pass, then the backward passes that are left.
 * Both kinds of pass take the sequences in ascending order. At most min(n, pp - p) sequences are
 * kept between their two passes. tested: tests/engine/test_stages.c */
#ifndef SEQD_PLAN_PIPE_H
#define SEQD_PLAN_PIPE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/limits.h"

#define PIPE_SECTIONS 1026 /* sections of ZERO_LAYERS_MAX layers */

struct pipe {
    int n, at;                    /* stages; the stage of a plan */
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
/* The sections of the plan's stage, [pipe_begin, pipe_end), and the layers among them. */
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

/* Returns the cut with one stage, which holds all n_layers layers. */
struct pipe pipe_whole(int n_layers);

/* Cuts n_layers + 2 sections, whose costs are cost[], into n stages: the cost of the most
 * expensive stage is as low as possible. Later stages take as much as that allows, since earlier
 * stages keep more micro-batches. n is at most n_layers. */
struct pipe pipe_cut(const double *cost, int n_layers, int n);

/* Memory of a stage, bytes: a part that does not depend on its sections, and for each section a
 * part that it has once and a part for each sequence that it keeps. */
struct pipe_memory {
    double fixed[JOB_MAX_RANKS];
    const double *once, *kept; /* by section */
    int64_t n_sequences;       /* micro-batches of a step */
    double limit;
};

/* Cuts as pipe_cut does, among the cuts in which every stage keeps to its limit. Returns false if
 * there is no such cut. */
bool pipe_cut_within(const double *cost, const struct pipe_memory *m, int n_layers, int n,
                     struct pipe *out);

/* pipe_kept returns how many of n micro-batches a stage keeps at once. pipe_ahead returns how many
 * forward passes a stage runs before forward and backward passes alternate. */
int64_t pipe_kept(const struct pipe *p, int64_t n);
int64_t pipe_ahead(const struct pipe *p, int64_t n);

/* A tied embedding: the last stage sends the first n gradients in a step, the i-th after its
 * backward pass B(i), and the first receives it in its own B(i). Returns how many are under way at
 * once so that the last does not wait. The result is the same for every stage that p may be of.
 *
 * Before B(j), where j = i - (pp - 1), the first stage runs F(i). B(j) there and F(i) on the second
 * begin at the same time: when the first has ended F(i) and the second B(j). F(i) then passes
 * pp - 1 stages and the last one runs B(i). So the j-th gradient has been received when the i-th is
 * sent, unless B(j) on the first stage takes longer than all of those. */
int64_t pipe_lent(const struct pipe *p, int64_t n);

#endif
