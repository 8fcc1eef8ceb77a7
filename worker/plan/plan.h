/* plan.h: a job's memory and communication, before it runs: pure arithmetic.
 *
 * seqd links this to answer POST /v1/plan and to refuse jobs that cannot fit; seqrank links the
 * same code to place its buffers: one arena and one comm segment per rank, allocated once, every
 * buffer at base + offset. So the plan is right to the byte by construction of the addresses, and
 * tests check it against the pages the process really touched.
 *
 * Communication formulas are written from the algorithm (worker/plan/volume.h), never from the
 * transport's counters, which are compared with them: ==.
 *
 * A rank makes these calls with a plan:
 *     plan_make(&spec, limit, &plan, e)
 *     be_open with scratch_later
 *     arena = plan.arena_size zeroed bytes of the device's alloc; the host's part, if it has one
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

/* Flat parameter layout: every tensor of the model by its name in the checkpoint, in the order of
 * the family's program: section `in`, the layers, `out` (worker/family). The Llama family:
 *   embed_tokens; per layer input_layernorm, q|k|v, o, post_attention_layernorm, gate|up, down;
 * norm; lm_head unless tied. Tensors joined by | follow each other without a gap so that one matrix
 * product serves them; every other one starts at a multiple of 16 elements. Gradients and Adam's m
 * and v have the same layout. Offsets and counts in elements. */
struct param {
    char name[64];      /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols 0: one-dimensional of `rows` */
    int64_t offset, count;
    bool decay;        /* weight decay applies (matrices) */
    enum init_id init; /* the distribution of its random weights */
    /* As in struct weight: */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed;
    int32_t stack;
    bool frozen; /* no gradient, and no weight decay */
    bool of_ids;
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    int32_t n_dims;
    int64_t dims[5];
};
/* Counts the elements of the flat buffer, gaps included: the offset of its end, a multiple of
 * 16. */
int64_t param_count(const struct model_shape *m);
/* Returns the element at which a bucket's weights begin. */
int64_t param_section(const struct model_shape *m, int bucket);
/* Counts the tensors. */
int param_tensors(const struct model_shape *m);
/* Finds the tensors of a bucket (zero.h), [*first, *last): 0 is `in`, 1 .. L the layers, L + 1
 * `out`. */
void param_range(const struct model_shape *m, int bucket, int *first, int *last);
/* Writes the prefix of the names of a bucket's tensors: "model.layers.3.". p: the bucket's
 * program. */
void param_prefix(const struct program *p, int bucket, char out[64]);
/* Gets the i-th tensor, 0 <= i < param_tensors. */
void param_get(const struct model_shape *m, int i, struct param *out);
/* Gets the tensors of a bucket. out: room for PROG_WEIGHTS. Returns how many; *first, unless NULL,
 * becomes the number of the first. Getting them one by one would take quadratic time. */
int param_bucket(const struct model_shape *m, int bucket, struct param *out, int *first);
/* Gets the first max tensors. Returns how many there are. */
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
/* Returns the bytes of an element of that precision. */
static inline int64_t precision_size(enum precision_id p)
{
    return p == PRECISION_FP32 ? 4 : 2;
}

/* Every buffer of a rank. T rows of the rank, C width, H heads, Hk KV heads, D head size, I ffn
 * width, V vocabulary, L layers; float32 unless said otherwise. act: in the plan's precision. */
