/* job.h: the vocabulary of jobs, shared by every program.
 *
 *   struct job_spec    what a person asked for: plain data, fixed limits, one string table
 *   spec_fields[]      the one table of its scalar fields (a model's sizes: worker/family/shape.h): JSON parsing and did-you-mean, defaults,
 *                      the echoed spec_effective, protobuf packing and the OpenAPI check all walk it,
 *                      so that a new field is one member and one row
 *   job_check()        arithmetic and cross-field rules, after defaults
 *   job_step()         the transition table of job states
 *
 * Nothing here allocates, reads files or knows JSON. */
#ifndef SEQD_CORE_JOB_H
#define SEQD_CORE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/strategy.h"

/* ---- limits -------------------------------------------------------------------------------- */

#define SPEC_TEXT_SIZE   65536 /* all strings of a spec together, NULs included */
#define SPEC_CONFIG_SIZE 4096  /* of model.config as it travels, NUL included */
#define SPEC_SOURCES     32
#define SPEC_STAGES      8
#define SPEC_STOPS       4
#define STOP_SIZE        256 /* bytes of a stop string */
#define SPEC_LABELS      16
#define SPEC_LABEL_KEY   63  /* bytes */
#define SPEC_LABEL_VALUE 255 /* bytes */
#define JOB_MAX_RANKS    64  /* ranks of one gang */
#define JOB_MAX_SEQ      ((int64_t)1 << 26)
#define JOB_MAX_HEAD     256  /* head size: columns of an attention tile */
#define BLOB_SIZE        1024 /* what one rank may publish for the rendezvous */

/* ---- model --------------------------------------------------------------------------------- */

enum act_id {
    ACT_IDENTITY, /* of a shape: the family's own */
    ACT_SILU,
    ACT_GELU, /* erf */
    ACT_GELU_TANH,
    ACT_RELU,
    ACT_ELU1, /* elu(x) + 1 */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_N
};
/* What cuts text into ids. Of a job: auto or byte. Of a model directory: whose tokenizer it has. */
enum tokenizer_id {
    TOKENIZER_AUTO, /* of a directory: not known, or there is none */
    TOKENIZER_BYTE, /* ids 0 to 255 are bytes, 256 ends a document */
    TOKENIZER_OWN,  /* another one */
    TOKENIZER_NONE, /* no tokenizer: nothing says what its ids mean */
    TOKENIZER_N
};
enum objective_id {
    OBJECTIVE_AUTO,
    OBJECTIVE_CAUSAL_LM,
    OBJECTIVE_MASKED_LM,
    OBJECTIVE_RECTIFIED_FLOW,
    OBJECTIVE_N
};
#define SHAPE_MASKS 8 /* of 32 layers each: numbers that JSON and doubles hold exactly */

/* The sizes of a model: all that plan arithmetic needs. */
struct model_shape {
    int32_t family;     /* enum model_family (worker/family) */
    int32_t n_layers;   /* L */
    int64_t width;      /* C, hidden_size */
    int64_t n_heads;    /* H */
    int64_t n_kv_heads; /* Hk, divides H */
    int64_t head_dim;   /* D, even */
    int64_t ffn_width;  /* I, intermediate_size */
    int64_t vocab;      /* V */
    int64_t max_pos;    /* max_position_embeddings; informational */
    double norm_eps;    /* rms_norm_eps */
    double rope_theta;
    int32_t tied; /* tie_word_embeddings */
    /* What only some families have; 0 elsewhere. */
    int32_t act;         /* enum act_id: hidden_act */
    int32_t feature_map; /* linear transformer: enum act_id, of queries and keys */
    int32_t qk_norm;     /* RMSNorm of every query and key head */
    int64_t window;      /* sliding_window: a token sees itself and so many - 1 before; 0: all */
    int64_t value_dim;   /* Dv, where a value head's size differs from D */
    int64_t rotary_dim;  /* columns of a head that RoPE turns; 0: all */
    int64_t type_vocab;  /* BERT: type_vocab_size */
    int64_t n_experts, experts_per_token;
    double residual[6]; /* MiniMax: alpha, beta of linear attention, full attention, MLP */
    /* bit l: layer l is special: linear (MiniMax), has LRPE (TNL) */
    int64_t layer_mask[SHAPE_MASKS];
    int32_t normalise; /* linear transformer: outputs are divided by their summed weights */
    int32_t unscaled;  /* TNL: no_scale_embedding */
    /* Diffusion transformers: sequences of frames of latents. */
    int64_t in_channels, out_channels, patch_t, patch_h, patch_w;
    int64_t caption_channels, text_len, base_size; /* text_len: tokens of a caption at most */
    /* STDiT, Latte: patches and frames per unit of position; 0: 1 */
    double space_scale, time_scale;
    /* What a directory says of its weights beside their sizes; 0: it says nothing. */
    int32_t tokenizer;  /* enum tokenizer_id: what its ids stand for */
    int32_t trained_on; /* enum objective_id */
};

