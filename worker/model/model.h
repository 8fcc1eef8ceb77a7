/* model.h: a model of any family, forward and backward, on one rank's rows of a sequence: its
 * family's program (worker/program/program.h), section by section (section.h).
 *
 * Operations that need rows or states of other ranks of the sequence (attention, convolutions,
 * switches) go through tables and calls of worker/sp. All others are local to the rank, or to the
 * ranks that share its layers. A pass allocates no memory: every buffer is the plan's
 * (worker/plan/plan.h), so all kinds of job and all recompute modes run the same code on other
 * pointers.
 *
 * Sums over tokens (weight gradients, the loss) are taken per sum chunk of the shard, then over a
 * perfect binary tree of this rank's chunks; comm_sum_* continues the tree over ranks. Under
 * determinism "ranks" the result has the same bits for 1, 2, 4 and 8 ranks.
 *
 * Rows of padding (target -1, lo = hi = 0) flow through and contribute exactly 0. */
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

/* Callbacks of a rank that does not hold all weights and gradients (worker/plan/zero.h). fetch is
 * called before a bucket's weights are read, reduce when a bucket's gradient of one sequence is
 * complete. A tied embedding has two parts, the head's (last: false) and its own. Both functions
 * are set, or neither. */
struct model_buckets {
    int (*fetch)(void *arg, int bucket, struct err *e);
    int (*reduce)(void *arg, int bucket, bool last, struct err *e);
    void *arg;
};

struct model_options {
    const struct model_shape *shape; /* copied */
    const struct plan *plan;         /* borrowed for the model's life */
    void *arena, *segment; /* bases of plan->arena_size, plan->segment_size bytes of be's memory */
    void *host;            /* plan->host_size bytes; NULL where there are none */
    struct offload *offload; /* borrowed; NULL: the plan offloads nothing */
    struct be *be;           /* borrowed */
    struct comm *comm;       /* borrowed: all ranks of the job; NULL for one rank */
    int rank, n_ranks;       /* this rank's number; the plan's n_ranks */
    void *params;            /* NULL: the plan's PLAN_PARAMS; else weights that the caller owns */
};

/* generate: the contents of one of the plan's caches. */
struct model_cache {
    struct shard shard; /* shard of the prompt */
    int64_t used;       /* rows that hold a token */
    int64_t n_decoded;  /* tokens after the prompt so far */
};

