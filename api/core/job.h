/* job.h: the specification of a job. States are in job_state.h, a model's sizes in model_shape.h,
 * the enums of its fields in choices.h: a file includes the smallest header that it needs.
 *
 *   struct job_spec    the job as a person asked for it: plain data, fixed limits, a string table
 *   spec_fields[]      the table of its scalar fields (a model's sizes: worker/family/shape.h).
 *                      JSON parsing and did-you-mean, defaults, the echoed spec_effective,
 *                      protobuf packing and the OpenAPI check all read it, so that a new field is
 *                      one member and one row
 *   job_check()        arithmetic and cross-field rules, after defaults
 *
 * The code here allocates no memory, reads no files and knows no JSON. */
#ifndef SEQD_CORE_JOB_H
#define SEQD_CORE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"

/* ---- job spec -------------------------------------------------------------------------------- */

typedef uint32_t spec_ref; /* offset into job_spec.text; 0 is the empty string */

struct spec_source {   /* one element of data.train[], eval.data[], or input */
    spec_ref path;     /* file or glob, beneath a configured root */
    spec_ref text_key; /* jsonl: member holding the text; default "text" */
    int32_t format;    /* enum data_format */
    double weight;     /* share of samples in the mixture; 0 for all sources: by size */
    int64_t eod;       /* token formats: the id that separates documents; -1: the format's own */
};

