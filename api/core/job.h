/* job.h: the specification of a job. Other headers have the states of a job (job_state.h), the
 * sizes of a model (model_shape.h) and the enums of a job's fields (choices.h), so that a file
 * includes only the header that it needs.
 *
 *   struct job_spec    the job as a person asked for it: plain data, fixed limits, a string table
 *   spec_fields[]      the table of its scalar fields (for a model's sizes:
 *                      worker/family/shape.h). JSON parsing, "did you mean", defaults, the echoed
 *                      spec_effective, protobuf packing and the OpenAPI check all read this table,
 *                      so that a new field is one member and one row
 *   job_check()        arithmetic and rules about several fields, after defaults are set
 *
 * The code here allocates no memory, reads no files and knows no JSON. */
#ifndef SEQD_CORE_JOB_H
#define SEQD_CORE_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/adapter.h"
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/field.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"

/* ---- job spec -------------------------------------------------------------------------------- */

typedef uint32_t spec_ref; /* offset into job_spec.text; 0 stands for the empty string */

struct spec_source {   /* one element of data.train[], eval.data[], or input */
    spec_ref path;     /* a file, or a glob pattern for files, beneath a configured root */
    spec_ref text_key; /* jsonl: the member that has the text; default "text" */
    int32_t format;    /* enum data_format */
    double weight;     /* share of samples in the mixture; if the weights of all sources are 0, the
                        * sizes of the sources are their shares */
    int64_t eod;       /* token formats: the id that separates documents; -1 means the id that the
                        * format defines */
};

struct spec_stage {    /* values that change at from_step; 0 leaves a value unchanged */
    int64_t from_step; /* optimizer step, counted from 0; stages are ascending, and the first is >
                        * 0 */
    int64_t seq_len;
    double lr, rope_theta;
};

struct spec_label {
    spec_ref key, value;
};

/* A job that must have ended before this one begins. */
struct spec_after {
    int64_t job;
    bool any; /* it may also have failed or been cancelled */
};

struct job_spec {
    int32_t kind; /* enum job_kind */
    int32_t priority;
    spec_ref name;
    int32_t n_labels;
    struct spec_label labels[SPEC_LABELS];
    /* The jobs of `after`, then those of `after_any`. Nodes do not get them. */
    int32_t n_after;
    struct spec_after after[SPEC_AFTER];

    struct {
        spec_ref path;    /* a model directory; if it is empty, config describes the model */
        int32_t init;     /* enum model_init_id; callers ask spec_random_weights() instead */
        int32_t weights;  /* enum weights_id */
        spec_ref adapter; /* the directory of an adapter, in peft's form; empty if there is none */
        /* Adapters from which each request chooses one by its name. An empty name ends the list. */
        struct spec_adapter {
            spec_ref name, path;
            spec_ref facts; /* the directory's properties (adapter_facts_write); empty if they are
                             * not known yet */
        } adapters[SPEC_ADAPTERS];
        struct {
            int32_t type;     /* 0 means the model's own rule; otherwise 1 + enum rope_id, with the
                               * parameters in `rule` */
            int32_t truncate; /* yarn: stored in the model as the inverse, no_truncate */
            double theta;     /* 0 means the model's theta */
            struct shape_rope rule; /* parameters for `type`; rule.kind is not set */
        } rope;                     /* family_check() copies this into `shape` */
        /* The model's sizes as JSON, in the form in which they are sent and stored. They come from
         * model.config, or from seqrank --describe of path. Empty if they are not known yet. */
        char config[SPEC_CONFIG_SIZE];
        /* The sizes that were read from config (worker/family/config.h). Width 0 means that config
         * has not been read yet. */
        struct model_shape shape;
    } model;

    struct {
        int32_t n_train;
        struct spec_source train[SPEC_SOURCES];
        int64_t seq_len;               /* S */
        int32_t document_mask;         /* attention only within a document */
        int32_t reset_positions;       /* positions count from the start of the document */
        int32_t packing;               /* enum packing_id */
        int32_t overlong;              /* enum overlong_id: how documents longer than seq_len are
                                        * treated */
        int32_t loss_on;               /* enum loss_on_id */
        int32_t tokenizer;             /* enum tokenizer_id; AUTO means bytes if the model's ids are
                                        * bytes, otherwise the model's own tokenizer, if it has
                                        * one */
        int64_t frames, height, width; /* latents: sizes of the largest sample, before the sample
                                        * is divided into patches */
    } data;

