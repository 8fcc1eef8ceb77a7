/* sentence.h: writes a text piece by piece into a buffer of fixed size. It is private to
 * worker/plan.
 *
 * If the text does not fit, its end is left out. tests/engine/test_words.c makes the longest
 * version of every text and checks that it fits. */
#ifndef SEQD_PLAN_SENTENCE_H
#define SEQD_PLAN_SENTENCE_H

#include <stddef.h>

struct sentence {
    char *at; /* borrowed; NUL-terminated at all times */
    size_t size, n;
};

/* makes an empty text; size must be at least 1 */
struct sentence sentence_in(char *at, size_t size);
__attribute__((format(printf, 2, 3))) void sentence_add(struct sentence *s, const char *format,
                                                        ...);

#endif
