/* bestfit.h: packs pieces into bins of equal size by best-fit-decreasing. This needs at most
 * 11/9 OPT + 4 bins, where OPT is the smallest possible number of bins (Johnson, 1973). */
#ifndef SEQD_DATA_BESTFIT_H
#define SEQD_DATA_BESTFIT_H

#include <stdint.h>
#include "api/core/err.h"

struct piece;

/* Packs longer pieces first. Pieces of equal length are packed in their given order. A piece is
 * put into the bin with the smallest room that is enough for the piece. If several bins have the
 * same smallest room, the piece is put into the bin that got this room last. If no bin has enough
 * room, the piece is put into a new bin. placed [n] gets the pieces in the order of packing, and
 * where [n] gets the bin of each piece. Lengths must be in [1, size]. The call takes about 4 bytes
 * of memory per piece, 4 bytes of memory per token of `size`, and O(n log n + size) time. Fails if
 * memory is out. */
int bestfit_pack(const struct piece *piece, int64_t n, int64_t size, uint32_t *placed,
                 uint32_t *where, int64_t *n_bins, struct err *e);

#endif
