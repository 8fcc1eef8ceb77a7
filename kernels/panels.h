/* panels.h: weights of numbers in panels: the layout in which a product reads them once, one line
 * after another, and turns none.
 *
 * A matrix [N, K] of fp32 or bf16, K a multiple of QUANT_K, has the bytes that it has in rows, in
 * another order: QUANT_ROWS neighbouring rows make a panel, where those rows were; in it words
 * ascend in k, those of the rows side by side: word[k][16]. A word is a float, or two bf16 of k
 * even (the lower half) and k + 1. Rows past the last whole panel stay rows. */
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
