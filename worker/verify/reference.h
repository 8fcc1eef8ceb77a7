/* reference.h: one rank with the whole model, with which the ranks are compared. It
 * is private to worker/verify.
 *
 * The reference's batches are built here, directly from tokens and ends of documents; the packer
 * only says which tokens a sample has. */
#ifndef SEQD_VERIFY_REFERENCE_H
#define SEQD_VERIFY_REFERENCE_H

#include "worker/model/routing.h"
#include "worker/verify/rounding.h"
#include "worker/verify/verify.h"

struct reference {
    const struct verify_args *a;
    const struct data_order *order;
    struct model model;
    struct plan plan;
    struct rounding rounding;
    struct routing routing; /* the choice of experts that the ranks made in the current sample */
    int64_t n_samples;
    int64_t filled;    /* index of the sample that is in the model's batch; -1 if none is */
    int64_t kept;      /* index of the sample whose results `rounding` has; -1 if it has none */
    int64_t n_targets; /* targets of all samples */
    double nll;        /* sum over the samples that have been run */
};

/* Tells whether the reference of a proof of model m fills its own weights by a->weights. */
bool reference_fills(const struct model *m);
/* Opens the reference in the arena of a->model. It uses a->model's weights if that has all of
 * them. Otherwise its own weights are filled here or gathered later. Sets out->grad and
 * out->targets_1. Returns NULL if it fails. The error is ERR_INTERNAL for a fault of the packer,
 * ERR_IO if there is no memory, or an error of the data, of plan_reference, of model_init or of
 * a->weights. */
struct reference *reference_open(const struct verify_args *a, const struct data_order *order,
                                 struct verify *out, struct err *e);
void reference_close(struct reference *r); /* NULL allowed */

/* Returns room for the experts that sample i's rows choose, [layers, plan.T, k], which must be
 * filled before the sample first runs. Returns NULL if no row chooses. */
int32_t *reference_routes(struct reference *r, int64_t i);
/* Runs forward and backward of sample i of plan_verify_samples; samples must be run in ascending
 * order. The sample's logits are available until the next call. */
int reference_run(struct reference *r, int64_t i, struct err *e);
/* Completes the gradient in model.grad after the last sample, and sets v->loss_1 and v->routes. */
int reference_end(struct reference *r, struct verify *v, struct err *e);
/* Replaces the gradient in model.grad by the gradient of a run with other roundings
 * (rounding.h). */
int reference_again(struct reference *r, int run, struct err *e);

/* Sets the model to drop those weights of attention that step 1 (counted from 0) of a training
 * would drop. It is called on both sides. */
void reference_dropout(const struct job_spec *spec, struct model *m);
/* Divides a gradient of ref's size by the scale of the loss. It is called on both sides. The scale
 * is a power of two, so the division is exact. */
void reference_unscale(const struct reference *r, float *grad, int64_t targets);

#endif