enum plan_id {
    PLAN_PARAMS,    /* [n_held] act, or blocks: plan_weights_size() bytes */
    PLAN_FETCHED,   /* [window] act; zero 3: the weights of the bucket at work */
    PLAN_GRAD,      /* [n_grad + grad_skip]; train and verify. by_bucket: [window] */
    PLAN_GRAD_ACC,  /* [n_shard]; "ranks" with more than one micro-batch; by_bucket unless fused */
    PLAN_GRAD_TIED, /* [largest part of the embedding]; by_bucket and tied: the head's part of it;
                     * several stages: on the first, the part from the last */
    PLAN_MASTER,    /* [n_shard] weights that the optimizer updates; training in 16 bits */
    PLAN_ADAM_M,    /* [n_shard] */
    PLAN_ADAM_V,    /* [n_shard] */
    PLAN_EMA,       /* [n_shard] moving average of the weights; ema.decay */
    PLAN_TREE,      /* [log2(sum chunks), largest tensor]: partial weight gradients under "ranks" */
    PLAN_X,         /* [T, C] act: residual streams (n_streams of each sequence that is kept) */
    PLAN_DX,        /* [T, C] act: their gradients (n_dx) */
    PLAN_WORK,      /* the workspace that all sections share */
    PLAN_LOGITS,    /* in WORK, or in GRAD (extent.logits_apart): [loss_chunk, V]; not for embed */
    PLAN_RING_KV0,  /* segment: [T, 2*Hk*D] act */
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
    PLAN_NLL,        /* double [T]; diffusion: [T, places], one for each place of a row */
    PLAN_INV_FREQ,   /* double [rope_tables(), rotary columns / 2] */
    PLAN_SUMSQ,      /* double [units] (worker/plan/zero.h) */
    PLAN_SCRATCH,    /* device_scratch() bytes: the backend's */
    PLAN_KEPT,       /* records that sections keep for the backward: plan_record(); within GRAD
                      * where the item is shared (lent.h); with several stages one set for each
                      * sequence that is kept, as for PLAN_LO_ALL, PLAN_HI_ALL */
    PLAN_CACHES,     /* generate: records of caches and states: plan_cache() */
    PLAN_SHARED,     /* values that `in` shares, one after another: plan_shared() */
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
    PLAN_LO_ALL, /* int64 [ulysses * T]: lo and hi of the group's rows: strategy_row.ranges */
    PLAN_HI_ALL,
    PLAN_SWITCH_SEND, /* segment: DSP's all-to-all */
    PLAN_SWITCH_RECV,
    PLAN_PIPE_SEND,  /* segment: [2] streams: to the next stage, and a gradient to the one before */
    PLAN_TIED_SEND,  /* segment: [plan_tied_sends] parts of the head's gradient, to the first stage;
                      * on the last of several stages whose embedding is tied */
    PLAN_PIPE_REST,  /* segment: unused: all segments are as large as the largest stage's */
    PLAN_TYPES,      /* int32 [T]: token types */
    PLAN_GROUP,      /* int32 [T]: the conditioning vector of each row */
    PLAN_GROUP_ALT,  /* int32 [T_alt] */
    PLAN_PATCHES,    /* [T, patch]: the input of PATCH (struct batch_latents) */
    PLAN_TARGET,     /* [T, places, shape_targets()]: the targets of MSE and NOISE */
    PLAN_ROW_WEIGHT, /* [T, patch / in_channels]: weights of places in MSE */
    PLAN_CAPTION,    /* [text_len, caption_channels] */
    PLAN_CARRY, /* LASP in time: [n_windows] states of all layers: at the borders of windows, and
                 * a gradient */
    PLAN_CARRY_PASS, /* segment: [2] states of all layers: last rank to first, and back */
    /* Inference, beside the model (worker/plan/memory_infer.c). Buffers that only rank 0 reads are
     * planned on every rank: one plan serves any rank. */
    PLAN_CONTEXT_BEFORE, /* context.load: a state of each layer, as wide as the largest */
    PLAN_CONTEXT_BEHIND, /* generate: states after the prompt, for its other continuations */
    /* The next four, and PLAN_CONTEXT_BEHIND, exist once for each sequence of the batch. */
    PLAN_ANSWER_LOGITS,   /* [2, V]: logits of the next token, and after the prompt */
    PLAN_SAMPLER,         /* 25 V bytes */
    PLAN_ANSWER_TOKENS,   /* int32 [n_decode] */
    PLAN_ANSWER_LOGPROBS, /* double [n_decode] and their alternatives: rank 0 */
    PLAN_SCORE_WINDOW,    /* int32 [S] tokens, then [S] bytes: 1 where a token may be a target */
    PLAN_SCORE_ROWS,      /* double [2, sp * T]: nll by rank, then by position: rank 0 */
    PLAN_SCORE_BUCKETS,   /* a sum for each bucket of positions: rank 0 */
    PLAN_VELOCITY, /* [T, patch]: sampling: a prediction, laid out as the sample in PATCHES */
    PLAN_SPREAD,   /* [T, patch]: ancestral sampling: a variance, then the values drawn by it */
    PLAN_PLANE,    /* [sp * T / frames, patch / in_channels]: one channel of a frame of patches, and
                    * own_memory: this rank's part of it */
    PLAN_STAGE,    /* the host's: op_stage() bytes of any step */
    PLAN_OFFLOAD,  /* the host's: the store of struct offload_plan */
    PLAN_ROUTES,   /* the host's: the experts that rows of a proof choose, for each sequence
                    * between its passes; in the reference for each sample */
    PLAN_ID_N
};

