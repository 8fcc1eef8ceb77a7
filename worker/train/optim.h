/* optim.h: clips by the global norm, and updates by AdamW, parts of the flat parameter layout. */
#ifndef SEQD_TRAIN_OPTIM_H
#define SEQD_TRAIN_OPTIM_H

#include <stdint.h>
#include "kernels/backend.h"
#include "worker/plan/plan.h"

struct job_spec;

/* One rank's part of a bucket (worker/plan/zero.h): elements [begin, end) of the flat layout.
 * Every pointer points to element `begin`. */
struct optim_part {
    int bucket;
    int64_t begin, end;
    float *p;          /* the weights that are updated */
    uint16_t *rounded; /* copy of p in 16 bits, which the model reads; NULL: the model reads p */
    float *m, *v;
    const float *g;
};

struct optim_rate {
    double lr, clip;
    int64_t t; /* Adam's t: 1-based number of the update */
};

struct optim {
    const struct job_spec *spec; /* borrowed */
    const struct plan *plan;     /* borrowed */
    struct be *be;
    int tensor_rank;
    double *partial; /* PLAN_SUMSQ: the sum of squares of every unit of the model */
    double *mirror;  /* the host's copy of partial; partial itself if the host can read the
                      * device's memory */
};

/* Writes the sums of squares of the part's units, in double, to the units' places in o->partial.
 * The bits do not depend on the rank that owns the part. Asynchronous. */
void optim_sums(const struct optim *o, const struct optim_part *x);
/* Sets *sum to the sum over all units, added in order. A slice that several ranks hold
 * (worker/plan/slice.h) is counted by the first of them. Waits for the device, once per step,
 * before the update. fails: the device's errors. */
int optim_norm(const struct optim *o, double *sum, struct err *e);
/* Returns the factor of all gradients: max_grad_norm / (norm + 1e-6) if that is below 1
 * (max_grad_norm 0: no clip). */
double optim_clip(const struct job_spec *spec, double norm);
/* Takes one AdamW step. A weight decays only if `decay` of its struct param is set. Elements
 * between tensors keep their values. */
void optim_update(const struct optim *o, const struct optim_part *x, const struct optim_rate *r);

#endif
