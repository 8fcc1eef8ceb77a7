/* optim.h: clips gradients by their global norm, and updates parts of the flat parameter layout by
 * AdamW. */
#ifndef SEQD_TRAIN_OPTIM_H
#define SEQD_TRAIN_OPTIM_H

#include <stdint.h>
#include "kernels/backend.h"
#include "worker/plan/plan.h"

struct job_spec;

/* One rank's part of a bucket (worker/plan/zero.h), which is elements [begin, end) of the flat
 * layout. Every pointer points to element `begin`. */
struct optim_part {
    int bucket;
    int64_t begin, end;
    float *p;          /* the weights that are updated */
    uint16_t *rounded; /* copy of p in 16 bits, which the model reads; NULL if the model reads p
                        * itself */
    float *m, *v;
    const float *g;
};

struct optim_rate {
    double lr, lr_saved; /* lr_saved is that of modules that are trained whole beside adapters */
    double clip;
    int64_t t; /* Adam's t: number of the update, counted from 1 */
};

struct optim {
    const struct job_spec *spec; /* borrowed */
    const struct plan *plan;     /* borrowed */
    struct be *be;
    int tensor_rank;
    double *partial; /* PLAN_SUMSQ: the sums of squares of all units of the model */
    double *mirror;  /* the host's copy of partial; partial itself if the host can read it */
};

/* Writes the sums of squares of the part's units, in double, to the places of these units in
 * o->partial. The bits do not depend on the rank that owns the part. Asynchronous. */
void optim_sums(const struct optim *o, const struct optim_part *x);
/* Sets *sum to the sum over all units, added in order. If several ranks hold a slice
 * (worker/plan/slice.h), only the first of them counts the slice. This function waits for the
 * device. It is called once per step, before the update. Fails with the errors of the device. */
int optim_norm(const struct optim *o, double *sum, struct err *e);
/* Returns the factor by which all gradients are multiplied:
 *   min(1, max_grad_norm / (norm + 1e-6))
 * Returns 1 if max_grad_norm is 0, because gradients are then not clipped. */
double optim_clip(const struct job_spec *spec, double norm);
/* Makes one AdamW step. A weight decays only if `decay` of its struct param is set. Elements
 * between tensors are unchanged. */
void optim_update(const struct optim *o, const struct optim_part *x, const struct optim_rate *r);

#endif
