/* reference.h: one rank that has the whole model; the other ranks' results are compared with the
 * results of this rank. It is private to worker/verify.
 *
 * reference.c builds the reference's batches from tokens and ends of documents. Only the choice of
 * a sample's tokens comes from the packer. */
#ifndef SEQD_VERIFY_REFERENCE_H
#define SEQD_VERIFY_REFERENCE_H

#include "worker/model/routing.h"
#include "worker/verify/pairs.h"
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
    /* index of the sample that is in the model's batch; -1 if the batch has no sample */
    int64_t filled;
    /* index of the sample whose results `rounding` has; -1 if it has no results */
    int64_t kept;
    int64_t n_targets; /* targets of all samples */
    int64_t n_pairs;   /* pairs of all samples; 0 if the job learns no preferences */
    struct pairs_one pairs;
    double nll; /* sum over the samples that have been run so far */
};

/* Tells whether the weights of the reference come from a->weights. m is the ranks' model. */
bool reference_fills(const struct model *m);
/* Opens the reference in the arena of a->model. If a->model has all weights, the reference uses
 * them. Otherwise the reference has its own weights, which this function fills, or which are
 * gathered later. Sets out->grad and out->targets_1. Returns NULL if it fails. The error is
 * ERR_INTERNAL for a fault of the packer, ERR_IO if there is no memory, or an error of the data,
 * of plan_reference, of model_init or of a->weights. */
struct reference *reference_open(const struct verify_args *a, const struct data_order *order,
                                 struct verify *out, struct err *e);
void reference_close(struct reference *r); /* NULL allowed */

/* Returns room for the experts that sample i's rows choose: [layers, plan.T, k]. The caller fills
 * it before the first run of the sample. Returns NULL if the model has no choice of experts. */
int32_t *reference_routes(struct reference *r, int64_t i);
/* Runs forward and backward of sample i of plan_verify_samples. Samples must be run in ascending
 * order. The logits of the sample are available until the next call. */
int reference_run(struct reference *r, int64_t i, struct err *e);
/* Completes the gradient in model.grad after the last sample, and sets v->loss_1 and v->routes. */
int reference_end(struct reference *r, struct verify *v, struct err *e);
/* Replaces the gradient in model.grad by the gradient of a run with other roundings
 * (rounding.h). */
int reference_again(struct reference *r, int run, struct err *e);

/* Sets the model to drop the weights of attention that a training would drop in its step with
 * index 1. It is called for the ranks' model and for the reference's. */
void reference_dropout(const struct job_spec *spec, struct model *m);
/* Divides a gradient, which has as many elements as the gradient of ref, by the scale of the loss.
 * It is called for the ranks' gradient and for the reference's. The loss is a mean over n targets
 * or pairs. The scale is a power of two, so the division is exact. */
void reference_unscale(const struct reference *r, float *grad, int64_t n);

#endif
