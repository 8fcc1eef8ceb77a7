/* reference.h: one rank with the whole model, with which the others are compared. Inside
 * worker/verify.
 *
 * Its batches are built here, straight from tokens and document ends: the packer only says which
 * tokens a sample has. */
#ifndef SEQD_VERIFY_REFERENCE_H
#define SEQD_VERIFY_REFERENCE_H

#include "worker/verify/rounding.h"
#include "worker/verify/verify.h"

struct reference {
    const struct verify_args *a;
    const struct data_order *order;
    struct model model;
    struct plan plan;
    struct rounding rounding;
    int64_t n_samples;
    int64_t filled;    /* the sample that the model's batch holds; -1: none */
    int64_t kept;      /* the sample whose results `rounding` keeps; -1: none */
    int64_t n_targets; /* of all samples */
    double nll;        /* of those that were run */
};

/* In the arena of a->model, whose weights it takes where these are whole; else they are gathered
 * later. Sets out->grad and out->targets_1. fails: ERR_INTERNAL for a packer that is wrong; the
 * data's errors. NULL: failed. */
struct reference *reference_open(const struct verify_args *a, const struct data_order *order,
                                 struct verify *out, struct err *e);
void reference_close(struct reference *r); /* NULL allowed */

/* Forward and backward of sample i of plan_verify_samples, in ascending order. Its logits are there
 * until the next. */
int reference_run(struct reference *r, int64_t i, struct err *e);
/* After the last: the gradient in model.grad; v->loss_1. */
int reference_end(struct reference *r, struct verify *v, struct err *e);
/* The gradient of other roundings (rounding.h) takes the place of that in model.grad. */
int reference_again(struct reference *r, int run, struct err *e);

/* What both sides share: they drop the same weights of attention, those of the first step; */
void reference_dropout(const struct job_spec *spec, struct model *m);
/* and the scale of the loss, a power of two, comes off a gradient of ref's size exactly. */
void reference_unscale(const struct reference *r, float *grad, int64_t targets);

#endif
