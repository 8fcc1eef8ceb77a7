/* charsmap.h: the precompiled_charsmap of SentencePiece: a double-array trie of character
 * sequences that a normalizer replaces, and their replacements. */
#ifndef SEQD_TEXT_CHARSMAP_H
#define SEQD_TEXT_CHARSMAP_H

#include "worker/text/json.h"

struct charsmap;

/* Opens a map. v: its base64, as a tokenizer.json has it. fails: ERR_INVALID; ERR_TOO_LARGE
 * without memory. */
struct charsmap *charsmap_open(struct json v, struct err *e);
void charsmap_destroy(struct charsmap *m);
/* Returns the replacement for the shortest key at the beginning of s[n], *size bytes of UTF-8.
 * NULL: s begins with no key. */
const char *charsmap_find(const struct charsmap *m, const char *s, int64_t n, int64_t *size);

#endif
