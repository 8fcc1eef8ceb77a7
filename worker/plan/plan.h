/* plan.h: computes a job's memory and communication before the job runs. Pure arithmetic.
 *
 * seqd links this to answer POST /v1/plan and to refuse jobs that cannot fit; seqrank links the
 * same code to place its buffers: each rank allocates one arena and one comm segment, once, and
 * every buffer is at base + offset. Addresses are computed from the plan, so it must be right to
 * the byte. Tests compare it with the pages that the process really touched.
 *
 * Communication formulas are derived from the algorithm (worker/plan/volume.h), never from the
 * transport's counters, which must be equal to their results.
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
#include "api/core/choices.h"
#include "api/core/model_shape.h"
#include "api/core/rank.h"
#include "worker/family/family.h"
#include "worker/plan/axes.h"
#include "worker/plan/pipe.h"
#include "worker/plan/shard.h"
#include "worker/plan/zero.h"

struct job_spec;

/* ---- parameters (worker/plan/param.c) -------------------------------------------------------- */

/* A tensor of the flat parameter layout. The layout has every tensor of the model, by its name in
 * the checkpoint, in the order of the family's program: section `in`, the layers, `out`
 * (worker/family). The Llama family, for example, has:
 *   embed_tokens; per layer input_layernorm, q|k|v, o, post_attention_layernorm, gate|up, down;
 * norm; lm_head unless tied. Tensors joined by | follow each other without a gap so that one
 * matrix product can use them together; every other tensor starts at a multiple of 16 elements.
 * Gradients and Adam's m and v have the same layout. Offsets and counts are in elements. */
struct param {
    char name[64];      /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols is 0 if it has one dimension, of `rows` */
    int64_t offset, count;
    int64_t grad_offset; /* if it is trained, its first element in the layout of gradients */
    bool decay;          /* weight decay applies (matrices) */
    enum init_id init;   /* distribution of its random weights */
    /* As in struct weight: */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed;
    int32_t stack;
    bool frozen; /* has no gradient and no weight decay */
    /* The tensor has moments and a place in the layout of gradients. With train.freeze, frozen
     * tensors do not. The trained tensors of a bucket come first, and their gradients have the
     * same order and distances. */
    bool trained;
    bool of_ids;
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    int32_t n_dims;
    int64_t dims[5];
};
/* Returns the elements of the flat buffer, including gaps, which is the offset of its end and a
 * multiple of 16. */
int64_t param_count(const struct model_shape *m);
/* param_section returns the index of the element at which a bucket's weights begin.
 * param_grad_section returns the index at which its gradients begin in the layout of gradients,
 * which has only the trained tensors. The bucket after the last one begins at the end. */
int64_t param_section(const struct model_shape *m, int bucket);
int64_t param_grad_section(const struct model_shape *m, int bucket);
/* Counts the tensors. */
int param_tensors(const struct model_shape *m);
/* Finds the tensors of a bucket (zero.h), whose indices are [*first, *last). Bucket 0 is `in`,
 * buckets 1 to L are the layers, and L + 1 is `out`. */
void param_range(const struct model_shape *m, int bucket, int *first, int *last);
/* Writes the prefix of the names of a bucket's tensors, such as "model.layers.3.". p is the
 * bucket's program. */
void param_prefix(const struct program *p, int bucket, char out[64]);
/* Describes the i-th tensor, 0 <= i < param_tensors. */
void param_get(const struct model_shape *m, int i, struct param *out);
/* Describes the tensors of a bucket. out must have room for PROG_WEIGHTS. Returns how many there
 * are. If first is not NULL, sets *first to the index of the first tensor. Describing them one at
 * a time would take quadratic time. */
int param_bucket(const struct model_shape *m, int bucket, struct param *out, int *first);
/* Describes the first max tensors. Returns how many tensors the model has. */
int param_list(const struct model_shape *m, struct param *out, int max);
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

/* Every buffer of a rank. In the comments T is the rows of the rank, C the width, H the heads, Hk
 * the KV heads, D the head size, I the ffn width, V the vocabulary and L the layers. Buffers are
 * float32 unless the comment says otherwise; act means the plan's precision. */
