/* normalizer.h: the normalizers of a tokenizer.json, one after the other. */
#ifndef SEQD_TEXT_NORMALIZER_H
#define SEQD_TEXT_NORMALIZER_H

#include "worker/text/json.h"

struct normalizer;

/* Opens the normalizers. *out NULL: the file has none. */
int normalizer_open(struct json j, struct normalizer **out, struct err *e);
void normalizer_destroy(struct normalizer *n);
/* Replaces *r by its normal form, which is valid until the next call. spans: keeps the places that
 * bytes came from. continues: r does not begin a text, but follows a cut that normalizer_cut
 * allows. */
int normalizer_apply(struct normalizer *n, struct text_run *r, bool spans, bool continues,
                     struct err *e);
/* Tells whether the normal forms of the two sides of a cut between *a and *b, one after the other,
 * are certainly the normal form of both. Then *a and *b become the runes beside the cut in it. n
 * may be NULL. */
bool normalizer_cut(const struct normalizer *n, uint32_t *a, uint32_t *b);

#endif
