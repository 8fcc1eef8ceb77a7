/* pattern_pairs.h: finds the pairs of characters that a pattern may read one after the other. If
 * it never reads b directly after a, a text may be cut between a and b, because matches before the
 * cut do not depend on the text after it, and matches after the cut do not depend on the text
 * before it. */
#ifndef SEQD_TEXT_PATTERN_PAIRS_H
#define SEQD_TEXT_PATTERN_PAIRS_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/text/buffer.h"

struct class_bits { /* a set of classes of runes of a pattern (pattern_parse.h) */
    uint64_t word[4];
};

struct pattern_pairs {
    bool known; /* false if the pattern has a lookbehind or an anchor, or may match the empty
                 * string */
    struct class_bits after[256]; /* for each class, a superset of the classes that a match or a
                                   * lookahead may have directly after it */
    struct class_bits alone;      /* classes of which a single rune is a match in any context */
};

/* Reads the pairs of a pattern in the form that pattern_parse writes. */
void pattern_pairs_read(struct pattern_pairs *p, const struct text *pattern);

static inline bool class_in(const struct class_bits *b, uint8_t c)
{
    return b->word[c / 64] >> (c % 64) & 1;
}

#endif