struct model {
    struct model_shape shape;
    const struct plan *plan;
    char *arena, *host;      /* bases of the plan's memory; borrowed */
    struct offload *offload; /* NULL: layers keep their data on the device */
    struct be *be;
    struct comm *job;   /* all ranks of the job; NULL: one rank */
    struct comm *comm;  /* this rank's ring: a view of the job's; NULL: the ring is one rank */
    struct comm *world; /* ranks over which gradients and losses are summed: the stage's in a
                         * training, otherwise the ring's; NULL: one rank */
    /* line: the ranks in the same place of every stage of a pipeline; NULL: one stage. ends: with
     * a tied embedding the first and the last of them; NULL: not tied, or this rank is neither. */
    struct comm *line, *ends;
    struct comm *tensor, *sharers; /* ranks that share every layer (parallel.tp), and those of them
                                    * that hold the same KV heads; NULL: one rank */
    /* holders: ranks that hold a sequence, the ring's and the ranks that share layers with them.
     * all: the holders of all rings in world. NULL: one rank. */
    struct comm *holders, *all;
    struct sp sp;            /* sp.shard: this rank's rows */
    int rank, ring;          /* the rank's number in its ring; the ring's number */
    int tensor_rank;         /* number among ranks that share every layer */
    int32_t *route_room;     /* PLAN_ROUTES; NULL: none */
    struct routing *routing; /* borrowed while a proof runs; NULL: no choices are kept */
    /* group: a training's ranks that share one set of shards (worker/plan/zero.h); place: this
     * rank's number there. owners: the ranks of all groups that own the same shard as this one.
     * NULL: one rank. */
    struct comm *group, *owners;
    int place;
    enum dtype dtype; /* the plan's precision: weights, and values that the kernels call act */
    void *params;     /* [n_held] of dtype, or blocks (stored.h); zero 3: this rank's shard, read
                       * through model_weight */
    void *fetched;    /* zero 3: a window of weights; NULL: params are whole */
    float *grad;      /* [n_grad]; by bucket: a window of it; NULL when only inferring */
    bool grad_anew;   /* the next pass replaces gradients (model_begin_grad) */
    struct model_buckets buckets;
    float *tree;
    int64_t tree_stride; /* bytes */
    double *nll;         /* [T] in the host's memory, as model_nll and model_grad leave it */
    double *inv_freq;    /* frequencies of RoPE in the host's memory */
    double rope_theta;   /* the base of inv_freq */
    void *bounce;
    int64_t *all_lo, *all_hi;           /* [ulysses * T] lo and hi of the group's rows, or NULL */
    int64_t *host_all_lo, *host_all_hi; /* the host's copies of all_lo, all_hi */
    struct batch batch; /* the plan's arrays in the host's memory, which the caller fills */
    /* With be->own_memory. room: the device's arrays that a batch is copied into. there: the
     * current batch as operations read it, with pointers into these arrays (model_place). */
    struct batch room, there;
    struct model_cache cache[JOB_MAX_BATCH]; /* plan->batch of them */
    int slot;                                /* number of the cache that a forward pass fills */
    int64_t arena_end, segment_end; /* end of the last byte placed, as this code counts them */
    int64_t placed_size;            /* arena and segment in whole pages: the high-water mark */
    int64_t host_end;               /* end of the last byte placed in the host's part */
    struct carry carry; /* LASP in time, contexts: states that enter and leave the current
                         * sequence; zeros: none */
    struct pipe_messages pipe;
    struct section_state prog; /* runs the family's program: its sections, frame and buffers */
    struct progress
        *progress; /* borrowed: each pass reports its progress there; NULL: no reports */
};

/* Places every pointer, opens the strategy, sets the shard for plan->S. Weights are not touched.
 * fails: ERR_INVALID when arena, plan and ranks do not fit together; ERR_UNSUPPORTED when no code
 * runs the plan's strategy; comm's errors. */
int model_init(struct model *m, const struct model_options *o, struct err *e);

/* Counts an item of the plan (optimizer state) as placed: its offset and size. */
void model_note_placed(struct model *m, const struct plan_item *it, int64_t size);
/* Counts an item of the arena or of the host's part as model_note_placed does, and returns its
 * memory; NULL: the plan has none. size: bytes as the caller counts them, asserted to be the
 * plan's. */
void *model_take(struct model *m, enum plan_id id, int64_t size);

/* Returns the weights from element `offset` of the flat layout (struct param) on, as [rows, cols].
 * Under zero 3 model_fetch must have fetched their section, and they stay valid until it fetches
 * another. So code that computes with weights calls it at each use. */
struct tensor model_weight(const struct model *m, int64_t offset, int64_t rows, int64_t cols);

/* Returns the address at which the gradient of element `offset` is summed. By bucket it is valid
 * until the next bucket's turn. */
float *model_gradient(const struct model *m, int64_t offset);

/* Sets the model for sequences of another length (a shorter prompt or window): S <= plan->S. */
int model_set_seq(struct model *m, int64_t S, struct err *e);
/* Tells whether another length changes the frequencies of the rotary embedding. */
bool model_by_length(const struct model *m);
/* Sets another grid of patches than the plan's, for diffusion. */
int model_set_grid(struct model *m, int64_t space, int64_t time, struct err *e);
/* Sets another base of the rotary embedding, on which no weight depends. */
void model_set_rope(struct model *m, double theta);

/* Sets random weights by param.init: for most tensors normal(0, 0.02), divided by sqrt(2 L) for
 * o_proj and down_proj; norms 1, biases 0. Philox is keyed by (seed, tensor index, element index),
 * so the weights are the same for any number of ranks. */