/* Whether layer l is of the family's other kind: layer_mask. */
static inline bool shape_special(const struct model_shape *m, int64_t l)
{
    return l < 32 * SHAPE_MASKS && (m->layer_mask[l / 32] >> (l % 32) & 1);
}

/* ---- job spec ------------------------------------------------------------------------------ */

enum job_kind { JOB_TRAIN, JOB_SCORE, JOB_GENERATE, JOB_VERIFY, JOB_EMBED, JOB_KIND_N };
enum form_id {
    FORM_BLOCKWISE,  /* blocks of keys and values travel, online softmax */
    FORM_TWO_PASS,   /* the paper's: whole rows of scores */
    FORM_ALL_GATHER, /* keys and values of all ranks at once, only those that documents share */
    FORM_AUTO,       /* the plan picks: blockwise, or all_gather for packed documents */
    FORM_TWO_PASS_SCATTER, /* two_pass, but dK and dV are reduce-scattered: 6 instead of 8 (P-1) */
    FORM_N
};
enum exchange_id { EXCHANGE_AUTO, EXCHANGE_RING, EXCHANGE_ALL_GATHER, EXCHANGE_SCAN, EXCHANGE_N };
enum timestep_id { TIMESTEP_UNIFORM, TIMESTEP_LOGIT_NORMAL, TIMESTEP_N };
enum layout_id { LAYOUT_AUTO, LAYOUT_CONTIGUOUS, LAYOUT_ZIGZAG, LAYOUT_N };
enum determinism_id { DET_OFF, DET_RUN, DET_RANKS, DET_N };
enum recompute_id {
    RECOMPUTE_AUTO,      /* the plan picks the fastest that fits */
    RECOMPUTE_NONE,      /* every activation kept */
    RECOMPUTE_SELECTIVE, /* layer input, attention output and log-sum-exp kept: no second ring */
    RECOMPUTE_FULL,      /* only the layer input kept: the forward ring runs twice */
    RECOMPUTE_N
};
enum data_format {
    DATA_TEXT,     /* a file is a document */
    DATA_JSONL,    /* a line is a document: text, prompt and completion, or input_ids and labels */
    DATA_LLMC,     /* llm.c token shard, uint16 or uint32 by its header */
    DATA_NANOGPT,  /* bare uint16 tokens */
    DATA_MEGATRON, /* PREFIX.bin and PREFIX.idx */
    DATA_NPY,      /* a one-dimensional array of token ids */
    DATA_OPENAI_BATCH, /* generate: one /v1/completions request a line */
    DATA_LATENTS, /* a manifest: a line is a sample of latents and its caption, as safetensors */
    DATA_FORMAT_N
};
enum packing_id {
    PACKING_CONCAT,   /* documents end to end, cut every seq_len tokens */
    PACKING_BEST_FIT, /* whole documents, best-fit decreasing; only over-long ones are cut */
    PACKING_NONE,     /* one document a sequence */
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
enum loss_on_id { LOSS_ON_ALL, LOSS_ON_COMPLETION, LOSS_ON_N };
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
enum pooling_id { POOLING_LAST, POOLING_MEAN, POOLING_CLS, POOLING_N };
enum resume_id { RESUME_AUTO, RESUME_NONE, RESUME_PATH, RESUME_N };

typedef uint32_t spec_ref; /* offset into job_spec.text; 0 is the empty string */

struct spec_source {   /* one element of data.train[] or input */
    spec_ref path;     /* file or glob, beneath a configured root */
    spec_ref text_key; /* jsonl: member holding the text; default "text" */
    int32_t format;    /* enum data_format */
    double weight;     /* share of samples in the mixture; 0 on all sources: by size */
    int64_t eod;       /* token formats: the id that separates documents; -1: the format's own */
};

struct spec_stage {    /* from a step on, other values; 0: as before */
    int64_t from_step; /* 0-based optimizer step; ascending, the first > 0 */
    int64_t seq_len;
    double lr, rope_theta;
};

struct spec_label {
    spec_ref key, value;
};

struct job_spec {
    int32_t kind; /* enum job_kind */
    int32_t priority;
    spec_ref name;
    int32_t n_labels;
    struct spec_label labels[SPEC_LABELS];

