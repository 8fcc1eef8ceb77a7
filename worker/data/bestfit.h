/* bestfit.h: packs pieces into bins of one size by best-fit-decreasing, which needs at most 11/9
 * of the optimal number of bins, plus four (Johnson, 1973). */
#ifndef SEQD_DATA_BESTFIT_H
#define SEQD_DATA_BESTFIT_H

#include <stdint.h>
#include "api/core/err.h"

struct piece;

/* Packs the longest piece first, of equal pieces the earlier one. A piece goes into the bin with
 * the smallest room that holds it, of equal bins into the last to reach that room. If no bin has
 * the room, it goes into a new bin. placed [n]: pieces in the order of packing. where [n]: bin of
 * each piece. Lengths lie in [1, size]. Time: O(n log n + size). Memory while it runs: about 4
 * bytes per piece and 4 per token of `size`.
 * fails: out of memory. */
int bestfit_pack(const struct piece *piece, int64_t n, int64_t size, uint32_t *placed,
                 uint32_t *where, int64_t *n_bins, struct err *e);

#endif
