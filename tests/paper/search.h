/* search.h: the largest number that fits, by doubling and then by halving the gap. */
#ifndef SEQD_TESTS_PAPER_SEARCH_H
#define SEQD_TESTS_PAPER_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

/* fits holds up to some number from `least` to `most` and no farther. 0: `least` does not fit;
 * `most`: that much fits, and more was not tried. */
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
