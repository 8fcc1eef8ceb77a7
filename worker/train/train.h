/* train.h: runs optimizer steps.
 *
 * Step k, counted from 0, uses the global samples [k B, (k+1) B) with B = train.global_batch; each
 * sample is a micro-batch. Each of the dp rings computes B/dp consecutive samples, and ring d
 * begins with sample k B + d (B/dp). So the order of the data does not depend on dp. If a training
 * has stages, k counts the steps of one sequence length (worker/plan/stage.h).
 *   count    targets of all B samples; loss = global nll sum / global target count
 *   sample   batch, forward, loss, backward (model_grad)
 *   sum      Gradients are summed over all ranks by the perfect binary tree over rank numbers:
 *            first over groups of parallel.zero_group, then over the ranks of a ring, then over
 *            the rings. Usually this is done once per step. Under determinism "ranks" it is done
 *            once per micro-batch, and the sums of the micro-batches are added in order. So with a
 *            fixed dp no bit depends on sp
 *   judge    decides whether the gradient has overflowed, and whether this step changes the
 *            weights (worker/train/scale.h, guard.h)
 *   update   norm, clip and AdamW of the rank's own part (sharded_state.h), with the same bits on
 *            all ranks that hold it
 *   compare  compares the ledger's counts with the plan's for each purpose; the ranks share the
 *            verdict
 * A step is a pure function of (spec, step, weights, m, v), and allocates no memory.
 *
 * On a device with memory of its own, operations are only queued. The host waits for the device
 * once for the loss of each sample (model_grad), once for the norm, and once for each value that a
 * layer needs on the host (the choice of experts). The update is still running when the step
 * returns; the first wait of the next step reports its failures. */
#ifndef SEQD_TRAIN_TRAIN_H
#define SEQD_TRAIN_TRAIN_H

#include "api/core/rank.h"
#include "worker/model/model.h"
#include "worker/train/guard.h"
#include "worker/train/prefer.h"
#include "worker/train/scale.h"
#include "worker/train/sharded_state.h"

/* The source of samples. Every result must depend on n alone, so that any rank can ask for any
 * sample. */
struct train_source {
    int (*batch)(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e);
    /* Returns the number of targets in the loss of the whole sample, over all ranks. A target is a
     * token or, for latents, a value. Returns -1 with *e set if the data cannot be read. */
    int64_t (*targets)(void *arg, int64_t n, struct err *e);
    void *arg;
    /* Sets grid[0] to the number of patches of a frame, and grid[1] to the number of frames; used
     * for diffusion. The model is set for this grid before `batch` is called. NULL means that all
     * samples have the length for which the model is set. */
    int (*grid)(void *arg, int64_t n, int64_t grid[2], struct err *e);
    /* Returns the text bytes of all targets of the sample, over all ranks, or -1 with *e set. NULL
     * means that the bytes are not known, or that each token is a byte. */
    int64_t (*bytes)(void *arg, int64_t n, struct err *e);
    /* If pairs are learnt, describes pair k of sample n, as data_pair does. `targets` then returns
     * the number of pairs. NULL means that there are no pairs. */
    int (*pair)(void *arg, int64_t n, int64_t k, struct data_answer out[2], struct err *e);
    /* Sets document[] to the documents of the pair's answers, without reading the data. It is NULL
     * if and only if `pair` is NULL. */
    void (*documents)(void *arg, int64_t n, int64_t k, int64_t document[2]);
};

struct data_order;
/* Makes a source that gives the samples of an order. The order must outlive the source. */
struct train_source train_source_order(const struct data_order *o);
struct flow_source;
/* Makes a source of samples of latents; s must outlive the source. */
struct train_source train_source_latents(const struct flow_source *s);
/* Sets the model for the grid of sample n, if the source has grids. `counts` includes the counts
 * of a pass over the largest grid of the plan; these are replaced by the counts of a pass over the
 * grid of sample n. Fails with the errors of the source. */
struct train;
int train_set_grid(struct train *t, const struct train_source *source, int64_t n, bool forward,
                   struct comm_count counts[PURPOSE_N], struct err *e);

