/* model.h: a model of any family, forward and backward, on one rank's rows of a sequence: its
 * family's program (worker/program/program.h), section by section (section.h).
 *
 * Operations that need rows or states of other ranks of the sequence (attention, convolutions,
 * switches) go through tables and calls of worker/sp. All other operations are local to the rank,
 * or to the ranks that share its layers. A pass allocates no memory: every buffer is the plan's
 * (worker/plan/plan.h), so all kinds of job and all recompute modes run the same code on different
 * pointers.
 *
 * Sums over tokens (weight gradients, the loss) are formed for each sum chunk of the shard. The
 * chunks' sums are then added as a perfect binary tree over this rank's chunks, which comm_sum_*
 * continues over ranks. Under determinism "ranks" the result has the same bits for 1, 2, 4 and 8
 * ranks.
 *
 * Rows of padding (target -1, lo = hi = 0) are computed like other rows and contribute exactly
 * 0. */
#ifndef SEQD_MODEL_MODEL_H
#define SEQD_MODEL_MODEL_H

#include "api/core/progress.h"
#include "kernels/backend.h"
#include "worker/comm/comm.h"
#include "worker/model/batch.h"
#include "worker/model/in_time.h"
#include "worker/model/offload.h"
#include "worker/model/pipe.h"
#include "worker/model/section.h"
#include "worker/plan/plan.h"
#include "worker/sp/sp.h"

/* Callbacks of a rank that does not have all weights and gradients (worker/plan/zero.h). fetch is
 * called before a bucket's weights are read, and reduce when a bucket's gradient of one sequence
 * is complete. The gradient of a tied embedding has two parts: the head's, for which last is
 * false, and the embedding's own. Either both functions are set, or neither. */
struct model_buckets {
    int (*fetch)(void *arg, int bucket, struct err *e);
    int (*reduce)(void *arg, int bucket, bool last, struct err *e);
    void *arg;
};

struct model_options {
    const struct model_shape *shape; /* copied */
    const struct plan *plan;         /* borrowed for the model's life */
    /* start of plan->arena_size and of plan->segment_size bytes of be's memory */
    void *arena, *segment;
    void *host;              /* plan->host_size bytes; NULL if the plan has none */
    struct offload *offload; /* borrowed; NULL if the plan offloads nothing */
    struct be *be;           /* borrowed */
    struct comm *comm;       /* borrowed: all ranks of the job; NULL if there is one rank */
    int rank, n_ranks;       /* this rank's index; the plan's number of ranks */
    /* weights that the caller owns; NULL means the plan's PLAN_PARAMS */
    void *params;
};

/* generate: the contents of one of the plan's caches. */
struct model_cache {
    struct shard shard; /* shard of the prompt */
    int64_t used;       /* rows that hold a token */
    int64_t n_decoded;  /* number of tokens after the prompt so far */
};

