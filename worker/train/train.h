/* train.h: one optimizer step after another.
 *
 * Step k (0-based) takes global samples [k B, (k+1) B), B = train.global_batch, one micro-batch each.
 *   count    targets of all B samples; loss = global nll sum / global target count
 *   sample   batch, forward, loss, backward (model_grad)
 *   sum      gradients over ranks: once per step, or under determinism "ranks" once per sample
 *   update   norm, clip, AdamW on every rank alike (the same bits everywhere)
 *   compare  the ledger's counts with the plan's, purpose by purpose; the verdict is reduced
 * A step is a pure function of (spec, step, weights, m, v); nothing allocates in it. */
#ifndef SEQD_TRAIN_TRAIN_H
#define SEQD_TRAIN_TRAIN_H

#include "api/core/rank.h"
#include "worker/model/model.h"
#include "worker/train/ckpt.h"
#include "worker/train/optim.h"

/* Where samples come from. Both must be pure in n, so that any rank can ask for any sample. */
struct train_source {
    int (*batch)(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);
    /* Of the whole sample, all ranks; -1 with e when the data cannot be read. */
    int64_t (*targets)(void *arg, int64_t n, struct err *e);
    void *arg;
};

struct data_order;
/* The samples of an order, which must outlive the source. */
struct train_source train_source_order(const struct data_order *o);

struct train_options {
    const struct job_spec *spec; /* borrowed */
    const struct plan *plan;     /* borrowed */
    void *arena, *segment;
    struct be *be;
    struct comm *comm; /* NULL for one rank */
    int rank, n_ranks;
    struct train_source source;
    int mutant; /* tests only: enum sp_mutant */
};

struct train {
    const struct job_spec *spec;
    const struct plan *plan;
    struct model model; /* model.params: the weights */
    struct optim optim; /* optim.m, optim.v: Adam's moments */
    struct train_source source;
    float *grad_acc; /* NULL: model.grad is the step's gradient */
    int64_t step;    /* optimizer steps done: set it on resume */
    bool others_ok;  /* did every rank's counts hold in the steps before */
};

/* Places everything; weights and moments are left as they lie (zero in a fresh arena): call
 * train_random or load a checkpoint into train_arrays. */
int train_init(struct train *t, const struct train_options *o, struct err *e);

/* model_random, and the master weights unrounded. */
void train_random(struct train *t, int64_t seed);
/* After the master weights were written: the model's copy is rounded from them. Nothing in fp32. */
void train_round(struct train *t);

/* One optimizer step; out (NULL allowed) is filled on every rank with the same loss and norm.
 * fails: comm's errors; ERR_INTERNAL when the loss or the norm is not finite, naming the step. */
int train_step(struct train *t, struct rank_step *out, struct err *e);

/* What a checkpoint holds of it. Borrows. */
struct ckpt_arrays train_arrays(const struct train *t);

/* The gradient that the last step used, [n_params]: tests and verify. */
const float *train_grad(const struct train *t);

#endif