enum plan_id {
    PLAN_PARAMS,  /* [n_held] act, or blocks: plan_weights_size() bytes */
    PLAN_FETCHED, /* [window] act; zero 3: the weights of the bucket that is in use */
    PLAN_GRAD,    /* [n_grad + grad_skip]; for train and verify; [window] if by_bucket is set */
    /* [n_shard]; used under "ranks" with more than one micro-batch, and with by_bucket unless
     * fused is set */
    PLAN_GRAD_ACC,
    /* [largest part of the embedding]: the head's part of a tied embedding's gradient. With one
     * stage it is used if gradients go by bucket. With several stages the first stage receives the
     * part in it and, by bucket, the last stage keeps the part in it. */
    PLAN_GRAD_TIED,
    PLAN_MASTER,   /* [n_shard] weights that the optimizer updates; for training in 16 bits */
    PLAN_ADAM_M,   /* [n_shard] */
    PLAN_ADAM_V,   /* [n_shard] */
    PLAN_EMA,      /* [n_shard] moving average of the weights; for ema.decay */
    PLAN_TREE,     /* [log2(sum chunks), largest tensor]: partial weight gradients; for "ranks" */
    PLAN_X,        /* [T, C] act: residual streams (n_streams for each sequence that is kept) */
    PLAN_DX,       /* [T, C] act: gradients of the streams (n_dx) */
    PLAN_WORK,     /* the workspace that all sections share */
    PLAN_LOGITS,   /* [loss_chunk, V], in WORK or in GRAD (extent.logits_apart); not for embed */
    PLAN_RING_KV0, /* segment: [T, 2*Hk*D] act */
    PLAN_RING_KV1,
    PLAN_RING_DKV0, /* segment: [T, 2*Hk*D] */
    PLAN_RING_DKV1,
    PLAN_RING_PART,  /* segment: decode's partial (o, lse) */
    PLAN_BOUNCE,     /* segment: collectives */
    PLAN_RING_M,     /* [H, T] */
    PLAN_RING_DELTA, /* [H, T] */
    PLAN_IDS,        /* int32 [T] */
    PLAN_TARGETS,    /* int32 [T] */
    PLAN_POS,        /* int64 [T] */
    PLAN_LO,         /* int64 [T] */
    PLAN_HI,         /* int64 [T] */
    PLAN_NLL,        /* double [T]; for diffusion [T, places], one for each place of a row */
    PLAN_INV_FREQ,   /* double [rope_tables(), rotary columns / 2] */
    PLAN_SUMSQ,      /* double [units] (worker/plan/zero.h) */
    PLAN_SCRATCH,    /* device_scratch() bytes: the backend's */
    /* Records that sections keep for the backward (see plan_record()). It is within GRAD if the
     * item is shared (lent.h). With several stages there is one set for each sequence that is
     * kept, as there is for PLAN_LO_ALL and PLAN_HI_ALL. */
    PLAN_KEPT,
    PLAN_CACHES,     /* generate: records of caches and states, at plan_cache() */
    PLAN_SHARED,     /* values that section `in` shares, one after another, at plan_shared() */
    PLAN_DSHARED,    /* gradients of PLAN_SHARED */
    PLAN_STATE_SEND, /* segment: 2 states of linear attention (struct linear_buffers) */
    PLAN_STATE_RECV, /* segment: 2 received states */
    PLAN_STATE_ALL,  /* segment: all_gather: [sp * parts] summaries */
    PLAN_STATE_M,    /* [parts] summaries of this rank */
    PLAN_CARRY_SEND, /* segment: 2 states of struct sp_carry (worker/sp/carry.h) */
    PLAN_CARRY_MAP,  /* scan: the matrices A of one rank */
    PLAN_CARRY_ALL,  /* segment: all_gather: [sp] maps: A and b */
    PLAN_SLOPES,     /* double [L, H]: decays of linear attention, a row for each layer */
    PLAN_ATTN_WORK,  /* buffers of a form of attention (worker/plan/attention.h) */
    PLAN_ATTN_SEGMENT,
    PLAN_LO_ALL, /* int64 [ulysses * T]: lo and hi of the group's rows; for strategy_row.ranges */
    PLAN_HI_ALL,
    PLAN_SWITCH_SEND, /* segment: DSP's all-to-all */
    PLAN_SWITCH_RECV,
    /* segment: [2] streams, one to the next stage and a gradient to the previous one */
    PLAN_PIPE_SEND,
    /* segment: [plan_tied_sends] parts of the head's gradient, which go to the first stage; on the
     * last of several stages if the embedding is tied */
    PLAN_TIED_SEND,
    PLAN_PIPE_REST,  /* segment: unused room, because all segments have the same size */
    PLAN_TYPES,      /* int32 [T]: token types */
    PLAN_GROUP,      /* int32 [T]: index of each row's conditioning vector */
    PLAN_GROUP_ALT,  /* int32 [T_alt] */
    PLAN_PATCHES,    /* [T, patch]: the input of PATCH (struct batch_latents) */
    PLAN_TARGET,     /* [T, places, shape_targets()]: the targets of MSE and NOISE */
    PLAN_ROW_WEIGHT, /* [T, patch / in_channels]: weights of places in MSE */
    PLAN_CAPTION,    /* [text_len, caption_channels] */
    /* LASP in time: [n_windows] states of all layers, for the borders of windows and for a
     * gradient */
    PLAN_CARRY,
    /* segment: [2] states of all layers, one from the last rank to the first and one back */
    PLAN_CARRY_PASS,
    /* Inference: additional buffers (worker/plan/memory_infer.c). Buffers that only rank 0 reads
     * are planned on every rank, so that one plan can be used by any rank. */
    PLAN_CONTEXT_BEFORE, /* context.load: a state of each layer, in room for the largest */
    /* generate: states after the prompt, from which its other continuations start */
    PLAN_CONTEXT_BEHIND,
    /* The next four items, and PLAN_CONTEXT_BEHIND, exist once for each sequence of the batch. */
    PLAN_ANSWER_LOGITS, /* [2, V]: logits of the next token, and logits after the prompt */
    PLAN_SAMPLER,       /* 25 V bytes */
    PLAN_ANSWER_TOKENS, /* int32 [n_decode] */
    /* double [n_decode] and the alternatives of each token; used on rank 0 */
    PLAN_ANSWER_LOGPROBS,
    /* int32 [S] tokens, then [S] bytes, which are 1 where a token may be a target */
    PLAN_SCORE_WINDOW,
    /* double [2, sp * T]: nll in the order of ranks, then in that of positions; used on rank 0 */
    PLAN_SCORE_ROWS,
    PLAN_SCORE_BUCKETS, /* one sum for each bucket of positions; used on rank 0 */
    /* [T, patch]: sampling: a prediction, in the same layout as the sample in PATCHES */
    PLAN_VELOCITY,
    PLAN_SPREAD, /* [T, patch]: ancestral sampling: a variance, then the values drawn with it */
    /* [sp * T / frames, patch / in_channels]: one channel of a frame of patches and, with
     * own_memory, this rank's part of it */
    PLAN_PLANE,
    /* in the host's memory: the largest number of bytes that op_stage() returns for any step */
    PLAN_STAGE,
    PLAN_OFFLOAD, /* in the host's memory: the store of struct offload_plan */
    /* In the host's memory: the experts that rows of a proof choose. There is one set for each
     * sequence that is between its passes; in the reference, there is one for each sample. */
    PLAN_ROUTES,
    PLAN_ID_N
};

