/* reply.h: writes one answer as a line of JSON.
 *
 * generate.jsonl has one line per continuation:
 *   {"prompt", "index", "text", "n_prompt_tokens", "n_tokens", "finish_reason", "logprobs"?}
 * results.jsonl of a batch has one line per request, in the form of OpenAI's batches:
 *   {"id", "custom_id", "response": {"status_code": 200, "request_id", "body": {"id", "object",
 *    "model", "choices": [{"index", "text", "finish_reason", "logprobs"}], "usage"}},
 *    "error": null}
 * In a chat "object" is "chat.completion", "created" is the time at which the job was submitted,
 * and a choice has "message": {"role": "assistant", "content"} in place of its text. The line of a
 * refused request has status_code 400 and the body {"error": {...}}. The sentence of this body is
 * also the value of "error".
 *
 * "logprobs" is the object of OpenAI's completions: tokens, token_logprobs, top_logprobs and
 * text_offset, and its numbers are those of the model's own distribution, before temperature,
 * top_k, top_p, min_p and penalties are applied. The alternatives of a token include the token
 * itself, with the digits that it has in token_logprobs. With echo the tokens of the prompt come
 * first, and the first token has null instead of a number. text_offset counts bytes of the text
 * of the tokens. In a chat "logprobs" has "content". This is a list of {"token", "logprob",
 * "bytes", "top_logprobs"}, and each top_logprobs has as many alternatives as the request asks
 * for.
 *
 * If the request has tools, the message of a chat has "tool_calls" for the calls in its text
 * (calls.h), and content is null if there is no other text. A stream sends each call whole.
 *
 * The name of a token is the text that the token has in the middle of a text (tokenizer_piece).
 * If this text does not consist of whole characters, the name is "bytes:\xNN...". If the token
 * has no text, or if another alternative has the same name, the name is "<|token-N|>". For this
 * reason no two alternatives of a token have the same name. With the byte tokenizer, the name of
 * an ASCII byte other than 0 is its character. All other bytes have the name "bytes:\xNN". Ids
 * above 255 have the names "<|eod|>", "<|pad|>" and "<|token-N|>".
 *
 * If the model's ids are not bytes (data.tokenizer), a choice of results.jsonl has "token_ids"
 * after its text. With echo the ids of the prompt come first in "token_ids". generate.jsonl
 * has no "token_ids". If there is no tokenizer, the text is empty. */
#ifndef SEQD_INFER_REPLY_H
#define SEQD_INFER_REPLY_H

#include "worker/infer/calls.h"
#include "worker/infer/infer.h"

struct reply { /* {0}: empty */
    /* set if token ids are not bytes; a choice then has "token_ids" */
    bool ids;
    const struct tokenizer *tokenizer; /* borrowed: the model's own tokenizer; NULL if the
                                        * model has no tokenizer */
    int64_t created;                   /* "created" of chats: seconds since 1970 */
    char *line;                        /* owned: the last line, ending with a newline */
    int64_t size;                      /* bytes of the line */
    int64_t room;
    char *text; /* owned: memory for a text and for the same text as valid UTF-8 */
    int64_t text_room;
    struct text name, own_name, others; /* owned: scratch */
    bool full;                          /* set if there was no memory for a name */
    int64_t first; /* index that the first continuation of an answer gets; 0 but for the prompts
                    * of a list */
};
void reply_fini(struct reply *p);

/* Makes the line of continuation c of answer a. prompt [size] is the text of the prompt. */
int reply_prompt(struct reply *p, const struct request *r, const char *prompt, int64_t size,
                 const struct infer_answer *a, int64_t c, struct err *e);
/* Makes the line of a request of a batch. The parameter `number` is the index of the request
 * in its file, and `model` is the name of the model. The parameter `a` is NULL if the request
 * r is refused. */
int reply_batch(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e);
/* Makes the body of the answer to a served request. `number` is the id of the request. */
int reply_body(struct reply *p, const struct request *r, int64_t number, const char *model,
               const struct infer_answer *a, struct err *e);

/* Makes the continuations of the answer to a prompt of a list: JSON objects with commas between
 * them, at p->line [p->size]. */
int reply_choices(struct reply *p, const struct request *r, const struct infer_answer *a,
                  struct err *e);
/* Like reply_body, for a list of prompts. `choices` is a JSON list of what reply_choices has made.
 * r and a have the numbers of tokens of all prompts together. */
int reply_joined(struct reply *p, const struct request *r, int64_t number, const char *model,
                 const struct infer_answer *a, const char *choices, struct err *e);

/* A part of a continuation that is sent while the continuation is made. */
struct reply_chunk {
    int64_t index;    /* of the continuation */
    bool begins;      /* set for the first chunk of a continuation */
    const char *text; /* [size], valid UTF-8 */
    size_t size;
    struct infer_tokens tokens; /* borrowed; logprob is NULL if log-probabilities are not wanted */
    struct infer_tokens prompt; /* borrowed: the tokens of the prompt in the first chunk with echo,
                                 * else {0} */
    int64_t n_before;           /* number of the continuation's tokens before these */
    const int64_t *token_end;   /* as in struct infer_choice; NULL for tokens that are bytes */
    /* offset of the continuation in its text; for bytes, number of bytes before these tokens */
    int64_t begin;
    const char *finish;             /* NULL if the continuation is not complete */
    const struct calls_piece *call; /* a call instead of text, or NULL */
    int64_t call_index;             /* index of the call in the continuation */
};
int reply_chunk(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct reply_chunk *k, struct err *e);
/* Makes the chunk with the usage, which ends a stream. */
int reply_usage(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e);

#endif
