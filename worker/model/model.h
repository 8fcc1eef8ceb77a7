/* model.h: a model of any family, forward and backward, on one rank's rows of a sequence: its
 * family's program (worker/program/program.h), section by section (section.h).
 *
 * Some operations need rows or states of other ranks of the sequence (attention, convolutions,
 * switches). They go through tables and calls of worker/sp. All other operations are local to the
 * rank, or to the ranks that share its layers. A pass allocates no memory, because every buffer is
 * in the plan (worker/plan/plan.h). So all kinds of job and all recompute modes run the same code
 * on different pointers.
 *
 * Sums over tokens (weight gradients, the loss) are formed for each sum chunk of the shard. A
 * perfect binary tree adds the sums of this rank's chunks, and comm_sum_* continues this tree over
 * ranks. Under determinism "ranks" the result has the same bits for 1, 2, 4 and 8 ranks.
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
 * called before the weights of a bucket are read. reduce is called when the gradient of a bucket
 * is complete for one sequence. The gradient of a tied embedding has two parts: the head's part,
 * for which last is false, and the embedding's own part. Either both functions are set, or
 * neither. begin is called before the gradient of a bucket is computed. It fills the bucket's
 * window with the sum of earlier gradients; if it is NULL, the window is filled with 0. */
struct model_buckets {
    int (*fetch)(void *arg, int bucket, struct err *e);
    int (*reduce)(void *arg, int bucket, bool last, struct err *e);
    void *arg;
    int (*begin)(void *arg, int bucket, struct err *e);
};

/* Callback between the forward pass of a sample and its backward pass, in which the factors of the
 * rows' losses are decided by the losses themselves. m->nll has the loss of each row of this rank.
 * The callback fills m->batch.weight, and sets *loss to this rank's part of the sample's loss,
 * which takes the place of the sum of nll. It is called on the ranks that have the head, and is
 * collective over m->holders. */
struct model_weigh {
    int (*call)(void *arg, double *loss, struct err *e);
    void *arg;
};

struct model_options {
    const struct model_shape *shape; /* copied */
    const struct plan *plan;         /* borrowed for the model's life */
    /* memory of be: plan->arena_size bytes and plan->segment_size bytes */
    void *arena, *segment;
    void *host;              /* plan->host_size bytes; NULL if host_size is 0 */
    struct offload *offload; /* borrowed; NULL if the plan offloads nothing */
    struct be *be;           /* borrowed */
    struct comm *comm;       /* borrowed: all ranks of the job; NULL if there is only one rank */
    int rank, n_ranks;       /* this rank's index, and the number of ranks of the plan */
    /* weights that the caller owns; if NULL, PLAN_PARAMS of the plan is used */
    void *params;
};

/* generate: the contents of one of the caches of the plan */
struct model_cache {
    struct shard shard; /* shard of the prompt */
    int64_t used;       /* number of rows that hold a token */
    int64_t n_decoded;  /* number of tokens that have been decoded after the prompt */
    int32_t adapter;    /* index of the sequence's adapter, or ADAPTER_BASE */
    /* With pages, the members above except adapter are not used. n_tokens is the number of
     * positions whose keys and values are known. The caller fills pages [plan->table] with the
     * pages of this rank's pool, before the positions that lie in them are computed, and calls
     * model_load_pages. */
    int64_t n_tokens;
    int32_t *pages; /* in the plan's memory */
};

