/* preference.h: reads a record of a JSONL file that says which of two answers is better. Each
 * answer becomes a document, which begins with the prompt; the chosen answer comes first.
 *
 * The record has a prompt, a chosen answer and a rejected answer. All three are strings, or all
 * three are lists of messages. If the answers are lists, the prompt may be missing. In that case it
 * is the messages with which both lists begin. Two messages are equal if they have the same JSON
 * tokens in the same order; space between the tokens does not count. A prompt beside lists may be a
 * string, too, if it is the content of the last user's message with which both lists begin; the
 * lists are then divided as if it were missing. */
#ifndef SEQD_DATA_PREFERENCE_H
#define SEQD_DATA_PREFERENCE_H

#include <stdbool.h>
#include <stddef.h>
#include "worker/data/encode_text.h"

enum preference_id { ANSWER_CHOSEN, ANSWER_REJECTED, ANSWER_N };
extern const char *const preference_words[ANSWER_N];

/* A string without its quotes and escapes, or the JSON text of the elements of a list, without the
 * brackets. `at` points into the line; it is NULL if the record has no such member. */
struct preference_part {
    char *at;
    size_t len;
    bool list;
};

struct preference {
    struct preference_part prompt, answer[ANSWER_N];
};

/* Parses a line of a file, and unescapes its strings in place. If the line has no prompt, the
 * common messages become the prompt, and are no part of the answers. Fails with ERR_INVALID for a
 * line that is no such record. Fails with ERR_UNSUPPORTED for a member that is not used although
 * it changes the model's input, such as "tools" or "system". */
int preference_parse(struct preference *p, char *line, size_t n, struct err *e);

/* Converts both documents to tokens, by the worker t. Only tokens of the answers may be targets.
 * Fails as encode_pair and encode_answer do; the text of the error names the answer. */
int preference_cut(const struct preference *p, struct encode_text *t,
                   struct encode_cut out[ANSWER_N], struct err *e);
/* Adds one of the two documents to the encoder. `cut` has its tokens if a tokenizer has converted
 * them; otherwise each byte is a token. The end id follows a text, and may be a target. Fails with
 * ERR_INVALID if no token of the document is a target that a token before it predicts. Also fails
 * as encode_put and encode_bytes do. Call encode_end afterwards. */
int preference_put(const struct preference *p, enum preference_id answer, struct encode *c,
                   const struct encode_cut *cut, struct err *e);

#endif