    struct { /* held-out evaluation inside training */
        int32_t n_data;
        struct spec_source data[SPEC_SOURCES];
        int64_t seq_len;     /* tokens of a window, in all stages; 0 means data.seq_len */
        int64_t every_steps; /* 0 means no periodic evaluations; at_start and at_end are not
                              * affected */
        int64_t max_tokens;  /* 0 means all tokens */
        int32_t at_start, at_end;
        int64_t patience; /* 0 means that no evaluation ends the training */
    } eval;

    int32_t n_stages;
    struct spec_stage stages[SPEC_STAGES];

    struct {
        int32_t params; /* enum precision_id, for weights, activations and matrix products */
    } precision;

    struct {
        int64_t steps;  /* given by the user, or computed when the data is counted. In a train job
                         * it is > 0 after that */
        int64_t tokens; /* tokens to train on, as an alternative to steps or passes */
        int64_t passes;
        int64_t global_batch; /* sequences per optimizer step; fixed when the job is submitted */
        int64_t micro_batch;  /* sequences per forward: 1 */
        double attention_dropout;
        double neftune_alpha; /* factor of the noise that is added to embeddings */
        /* Patterns of the names of tensors that the training leaves unchanged. The elements after
         * the last pattern are empty. */
        spec_ref freeze[SPEC_FREEZES];
    } train;

    struct {
        int32_t type; /* enum adapter_id */
        int32_t rslora;
        int64_t rank; /* 0 means ADAPTER_RANK */
        double alpha; /* 0 means the rank */
        double dropout;
        /* names of the products that have adapters; if there are none, all products of layers. The
         * elements after the last name are empty. */
        spec_ref targets[SPEC_TARGETS];
        /* names of modules that are trained whole. The elements after the last name are empty. */
        spec_ref modules_to_save[SPEC_SAVED];
        int32_t
            said; /* bits of enum adapter_said; only seqd sets them, while it prepares the job */
    } adapter;

    struct {
        int32_t type;         /* enum objective_id; AUTO means the objective of the family */
        double mask_prob;     /* masked_lm: share of tokens to predict */
        int64_t mask_token;   /* masked_lm: the id that replaces a hidden token */
        int32_t timestep;     /* enum timestep_id: how t is drawn */
        int32_t transform;    /* whether times are shifted towards noise; the shift grows with the
                               * size of the video */
        double text_dropout;  /* share of samples whose caption is left out */
        double frame_mask[4]; /* shares of the samples in which some frames have no noise: a few
                               * random frames, the first frames, the last frames, or the frames at
                               * both ends */
        /* dpo: */
        int32_t loss; /* enum preference_loss_id */
        double beta;
        double sft_weight; /* factor of the chosen answer's own loss, which is added */
        /* causal_lm and masked_lm: share of a target's probability that is spread over the
         * vocabulary; dpo: share of the pairs that are taken to be the wrong way round */
        double label_smoothing;
        double z_loss; /* factor of the squared log-sum-exp of the logits, which is added */
    } objective;

    struct {
        double decay; /* 0 means that no average of the weights is kept */
    } ema;

    struct {
        double lr, beta1, beta2, eps, weight_decay, max_grad_norm;
        double lr_saved; /* the rate of adapter.modules_to_save; 0 means lr */
    } optim;

    struct {
        int32_t type; /* enum schedule_id */
        int64_t warmup_steps;
        double min_lr_ratio;   /* lr at the end of the decay, as a share of the full lr */
        double decay_fraction; /* wsd: share of the run at its end in which lr decays */
        int32_t decay_shape;   /* wsd: enum decay_shape_id */
    } schedule;                /* linear warmup, then by type */

    struct {
        int32_t strategy; /* enum strategy_id */
        int32_t layout;   /* enum layout_id */
        int32_t sp;       /* ranks of one ring; 0 means auto, which is resources.ranks / (dp pp
                           * tp) */
        int32_t ulysses;  /* usp: ranks of a ring that share heads; 0 means auto */
        int32_t dp;       /* number of rings, each on its own samples; 0 means auto, which uses all
                           * remaining ranks */
        int32_t pp;       /* stages of the pipeline; 0 means one (job_stages) */
        int32_t tp;       /* ranks that split every layer by heads and columns; 0 means 1 */
        int32_t zero; /* ZeRO stage: 0 shards nothing, 1 the optimizer, 2 gradients too, 3 weights
                       * too */
        /* Ranks that share one set of shards. 0 means auto, which is all sp * dp ranks of a
         * stage. */
        int32_t zero_group;
        int32_t transport; /* enum transport_id */
        int32_t tls;       /* TCP between ranks is encrypted */
        int32_t form;      /* enum form_id, for ring attention and for grids */
        int32_t exchange;  /* enum exchange_id: how the states of linear attention are exchanged */
    } parallel;

