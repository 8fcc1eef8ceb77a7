/* full_match.h: tells whether a regular expression matches a whole text, as re.fullmatch of Python
 * does. The expression and the text may be malicious, so a match has a limit of steps. tested:
 * tests/engine/test_adapter_facts.c */
#ifndef SEQD_TEXT_FULL_MATCH_H
#define SEQD_TEXT_FULL_MATCH_H

#include <stddef.h>

struct full_match;

/* Returns NULL if the expression cannot be compiled, or if this build has no PCRE2. */
struct full_match *full_match_create(const char *expression, size_t size);
void full_match_destroy(struct full_match *m); /* accepts NULL */

/* Returns 1 if the whole text matches, 0 if it does not, and -1 if the limit was met. */
int full_match_test(struct full_match *m, const char *text, size_t size);

#endif