void model_random(struct model *m, int64_t seed);
/* Writes to out, which is one row, elements [from, from + out.cols) of the random weights that
 * rank t of s->tp has, in fp32 or rounded to 16 bits. */
void model_random_part(struct be *be, const struct model_shape *s, int t, int64_t seed,
                       int64_t from, struct tensor out);

/* Makes b the batch that operations read: its arrays are copied to the device, where that has
 * memory of its own. Each call below that takes a batch does this itself, unless the
 * batch is model_batch(), which stays as it is: operations may continue with it (sampling). */
void model_place(struct model *m, const struct batch *b);
/* Returns the batch as operations read it: m->batch, or its copy on the device as model_place left
 * it. */
struct batch *model_batch(struct model *m);

/* ---- forward --------------------------------------------------------------------------------- */

/* Runs all layers; afterwards section_hidden is the residual stream after the last one. Collective
 * over the ranks. With a cache (generate) the keys and values of this rank's rows stay in it. */
int model_forward(struct model *m, const struct batch *b, struct err *e);
/* Under zero 3, gives out this rank's weights for a forward pass that other rings run. Otherwise
 * does nothing. */
int model_lend(struct model *m, struct err *e);

/* Returns the state of each token, [T, C]: the output of the head's first norm, or the stream if
 * the head begins with no norm. A view that lives until the next call. Local. */
struct tensor model_states(struct model *m);

/* Computes the head's input again, if a pass has used its memory since. Collective over ranks that
 * share layers (parallel.tp): they must call it before model_normed and model_logits. On other
 * ranks these two compute it themselves. */
int model_head(struct model *m, struct err *e);
/* Returns rows [row0, row0 + n) of the stream after the final norm, as the head reads them: a view
 * [n, C] that lives until the next call. Local. */
struct tensor model_normed(struct model *m, int64_t row0, int64_t n);

/* Returns the logits of n <= plan->loss_chunk rows from row0: a view [n, V] that lives until the
 * next call. Ranks that share layers have all rows of a shard; each returns the columns of its own
 * ids (frame_ids). Local: no communication. */
struct tensor model_logits(struct model *m, int64_t row0, int64_t n);

/* Writes the nll of every row into m->nll (0 without a target), after model_forward. *nll_sum: the
 * sum of this rank's rows, in the fixed order. Local, but for ranks that share layers. Waits for
 * the device. */
int model_nll(struct model *m, const struct batch *b, double *nll_sum, struct err *e);

/* Begins a sum of gradients: the next backward pass replaces the contents of m->grad, later ones
 * add to it. Needed before every step where records or logits lie there (worker/plan/lent.h).
 * Elements between tensors, which no pass writes, keep their values, or become 0 (clear_between in
 * section.c). By bucket and under "ranks" each pass replaces it anyway. */
void model_begin_grad(struct model *m);
/* Runs forward, loss and backward of one sequence. scale: 1 / max(targets of the optimizer step,
 * 1). *nll_sum: this rank's sum of nll. Gradients are added to m->grad, except after
 * model_begin_grad and under "ranks", when they replace it. They are not reduced over ranks. By
 * bucket, m->buckets.reduce takes each bucket's gradient. Collective. */
int model_grad(struct model *m, const struct batch *b, float scale, double *nll_sum, struct err *e);

/* ---- a pipeline (pipe.c): this stage's part of a sequence ---------------------------------------
 *
 * Several sequences may be between their passes: each has a slot, 0 .. plan->slots - 1. A batch
 * has the same contents at both passes. With one stage, model_grad does both, in slot 0. */

/* Receives the stream of the stage before, runs this stage's sections on it, and sends it on. */
int model_pipe_forward(struct model *m, const struct batch *b, int slot, struct err *e);
/* Receives the gradient from the stage after, runs this stage's sections backward, and sends the
 * gradient to the stage before. The last stage begins with the loss. *nll_sum: 0 on the other
 * stages. */
int model_pipe_backward(struct model *m, const struct batch *b, int slot, float scale,
                        double *nll_sum, struct err *e);
