/* spell.h: spells a prompt and its continuation token by token with the model's own tokenizer, and
 * finds the stop string that ends the text.
 *
 * The decoder sees both as one text, because a token's text may depend on the tokens before it.
 * The end of the prompt in that text is known once the decoder has returned the whole prompt. */
#ifndef SEQD_INFER_SPELL_H
#define SEQD_INFER_SPELL_H

#include "worker/infer/stop.h"
#include "worker/text/tokenizer.h"

struct spell {
    struct detokenizer *decoder;
    struct text all;    /* prompt and continuation */
    struct text prompt; /* prompt, decoded alone */
    bool late;          /* the decoder still holds a part of the prompt's text */
    int64_t begin;      /* offset in `all` of the continuation's first byte */
    int64_t fed;        /* offset in `all` of the next byte for the stop strings */
    int64_t *end;       /* owned [n]: length of `all` after each token, the prompt's tokens
                         * first */
    int64_t n, n_prompt, room;
};

/* Begins a new continuation of a prompt of ids [n]. Memory of s is reused. s is {0} before the
 * first call. */
int spell_begin(struct spell *s, struct tokenizer *t, const int32_t *ids, int64_t n, struct err *e);
/* Puts the next token. *cut: number of bytes of `all` before a stop string that the token
 * completes; -1: none. */
int spell_put(struct spell *s, struct stop *stop, int32_t id, int64_t *cut, struct err *e);
/* Takes the rest of the text from the decoder. *cut: as in spell_put. */
int spell_finish(struct spell *s, struct stop *stop, int64_t *cut, struct err *e);
/* Counts the tokens of the continuation that end within the first `cut` bytes. */
int64_t spell_tokens(const struct spell *s, int64_t cut);
void spell_fini(struct spell *s);

#endif