struct model {
    struct model_shape shape;
    const struct plan *plan;
    char *arena, *host;      /* the memory of the plan; borrowed */
    struct offload *offload; /* NULL if layers keep their data on the device */
    struct be *be;
    struct comm *job; /* all ranks of the job; NULL if there is only one rank */
    /* the ranks of this rank's ring; NULL if the ring has only one rank */
    struct comm *comm;
    /* Ranks over which gradients and losses are summed. In a training they are the ranks of the
     * stage, and otherwise the ranks of the ring. NULL if there is only one rank to sum over. */
    struct comm *world;
    /* `line` has, from every stage of a pipeline, the rank whose place in its stage equals this
     * rank's place. It is NULL if there is one stage. `ends` has the first and the last rank of
     * `line`, if the embedding is tied. It is NULL if the embedding is not tied, or if this rank
     * is neither the first nor the last of `line`. */
    struct comm *line, *ends;
    /* `tensor` has the ranks that share every layer (parallel.tp). `sharers` has the ranks of
     * `tensor` that have the same KV heads as this rank. Each pointer is NULL if its set has only
     * one rank. */
    struct comm *tensor, *sharers;
    /* `holders` has the ranks that hold the same sequence as this rank: the ranks of its ring, and
     * the ranks that share layers with them. `all` has the holders of all rings in `world`. Each
     * pointer is NULL if its set has only one rank. */
    struct comm *holders, *all;
    struct sp sp;            /* sp.shard: this rank's rows */
    int rank, ring;          /* this rank's index in its ring, and the index of the ring */
    int tensor_rank;         /* index among the ranks that share every layer */
    int32_t *route_room;     /* PLAN_ROUTES; NULL if the plan does not have it */
    struct routing *routing; /* borrowed while a proof runs; NULL if no choices are kept */
    int bad_adapter; /* index of the adapter, of several, that finite_blame has blamed; else -1 */
    /* `group` has the ranks of a training that share one set of shards (worker/plan/zero.h);
     * `place` is this rank's index in `group`. `owners` has, from every group, the rank that owns
     * the same shard as this rank. Each pointer is NULL if its set has only one rank. */
    struct comm *group, *owners;
    int place;
    /* precision of the plan: the type of weights and of the values that kernels call act */
    enum dtype dtype;
    /* weights of dtype, or blocks (stored.h). With zero 3, it has only this rank's shard, which
     * is read through model_weight. */
    void *params;
    void *fetched; /* with zero 3, a window of weights; NULL if params has all weights */
    /* [n_grad]; a window of gradients if they are summed by bucket; NULL without gradients */
    float *grad;
    /* the next pass replaces gradients instead of adding to them (model_begin_grad) */
    bool grad_anew;
    struct model_buckets buckets;
    struct model_weigh weigh; /* call is NULL if all rows have the factor 1 */
    /* model_nll computes the loss that model_grad computes, with label smoothing and z-loss,
     * instead of -log p alone */
    bool trained_loss;
    float *tree;
    int64_t tree_stride; /* bytes */
    double *nll;         /* [T] in the host's memory; model_nll and model_grad write it */
    double *inv_freq;    /* frequencies of RoPE in the host's memory */
    double rope_theta;   /* the base of inv_freq */
    void *bounce;
    /* [ulysses * T] lo and hi of the rows of all ranks of the group, or NULL */
    int64_t *all_lo, *all_hi;
    int64_t *host_all_lo, *host_all_hi; /* the host's copies of all_lo and all_hi */
    struct batch batch; /* arrays of the plan in the host's memory, which the caller fills */
    /* `room` and `there` are used if be->own_memory is set. The arrays of `room` are on the
     * device, and a batch is copied into them. `there` is the current batch in the form that
     * operations read; its pointers point into the arrays of `room` (model_place). */
    struct batch room, there;
    struct model_cache cache[JOB_MAX_BATCH]; /* plan->batch of them */
    int slot;                                /* index of the cache that a forward pass fills */
    /* end of the last byte that has been placed, by the counts of this code */
    int64_t arena_end, segment_end;
    /* bytes of arena and segment that have been placed, in whole pages; it never decreases */
    int64_t placed_size;
    int64_t host_end; /* end of the last byte that was placed in the host's part */
    /* States that enter and leave the current sequence, for LASP in time and for contexts. All
     * zeros if no state enters or leaves. */
    struct carry carry;
    struct pipe_messages pipe;
    /* borrowed; each pass writes its progress to it; NULL if no progress is reported */
    struct progress *progress;
    /* Sections, frame and buffers with which the family's program runs. This must be the last
     * member, because model_init() clears only the bytes before prog.all. */
    struct section_state prog;
};

/* Sets every pointer, opens the strategy, and sets the shard for plan->S. Does not write weights.
 * Fails with ERR_INVALID if arena, plan and ranks do not fit together. Fails with ERR_UNSUPPORTED
 * if no code runs the plan's strategy. Also fails with the errors of comm. */
int model_init(struct model *m, const struct model_options *o, struct err *e);

/* Counts `size` bytes of an item of the plan (optimizer state) as placed. */
void model_note_placed(struct model *m, const struct plan_item *it, int64_t size);
/* Counts an item of the arena or of the host's part as model_note_placed does. Returns the item's
 * memory, or NULL if the plan does not have the item. size is the number of bytes that the caller
 * computed; an assertion checks that it is the plan's size. */
void *model_take(struct model *m, enum plan_id id, int64_t size);

/* Returns the weights that begin with element `offset` of the flat layout (struct param), as
 * [rows, cols]. With zero 3, model_fetch must have fetched their section. The result is then valid
 * until model_fetch fetches another section. So code that computes with weights calls this
 * function at each use. */
struct tensor model_weight(const struct model *m, int64_t offset, int64_t rows, int64_t cols);

