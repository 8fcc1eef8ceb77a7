/* train.h: runs optimizer steps.
 *
 * Step k, counted from 0, uses the global samples [k B, (k+1) B) with B = train.global_batch; each
 * sample is a micro-batch. Ring d of dp computes the B/dp samples from k B + d (B/dp) on, so that
 * the order of the data does not depend on dp. With stages, k counts the steps of one sequence
 * length (worker/plan/stage.h).
 *   count    targets of all B samples; loss = global nll sum / global target count
 *   sample   batch, forward, loss, backward (model_grad)
 *   sum      Gradients are summed over all ranks by the perfect binary tree over rank numbers. It
 *            sums first over groups of parallel.zero_group, then over the ranks of a ring, then
 *            over the rings. Usually this is done once per step. Under determinism "ranks" it is
 *            done once per micro-batch, and then the micro-batches are added in order, so that
 *            with dp fixed no bit depends on sp
 *   judge    decides whether the gradient has overflowed, and whether this step changes the
 *            weights (worker/train/scale.h, guard.h)
 *   update   norm, clip and AdamW of the rank's own part (sharded_state.h), with the same bits on
 *            all ranks that hold it
 *   compare  the ledger's counts with the plan's, purpose by purpose; the verdict is reduced over
 *            ranks
 * A step is a pure function of (spec, step, weights, m, v), and allocates no memory.
 *
 * On a device with memory of its own, operations are only queued. The host waits for the device
 * once for each sample's loss (model_grad), once for the norm, and for values that the layers of a
 * family need on the host (the choice of experts). The update is still running when the step
 * returns; the first wait of the next step reports its failures. */
#ifndef SEQD_TRAIN_TRAIN_H
#define SEQD_TRAIN_TRAIN_H

#include "api/core/rank.h"
#include "worker/model/model.h"
#include "worker/train/guard.h"
#include "worker/train/scale.h"
#include "worker/train/sharded_state.h"

/* The source of samples. All its functions must be pure in n, so that any rank can ask for any
 * sample. */
struct train_source {
    int (*batch)(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);
    /* Returns the number of targets in the loss of the whole sample, over all ranks: tokens, or
     * values of latents. Returns -1 with *e set if the data cannot be read. */
    int64_t (*targets)(void *arg, int64_t n, struct err *e);
    void *arg;
    /* For diffusion, gives the patches of a frame and the number of frames; the model is set for
     * this grid before batch is called. NULL means that all samples have the length for which the
     * model is set. */
    int (*grid)(void *arg, int64_t n, int64_t grid[2], struct err *e);
    /* Returns the text bytes of the targets of the whole sample, over all ranks, or -1 with *e
     * set. NULL means that the bytes are not known, or that tokens are bytes. */
    int64_t (*bytes)(void *arg, int64_t n, struct err *e);
};

struct data_order;
/* Makes a source of the samples of an order. The order must outlive the source. */
struct train_source train_source_order(const struct data_order *o);
struct flow_source;
/* Makes a source of samples of latents; s must outlive the source. */
struct train_source train_source_latents(const struct flow_source *s);
/* Sets the model for the grid of sample n, if the source has grids. In `counts` it replaces the
 * counts of a pass over the largest grid of the plan by the counts of a pass over this grid. Fails
 * with the errors of the source. */
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
    struct guard *guard; /* borrowed; if there is no guard (NULL), a loss or norm that is NaN or
                          * infinite ends the run */
};

struct train {
    const struct job_spec *spec;
    const struct plan *plan;
    struct sharded_state state; /* weights, gradient and moments, or this rank's part of each */
    struct train_source source;
    int64_t step; /* number of optimizer steps done; set it on resume */
    struct guard *guard;
    enum guard_verdict verdict; /* verdict of the last step */
    struct scale_state scale;   /* scale for the next step; set it on resume */
    double scale_was;           /* scale of the last step, which multiplied its gradients */
    bool overflowed;            /* the last step was skipped because its gradient overflowed */
    bool empty;                 /* the last step was skipped because its samples have no target */
    int64_t n_empty;            /* number of empty steps so far; set it on resume */
    struct comm_count own[PURPOSE_N]; /* the plan's counts for this rank's step */
    const struct comm_count *want;    /* [PURPOSE_N] counts that are expected for a step: `own` or,
                                       * in a stage with shorter sequences, the counts of this
                                       * stage */
    struct comm_count now[PURPOSE_N]; /* counts that are expected for this step; they are smaller
                                       * if some messages are not needed because of document
                                       * borders */
    int64_t offloaded;                /* bytes that the plan expects this step to offload:
                                       * plan_offloaded() */
    bool ask, asked; /* this rank sets `ask` to ask for a save; after the next step `asked` is set
                      * on every rank */
    bool ask_leave, asked_leave; /* the same for a request to save after the next step and to end
                                  * there */
    bool others_ok;              /* in earlier steps every rank's counts equalled the plan's */
    /* model.params are the weights. This must be the last member, because train_init()
     * clears only the bytes before it; model_init() sets the model itself. */
    struct model model;
};

/* Places all arrays. Weights and moments are not written (they are zero in a fresh arena), so call
 * sharded_random(&t->state, spec->seed), or load a checkpoint (worker/ckpt/scatter.h). */
int train_init(struct train *t, const struct train_options *o, struct err *e);

/* Makes one optimizer step. out, which may be NULL, is filled on every rank with the same loss and
 * norm. t->verdict tells whether the weights have changed. On GUARD_ROLLBACK the caller must roll
 * back, because fused updates may have changed the weights. Fails with the errors of the data, the
 * device and comm. Also fails if the verdict is GUARD_FAIL. The error is then ERR_CORRUPT if it is
 * step 1 with loaded weights. Otherwise it is ERR_INVALID, with field precision.params if every
 * gradient has overflowed half floats, and with field optim.lr in other cases. */
int train_step(struct train *t, struct rank_step *out, struct err *e);

/* Returns the number of updates so far, which is Adam's t. A step whose samples have no target, on
 * any ring, is not an update: its loss is NaN, and weights, moments and average do not change. */
int64_t train_updates(const struct train *t);
/* Checks, after the last step, that the weights were updated. Fails with ERR_INVALID if steps ran
 * and none of them has updated the weights. */
int train_updated(const struct train *t, struct err *e);

#endif