/* The reason why infer.batch "auto" does not mean more prompts. */
enum plan_batch {
    BATCH_ASKED,  /* the job or its kind gives the number */
    BATCH_MOST,   /* JOB_MAX_BATCH */
    BATCH_WORTH,  /* one more saves little: plan_batch_worth() */
    BATCH_CACHES, /* the caches of one more prompt would be too many bytes: plan_batch_worth() */
    BATCH_FITS,   /* one more prompt would not fit in the memory */
    BATCH_BOUNDS
};

struct plan_item {
    const char *name; /* "residual", "kept", ...; NULL if this job does not use the item */
    enum plan_class cls;
    bool in_segment; /* offset is into the comm segment; otherwise into the arena */
    bool in_host;    /* offset is into the host's part, which exists only with own_memory */
    /* in the arena, with a copy for the host at offset `mirror` of the host's part */
    bool mirrored;
    int64_t mirror;
    bool shared;          /* inside PLAN_WORK or PLAN_GRAD, so that totals do not count it again */
    int64_t offset, size; /* bytes; size of all instances */
    /* bytes from the start of an instance to that of the next; 0 if there is only one */
    int64_t stride;
};

/* Returns the address at which the host works with an item: the host's copy if there is one, else
 * the item itself. arena and host are the starts of the plan's two parts. */
