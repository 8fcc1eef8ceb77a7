/* requests.h: reads requests to a generate job. In every format, a prompt becomes one struct
 * request.
 *
 *   request_of_prompt   reads a prompt of input.prompt or of a text or jsonl file, and uses the
 *                       job's sampling.*
 *   request_of_body     reads the body of a request to a serve job
 *   request_of_line     reads a line of an openai_batch file:
 *       {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {...}}
 *       or with the url "/v1/chat/completions"
 *
 * The body may have prompt (a string, or a list of token ids), max_tokens, temperature, top_p,
 * top_k, min_p, repetition_penalty, frequency_penalty, presence_penalty, min_tokens, ignore_eos,
 * seed, stop (a string, or a list of up to STOP_STRINGS strings), n, logprobs, echo, logit_bias (an
 * object of up to REQUEST_BIAS ids and numbers) and response_format (text, json_object or
 * json_schema; grammar.h says which schemas, and which texts). user (a string) is accepted and
 * ignored; stream may be false, and best_of may equal n. model is a string,
 * which is ignored too unless the job has model.adapters: then it is the name of one of them. The
 * job's name, its model.path as answers have it, or no model stand for the model without an
 * adapter. A member that is null or missing gets the job's value. Unused members may have their
 * usual values (neutral.h). A request with any other member or value is refused, so that no member
 * is silently ignored. A member of the API is refused with the reason, an unknown one with the
 * nearest name. The other requests of the file are still answered.
 *
 * In a chat the body has messages instead of prompt. The model's chat template writes the messages
 * and the start of the assistant's next turn. max_completion_tokens is another name of max_tokens.
 * logprobs is true or false, and top_logprobs is the number of alternatives. There is no echo and
 * no best_of. The members of chat_template_kwargs are variables of the template. tools, tool_choice
 * and parallel_tool_calls are read if the template writes calls as calls.h has them.
 *
 * A served request may have stream, with stream_options.include_usage. Its n is at most
 * REQUEST_SERVED_N. Its prompt may be a list of prompts (serve_list.h). Its model is any string,
 * because the name has led to the job. If it has no max_tokens, it gets sampling.max_tokens or the
 * rest of data.seq_len, whichever is less.
 *
 * max_tokens may be at most the job's sampling.max_tokens, because the cache is planned for that
 * number. The prompt's tokens and max_tokens together must be at most data.seq_len.
 *
 * If a body has a seed, the key of the random numbers is this seed alone, so that equal bodies
 * always get equal texts. If a body has no seed, the key is the job's seed and the SHA-256 of
 * the custom_id. The id of a served request has the attempt's epoch before it. */
#ifndef SEQD_INFER_REQUESTS_H
#define SEQD_INFER_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "worker/infer/grammar.h"
#include "worker/infer/sample.h"
#include "worker/infer/stop.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct job_spec;
struct vocabulary;

/* The most continuations of a served request. Each may copy the prompt's text. */
#define REQUEST_SERVED_N 128
#define REQUEST_ID_SIZE  129 /* largest size of a custom_id in bytes, including its NUL */

/* The settings for reading conversations. All members are borrowed. */
struct request_chat {
    /* the template; if this is NULL or has no template, conversations are refused */
    const struct chat_model *model;
    /* reason why conversations are refused; NULL or ERR_NONE means that there is no template */
    const struct err *why;
    int64_t submitted_s; /* time at which the job was submitted, as in struct rank_args */
};

struct request {
    char id[REQUEST_ID_SIZE]; /* custom_id, or the number of the prompt */
    int32_t *tokens;          /* owned, room for token_room tokens: the prompt */
    char *text;               /* owned, room for `room` bytes */
    int64_t room, token_room, n_tokens;
    /* borrowed: the model's own tokenizer; NULL if text is bytes, or if text is refused */
    struct tokenizer *tokenizer;
    const struct err *no_tokenizer; /* borrowed: the reason why text is refused; NULL means the
                                     * usual reason */
    struct request_chat chat;
    struct vocabulary *vocabulary; /* borrowed; NULL refuses grammars */
    struct grammar *grammar;       /* owned: the texts that are allowed; NULL allows all */
    struct sample_bias *bias;      /* owned [n_bias]: logit_bias, in ascending order of ids */
    int32_t n_bias;
    struct tokens cut; /* owned, like the next two members: scratch memory */
    struct text talk;
    struct template_output written;
    bool is_chat;  /* set if the url is /v1/chat/completions */
    bool serves;   /* set for a request to a serve job */
    bool stream;   /* set if the answer is sent as it is made */
    bool calls;    /* set if calls are parsed from the text (calls.h) */
    bool one_call; /* set if calls after the first are left out */
    bool usage;    /* set if the end of the stream has a usage */
    /* set if it is refused because prompt and answer are longer than data.seq_len */
    bool too_long;
    struct sample_options sample;
    struct stop stop;
    struct sample_key key; /* key of the random numbers; only its members seed and request are
                            * set here */
    int64_t max_tokens, min_tokens, n;
    /* number of alternatives to report; -1 means that no log-probabilities are reported */
    int32_t logprobs;
    int32_t echo, ignore_eos;
    int32_t
        adapter; /* index of the adapter in model.adapters; ADAPTER_BASE if `model` names none */
    /* ERR_NONE if the request is not refused. Otherwise its field is a member of the body, or a
     * field of the job. */
    struct err refused;
};

/* Sets up r. The caller sets r->tokenizer afterwards. room is the number of bytes of the longest
 * prompt or line. */
int request_init(struct request *r, int64_t room, struct err *e);
void request_fini(struct request *r);
/* Frees the memory that only reading needs. No other request can be read into r. */
void request_trim(struct request *r);

/* Makes r from prompt number i of the job. i is part of the key of the random numbers. Sets
 * r->refused if the text cannot be converted to tokens, or if the prompt's tokens and
 * max_tokens together exceed data.seq_len. */
void request_of_prompt(struct request *r, const struct job_spec *spec, const char *prompt,
                       int64_t size, int64_t i);
/* The properties of a served request that do not stand in its body. */
struct request_call {
    uint64_t id; /* its decimal digits stand for the custom_id of a batch */
    bool chat;
    int32_t adapter; /* index in model.adapters, or ADAPTER_BASE */
    int64_t epoch;   /* epoch of the attempt, because ids begin again in each; 0 for none */
    int32_t part;    /* index of the prompt in its list, or 0. It is a part of the custom_id. */
};
/* Reads the body of a served request, which may contain any bytes. size is at most r->room.
 * Afterwards r->refused tells whether the request can be answered. */
void request_of_body(struct request *r, const struct job_spec *spec, const struct request_call *c,
                     const char *body, int64_t size);
/* Reads a line, which may contain any bytes. Afterwards r->refused tells whether the request can
 * be answered. */
void request_of_line(struct request *r, const struct job_spec *spec, const char *line,
                     int64_t size);
/* Reads the custom_id of a line. Fails with ERR_INVALID if the line is not a whole JSON object,
 * if it has no custom_id or has two, or if the custom_id is not a string of 1 to REQUEST_ID_SIZE
 * - 1 bytes. */
int request_id(const char *line, int64_t size, char out[REQUEST_ID_SIZE], struct err *e);
/* Returns a number for the key of the random numbers of a request that has no seed. The key
 * consists of this number and the job's seed. The number is 32 bits of the SHA-256 of the
 * request's custom_id. */
int64_t request_key(const char *id);

#endif