    struct {                        /* how training responds to a bad loss or gradient of a step */
        int32_t nonfinite;          /* enum nonfinite_id */
        int32_t rollbacks;          /* largest number of rollbacks of a job */
        double loss_z, grad_norm_z; /* standard deviations beyond which an update is skipped; 0
                                     * means never */
    } guard;

    struct {
        int32_t recompute;         /* enum recompute_id */
        int64_t loss_chunk_tokens; /* 0 = auto */
        int64_t mlp_chunk_tokens;  /* 0 computes all rows together; -1 means auto, chosen by the
                                    * plan (worker/plan/plan.c) */
        /* LASP: number of tokens in a window. A rank computes its windows one after the other. 0
         * means that all its tokens are one window. */
        int64_t time_chunk;
        int32_t offload;      /* enum offload_id */
        spec_ref offload_dir; /* a directory beneath a writable root of the node; empty if there is
                               * none */
    } memory;

    struct {
        int64_t every_steps; /* 0 means only at the end */
        int64_t every_s;     /* 0 means that no save is made because of time */
        int32_t keep;
        int64_t keep_every;   /* a checkpoint whose step is a multiple of keep_every is never
                               * removed; 0 means no such rule */
        int32_t best;         /* the checkpoint with the lowest eval loss is kept as well */
        int32_t resume;       /* enum resume_id */
        spec_ref resume_path; /* RESUME_PATH: the directory of a step */
        int32_t changes;      /* the run of resume_path may differ in steps, rates, schedule and
                               * data */
        int32_t merge;        /* a checkpoint of adapters also has the model with them, in hf/ */
    } checkpoint;

    struct {
        int64_t max_tokens;
        double loss_rel, grad_rel_l2;
        int32_t first_step; /* train: compares the first step with that of one rank, and fails if
                             * the results differ */
        int32_t keep_grads; /* the gradients on P ranks and those on one rank become artifacts */
    } verify;

    struct {
        struct spec_source source; /* the data that score and generate read */
        spec_ref prompt;           /* generate: the text of the prompt, as an alternative to a
                                    * file */
    } input;

    struct {
        double temperature;
        int64_t max_tokens, min_tokens;
        int64_t seed;
        int64_t top_k;       /* 0 keeps all tokens */
        double top_p, min_p; /* top_p 1 and min_p 0 keep all tokens */
        double repetition_penalty, frequency_penalty, presence_penalty;
        spec_ref stop[SPEC_STOPS]; /* stop strings; an element that is not used is empty */
        int64_t n;                 /* number of continuations of each prompt */
        int32_t logprobs;          /* number of alternatives reported with each token; -1 reports
                                    * no log probabilities */
        int32_t ignore_eos;
        int64_t steps;   /* diffusion: steps of Euler's rule, or of DDIM */
        double guidance; /* diffusion: scale of classifier-free guidance; 1 means no guidance */
        int32_t eta;     /* models that predict noise: 0 selects DDIM, 1 selects ancestral
                          * sampling */
    } sampling;

    struct {
        int32_t batch; /* generate: number of prompts that are answered together; 0 lets the plan
                        * choose */
    } infer;

    struct {           /* linear attention: files with the states after a context */
        spec_ref load; /* a file with the states from which the job begins */
        int32_t save;  /* the states become an artifact */
    } context;

    struct {
        int64_t by_position_bucket; /* tokens of a bucket; 0 means no buckets */
        int64_t stride;             /* windows overlap by seq_len - stride tokens; 0 means that
                                     * they do not overlap */
        int32_t token_logprobs;     /* whether the log probability of each token is written to an
                                     * artifact */
    } score;

    struct {
        int32_t pooling;      /* enum pooling_id */
        int32_t normalize;    /* scale vectors to length 1 */
        int32_t unsaid;       /* bits of enum embed_unsaid: fields that the job leaves out; the
                               * model gives their values once it is known */
        spec_ref prompt_name; /* name of a prompt that model.path defines; empty means the model's
                               * default prompt */
        int32_t prompts;      /* whether a prompt is put in front of every text */
    } embed;

