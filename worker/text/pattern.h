/* pattern.h: the regular expressions of pre-tokenizers and normalizers, with the semantics of
 * Oniguruma.
 *
 * This folder parses patterns itself, and refuses unknown constructs by name. Each class of a
 * pattern (\p{..}, \s, [..], letters that ignore case, single characters) is a set of runes by
 * the tables of unicode.h. All runes that are in exactly the same sets get one byte. PCRE2
 * gets the text as these bytes, and a pattern whose classes consist of these bytes. For this
 * reason PCRE2 does not need its character tables, and never reads UTF-8. */
#ifndef SEQD_TEXT_PATTERN_H
#define SEQD_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Largest size of a pattern in bytes; the longest published pattern has 1,500 bytes. */
#define PATTERN_SIZE 8192

struct pattern;
/* Compiles a pattern. Returns NULL with ERR_UNSUPPORTED if the pattern has an unknown construct or
 * if this build has no PCRE2. Returns NULL with ERR_TOO_LARGE if memory is out. */
struct pattern *pattern_create(const char *text, size_t n, struct err *e);
void pattern_destroy(struct pattern *p);
/* Begins a search in s [n], which must be valid until the last pattern_next. */
int pattern_begin(struct pattern *p, const char *s, int64_t n, struct err *e);
/* Finds the next match, like find_iter of the package onig. Returns 1 if there is a match, and
 * *begin and *end get its range of bytes. Returns 0 if there is no further match, or -1 if a
 * limit of the search was reached. */
int pattern_next(struct pattern *p, int64_t *begin, int64_t *end, struct err *e);
/* Returns false if a text can be divided between the runes a and b. In that case no match can
 * contain b directly after a, and the matches in each part do not depend on the other part.
 * Otherwise returns true. */
bool pattern_joins(const struct pattern *p, uint32_t a, uint32_t b);
/* Returns true if a match begins at b in every text in which pattern_joins is false for b and
 * the rune before it. */
bool pattern_begins(const struct pattern *p, uint32_t b);

#endif
