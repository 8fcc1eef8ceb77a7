/* charsmap.h: the precompiled_charsmap of SentencePiece. It has the character sequences that a
 * normalizer replaces, and their replacements. The sequences are in a double-array trie. */
#ifndef SEQD_TEXT_CHARSMAP_H
#define SEQD_TEXT_CHARSMAP_H

#include "worker/text/json.h"

struct charsmap;

/* Opens a map. The parameter `v` is the map in base64, as it is in a tokenizer.json. Fails
 * with ERR_INVALID, or with ERR_TOO_LARGE if memory is out. */
struct charsmap *charsmap_open(struct json v, struct err *e);
void charsmap_destroy(struct charsmap *m);
/* Finds the shortest key with which s [n] begins. Returns the replacement of this key, which
 * has *size bytes of UTF-8. Returns NULL if s begins with no key. */
const char *charsmap_find(const struct charsmap *m, const char *s, int64_t n, int64_t *size);

#endif
