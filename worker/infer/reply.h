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
 * refused request has status_code 400, the body {"error": {...}}, and the sentence of this body
 * also under "error".
 *
 * "logprobs" is the object of OpenAI's completions: tokens, token_logprobs, top_logprobs and
 * text_offset, for the model's own distribution before temperature, cuts and penalties. The
 * alternatives of a token include the token itself, with the same digits as in token_logprobs.
 * With echo the tokens of the prompt come first, and the first of them has null. text_offset
 * counts bytes of the text of the tokens. In a chat "logprobs" has "content", a list of {"token",
 * "logprob", "bytes", "top_logprobs"}, each with the number of alternatives that was asked for.
 *
 * The name of a token is its text as it is in the middle of a text (tokenizer_piece). If that text
 * is not whole characters, the name is "bytes:\xNN...". If there is no text, or another
 * alternative has the same name, the name is "<|token-N|>", so that all names differ. With the
 * byte tokenizer, an ASCII byte other than 0 has that character as its name, any other byte has
 * the name "bytes:\xNN", and ids above 255 have the names "<|eod|>", "<|pad|>" and "<|token-N|>".
 *
 * If the model's ids are not bytes (data.tokenizer), a choice of results.jsonl has "token_ids"
 * after its text, in which with echo the ids of the prompt come first. generate.jsonl does not
 * have it. Without a tokenizer the text is empty. */
#ifndef SEQD_INFER_REPLY_H
#define SEQD_INFER_REPLY_H

#include "worker/infer/infer.h"

struct reply {                         /* {0}: empty */
    bool ids;                          /* token ids are not bytes, so a choice has "token_ids" */
    const struct tokenizer *tokenizer; /* borrowed: the model's own tokenizer; NULL if it has
                                        * none */
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

/* Makes the line of continuation c of answer a. prompt [size] has the bytes of the prompt. */
int reply_prompt(struct reply *p, const struct request *r, const char *prompt, int64_t size,
                 const struct infer_answer *a, int64_t c, struct err *e);
/* Makes the line of a request. number is the number of the request in its file, and model the name
 * of the model. a is NULL if r is refused. */
int reply_batch(struct reply *p, const struct request *r, int64_t number, const char *model,
                const struct infer_answer *a, struct err *e);
/* Writes the name of a token of the byte tokenizer, NUL-terminated. Tests call it, too. */
char *reply_token(char out[32], int32_t id);

#endif
