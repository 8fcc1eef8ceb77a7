/* spell.h: converts a prompt and its continuation to text, token by token with the model's own
 * tokenizer, and finds the stop string that ends the text.
 *
 * The decoder gets prompt and continuation as one text, because the text of a token may depend
 * on the tokens before it. The position in this text at which the prompt ends is known only
 * when the decoder has returned the whole prompt. */
#ifndef SEQD_INFER_SPELL_H
#define SEQD_INFER_SPELL_H

#include "worker/infer/stop.h"
#include "worker/text/tokenizer.h"

struct spell {
    struct detokenizer *decoder;
    struct text all;    /* prompt and continuation */
    struct text prompt; /* text of the prompt, decoded alone */
    bool late;          /* set while the decoder has not returned the whole text of the prompt */
    int64_t begin;      /* offset in `all` of the first byte of the continuation */
    int64_t fed;        /* offset in `all` of the next byte to search for stop strings */
    /* owned [n]: the length that `all` has after each token; the tokens of the prompt come
     * before those of the continuation */
    int64_t *end;
    int64_t n, n_prompt, room;
};

/* Begins a new continuation of a prompt of ids [n]. s must be {0} before the first call; later
 * calls use its memory again. */
int spell_begin(struct spell *s, struct tokenizer *t, const int32_t *ids, int64_t n, struct err *e);
/* Adds the next token. If the token completes a stop string, *cut gets the number of bytes of
 * `all` before that string. Otherwise *cut gets -1. */
int spell_put(struct spell *s, struct stop *stop, int32_t id, int64_t *cut, struct err *e);
/* Gets the rest of the text from the decoder. *cut has the same meaning as in spell_put. */
int spell_finish(struct spell *s, struct stop *stop, int64_t *cut, struct err *e);
/* Returns the number of tokens of the continuation whose text ends within the first `cut`
 * bytes of `all`. */
int64_t spell_tokens(const struct spell *s, int64_t cut);
void spell_fini(struct spell *s);

#endif