    struct {
        spec_ref path; /* a directory transformers could load, or empty: random init */
        /* The sizes as JSON, from model.config or from --describe of path; empty: not known yet.
         * What travels, and is kept ... */
        char config[SPEC_CONFIG_SIZE];
        /* ... and what it says, where it has been read (worker/family/config.h); width 0: not yet */
        struct model_shape shape;
    } model;

    struct {
        int32_t n_train;
        struct spec_source train[SPEC_SOURCES];
        int64_t seq_len;         /* S */
        int32_t document_mask;   /* attention only within a document */
        int32_t reset_positions; /* positions count from the document's start */
        int32_t packing;         /* enum packing_id */
        int32_t overlong;        /* enum overlong_id: documents longer than seq_len */
        int32_t loss_on;         /* enum loss_on_id */
        int32_t tokenizer;       /* enum tokenizer_id; AUTO: bytes where the model's ids are bytes,
                                 * else ids alone */
        int64_t frames, height, width; /* latents: the largest sample's, before patches */
    } data;

    struct { /* held-out evaluation inside training */
        int32_t n_data;
        struct spec_source data[SPEC_SOURCES];
        int64_t seq_len;     /* of a window, whatever the stage: losses compare; 0: data.seq_len */
        int64_t every_steps; /* 0: only at_start and at_end say */
        int64_t max_tokens;  /* 0: all of it */
        int32_t at_start, at_end;
    } eval;

    int32_t n_stages;
    struct spec_stage stages[SPEC_STAGES];

    struct {
        int32_t params; /* enum precision_id: stored weights, activations and matrix products */
    } precision;

    struct {
        int64_t steps;  /* after normalisation always > 0 for train; given or derived */
        int64_t tokens; /* xor steps, passes */
        int64_t passes;
        int64_t global_batch; /* sequences per optimizer step; frozen at submit */
        int64_t micro_batch;  /* sequences per forward: 1 */
        double attention_dropout;
    } train;

    struct {
        int32_t type;         /* enum objective_id; AUTO: the family's own */
        double mask_prob;     /* masked_lm: share of tokens to predict */
        int64_t mask_token;   /* masked_lm: the id that hides a token */
        int32_t timestep;     /* enum timestep_id: how t is drawn */
        int32_t transform;    /* times are shifted towards noise by the size of the video */
        double text_dropout;  /* share of samples whose caption is left out */
        double frame_mask[4]; /* share of samples whose frames are given clean: a random few, the
                               * first, the last, both ends */
    } objective;

    struct {
        double decay; /* 0: no average of the weights is kept */
    } ema;

    struct {
        double lr, beta1, beta2, eps, weight_decay, max_grad_norm;
    } optim;

    struct {
        int32_t type; /* enum schedule_id */
        int64_t warmup_steps;
        double min_lr_ratio;   /* of lr, where the decay ends */
        double decay_fraction; /* wsd: the last part of the run that decays */
        int32_t decay_shape;   /* wsd: enum decay_shape_id */
    } schedule;                /* linear warmup, then by type */

    struct {
        int32_t strategy; /* enum strategy_id */
        int32_t layout;   /* enum layout_id */
        int32_t sp;       /* ranks of one ring; 0 = auto = resources.ranks / dp */
        int32_t dp;       /* rings side by side, each on its own samples; 0 = auto = ranks / sp */
        int32_t zero; /* ZeRO stage over all sp * dp ranks: 0 none, 1 optimizer, 2 gradients too,
                           * 3 weights too */
        int32_t transport; /* enum transport_id */
        int32_t tls;       /* TCP between ranks is encrypted */
        int32_t form;      /* enum form_id: of ring attention */
        int32_t exchange;  /* enum exchange_id: of linear attention's states */
    } parallel;

