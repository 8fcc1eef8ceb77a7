/* charsmap.h: the precompiled_charsmap of SentencePiece, which is a double-array trie of the
 * character sequences that a normalizer replaces, and their replacements. */
#ifndef SEQD_TEXT_CHARSMAP_H
#define SEQD_TEXT_CHARSMAP_H

#include "worker/text/json.h"

struct charsmap;

/* Opens a map. v is its base64, as a tokenizer.json has it. Fails with ERR_INVALID, or with
 * ERR_TOO_LARGE if memory is out. */
struct charsmap *charsmap_open(struct json v, struct err *e);
void charsmap_destroy(struct charsmap *m);
/* Returns the replacement for the shortest key with which s [n] begins, *size bytes of UTF-8.
 * Returns NULL if s begins with no key. */
const char *charsmap_find(const struct charsmap *m, const char *s, int64_t n, int64_t *size);

#endif