/* Names the bound that kept "auto" of infer.batch from more prompts. */
enum plan_batch {
    BATCH_ASKED,  /* the job or its kind says how many */
    BATCH_MOST,   /* JOB_MAX_BATCH */
    BATCH_WORTH,  /* one more saves little: plan_batch_worth() */
    BATCH_CACHES, /* the caches of one more are too many bytes: plan_batch_worth() */
    BATCH_FITS,   /* one more does not fit the memory */
    BATCH_BOUNDS
};

struct plan_item {
    const char *name; /* "residual", "kept", ...; NULL: not used by this job */
    enum plan_class cls;
    bool in_segment; /* offset is into the comm segment, else into the arena */
    bool in_host;    /* offset is into the host's part; own_memory alone */
    bool mirrored;   /* in the arena, with a copy for the host at `mirror` of the host's part */
    int64_t mirror;
    bool shared;          /* lies inside PLAN_WORK or PLAN_GRAD: not counted again in totals */
    int64_t offset, size; /* bytes; size of all instances */
    int64_t stride;       /* bytes from one instance to the next; 0: there is one */
};

/* Returns the address at which the host works with an item: its copy where there is one, else the
 * item itself. arena, host: the bases of the plan's two parts. */
static inline void *plan_on_host(const struct plan_item *it, void *arena, void *host)
{
    if (it->mirrored) return (char *)host + it->mirror;
    return (char *)(it->in_host ? host : arena) + it->offset;
}

/* The data that layers keep for the backward pass, in a store beside the device's memory: the
 * host's part, or a file where the device has no memory of its own. Streams 0 .. L-1 take turns in
 * n_ring buffers and the records of layers in two, so that the last ones of a forward pass are
 * still there when the backward pass asks for them and are never copied. The others go out once and
 * come back once in a pass. The store has streams first, then records, each in the order of layers.
 *
 * With several stages, layers and streams are numbered within one: its first layer is 1 and reads
 * stream 0. Each sequence that is kept between its passes has buffers and a part of the store. */
struct offload_plan {
    bool on;
    int n_ring, n_records; /* buffers on the device; stream L has one of its own */
    int n_out,
        n_records_out;       /* streams 0 .. n_out-1 and the records of layers 1 .. n_records_out */
    int64_t slot_size;       /* bytes of a sequence's part of the store, one of `slots` */
    int64_t record_stride;   /* bytes of a record's buffer */
    int64_t row_size;        /* bytes of a row of a stream */
    int64_t records_size;    /* bytes of the records that are copied */
    int64_t size, disk_size; /* bytes of the store; bytes in a file, a multiple of PLAN_PAGE */
};

