/* pattern_pairs.h: finds the pairs (a, b) of characters for which a pattern may read b
 * directly after a. If a pattern never reads b directly after a, a text may be divided between
 * a and b, because the matches in each of the two parts do not depend on the other part. */
#ifndef SEQD_TEXT_PATTERN_PAIRS_H
#define SEQD_TEXT_PATTERN_PAIRS_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/text/buffer.h"

struct class_bits { /* a set of classes of runes of a pattern (pattern_parse.h) */
    uint64_t word[4];
};

struct pattern_pairs {
    bool known; /* whether the pairs are known; false if the pattern has a lookbehind or an
                 * anchor, or if it may match the empty string */
    struct class_bits after[256]; /* after[c] is a superset of the classes that a match or a
                                   * lookahead may have directly after class c */
    struct class_bits alone;      /* classes whose single runes are matches in any context */
};

/* Finds the pairs of a pattern. The pattern has the form that pattern_parse writes. */
void pattern_pairs_read(struct pattern_pairs *p, const struct text *pattern);

static inline bool class_in(const struct class_bits *b, uint8_t c)
{
    return b->word[c / 64] >> (c % 64) & 1;
}

#endif