static inline void *plan_on_host(const struct plan_item *it, void *arena, void *host)
{
    if (it->mirrored) return (char *)host + it->mirror;
    return (char *)(it->in_host ? host : arena) + it->offset;
}

/* The data that layers keep for the backward pass in a store outside the device's memory. The
 * store is the host's part. If the device has no memory of its own, it is a file. Streams 0 .. L-1
 * use n_ring buffers cyclically, and the records of layers use two. So the last streams and
 * records of a forward pass are still in their buffers when the backward pass asks for them, and
 * they are never copied. All other streams and records are copied out once and copied back once in
 * a pass. The store has streams first, then records, each in the order of layers.
 *
 * With several stages, layers and streams are numbered within each stage: its first layer is 1 and
 * reads stream 0. Each sequence that is kept between its passes has its own buffers and its own
 * part of the store. */
struct offload_plan {
    bool on;
    int n_ring, n_records; /* buffers on the device; stream L has a separate buffer */
    int n_out,
        /* streams 0 .. n_out-1 and the records of layers 1 .. n_records_out are copied */
        n_records_out;
    /* bytes of the part of the store that a sequence has; there are `slots` parts */
    int64_t slot_size;
    int64_t record_stride; /* bytes of a record's buffer */
    int64_t row_size;      /* bytes of one row of a stream */
    int64_t records_size;  /* bytes of the records that are copied */
    /* bytes of the store, and bytes of it in a file, a multiple of PLAN_PAGE */
    int64_t size, disk_size;
};