struct plan {
    struct plan_item item[PLAN_ID_N];
    int64_t arena_size, segment_size; /* bytes per rank on the device, multiples of PLAN_PAGE */
    bool own_memory;   /* the device has memory of its own; else the host's part is empty, and its
                        * items are in the arena */
    int64_t host_size; /* bytes per rank of the host's part, a multiple of PLAN_PAGE */
    int64_t class_size[PLAN_CLASS_N]; /* bytes; with `rounding` they add up to arena + segment */
    int64_t rounding;                 /* alignment gaps and page rounding */
    /* verify, and train with verify.first_step: the one-rank reference's part of the arena; with
     * several stages, in the first one's plan */
    int64_t reference_offset, reference_size;
    int64_t reference_host_offset; /* the reference's offset in the host's part */
    enum job_kind kind;
    int64_t seq_len;        /* tokens of the longest sequence */
    int64_t S, T;           /* tokens of a sequence that a ring holds at once; rows per rank */
    int64_t n_windows;      /* LASP in time: windows of S tokens in a sequence; 1: S is seq_len */
    int64_t carry_size;     /* LASP in time: bytes of the states of all layers; 0: one window */
    int n_ranks, n_threads; /* n_ranks = dp * pp * sp * tp; plan_axes() has the order */
    int sp, dp;             /* ranks of a ring; rings side by side, each on its own samples */
    int ulysses;            /* ranks of a ring that share heads, in a row: sp under ulysses, a
                             * divisor of it under usp, else 1 */
    int pp, tp;             /* stages, and ranks that share a layer's heads */
    struct pipe pipe;       /* the sections of each stage, and this plan's stage: shards, memory
                             * and n_* of weights are those of one rank of that stage */
    bool cut_by_memory;     /* stages are cut by memory: cut by work, they would not fit */
    int64_t stage_size[JOB_MAX_RANKS]; /* arena_size of each stage; one stage: not used */
    int64_t slots;               /* sequences that are kept between their passes; one stage: 1 */
    enum strategy_id strategy;   /* never AUTO */
    enum form_id form;           /* rsa's; never AUTO */
    enum layout_id layout;       /* never AUTO */
    enum recompute_id recompute; /* never AUTO */
    enum precision_id precision; /* precision of weights, activations and products */
    bool rank_bits;              /* determinism "ranks" */
    int zero;                    /* ZeRO stage; 0 if one rank sums alone and unless training */
    int zero_group;              /* ranks that share one set of shards; zero 0: all that sum */
    bool by_bucket;     /* gradients are summed bucket by bucket within the backward pass, and
                            * no rank holds all of them: zero 2 and 3, and whenever fused */
    bool fused;         /* each bucket is updated as soon as it is summed */
    bool ema;           /* a moving average of the weights is kept */
    struct zero shards; /* owners of all elements, in groups of zero_group */
    int64_t n_shard;    /* elements of the largest shard; zero 0: the stage's own buckets */
    int64_t loss_chunk; /* tokens; at most a sum chunk */
    int64_t mlp_chunk;  /* tokens of a piece of dense MLPs; at most a sum chunk; 0: whole */
    int64_t n_params;   /* elements, borrowed ones included; one stage: param_count */
    int64_t n_held;     /* elements: zero 3: the largest shard, with borrowed ones; else n_params */
    int64_t grad_skip; /* elements in PLAN_GRAD between bucket 0 and the layers (lent.h); 0: none */
    int64_t n_grad; /* elements of PLAN_GRAD: n_params (+ a tied embedding's own sum), rounded up */
    int64_t tree_size;        /* elements of one level of PLAN_TREE; 0: no tree */
    int64_t n_decode;         /* generate: tokens that may be appended */
    int64_t cache_rows;       /* generate: rows of this rank's cache per layer and sequence */
    int batch;                /* generate: sequences with a cache (infer.batch); else 1 */
    enum plan_batch batch_by; /* the bound of batch, where the plan decides it */
    int64_t micro_batches;    /* sequences of a ring in a step; train: global_batch / dp */
    struct comm_count comm[PURPOSE_N]; /* of rank 0; from plan_of_rank, if pp > 1: of that rank */
    double flops;                      /* per step, all ranks, causal counted once; with the second
                                        * forward pass of LASP in time, without work that
                                        * memory.recompute or memory.mlp_chunk_tokens adds */
    char reason[768];                  /* why this strategy, layout and recompute */
    /* ---- of the family's program ---- */
    struct extent extent;      /* sizes of this rank's sections */
    enum exchange_id exchange; /* never AUTO */
    int64_t grid[2];           /* DSP: patches of a frame, frames (N0 space, N1 time); 0: no grid */
    int64_t stream_size;       /* bytes of one residual stream, rounded; PLAN_X has n_streams */
    struct offload_plan offload;
    /* In a training PLAN_X has L + 1 streams, fewer where they are offloaded: stream b is the
     * output of section b (`in` is 0).
     * Otherwise it has one, or two that alternate: a section whose placement is not in_place
     * writes to the other. The number of buffers of PLAN_DX follows from grad_in_place in the same
     * way. */
    int n_streams, n_dx;            /* counts in PLAN_X, PLAN_DX; several stages: per sequence */
    int64_t kept[FAMILY_KINDS + 1]; /* bytes of a record, rounded: by kind; the last: of `in` */
    int64_t cache[FAMILY_KINDS];    /* bytes, rounded, of a record of caches and states, by kind */
};

