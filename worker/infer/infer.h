/* infer.h: generates with a loaded model over the ring, and has functions that generate, score and
 * embed share.
 *
 * Generate. The prefill of the prompt runs over the ring, and its keys and values stay on the
 * ranks that computed them. Ranks store those of new tokens in turn, CACHE_BLOCK tokens each (tree
 * decoding, arXiv 2408.04093, merged in rank order). Every rank gets the same logits and chooses
 * the same token. The choices are compared, for which each rank sends 8 bytes to each other rank;
 * an error names a rank whose choice differs. n continuations of a prompt share its prefill:
 * before each of them the cache is rewound to the end of the prompt, and layers with states get
 * back their states at that point.
 *
 * Several requests, up to plan->batch, are answered at the same time. Each has a cache, a sampler
 * and memory for its answer. A pass over the weights computes the next token of all requests. In
 * each attention layer, every rank sends each other rank one message with its partial results for
 * all requests. After the pass, it sends each other rank one message with its choices. The answer
 * to a request does not depend on the other requests. */
#ifndef SEQD_INFER_INFER_H
#define SEQD_INFER_INFER_H

#include <stdbool.h>
#include "api/core/artifact.h"
#include "worker/infer/context.h"
#include "worker/infer/pace.h"
#include "worker/infer/prompts.h"
#include "worker/infer/requests.h"
#include "worker/infer/sample.h"
#include "worker/infer/spell.h"
#include "worker/model/model.h"

struct infer {
    struct model *model; /* initialised, weights loaded */
    const struct job_spec *spec;
    const char *job_dir;
    bool (*stopped)(void *arg); /* called between windows and between tokens; the work stops if it
                                 * returns true */
    void *arg;
    struct progress *progress;     /* NULL if progress is not reported */
    const struct context *context; /* generate: the context before every prompt; NULL if there is
                                    * none */
    const char *digest;            /* context.save: the digest of the weights */
    const struct token_ends *ends; /* generate: the tokens that end a text; NULL means 256, the end
                                    * of bytes */
    struct tokenizer
        *tokenizer; /* generate: the model's own tokenizer; NULL if text is bytes, or if the job
                     * has no text */
    const struct err *no_tokenizer; /* the reason why the model's own tokenizer is not used; NULL
                                     * or ERR_NONE if there is no reason */
    struct request_chat chat;       /* generate: {0}: conversations are refused */
    /* Called between two units of work. journal is the file that has their results, or -1 if there
     * is none. Returns -1 to end the job there. May be NULL. */
    int (*leave)(void *arg, int journal, struct err *e);
};

enum infer_finish { FINISH_STOP, FINISH_LENGTH };
const char *infer_finish_name(enum infer_finish f); /* "stop", "length" */

/* ---- requests (answer.c) --------------------------------------------------------------------- */

struct infer_answer;

/* A work is a slot that answers one request at a time. It is set up once for a job, in the plan's
 * memory. */
struct infer_work {
    int slot; /* one of the plan's caches */
    struct sampler sampler;
    float *logits, *first;  /* [V] logits for the next token, and the logits after the prompt */
    int32_t *tokens;        /* [sampling.max_tokens] */
    double *logprob;        /* [sampling.max_tokens]; NULL unless this rank reports
                             * log-probabilities */
    struct sample_top *top; /* for each token the alternatives that its request asks for, at most
                             * n_top of them */
    int n_top;              /* -1 if the job reports no log-probabilities */
    struct spell spell;     /* with a tokenizer: the text of the current continuation */
    struct context_layout layout;
    char *states; /* copy of the layers' states after the prompt, which is needed because each
                   * continuation changes the states; NULL if no layer has states */

    struct request request;   /* the current request */
    struct infer_answer *out; /* borrowed: the answer of the request; NULL if the work is idle */
    bool done;                /* the answer is complete */
    int64_t sequence, n;      /* sequence is the index of the continuation, n the number of its
                               * tokens so far */
    int64_t choice;           /* the next token; it is this rank's choice until the choices are
                               * compared */
    int64_t stopped, cut;     /* state of the search for a stop string at the last token; see
                               * take_text */
    double part;              /* the part of the request's work that has been reported to
                               * progress */
    /* The counts that this rank is expected to have for its requests since infer_settle. */
    struct comm_count want[PURPOSE_N];
};
/* The steps of all works of a job together. */
struct infer_steps {
    struct infer_pace pace; /* number of rows of all passes, and the time of the passes */
    /* Element n is the number of passes, or of comparisons of choices, with n rows since
     * infer_settle. */
    int64_t n_passes[JOB_MAX_BATCH + 1], n_choices[JOB_MAX_BATCH + 1];
};
/* Sets up w [plan->batch], one work for each slot. reports is true on rank 0, which also keeps
 * log-probabilities if they are asked for. */
int infer_work_init(struct infer_work *w, const struct infer *in, bool reports, struct err *e);
void infer_work_fini(struct infer_work *w, int n);

/* Tokens with their log-probabilities under the model's own distribution, before any sampling
 * option. */
struct infer_tokens {
    int64_t n;
    int32_t *id;            /* owned, [n] */
    double *logprob;        /* owned, [n]; NULL if they are not wanted, or if this rank does not
                             * report */
    struct sample_top *top; /* owned, [n][n_top] */
    int n_top;
};
struct infer_choice {
    struct infer_tokens tokens; /* generated tokens, without the id that ended the text */
    int64_t n_text;             /* number of tokens before a stop string */
    /* With a tokenizer, the text of the tokens up to a stop string. Without a tokenizer text is
     * NULL. */
    char *text;         /* owned, NUL-terminated: the prompt's text, then the generated text */
    int64_t size;       /* bytes of text */
    int64_t begin;      /* offset of the first byte of the generated text */
    int64_t *token_end; /* owned: length of text after each token, in which the tokens of the
                         * prompt come first */
    enum infer_finish finish;
};