    struct {                        /* what a bad step does */
        int32_t nonfinite;          /* enum nonfinite_id */
        int32_t rollbacks;          /* at most so many in a job */
        double loss_z, grad_norm_z; /* skip the update beyond so many deviations; 0: never */
    } guard;

    struct {
        int32_t recompute;         /* enum recompute_id */
        int64_t loss_chunk_tokens; /* 0 = auto: at most 64 MiB of logits */
        /* LASP in time: a rank walks its tokens in chunks of so many; 0: at once */
        int64_t time_chunk;
    } memory;

    struct {
        int64_t every_steps; /* 0: only at the end */
        int64_t every_s;     /* 0: never by the clock */
        int32_t keep;
        int64_t keep_every;   /* steps divisible by it are kept for ever; 0: none */
        int32_t best;         /* keep the checkpoint of the lowest eval loss as well */
        int32_t resume;       /* enum resume_id */
        spec_ref resume_path; /* a step directory, with RESUME_PATH */
    } checkpoint;

    struct {
        int64_t max_tokens;
        double loss_rel, grad_rel_l2;
        int32_t first_step; /* train: verify before step 1 and fail if it does not hold */
    } verify;

    struct {
        struct spec_source source; /* what score and generate read */
        spec_ref prompt;           /* generate: the prompt itself, instead of a file */
    } input;

    struct {
        double temperature;
        int64_t max_tokens, min_tokens;
        int64_t seed;
        int64_t top_k;       /* 0: all */
        double top_p, min_p; /* 1, 0: all */
        double repetition_penalty, frequency_penalty, presence_penalty;
        spec_ref stop[SPEC_STOPS]; /* strings; empty: none */
        int64_t n;                 /* continuations of each prompt */
        int32_t logprobs;          /* alternatives reported with each token; -1: none at all */
        int32_t ignore_eos;
        int64_t steps;   /* diffusion: Euler steps */
        double guidance; /* diffusion: classifier-free guidance scale; 1: none */
    } sampling;

    struct {           /* linear attention: the states behind a context, as a file */
        spec_ref load; /* begin from it */
        int32_t save;  /* leave it as an artifact */
    } context;

    struct {
        int64_t by_position_bucket; /* tokens of a bucket; 0: no buckets */
        int64_t stride;             /* windows overlap by seq_len - stride; 0: they do not */
        int32_t token_logprobs;     /* one number per token into an artifact */
    } score;

    struct {
        int32_t pooling;   /* enum pooling_id */
        int32_t normalize; /* to length 1 */
    } embed;

    struct {
        spec_ref device; /* "cpu" */
        int32_t ranks;
        int32_t threads;    /* per rank */
        int64_t memory_mib; /* per rank; 0: what the node offers */
    } resources;

    struct {
        int32_t restarts;       /* of user-class failures */
        int64_t step_timeout_s; /* 0 = auto */
        int64_t init_timeout_s;
        int64_t hop_timeout_s; /* comm_options.silence_ms */
    } limits;

    int64_t seed;
    int32_t determinism; /* enum determinism_id */

