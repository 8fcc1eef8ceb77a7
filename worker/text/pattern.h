/* pattern.h: the regular expressions of pre-tokenizers and normalizers, with Oniguruma's meaning.
 *
 * A pattern is read by this folder, so that an unknown construct is refused by its name. Its
 * classes (\p{..}, \s, [..], letters that ignore case, single characters) are sets of runes by the
 * tables of unicode.h; runes that are in the same sets get the same byte. PCRE2 sees the text as
 * these bytes, and the pattern as classes of them: no table of its own takes part, and it never
 * sees UTF-8. */
#ifndef SEQD_TEXT_PATTERN_H
#define SEQD_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

#define PATTERN_SIZE 8192 /* bytes of one at most: the longest published one has 1,500 */

struct pattern;
/* Compiles a pattern. NULL with ERR_UNSUPPORTED for a construct that is not read, or where the
 * build has no PCRE2. */
struct pattern *pattern_create(const char *text, size_t n, struct err *e);
void pattern_destroy(struct pattern *p);
/* Begins to search s[n], which stays until the last pattern_next. */
int pattern_begin(struct pattern *p, const char *s, int64_t n, struct err *e);
/* Finds the next match, as Oniguruma's find_iter gives them: 1 with its bytes, 0 at the end, -1
 * where a limit of the search was met. */
int pattern_next(struct pattern *p, int64_t *begin, int64_t *end, struct err *e);
/* Tells whether a match may have both a and b, where b follows a, or whether the matches on one
 * side of a cut between them may depend on the other side. false: certainly not. */
bool pattern_joins(const struct pattern *p, uint32_t a, uint32_t b);
/* Tells whether a match certainly begins at a b that is not joined to the rune before it. */
bool pattern_begins(const struct pattern *p, uint32_t b);

#endif
