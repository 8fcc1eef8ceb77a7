/* pattern_parse.h: rewrites a regular expression as an expression over classes of runes. */
#ifndef SEQD_TEXT_PATTERN_PARSE_H
#define SEQD_TEXT_PATTERN_PARSE_H

#include "worker/text/pattern_pairs.h"
#include "worker/text/rune.h"

struct pattern_classes {
    uint8_t of[RUNES]; /* the byte of each rune */
    struct pattern_pairs pairs;
};

/* Parses the pattern and fills *classes. Appends to `out` an equivalent pattern for a text in
 * which each rune is replaced by the byte of its class. This pattern has the syntax of PCRE2
 * without UTF. */
int pattern_parse(const char *text, size_t n, struct pattern_classes *classes, struct text *out,
                  struct err *e);

#endif