    uint32_t text_used; /* bytes of text[] in use; at least 1 */
    char text[SPEC_TEXT_SIZE];
};

const char *spec_text(const struct job_spec *s, spec_ref ref);
/* Whether the job begins with random weights. */
bool spec_new_model(const struct job_spec *s);
/* Copies a string into the table. -1 when the 64 KiB are used up. */
int spec_intern(struct job_spec *s, const char *str, size_t len, spec_ref *ref);

/* ---- the table of fields -------------------------------------------------------------------- */

enum field_type {
    FIELD_INT,   /* int64_t member */
    FIELD_INT32, /* int32_t member */
    FIELD_DOUBLE,
    FIELD_BOOL,   /* int32_t member */
    FIELD_ENUM,   /* int32_t member, words[] */
    FIELD_STRING, /* spec_ref member */
};

struct field {
    const char *path; /* dotted JSON path: "data.seq_len"; array elements: "optim.betas.0" */
    enum field_type type;
    size_t offset;   /* into struct job_spec, or that of the table (spec_source, model_shape) */
    double min, max; /* FIELD_INT*, FIELD_DOUBLE: inclusive */
    const char *const *words; /* FIELD_ENUM: NULL-terminated, index = value */
    double fallback;          /* default of numbers, bools and enums */
    const char *text;         /* default of strings */
    const char *help;         /* one sentence with the unit */
    uint32_t kinds;           /* bit per job_kind in which the field may appear; 0: never in JSON */
};

extern const struct field spec_fields[];   /* ends with path NULL */
extern const struct field source_fields[]; /* of one data source */
extern const struct field stage_fields[];  /* of one stage */
/* Fields that know one word as yet ("optim.name": "adamw") and so have no member. */
extern const struct field spec_constants[];

void spec_defaults(struct job_spec *s);
void spec_source_defaults(struct spec_source *src); /* but its strings and its format */
const struct field *spec_field(const char *path);   /* NULL: unknown */
/* The known path nearest to an unknown one (edit distance at most 3), or NULL ... */
const char *spec_suggest(const char *path);
/* ... of that table; of model.config's keys, their last part. */
const char *field_nearest(const struct field *table, const char *path);
extern const char *const objective_words[]; /* by enum objective_id, NULL-terminated */

/* Normalises (auto sp; derived steps stay 0 until the data is counted) and checks every rule that
 * needs no file and no model: ranges, layout x determinism, what each kind of job needs.
 * What depends on the model's family is family_check()'s (worker/plan/check.h), which begins here.
 * fails: ERR_INVALID with the field and the fix. Idempotent. */
int job_check(struct job_spec *s, struct err *e);
/* What P ranks and one may differ by where the job does not say. */
struct job_tolerance {
    double loss_rel, grad_rel_l2;
};
struct job_tolerance job_tolerance(int32_t precision);
/* The part of it that is about score and embed (job_infer.c). */
int job_check_infer(struct job_spec *s, struct err *e);
/* Its part about schedules, stages, evaluation and the first step (job_train.c). */
int job_check_training(const struct job_spec *s, struct err *e);
/* Whether text may be cut into bytes: the job says so, or nothing says that the model's ids are
 * anything else. Otherwise the job reads ids alone ... */
bool job_reads_bytes(const struct job_spec *s);
/* ... and text in `what` (a field, a member of a line) is refused with the way out. */
int job_refuse_text(const struct job_spec *s, const char *field, const char *what, struct err *e);
/* ---- states --------------------------------------------------------------------------------- */

enum job_state {
    JOB_QUEUED,
    JOB_STARTING,
    JOB_RUNNING,
    JOB_STOPPING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_STATE_N
};

enum job_event {
    EV_SUBMIT,     /* the job exists */
    EV_ASSIGN,     /* epoch += 1; a gang was placed (or the preparation, phase "prepare") */
    EV_PREPARED,   /* the preparation of this job's data is done: back to queued, now with data */
    EV_READY,      /* all ranks have joined the ring */
    EV_STEP,       /* progress: not an event row of its own, carried by metrics */
    EV_CHECKPOINT, /* a step directory is complete */
    EV_ARTIFACT,   /* a result file is complete */
    EV_RANK_EXIT,  /* a rank died or failed: cause and sentence inside */
    EV_NODE_LOST,
    EV_START_TIMEOUT,
    EV_HANG,
    EV_CANCEL,  /* intent */
    EV_STOPPED, /* every node confirmed: no process of this epoch is left */
    EV_DONE,    /* all ranks exited 0 and the last log offset is acknowledged */
    /* stored by number: new ones go last */
    EV_EVAL,     /* a held-out evaluation: {"step", "loss", "targets", "ppl", ...} */
    EV_VERIFIED, /* verify.first_step held: {"loss_rel", "worst", "grad_rel_l2", ...} */
    EV_NOTE, /* something a person should know: {"code", "text", ...} (a skipped step, a rollback,
                    * documents dropped or cut) */
    EV_RESTART,            /* the checkpoint of `step` on `node`, which is away, is given up */
    EV_CHECKPOINT_REMOVED, /* the directory of `step` goes: {"path", "reason"} */
    JOB_EVENT_N
};

const char *job_state_name(enum job_state s);
const char *job_event_name(enum job_event e);
bool job_final(enum job_state s);
/* The one transition table. Returns the next state, or -1 for an illegal pair. A stopping job has a
 * target (queued, failed or cancelled) kept by the caller; EV_STOPPED returns JOB_STOPPING here and
 * the caller moves to the target. */
int job_step(enum job_state from, enum job_event ev);

const char *kind_name(int kind);

#endif
