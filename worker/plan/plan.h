/* plan.h: computes a job's memory and communication before the job runs. Pure arithmetic.
 *
 * seqd uses this code to answer POST /v1/plan and to refuse jobs that cannot fit. seqrank uses the
 * same code to place its buffers. Each rank allocates one arena and one comm segment, and every
 * buffer has an offset in one of them. Addresses are computed from the plan, so the plan must be
 * right to the byte. Tests compare the plan with the pages that the process really touched.
 *
 * The formulas of communication come from the algorithm (worker/plan/volume.h) and never from the
 * transport's counters. The counters must be equal to the results of the formulas.
 *
 * A rank makes these calls with a plan:
 *     plan_make(&spec, limit, &plan, e)
 *     be_open with scratch_later
 *     arena = plan.arena_size zeroed bytes of the device's alloc; and the host's part, if any
 *     be_give_scratch with (char *)arena + plan.item[PLAN_SCRATCH].offset
 *     comm_listen with segment_size = plan.segment_size (0 for one rank: no comm at all)
 *     model_init / train_init with the bases */
#ifndef SEQD_PLAN_PLAN_H
#define SEQD_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/adapter.h"
#include "api/core/choices.h"
#include "api/core/model_shape.h"
#include "api/core/rank.h"
#include "worker/family/family.h"
#include "worker/plan/away.h"
#include "worker/plan/axes.h"
#include "worker/plan/counts.h"
#include "worker/plan/param.h"
#include "worker/plan/pipe.h"
#include "worker/plan/shard.h"
#include "worker/plan/zero.h"
#include "worker/program/placement.h"

struct job_spec;

/* ---- memory ---------------------------------------------------------------------------------- */

enum plan_class {
    PLAN_WEIGHTS,
    PLAN_GRADIENTS,
    PLAN_OPTIMIZER,
    PLAN_ACTIVATIONS,
    PLAN_WORKSPACE,
    PLAN_RING,
    PLAN_CACHE,
    PLAN_DATA,
    PLAN_CLASS_N
};
const char *plan_class_name(enum plan_class c);
/* Returns the bytes of an element of precision p. */
static inline int64_t precision_size(enum precision_id p)
{
    return p == PRECISION_FP32 ? 4 : 2;
}

/* Every buffer of a rank. In the comments below, T is the number of the rank's rows, C the width,
 * H the number of heads, Hk of KV heads, D the size of a head, I the ffn width, V the vocabulary
 * and L the number of layers. Elements are float32 unless the comment gives another type; act
 * means the plan's precision. */