/* Runs n sequences in the order of 1F1B (worker/plan/pipe.h), then waits until all messages that
 * were sent have been received. Calls forward and backward once for each sequence i, which holds
 * slot `slot` between the two calls. n is at most plan->micro_batches. */
struct pipe_passes {
    int (*forward)(void *arg, int64_t i, int slot, struct err *e);
    int (*backward)(void *arg, int64_t i, int slot, struct err *e);
    void *arg;
};
int model_pipe_run(struct model *m, int64_t n, const struct pipe_passes *passes, struct err *e);
/* Runs a forward pass of all stages, up to the loss, for evaluation. *nll_sum: 0 on all stages but
 * the last. */
int model_pipe_score(struct model *m, const struct batch *b, double *nll_sum, struct err *e);
/* Sends n values of the last stage to the others. Purpose LOSS. */
int model_pipe_share(struct model *m, double *x, int n, struct err *e);

/* Sums m->grad over m->world (purpose GRAD), and joins the tied embedding's two parts. */
int model_reduce_grad(struct model *m, struct err *e);
/* Sums x, this rank's gradient of a bucket, over m->world. Only this rank's own part of x becomes
 * the sum; everywhere: all of x. One rank: does nothing. Purpose GRAD. Collective. */
int model_sum_bucket(struct model *m, int bucket, bool everywhere, float *x, struct err *e);

/* ---- generate -------------------------------------------------------------------------------- */

/* Appends one token after model_forward of a prompt of S tokens, at position S + n_decoded. Sets
 * *logits [1, V], which live until the next call and have the same bits on every rank. Ranks take
 * turns in storing keys and values, CACHE_BLOCK tokens each. Collective; every rank passes the
 * same token. fails: ERR_TOO_LARGE after plan->n_decode tokens. */
int model_decode(struct model *m, int32_t token, struct tensor *logits, struct err *e);
/* Forgets the decoded tokens: the cache holds the prompt of its last model_forward again, and the
 * next token follows it. */
void model_rewind(struct model *m);

/* Selects one of several caches (plan->batch) for the calls above, model_forward and section_state,
 * until the next call; 0 at first. The others keep their contents. */
void model_use(struct model *m, int slot);
/* Decodes the next token of several sequences in one pass over the weights; no slot twice. Each has
 * the bits that model_decode gives it alone. */
struct model_next {
    int slot;
    int32_t token;
};
int model_decode_all(struct model *m, const struct model_next *next, int n, struct err *e);
/* Sets *logits [n, V] to the logits of next[from] to next[from + n - 1], n <= plan->loss_chunk.
 * They live until the next call. */
int model_decoded(struct model *m, int from, int n, struct tensor *logits, struct err *e);

/* ---- inside worker/model --------------------------------------------------------------------- */

/* Return b as operations read it. batch_inputs copies the arrays that `in` and the layers read to
 * the device, batch_loss those that the loss reads. */
const struct batch *batch_inputs(struct model *m, const struct batch *b);
const struct batch *batch_loss(struct model *m, const struct batch *b);

/* Sums the tensors of x, a bucket's gradient, that several ranks of tensor parallelism hold, over
 * these ranks. */
int model_sum_slices(struct model *m, int bucket, float *x, struct err *e);

/* Returns the rank's rows of the residual stream, [T / tp, cols] of the model's dtype at base. */
struct tensor model_rows(const struct model *m, void *base, int64_t cols);

/* Returns the sum of m->nll over this rank's rows, for the pass so far. Waits for the device. */
double model_sum_nll(struct model *m);
/* Runs `in` and the layers of the stage on a batch that is placed; with to_loss also `out`, up to
 * the loss. */
int model_sections(struct model *m, const struct batch *b, bool to_loss, struct err *e);

/* Finds this rank's number, ring and place, and opens its views of the job's endpoint
 * (views.c). */
int model_open_views(struct model *m, const struct model_options *o, struct err *e);

/* model_fetch fetches a section's weights, model_fetch_head the weights that the head reads; both
 * do so only under zero 3. model_clear is called before a bucket's gradient is computed,
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
