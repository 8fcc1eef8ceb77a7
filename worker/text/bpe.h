/* bpe.h: byte pair encoding. */
#ifndef SEQD_TEXT_BPE_H
#define SEQD_TEXT_BPE_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct bpe;

/* Opens the object "model". Borrows v, which must already have its vocabulary. If byte_level
 * is true, pieces consist of bytes, and the vocabulary has a visible character for each byte. */
struct bpe *bpe_open(struct json j, const struct vocab *v, bool byte_level, struct err *e);
void bpe_destroy(struct bpe *b);
/* Appends the ids of one piece, with the range of bytes of each id, in O(n log n) time. */
int bpe_encode(struct bpe *b, const char *s, int64_t n, struct hits *out, struct err *e);
/* Returns true if text may be divided between the runes `before` and `after`. This is the case
 * if both runes are tokens and no token has `after` directly after `before`, because no merge
 * then joins a symbol of the first part with a symbol of the second part. Returns false if a
 * division may change the ids. */
bool bpe_cut(struct bpe *b, uint32_t before, uint32_t after);

#endif
