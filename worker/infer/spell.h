/* spell.h: converts a prompt and its continuation to text, token by token with the model's own
 * tokenizer, and finds the stop string that ends the text.
 *
 * The decoder sees both as one text, because the text of a token may depend on the tokens before
 * it. The place in that text at which the prompt ends is known once the decoder has returned the
 * whole prompt. */
#ifndef SEQD_INFER_SPELL_H
#define SEQD_INFER_SPELL_H

#include "worker/infer/stop.h"
#include "worker/text/tokenizer.h"

struct spell {
    struct detokenizer *decoder;
    struct text all;    /* prompt and continuation */
    struct text prompt; /* prompt, decoded by itself */
    bool late;          /* whether the decoder still holds a part of the prompt's text */
    int64_t begin;      /* offset in `all` of the first byte of the continuation */
    int64_t fed;        /* offset in `all` of the next byte that is searched for stop strings */
    int64_t *end;       /* owned [n]: length of `all` after each token, in which the tokens of the
                         * prompt come first */
    int64_t n, n_prompt, room;
};

/* Begins a new continuation of a prompt of ids [n]. The memory of s is used again. s must be {0}
 * before the first call. */
int spell_begin(struct spell *s, struct tokenizer *t, const int32_t *ids, int64_t n, struct err *e);
/* Adds the next token. *cut gets the number of bytes of `all` before a stop string that the token
 * completes, or -1 if it completes none. */
int spell_put(struct spell *s, struct stop *stop, int32_t id, int64_t *cut, struct err *e);
/* Gets the rest of the text from the decoder. *cut is as in spell_put. */
int spell_finish(struct spell *s, struct stop *stop, int64_t *cut, struct err *e);
/* Counts the tokens of the continuation that end within the first `cut` bytes. */
int64_t spell_tokens(const struct spell *s, int64_t cut);
void spell_fini(struct spell *s);

#endif