struct model {
    struct model_shape shape;
    const struct plan *plan;
    char *arena, *host;      /* start of the plan's memory; borrowed */
    struct offload *offload; /* NULL if layers keep their data on the device */
    struct be *be;
    struct comm *job; /* all ranks of the job; NULL if there is one rank */
    /* this rank's ring, a view of the job's endpoint; NULL if the ring is one rank */
    struct comm *comm;
    /* Ranks over which gradients and losses are summed. In a training they are the stage's ranks,
     * otherwise the ring's. NULL if there is only one such rank. */
    struct comm *world;
    /* line has the ranks that are in the same place in every stage of a pipeline; NULL if there is
     * one stage. ends has the first and the last of these ranks, if the embedding is tied; It is
     * NULL if the embedding is not tied, or if this rank is neither of the two. */
    struct comm *line, *ends;
    /* tensor has the ranks that share every layer (parallel.tp). sharers has those of them that
     * have the same KV heads as this rank. Either is NULL if it is one rank. */
    struct comm *tensor, *sharers;
    /* holders has the ranks that hold the same sequence: the ring's ranks, and the ranks that
     * share layers with them. all has the holders of all rings in world. Either is NULL if it is
     * one rank. */
    struct comm *holders, *all;
    struct sp sp;            /* sp.shard: this rank's rows */
    int rank, ring;          /* the rank's index in its ring, and the ring's index */
    int tensor_rank;         /* index among the ranks that share every layer */
    int32_t *route_room;     /* PLAN_ROUTES; NULL if the plan has none */
    struct routing *routing; /* borrowed while a proof runs; NULL if no choices are kept */
    /* group has a training's ranks that share one set of shards (worker/plan/zero.h); place is
     * this rank's index in group. owners has the ranks of all groups that own the same shard as
     * this one. Either is NULL if it is one rank. */
    struct comm *group, *owners;
    int place;
    /* the plan's precision, which is that of weights and of values that the kernels call act */
    enum dtype dtype;
    /* [n_held] of dtype, or blocks (stored.h). With zero 3, this rank's shard, which is read
     * through model_weight. */
    void *params;
    void *fetched; /* with zero 3, a window of weights; NULL if params has all of them */
    /* [n_grad], or a window of it if gradients go by bucket; NULL if the model only infers */
    float *grad;
    bool grad_anew; /* the next pass replaces gradients instead of adding (model_begin_grad) */
    struct model_buckets buckets;
    float *tree;
    int64_t tree_stride; /* bytes */
    double *nll;         /* [T] in the host's memory, as model_nll and model_grad leave it */
    double *inv_freq;    /* frequencies of RoPE in the host's memory */
    double rope_theta;   /* the base of inv_freq */
    void *bounce;
    /* [ulysses * T] lo and hi of the rows of the whole group, or NULL */
    int64_t *all_lo, *all_hi;
    int64_t *host_all_lo, *host_all_hi; /* the host's copies of all_lo and all_hi */
    struct batch batch; /* the plan's arrays in the host's memory; the caller fills them */
    /* Used with be->own_memory. `room` has the device's arrays into which a batch is copied.
     * `there` is the current batch as operations read it; its pointers point into these arrays
     * (model_place). */
    struct batch room, there;
    struct model_cache cache[JOB_MAX_BATCH]; /* plan->batch of them */
    int slot;                                /* index of the cache that a forward pass fills */
    /* end of the last byte that was placed, as this code counts the bytes */
    int64_t arena_end, segment_end;
    /* bytes of arena and segment in whole pages, which is the high-water mark */
    int64_t placed_size;
    int64_t host_end; /* end of the last byte that was placed in the host's part */
    /* LASP in time, and contexts: states that enter and leave the current sequence; zeros if there
     * are none. */
    struct carry carry;
    struct pipe_messages pipe;
    struct progress
        *progress; /* borrowed; each pass reports its progress there; NULL for no reports */
    /* the sections, frame and buffers with which the family's program runs; it must be the last
     * member, because model_init() clears only the bytes before prog.all */
    struct section_state prog;
};

/* Places every pointer, opens the strategy, and sets the shard for plan->S. Weights are not
 * touched. Fails with ERR_INVALID if arena, plan and ranks do not fit together, with
 * ERR_UNSUPPORTED if no code runs the plan's strategy, and with comm's errors. */
int model_init(struct model *m, const struct model_options *o, struct err *e);

/* Counts an item of the plan (optimizer state), given by its offset and size, as placed. */
void model_note_placed(struct model *m, const struct plan_item *it, int64_t size);
/* Counts an item of the arena or of the host's part as model_note_placed does, and returns its
 * memory, or NULL if the plan has no such item. size is the caller's count of its bytes, which is
 * asserted to be the plan's. */
void *model_take(struct model *m, enum plan_id id, int64_t size);

/* Returns the weights from element `offset` of the flat layout (struct param) on, as [rows, cols].
 * With zero 3, model_fetch must have fetched their section, and they are valid until it fetches
 * another section. So code that computes with weights calls this function at each use. */
struct tensor model_weight(const struct model *m, int64_t offset, int64_t rows, int64_t cols);

/* Returns the address at which the gradient of a bucket is summed. The gradient has the layout of
 * the bucket's trained weights. If gradients go by bucket, the address is valid until the next
 * bucket's gradient begins. */
float *model_bucket_gradient(const struct model *m, int bucket);

/* Sets the model for sequences of another length S, at most plan->S (a shorter prompt or
 * window). */
int model_set_seq(struct model *m, int64_t S, struct err *e);
/* Tells whether the frequencies of the rotary embedding depend on the length. */
bool model_by_length(const struct model *m);
/* Sets a grid of patches other than the plan's, for diffusion. */
int model_set_grid(struct model *m, int64_t space, int64_t time, struct err *e);
/* Sets another base of the rotary embedding. No weight depends on it. */
void model_set_rope(struct model *m, double theta);

/* Sets random weights as param.init says. Most tensors are normal(0, 0.02). o_proj and down_proj
 * are divided by sqrt(2 L). Norms are 1 and biases 0. Philox is keyed by (seed, tensor index,
 * element index), so the weights are the same for any number of ranks. */
