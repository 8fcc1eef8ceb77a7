/* infer.h: generates text with a loaded model over the ring. It also has functions that are used
 * by generate, score and embed jobs.
 *
 * The prefill of the prompt runs over the ring, and its keys and values remain on the ranks that
 * computed them. One rank after another stores the keys and values of CACHE_BLOCK new tokens
 * (tree decoding, arXiv 2408.04093, merged in rank order). Every rank gets the same logits and
 * chooses the same token. To compare the choices, each rank sends 8 bytes to each other rank. If
 * a rank's choice differs from those of other ranks, the error names that rank. The n
 * continuations of a prompt share one prefill. Before each continuation, the cache is rewound to
 * the end of the prompt, and the states that layers had at the end of the prompt are restored.
 *
 * Up to plan->batch requests are answered at the same time. Each request has a cache, a sampler
 * and memory for its answer. One pass over the weights computes the next token of all requests. In
 * each attention layer, a rank sends each other rank one message with its partial results for all
 * requests. After the pass, a rank sends each other rank one message with its choices. The answer
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
#include "worker/infer/steer.h"
#include "worker/model/model.h"

struct infer {
    struct model *model; /* a model that is initialised and whose weights are loaded */
    const struct job_spec *spec;
    const char *job_dir;
    /* Called between windows and between tokens. If it returns true, the work stops. */
    bool (*stopped)(void *arg);
    void *arg;
    struct progress *progress; /* NULL if progress is not reported */
    /* for generate: the context before every prompt; NULL if there is no context */
    const struct context *context;
    const char *digest; /* for context.save: the digest of the weights */
    /* generate: the tokens that end a text; NULL means 256, which ends a text of bytes */
    const struct token_ends *ends;
    struct tokenizer
        *tokenizer; /* for generate: the model's own tokenizer; NULL if text is bytes, or if
                     * the job has no text */
    /* reason why the model's own tokenizer is not used; NULL or ERR_NONE if there is no reason */
    const struct err *no_tokenizer;
    struct request_chat chat; /* for generate: how conversations are read; if it is {0},
                               * conversations are refused */
    /* for grammars of requests; NULL refuses such requests */
    struct vocabulary *vocabulary;
    int64_t epoch; /* for a serve job: the attempt's, so that no attempt repeats random numbers */
    /* Called between two units of work. The argument `journal` is the descriptor of the file
     * with the results, or -1 if there is no such file. If the call returns -1, the job ends
     * at this point. `leave` may be NULL. */
    int (*leave)(void *arg, int journal, struct err *e);
    /* a serve job of vectors: the prompt before each text; NULL if there is none */
    const char *embed_prompt;
    int64_t shared_epoch; /* the attempt's, if nodes share job_dir; otherwise 0 */
};

enum infer_finish { FINISH_STOP, FINISH_LENGTH };
const char *infer_finish_name(enum infer_finish f); /* "stop", "length" */

/* ---- requests (answer.c) --------------------------------------------------------------------- */

struct infer_answer;

/* A work is a slot that answers one request at a time. It is set up once for a job, and uses the
 * plan's memory. */
struct infer_work {
    int slot; /* index of the cache, among the caches of the plan */
    struct sampler sampler;
    float *logits, *first; /* [V]: logits for the next token, and logits after the prompt */
    int32_t *tokens;       /* [sampling.max_tokens] */
    double *logprob;       /* [sampling.max_tokens]; NULL unless this rank reports
                            * log-probabilities */
    /* the alternatives of each token; their number is the number that the request asks for, at
     * most n_top */
    struct sample_top *top;
    int n_top;          /* -1 if the job reports no log-probabilities */
    struct spell spell; /* with a tokenizer: the text of the current continuation */
    struct steer steer; /* with a grammar: its state and mask */
    struct context_layout layout;
    /* Copy of the states of the layers after the prompt. It is needed because each continuation
     * changes the states. NULL if no layer has states. */
    char *states;
    char *records; /* with pages: room for the log-probabilities of a piece of a prompt */