static inline struct axes plan_axes(const struct plan *p)
{
    return (struct axes){.dp = p->dp, .pp = p->pp, .sp = p->sp, .tp = p->tp};
}
/* Returns the place of a rank of the job: .d is its ring, .s its place in the ring. */
static inline struct axes_place plan_place(const struct plan *p, int rank)
{
    const struct axes a = plan_axes(p);
    return axes_place(&a, rank);
}

/* plan_sums_each tells whether gradients are summed over ranks sequence by sequence.
 * plan_sums_in_step counts these sums in a step. In a pipeline the last stage sends the first its
 * part of a tied embedding's gradient at each of these sums. */
static inline bool plan_sums_each(const struct plan *p)
{
    return p->by_bucket || p->rank_bits;
}
static inline int64_t plan_sums_in_step(const struct plan *p)
{
    return plan_sums_each(p) ? p->micro_batches : 1;
}
/* Returns how many parts of a tied embedding's gradient are under way at once from the last stage
 * to the first. */
static inline int64_t plan_tied_sends(const struct plan *p)
{
    return pipe_lent(&p->pipe, plan_sums_in_step(p));
}

/* Makes the shard of rank s of a ring, for a sequence of S tokens, or for the plan's grid if it has
 * one. fails: as shard_init. */
int plan_shard(const struct plan *p, int64_t S, int s, struct shard *out, struct err *e);

/* ---- a family's sections --------------------------------------------------------------------- */

/* Schedules and places of a family's sections: all that running a model takes beside the plan's
 * items. They are a pure function of the shape and the plan, computed where needed. Some
 * megabytes. */
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
/* Counts the bytes of the weights that a rank holds: n_held elements, or, stored in blocks
 * (model_shape.quant), all sections of its stage one after another, a borrowed table last. */
int64_t plan_weights_size(const struct model_shape *m, const struct plan *p);
/* Counts the bytes of a whole model's weights stored in blocks, all others in 16 bits. 0: some
 * product's cannot be. */
int64_t plan_blocks_size(const struct model_shape *m, enum weights_id format);
/* Returns the first weight of a product that cannot be stored in blocks, and why, as the end of a
 * sentence: "NAME: its rows of 48 values are no blocks of 32"; NULL: all can. room: of the text. */
#define PLAN_FAULT_SIZE 288
const char *plan_blocks_fault(const struct model_shape *m, enum weights_id format,
                              char room[PLAN_FAULT_SIZE]);
/* Returns the mode in which the plan's schedules are made. train: with a backward pass. */
struct schedule_mode plan_schedule(const struct plan *p, bool train);
/* Returns the offset in PLAN_KEPT, in bytes, of the record of section b while that section runs. b
 * counts as for buckets: 0 is `in`, 1 .. L are the layers (`out` keeps nothing). plan_cache: the
 * same in PLAN_CACHES, for layers only. */
int64_t plan_record(const struct model_shape *m, const struct plan *p, int b);
int64_t plan_cache(const struct model_shape *m, const struct plan *p, int b);
/* Counts the layers of the stages before: section b of a stage is its number b less these. */
int plan_layers_before(const struct plan *p);
/* Returns the buffer of PLAN_X that holds stream b of a training; b counts within a stage. */
int plan_stream(const struct plan *p, int b);
/* Return an offset in a sequence's part of the store, in bytes, for stream b, counted within a
 * stage, and for the record of layer b >= 1. Both must be among those that are copied. */
int64_t plan_stored_stream(const struct plan *p, int b);
int64_t plan_stored_record(const struct model_shape *m, const struct plan *p, int b);
/* Counts the bytes that go out in one forward and backward pass with T rows; the same bytes come
 * back. */
int64_t plan_offloaded(const struct plan *p, int64_t T);
/* Tells whether the backward pass of section `in` reads weights, so that zero 3 fetches its bucket
 * again. The backward of an embedding alone reads none. */
