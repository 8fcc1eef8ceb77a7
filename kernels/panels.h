/* panels.h: weights in panels, which hold plain numbers (not codes of blocks). A product reads
 * this layout once, one cache line after another, and does not have to transpose it.
 *
 * A matrix [N, K] of fp32 or bf16, where K is a multiple of QUANT_K, has the same bytes in panels
 * as in rows, but in a different order. QUANT_ROWS neighbouring rows make a panel, which is stored
 * in the place of these rows. The words of a panel are an array word[k][16]: the 16 words that the
 * panel's rows have for one k follow each other. A word is one float or two bf16. The lower half
 * of a word is the bf16 of an even k, and the upper half is the bf16 of k + 1. Rows after the last
 * whole panel are stored as plain rows. */
#ifndef SEQD_KERNELS_PANELS_H
#define SEQD_KERNELS_PANELS_H

#include "kernels/backend.h"

/* largest number of columns for which the rows of a panel fit in a thread's scratch */
#define PANELS_COLS 32768

/* Tells whether a matrix can be in panels. */
static inline bool panels_fit(struct tensor w)
{
    return (w.dtype == DT_F32 || w.dtype == DT_BF16) && w.cols % QUANT_K == 0 &&
           w.cols <= PANELS_COLS && w.ld == w.cols;
}
/* Reads elements [at, at + n) of w, counted row by row, from panels as fp32. */
void panels_get(struct tensor w, int64_t at, int64_t n, float *out);

#endif