struct plan {
    struct plan_item item[PLAN_ID_N];
    int64_t arena_size, segment_size; /* bytes per rank on the device, multiples of PLAN_PAGE */
    /* The device has memory of its own. If not, the host's part is empty, and its items are in the
     * arena. */
    bool own_memory;
    int64_t host_size; /* bytes of the host's part per rank, a multiple of PLAN_PAGE */
    /* bytes; together with `rounding` they add up to arena + segment */
    int64_t class_size[PLAN_CLASS_N];
    int64_t rounding; /* alignment gaps and page rounding */
    /* For verify, and for train with verify.first_step: the part of the arena that the one-rank
     * reference uses; with several stages, in the plan of the first stage. */
    int64_t reference_offset, reference_size;
    int64_t reference_host_offset; /* offset of the reference in the host's part */
    enum job_kind kind;
    int64_t seq_len; /* tokens of the longest sequence */
    int64_t S, T;    /* S: tokens of a sequence that a ring holds at a time; T: rows per rank */
    /* LASP in time: number of windows of S tokens in a sequence; 1 means that S is seq_len */
    int64_t n_windows;
    /* LASP in time: bytes of the states of all layers; 0 if there is one window */
    int64_t carry_size;
    int n_ranks, n_threads; /* n_ranks = dp * pp * sp * tp, in the order of plan_axes() */
    /* sp: ranks of a ring; dp: number of rings; each ring computes its own samples */
    int sp, dp;
    /* The number of consecutive ranks of a ring that share heads. It is sp with ulysses, a divisor
     * of sp with usp, and otherwise 1. */
    int ulysses;
    int pp, tp; /* pp: stages; tp: ranks that share the heads of a layer */
    /* The sections of each stage, and the stage of this plan. The shards, the memory and the n_*
     * of weights are those of one rank of that stage. */
    struct pipe pipe;
    /* stages are divided by memory, because they would not fit if they were divided by work */
    bool cut_by_memory;
    int64_t stage_size[JOB_MAX_RANKS]; /* arena_size of each stage; not used with one stage */
    int64_t slots;             /* sequences that are kept between their passes; 1 with one stage */
    enum strategy_id strategy; /* never AUTO */
    enum form_id form;         /* rsa's; never AUTO */
    enum layout_id layout;     /* never AUTO */
    enum recompute_id recompute; /* never AUTO */
    enum precision_id precision; /* that of weights, activations and inputs of products */
    bool rank_bits;              /* determinism "ranks" */
    int zero;                    /* ZeRO stage; 0 unless training, and 0 if only one rank sums */
    int zero_group; /* ranks that share one set of shards; with zero 0, all ranks that sum */
    /* Gradients are summed bucket by bucket within the backward pass, and no rank has all of them.
     * Set with zero 2 and 3, and whenever fused is set. */
    bool by_bucket;
    bool fused;         /* each bucket is updated as soon as it is summed */
    bool ema;           /* a moving average of the weights is kept */
    struct zero shards; /* owners of all elements, in groups of zero_group ranks */
    /* trained elements of the largest shard; with zero 0, trained elements of the stage's own
     * buckets */
    int64_t n_shard;
    int64_t loss_chunk; /* tokens; at most a sum chunk */
    /* tokens of a piece of dense MLPs, at most a sum chunk; 0 if MLPs run whole */
    int64_t mlp_chunk;
    int64_t n_params; /* elements, including borrowed ones; with one stage, param_count */
    /* elements that have gradients, which are those of trained tensors; a borrowed embedding
     * counts if the stage sums a gradient of it */
    int64_t n_trained;
    /* elements: with zero 3, those of the largest shard and of borrowed weights; otherwise
     * n_params */
    int64_t n_held;
    int64_t grad_skip; /* elements between bucket 0 and the layers (lent.h); 0 if none */
    /* elements of PLAN_GRAD: n_trained (and a tied embedding's own sum), rounded up */
    int64_t n_grad;
    int64_t tree_size;        /* elements of one level of PLAN_TREE; 0 if there is no tree */
    int64_t n_decode;         /* generate: tokens that may be appended */
    int64_t cache_rows;       /* generate: rows of this rank's cache per layer and sequence */
    int batch;                /* generate: sequences that have a cache (infer.batch); otherwise 1 */
    enum plan_batch batch_by; /* why batch is not larger, if the plan decides it */
    int64_t micro_batches;    /* sequences of a ring in a step; in train, global_batch / dp */
    /* counts of rank 0; if the plan is from plan_of_rank with pp > 1, counts of that rank */
    struct comm_count comm[PURPOSE_N];
    /* Per step and for all ranks, with causal attention counted once. The second forward pass of
     * LASP in time is included; work that memory.recompute or memory.mlp_chunk_tokens adds is
     * not. */
    double flops;
    char reason[768]; /* why this strategy, layout and recompute mode were chosen */
    /* ---- of the family's program ---- */
    struct extent extent;      /* sizes of this rank's sections */
    enum exchange_id exchange; /* never AUTO */
    /* DSP: patches of a frame and number of frames (N0 space, N1 time); 0 if there is no grid */
    int64_t grid[2];
    int64_t stream_size; /* bytes of one of the n_streams residual streams, rounded up */
    struct offload_plan offload;
    /* In a training PLAN_X has L + 1 streams, or fewer if they are offloaded. Stream b is the
     * output of section b (`in` is section 0). Streams that no backward pass reads alternate
     * between two buffers.
     * Otherwise PLAN_X has one stream, or two that alternate, because a section whose placement is
     * not in_place writes to the stream that it does not read. The number of buffers of PLAN_DX
     * follows from grad_in_place in the same way.
     * With several stages, n_streams and n_dx are the numbers of buffers for each sequence. */
    int n_streams, n_dx;
    /* bytes of a record, rounded up, by kind of layer; the last is of section `in` */
    int64_t kept[FAMILY_KINDS + 1];
    /* bytes of a record of caches and states, rounded up, by kind of layer */
    int64_t cache[FAMILY_KINDS];
};

static inline struct axes plan_axes(const struct plan *p)
{
    return (struct axes){.dp = p->dp, .pp = p->pp, .sp = p->sp, .tp = p->tp};
}
/* Returns the place of a rank of the job: .d is the index of its ring, and .s its index in the
 * ring. */
static inline struct axes_place plan_place(const struct plan *p, int rank)
{
    const struct axes a = plan_axes(p);
    return axes_place(&a, rank);
}