struct spec_stage {    /* values that change from a step on; 0: unchanged */
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
        spec_ref path;   /* a model directory; empty: config describes the model */
        int32_t init;    /* enum model_init_id: spec_random_weights() reads it */
        int32_t weights; /* enum weights_id */
        struct {
            int32_t type;     /* 0: the model's rule; else 1 + enum rope_id, and rule is used */
            int32_t truncate; /* yarn: its inverse becomes no_truncate */
            double theta;     /* 0: the model's */
            struct shape_rope rule; /* parameters of type; its kind is not set */
        } rope;                     /* family_check() copies it into `shape` */
        /* The sizes as JSON, from model.config or from seqrank --describe of path; empty: not
         * known yet. They are sent and stored in this form. */
        char config[SPEC_CONFIG_SIZE];
        /* The sizes that were read from config (worker/family/config.h); width 0: not read yet */
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
                                 * else the model's own tokenizer, if it has one */
        int64_t frames, height, width; /* latents: sizes of the largest sample, before patches */
    } data;

    struct { /* held-out evaluation inside training */
        int32_t n_data;
        struct spec_source data[SPEC_SOURCES];
        int64_t seq_len;     /* tokens of a window, in all stages; 0: data.seq_len */
        int64_t every_steps; /* 0: only by at_start and at_end */
        int64_t max_tokens;  /* 0: all tokens */
        int32_t at_start, at_end;
    } eval;

    int32_t n_stages;
    struct spec_stage stages[SPEC_STAGES];

    struct {
        int32_t params; /* enum precision_id: stored weights, activations and matrix products */
    } precision;

    struct {
        int64_t steps;  /* given, or derived when the data is counted; then > 0 for train */
        int64_t tokens; /* tokens to train on, instead of steps or passes */
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
        double frame_mask[4]; /* shares of samples that have clean frames: a random few, the first
                               * frames, the last, both ends */
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
        double min_lr_ratio;   /* lr at the end of the decay, as a share of lr */
        double decay_fraction; /* wsd: the share of the run, at its end, in which lr decays */
        int32_t decay_shape;   /* wsd: enum decay_shape_id */
    } schedule;                /* linear warmup, then by type */

    struct {
        int32_t strategy; /* enum strategy_id */
        int32_t layout;   /* enum layout_id */
        int32_t sp;       /* ranks of one ring; 0 = auto = resources.ranks / (dp pp tp) */
        int32_t ulysses;  /* usp: ranks of a ring that share heads; 0 = auto */
        int32_t dp;   /* rings side by side, each on its own samples; 0 = auto = the other ranks */
        int32_t pp;   /* stages of the pipeline; 0: one (job_stages) */
        int32_t tp;   /* ranks that split every layer by heads and columns; 0 = 1 */
        int32_t zero; /* ZeRO stage: 0 none, 1 optimizer, 2 gradients too, 3 weights too */
        /* Ranks that share one set of shards; 0 = auto = all sp * dp ranks of a stage */
        int32_t zero_group;
        int32_t transport; /* enum transport_id */
        int32_t tls;       /* TCP between ranks is encrypted */
        int32_t form;      /* enum form_id, for ring attention and for grids */
        int32_t exchange;  /* enum exchange_id, for linear attention's states */
    } parallel;

    struct {                        /* how training responds to a bad step */
        int32_t nonfinite;          /* enum nonfinite_id */
        int32_t rollbacks;          /* most rollbacks of a job */
        double loss_z, grad_norm_z; /* standard deviations beyond which an update is skipped; 0:
                                     * never */
    } guard;

    struct {
        int32_t recompute;         /* enum recompute_id */
        int64_t loss_chunk_tokens; /* 0 = auto */
        int64_t mlp_chunk_tokens;  /* 0: whole; -1 = auto: by the plan (worker/plan/plan.c) */
        /* LASP: tokens of each window that a rank computes in turn; 0: one window */
        int64_t time_chunk;
        int32_t offload;      /* enum offload_id */
        spec_ref offload_dir; /* a directory beneath a writable root of the node; empty: none */
    } memory;

    struct {
        int64_t every_steps; /* 0: only at the end */
        int64_t every_s;     /* 0: never by the clock */
        int32_t keep;
        int64_t keep_every;   /* checkpoints of steps that this divides are kept for ever; 0:
                               * none */
        int32_t best;         /* keep the checkpoint of the lowest eval loss as well */
        int32_t resume;       /* enum resume_id */
        spec_ref resume_path; /* a step directory, with RESUME_PATH */
        int32_t changes;      /* the run of resume_path may have other steps, rates, schedule,
                               * data */
    } checkpoint;

    struct {
        int64_t max_tokens;
        double loss_rel, grad_rel_l2;
        int32_t first_step; /* train: compare with one rank before step 1; fail if they differ */
        int32_t keep_grads; /* both sides' gradients become artifacts */
    } verify;

    struct {
        struct spec_source source; /* the data that score and generate read */
        spec_ref prompt;           /* generate: the prompt itself, instead of a file */
    } input;

    struct {
        double temperature;
        int64_t max_tokens, min_tokens;
        int64_t seed;
        int64_t top_k;       /* 0: all */
        double top_p, min_p; /* top_p 1, min_p 0: all */
        double repetition_penalty, frequency_penalty, presence_penalty;
        spec_ref stop[SPEC_STOPS]; /* strings; empty: none */
        int64_t n;                 /* continuations of each prompt */
        int32_t logprobs;          /* alternatives reported with each token; -1: none at all */
        int32_t ignore_eos;
        int64_t steps;   /* diffusion: steps of Euler's rule, or of DDIM */
        double guidance; /* diffusion: classifier-free guidance scale; 1: none */
        int32_t eta;     /* models that predict noise: 0 is DDIM, 1 is ancestral sampling */
    } sampling;

    struct {
        int32_t batch; /* generate: prompts that are answered at once; 0 = auto: by the plan */
    } infer;

    struct {           /* linear attention: files of the states after a context */
        spec_ref load; /* a file of states to begin from */
        int32_t save;  /* the states become an artifact */
    } context;

    struct {
        int64_t by_position_bucket; /* tokens of a bucket; 0: no buckets */
        int64_t stride;             /* windows overlap by seq_len - stride; 0: they do not */
        int32_t token_logprobs;     /* write one number per token into an artifact */
    } score;

    struct {
        int32_t pooling;      /* enum pooling_id */
        int32_t normalize;    /* scale vectors to length 1 */
        int32_t unsaid;       /* bits of enum embed_unsaid: fields to take from the model once it
                               * is known */
        spec_ref prompt_name; /* one of model.path's prompts; empty: its default */
        int32_t prompts;      /* a prompt is put before every text */
    } embed;

    struct {
        spec_ref path; /* a directory beneath a writable root of the node; empty: none */
    } output;

    struct {
        spec_ref device; /* "cpu" */
        int32_t ranks;
        int32_t threads;    /* per rank */
        int64_t memory_mib; /* per rank; 0: its share of the largest node, or of its GPU */
    } resources;

    struct {
        int32_t restarts;       /* most restarts after failures that the job itself caused */
        int64_t step_timeout_s; /* 0 = auto */
        int64_t init_timeout_s;
        int64_t hop_timeout_s; /* becomes comm_options.silence_ms */
        int64_t wall_s;        /* 0: none */
    } limits;

    int64_t seed;
    int32_t determinism; /* enum determinism_id */

    uint32_t text_used; /* bytes of text[] in use; at least 1 */
    char text[SPEC_TEXT_SIZE];
};