void model_random(struct model *m, int64_t seed);
/* Writes a part of the random weights of rank t of s->tp to out, which is one row, in fp32 or
 * rounded to 16 bits. The part is elements [from, from + out.cols). */
void model_random_part(struct be *be, const struct model_shape *s, int t, int64_t seed,
                       int64_t from, struct tensor out);

/* Makes b the batch that operations read. If the device has memory of its own, the batch's arrays
 * are copied to it. Each function below that is given a batch does this itself, unless the batch
 * is model_batch(), which is not copied: operations may then continue with it (sampling). */
void model_place(struct model *m, const struct batch *b);
/* Returns the batch as operations read it, which is m->batch or the copy of it that model_place
 * has put on the device. */
struct batch *model_batch(struct model *m);

/* ---- forward --------------------------------------------------------------------------------- */

/* Runs all layers; afterwards section_hidden is the residual stream after the last layer.
 * Collective over the ranks. With a cache (generate), the keys and values of this rank's rows are
 * kept in the cache. */
int model_forward(struct model *m, const struct batch *b, struct err *e);
/* With zero 3, gives this rank's weights to the other ranks for a forward pass that other rings
 * run. Otherwise does nothing. */
int model_lend(struct model *m, struct err *e);

/* Returns the state of each token, [T, C]. It is the output of the head's first norm, or the
 * stream itself if the head does not begin with a norm. The result is a view that is valid until
 * the next call. Local. */
struct tensor model_states(struct model *m);

/* Computes the head's input again if a pass has used its memory since it was computed. Collective
 * over ranks that share layers (parallel.tp), which must call it before model_normed and
 * model_logits. On other ranks, model_normed and model_logits compute it themselves. */
int model_head(struct model *m, struct err *e);
/* Returns rows [row0, row0 + n) of the stream after the final norm, as the head reads them. The
 * result is a view [n, C] that is valid until the next call. Local. */
struct tensor model_normed(struct model *m, int64_t row0, int64_t n);

/* Returns the logits of n <= plan->loss_chunk rows from row0 on, as a view [n, V] that is valid
 * until the next call. Ranks that share layers have all rows of a shard, and each returns the
 * columns of its own ids (frame_ids). Local, without communication. */
struct tensor model_logits(struct model *m, int64_t row0, int64_t n);

/* Writes the nll of every row into m->nll (0 for a row without a target), after model_forward.
 * Sets *nll_sum to the sum over this rank's rows, in the fixed order. Local, except for ranks that
 * share layers. Waits for the device. */
int model_nll(struct model *m, const struct batch *b, double *nll_sum, struct err *e);

/* Begins a sum of gradients: the next backward pass replaces the contents of m->grad, and later
 * passes add to it. It must be called before every step in which m->grad also has records or
 * logits (worker/plan/lent.h). Elements between tensors, which no pass writes, keep their values
 * or become 0 (clear_between in section.c). If gradients go by bucket, and under determinism
 * "ranks", each pass replaces the contents anyway. */
void model_begin_grad(struct model *m);
/* Runs forward, loss and backward of one sequence. scale is 1 / max(targets of the optimizer step,
 * 1). Sets *nll_sum to this rank's sum of nll. Adds the gradients to m->grad; after
 * model_begin_grad, and under determinism "ranks", they replace the contents of m->grad. The
 * gradients are not reduced over ranks. If they go by bucket, m->buckets.reduce receives each
 * bucket's gradient. Collective. */
int model_grad(struct model *m, const struct batch *b, float scale, double *nll_sum, struct err *e);

/* ---- a pipeline (pipe.c): this stage's part of a sequence ---------------------------------------
 *
 * Several sequences may be between their passes: each has a slot, 0 .. plan->slots - 1. A batch
 * has the same contents at both passes. With one stage, model_grad does both, in slot 0. */

/* Receives the stream from the previous stage, runs this stage's sections on it, and sends it
 * on. */
int model_pipe_forward(struct model *m, const struct batch *b, int slot, struct err *e);
/* Receives the gradient from the next stage, runs this stage's sections backward, and sends the
 * gradient to the previous stage. The last stage begins with the loss. On the other stages
 * *nll_sum is 0. */
int model_pipe_backward(struct model *m, const struct batch *b, int slot, float scale,
                        double *nll_sum, struct err *e);
/* Runs n sequences in the order of 1F1B (worker/plan/pipe.h), and then waits until all messages
 * that were sent have been received. Calls forward and backward once for each sequence i, which
 * uses slot `slot` from the one call to the other. n is at most plan->micro_batches. */
