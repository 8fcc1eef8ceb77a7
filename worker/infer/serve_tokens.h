/* serve_tokens.h: answers requests that convert text to ids and ids to text, in vLLM's form:
 *
 *     tokenize      {"prompt": "text"}      -> {"count", "max_model_len", "tokens": [ids]}
 *     detokenize    {"tokens": [ids]}       -> {"prompt": "text"}
 *
 * tokenize may also have add_special_tokens, which is true unless it is said. Both may have model,
 * whose value has led to the job. */
#ifndef SEQD_INFER_SERVE_TOKENS_H
#define SEQD_INFER_SERVE_TOKENS_H

#include "worker/infer/serve.h"

/* Answers q, which then has ended. Fails if the body cannot be read. */
int serve_tokens_answer(const struct infer *in, struct serve_request *q, struct text *scratch,
                        struct err *e);

#endif
