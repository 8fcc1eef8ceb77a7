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
bool panels_fit(struct tensor w);
/* Turns rows [r0, r0 + n) of w, in host memory, from rows into panels; r0 is a multiple of
 * QUANT_ROWS, and panels_fit(w). room takes QUANT_ROWS rows. Threads may turn panels that do not
 * meet at once. */
void panels_turn(struct tensor w, int64_t r0, int64_t n, void *room);
/* Reads elements [at, at + n) of w, row-major, from panels as fp32. */
void panels_get(struct tensor w, int64_t at, int64_t n, float *out);

#endif
