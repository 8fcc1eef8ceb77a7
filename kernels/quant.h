/* quant.h: the host's conversions between fp32 and weights in blocks (api/core/quant.h). */
#ifndef SEQD_KERNELS_QUANT_H
#define SEQD_KERNELS_QUANT_H

#include "kernels/backend.h"

/* Writes elements [at, at + n) of w, row-major, from fp32, in whole blocks: at and n are multiples
 * of QUANT_K. Threads may write blocks that do not meet at once. A block that holds NaN or infinity
 * gets a scale of NaN. A scale or a least value of infinity stands for one past fp16's 65504. */
void quant_put(struct tensor w, int64_t at, int64_t n, const float *x);
/* Does the same from blocks in w's format, which follow each other as quant_row says. */
void quant_put_blocks(struct tensor w, int64_t at, int64_t n, const uint8_t *blocks);
/* Reads elements [at, at + n) of w as the fp32 values that products take. The range may begin and
 * end within a block. */
void quant_get(struct tensor w, int64_t at, int64_t n, float *out);
/* Finds a block of w with a scale or a least value that is NaN or infinity. Returns its first
 * element, row-major, or -1: there is none. *past: it is infinity, of finite numbers that do not
 * fit in fp16; false: NaN. */
int64_t quant_not_finite(struct tensor w, bool *past);

#endif