/* plan_sums_each tells whether gradients are summed over ranks after each sequence.
 * plan_sums_in_step returns the number of these sums in a step. In a pipeline, the last stage
 * sends its part of a tied embedding's gradient to the first stage at each of these sums. */
static inline bool plan_sums_each(const struct plan *p)
{
    return p->by_bucket || p->rank_bits;
}
static inline int64_t plan_sums_in_step(const struct plan *p)
{
    return plan_sums_each(p) ? p->micro_batches : 1;
}
/* Returns how many parts of a tied embedding's gradient may be under way at a time from the last
 * stage to the first. */
static inline int64_t plan_tied_sends(const struct plan *p)
{
    return pipe_lent(&p->pipe, plan_sums_in_step(p));
}

/* Makes the shard of rank s of a ring, for a sequence of S tokens, or for the plan's grid if it
 * has one. Fails as shard_init does. */
int plan_shard(const struct plan *p, int64_t S, int s, struct shard *out, struct err *e);

/* ---- a family's sections --------------------------------------------------------------------- */

/* Schedules and placements of a family's sections. Together with the plan's items they are all
 * that is needed to run a model. They are a pure function of the shape and the plan and are
 * computed where they are needed. They take some megabytes. */
struct section {
    struct schedule steps;
    struct placement at;
    int64_t weight_at[PROG_WEIGHTS], weights_size; /* places of weights, bytes (store_places) */
};
struct sections {
    struct family family;
    struct section in, out, layer[FAMILY_KINDS];
};
void plan_sections(const struct model_shape *m, const struct plan *p, struct sections *out);
/* Returns the bytes of the weights that a rank has. These are n_held elements. If weights are
 * stored in blocks (model_shape.quant), they are instead all sections of the rank's stage, one
 * after another, with a borrowed table at the end. */
int64_t plan_weights_size(const struct model_shape *m, const struct plan *p);
/* Returns the bytes of a whole model's weights, with the weights of products stored in blocks and
 * all other weights in 16 bits. Returns 0 if the weight of some product cannot be stored in
 * blocks. */
int64_t plan_blocks_size(const struct model_shape *m, enum weights_id format);
/* Finds the first weight of a product that cannot be stored in blocks. Returns its name and the
 * reason as the end of a sentence, such as "NAME: its rows of 48 values are no blocks of 32", or
 * NULL if all can be stored. room is memory for the text. */
#define PLAN_FAULT_SIZE 288
const char *plan_blocks_fault(const struct model_shape *m, enum weights_id format,
                              char room[PLAN_FAULT_SIZE]);
/* Returns the mode in which the plan's schedules are made. train is set for schedules with a
 * backward pass. */
struct schedule_mode plan_schedule(const struct plan *p, bool train);
/* plan_record returns the offset in PLAN_KEPT, in bytes, of the record of section b while that
 * section runs. b is numbered as buckets are: 0 is `in`, and 1 to L are the layers (`out` keeps
 * nothing). plan_cache returns the same for PLAN_CACHES, which has only layers. */
int64_t plan_record(const struct model_shape *m, const struct plan *p, int b);
int64_t plan_cache(const struct model_shape *m, const struct plan *p, int b);
/* Returns the number of layers in the stages before this one; within its stage, section b of the
 * model has the index b minus this number. */
int plan_layers_before(const struct plan *p);
/* Returns how many of the stage's first streams no backward pass reads, because the backward pass
 * ends before it reaches them (shape_freeze.first). */
int plan_streams_passed(const struct plan *p);
/* Returns the index of the buffer in PLAN_X that has stream b of a training; b is counted within a
 * stage. */
int plan_stream(const struct plan *p, int b);
/* Return an offset, in bytes, in a sequence's part of the store. plan_stored_stream returns that
 * of stream b, counted within a stage. plan_stored_record returns that of the record of layer b >=
 * 1. The stream or record must be among those that are copied. */
int64_t plan_stored_stream(const struct plan *p, int b);
int64_t plan_stored_record(const struct model_shape *m, const struct plan *p, int b);
/* Returns the bytes that are copied out in one forward and backward pass over T rows; the same
 * bytes are copied back. */
