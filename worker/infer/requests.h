/* requests.h: reads requests to a generate job. Every format gives one struct per prompt.
 *
 *   request_of_prompt   a prompt of input.prompt or of a text or jsonl file, with the job's
 *                       sampling.*
 *   request_of_line     a line of an openai_batch file:
 *       {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {...}}
 *       or of the url "/v1/chat/completions"
 *
 * The body: prompt (a string, or a list of token ids), max_tokens, temperature, top_p, top_k,
 * min_p, repetition_penalty, frequency_penalty, presence_penalty, min_tokens, ignore_eos, seed,
 * stop (a string or up to SPEC_STOPS of them), n, logprobs, echo; model and user (strings) are
 * accepted and ignored; stream may be false, best_of may be n. A member that is null or missing
 * gets the job's value. Unused members may have their usual values (neutral.h). Any other member
 * or value refuses that request only: a member that cannot be served is not silently left out.
 *
 * In a chat the body has messages in place of prompt: the model's chat template writes them and
 * the start of the assistant's next turn. max_completion_tokens is another name of max_tokens.
 * logprobs is true or false, and top_logprobs the number of alternatives. There is no echo and no
 * best_of. Tools are refused, except for an empty list.
 *
 * A request may ask for at most the job's sampling.max_tokens, for which the cache is planned. The
 * sum of the prompt's tokens and max_tokens must be at most data.seq_len.
 *
 * Random numbers: a body with its own seed is keyed by that seed alone, so that the same body
 * always gives the same text. Other bodies are keyed by the job's seed and the SHA-256 of the
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

/* Settings to read conversations; all members are borrowed. */
struct request_chat {
    const struct chat_model *model; /* NULL or without a template: conversations are refused */
    const struct err *why; /* reason of the refusal; NULL, ERR_NONE: there is no template */
    int64_t submitted_s;   /* as in struct rank_args */
};

struct request {
    char id[REQUEST_ID_SIZE]; /* custom_id, or a prompt's number */
    int32_t *tokens;          /* owned, room for token_room tokens: the prompt */
    char *text;               /* owned, room for `room` bytes */
    int64_t room, token_room, n_tokens;
    struct tokenizer *tokenizer;    /* borrowed: the model's own; NULL: text is bytes, or refused */
    const struct err *no_tokenizer; /* borrowed: reason for refusing text; NULL: the usual
                                     * reason */
    struct request_chat chat;
    struct tokens cut; /* owned scratch, like the next two members */
    struct text talk;
    struct template_output written;
    bool is_chat; /* the url is /v1/chat/completions */
    struct sample_options sample;
    struct stop stop;
    struct sample_key key; /* has seed and request, which key the random numbers */
    int64_t max_tokens, min_tokens, n;
    int32_t logprobs; /* alternatives to report; -1: no log-probabilities */
    int32_t echo, ignore_eos;
    struct err refused; /* ERR_NONE: not refused; its field is a member of the body, or a field of
                         * the job */
};

/* Sets r up without a tokenizer, which the caller sets. room: bytes of the longest prompt or
 * line. */
int request_init(struct request *r, int64_t room, struct err *e);
void request_fini(struct request *r);

/* Makes r from a prompt. i: its number in the job, which keys the random numbers. r->refused is
 * set if the text cannot be cut into tokens, or if the sum of its tokens and max_tokens exceeds
 * data.seq_len. */
void request_of_prompt(struct request *r, const struct job_spec *spec, const char *prompt,
                       int64_t size, int64_t i);
/* Reads a line, which may hold any bytes. r->refused then tells whether the request can be
 * answered. */
void request_of_line(struct request *r, const struct job_spec *spec, const char *line,
                     int64_t size);
/* Reads the custom_id of a line. fails: ERR_INVALID when the line is not a whole JSON object, has
 * no custom_id or two, or has one that is not a string of 1 to REQUEST_ID_SIZE - 1 bytes. */
int request_id(const char *line, int64_t size, char out[REQUEST_ID_SIZE], struct err *e);
/* Returns the number that keys, together with the job's seed, the random numbers of a request
 * without its own seed: 32 bits of the SHA-256 of its custom_id. */
int64_t request_key(const char *id);

#endif