enum plan_id {
    PLAN_PARAMS,  /* weights in act or in blocks: plan_weights_size() bytes */
    PLAN_FETCHED, /* zero_window() bytes; zero 3: the weights of the bucket that is in use */
    PLAN_GRAD,    /* [n_grad + grad_skip], or [window] if by_bucket is set; for train and verify */
    /* [n_shard]. Used under "ranks" if there is more than one micro-batch. Also used if by_bucket
     * is set and fused is not set. */
    PLAN_GRAD_ACC,
    /* [largest part of the embedding]: the head's part of a tied embedding's gradient. If there is
     * one stage, it is used only if gradients are summed by bucket. If there are several stages,
     * the first stage receives the part in this buffer. The last stage keeps the part in this
     * buffer if gradients are summed by bucket. */
    PLAN_GRAD_TIED,
    PLAN_MASTER, /* [n_shard] weights that the optimizer updates; for training in 16 bits */
    PLAN_ADAM_M, /* [n_shard] */
    PLAN_ADAM_V, /* [n_shard] */
    PLAN_EMA,    /* [n_shard] moving average of the weights; for ema.decay */
    /* [2, arrays of the store, offload.piece]: used instead of the arrays if they are offloaded */
    PLAN_UPDATE,
    PLAN_TREE,     /* [log2(sum chunks), largest tensor]: partial weight gradients; for "ranks" */
    PLAN_X,        /* [T, C] act: residual streams (n_streams for each sequence that is kept) */
    PLAN_DX,       /* [T, C] act: gradients of the streams (n_dx) */
    PLAN_WORK,     /* the workspace that all sections share */
    PLAN_LOGITS,   /* [loss_chunk, V], inside WORK or GRAD (extent.logits_apart); not for embed */
    PLAN_RING_KV0, /* segment: [T, 2*Hk*D] act */
    PLAN_RING_KV1,
    PLAN_RING_DKV0, /* segment: [T, 2*Hk*D] */
    PLAN_RING_DKV1,
    PLAN_RING_PART,  /* segment: partial (o, lse) of decode */
    PLAN_BOUNCE,     /* segment: collectives */
    PLAN_RING_M,     /* [H, T] */
    PLAN_RING_DELTA, /* [H, T] */
    PLAN_IDS,        /* int32 [T] */
    PLAN_TARGETS,    /* int32 [T] */
    PLAN_POS,        /* int64 [T] */
    PLAN_LO,         /* int64 [T] */
    PLAN_HI,         /* int64 [T] */
    /* double [T]; for diffusion [T, places], because each place of a row has a loss */
    PLAN_NLL,
    PLAN_INV_FREQ, /* double [rope_tables(), rotary columns / 2] */
    PLAN_SUMSQ,    /* double [units] (worker/plan/zero.h) */
    PLAN_SCRATCH,  /* scratch of the backend: device_scratch() bytes */
    /* Records that sections keep for the backward (see plan_record()). If the item's `shared` is
     * set, it is inside PLAN_GRAD (lent.h). If there are several stages, there is one set of
     * records for each sequence that is kept. PLAN_LO_ALL and PLAN_HI_ALL also exist once for each
     * of these sequences. */
    PLAN_KEPT,
    PLAN_CACHES, /* generate: records of caches and states, at plan_cache() */
    /* With pages (paged.h): int32 [batch, table]: the page tables of the sequences; int64 [sp * T]
     * each: the range of this rank's keys that each query of a piece sees; segment: the buffers of
     * struct sp_paged (worker/sp/paged.h) */
    PLAN_PAGE_TABLES,
    PLAN_PAGE_LO,
    PLAN_PAGE_HI,
    PLAN_PAGE_PARTS,
    /* values that section `in` shares, one after another, as plan_shared() says */
    PLAN_SHARED,
    PLAN_DSHARED,    /* gradients of PLAN_SHARED */
    PLAN_STATE_SEND, /* segment: 2 states of linear attention to send (struct linear_buffers) */
    PLAN_STATE_RECV, /* segment: 2 received states */
    PLAN_STATE_ALL,  /* segment: all_gather: [sp * parts] summaries */
    PLAN_STATE_M,    /* [parts] summaries of this rank */
    PLAN_CARRY_SEND, /* segment: 2 states of struct sp_carry (worker/sp/carry.h) */
    PLAN_CARRY_MAP,  /* scan: matrices A of this rank */
    PLAN_CARRY_ALL,  /* segment: all_gather: [sp] maps, which are A and b */
    PLAN_SLOPES,     /* double [L, H]: decays of linear attention, a row for each layer */
    PLAN_ATTN_WORK,  /* buffers of the form of attention (worker/plan/attention.h) */
    PLAN_ATTN_SEGMENT,
    /* int64 [ulysses * T]: lo and hi of the group's rows; if strategy_row.ranges is set */
    PLAN_LO_ALL,
    PLAN_HI_ALL,
    PLAN_SWITCH_SEND, /* segment: DSP's all-to-all */
    PLAN_SWITCH_RECV,
    /* segment: [2] streams: one to the next stage, and a gradient to the previous stage */
    PLAN_PIPE_SEND,
    /* segment: [plan_tied_sends] parts of the head's gradient, which are sent to the first stage.
     * Used on the last of several stages, if the embedding is tied. */
    PLAN_TIED_SEND,
    PLAN_PIPE_REST, /* segment: unused room, because all segments have the same size */
    PLAN_TYPES,     /* int32 [T]: token types */
    PLAN_GROUP,     /* int32 [T]: index of each row's conditioning vector */
    PLAN_GROUP_ALT, /* int32 [T_alt] */
    PLAN_PATCHES,   /* [T, patch]: the input of PATCH (struct batch_latents) */
    PLAN_TARGET,    /* [T, places, shape_targets()]: the targets of MSE and NOISE */
    /* [T, patch / in_channels]: weights of places in MSE; [T] with pairs: weights of rows */
    PLAN_ROW_WEIGHT,
    PLAN_CAPTION, /* [text_len, caption_channels] */
    /* LASP in time: [n_windows] states of all layers: one at each border of windows, and one for a
     * gradient */
    PLAN_CARRY,
    /* segment: [2] states of all layers: one from the last rank to the first rank, and one from
     * the first rank to the last rank */
    PLAN_CARRY_PASS,
    /* Inference: additional buffers (worker/plan/memory_infer.c). Some buffers are used only by
     * rank 0, but every rank's plan has them, so that any rank can use the same plan. */
    PLAN_CONTEXT_BEFORE, /* context.load: a state of each layer, of the largest state's size */
    /* generate: states after the prompt; every continuation of the prompt except the first starts
     * from these states */
    PLAN_CONTEXT_BEHIND,
    /* The next four items and PLAN_CONTEXT_BEHIND exist once for each sequence of the batch. */
    PLAN_ANSWER_LOGITS, /* [2, V]: logits of the next token, and logits after the prompt */
    PLAN_SAMPLER,       /* 25 V bytes */
    PLAN_ANSWER_TOKENS, /* int32 [n_decode] */
    /* double [n_decode], followed by the alternatives of each token; used on rank 0 */
    PLAN_ANSWER_LOGPROBS,
    /* With pages: [T] log-probabilities of a piece of a prompt, each with its alternatives, and, if
     * sp > 1, [sp, T] of them, which are used on rank 0 */
    PLAN_PROMPT_LOGPROBS,
    /* int32 [S] tokens, followed by [S] bytes; byte i is 1 if token i may be a target */
    PLAN_SCORE_WINDOW,
    /* double [2, sp * T]: nll in the order of ranks, followed by nll in the order of positions;
     * used on rank 0 */
    PLAN_SCORE_ROWS,
    PLAN_SCORE_BUCKETS, /* one sum for each bucket of positions; used on rank 0 */
    /* [T, patch]: sampling: a prediction, in the layout of PATCHES */
    PLAN_VELOCITY,
    /* [T, patch]: ancestral sampling: variances, which the drawn values then overwrite */
    PLAN_SPREAD,
    /* [sp * T / frames, patch / in_channels]: one channel of a frame of patches. With own_memory,
     * this rank's part of it follows. */
    PLAN_PLANE,
    /* in the host's memory: the largest result of op_stage() for any step */
    PLAN_STAGE,
    PLAN_OFFLOAD, /* in the host's memory: the store of struct offload_plan */
    /* In the host's memory: the experts that rows choose in a proof. The ranks have one set for
     * each sequence between its forward and its backward pass. The reference has one set for each
     * sample. */
    PLAN_ROUTES,
    /* merge: A and B of one product, fp32; two blocks of a tensor that is read by blocks
     * (param_block), fp32; two blocks of it as it is written, act */
    PLAN_MERGE_ADAPTER,
    PLAN_MERGE_BLOCKS,
    PLAN_MERGE_FILE,
    PLAN_ID_N
};

