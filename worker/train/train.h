/* train.h: runs optimizer steps.
 *
 * Step k (0-based) takes global samples [k B, (k+1) B), B = train.global_batch; each is a
 * micro-batch. Ring d of dp takes the B/dp samples from k B + d (B/dp) on, so that the order of
 * the data does not depend on dp. With stages, k counts the steps of one sequence length
 * (worker/plan/stage.h).
 *   count    targets of all B samples; loss = global nll sum / global target count
 *   sample   batch, forward, loss, backward (model_grad)
 *   sum      gradients over all ranks, as the perfect binary tree over their numbers (a ring's
 *            ranks first, then the rings; groups of parallel.zero_group before either): once per
 *            step, or under determinism "ranks" once per micro-batch, then the micro-batches in
 *            order: with dp fixed no bit depends on sp
 *   judge    has the gradient overflowed, and does this step change the weights
 *            (worker/train/scale.h, guard.h)
 *   update   norm, clip, AdamW of the rank's own part (sharded_state.h); the same bits on all
 *            ranks that hold it
 *   compare  the ledger's counts with the plan's, purpose by purpose; the verdict is reduced
 * A step is a pure function of (spec, step, weights, m, v); it allocates no memory.
 *
 * On a device with memory of its own, operations are only queued. The host waits for the device
 * once for each sample's loss (model_grad), once for the norm, and for values that a family's
 * layers need on the host (the choice of experts). The update still runs when the step returns,
 * and the next step's first wait reports its failures. */
#ifndef SEQD_TRAIN_TRAIN_H
#define SEQD_TRAIN_TRAIN_H

#include "api/core/rank.h"
#include "worker/model/model.h"
#include "worker/train/guard.h"
#include "worker/train/scale.h"
#include "worker/train/sharded_state.h"

/* The source of samples. All functions must be pure in n, so that any rank can ask for any
 * sample. */
struct train_source {
    int (*batch)(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);
    /* Returns the number of targets in the loss of the whole sample, over all ranks: tokens, or
     * values of latents. Returns -1 with *e when the data cannot be read. */
    int64_t (*targets)(void *arg, int64_t n, struct err *e);
    void *arg;
    /* Gives the patches of a frame and the number of frames, for diffusion; the model is set for
     * them before batch is called. NULL: all samples have the length for which the model is
     * set. */
    int (*grid)(void *arg, int64_t n, int64_t grid[2], struct err *e);
    /* Returns the text bytes of the targets of the whole sample, over all ranks; -1 with *e. NULL:
     * not known, or tokens are bytes. */
    int64_t (*bytes)(void *arg, int64_t n, struct err *e);
};

struct data_order;
/* Makes a source of the samples of an order, which must outlive the source. */
struct train_source train_source_order(const struct data_order *o);
struct flow_source;
/* Makes a source of samples of latents; s must outlive the source. */
struct train_source train_source_latents(const struct flow_source *s);
/* Sets the model for sample n if the source has grids. In `counts` it replaces the counts of one
 * pass over the plan's largest grid by those of this grid. fails: the source's errors. */
struct train;
int train_set_grid(struct train *t, const struct train_source *source, int64_t n, bool forward,
                   struct comm_count counts[PURPOSE_N], struct err *e);

struct train_options {
    const struct job_spec *spec;  /* borrowed */
    const struct plan *plan;      /* borrowed */
    void *arena, *segment, *host; /* as model_options has them */
    struct offload *offload;      /* as model_options has it */
    struct be *be;
    struct comm *comm; /* NULL for one rank */
    int rank, n_ranks;
    struct train_source source;
    struct guard *guard; /* borrowed; NULL: a loss or norm that is NaN or infinite ends the run */
};

struct train {
    const struct job_spec *spec;
    const struct plan *plan;
    struct model model;         /* model.params: the weights */
    struct sharded_state state; /* weights, gradient and moments, or this rank's part of them */
    struct train_source source;
    int64_t step; /* optimizer steps done: set it on resume */
    struct guard *guard;
    enum guard_verdict verdict; /* verdict of the last step */
    struct scale_state scale;   /* for the next step: set it on resume */
    double scale_was;           /* scale of the last step: its gradients are multiplied by this */
    bool overflowed;            /* the last step was skipped because its gradient overflowed */
    bool empty;                 /* the last step was skipped: its samples have no target */
    int64_t n_empty;            /* empty steps so far: set it on resume */
    struct comm_count own[PURPOSE_N]; /* the plan's counts of this rank's step */
    const struct comm_count *want;    /* [PURPOSE_N] counts of a step: own, or those of a stage
                                       * with shorter sequences */
    struct comm_count now[PURPOSE_N]; /* counts of this step: smaller if documents leave out
                                       * messages */
    int64_t offloaded;                /* bytes of this step, by the plan: plan_offloaded() */
    bool ask, asked; /* ask: this rank asks to save; after the next step `asked` is set on every
                      * rank */
    bool ask_leave, asked_leave; /* the same for a request to save after the next step and to end
                                  * there */
    bool others_ok;              /* every rank's counts equalled the plan's in earlier steps */
};

/* Places everything. Weights and moments are not written (zero in a fresh arena): call
 * sharded_random(&t->state, spec->seed), or load a checkpoint (worker/ckpt/scatter.h). */
int train_init(struct train *t, const struct train_options *o, struct err *e);

/* Takes one optimizer step; out (NULL allowed) is filled on every rank with the same loss and
 * norm. t->verdict tells whether the weights have changed. GUARD_ROLLBACK: the caller must roll
 * back, since fused updates may have changed them. fails: the data's, the device's and comm's
 * errors; on GUARD_FAIL ERR_INVALID with field optim.lr, or with precision.params if every
 * gradient has overflowed half floats; ERR_CORRUPT if step 1 fails with loaded weights. */
int train_step(struct train *t, struct rank_step *out, struct err *e);

/* Returns the number of updates so far, Adam's t. A step whose samples have no target, on any
 * ring, is not an update: its loss is NaN, and weights, moments and average do not change. */
int64_t train_updates(const struct train *t);
/* Checks, after the last step, that the weights were updated. fails: ERR_INVALID if steps ran and
 * none has updated them. */
int train_updated(const struct train *t, struct err *e);

#endif
