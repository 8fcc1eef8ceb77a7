/* pattern.h: the regular expressions of pre-tokenizers and normalizers, with the semantics of
 * Oniguruma.
 *
 * This folder parses patterns itself, and refuses unknown constructs by name. Classes (\p{..}, \s,
 * [..], letters that ignore case, single characters) are sets of runes by the tables of unicode.h.
 * Runes that are in the same sets get the same byte. PCRE2 gets the text as these bytes, and a
 * pattern whose classes consist of these bytes. So PCRE2 uses no character table of its own, and
 * never reads UTF-8. */
#ifndef SEQD_TEXT_PATTERN_H
#define SEQD_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define PATTERN_SIZE 8192 /* most bytes of a pattern; the longest published one has 1,500 */

struct pattern;
/* Compiles a pattern. Returns NULL with ERR_UNSUPPORTED for an unknown construct or in a build
 * without PCRE2, or with ERR_TOO_LARGE if memory is out. */
struct pattern *pattern_create(const char *text, size_t n, struct err *e);
void pattern_destroy(struct pattern *p);
/* Begins a search in s [n], which must be valid until the last pattern_next. */
int pattern_begin(struct pattern *p, const char *s, int64_t n, struct err *e);
/* Finds the next match, like find_iter of the package onig. Returns 1 with the match's range of
 * bytes, 0 at the end, or -1 if a limit of the search was reached. */
int pattern_next(struct pattern *p, int64_t *begin, int64_t *end, struct err *e);
/* Returns false if a text can be cut between a and b, because no match can contain b directly
 * after a, and the matches on each side of the cut cannot depend on the text on the other side.
 * Otherwise returns true. */
bool pattern_joins(const struct pattern *p, uint32_t a, uint32_t b);
/* Tells whether a match certainly begins at b if b is not joined to the rune before it. */
bool pattern_begins(const struct pattern *p, uint32_t b);

#endif