struct infer_answer {
    struct infer_choice *choice; /* owned, [n] */
    int64_t n, n_generated;
    struct infer_pace prefill;  /* tokens and time of the prompt's pass through the layers */
    struct infer_tokens prompt; /* with echo and logprobs: the tokens of the prompt; entry 0 has no
                                 * logprob */
};
/* The calls below are collective. Every rank has the same requests, none of which is refused.
 * After an error the caller ends all answers. */

/* Begins a request in w by computing its prompt. *out is its answer once w->done is set; the
 * caller frees it (infer_answer_fini). Fails with ERR_TOO_LARGE and the field data.seq_len if the
 * prompt is longer than the plan's sequence, and with ERR_CORRUPT if log-probabilities of an
 * echoed prompt are not finite. Also fails with the errors of comm, or with ERR_IO if memory is
 * out. */
int infer_begin(const struct infer *in, struct infer_work *w, const struct request *r,
                struct infer_answer *out, struct err *e);
/* Chooses one token for each work in w [n] that has a request. If the token ends a continuation
 * and the next continuation begins, also chooses the first token of the next one. Then runs one
 * pass for all works that continue. Counts and time are added to steps. Fails with ERR_CORRUPT if
 * logits are not finite, or if a rank has chosen another token than the other ranks. Fails with
 * ERR_ABORTED when the job is stopped. Also fails with the errors of comm, or with ERR_IO if
 * memory is out. */
int infer_step(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps,
               struct err *e);
/* Tells whether this rank, since infer_at, has sent and received exactly the bytes that the works
 * w [n] and their steps need. Call this function before the next infer_at. Local. */
bool infer_settle(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps);
void infer_answer_fini(struct infer_answer *a);

/* ---- a job (generate.c) ---------------------------------------------------------------------- */

struct infer_text {
    char *text; /* owned: the first continuation of the first prompt that this attempt answered, as
                 * valid UTF-8; NULL if it answered none */
    int64_t n_prompts, n_prompt_tokens, n_tokens; /* sums over all prompts and continuations */
    int64_t n_refused, n_resumed;      /* batch: refused requests; requests answered by an earlier
                                        * attempt */
    struct err refused;                /* batch: the first refusal of this attempt */
    enum infer_finish finish;          /* reason why that text ended */
    struct infer_pace prefill, decode; /* of this attempt */
    bool ledger_equal;
    struct artifact_done artifact; /* rank 0: generate.jsonl, or results.jsonl of a batch */
    struct artifact_done context;  /* rank 0: context.safetensors; no name if it is not wanted */
    struct artifact_done errors;   /* rank 0: errors.jsonl of a batch; it has no name if no request
                                    * was refused */
};
/* Answers all prompts, which are the same on every rank. Collective. */
int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e);
void infer_text_fini(struct infer_text *t);

/* ---- shared functions (infer.c) -------------------------------------------------------------- */

int infer_check_stop(const struct infer *in, struct err *e); /* ERR_ABORTED once stopped */
/* Checks between two units of work whether the job is stopped, and calls in->leave. */
int infer_check_unit(const struct infer *in, int journal, struct err *e);
/* Sets the step that error messages of this rank name, and resets its counts. */
void infer_at(const struct infer *in, int64_t step);
/* Computes the counts of this rank's layers for n_forwards forward passes at the model's length.
 * The caller adds the counts of results that are sent to other ranks. */
int infer_expect(const struct infer *in, int64_t n_forwards, struct comm_count want[PURPOSE_N],
                 struct err *e);
/* Tells whether this rank has sent exactly these bytes and messages since infer_at, for every
 * purpose. */
bool infer_moved(const struct infer *in, const struct comm_count want[PURPOSE_N]);
/* Sets *ok on every rank to true if it is true on all ranks, otherwise to false. Collective. */
int infer_agree(const struct infer *in, bool *ok, struct err *e);
/* Runs a sequence of tokens [n <= plan's S] through all layers, as one document without targets.
 * Collective. */
int infer_forward(const struct infer *in, const int32_t *tokens, int64_t n, struct err *e);
/* Runs documents that follow each other in tokens [<= plan's S]. A document attends only to
 * itself, and its positions count from 0. ends [n_documents] has the position after the last token
 * of each document. Several documents need infer_packs(). Collective. */
int infer_forward_documents(const struct infer *in, const int32_t *tokens, const int64_t *ends,
                            int n_documents, struct err *e);
/* Tells whether this job puts several documents into one sequence. It does not with data.packing
 * "none". It also does not if the rotary embedding depends on the length of the sequence (dynamic,
 * longrope), because the result of a document would then depend on the other documents in the
 * sequence. Operators with a state (linear attention, the gated delta rule, convolutions) reset
 * the state at each document. */
bool infer_packs(const struct infer *in);
/* Checks the length of a prompt of n tokens. Fails with ERR_TOO_LARGE and the field data.seq_len
 * if it is longer than the plan's sequence. */
int infer_check_length(const struct infer *in, int64_t n, struct err *e);
/* Gives every rank the logits [V] after the last of n tokens. Call this function after
 * infer_forward. Collective. */
int infer_last_logits(const struct infer *in, int64_t n, float *logits, struct err *e);
/* Returns the rank that holds global position pos of the model's sequence, or -1 if no rank does.
 * *row gets the row of that position on that rank. */
int infer_owner(const struct infer *in, int64_t pos, int64_t *row, struct err *e);

#endif