/* The reason why infer.batch "auto" gives no more prompts. */
enum plan_batch {
    BATCH_ASKED,  /* the job, or its kind, sets the number */
    BATCH_MOST,   /* JOB_AUTO_BATCH */
    BATCH_WORTH,  /* one more prompt would save little: plan_batch_worth() */
    BATCH_CACHES, /* the caches of one more prompt would be too large: plan_batch_worth() */
    BATCH_FITS,   /* one more prompt would not fit into the memory */
    BATCH_BOUNDS
};

struct plan_item {
    const char *name; /* "residual", "kept", ...; NULL if this job does not use the buffer */
    enum plan_class cls;
    /* offset is in the comm segment; if false, in the arena or in the host's part */
    bool in_segment;
    bool in_host; /* offset is in the host's part, which exists only with own_memory */
    /* the buffer is in the arena, and the host has a copy of it at offset `mirror` of the host's
     * part */
    bool mirrored;
    int64_t mirror;
    /* the buffer is inside PLAN_WORK or PLAN_GRAD, so totals do not count it again */
    bool shared;
    int64_t offset, size; /* in bytes; size is the size of all instances */
    /* bytes from the start of one instance to the start of the next instance; 0 if there is only
     * one instance */
    int64_t stride;
};

/* Returns the address at which the host uses a buffer. It is the host's copy if there is one, and
 * otherwise the buffer itself. arena and host are the starts of the plan's two parts. */
