/* sharded_state.h: the weights, gradients and Adam's moments of one rank, sharded as parallel.zero
 * says, and the messages that exchange them, bucket by bucket (worker/plan/zero.h).
 *
 *   zero 0   Every rank holds everything, and gradients are summed on every rank.
 *   zero 1   A rank holds the moments (and master weights) of its own shard. After the backward
 *            pass, each gradient is summed on its owner. The owners update their weights and send
 *            the updated weights to the group.
 *   zero 2   Gradients are sharded as well: each bucket is summed in the backward pass once its
 *            gradients are complete.
 *   zero 3   Weights are sharded as well: each bucket is fetched from its owners before it is
 *            read.
 *
 * Each group of ranks (parallel.zero_group) has a full set of shards. Ranks at the same place in
 * their groups have the same shard, with equal bits, because all of them get the same sums.
 *
 * A sum over ranks is, element by element, the perfect binary tree over rank numbers. This is true
 * for every value of parallel.zero, and for groups whose size is a power of two. The two parts of
 * a tied embedding are added before micro-batches are added. So with determinism "ranks" no bit
 * depends on parallel.zero or on the groups.
 *
 * Each stage of a pipeline (plan.pp) has its own buckets. A tied embedding belongs to the first
 * stage. The last stage sums the head's part of the embedding's gradient over its ranks, and sends
 * the sum to the first stage. Then each rank of the last stage receives the updated weights from
 * the rank that has the same place in the first stage. It stores these weights as it stores its
 * own weights.
 *
 * If the optimizer is offloaded (away.h), the gradient of a bucket leaves the device when its
 * backward pass ends, while that of the next bucket is computed. A rank that adds up its own
 * gradients (plan_adds_here) gets the sum of its earlier samples back before the backward pass adds
 * to it, and sums over ranks after the last sample. Otherwise the sum over ranks of each sample is
 * added to that of the earlier ones. The sums of squares are computed before the last sample's
 * gradient leaves. The update then brings one piece after another back with its state. While a
 * piece is updated, the next one arrives and the one before it leaves.
 *
 * If plan.fused is set, a bucket is updated as soon as it has been summed.
 *
 * With ema.decay d, every update also computes, in fp32 for the rank's own shard,
 *   ema = d ema + (1 - d) weights
 * The average begins as the weights themselves. A skipped step does not change the average. */
#ifndef SEQD_TRAIN_SHARDED_STATE_H
#define SEQD_TRAIN_SHARDED_STATE_H

#include "worker/model/model.h"
#include "worker/model/tied.h"
#include "worker/plan/slice.h"
#include "worker/train/away.h"
#include "worker/train/optim.h"

/* The arrays of a training. Each array is flat and has the order of param_list. */
enum sharded_array { SHARDED_WEIGHTS, SHARDED_M, SHARDED_V, SHARDED_EMA, SHARDED_GRAD };

/* The part of an offloaded optimizer that is updated next. Its arrays are on their way to window
 * `w`. */
struct sharded_ahead {
    int b, end;                    /* its bucket; the update ends before bucket `end` */
    struct zero_range left, piece; /* the rest of the bucket; the part */
    int w;
    int64_t ticket; /* of its last array */
    bool asked;     /* there is such a part */
};

/* The earlier sum of a bucket's gradient, on its way to the window of gradients. */
struct sharded_earlier {
    int b;
    int64_t ticket; /* 0 if there is none */
};

struct sharded_state {
    const struct plan *plan; /* borrowed, as the model is */
    struct model *model;
    struct optim optim;
    int rank; /* index among all ranks */
    /* [n_shard]; master is NULL in fp32, because model->params is updated. If the optimizer is
     * offloaded, `away` has these arrays and the gradient, and the pointers are NULL. */
    float *master, *m, *v;
    float *ema; /* [n_shard] moving average of the weights; NULL if none is kept */
    struct away away;
    struct sharded_ahead ahead;
    struct sharded_earlier earlier;
    float *acc;  /* [n_shard] gradient of the step; NULL if model->grad itself is
                  * used */
    float *tied; /* PLAN_GRAD_TIED: the head's part of the gradient of the embedding */
    /* fused: the learning rate of the updates, set before the step begins */
    struct optim_rate rate;
    bool skip;         /* fused: the next step changes nothing */
    bool fresh, final; /* the sample is the first, or the last, of the rank in a step */
    /* offloaded: the head has added its part to the embedding's gradient of this sample */
    bool joining;
    struct tied_sends sends;    /* messages that send `tied` to the first stage */
    struct slice_cursor slices; /* rank 0: places of elements of files (worker/ckpt/scatter.h) */
    int64_t
        still_s; /* rank 0: time of the last OP_STILL to the other ranks (worker/ckpt/scatter.c) */
};

