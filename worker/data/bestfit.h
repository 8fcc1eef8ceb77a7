/* bestfit.h: packs pieces into bins of one size by best-fit-decreasing, which needs at most 11/9
 * of the optimal number of bins, plus four (Johnson, 1973). */
#ifndef SEQD_DATA_BESTFIT_H
#define SEQD_DATA_BESTFIT_H

#include <stdint.h>
#include "api/core/err.h"

struct piece;

/* Packs the longest piece first, and of equally long pieces the earlier one first. A piece is put
 * into the bin with the smallest room that is enough for it. If several bins have the same
 * smallest room, the piece is put into the bin that was the last to get this room. If no bin has
 * enough room, the piece is put into a new bin. placed [n] gets the pieces in the order of
 * packing, and where [n] the bin of each piece. Lengths must lie in [1, size]. Time is O(n log n +
 * size). Memory during the call is about 4 bytes per piece and 4 per token of `size`.
 * Fails if memory is out. */
int bestfit_pack(const struct piece *piece, int64_t n, int64_t size, uint32_t *placed,
                 uint32_t *where, int64_t *n_bins, struct err *e);

#endif