    struct {
        int32_t max_requests;   /* requests that are answered together */
        int32_t queue;          /* requests that wait for one of them to end */
        int64_t idle_s;         /* the job ends after this time without a request; 0 means never */
        int64_t drain_s;        /* time that open requests have after a cancel */
        int64_t cache_tokens;   /* keys and values of all ranks, in tokens; 0 = auto */
        int64_t prefill_tokens; /* largest piece of a prompt that a pass computes */
        int32_t share_prefixes; /* whether users share kept prefixes */
        int32_t cache_states;   /* states that are kept for prefixes */
        int32_t task;           /* enum serve_task_id */
        int32_t shared;         /* whether all users may send requests */
    } serve;

    struct {
        spec_ref path; /* a directory beneath a writable root of the node; empty if there is
                        * none */
    } output;

    struct {
        spec_ref device; /* "cpu" */
        int32_t ranks;
        int32_t threads;    /* per rank */
        int64_t memory_mib; /* memory per rank; 0 means the rank's share of the memory of the
                             * largest node, or of its GPU */
    } resources;

    struct {
        int32_t restarts;       /* largest number of restarts after failures that are the job's own
                                 * fault */
        int64_t step_timeout_s; /* 0 = auto */
        int64_t init_timeout_s;
        int64_t hop_timeout_s; /* becomes comm_options.silence_ms */
        int64_t wall_s;        /* 0 means no limit */
    } limits;

    int64_t seed;
    int32_t determinism; /* enum determinism_id */

    uint32_t text_used; /* number of bytes of text[] that are in use, at least 1 */
    char text[SPEC_TEXT_SIZE];
};

const char *spec_text(const struct job_spec *s, spec_ref ref);
/* Returns the number of adapters in model.adapters. */
static inline int spec_n_adapters(const struct job_spec *s)
{
    int n = 0;
    while (n < SPEC_ADAPTERS && s->model.adapters[n].name) n++;
    return n;
}
/* Tells whether the job describes its model in model.config instead of naming a directory. */
bool spec_new_model(const struct job_spec *s);
/* Tells whether the job's first weights are drawn at random from its seed. Returns true for a new
 * model (spec_new_model), and also if model.init asks for random weights. */
bool spec_random_weights(const struct job_spec *s);
/* Copies a string into the table of strings. Returns -1 when the 64 KiB of the table are used
 * up. */
int spec_intern(struct job_spec *s, const char *str, size_t len, spec_ref *ref);

/* ---- the table of fields --------------------------------------------------------------------- */

extern const struct field spec_fields[];   /* ends with path NULL */
extern const struct field source_fields[]; /* fields of one data source */
extern const struct field stage_fields[];  /* fields of one stage */
/* Fields without a member, because this version accepts only one word for each ("optim.name":
 * "adamw"). */
extern const struct field spec_constants[];

void spec_defaults(struct job_spec *s);
/* Sets a field to its default. `base` is s, or the source or stage of s that has the field. */
void spec_set_default(struct job_spec *s, const struct field *f, void *base);
void spec_source_defaults(struct spec_source *src); /* strings empty, format 0 */
const struct field *spec_field(const char *path);   /* returns the row of the field, or NULL if the
                                                     * path is unknown */
/* Tells whether *v has the default value of f. Strings of *v are in the table of s. */
bool spec_is_default(const struct job_spec *s, const struct field *f, const void *v);
/* Returns the name of a part of s that a peer with this abi does not know (api/wire.h), or NULL if
 * the peer knows all of s. The part is a field that is not at its default, a word of a field, or
 * "paths by job:ID". */
const char *spec_needs(const struct job_spec *s, uint32_t abi);
/* Returns the path of a field of these kinds of job (a bit for each of enum job_kind) that is
 * nearest to an unknown path, or NULL if none is near enough. The distance must be at most 3, and
 * at most nearest_most() of the unknown path's last part. If the last part of a known path equals
 * that of the unknown path, or if one of the paths is the other with "_" and more after it, its
 * distance counts as one and a half. */
const char *spec_suggest(const char *path, uint32_t kinds);
/* Returns the kinds of job that have the field, object or list `path`, as bits; 0 if there is no
 * such path. */
uint32_t spec_kinds(const char *path);
/* Finds, by the rule of spec_suggest, the row of the table whose path is nearest to the given
 * path. Returns the last part of the path of the row, or NULL if no row is near enough. It is used
 * for the keys of model.config. */
