/* bpe.h: byte pair encoding. */
#ifndef SEQD_TEXT_BPE_H
#define SEQD_TEXT_BPE_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct bpe;

/* Opens the object "model". Borrows v, which must already have its vocabulary. byte_level means
 * that pieces are bytes, for which the vocabulary has visible characters. */
struct bpe *bpe_open(struct json j, const struct vocab *v, bool byte_level, struct err *e);
void bpe_destroy(struct bpe *b);
/* Appends the ids of one piece, with the range of bytes of each id. O(n log n). */
int bpe_encode(struct bpe *b, const char *s, int64_t n, struct hits *out, struct err *e);
/* Tells whether text may be cut between runes `before` and `after`. It may be cut if both are
 * tokens and no token has `after` directly after `before`, because then no merge crosses the cut.
 * If this returns false, a cut may change the ids. */
bool bpe_cut(struct bpe *b, uint32_t before, uint32_t after);

#endif
