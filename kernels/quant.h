/* quant.h: the host's conversions between fp32 and weights in blocks (api/core/quant.h). */
#ifndef SEQD_KERNELS_QUANT_H
#define SEQD_KERNELS_QUANT_H

#include "kernels/backend.h"

/* Writes elements [at, at + n) of w, counted row by row, from fp32. at and n are multiples of
 * QUANT_K, so that whole blocks are written. Several threads may write at the same time if no two
 * threads write the same block. A block that holds NaN or infinity gets a scale of NaN. A scale or
 * a least value past fp16's 65504 is stored as infinity. */
void quant_put(struct tensor w, int64_t at, int64_t n, const float *x);
/* Writes elements [at, at + n) of w from blocks that are already in w's format. The blocks follow
 * each other in memory row by row, in the layout that quant_row describes. */
void quant_put_blocks(struct tensor w, int64_t at, int64_t n, const uint8_t *blocks);
/* Reads elements [at, at + n) of w as the fp32 values that products use. The range may begin and
 * end within a block. */
void quant_get(struct tensor w, int64_t at, int64_t n, float *out);
/* Finds a block of w whose scale or least value is NaN or infinity. Returns the index of the
 * block's first element, counted row by row, or -1 if all scales and least values are finite. Sets
 * *past to false if the value is NaN, and to true if it is infinity, which means that finite
 * numbers did not fit in fp16. */
int64_t quant_not_finite(struct tensor w, bool *past);

#endif
