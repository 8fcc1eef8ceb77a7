/* host_blocks.h: copies elements of a weight in blocks (api/core/quant.h) in a device's memory
 * from and to the host, in fp32: the host quantises them and reads them back, a panel at a time. */
#ifndef SEQD_MODEL_HOST_BLOCKS_H
#define SEQD_MODEL_HOST_BLOCKS_H

#include "kernels/backend.h"

/* Write and read elements [at, at + n) of w, row-major. A write is of whole blocks. On a device
 * without memory of its own, threads may write different blocks at the same time. Failures on the
 * device are reported by sync. */
void host_blocks_in(struct be *be, struct tensor w, int64_t at, int64_t n, const float *x);
/* Does as host_blocks_in from blocks in w's format, one after another (quant_put_blocks). */
void host_blocks_take(struct be *be, struct tensor w, int64_t at, int64_t n, const uint8_t *blocks);
void host_blocks_out(struct be *be, struct tensor w, int64_t at, int64_t n, float *out);
/* Finds a block of w with a scale or a least value that is NaN or infinity (quant_not_finite). */
int64_t host_blocks_not_finite(struct be *be, struct tensor w, bool *past);

#endif
