/* each.h: elementwise operations. They compute 8 elements at a time if memory allows it. */
#ifndef SEQD_CUDA_EACH_H
#define SEQD_CUDA_EACH_H

#include "kernels/cuda/device.h"

#define EACH_THREADS 256
/* largest number of blocks; if there are more elements, a thread computes several of them */
#define EACH_BLOCKS 4096

/* Calls f.at<VEC>(row, col) once for every VEC columns of every row. */
template <int VEC, class F> static __global__ void each_kernel(F f, int64_t n, int64_t per_row)
{
    const int64_t stride = (int64_t)gridDim.x * EACH_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * EACH_THREADS + threadIdx.x; i < n; i += stride)
        f.template at<VEC>(i / per_row, i % per_row * VEC);
}

template <int VEC, class F> static void each_vec(struct cuda *c, F f, int64_t rows, int64_t cols)
{
    const int64_t per_row = cols / VEC, n = rows * per_row;
    const int64_t blocks = div_up(n, EACH_THREADS);
    auto elementwise = each_kernel<VEC, F>;
    if (n > 0)
        LAUNCH(c, elementwise, dim3((unsigned)(blocks < EACH_BLOCKS ? blocks : EACH_BLOCKS)),
               dim3(EACH_THREADS), 0, f, n, per_row);
}

/* Launches f on every element. `all` has the tensors that f reads and writes; 8 elements are
 * computed at a time if all of these tensors allow it. */
template <class F, int N>
static void each(struct cuda *c, F f, const struct tensor (&all)[N], int64_t rows, int64_t cols)
{
    bool wide = cols % 8 == 0;
    for (int i = 0; i < N; i++) wide = wide && fits_packs(all[i]);
    if (wide)
        each_vec<8>(c, f, rows, cols);
    else
        each_vec<1>(c, f, rows, cols);
}

#endif