int64_t plan_offloaded(const struct plan *p, int64_t T);
/* Tells whether the backward pass of section `in` reads weights, so that zero 3 has to fetch its
 * bucket again. The backward of an embedding by itself reads none. */
bool plan_fetches_in(const struct model_shape *m, const struct plan *p);
/* Returns how many tokens of a sequence of S tokens are computed at a time: S, or those of a
 * window. */
int64_t plan_held(const struct plan *p, int64_t S);
/* Returns the number of pieces into which a scan divides a state of n rows, or of n heads. */
int plan_scan_pieces(int64_t n);
/* Returns the offset of shared value k in PLAN_SHARED, in bytes, or with `gradient` that of its
 * gradient in PLAN_DSHARED. If k is n_shared, returns the end. */
int64_t plan_shared(const struct program *in, const struct plan *p, int k, bool gradient);

/* Makes the plan of a job. spec must have passed family_check. memory_limit is in bytes per rank;
 * 0 means that there is no limit.
 * The counts of a plan are those of one step. The meaning of a step depends on the kind of job.
 * For train it is one optimizer step. For score it is one window of S tokens. For generate it is
 * the prefill of a full prompt; for generate with a diffusion model, it is one forward pass over
 * the largest sample. For embed it is documents of S tokens. For verify it is one forward and
 * backward of each sample (comm does not count the gathering of logits).
 * S is data.seq_len, with these exceptions. For train it is the seq_len of the longest stage, or a
 * window of it. For generate with a literal prompt and no seq_len it is the number of the prompt's
 * bytes. For verify it is at most verify.max_tokens. For a diffusion model it is the number of
 * patches of its largest sample.
 * Fails with ERR_DOES_NOT_FIT, whose text has the numbers and the remedies, with ERR_INVALID or
 * with ERR_TOO_LARGE. */
int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e);

/* Makes the plan for the stage of the rank `rank`, which that rank then places. `p` may be of any
 * stage; plan_make's is of the stage that needs the most memory. All stages have the same
 * segment_size. */
int plan_of_rank(const struct job_spec *spec, const struct plan *p, int rank, struct plan *out,
                 struct err *e);
/* Sets the shards and counts of a stage, but not its memory. plan_comm and the estimate read
 * them. */
void plan_set_stage(struct plan *p, int stage);

/* Returns how many alternatives a generate job may report with a token, which is PLAN_ALTERNATIVES
 * if each request names its own count. Returns -1 if the job may not even report
 * log-probabilities. */
#define PLAN_ALTERNATIVES 20
int plan_alternatives(const struct job_spec *spec);
/* Returns the number of prompts, 1 to JOB_MAX_BATCH, that a placed generate job should have
 * together, and sets *by to the bound that decided it. There are two bounds.
 * BATCH_WORTH: n prompts share one reading of the weights of W bytes, and each reads its own full
 * cache of C bytes, so a token reads W / n + C bytes. One more prompt saves W / (n (n + 1)) bytes;
 * the result is the first n at which that is less than 1/32 of a token's bytes.
 * BATCH_CACHES: the caches of all prompts, n C bytes, are at most W, or at most an eighth of
 * memory_limit if that is more. memory_limit is in bytes per rank; 0 means that none is known. */
int plan_batch_worth(const struct plan *p, int64_t memory_limit, enum plan_batch *by);

/* Returns how many tokens are verified: all of a verify job's sequence, or the tokens that
 * verify.first_step uses of a training's first sequence. */
int64_t plan_verify_seq(const struct job_spec *spec, const struct plan *p);

/* Returns how many samples of the order are verified, from the first on. A pipeline verifies one
 * more than it has stages, so every slot of every stage has a sample; the first slot has two. */
int plan_verify_samples(const struct plan *p);

/* Makes the plan of the one-rank reference that a proof runs beside the ranks' part. The reference
 * is in the same arena at p->reference_offset; offsets in *ref are relative to that. In a
 * pipeline, p is the first stage's plan. The reference uses p's scratch and, if a rank has all
 * parameters, also p's parameters. Fails with ERR_DOES_NOT_FIT, but never for a plan that
 * plan_make has made. */
int plan_reference(const struct job_spec *spec, const struct plan *p, struct plan *ref,
                   struct err *e);