const char *spec_text(const struct job_spec *s, spec_ref ref);
/* Tells whether the job describes its model in model.config, without a directory. */
bool spec_new_model(const struct job_spec *s);
/* Tells whether the job's first weights are drawn from its seed: the job has a new model
 * (spec_new_model) or model.init. */
bool spec_random_weights(const struct job_spec *s);
/* Copies a string into the table. Returns -1 when the table's 64 KiB are used up. */
int spec_intern(struct job_spec *s, const char *str, size_t len, spec_ref *ref);

/* ---- the table of fields --------------------------------------------------------------------- */

extern const struct field spec_fields[];   /* ends with path NULL */
extern const struct field source_fields[]; /* fields of one data source */
extern const struct field stage_fields[];  /* fields of one stage */
/* Fields that take only one word so far ("optim.name": "adamw"): they have no member. */
extern const struct field spec_constants[];

void spec_defaults(struct job_spec *s);
/* Sets a field's default. base: s, or the source or stage of s that has the field. */
void spec_set_default(struct job_spec *s, const struct field *f, void *base);
void spec_source_defaults(struct spec_source *src); /* strings empty, format 0 */
const struct field *spec_field(const char *path);   /* NULL: unknown */
/* Tells whether *v is the default of f. Strings of *v are in s. */
bool spec_is_default(const struct job_spec *s, const struct field *f, const void *v);
/* Names a part of s that is unknown to a peer of this abi (api/wire.h): a field that is not at its
 * default, a word with its field, or "paths by job:ID". NULL: the peer knows all of s. */
const char *spec_needs(const struct job_spec *s, uint32_t abi);
/* Returns the known path nearest to an unknown one, or NULL. The distance is at most 3 and at most
 * nearest_most of the last part. A path with the same last part has distance 1. */
const char *spec_suggest(const char *path);
/* Finds the row of table whose path is nearest to path by the same rule. Returns the last part of
 * the row's path, or NULL. For the keys of model.config. */
const char *spec_field_nearest(const struct field *table, const char *path);
extern const char *const spec_weights_words[];   /* by enum weights_id, NULL-terminated */
extern const char *const spec_form_words[];      /* by enum form_id, NULL-terminated */
extern const char *const spec_objective_words[]; /* by enum objective_id, NULL-terminated */

/* Normalises s: sets the degrees, lengths and tolerances that are auto (derived steps stay 0 until
 * the data is counted). Checks every rule that needs no file and no model: ranges, layout x
 * determinism, the needs of each kind of job. Rules that depend on the model's family are
 * family_check()'s (worker/plan/check.h), which calls this function first.
 * fails: ERR_INVALID, ERR_UNSUPPORTED, ERR_TOO_LARGE, with the field and the fix. Idempotent. */
int job_check(struct job_spec *s, struct err *e);
/* The allowed differences between P ranks and one, if the job does not set them. */
struct job_tolerance {
    double loss_rel, grad_rel_l2;
};
struct job_tolerance job_tolerance(int32_t precision);
/* Checks the rules of job_check about score and embed (job_infer.c). */
int job_check_infer(struct job_spec *s, struct err *e);
/* Checks the rules of job_check about schedules, stages, evaluation and the first step
 * (job_train.c). */
int job_check_training(const struct job_spec *s, struct err *e);
/* Tells whether text is cut into bytes. It is if the job asks for bytes, or if the model is not
 * known to have other ids and its vocabulary is not known to be too small (job_lacks_bytes). */
bool job_reads_bytes(const struct job_spec *s);
/* Tells whether the vocabulary is known and too small for bytes: ids 0 to 255, an end and
 * padding. */
#define JOB_BYTE_VOCAB 258
bool job_lacks_bytes(const struct job_spec *s);
/* Returns the stages of the job's pipeline. parallel.pp stays 0 if the job does not set it: nodes
 * of older versions can run that job. */
static inline int job_stages(const struct job_spec *s)
{
    return s->parallel.pp > 0 ? s->parallel.pp : 1;
}
static inline int job_tp(const struct job_spec *s) /* parallel.tp; 1 if it is unset */
{
    return s->parallel.tp > 1 ? s->parallel.tp : 1;
}
/* Tells whether text is cut by the tokenizer of model.path. A job that has neither bytes nor a
 * tokenizer reads ids alone. */
bool job_has_tokenizer(const struct job_spec *s);
/* Refuses text in `what` (a field, or a member of a line) for a job that reads ids alone. The
 * error names another way to give the input. */
int job_refuse_text(const struct job_spec *s, const char *field, const char *what, struct err *e);
const char *spec_kind_name(int kind);
const char *spec_data_format_name(int format); /* format: enum data_format */

#endif