/* Returns the address at which the gradient of a bucket is summed. The gradient has the layout of
 * the bucket's trained weights. If gradients are summed by bucket, the address is valid until the
 * gradient of the next bucket begins. */
float *model_bucket_gradient(const struct model *m, int bucket);

/* Sets the model for sequences of length S, which is at most plan->S. This is for shorter prompts
 * and windows. */
int model_set_seq(struct model *m, int64_t S, struct err *e);
/* Tells whether the frequencies of the rotary embedding depend on the length. */
bool model_by_length(const struct model *m);
/* Sets the grid of patches for diffusion. It may differ from the plan's grid. */
int model_set_grid(struct model *m, int64_t space, int64_t time, struct err *e);
/* Sets the base of the rotary embedding. No weight depends on the base. */
void model_set_rope(struct model *m, double theta);

/* Sets random weights as param.init says. Most tensors are drawn from normal(0, 0.02). The weights
 * of o_proj and down_proj are divided by sqrt(2 L). Norms are 1, and biases are 0. Philox is keyed
 * by (seed, tensor index, element index), so the weights do not depend on the number of ranks. */
void model_random(struct model *m, int64_t seed);
/* Passes the initial weights of the adapters of a whole model to `to`, in pieces of one tensor
 * each. They are equal to the weights that model_random sets: A is uniform between -1 / sqrt(C)
 * and 1 / sqrt(C) for C columns, and B is 0. take gets elements [offset, offset + n) of the flat
 * layout. */
struct random_sink {
    int (*take)(void *arg, int64_t offset, int64_t n, const float *x, struct err *e);
    void *arg;
};
int model_random_adapters(const struct model_shape *s, int64_t seed, const struct random_sink *to,
                          struct err *e);
/* Writes a part of the random weights of rank t of s->tp to out. The part is elements [from, from
 * + out.cols). out is one row, in fp32 or rounded to 16 bits. */
void model_random_part(struct be *be, const struct model_shape *s, int t, int64_t seed,
                       int64_t from, struct tensor out);

/* Makes b the batch that operations read. If the device has memory of its own, the arrays of b are
 * copied to the device. Each function below that is given a batch calls model_place itself. It
 * does not copy if the batch is model_batch(), whose arrays are already on the device
 * (sampling). */
void model_place(struct model *m, const struct batch *b);
/* Returns the batch as operations read it. This is m->batch, or the copy of m->batch that
 * model_place has made on the device. */
struct batch *model_batch(struct model *m);

/* ---- forward --------------------------------------------------------------------------------- */

/* Turns the adapters of the model off, or on again. Only forward passes may run while they are
 * off. */
void model_use_base(struct model *m, bool base);

/* Sets the adapter of the sequences that the current slot computes from now on: its index among
 * those of the shape, or ADAPTER_BASE. A model begins with adapter 0. */
void model_use_adapter(struct model *m, int32_t adapter);

/* Runs all layers. Afterwards section_hidden returns the residual stream after the last layer.
 * With a cache (generate), the keys and values of this rank's rows are kept in the cache.
 * Collective over the ranks. */
int model_forward(struct model *m, const struct batch *b, struct err *e);
/* With zero 3, sends this rank's weights to the ranks of other rings while these run a forward
 * pass. Without zero 3, does nothing. */
int model_lend(struct model *m, struct err *e);

/* Returns the state of each token, [T, C]. The state is the output of the first norm of the head.
 * If the head does not begin with a norm, it is the residual stream itself. The result is a view
 * that is valid until the next call. Local. */
struct tensor model_states(struct model *m);

/* Computes the head's input again if a pass has overwritten its memory. Ranks that share layers
 * (parallel.tp) must call this before model_normed and model_logits; it is collective over these
 * ranks. On other ranks, model_normed and model_logits compute the input themselves. */
int model_head(struct model *m, struct err *e);
/* Returns rows [row0, row0 + n) of the residual stream after the final norm, as the head reads
 * them. The result is a view [n, C] that is valid until the next call. Local. */
struct tensor model_normed(struct model *m, int64_t row0, int64_t n);

/* Returns the logits of rows [row0, row0 + n), with n <= plan->loss_chunk. The result is a view
 * [n, V] that is valid until the next call. Ranks that share layers have all rows of a shard, and
 * each returns the columns of its own ids (frame_ids). Sends no messages. */
struct tensor model_logits(struct model *m, int64_t row0, int64_t n);

/* Writes the nll of every row into m->nll, after model_forward. The nll of a row without a target
 * is 0. Sets *nll_sum to the sum over this rank's rows, in the fixed order. Only ranks that share
 * layers exchange messages. Waits for the device. */
