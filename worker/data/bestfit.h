/* bestfit.h: packs pieces into bins of one size by best-fit-decreasing, which needs at most 11/9 of
 * the fewest possible bins, and one (Johnson, 1973). */
#ifndef SEQD_DATA_BESTFIT_H
#define SEQD_DATA_BESTFIT_H

#include <stdint.h>
#include "api/core/err.h"

struct piece;

/* Puts the longest piece first (of equals the earlier), each into the bin with the least room that
 * holds it (of equal bins the last to come to that room), else into a new one.
 * placed [n]: pieces in that order. where [n]: bin of each piece. Lengths lie in [1, size].
 * O(n log n + size / 64); while it runs: 4 bytes a bin and 4 a token of `size`.
 * fails: out of memory. */
int bestfit_pack(const struct piece *piece, int64_t n, int64_t size, uint32_t *placed,
                 uint32_t *where, int64_t *n_bins, struct err *e);

#endif
