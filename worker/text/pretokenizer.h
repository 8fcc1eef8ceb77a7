/* pretokenizer.h: applies the pre-tokenizers of a tokenizer.json in sequence. Pre-tokenizers split
 * a run into pieces. */
#ifndef SEQD_TEXT_PRETOKENIZER_H
#define SEQD_TEXT_PRETOKENIZER_H

#include "worker/text/json.h"

struct pretokenizer;

/* Opens the pre-tokenizers. *out is NULL if the file has no pre-tokenizer. */
int pretokenizer_open(struct json j, struct pretokenizer **out, struct err *e);
void pretokenizer_destroy(struct pretokenizer *p);
/* Returns true if the last pre-tokenizer is ByteLevel. In that case pieces have the bytes of
 * the text instead of the visible characters that represent bytes. */
bool pretokenizer_byte_level(const struct pretokenizer *p);
/* Returns true if the pre-tokenizers depend on the offset of a run in the caller's text. */
bool pretokenizer_needs_place(const struct pretokenizer *p);

typedef int piece_fn(void *who, const struct text_run *piece, struct err *e);
/* Calls each(who, piece) for each piece of r. No piece is empty. If p is NULL, r is the only
 * piece. If the parameter `spans` is true, pieces have their source offsets. If the parameter
 * `continues` is true, r begins where pretokenizer_cut has allowed to divide a text. */
int pretokenizer_apply(struct pretokenizer *p, const struct text_run *r, bool spans, bool continues,
                       piece_fn *each, void *who, struct err *e);

enum piece_cut {
    CUT_NO,     /* the two parts may have other pieces than the whole text */
    CUT_INSIDE, /* the two parts have the pieces of the whole text, except that one piece may
                 * be divided into two */
    CUT_PIECES  /* the two parts have exactly the pieces of the whole text */
};
/* Returns the effect of dividing a text between the runes *a and *b. The result holds for any
 * text that has these runes. If the result is CUT_INSIDE, the function replaces *a and *b by
 * the runes into which the pre-tokenizers change them. */
enum piece_cut pretokenizer_cut(const struct pretokenizer *p, uint32_t *a, uint32_t *b);

#endif
