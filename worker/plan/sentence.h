/* sentence.h: a text made piece by piece in a buffer of fixed size. Inside worker/plan.
 *
 * A text that does not fit is cut; tests/engine/test_words.c makes the longest of every text and
 * checks that none is cut. */
#ifndef SEQD_PLAN_SENTENCE_H
#define SEQD_PLAN_SENTENCE_H

#include <stddef.h>

struct sentence {
    char *at; /* borrowed; NUL-terminated at all times */
    size_t size, n;
};

struct sentence sentence_in(char *at, size_t size); /* "" so far; size >= 1 */
__attribute__((format(printf, 2, 3))) void sentence_add(struct sentence *s, const char *format,
                                                        ...);

#endif