    struct request request;   /* the current request */
    struct infer_answer *out; /* borrowed: the answer that is being made for the request; NULL
                               * if the work is idle */
    bool done;                /* set when the answer is complete */
    bool prefills;            /* set while infer_piece has to compute more of the prompt */
    int64_t n_prefilled;      /* number of tokens of the prompt that are computed */
    /* `sequence` is the index of the continuation; `n` is the number of tokens that it has so
     * far */
    int64_t sequence, n;
    /* the next token; before the ranks have compared their choices, it is only the choice of
     * this rank */
    int64_t choice;
    /* result of the search for a stop string at the last token; see take_text */
    int64_t stopped, cut;
    double part; /* share of the request's work that has been reported to progress */
    /* Counts of messages and bytes that the requests should have caused on this rank since the
     * last infer_settle. */
    struct comm_count want[PURPOSE_N];
};
/* The steps of all works of a job together. */
struct infer_steps {
    struct infer_pace pace; /* number of rows of all passes, and time of the passes */
    /* n_passes[n] is the number of passes with n rows since the last infer_settle. n_choices[n] is
     * the number of comparisons of n choices. */
    int64_t n_passes[JOB_MAX_BATCH + 1], n_choices[JOB_MAX_BATCH + 1];
};
/* Sets up w [plan->batch], which has one work for each slot. `reports` must be true on rank 0.
 * A rank with `reports` also keeps log-probabilities if the job asks for them. */
int infer_work_init(struct infer_work *w, const struct infer *in, bool reports, struct err *e);
void infer_work_fini(struct infer_work *w, int n);

/* Tokens with their log-probabilities in the model's own distribution, before any sampling
 * option. */
struct infer_tokens {
    int64_t n;
    int32_t *id; /* owned, [n] */
    /* owned, [n]; NULL if log-probabilities are not wanted, or if this rank does not report
     * them */
    double *logprob;
    struct sample_top *top; /* owned, [n][n_top] */
    int n_top;
};
struct infer_choice {
    struct infer_tokens tokens; /* generated tokens, without the id that ends the text */
    int64_t n_text;             /* number of the generated tokens before a stop string */
    /* `text` has the text of the tokens up to a stop string. It is NULL if there is no
     * tokenizer. */
    char *text;    /* owned, NUL-terminated: the prompt's text, then the generated text */
    int64_t size;  /* bytes of text */
    int64_t begin; /* offset of the first byte of the generated text */
    /* owned: the length that the text has after each token; the tokens of the prompt come
     * before those of the continuation */
    int64_t *token_end;
    enum infer_finish finish;
};

struct infer_answer {
    struct infer_choice *choice; /* owned, [n] */
    int64_t n, n_generated;
    int64_t n_kept;            /* tokens of the prompt that were in the cache at the begin */
    struct infer_pace prefill; /* number of tokens and duration of the passes that compute the
                                * prompt */
    /* tokens of the prompt, filled if the request has echo and logprobs; entry 0 has no
     * log-probability */
    struct infer_tokens prompt;
};
/* The functions below are collective. Every rank must have the same requests, and no request
 * may be refused. After an error the caller ends all answers. */

/* Begins a request in w: computes its prompt. If the plan has pages, infer_piece computes it,
 * and the caller has set the pages of the slot's cache, and n_tokens of it to the number of the
 * prompt's first tokens that are known. *out is the answer when w->done is set. The caller frees
 * the answer (infer_answer_fini). Fails with ERR_TOO_LARGE and the field data.seq_len if the
 * prompt is longer than the plan's sequence. Fails with ERR_CORRUPT if log-probabilities of an
 * echoed prompt are not finite. Also fails with the errors of comm, or with ERR_IO if there is
 * no memory. */
int infer_begin(const struct infer *in, struct infer_work *w, const struct request *r,
                struct infer_answer *out, struct err *e);
/* Computes the next piece of the prompt of w, which must have `prefills` set. Fails as infer_begin
 * does. */
int infer_piece(const struct infer *in, struct infer_work *w, struct err *e);
/* Chooses one token for each work in w [n] that has a request with a whole prompt. If the token
 * ends a continuation and a further continuation begins, also chooses the first token of that
 * continuation. Then runs one pass for all works that need further tokens. Adds counts and time
 * to steps. Fails with ERR_CORRUPT if logits are not finite, or if the choices of the ranks
 * differ. Fails with ERR_ABORTED if the job is stopped. Also fails with the errors of comm, or
 * with ERR_IO if there is no memory. */
int infer_step(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps,
               struct err *e);
/* Returns true if this rank has sent and received, since infer_at, exactly the bytes that the
 * works w [n] and their steps need. Call this function before the next infer_at. Local. */
bool infer_settle(const struct infer *in, struct infer_work *w, int n, struct infer_steps *steps);
void infer_answer_fini(struct infer_answer *a);

