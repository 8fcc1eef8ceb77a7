/* normalizer.h: applies the normalizers of a tokenizer.json, in sequence. */
#ifndef SEQD_TEXT_NORMALIZER_H
#define SEQD_TEXT_NORMALIZER_H

#include "worker/text/json.h"

struct normalizer;

/* Opens the normalizers. *out is NULL if the file has no normalizer. */
int normalizer_open(struct json j, struct normalizer **out, struct err *e);
void normalizer_destroy(struct normalizer *n);
/* Replaces *r by its normal form, which is valid until the next call. If the parameter `spans`
 * is true, the result has the source offsets of its bytes. If the parameter `continues` is
 * true, r does not begin a text, but begins where normalizer_cut has allowed to divide a text. */
int normalizer_apply(struct normalizer *n, struct text_run *r, bool spans, bool continues,
                     struct err *e);
/* Returns true if text may be divided between the runes *a and *b. In that case the normal
 * forms of the two parts, joined, are the normal form of the whole text. It also sets *a and
 * *b to the last rune of the first part and the first rune of the second part after
 * normalization. n may be NULL. */
bool normalizer_cut(const struct normalizer *n, uint32_t *a, uint32_t *b);

#endif