const char *spec_field_nearest(const struct field *table, const char *path);
extern const char *const spec_weights_words[];   /* by enum weights_id, NULL-terminated */
extern const char *const spec_form_words[];      /* by enum form_id, NULL-terminated */
extern const char *const spec_objective_words[]; /* by enum objective_id, NULL-terminated */

/* Normalises s by computing the degrees, lengths and tolerances that are auto. If train.steps
 * depends on the data, it remains 0 until the data is counted. Then checks every rule that needs
 * neither a file nor a model. These rules are about ranges, about combinations of layout and
 * determinism, and about the fields that each kind of job needs. family_check()
 * (worker/plan/check.h) calls this function first, and then checks the rules that depend on the
 * model's family.
 *
 * Fails with ERR_INVALID, ERR_UNSUPPORTED or ERR_TOO_LARGE; the error names the field and the
 * remedy. A second call changes nothing. */
int job_check(struct job_spec *s, struct err *e);
/* Default tolerances: the allowed differences between the results of P ranks and the results of
 * one rank. */
struct job_tolerance {
    double loss_rel, grad_rel_l2;
};
struct job_tolerance job_tolerance(int32_t precision);
/* Checks the rules of job_check that concern score and embed (job_infer.c). */
int job_check_infer(struct job_spec *s, struct err *e);
/* Checks the rules of job_check that concern schedules, stages, evaluation and the first step
 * (job_train.c). */
int job_check_training(const struct job_spec *s, struct err *e);
/* Checks the rules of job_check for a job of the kind merge, which has no data and no ring
 * (job_merge.c). */
int job_check_merge(struct job_spec *s, struct err *e);
/* Tells whether the job's text is converted to ids byte by byte. Returns true if the job asks for
 * bytes. Also returns true if the model's tokenizer is not known or is that of bytes, unless the
 * model's vocabulary is known to be too small for bytes (job_lacks_bytes). */
bool job_reads_bytes(const struct job_spec *s);
/* Tells whether the job computes vectors of texts: an embed job of its input, a serve job for
 * requests. A serve job has serve.task "auto" until its model is known. */
static inline bool job_embeds(const struct job_spec *s)
{
    return s->kind == JOB_EMBED || (s->kind == JOB_SERVE && s->serve.task == SERVE_TASK_EMBED);
}
/* Tells whether the job generates text or samples: a generate job from its input, a serve job for
 * requests. */
static inline bool job_generates(const struct job_spec *s)
{
    return s->kind == JOB_GENERATE || (s->kind == JOB_SERVE && !job_embeds(s));
}
/* Tells whether each request to the job has its own number of tokens, n and log-probabilities. */
static inline bool job_has_bodies(const struct job_spec *s)
{
    return s->kind == JOB_SERVE || s->input.source.format == DATA_OPENAI_BATCH;
}
/* Tells whether the job learns which of two answers is better, from pairs of documents. */
static inline bool job_learns_pairs(const struct job_spec *s)
{
    return (s->kind == JOB_TRAIN || s->kind == JOB_VERIFY) && s->objective.type == OBJECTIVE_DPO;
}
/* Tells whether the model's vocabulary is known and too small for bytes. Bytes need the ids 0 to
 * 255, an id for the end of a document and an id for padding. */
#define JOB_BYTE_VOCAB 258
bool job_lacks_bytes(const struct job_spec *s);
/* Returns the number of stages of the job's pipeline. parallel.pp remains 0 if the job does not
 * set it, so that nodes of older versions can run that job. */
static inline int job_stages(const struct job_spec *s)
{
    return s->parallel.pp > 0 ? s->parallel.pp : 1;
}
static inline int job_tp(const struct job_spec *s) /* returns parallel.tp, or 1 if it is unset */
{
    return s->parallel.tp > 1 ? s->parallel.tp : 1;
}
/* Tells whether the job's text is converted to ids by the tokenizer of model.path. If a job uses
 * neither this tokenizer nor bytes, it reads only ids. */
bool job_has_tokenizer(const struct job_spec *s);
/* Refuses text for a job that reads only ids. `what` names the field of the job, or the member of
 * a line, that has the text. The error names a way in which the job can give the input instead. */
int job_refuse_text(const struct job_spec *s, const char *field, const char *what, struct err *e);
const char *spec_kind_name(int kind);
const char *spec_data_format_name(int format); /* format: enum data_format */

#endif