/* ---- a job (generate.c) ---------------------------------------------------------------------- */

struct infer_text {
    /* Owned: among the prompts that this attempt answered, the first continuation of the first
     * prompt, as valid UTF-8. NULL if this attempt answered no prompt. */
    char *text;
    int64_t n_prompts, n_prompt_tokens, n_tokens; /* sums over all prompts and continuations */
    /* for a batch: number of refused requests, and number of requests that an earlier attempt
     * answered */
    int64_t n_refused, n_resumed;
    struct err refused;                /* for a batch: the first refusal in this attempt */
    enum infer_finish finish;          /* reason why `text` ended */
    struct infer_pace prefill, decode; /* paces of this attempt */
    bool ledger_equal;
    struct artifact_done artifact; /* filled on rank 0: generate.jsonl, or results.jsonl of a
                                    * batch */
    struct artifact_done context;  /* filled on rank 0: context.safetensors; its name is "" if
                                    * no context is saved */
    /* errors.jsonl of a batch, filled on rank 0; the name is "" if no request was refused */
    struct artifact_done errors;
};
/* Answers all prompts. Every rank must have the same prompts. Collective. */
int infer_generate(const struct infer *in, const struct prompts *p, struct infer_text *out,
                   struct err *e);
void infer_text_fini(struct infer_text *t);

/* ---- shared functions (infer.c) -------------------------------------------------------------- */

int infer_check_stop(const struct infer *in, struct err *e); /* fails with ERR_ABORTED if the
                                                              * job was stopped */
/* Checks whether the job is stopped, and calls in->leave. Call it between two units of work. */
int infer_check_unit(const struct infer *in, int journal, struct err *e);
/* Names the adapter in an error about one of several, which finite_blame knows by its index. */
void infer_name_adapter(const struct infer *in, struct err *e);
/* Sets the step that this rank's error messages name, and resets the rank's counts. */
void infer_at(const struct infer *in, int64_t step);
/* Computes how many messages and bytes this rank's layers should send and receive in
 * n_forwards forward passes of the model's length. The caller adds the messages that carry
 * results to other ranks. */
int infer_expect(const struct infer *in, int64_t n_forwards, struct comm_count want[PURPOSE_N],
                 struct err *e);
/* Returns true if this rank has sent and received exactly `want` since infer_at, for every
 * purpose. */
bool infer_moved(const struct infer *in, const struct comm_count want[PURPOSE_N]);
/* Sets *ok to true on every rank if it was true on all ranks before the call, and to false
 * otherwise. Collective. */
int infer_agree(const struct infer *in, bool *ok, struct err *e);
/* Runs tokens [n <= plan's S] through all layers, as one document without targets. Collective. */
int infer_forward(const struct infer *in, const int32_t *tokens, int64_t n, struct err *e);
/* Runs several documents, which are joined end to end in `tokens` [at most the plan's S]. A
 * document attends only to itself, and its positions count from 0. ends [n_documents] has the
 * position after the last token of each document. If there is more than one document,
 * infer_packs() must be true. Collective. */
int infer_forward_documents(const struct infer *in, const int32_t *tokens, const int64_t *ends,
                            int n_documents, struct err *e);
/* Returns true if this job puts several documents into one sequence. Returns false with
 * data.packing "none". Also returns false if the rotary embedding depends on the length of the
 * sequence (dynamic, longrope), because the result of a document would then depend on the
 * other documents of the sequence. Operations with a state (linear attention, the gated delta
 * rule, convolutions) are allowed in a sequence of several documents, because they reset the
 * state at each document. */
bool infer_packs(const struct infer *in);
/* Checks the length of a prompt of n tokens. If the prompt is longer than the plan's sequence,
 * fails with ERR_TOO_LARGE and the field data.seq_len. */
int infer_check_length(const struct infer *in, int64_t n, struct err *e);
/* Copies the logits [V] after the last of n tokens to every rank. Call it after infer_forward.
 * Collective. */
int infer_last_logits(const struct infer *in, int64_t n, float *logits, struct err *e);
/* Copies the logits [V] of a row of rank `root` to every rank. Call it after a pass. Collective. */
int infer_share_logits(const struct infer *in, int root, int64_t row, float *logits, struct err *e);
/* Returns the rank that holds position pos of the model's sequence, and sets *row to the row of
 * this position on that rank. Returns -1 after an error. */
int infer_owner(const struct infer *in, int64_t pos, int64_t *row, struct err *e);

#endif