struct train_options {
    const struct job_spec *spec;  /* borrowed */
    const struct plan *plan;      /* borrowed */
    void *arena, *segment, *host; /* the same as in struct model_options */
    struct offload *offload;      /* the same as in struct model_options */
    struct be *be;
    struct comm *comm; /* NULL for one rank */
    int rank, n_ranks;
    struct train_source source;
    /* borrowed; if guard is NULL, a loss or norm that is NaN or infinite ends the run */
    struct guard *guard;
};

struct train {
    const struct job_spec *spec;
    const struct plan *plan;
    struct sharded_state state; /* weights, gradient and moments, or this rank's part of each */
    struct train_source source;
    struct prefer prefer;             /* with pairs; set its references before the first step */
    double preference[PREFER_VALUES]; /* means over the pairs of the last step */
    int64_t step;                     /* number of optimizer steps done; set it on resume */
    struct guard *guard;
    enum guard_verdict verdict; /* verdict of the last step */
    struct scale_state scale;   /* scale for the next step; set it on resume */
    double scale_was;           /* scale of the last step, which multiplied its gradients */
    bool overflowed;            /* the last step was skipped because its gradient overflowed */
    bool empty;                 /* the last step was skipped because its samples have no target */
    int64_t n_empty;            /* number of empty steps so far; set it on resume */
    struct comm_count own[PURPOSE_N]; /* the plan's counts for this rank's step */
    /* [PURPOSE_N] counts that are expected for a step. They are `own` or, in a stage with shorter
     * sequences, the counts of this stage. */
    const struct comm_count *want;
    /* Counts that are expected for this step. They are smaller than `want` if borders of documents
     * make some messages unnecessary. */
    struct comm_count now[PURPOSE_N];
    /* bytes that this step is expected to copy to the store and back, by plan_offloaded() and
     * plan_away_moves() */
    struct offload_count offloaded;
    /* A rank sets its `ask` to ask for a save. After the next step, `asked` is set on every
     * rank. */
    bool ask, asked;
    /* A rank sets its `ask_leave` to ask that the job saves after the next step and ends. After
     * that step, `asked_leave` is set on every rank. */
    bool ask_leave, asked_leave;
    /* in all earlier steps the counts of every rank equalled the plan's */
    bool others_ok;
    /* Its member params has the weights. This is the last member, because train_init() clears only
     * the bytes before it; model_init() sets the model itself. */
    struct model model;
};

/* Places all arrays. It does not write weights and moments; in a new arena they are zero. So call
 * sharded_random(&t->state, spec->seed), or load a checkpoint (worker/ckpt/scatter.h),
 * afterwards. */
int train_init(struct train *t, const struct train_options *o, struct err *e);

/* Makes one optimizer step. out may be NULL; otherwise *out is set to the loss and the norm, which
 * are equal on all ranks. t->verdict tells whether the weights have changed. On GUARD_ROLLBACK the
 * caller must roll back, because fused updates may have changed the weights. Fails with the errors
 * of the data, the device and comm. Also fails if the verdict is GUARD_FAIL. In step 1 with loaded
 * weights, the error is then ERR_CORRUPT. In all other cases it is ERR_INVALID. Its field is
 * precision.params if every gradient so far has overflowed half floats, and optim.lr otherwise. */
int train_step(struct train *t, struct rank_step *out, struct err *e);

/* Inside worker/train. train_meet_pairs counts the messages of a sample's pairs among the expected
 * messages. train_offload_sample counts the bytes of its activations that are offloaded.
 * train_add_sample adds the sums of a sample to those of the step; the loss is nll.
 * train_sum_sample sums a sample's sums over ranks, and train_sum_values those of a step. */
int train_meet_pairs(struct train *t, int64_t sample, struct err *e);
void train_offload_sample(struct train *t);
void train_add_sample(const struct train *t, double nll, double value[PREFER_VALUES]);
int train_sum_sample(struct train *t, double *nll, struct err *e);
int train_sum_values(struct train *t, double value[PREFER_VALUES], struct err *e);

/* Returns the number of updates so far, which is Adam's t. If the samples of a step have no target
 * on any ring, the step is not an update: its loss is NaN, and it leaves weights, moments and
 * average unchanged. */
int64_t train_updates(const struct train *t);
/* Checks, after the last step, that the weights were updated. Fails with ERR_INVALID if steps ran
 * and none of them has updated the weights. */
int train_updated(const struct train *t, struct err *e);

#endif
