/* panels.h: weights of numbers in panels. A product reads this layout once, one cache line after
 * another, and transposes nothing.
 *
 * A matrix [N, K] of fp32 or bf16, K a multiple of QUANT_K, has the same bytes in panels as in
 * rows, in another order. QUANT_ROWS neighbouring rows make a panel, in the place of these rows. A
 * panel's words ascend in k; the words of its rows lie side by side: word[k][16]. A word is a
 * float, or two bf16, that of an even k (the lower half) and that of k + 1. Rows past the last
 * whole panel stay rows. */
#ifndef SEQD_KERNELS_PANELS_H
#define SEQD_KERNELS_PANELS_H

#include "kernels/backend.h"

#define PANELS_COLS 32768 /* most columns, so that rows of a panel fit a thread's scratch */

/* Tells whether a matrix can be in panels. */
static inline bool panels_fit(struct tensor w)
{
    return (w.dtype == DT_F32 || w.dtype == DT_BF16) && w.cols % QUANT_K == 0 &&
           w.cols <= PANELS_COLS && w.ld == w.cols;
}
/* Reads elements [at, at + n) of w, row-major, from panels as fp32. */
void panels_get(struct tensor w, int64_t at, int64_t n, float *out);

#endif
