/* sharded_state.h: weights, gradients and Adam's moments of one rank, sharded by parallel.zero,
 * and how the shards of all ranks meet: bucket by bucket (worker/plan/zero.h).
 *
 *   zero 0   every rank has all; gradients are summed everywhere
 *   zero 1   moments (and master weights) of the own shard; gradients are summed at their
 *            owners after the backward pass, owners update, updated weights go to the group
 *   zero 2   gradients as well: a bucket's are summed in the backward pass once they are complete
 *   zero 3   weights as well: a bucket's are fetched from their owners before they are read
 *
 * Groups of ranks (parallel.zero_group) have a set of shards each. Ranks of the same place in
 * their groups have the same shard, to the bit: all get the same sums.
 *
 * Sums over ranks are the perfect binary tree over rank numbers, element by element, for every
 * parallel.zero and with groups of a power of two; a tied embedding's two parts are added
 * before micro-batches are. So with determinism "ranks" no bit depends on parallel.zero or on
 * groups.
 *
 * A stage of several (plan.pp) has its own buckets. A tied embedding belongs to the first
 * stage: the last one sums the head's part over its ranks and sends it there. Each rank of it
 * is sent the updated weights of its place and keeps them as it would have kept its own.
 *
 * Fused (plan.fused): a bucket is updated as soon as it has been summed.
 *
 * ema.decay d: after every update, ema = d ema + (1 - d) weights, in fp32, of the own shard. It
 * begins as the weights themselves; a skipped step leaves it alone. */
#ifndef SEQD_TRAIN_SHARDED_STATE_H
#define SEQD_TRAIN_SHARDED_STATE_H

#include "worker/model/model.h"
#include "worker/model/tied.h"
#include "worker/plan/slice.h"
#include "worker/train/optim.h"

/* The arrays of a training, flat by param_list. */
enum sharded_array { SHARDED_WEIGHTS, SHARDED_M, SHARDED_V, SHARDED_EMA, SHARDED_GRAD };

struct sharded_state {
    const struct plan *plan; /* borrowed, as is the model */
    struct model *model;
    struct optim optim;
    int rank;               /* number among all ranks */
    float *master, *m, *v;  /* [n_shard]; master: NULL in fp32, where the model's own are updated */
    float *ema;             /* [n_shard] moving average of the weights; NULL: none is kept */
    float *acc;             /* [n_shard] the step's gradient, where it is not model->grad itself */
    float *tied;            /* PLAN_GRAD_TIED: the head's part of the embedding's gradient */
    struct optim_rate rate; /* fused: the rate of bucket updates, set before the step begins */
    bool skip;              /* fused: the step that begins changes nothing */
    bool fresh;             /* the next sums begin a step: acc is overwritten */
    struct tied_sends sends;    /* messages with `tied`, to the first stage */
    struct slice_cursor slices; /* rank 0: places of files' elements (worker/ckpt/scatter.h) */
    int64_t
        still_s; /* rank 0: the time when the others last heard from it (worker/ckpt/scatter.h) */
};

/* Places the arrays and sets the model's callbacks for buckets. h must stay where it is. */
void sharded_init(struct sharded_state *h, const struct job_spec *spec, struct model *m, int rank);

/* Sums model->grad, which is complete, over ranks, under zero 0 and 1. by_bucket: does nothing,
 * since the model has called for each bucket already. Collective. */
int sharded_reduce(struct sharded_state *h, struct err *e);

/* Sends the head's part of a tied embedding's gradient to the first stage, by bucket. Every stage
 * calls it after each backward pass; only the last of several stages sends. Fused: also waits for
 * the updated weights, which the first stage sends. */
int sharded_send_tied(struct sharded_state *h, struct err *e);
/* Waits, after a step's passes, until all messages of the last stage were received. */
int sharded_settle(struct sharded_state *h, struct err *e);

/* Computes the norm of the summed gradient, the same bits on every rank. Collective. */
int sharded_norm(struct sharded_state *h, double *norm, struct err *e);

/* Updates the own part of all arrays, then sends it to the others. r NULL: the step is skipped; the
 * same messages are sent. fused: does nothing, since all buckets are updated already.
 * Collective. */
int sharded_update(struct sharded_state *h, const struct optim_rate *r, struct err *e);

/* Writes elements [offset, offset + n) of an array from fp32, as far as this rank holds them.
 * Weights: writes both the master's and the model's, and the average begins again from them. If
 * the device has no memory of its own, threads may write ranges that do not meet at once. */
void sharded_write(struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                   const float *x);
/* Returns the format of weights [offset, offset + n) if they are whole blocks of one weight
 * (model.weights), which need not lie on this rank, else WEIGHTS_MODEL. */
enum weights_id sharded_blocks(const struct sharded_state *h, int64_t offset, int64_t n);
/* Writes such weights from blocks in a row (quant_row), if this rank holds their bucket. Not under
 * zero 3, nor with master weights or an average. */
void sharded_write_blocks(struct sharded_state *h, int64_t offset, int64_t n,
                          const uint8_t *blocks);
/* Reads the sharded arrays: element offset + i of [offset, offset + n) goes to out[i] if this rank
 * holds it; the other entries of out keep their values. zero 0: a rank holds all. Otherwise each
 * element comes from one rank of a group, its owner. SHARDED_GRAD: not when fused. fails: the
 * device's errors. */
int sharded_read(const struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                 float *out, struct err *e);
/* Writes random weights (model_random) to the elements that this rank holds. */
void sharded_random(struct sharded_state *h, int64_t seed);

#endif
