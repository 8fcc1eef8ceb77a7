/* host_blocks.h: copies elements of a weight in blocks (api/core/quant.h) between the memory of a
 * device and the host. On the host the elements are fp32. The host converts to and from blocks,
 * one panel at a time. */
#ifndef SEQD_MODEL_HOST_BLOCKS_H
#define SEQD_MODEL_HOST_BLOCKS_H

#include "kernels/backend.h"

/* Write and read elements [at, at + n) of w, counted row by row. A write must cover whole blocks.
 * On a device without memory of its own, several threads may write different blocks at the same
 * time. Failures on the device are reported by sync. */
void host_blocks_in(struct be *be, struct tensor w, int64_t at, int64_t n, const float *x);
/* Does the same as host_blocks_in, but reads blocks that are already in w's format and follow each
 * other (quant_put_blocks). */
void host_blocks_take(struct be *be, struct tensor w, int64_t at, int64_t n, const uint8_t *blocks);
void host_blocks_out(struct be *be, struct tensor w, int64_t at, int64_t n, float *out);
/* Finds a block of w whose scale or least value is NaN or infinite, as quant_not_finite does. */
int64_t host_blocks_not_finite(struct be *be, struct tensor w, bool *past);

#endif