static inline void *plan_on_host(const struct plan_item *it, void *arena, void *host)
{
    if (it->mirrored) return (char *)host + it->mirror;
    return (char *)(it->in_host ? host : arena) + it->offset;
}

struct plan {
    struct plan_item item[PLAN_ID_N];
    int64_t arena_size, segment_size; /* bytes of a rank on the device, multiples of PLAN_PAGE */
    /* The device has memory of its own. If this is false, the host's part is empty, and the
     * buffers of the host's part are in the arena. */
    bool own_memory;
    int64_t host_size; /* bytes of a rank's host part, a multiple of PLAN_PAGE */
    /* bytes of each class; the sum of all classes and `rounding` is arena_size + segment_size */
    int64_t class_size[PLAN_CLASS_N];
    int64_t rounding; /* bytes of alignment gaps and of the rounding to pages */
    /* The part of the arena that the one-rank reference uses, for verify and for train with
     * verify.first_step. If there are several stages, only the plan of the first stage has it. */
    int64_t reference_offset, reference_size;
    int64_t reference_host_offset; /* offset, in the host's part, of the reference's host part */
    enum job_kind kind;            /* a serve job has JOB_GENERATE, because its work is the same */
    int64_t seq_len;               /* tokens of the longest sequence */
    /* S: number of tokens of a sequence that a ring holds at a time; T: number of rows of a
     * rank */
    int64_t S, T;
    /* LASP in time: number of windows of S tokens in a sequence; if it is 1 and the plan has no
     * pages, S is seq_len */
    int64_t n_windows;
    /* LASP in time: bytes of the states of all layers; 0 if there is one window */
    int64_t carry_size;
    int n_ranks, n_threads; /* n_ranks = dp * pp * sp * tp; plan_axes() gives their order */
    /* sp: number of ranks of a ring; dp: number of rings, each of which computes its own
     * samples */
    int sp, dp;
    /* Number of consecutive ranks of a ring that share heads. It is sp for ulysses, a divisor of
     * sp for usp, and 1 for all other strategies. */
    int ulysses;
    int pp, tp; /* pp: number of stages; tp: number of ranks that share the heads of a layer */
    /* The sections of each stage, and the index of this plan's stage. The shards, the memory and
     * the n_* of weights in this plan are for one rank of this stage. */
    struct pipe pipe;
    /* stages are divided by memory, because stages divided by work would not fit */
    bool cut_by_memory;
    /* arena_size of each stage; not used if there is one stage */
    int64_t stage_size[JOB_MAX_RANKS];
    /* largest host_size and largest offload.disk_size of all stages. The stage with the largest
     * arena, whose plan stands for all stages, can have less. */
    int64_t host_most, disk_most;
    /* largest number of sequences that are kept between forward and backward pass at a time; 1 if
     * there is one stage */
    int64_t slots;
    enum strategy_id strategy;   /* never AUTO */
    enum form_id form;           /* rsa's; never AUTO */
    enum layout_id layout;       /* never AUTO */
    enum recompute_id recompute; /* never AUTO */
    enum precision_id precision; /* precision of weights, activations and inputs of products */
    bool rank_bits;              /* determinism "ranks" */
    /* ZeRO stage; 0 in jobs that do not train, and 0 if gradients are summed over only one rank */
    int zero;
    /* number of ranks that share one set of shards; with zero 0, number of all ranks that sum
     * gradients */
    int zero_group;
    /* The gradient of a bucket is complete and leaves its memory within the backward pass. This is
     * set with zero 2 and 3, if the optimizer is offloaded, and whenever fused is set. */
    bool by_bucket;
    bool fused; /* each bucket is updated as soon as its gradient has been summed */
    bool ema;   /* a moving average of the weights is kept */
    /* Pairs of answers are learnt. The rows' losses are computed before the backward pass, in which
     * they have factors. */
    bool pairs;
    /* objective.label_smoothing and objective.z_loss of the cross-entropy that is trained; 0 in
     * other jobs, and with pairs */
    double label_smoothing, z_loss;
    bool noise;         /* a training step adds noise to embeddings (train.neftune_alpha) */
    struct zero shards; /* owners of all elements; a group has zero_group ranks */
    /* Number of trained elements of the largest shard. With zero 0, number of trained elements of
     * the stage's own buckets. */
    int64_t n_shard;
    int64_t loss_chunk; /* number of tokens; at most the tokens of a sum chunk */
    /* number of tokens of a piece of a dense MLP, at most the tokens of a sum chunk; 0 if MLPs are
     * not run in pieces */
    int64_t mlp_chunk;
    /* number of elements, including borrowed ones; param_count if there is one stage */
    int64_t n_params;
    /* Number of elements that have gradients, which are those of trained tensors. A borrowed
     * embedding counts if this stage sums the embedding's gradient. */
    int64_t n_trained;
    /* elements between bucket 0 and the layers (lent.h); 0 if there is no gap */
    int64_t grad_skip;
    /* Number of elements of PLAN_GRAD. It is n_trained, plus the embedding's own sum if it is tied
     * and needs one, rounded up. */
    int64_t n_grad;
    int64_t tree_size; /* elements of one level of PLAN_TREE; 0 if there is no tree */
    int64_t n_decode;  /* generate: number of tokens that may be appended */
    /* generate: number of rows of this rank's cache for each layer and sequence */
    int64_t cache_rows;
    /* generate: number of sequences that have a cache (infer.batch); otherwise 1 */
    int batch;
    /* Serve: set if sequences lie in pages (paged.h). piece: most tokens of a piece of a prompt;
     * S is then a piece with the same number of pages on each rank. n_pages: pages of this rank's
     * pool; table: pages of the longest sequence on a rank. */
    bool paged;
    /* with pages, unless determinism is "off": a row's bits may not depend on the number of rows of
     * a call, so that the device takes no kernels of a library */
    bool row_bits;
    int64_t piece, n_pages, table;
    int n_kept_states;        /* states of sequences that are kept besides those of the batch */
    enum plan_batch batch_by; /* reason why batch is not larger, if the plan decides batch */
    /* number of sequences of a ring in a step; in train, global_batch / dp */
    int64_t micro_batches;
    /* Counts of rank 0. If plan_of_rank has made the plan and pp > 1, counts of the rank for which
     * the plan was made. */
    struct comm_count comm[PURPOSE_N];
    /* Flops of a step on all ranks. Causal attention counts once. The second forward pass of LASP
     * in time counts as well. Additional work of memory.recompute or memory.mlp_chunk_tokens does
     * not count. */
    double flops;
    char reason[832]; /* reason why this strategy, layout and recompute mode were chosen */
    /* ---- of the family's program ---- */
    struct extent extent;      /* sizes of this rank's sections */
    enum exchange_id exchange; /* never AUTO */
    /* DSP: number of patches of a frame (N0, space) and number of frames (N1, time); 0 if there is
     * no grid */
    int64_t grid[2];
    int64_t stream_size; /* bytes of one of the n_streams residual streams, rounded up */
    struct offload_plan offload;
    /* n_streams is the number of buffers of PLAN_X. In a training there are L + 1 buffers, or
     * fewer if streams are offloaded. Stream b is the output of section b (`in` is section 0). The
     * streams that no backward pass reads share two buffers and alternate between them.
     *
     * In other jobs there is one buffer. If the placement of a section is not in_place, there are
     * two, because that section cannot write its result to the buffer that it reads. n_dx is the
     * number of buffers of PLAN_DX. It is 0 without a backward pass, 2 if the placement of a
     * section is not grad_in_place, and otherwise 1. If there are several stages, n_streams and
     * n_dx are numbers of buffers for each sequence. */
    int n_streams, n_dx;
    /* bytes of a record for each kind of layer, rounded up; the last entry is for section `in` */
    int64_t kept[FAMILY_KINDS + 1];
    /* bytes of a record of caches and states for each kind of layer, rounded up */
    int64_t cache[FAMILY_KINDS];
};

