/* sums.h: sums over the rows of a call, one sum for each column. They give the gradients of
 * weights. Rows are divided into pieces that depend only on the number of rows. A thread adds a
 * column's terms of a piece in ascending order, in double. Then a second kernel adds the pieces to
 * out, in ascending order. */
#ifndef SEQD_CUDA_SUMS_H
#define SEQD_CUDA_SUMS_H

#include "kernels/cuda/device.h"

#define SUM_COLS   128 /* columns of a block; each column has one thread */
#define SUM_PIECES 64

/* Sums F::term(row, col) over the rows of each piece, for col in [0, cols). A row need not be a
 * row of a tensor. */
template <class F>
static __global__ void sum_pieces(F f, int64_t rows, int64_t cols, int64_t piece, double *part)
{
    const int64_t col = (int64_t)blockIdx.x * SUM_COLS + threadIdx.x;
    const int64_t r0 = blockIdx.y * piece, r1 = r0 + piece < rows ? r0 + piece : rows;
    if (col >= cols) return;
    double sum = 0;
    for (int64_t r = r0; r < r1; r++) sum += f.term(r, col);
    part[(int64_t)blockIdx.y * cols + col] = sum;
}

static __global__ void sum_add(const double *part, int64_t pieces, int64_t cols, float *out)
{
    const int64_t col = (int64_t)blockIdx.x * SUM_COLS + threadIdx.x;
    if (col >= cols) return;
    double sum = 0;
    for (int64_t p = 0; p < pieces; p++) sum += part[p * cols + col];
    out[col] = (float)((double)out[col] + sum);
}

/* Adds the sums of F's terms to out, in at most SUM_PIECES pieces of 32 rows or more. The scratch
 * must have room for the sums of the pieces. */
template <class F>
static inline void sum_rows(struct cuda *c, F f, int64_t rows, int64_t cols, float *out)
{
    if (rows < 1 || cols < 1) return;
    const int64_t piece = div_up(rows, SUM_PIECES) > 32 ? div_up(rows, SUM_PIECES) : 32;
    const int64_t pieces = div_up(rows, piece);
    double *part = (double *)c->be.scratch;
    assert(pieces * cols * (int64_t)sizeof *part <= c->be.scratch_size);
    const dim3 grid((unsigned)div_up(cols, SUM_COLS), (unsigned)pieces);
    const auto sum_terms = sum_pieces<F>;
    LAUNCH(c, sum_terms, grid, dim3(SUM_COLS), 0, f, rows, cols, piece, part);
    LAUNCH(c, sum_add, dim3(grid.x), dim3(SUM_COLS), 0, part, pieces, cols, out);
}

#endif