struct pipe_passes {
    int (*forward)(void *arg, int64_t i, int slot, struct err *e);
    int (*backward)(void *arg, int64_t i, int slot, struct err *e);
    void *arg;
};
int model_pipe_run(struct model *m, int64_t n, const struct pipe_passes *passes, struct err *e);
/* Runs a forward pass of all stages, up to the loss, for evaluation. On all stages but the last,
 * *nll_sum is 0. */
int model_pipe_score(struct model *m, const struct batch *b, double *nll_sum, struct err *e);
/* Sends n values from the last stage to the other stages. Their purpose is LOSS. */
int model_pipe_share(struct model *m, double *x, int n, struct err *e);

/* Sums m->grad over m->world (purpose GRAD), and adds up the two parts of a tied embedding's
 * gradient. */
int model_reduce_grad(struct model *m, struct err *e);
/* Sums x, this rank's gradient of a bucket, over m->world. Only this rank's own part of x becomes
 * the sum, or all of x if `everywhere` is set. With one rank it does nothing. Purpose GRAD.
 * Collective. */
int model_sum_bucket(struct model *m, int bucket, bool everywhere, float *x, struct err *e);

/* ---- generate -------------------------------------------------------------------------------- */

/* Appends one token, at position S + n_decoded, after model_forward of a prompt of S tokens. Sets
 * *logits [1, V], which are valid until the next call and have the same bits on every rank. Ranks
 * take turns in storing keys and values, CACHE_BLOCK tokens each. Collective; every rank passes
 * the same token. Fails with ERR_TOO_LARGE after plan->n_decode tokens. */
int model_decode(struct model *m, int32_t token, struct tensor *logits, struct err *e);
/* Forgets the decoded tokens. The cache then holds the prompt of its last model_forward again, and
 * the next token follows that prompt. */
void model_rewind(struct model *m);

/* Selects one of several caches (plan->batch) for the functions above, model_forward and
 * section_state, until the next call of model_use; at first cache 0 is selected. The other caches
 * keep their contents. */
void model_use(struct model *m, int slot);
/* Decodes the next token of several sequences in one pass over the weights. No slot may occur
 * twice. Each sequence gets the bits that model_decode would give it by itself. */
struct model_next {
    int slot;
    int32_t token;
};
int model_decode_all(struct model *m, const struct model_next *next, int n, struct err *e);
/* Sets *logits [n, V] to the logits of next[from] to next[from + n - 1], where n <=
 * plan->loss_chunk. They are valid until the next call. */
int model_decoded(struct model *m, int from, int n, struct tensor *logits, struct err *e);

/* ---- inside worker/model --------------------------------------------------------------------- */

/* Return b as operations read it. batch_inputs copies to the device the arrays that `in` and the
 * layers read, batch_loss the arrays that the loss reads. */
const struct batch *batch_inputs(struct model *m, const struct batch *b);
const struct batch *batch_loss(struct model *m, const struct batch *b);

/* x is a bucket's gradient. For each of its tensors of which several ranks of tensor parallelism
 * have a copy, sums the gradient over these ranks. */
int model_sum_slices(struct model *m, int bucket, float *x, struct err *e);

/* Returns the rank's rows of the residual stream at base, as [T / tp, cols] of the model's
 * dtype. */
struct tensor model_rows(const struct model *m, void *base, int64_t cols);

/* Returns the sum of m->nll over this rank's rows, as far as the pass has written it. Waits for
 * the device. */
double model_sum_nll(struct model *m);
/* Runs `in` and the layers of the stage on a batch that has been placed and, with to_loss, also
 * `out` up to the loss. */
int model_sections(struct model *m, const struct batch *b, bool to_loss, struct err *e);

/* Finds this rank's index in its ring, its ring and its place, and opens this rank's views of the
 * job's endpoint (views.c). */
int model_open_views(struct model *m, const struct model_options *o, struct err *e);

/* model_fetch fetches a section's weights, and model_fetch_head the weights that the head reads;
 * both do so only with zero 3. model_clear is called before a bucket's gradient is computed, and
 * model_reduce when it is complete; both do nothing unless gradients go by bucket. */
int model_fetch(struct model *m, int bucket, struct err *e);
int model_fetch_head(struct model *m, struct err *e);
void model_clear(struct model *m, int bucket);
int model_reduce(struct model *m, int bucket, bool last, struct err *e);
/* Returns the address at which the embedding's own gradient is summed. */
float *model_embed_grad(struct model *m);
/* Counts a shard's rows that are not padding. */
int64_t model_prompt_rows(const struct shard *sh);

#endif
