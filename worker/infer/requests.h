/* requests.h: requests to a generate job, one struct per prompt, whatever the file's format.
 *
 *   request_of_prompt   a prompt of input.prompt or of a text or jsonl file: the job's sampling.*
 *   request_of_line     a line of an openai_batch file:
 *       {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {...}}
 *       or of the url "/v1/chat/completions"
 *
 * The body: prompt (a string, or a list of token ids), max_tokens, temperature, top_p, top_k,
 * min_p, repetition_penalty, frequency_penalty, presence_penalty, min_tokens, ignore_eos, seed,
 * stop (a string or up to SPEC_STOPS of them), n, logprobs, echo; model and user (strings) are read
 * and change nothing; stream may be false, best_of may be n. A member that is null or missing is as
 * the job says. Members that have no use here pass with their usual values (neutral.h). Anything
 * else refuses that request and no other: a member that cannot be served is not silently left
 * out.
 *
 * In a chat the body has messages in place of prompt: the model's chat template writes them and
 * opens the assistant's next turn; max_completion_tokens is max_tokens by another name; logprobs is
 * true or false, and top_logprobs the number of alternatives; there is no echo and no best_of.
 * Tools are refused, but for an empty list.
 *
 * sampling.max_tokens of the job is the most a request may ask for: the cache is planned for it.
 * The prompt and max_tokens must fit into data.seq_len together.
 *
 * Random numbers: a body with a seed of its own is keyed by that alone, so that the same body
 * always gives the same text; the others are keyed by the job's seed and the SHA-256 of the
 * custom_id. */
#ifndef SEQD_INFER_REQUESTS_H
#define SEQD_INFER_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "worker/infer/sample.h"
#include "worker/infer/stop.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct job_spec;

#define REQUEST_ID_SIZE 129 /* bytes of a custom_id, with its NUL */

/* Settings for reading conversations; all borrowed. */
struct request_chat {
    const struct chat_model *model; /* NULL or without a template: conversations are refused */
    const struct err *why; /* reason of the refusal; NULL, ERR_NONE: there is no template */
    int64_t submitted_s;   /* same as in struct rank_args */
};

struct request {
    char id[REQUEST_ID_SIZE]; /* custom_id, or a prompt's number */
    int32_t *tokens;          /* owned room for token_room tokens: the prompt */
    char *text;               /* owned room for `room` bytes */
    int64_t room, token_room, n_tokens;
    struct tokenizer *tokenizer;    /* borrowed: the model's own; NULL: text is bytes, or refused */
    const struct err *no_tokenizer; /* borrowed: reason of the refusal; NULL: the usual one */
    struct request_chat chat;
    struct tokens cut; /* owned scratch, as are the next two members */
    struct text talk;
    struct template_output written;
    bool is_chat; /* the url is /v1/chat/completions */
    struct sample_options sample;
    struct stop stop;
    struct sample_key key; /* seed and request; they key the random numbers */
    int64_t max_tokens, min_tokens, n;
    int32_t logprobs; /* alternatives to report; -1: no log-probabilities */
    int32_t echo, ignore_eos;
    struct err refused; /* ERR_NONE: not refused; field: a member of the body, or of the job */
};

/* Sets r up without a tokenizer, which the caller sets. room: bytes of the longest prompt or
 * line. */
int request_init(struct request *r, int64_t room, struct err *e);
void request_fini(struct request *r);

/* Makes r of a prompt. i: its number in the job, which keys the random numbers. r->refused: the
 * text cannot be cut into tokens, or its tokens and max_tokens are more than data.seq_len
 * together. */
void request_of_prompt(struct request *r, const struct job_spec *spec, const char *prompt,
                       int64_t size, int64_t i);
/* Reads a line, which may hold any bytes. r->refused then tells whether the request can be
 * answered. */
void request_of_line(struct request *r, const struct job_spec *spec, const char *line,
                     int64_t size);
/* Reads the custom_id of a line. fails: ERR_INVALID when the line is no whole JSON object, or has
 * no custom_id, two of them, or one that is no string of 1 to REQUEST_ID_SIZE - 1 bytes. */
int request_id(const char *line, int64_t size, char out[REQUEST_ID_SIZE], struct err *e);
/* Returns the key, beside the job's seed, of the random numbers of a request without a seed of its
 * own: 32 bits of the SHA-256 of its custom_id. */
int64_t request_key(const char *id);

#endif