/* Plans the same job at a shorter length S, as in a stage or for a part of a batch. It computes T,
 * comm and flops of a step of `micro_batches`; the memory is p's. Fails with ERR_TOO_LARGE if S is
 * more than p->S. */
int plan_at(const struct job_spec *spec, const struct plan *p, int64_t S, int64_t micro_batches,
            struct plan *out, struct err *e);

/* The traffic of rank `rank` in a held-out evaluation inside a training. Ring d runs the windows
 * d, d + dp, ... forward and sums its losses over its ranks. Then all ranks sum over rings, and
 * check that they have the same counts. With zero 3, all ranks fetch the weights of one forward
 * pass in each round. */
struct plan_eval {
    int64_t S, n_windows; /* S: tokens of a window; n_windows: number of windows of all rings */
};
int plan_eval_comm(const struct model_shape *m, const struct plan *p, int rank,
                   const struct plan_eval *v, struct comm_count out[PURPOSE_N], struct err *e);

/* Computes the buffers that attention over the sequence needs besides the items that every plan
 * has. There are none with a strategy that has no attention. */
struct attention_need;
void plan_attention(const struct plan *p, int64_t H, int64_t Hk, int64_t D,
                    struct attention_need *out);
/* Plans the same job for a sample of another grid (diffusion), as plan_at does for another length.
 * grid is the patches of a frame and the number of frames. */
int plan_at_grid(const struct job_spec *spec, const struct plan *p, const int64_t grid[2],
                 int64_t micro_batches, struct plan *out, struct err *e);

/* The traffic of the layers of rank `rank` in n_passes forward passes over S tokens each. */
struct plan_forward {
    int64_t S, n_passes;
};
int plan_forward_comm(const struct model_shape *m, const struct plan *p, int rank,
                      const struct plan_forward *x, struct comm_count out[PURPOSE_N],
                      struct err *e);

/* Tells whether gradients and losses are also summed over rings. They are in jobs with a backward
 * pass. */
bool plan_sums_rings(const struct plan *p);
/* plan_sum_ranks returns the number of ranks over which gradients and losses are summed. These
 * ranks have the same stage and tp index and, unless plan_sums_rings, are of the same ring.
 * plan_sum_place returns the index of `rank` among them. */
int plan_sum_ranks(const struct plan *p);
int plan_sum_place(const struct plan *p, int rank);

/* Computes the traffic of rank `rank` in a step (see plan_make), from the algorithm. It differs
 * between ranks if their shards do, with parallel.zero 1 to 3. */
void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N]);

/* Corrects `out`, the traffic of any number of sequences, for one sequence whose documents are
 * known, because its map decides how much is sent. sh is this rank's shard at that length. */
struct reach_map;
void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N]);

/* Corrects `out` for a sample whose grid is known (diffusion): one pass over the plan's own grid
 * is replaced by one over `grid`, which is the patches of a frame and the number of frames. */
struct plan_pass {
    int64_t grid[2];
    bool forward; /* without a backward pass */
};
void plan_grid_comm(const struct model_shape *m, const struct plan *p, int rank,
                    const struct plan_pass *x, struct comm_count out[PURPOSE_N]);

/* Adds to *out the traffic that only the weights cause in n forward passes with zero 3. */
void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out);

/* Computes the traffic of a training's proof before its first step, which is p->micro_batches
 * forward and backward passes whose gradients all ranks of a stage get. */
void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N]);

/* Returns the traffic of each rank in one pass that decodes the next token of n sequences (all
 * layers). */
struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks, int64_t n);

/* Sets plan.reason from the rest of the plan. plan_make and tests call it. */
void plan_explain(const struct job_spec *spec, struct plan *p);
/* Writes the plan as JSON: memory by class and by tensor, communication by purpose, flops, reason.
 * Returns the length, or -1 if the text does not fit. */
int64_t plan_json(const struct job_spec *spec, const struct plan *p, char *out, size_t size);

/* Writes a size like "3.2 GiB" into out (at least 24 bytes). Returns out. */
char *plan_bytes(char *out, int64_t n);

#define PLAN_PAGE 4096

/* Number of tokens that one rank appends to its cache before the next rank continues. */
#define CACHE_BLOCK 16

#endif
