/* optim.h: learning rate, global-norm clip, AdamW, over the flat parameter layout. */
#ifndef SEQD_TRAIN_OPTIM_H
#define SEQD_TRAIN_OPTIM_H

#include "api/core/job.h"
#include "kernels/backend.h"
#include "worker/plan/plan.h"

/* Rate of the optimizer step with 0-based index `step`: a pure function, so that resume is exact.
 * Linear warmup lr (step + 1) / warmup, then cosine from lr to min_lr_ratio * lr at train.steps. */
double optim_lr(const struct job_spec *spec, int64_t step);

struct optim {
    const struct job_spec *spec; /* borrowed */
    struct be *be;
    float *params, *m, *v; /* [n_params]; params: the master weights */
    uint16_t *rounded; /* [n_params] the model's weights in bf16; NULL: params are the model's */
    double *partial;   /* [blocks] of the plan */
    int64_t n_params;
};

/* L2 norm of g: float64 partial sums over blocks of SUMSQ_BLOCK parameters, in index order. */
double optim_norm(const struct optim *o, const float *g);
/* One AdamW step with 1-based count t. norm: of g; clipped by max_grad_norm / (norm + 1e-6) if that
 * is below 1 (max_grad_norm 0: no clip). Decay only where struct param says so. */
void optim_step(const struct optim *o, const float *g, double norm, double lr, int64_t t);

#endif
