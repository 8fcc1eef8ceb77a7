/* vocabulary.h: the bytes of the tokens of a job, sorted into a tree, which finds the tokens that a
 * grammar allows next. Every rank has its own, made from the same tokens, so that all ranks allow
 * the same ones.
 *
 * Memory: 12 bytes for each node of the tree, at most one for each byte of a token, 4 bytes for
 * each token, a bit for each token and each number of characters that a token has, and
 * VOCABULARY_TOKEN states of a grammar. It is allocated when the first request has a grammar.
 * Special tokens are not allowed, and no token of more than VOCABULARY_TOKEN bytes. Every character
 * of ASCII that can be printed has a token alone. Other bytes may have none:
 * a grammar with them is checked. If the vocabulary cannot end each character that a token begins,
 * only tokens of whole characters are allowed. */
#ifndef SEQD_INFER_VOCABULARY_H
#define SEQD_INFER_VOCABULARY_H

#include "worker/infer/grammar.h"
#include "worker/text/tokenizer.h"

#define VOCABULARY_TOKEN 64

struct vocabulary_tree {
    struct vocabulary_node *node; /* owned [n], each before those whose bytes begin with its own */
    int64_t n, room;
};
struct vocabulary { /* {0}: not prepared */
    int64_t n_vocab;
    struct vocabulary_tree all, rest; /* rest: tokens that do not stay in a string */
    int32_t *id;                      /* owned: ids in the order of their bytes */
    /* Owned [n_plain] masks. Mask k has a bit for each token that stays in a string and has at most
     * k + 1 characters. No token has more than n_plain. */
    uint64_t *plain;
    int32_t n_plain;
    struct grammar_state *state; /* owned [VOCABULARY_TOKEN + 1] */
    struct text bytes;           /* owned: bytes of the token that is taken */
    bool alone[256];             /* set for each byte that a token has alone */
    struct err failed;           /* why it cannot be made; ERR_NONE if it can */
};

/* Makes the tree, unless it is made. Without a tokenizer the ids below 256 are bytes. Fails with
 * ERR_UNSUPPORTED if the vocabulary has no token for a character of ASCII that can be printed, and
 * with ERR_IO if there is no memory. Other failures than this one are kept, and fail each later
 * call. */
int vocabulary_prepare(struct vocabulary *v, struct tokenizer *t, int64_t n_vocab, struct err *e);
void vocabulary_fini(struct vocabulary *v);
/* Checks that tokens can write each name and each literal of the grammar. Fails with
 * ERR_UNSUPPORTED, and names the byte without a token. */
int vocabulary_covers(const struct vocabulary *v, const struct grammar *g, struct err *e);
/* Returns the number of words of 64 bits of a mask. */
int64_t vocabulary_words(int64_t n_vocab);
/* Sets in mask [vocabulary_words] a bit for each token that the grammar allows after a state. */
void vocabulary_mask(const struct vocabulary *v, const struct grammar *g,
                     const struct grammar_state *s, uint64_t *mask);
/* Moves the state by the bytes of a token, which the mask had allowed. */
int vocabulary_take(struct vocabulary *v, struct tokenizer *t, const struct grammar *g,
                    struct grammar_state *s, int32_t token, struct err *e);

#endif
