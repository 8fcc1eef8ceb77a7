/* search.h: finds the largest number that fits. It doubles a number until it does not fit, and
 * then halves the interval. */
#ifndef SEQD_TESTS_PAPER_SEARCH_H
#define SEQD_TESTS_PAPER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the largest n from `least` to `most` for which fits returns true. fits must return true
 * up to some number and false for all larger numbers. Returns 0 if `least` does not fit. If the
 * result is `most`, that number fits and no larger one was tried. */
static inline int64_t search_most(bool (*fits)(int64_t n, void *arg), void *arg, int64_t least,
                                  int64_t most)
{
    int64_t in = 0, out = least;
    while (out <= most && fits(out, arg)) in = out, out *= 2;
    if (!in) return 0;
    if (out > most) out = most + 1;
    while (out - in > 1) {
        const int64_t mid = in + (out - in) / 2;
        if (fits(mid, arg))
            in = mid;
        else
            out = mid;
    }
    return in;
}

#endif