int model_nll(struct model *m, const struct batch *b, double *nll_sum, struct err *e);

/* Sums m->nll over the rows of this rank whose positions in the sequence are [begin, end). The
 * order of the additions is that of model_nll, and all other rows count as 0. Call it after
 * model_nll, or in m->weigh. */
double model_nll_of(const struct model *m, int64_t begin, int64_t end);

/* Begins a sum of gradients: the next backward pass replaces the contents of m->grad, and later
 * passes add to it. Call it before every step in which m->grad also has records or logits
 * (worker/plan/lent.h). No pass writes the elements between tensors; they keep their values or
 * become 0 (clear_between in section.c). If gradients are summed by bucket, and under determinism
 * "ranks", each pass replaces the contents anyway. */
void model_begin_grad(struct model *m);
/* Runs forward, loss and backward of one sequence. scale is 1 / max(targets of the optimizer step,
 * 1). Sets *nll_sum to this rank's sum of nll. Adds the gradients to m->grad. After
 * model_begin_grad, and under determinism "ranks", the gradients replace the contents of m->grad
 * instead. They are not summed over ranks. If gradients are summed by bucket, m->buckets.reduce
 * receives the gradient of each bucket. Collective. */
int model_grad(struct model *m, const struct batch *b, float scale, double *nll_sum, struct err *e);

/* ---- a pipeline (pipe.c): this stage's part of a sequence ---------------------------------------
 *
 * Several sequences may be between their forward and their backward pass. Each of these sequences
 * has a slot, 0 .. plan->slots - 1. The batch must have the same contents in both passes. If there
 * is one stage, model_grad runs both passes, in slot 0. */

/* Receives the stream from the previous stage, runs this stage's sections on it, and sends the
 * result to the next stage. */
int model_pipe_forward(struct model *m, const struct batch *b, int slot, struct err *e);
/* Receives the gradient from the next stage, runs this stage's sections backward, and sends the
 * gradient to the previous stage. The last stage begins with the loss. *nll_sum is 0 on all stages
 * except the last. */
int model_pipe_backward(struct model *m, const struct batch *b, int slot, float scale,
                        double *nll_sum, struct err *e);
/* Runs n sequences in the order of 1F1B (worker/plan/pipe.h), and then waits until all messages
 * that were sent have been received. Calls forward and backward once for each sequence i. The
 * sequence uses the slot `slot` from its forward call until its backward call. n is at most
 * plan->micro_batches. */
struct pipe_passes {
    int (*forward)(void *arg, int64_t i, int slot, struct err *e);
    int (*backward)(void *arg, int64_t i, int slot, struct err *e);
    void *arg;
};
int model_pipe_run(struct model *m, int64_t n, const struct pipe_passes *passes, struct err *e);
/* Runs a forward pass of all stages, up to the loss, for evaluation. *nll_sum is 0 on all stages
 * except the last. */
int model_pipe_score(struct model *m, const struct batch *b, double *nll_sum, struct err *e);
/* Sends n values, with purpose LOSS, from the last stage to all earlier stages. */
int model_pipe_share(struct model *m, double *x, int n, struct err *e);

/* Sums m->grad over m->world (purpose GRAD), and adds the two parts of a tied embedding's
 * gradient. */
int model_reduce_grad(struct model *m, struct err *e);
/* Sums x over m->world. x is this rank's gradient of a bucket. If `everywhere` is set, all of x
 * becomes the sum. Otherwise only this rank's own part of x becomes the sum. If there is only one
 * rank, does nothing. Purpose GRAD. Collective. */
int model_sum_bucket(struct model *m, int bucket, bool everywhere, float *x, struct err *e);

/* ---- generate -------------------------------------------------------------------------------- */

/* Appends one token, at position S + n_decoded, after model_forward of a prompt of S tokens. Sets
 * *logits [1, V], which have the same bits on every rank and are valid until the next call. A rank
 * stores the keys and values of CACHE_BLOCK tokens, and then the next rank stores those of the
 * next CACHE_BLOCK tokens. Collective; every rank passes the same token. Fails with ERR_TOO_LARGE
 * after plan->n_decode tokens. */
int model_decode(struct model *m, int32_t token, struct tensor *logits, struct err *e);
/* Removes the decoded tokens. The cache then holds only the prompt of its last model_forward, and
 * the next token follows that prompt. */
void model_rewind(struct model *m);

/* Selects one of several caches (plan->batch) for the functions above, model_forward and
 * section_state. At first cache 0 is selected. The other caches keep their contents. */
