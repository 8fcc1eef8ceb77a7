/* choices.h: the enums of a job's fields. Their words are in spec.c, in this order. */
#ifndef SEQD_CORE_CHOICES_H
#define SEQD_CORE_CHOICES_H

#include "api/core/strategy.h"

enum job_kind { JOB_TRAIN, JOB_SCORE, JOB_GENERATE, JOB_VERIFY, JOB_EMBED, JOB_KIND_N };
enum model_init_id { MODEL_INIT_AUTO, MODEL_INIT_RANDOM, MODEL_INIT_N };
/* The format in which the weights of matrix products are stored (quant.h). */
enum weights_id {
    WEIGHTS_MODEL, /* in precision.params, as all other weights */
    WEIGHTS_INT8,  /* blocks of 8 bits */
    WEIGHTS_INT4,  /* blocks of 4 bits; the head and a tied embedding in blocks of 8 */
    WEIGHTS_N,
    WEIGHTS_PANELS = WEIGHTS_N /* never in files: numbers in panels (kernels/panels.h) */
};
enum form_id {
    FORM_BLOCKWISE,        /* blocks of keys and values travel, online softmax */
    FORM_TWO_PASS,         /* the paper's form: whole rows of scores */
    FORM_ALL_GATHER,       /* gathers keys and values at once, but only rows of documents that span
                      * ranks */
    FORM_AUTO,             /* the plan picks: blockwise, or all_gather for packed documents */
    FORM_TWO_PASS_SCATTER, /* two_pass, dK and dV reduce-scattered: 6 (P-1) slices sent, not 8 */
    FORM_SWITCH,           /* grid: rows are spread along space or along time, in turn */
    FORM_ULYSSES,          /* grid: rows are exchanged for heads, in attention along space */
    FORM_ULYSSES_BOTH,     /* grid: as FORM_ULYSSES, and in attention along time as well */
    FORM_N
};
enum exchange_id { EXCHANGE_AUTO, EXCHANGE_RING, EXCHANGE_ALL_GATHER, EXCHANGE_SCAN, EXCHANGE_N };
enum timestep_id { TIMESTEP_UNIFORM, TIMESTEP_LOGIT_NORMAL, TIMESTEP_N };
enum layout_id { LAYOUT_AUTO, LAYOUT_CONTIGUOUS, LAYOUT_ZIGZAG, LAYOUT_N };
enum determinism_id { DET_OFF, DET_RUN, DET_RANKS, DET_N };
enum recompute_id {
    RECOMPUTE_AUTO,      /* the plan picks the fastest value that fits */
    RECOMPUTE_NONE,      /* every activation kept */
    RECOMPUTE_SELECTIVE, /* layer input, attention output and log-sum-exp kept: no second ring */
    RECOMPUTE_FULL,      /* only the layer input kept: the forward ring runs twice */
    RECOMPUTE_N
};
enum offload_id {
    OFFLOAD_AUTO,        /* offloads if a training fits in no other way */
    OFFLOAD_NONE,        /* all that backward needs stays in the device's memory */
    OFFLOAD_ACTIVATIONS, /* activations for backward wait outside the device's memory */
    OFFLOAD_N
};
enum data_format {
    DATA_TEXT,     /* each file is a document */
    DATA_JSONL,    /* a line is a document: text, prompt and completion, or input_ids and labels */
    DATA_LLMC,     /* llm.c token shard, uint16 or uint32 by its header */
    DATA_NANOGPT,  /* bare uint16 tokens */
    DATA_MEGATRON, /* PREFIX.bin and PREFIX.idx */
    DATA_NPY,      /* a one-dimensional array of token ids */
    DATA_OPENAI_BATCH, /* generate: each line is a request of /v1/completions or a chat */
    DATA_LATENTS, /* a manifest: each line is a sample: its latents and caption, as safetensors */
    DATA_FORMAT_N
};
enum packing_id {
    PACKING_CONCAT,   /* documents end to end, cut every seq_len tokens */
    PACKING_BEST_FIT, /* whole documents, best-fit decreasing; only over-long ones are cut */
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
    LOSS_ON_AUTO,       /* all; in a conversation the assistant's turns */
    LOSS_ON_COMPLETION, /* the text after the prompt */
    LOSS_ON_ALL,
    LOSS_ON_ASSISTANT,
    LOSS_ON_N
};
enum precision_id { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISION_N };
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
enum pooling_id { POOLING_LAST, POOLING_MEAN, POOLING_CLS, POOLING_N };
enum resume_id { RESUME_AUTO, RESUME_NONE, RESUME_PATH, RESUME_N };

#endif