static inline struct axes plan_axes(const struct plan *p)
{
    return (struct axes){.dp = p->dp, .pp = p->pp, .sp = p->sp, .tp = p->tp};
}
/* Returns the place of a rank of the job: .d is the index of its ring, and .s is its index in the
 * ring. */
static inline struct axes_place plan_place(const struct plan *p, int rank)
{
    const struct axes a = plan_axes(p);
    return axes_place(&a, rank);
}

/* plan_adds_here tells whether each rank adds up its own gradients in the store, whose sum over the
 * sequences is then summed over ranks once. This is the order of the additions that zero 0 and 1
 * have if nothing is offloaded.
 *
 * plan_sums_each tells whether gradients are summed over ranks after each sequence.
 * plan_sums_in_step returns how often they are summed in a step. In a pipeline, the last stage
 * sends its part of a tied embedding's gradient to the first stage at each of these sums. */
static inline bool plan_adds_here(const struct plan *p)
{
    return p->offload.optimizer && p->kind == JOB_TRAIN && p->zero < 2 && !p->rank_bits &&
           !p->fused;
}
static inline bool plan_sums_each(const struct plan *p)
{
    return (p->by_bucket && !plan_adds_here(p)) || p->rank_bits;
}
static inline int64_t plan_sums_in_step(const struct plan *p)
{
    return plan_sums_each(p) ? p->micro_batches : 1;
}
/* Returns how many parts of a tied embedding's gradient may be sent by the last stage and not yet
 * received by the first stage. */
