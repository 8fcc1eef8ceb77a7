/* grapheme.h: finds extended grapheme clusters (UAX 29) in the way of the package `tokenizers`. */
#ifndef SEQD_TEXT_GRAPHEME_H
#define SEQD_TEXT_GRAPHEME_H

#include <stdint.h>

/* Returns the end of the cluster that begins at s[at]. The parameter `at` must be less than n.
 * Regional indicators are not joined in pairs. This makes no difference to callers, because
 * they use only clusters of at most five bytes, and a pair has eight bytes. */
int64_t grapheme_end(const char *s, int64_t n, int64_t at);

#endif
