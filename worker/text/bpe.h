/* bpe.h: byte pair encoding. */
#ifndef SEQD_TEXT_BPE_H
#define SEQD_TEXT_BPE_H

#include "worker/text/json.h"
#include "worker/text/vocab.h"

struct bpe;

/* Opens the object "model". Borrows v, which must hold its vocabulary. byte_level: pieces are
 * bytes, which the vocabulary has as visible characters. */
struct bpe *bpe_open(struct json j, const struct vocab *v, bool byte_level, struct err *e);
void bpe_destroy(struct bpe *b);
/* Appends the ids of one piece, with the range of bytes of each. O(n log n). */
int bpe_encode(struct bpe *b, const char *s, int64_t n, struct hits *out, struct err *e);
/* Tells whether text may be cut between runes `before` and `after`: both are tokens, and no token
 * has `after` directly after `before`, so that no merge crosses the cut. false: perhaps not. */
bool bpe_cut(struct bpe *b, uint32_t before, uint32_t after);

#endif