static inline int64_t plan_tied_sends(const struct plan *p)
{
    return pipe_lent(&p->pipe, plan_sums_in_step(p));
}

/* Makes the shard of rank s of a ring for a sequence of S tokens. If the plan has a grid, makes
 * the shard of the grid instead. Fails as shard_init does. */
int plan_shard(const struct plan *p, int64_t S, int s, struct shard *out, struct err *e);

/* ---- a family's sections --------------------------------------------------------------------- */

/* Schedules and placements of a family's sections. Together with the plan's items they are all
 * that is needed to run a model. They depend only on the shape and the plan, and are computed
 * wherever they are needed. They take some megabytes. */
struct section {
    struct schedule steps;
    struct placement at;
    /* place of each weight, and size of all weights, in bytes (store_places) */
    int64_t weight_at[PROG_WEIGHTS], weights_size;
};
struct sections {
    struct family family;
    struct section in, out, layer[FAMILY_KINDS];
};
void plan_sections(const struct model_shape *m, const struct plan *p, struct sections *out);
/* Returns the bytes of the weights that a rank has. They are all sections of the rank's stage, one
 * after another; a borrowed table comes last. With zero 3 they are the largest shard of these
 * sections. */
int64_t plan_weights_size(const struct plan *p);
/* Returns the bytes of a whole model's weights if the weights of products are stored in blocks and
 * all other weights in 16 bits. Returns 0 if the weight of some product cannot be stored in
 * blocks. */
int64_t plan_blocks_size(const struct model_shape *m, enum weights_id format);
/* Finds the first weight of a product that cannot be stored in blocks. Returns its name and the
 * reason, as the end of a sentence, such as "NAME: its rows of 48 values are no blocks of 32".
 * Returns NULL if all weights can be stored in blocks. room is memory for the text. */
#define PLAN_FAULT_SIZE 288
const char *plan_blocks_fault(const struct model_shape *m, enum weights_id format,
                              char room[PLAN_FAULT_SIZE]);
/* Returns the mode in which the plan's schedules are made. Set train for schedules that have a
 * backward pass. */
struct schedule_mode plan_schedule(const struct plan *p, bool train);
/* plan_record returns the offset in PLAN_KEPT, in bytes, of the record of section b while that
 * section runs. b is 0 for `in`, and 1 to L for the layers (`out` keeps nothing). plan_cache
 * returns the offset of the record in PLAN_CACHES, where b can only be a layer. */
int64_t plan_record(const struct model_shape *m, const struct plan *p, int b);
int64_t plan_cache(const struct model_shape *m, const struct plan *p, int b);
/* Returns the number of layers in the stages before this one. The index of section b of the model
 * within its stage is b minus this number. */
int plan_layers_before(const struct plan *p);
/* Returns how many of the stage's first streams are read by no backward pass, because the backward
 * pass ends before them (shape_freeze.first). */
