/* sharded_state.h: weights, gradients and Adam's moments of one rank, sharded by parallel.zero,
 * and their communication, bucket by bucket (worker/plan/zero.h).
 *
 *   zero 0   every rank has all; gradients are summed everywhere
 *   zero 1   moments (and master weights) of the own shard; gradients are summed at their
 *            owners after the backward pass, owners update, updated weights go to the group
 *   zero 2   gradients as well; each bucket is summed in the backward pass once its gradients are
 *            complete
 *   zero 3   weights as well; each bucket is fetched from its owners before it is read
 *
 * Each group of ranks (parallel.zero_group) has a full set of shards. Ranks at the same place in
 * their groups have the same shard, with equal bits, because all get the same sums.
 *
 * Sums over ranks are the perfect binary tree over rank numbers, element by element, for every
 * parallel.zero and with groups of a power of two; the two parts of a tied embedding are added
 * before micro-batches are added. So with determinism "ranks" no bit depends on parallel.zero or
 * on groups.
 *
 * Each stage of a pipeline (plan.pp) has its own buckets. A tied embedding belongs to the first
 * stage. The last stage sums the head's part of its gradient over its ranks and sends it to the
 * first. Each rank of the last stage then gets the updated weights of its place, and stores them
 * as it stores its own.
 *
 * Fused (plan.fused): a bucket is updated as soon as it has been summed.
 *
 * ema.decay d: after every update, ema = d ema + (1 - d) weights, in fp32, for the own shard. The
 * average begins as the weights themselves. A skipped step does not change it. */
#ifndef SEQD_TRAIN_SHARDED_STATE_H
#define SEQD_TRAIN_SHARDED_STATE_H

#include "worker/model/model.h"
#include "worker/model/tied.h"
#include "worker/plan/slice.h"
#include "worker/train/optim.h"

/* The arrays of a training, flat by param_list. */
enum sharded_array { SHARDED_WEIGHTS, SHARDED_M, SHARDED_V, SHARDED_EMA, SHARDED_GRAD };

struct sharded_state {
    const struct plan *plan; /* borrowed, like the model */
    struct model *model;
    struct optim optim;
    int rank;                /* number among all ranks */
    float *master, *m, *v;   /* [n_shard]; master: NULL in fp32, where model->params is updated */
    float *ema;              /* [n_shard] moving average of the weights; NULL: none is kept */
    float *acc;              /* [n_shard] the step's gradient, unless that is model->grad itself */
    float *tied;             /* PLAN_GRAD_TIED: the head's part of the embedding's gradient */
    struct optim_rate rate;  /* fused: the rate of bucket updates, set before the step begins */
    bool skip;               /* fused: the coming step changes nothing */
    bool fresh;              /* the next sums are the first of a step, and overwrite acc */
    struct tied_sends sends; /* messages that send `tied` to the first stage */
    struct slice_cursor slices; /* rank 0: places of files' elements (worker/ckpt/scatter.h) */
    int64_t
        still_s; /* rank 0: the time of its last OP_STILL to the others (worker/ckpt/scatter.c) */
};

/* Places the arrays and sets the model's callbacks for buckets. h must not be moved in memory
 * afterwards. */
void sharded_init(struct sharded_state *h, const struct job_spec *spec, struct model *m, int rank);

/* Sums model->grad, which is complete, over ranks, under zero 0 and 1. With gradients by bucket it
 * does nothing, since the model has already called for each bucket. Collective. */
int sharded_reduce(struct sharded_state *h, struct err *e);

/* With gradients by bucket, sends the head's part of a tied embedding's gradient to the first
 * stage. Every stage calls it after each backward pass, and only the last of several stages sends.
 * Fused: it also waits for the updated weights from the first stage. */
int sharded_send_tied(struct sharded_state *h, struct err *e);
/* Waits, after a step's passes, until all messages from the last stage have been received. */
int sharded_settle(struct sharded_state *h, struct err *e);

/* Computes the norm of the summed gradient, the same bits on every rank. Collective. */
int sharded_norm(struct sharded_state *h, double *norm, struct err *e);

/* Updates the own part of all arrays, then sends it to the other ranks. r NULL: the step is
 * skipped, but the same messages are sent. fused: does nothing, since all buckets are updated
 * already. Collective. */
int sharded_update(struct sharded_state *h, const struct optim_rate *r, struct err *e);

/* Writes elements [offset, offset + n) of an array from fp32, as far as this rank holds them. For
 * weights, writes both the master's and the model's, and the average begins again from them. If
 * the device has no memory of its own, several threads may write disjoint ranges at the same
 * time. */
void sharded_write(struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                   const float *x);
/* Returns the format of weights [offset, offset + n) if they are whole blocks of one weight
 * (model.weights), else WEIGHTS_MODEL. This rank need not hold them. */
enum weights_id sharded_blocks(const struct sharded_state *h, int64_t offset, int64_t n);
/* Writes such weights from consecutive blocks (quant_row), if this rank holds their bucket. Not
 * for zero 3, master weights or an average. */
void sharded_write_blocks(struct sharded_state *h, int64_t offset, int64_t n,
                          const uint8_t *blocks);
/* Reads the sharded arrays: element offset + i of [offset, offset + n) goes to out[i] if this rank
 * holds it; the other entries of out keep their values. zero 0: a rank holds all. Otherwise each
 * element comes from one rank of a group, its owner. SHARDED_GRAD cannot be read when fused.
 * fails: the device's errors. */
int sharded_read(const struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                 float *out, struct err *e);
/* Writes random weights (model_random) to the elements that this rank holds. */
void sharded_random(struct sharded_state *h, int64_t seed);

#endif