bool plan_fetches_in(const struct model_shape *m, const struct plan *p);
/* Returns how many tokens of a sequence of S tokens are worked on at once: S, or a window. */
int64_t plan_held(const struct plan *p, int64_t S);
/* Returns into how many pieces a scan cuts a state of n rows, or of n heads. */
int plan_scan_pieces(int64_t n);
/* Returns the offset of shared value k in PLAN_SHARED (gradient: in PLAN_DSHARED), in bytes; k =
 * n_shared: the end. */
int64_t plan_shared(const struct program *in, const struct plan *p, int k, bool gradient);

/* Makes the plan of a job. spec: has passed family_check. memory_limit: bytes per rank; 0: no
 * limit.
 * A step is: train, one optimizer step; score, one window of S tokens; generate, the prefill of a
 * full prompt, of a diffusion model one forward pass over its largest sample; embed, documents
 * of S tokens; verify, one forward and backward of each sample (its gathering of logits is not in
 * comm).
 * S is data.seq_len; train: that of the longest stage, or a window of it; generate with a literal
 * prompt and no seq_len: the prompt's bytes; verify: at most verify.max_tokens; a diffusion model:
 * the patches of its largest sample.
 * fails: ERR_DOES_NOT_FIT with the numbers and the remedies; ERR_INVALID; ERR_TOO_LARGE. */
int plan_make(const struct job_spec *spec, int64_t memory_limit, struct plan *p, struct err *e);

/* Makes the plan of a rank's stage, which the rank places. `p` may be of any stage; plan_make's is
 * of the stage that needs most memory. All have one segment_size. */
int plan_of_rank(const struct job_spec *spec, const struct plan *p, int rank, struct plan *out,
                 struct err *e);
/* Sets shards and counts of a stage, without its memory: plan_comm and the estimate read them. */
void plan_set_stage(const struct model_shape *m, struct plan *p, int stage);

/* Returns how many alternatives a generate job may report with a token: PLAN_ALTERNATIVES if each
 * request has its own number. -1: not even log-probabilities. */
#define PLAN_ALTERNATIVES 20
int plan_alternatives(const struct job_spec *spec);
/* Returns the prompts of a placed generate job that are worth their caches, 1 to JOB_MAX_BATCH, and
 * sets *by to the bound that holds. Two bounds count.
 * BATCH_WORTH: n prompts share one reading of the weights of W bytes, and each reads its own full
 * cache of C: a token reads W / n + C. One more prompt saves W / (n (n + 1)); the first n at which
 * that is less than 1/32 of a token's bytes is enough.
 * BATCH_CACHES: the caches of all prompts, n C, are at most W, or an eighth of memory_limit where
 * that is more. memory_limit: bytes per rank; 0: none is known. */
int plan_batch_worth(const struct plan *p, int64_t memory_limit, enum plan_batch *by);

/* Returns how many tokens are verified: all of a verify job's sequence, or the tokens that
 * verify.first_step takes from a training's first one. */
int64_t plan_verify_seq(const struct job_spec *spec, const struct plan *p);

/* Returns how many samples of the order are verified, from the first on. A pipeline verifies
 * one more than it has stages: every slot of every stage then serves a sample, and the first
 * slot two. */
int plan_verify_samples(const struct plan *p);

/* Makes the plan of the one-rank reference that a proof runs beside the ranks' part. It lies in
 * the same arena at p->reference_offset; offsets in *ref are relative to that. In a pipeline, p is
 * the first stage's. Scratch is p's, and so are parameters if a rank has them whole.
 * fails: ERR_DOES_NOT_FIT, but not for a plan that plan_make has made. */
int plan_reference(const struct job_spec *spec, const struct plan *p, struct plan *ref,
                   struct err *e);

/* Plans the same job at a shorter length S, of a stage or of a part of a batch: T, comm and flops
 * of a step of `micro_batches`; memory stays p's. fails: ERR_TOO_LARGE when S is more than
 * p->S. */
int plan_at(const struct job_spec *spec, const struct plan *p, int64_t S, int64_t micro_batches,
            struct plan *out, struct err *e);