int plan_streams_passed(const struct plan *p);
/* Returns the index of the buffer in PLAN_X that has stream b of a training. b is counted within
 * the stage. */
int plan_stream(const struct plan *p, int b);
/* Both functions return an offset, in bytes, in a sequence's part of the store. plan_stored_stream
 * returns the offset of stream b, counted within a stage. plan_stored_record returns the offset of
 * the record of layer b >= 1. The stream or record must be one that is copied. */
int64_t plan_stored_stream(const struct plan *p, int b);
int64_t plan_stored_record(const struct model_shape *m, const struct plan *p, int b);
/* Returns the bytes that are copied out in one forward and backward pass over T rows. As many
 * bytes are copied back. */
int64_t plan_offloaded(const struct plan *p, int64_t T);
/* Tells whether the plan has a store, for activations or for the optimizer. */
static inline bool plan_stores(const struct plan *p)
{
    return p->offload.on || p->offload.optimizer;
}
/* Returns the value of memory.offload that this plan realizes. */
static inline enum offload_id plan_offload_id(const struct plan *p)
{
    if (p->offload.optimizer) return p->offload.on ? OFFLOAD_ALL : OFFLOAD_OPTIMIZER;
    return p->offload.on ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
}
/* Tells whether the backward pass of section `in` reads weights, so that zero 3 has to fetch its
 * bucket again. The backward pass of an embedding alone reads no weights. */
bool plan_fetches_in(const struct model_shape *m, const struct plan *p);
/* Returns how many tokens of a sequence of S tokens are computed at a time. This is S or, for LASP
 * in time, the length of a window. */
int64_t plan_held(const struct plan *p, int64_t S);
/* Returns the number of pieces into which a scan divides a state. n is the number of rows or heads
 * of the state. */
int plan_scan_pieces(int64_t n);
/* Returns the offset in PLAN_SHARED, in bytes, of shared value k. If `gradient` is set, returns
 * the offset of its gradient in PLAN_DSHARED. If k is n_shared, returns the end. */
int64_t plan_shared(const struct program *in, const struct plan *p, int k, bool gradient);

/* Makes the plan of a job. spec must have passed family_check. memory_limit is in bytes per rank;
 * 0 means that there is no limit. Fails with ERR_DOES_NOT_FIT, whose text has the numbers and the
 * remedies. Also fails with ERR_INVALID or ERR_TOO_LARGE.
 *
 * A plan counts one step. A step depends on the kind of job:
 *   train                one optimizer step
 *   score                one window of S tokens
 *   generate             the prefill of a full prompt
 *   generate, diffusion  one forward pass over the largest sample
 *   embed                documents of S tokens
 *   verify               one forward and backward of each sample; comm does not count the
 *                        gathering of logits
 *
 * S is data.seq_len, with these exceptions:
 *   train                the seq_len of the longest stage, or a window of it
 *   generate             the number of the prompt's bytes, if the prompt is literal and the job
 *                        has no seq_len
 *   verify               at most verify.max_tokens
 *   diffusion            the number of patches of the largest sample */
int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e);

/* Makes the plan for the stage of rank `rank`. That rank then places this plan. `p` may be the
 * plan of any stage. plan_make makes the plan of the stage that needs the largest amount of
 * memory. All stages have the same segment_size. */
int plan_of_rank(const struct job_spec *spec, const struct plan *p, int rank, struct plan *out,
                 struct err *e);
/* Sets the shards and counts of a stage in *p, but not its memory. plan_comm and the estimate read
 * the shards and counts. */
void plan_set_stage(struct plan *p, int stage);

/* Returns how many alternatives a generate job may report with each token. This is
 * PLAN_ALTERNATIVES if each request gives its own number. Returns -1 if the job may not even
 * report log-probabilities. */
#define PLAN_ALTERNATIVES 20
int plan_alternatives(const struct job_spec *spec);
/* Returns the most positions that the model of a job is made for, or INT64_MAX if any number is
 * right: in a new model, and in one that has no positions. */
