/* reference.h: one rank with the whole model, with which the others are compared. Inside
 * worker/verify.
 *
 * Its batches are built here, straight from tokens and document ends: the packer only says which
 * tokens a sample has. */
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
    struct routing routing; /* the ranks' choice of experts in the current sample */
    int64_t n_samples;
    int64_t filled;    /* the sample that the model's batch holds; -1: none */
    int64_t kept;      /* the sample whose results `rounding` keeps; -1: none */
    int64_t n_targets; /* targets of all samples */
    double nll;        /* sum over samples that were run */
};

/* Tells whether the reference fills weights of its own by a->weights, for a model of a proof. */
bool reference_fills(const struct model *m);
/* Opens the reference in the arena of a->model. It uses a->model's weights if these are whole.
 * Otherwise weights are filled here, or gathered later. Sets out->grad and out->targets_1. fails:
 * ERR_INTERNAL for a fault of the packer; the data's errors; as plan_reference, model_init and
 * a->weights; ERR_IO without memory. NULL: failed. */
struct reference *reference_open(const struct verify_args *a, const struct data_order *order,
                                 struct verify *out, struct err *e);
void reference_close(struct reference *r); /* NULL allowed */

/* Returns room for the experts that sample i's rows choose, [layers, plan.T, k]; fill it before the
 * sample first runs. NULL: no row chooses. */
int32_t *reference_routes(struct reference *r, int64_t i);
/* Runs forward and backward of sample i of plan_verify_samples, in ascending order. Its logits are
 * there until the next. */
int reference_run(struct reference *r, int64_t i, struct err *e);
/* Completes, after the last sample, the gradient in model.grad, and sets v->loss_1 and
 * v->routes. */
int reference_end(struct reference *r, struct verify *v, struct err *e);
/* Replaces the gradient in model.grad by the gradient of other roundings (rounding.h). */
int reference_again(struct reference *r, int run, struct err *e);

/* Sets the model to drop the weights of attention that step 1 of a training, counted from 0,
 * drops, on both sides. */
void reference_dropout(const struct job_spec *spec, struct model *m);
/* Divides a gradient of ref's size by the scale of the loss, on both sides. It is a power of two,
 * so the division is exact. */
void reference_unscale(const struct reference *r, float *grad, int64_t targets);

#endif
