/* reply.h: writes one answer as a line of JSON.
 *
 * generate.jsonl, a line per continuation:
 *   {"prompt", "index", "text", "n_prompt_tokens", "n_tokens", "finish_reason", "logprobs"?}
 * results.jsonl of a batch, a line per request, in the form of OpenAI's batches:
 *   {"id", "custom_id", "response": {"status_code": 200, "request_id", "body": {"id", "object",
 *    "model", "choices": [{"index", "text", "finish_reason", "logprobs"}], "usage"}},
 *    "error": null}
 *   in a chat "object" is "chat.completion", with "created" (when the job was submitted), and a
 *   choice has "message": {"role": "assistant", "content"} in place of its text
 *   refused: status_code 400, body {"error": {...}}, and the same sentence under "error"
 *
 * "logprobs" is the object of OpenAI's completions: tokens, token_logprobs, top_logprobs,
 * text_offset, for the model's own distribution, before temperature, cuts and penalties. A token's
 * alternatives include the token itself, with the same digits as in token_logprobs. With echo the
 * prompt's tokens come first; the first of them has null. text_offset counts bytes of the tokens'
 * text. In a chat it is "content", a list of {"token", "logprob", "bytes", "top_logprobs"}, each
 * with the number of alternatives that was asked for.
 *
 * The name of a token is its text in the middle of a text (tokenizer_piece). If that text is not
 * whole characters, the name is "bytes:\xNN...". If there is no text, or another alternative has
 * the same name, the name is "<|token-N|>", so that all names differ. With the byte tokenizer, the
 * name of an ASCII byte other than 0 is that character, of other bytes "bytes:\xNN", and of ids
 * above 255 "<|eod|>", "<|pad|>" and "<|token-N|>".
 *
 * If the model's ids are not bytes (data.tokenizer), a choice of results.jsonl has "token_ids"
 * after its text: with echo the prompt's ids come first. generate.jsonl has none. Without a
 * tokenizer the text is empty. */
#ifndef SEQD_INFER_REPLY_H
#define SEQD_INFER_REPLY_H

#include "worker/infer/infer.h"

struct reply {                         /* {0}: empty */
    bool ids;                          /* token ids are not bytes: a choice has "token_ids" */
    const struct tokenizer *tokenizer; /* borrowed: the model's own; NULL: it has none */
    int64_t created;                   /* "created" of chats: seconds since 1970 */
    char *line;                        /* owned: the last line, ending with a newline */
    int64_t size;                      /* bytes of the line */
    int64_t room;
    char *text; /* owned: room for a text and its UTF-8 */
    int64_t text_room;
    struct text name, own_name, others; /* owned: scratch */
    bool full;                          /* out of memory for a name */
};
void reply_fini(struct reply *p);

/* Makes the line of continuation c of answer a. prompt [size]: the prompt's bytes. */
int reply_prompt(struct reply *p, const struct request *r, const char *prompt, int64_t size,
                 const struct infer_answer *a, int64_t c, struct err *e);
/* Makes a request's line. number: the request's number in its file; model: the model's name. a:
 * NULL if r is refused. */
int reply_batch(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e);
/* Writes the name of a token of the byte tokenizer, NUL-terminated. Also for tests. */
char *reply_token(char out[32], int32_t id);

#endif
