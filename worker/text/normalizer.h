/* normalizer.h: applies the normalizers of a tokenizer.json, one after the other. */
#ifndef SEQD_TEXT_NORMALIZER_H
#define SEQD_TEXT_NORMALIZER_H

#include "worker/text/json.h"

struct normalizer;

/* Opens the normalizers. *out is NULL if the file has none. */
int normalizer_open(struct json j, struct normalizer **out, struct err *e);
void normalizer_destroy(struct normalizer *n);
/* Replaces *r by its normal form, which is valid until the next call. `spans` means that the
 * source offsets of bytes are kept. `continues` means that r does not begin a text, but follows a
 * cut that normalizer_cut allowed. */
int normalizer_apply(struct normalizer *n, struct text_run *r, bool spans, bool continues,
                     struct err *e);
/* Tells whether text may be cut between *a and *b. If it returns true, the normal forms of the two
 * sides, one after the other, are certainly the normal form of the whole text. Sets *a and *b to
 * the runes beside the cut in the normal form. n may be NULL. */
bool normalizer_cut(const struct normalizer *n, uint32_t *a, uint32_t *b);

#endif
