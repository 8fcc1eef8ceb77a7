/* choices.h: the enums of a job's fields. spec.c has the words for their values, in the same
 * order. */
#ifndef SEQD_CORE_CHOICES_H
#define SEQD_CORE_CHOICES_H

#include "api/core/formats.h"
#include "api/core/strategy.h"

/* All kinds but JOB_MERGE run a model. */
enum job_kind {
    JOB_TRAIN,
    JOB_SCORE,
    JOB_GENERATE,
    JOB_VERIFY,
    JOB_EMBED,
    JOB_MERGE, /* adds an adapter to the weights of its base */
    JOB_SERVE, /* answers requests as they come */
    JOB_KIND_N
};
enum model_init_id { MODEL_INIT_AUTO, MODEL_INIT_RANDOM, MODEL_INIT_N };
enum form_id {
    FORM_BLOCKWISE,        /* passes blocks of keys and values around the ring, with an online
                            * softmax */
    FORM_TWO_PASS,         /* computes whole rows of scores, as the paper does */
    FORM_ALL_GATHER,       /* gathers all keys and values in one exchange; only rows of documents
                            * that span ranks are sent */
    FORM_AUTO,             /* lets the plan choose blockwise, or all_gather for packed documents */
    FORM_TWO_PASS_SCATTER, /* two_pass with dK and dV reduce-scattered; sends 6 (P-1) slices, where
                            * two_pass sends 8 (P-1) */
    FORM_SWITCH,           /* for grids: rows are spread along space for some operations and along
                            * time for the others */
    FORM_ULYSSES,          /* for grids: rows are exchanged for heads in attention along space */
    FORM_ULYSSES_BOTH,     /* for grids: FORM_ULYSSES, and also in attention along time */
    FORM_N
};
enum exchange_id { EXCHANGE_AUTO, EXCHANGE_RING, EXCHANGE_ALL_GATHER, EXCHANGE_SCAN, EXCHANGE_N };
enum timestep_id { TIMESTEP_UNIFORM, TIMESTEP_LOGIT_NORMAL, TIMESTEP_N };
enum layout_id { LAYOUT_AUTO, LAYOUT_CONTIGUOUS, LAYOUT_ZIGZAG, LAYOUT_N };
enum determinism_id { DET_OFF, DET_RUN, DET_RANKS, DET_N };
enum recompute_id {
    RECOMPUTE_AUTO,      /* lets the plan choose the fastest value that fits */
    RECOMPUTE_NONE,      /* every activation kept */
    RECOMPUTE_SELECTIVE, /* keeps the layer's input, the attention output and log-sum-exp, so no
                          * second ring is needed */
    RECOMPUTE_FULL,      /* keeps only the layer's input, so the forward ring runs twice */
    RECOMPUTE_N
};
enum offload_id {
    OFFLOAD_AUTO,        /* offloads if a training fits in no other way */
    OFFLOAD_NONE,        /* everything that backward needs is kept in the device's memory */
    OFFLOAD_ACTIVATIONS, /* activations that backward needs are stored outside the device's
                          * memory */
    OFFLOAD_OPTIMIZER,   /* gradients, moments and master weights of a training are stored there */
    OFFLOAD_ALL,         /* activations, and what OFFLOAD_OPTIMIZER stores */
    OFFLOAD_N
};
enum data_format {
    DATA_TEXT,     /* each file is a document */
    DATA_JSONL,    /* each line is a document: a text, a prompt and completion, or input_ids and
                    * labels */
    DATA_LLMC,     /* a token shard of llm.c; its header says whether ids are uint16 or uint32 */
    DATA_NANOGPT,  /* bare uint16 tokens */
    DATA_MEGATRON, /* PREFIX.bin and PREFIX.idx */
    DATA_NPY,      /* a one-dimensional array of token ids */
    DATA_OPENAI_BATCH, /* for generate: each line is a request of /v1/completions or a chat */
    DATA_LATENTS,      /* each line of the manifest is a sample: its latents and its caption, as
                        * safetensors */
    DATA_FORMAT_N
};
enum preference_loss_id {
    PREFERENCE_SIGMOID, /* -log sigmoid(beta margin) (2305.18290) */
    PREFERENCE_IPO, /* (margin - 1 / (2 beta))^2, with means over an answer's tokens (2310.12036) */
    PREFERENCE_LOSS_N
};

enum packing_id {
    PACKING_CONCAT,   /* documents are joined end to end, and the joined text is split after every
                       * seq_len tokens */
    PACKING_BEST_FIT, /* whole documents are packed by best-fit decreasing; only documents longer
                       * than a sequence are split */
    PACKING_NONE,     /* one document in each sequence */
    PACKING_N
};
enum overlong_id {
    OVERLONG_AUTO,
    OVERLONG_ERROR,
    OVERLONG_SPLIT,
    OVERLONG_TRUNCATE,
    OVERLONG_DROP,
    OVERLONG_N
};
enum loss_on_id {
    LOSS_ON_AUTO,       /* all tokens; in a conversation, only tokens of the assistant's turns */
    LOSS_ON_COMPLETION, /* the text after the prompt */
    LOSS_ON_ALL,
    LOSS_ON_ASSISTANT,
    LOSS_ON_N
};
enum schedule_id { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD, SCHEDULE_N };
enum decay_shape_id {
    DECAY_LINEAR,
    DECAY_ONE_MINUS_SQRT,
    DECAY_COSINE,
    DECAY_EXPONENTIAL,
    DECAY_SHAPE_N
};
enum nonfinite_id { NONFINITE_ROLLBACK, NONFINITE_SKIP, NONFINITE_FAIL, NONFINITE_N };
enum transport_id { TRANSPORT_AUTO, TRANSPORT_SHM, TRANSPORT_TCP, TRANSPORT_NCCL, TRANSPORT_N };
enum embed_unsaid { EMBED_POOLING = 1, EMBED_NORMALIZE = 2 };
enum serve_task_id { SERVE_TASK_AUTO, SERVE_TASK_TEXT, SERVE_TASK_EMBED, SERVE_TASK_N };
enum pooling_id { POOLING_LAST, POOLING_MEAN, POOLING_CLS, POOLING_N };
enum resume_id { RESUME_AUTO, RESUME_NONE, RESUME_PATH, RESUME_N };

#endif