int64_t plan_positions(const struct job_spec *s);
/* Returns how many prompts, 1 to JOB_AUTO_BATCH, a generate job should process together. Sets *by
 * to the bound that decided the number. p must be placed. memory_limit is in bytes per rank; 0
 * means that it is not known. There are two bounds:
 *   BATCH_WORTH   n prompts share one reading of the weights, which are W bytes. Each prompt reads
 *                 its own full cache, which is C bytes. So a token reads W / n + C bytes, and one
 *                 more prompt saves W / (n (n + 1)) bytes. The result is the first n for which
 *                 this is less than 1/32 of a token's bytes.
 *   BATCH_CACHES  The caches of all prompts have n C bytes. This may be at most the larger of W
 *                 and an eighth of memory_limit. */
int plan_batch_worth(const struct plan *p, int64_t memory_limit, enum plan_batch *by);

/* Returns how many tokens are verified. For a verify job these are all tokens of its sequence. For
 * a training these are the tokens of its first sequence that verify.first_step uses. */
int64_t plan_verify_seq(const struct job_spec *spec, const struct plan *p);

/* Returns how many samples of the order are verified, from the first on. A pipeline verifies one
 * more than it has stages, so every slot of every stage has a sample; the first slot has two. */
int plan_verify_samples(const struct plan *p);

/* Makes the plan of the one-rank reference of a proof. The reference is in the same arena as the
 * rank's own part, at p->reference_offset. Offsets in *ref are relative to that offset. In a
 * pipeline, p is the plan of the first stage. The reference uses the scratch of p. If a rank has
 * all parameters, it also uses the parameters of p. Fails with ERR_DOES_NOT_FIT, but never for a
 * plan that plan_make has made. */
int plan_reference(const struct job_spec *spec, const struct plan *p, struct plan *ref,
                   struct err *e);

/* Makes *out, which is plan p at a length S of at most p->S, for a stage or for a part of a batch.
 * Computes T, comm and flops of a step of `micro_batches`. The memory is that of p. Fails with
 * ERR_TOO_LARGE if S is more than p->S. */
int plan_at(const struct job_spec *spec, const struct plan *p, int64_t S, int64_t micro_batches,
            struct plan *out, struct err *e);

/* Computes the buffers of attention over the sequence that are not items of every plan. If a
 * strategy has no attention, there are no buffers. */
struct attention_need;
void plan_attention(const struct plan *p, int64_t H, int64_t Hk, int64_t D,
                    struct attention_need *out);
/* Makes *out, which is plan p for a sample whose grid is `grid` (diffusion). This differs from
 * plan_at only in that a grid takes the place of S. `grid` is the number of patches of a frame,
 * and the number of frames. */
int plan_at_grid(const struct job_spec *spec, const struct plan *p, const int64_t grid[2],
                 int64_t micro_batches, struct plan *out, struct err *e);

/* Tells whether gradients and losses are also summed over rings. This is true in jobs with a
 * backward pass. */
bool plan_sums_rings(const struct plan *p);
/* plan_sum_ranks returns the number of ranks over which gradients and losses are summed. These
 * ranks have the same stage and the same index of tp. If plan_sums_rings is false, they are also
 * of the same ring. plan_sum_place returns the index of `rank` among them. */
int plan_sum_ranks(const struct plan *p);
int plan_sum_place(const struct plan *p, int rank);

/* Returns how many numbers ranks sum with the loss: the loss and, with pairs, the sums that
 * worker/train/prefer.h lists. */
#define PLAN_PAIR_VALUES 5
static inline int plan_loss_values(const struct plan *p)
{
    return p->pairs ? PLAN_PAIR_VALUES : 1;
}

/* Sets plan.reason from the other fields of the plan. plan_make and tests call it. */
void plan_explain(const struct job_spec *spec, struct plan *p);
/* Writes the plan as JSON: memory by class and by tensor, communication by purpose, flops, reason.
 * Returns the length, or -1 if the text does not fit. */
int64_t plan_json(const struct job_spec *spec, const struct plan *p, char *out, size_t size);

/* Writes a size like "3.2 GiB" into out (at least 24 bytes). Returns out. */
char *plan_bytes(char *out, int64_t n);

#define PLAN_PAGE 4096

/* Number of consecutive tokens that one rank appends to its cache, before the next rank appends
 * its tokens. */
#define CACHE_BLOCK 16

#endif