/* Places the arrays and sets the model's callbacks for buckets. h must not be moved in memory
 * afterwards. */
void sharded_init(struct sharded_state *h, const struct job_spec *spec, struct model *m, int rank);

/* Call it before the passes of each sample. Tells whether the sample is the first, and whether it
 * is the last, of this rank in a step. */
static inline void sharded_begin(struct sharded_state *h, bool first, bool last)
{
    h->fresh = first;
    h->final = last;
}

/* Under zero 0 and 1, sums the complete model->grad over ranks. If gradients are summed by bucket,
 * this function does nothing, because the model's callbacks have summed each bucket already.
 * Collective. */
int sharded_reduce(struct sharded_state *h, struct err *e);

/* Sends the head's part of a tied embedding's gradient to the first stage, if gradients are summed
 * by bucket. Every stage calls this after each backward pass, but only the last of several stages
 * sends. If fused, this function also waits for the updated weights from the first stage. */
int sharded_send_tied(struct sharded_state *h, struct err *e);
/* Waits until all messages from the last stage have been received. Call it after the passes of a
 * step. */
int sharded_settle(struct sharded_state *h, struct err *e);

/* Computes the norm of the summed gradient, with the same bits on every rank. Collective. */
int sharded_norm(struct sharded_state *h, double *norm, struct err *e);

/* Updates this rank's own part of all arrays, then sends it to the other ranks. If r is NULL, the
 * step is skipped, but the same messages are sent. If fused, this function does nothing, because
 * all buckets are updated already. Collective. */
int sharded_update(struct sharded_state *h, const struct optim_rate *r, struct err *e);

/* Writes the elements of [offset, offset + n) of an array that this rank holds. x has the values
 * of the whole range, in fp32. For SHARDED_WEIGHTS it writes the master weights, the weights of
 * the model and the moving average, which thus begins again. If the device has no memory of its
 * own, several threads may write disjoint ranges at the same time. */
void sharded_write(struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                   const float *x);
/* Returns the format (model.weights) of weights [offset, offset + n) if this range consists of
 * whole blocks of one tensor. Otherwise returns WEIGHTS_MODEL. This rank need not hold these
 * weights. */
enum weights_id sharded_blocks(const struct sharded_state *h, int64_t offset, int64_t n);
/* Writes weights [offset, offset + n) if this rank holds their bucket. sharded_blocks must have
 * returned a format of blocks for them, and `blocks` has consecutive blocks of that format
 * (quant_row). With zero 3, writes those of them that are in this rank's shard. Do not call this
 * with a moving average. */
void sharded_write_blocks(struct sharded_state *h, int64_t offset, int64_t n,
                          const uint8_t *blocks);
/* Reads elements [offset, offset + n) of a sharded array. Element offset + i is copied to out[i]
 * if this rank contributes it; all other entries of out are unchanged. Under zero 0 a rank
 * contributes all elements. Otherwise only one rank of a group contributes an element, which is
 * the owner of the element. SHARDED_GRAD cannot be read when fused. Fails with the errors of the
 * device. */
int sharded_read(const struct sharded_state *h, enum sharded_array which, int64_t offset, int64_t n,
                 float *out, struct err *e);
/* Clears the moments of this rank. Fails as away_settle does. */
int sharded_clear_moments(struct sharded_state *h, struct err *e);
/* Writes random weights (model_random) to the elements that this rank holds. */
void sharded_random(struct sharded_state *h, int64_t seed);

#endif