/* The traffic of rank `rank` in a held-out evaluation inside a training. Ring d takes the windows
 * d, d + dp, ... forward and sums its losses over its ranks; then all ranks sum over rings, and
 * agree that these counts hold. zero 3: in each round all ranks fetch the weights of one forward
 * pass. */
struct plan_eval {
    int64_t S, n_windows; /* tokens of a window; windows of all rings */
};
int plan_eval_comm(const struct model_shape *m, const struct plan *p, int rank,
                   const struct plan_eval *v, struct comm_count out[PURPOSE_N], struct err *e);

/* Computes the buffers that attention over the sequence needs beside the items that every plan
 * has; none under a strategy that is not one of attention. */
struct attention_need;
void plan_attention(const struct plan *p, int64_t H, int64_t Hk, int64_t D,
                    struct attention_need *out);
/* Plans the same job for a sample of another grid (diffusion), as plan_at does. grid: patches of a
 * frame, frames. */
int plan_at_grid(const struct job_spec *spec, const struct plan *p, const int64_t grid[2],
                 int64_t micro_batches, struct plan *out, struct err *e);

/* The traffic of the layers of rank `rank` in n_passes forward passes over S tokens. */
struct plan_forward {
    int64_t S, n_passes;
};
int plan_forward_comm(const struct model_shape *m, const struct plan *p, int rank,
                      const struct plan_forward *x, struct comm_count out[PURPOSE_N],
                      struct err *e);

/* Tells whether gradients and losses are summed over rings too: they are in jobs with a backward
 * pass. */
bool plan_sums_rings(const struct plan *p);
/* plan_sum_ranks returns over how many ranks gradients and losses are summed. These ranks share a
 * stage and a tp index, and a ring unless plan_sums_rings. plan_sum_place returns the number of
 * `rank` among them. */
int plan_sum_ranks(const struct plan *p);
int plan_sum_place(const struct plan *p, int rank);

/* Counts the traffic of rank `rank` in a step (see plan_make), from the algorithm. Ranks differ
 * where their shards do: parallel.zero 1 to 3. */
void plan_comm(const struct model_shape *m, const struct plan *p, int rank,
               struct comm_count out[PURPOSE_N]);

/* Corrects `out`, the traffic of any number of sequences, for one sequence whose documents are
 * known: the map then decides on its traffic. sh: this rank's shard at that length. */
struct reach_map;
void plan_met_comm(const struct model_shape *m, const struct plan *p, const struct shard *sh,
                   const struct reach_map *map, struct comm_count out[PURPOSE_N]);

/* Corrects `out` for a sample whose grid is known (diffusion): one pass over the plan's own grid
 * becomes one over `grid`: patches of a frame, frames. */
struct plan_pass {
    int64_t grid[2];
    bool forward; /* without a backward pass */
};
void plan_grid_comm(const struct model_shape *m, const struct plan *p, int rank,
                    const struct plan_pass *x, struct comm_count out[PURPOSE_N]);

/* Adds to *out the traffic of the weights alone in n forward passes under zero 3. */
void plan_fetch_comm(const struct plan *p, int rank, int64_t n, struct comm_count *out);

/* Counts the traffic of a training's proof before its first step: p->micro_batches forward and
 * backward passes, whose gradients all ranks of a stage get. */
void plan_verify_comm(const struct model_shape *m, const struct plan *p, int rank,
                      struct comm_count out[PURPOSE_N]);

/* Returns the traffic of each rank in a pass for the next tokens of n sequences (all layers). */
struct comm_count plan_decode_comm(const struct model_shape *m, int n_ranks, int64_t n);

/* Sets plan.reason from the rest of the plan. plan_make calls it, and so do tests. */
void plan_explain(const struct job_spec *spec, struct plan *p);
/* Writes the plan as JSON: memory by class and by tensor, communication by purpose, flops, reason.
 * Returns the length or -1 if it does not fit. */
int64_t plan_json(const struct job_spec *spec, const struct plan *p, char *out, size_t size);

/* Writes a size like "3.2 GiB" into out (at least 24 bytes). Returns out. */
char *plan_bytes(char *out, int64_t n);

#define PLAN_PAGE 4096

/* Tokens that one rank appends to its cache before the next rank takes over. */
#define CACHE_BLOCK 16

#endif