void model_use(struct model *m, int slot);
/* A sequence and its next token. model_decode_all decodes the next tokens of several sequences in
 * one pass over the weights. No two of the sequences may have the same slot. Each sequence gets
 * the bits that model_decode would compute for it. */
struct model_next {
    int slot;
    int32_t token;
};
int model_decode_all(struct model *m, const struct model_next *next, int n, struct err *e);
/* Sets *logits [n, V] to the logits of next[from] to next[from + n - 1], with n <=
 * plan->loss_chunk. They are valid until the next call. */
int model_decoded(struct model *m, int from, int n, struct tensor *logits, struct err *e);

/* A piece of a prompt whose keys and values lie in pages (worker/plan/paged.h): n tokens at
 * positions [pos, pos + n) of the sequence in m->cache[slot], whose pages must be set. pos is a
 * multiple of CACHE_PAGE, n is at most plan->piece, and all positions before pos are known. */
struct model_piece {
    int slot;
    int32_t adapter;
    const int32_t *tokens; /* [n] */
    int64_t pos, n;
};
/* Computes a piece. A row has the bits that it would have in any other piece, and that decoding
 * would give it. Then cache[slot].n_tokens is pos + n, and model_logits() gives the logits of the
 * rows of this rank. model_decode_all() decodes the token at position n_tokens and adds 1 to it. If
 * the caller lowers n_tokens, later tokens are forgotten. Collective. Fails with the errors of
 * comm. */
int model_piece(struct model *m, const struct model_piece *p, struct err *e);
/* Tells the device that pages [from, from + n) of cache[slot] have changed. */
void model_load_pages(struct model *m, int slot, int64_t from, int64_t n);
/* Copies the states that all layers have in one place to another place. Places 0 to plan->batch - 1
 * belong to the slots, and plan->n_kept_states places follow them, which the caller uses as it
 * likes. Does nothing for a model without states. */
void model_copy_states(struct model *m, int from, int to);
/* Returns the rank that has position pos of a piece, and sets *row to the position's row there. */
int model_piece_owner(const struct model *m, const struct model_piece *p, int64_t pos,
                      int64_t *row);

/* ---- inside worker/model --------------------------------------------------------------------- */

/* Return b as operations read it. batch_inputs copies the arrays that `in` and the layers read to
 * the device. batch_loss copies the arrays that the loss reads. */
const struct batch *batch_inputs(struct model *m, const struct batch *b);
const struct batch *batch_loss(struct model *m, const struct batch *b);
/* Copies the weights of the rows of m->batch to the device. */
void batch_weights(struct model *m);

/* Several ranks of tensor parallelism may have a copy of a tensor. For each tensor of the bucket
 * that several ranks have, sums the gradient over these ranks. x is the gradient of the bucket. */
int model_sum_slices(struct model *m, int bucket, float *x, struct err *e);

/* Returns this rank's rows of the residual stream, as [T / tp, cols] of the model's dtype. The
 * stream begins at base. */
struct tensor model_rows(const struct model *m, void *base, int64_t cols);

/* Returns the sum of m->nll over the rows of this rank that the pass has written. Waits for the
 * device. */
double model_sum_nll(struct model *m);
/* If m->weigh is set, computes the loss of every row of the batch, which must have been placed,
 * and calls it. Otherwise does nothing. Call it between the forward and the backward pass. */
int model_weigh_rows(struct model *m, const struct batch *b, double *loss, struct err *e);
/* Runs `in` and the layers of the stage. If to_loss is set, also runs `out` up to the loss. The
 * batch must have been placed. */
int model_sections(struct model *m, const struct batch *b, bool to_loss, struct err *e);

/* Computes this rank's index in its ring, the index of the ring, and its place. Opens this rank's
 * views of the job's endpoint (views.c). */
int model_open_views(struct model *m, const struct model_options *o, struct err *e);

/* model_fetch fetches the weights of a section, and model_fetch_head the weights that the head
 * reads. Both do nothing except with zero 3. model_clear is called before the gradient of a bucket
 * is computed, and model_reduce when it is complete. Both do nothing unless gradients are summed
 * by bucket. */
int model_fetch(struct model *m, int bucket, struct err *e);
int model_fetch_head(struct model *m, struct err *e);
int model_clear(struct model *m, int bucket, struct err *e);
int model_reduce(struct model *m, int bucket, bool last, struct err *e);
/* Returns the address at which the gradient of EMBED is summed. */
float *model_embed_grad(struct model *m);
/* Returns the number of rows of a shard that are not padding. */
int64_t model_prompt_rows(const struct shard *sh);

#endif
