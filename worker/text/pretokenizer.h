/* pretokenizer.h: applies the pre-tokenizers of a tokenizer.json, one after the other. They split
 * a run into pieces. */
#ifndef SEQD_TEXT_PRETOKENIZER_H
#define SEQD_TEXT_PRETOKENIZER_H

#include "worker/text/json.h"

struct pretokenizer;

/* Opens the pre-tokenizers. *out is NULL if the file has none. */
int pretokenizer_open(struct json j, struct pretokenizer **out, struct err *e);
void pretokenizer_destroy(struct pretokenizer *p);
/* Tells whether the last pre-tokenizer is ByteLevel. If so, pieces have the bytes themselves
 * instead of the visible characters that stand for bytes. */
bool pretokenizer_byte_level(const struct pretokenizer *p);
/* Tells whether the pre-tokenizers depend on the offset of a run in the caller's text. */
bool pretokenizer_needs_place(const struct pretokenizer *p);

typedef int piece_fn(void *who, const struct text_run *piece, struct err *e);
/* Calls each(who, piece) for the pieces of r, none of which is empty. If p is NULL, r is the only
 * piece. `spans` means that pieces have their source offsets. `continues` means that r follows a
 * cut that pretokenizer_cut allowed. */
int pretokenizer_apply(struct pretokenizer *p, const struct text_run *r, bool spans, bool continues,
                       piece_fn *each, void *who, struct err *e);

enum piece_cut {
    CUT_NO,     /* the pieces of the two sides may differ from those of the whole */
    CUT_INSIDE, /* the pieces are the same, except that the cut may divide one in two */
    CUT_PIECES  /* the pieces are the same, and a piece ends at the cut */
};
/* Returns the effect of a cut between the runes *a and *b, which holds for any text around them.
 * If the effect is CUT_INSIDE, *a and *b are replaced by the runes that the pre-tokenizers make of
 * them. */
enum piece_cut pretokenizer_cut(const struct pretokenizer *p, uint32_t *a, uint32_t *b);

#endif
