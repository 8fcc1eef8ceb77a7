/* device.h: parts that all kernels use: the runtime or its emulation, elements of every dtype,
 * sums over a warp and a block, and launches.
 *
 * The bits do not depend on the number of ranks. A sum over columns is formed in a pattern that
 * depends only on the number of columns. A sum over rows is formed in pieces that are counted from
 * row 0 of the call and added in ascending order (sums.h). No kernel uses atomics. */
#ifndef SEQD_CUDA_DEVICE_H
#define SEQD_CUDA_DEVICE_H

#include "api/core/assert.h"
#include "kernels/backend.h"
#include "kernels/shapes.h"
#include "kernels/cuda/cuda.h"

#ifdef SEQD_EMU
#include "kernels/cuda/emu.h"
#include "kernels/half.h"
#define LAUNCH(c, kernel, grid, block, smem, ...)                                                  \
    (emu_launch((const void *)(kernel), grid, block, smem, kernel, __VA_ARGS__),                   \
     cuda_launched(c, #kernel))
#define DYNAMIC_SHARED(name) char *const name = emu_smem
#define UNROLL
#else
#include <cuda_runtime.h>
#define LAUNCH(c, kernel, grid, block, smem, ...)                                                  \
    (kernel<<<grid, block, smem, (c)->compute>>>(__VA_ARGS__), cuda_launched(c, #kernel))
#define DYNAMIC_SHARED(name) extern __shared__ __align__(128) char name[]
#define UNROLL               _Pragma("unroll")
#endif

/* Allows a kernel, before its launch, to have more than 48 KiB of shared memory. It then has
 * `dynamic` bytes besides the `declared` bytes. If a block may not have that much, sync reports
 * the failure. */
#define SMEM_ALLOW(c, kernel, dynamic, declared)                                                   \
    (cuda_smem_fits(c, (dynamic) + (int)(declared), #kernel),                                      \
     (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic))
/* Largest number of bytes of shared memory of a block on devices of compute capability 8.6, 8.9
 * and 12.0. A block may have 163 KiB on 8.0 and 8.7, and 227 KiB on 9.0 and 10.0. A kernel that
 * needs more than SMEM_SMALL also has a smaller shape. The smaller shape is not compiled for
 * architectures that never use it. */
#define SMEM_SMALL (99 << 10)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1100
static constexpr bool smem_is_small = false;
#else
static constexpr bool smem_is_small = true;
#endif

#define WARP 32
#define FULL 0xffffffffu

static inline int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Returns x, but hides its origin from the compiler. Values that are derived from x before a loop
 * are then computed again after the loop, and occupy no registers meanwhile. */
static __device__ __forceinline__ int made_again(int x)
{
#ifndef SEQD_EMU
    asm volatile("" : "+r"(x));
#endif
    return x;
}

/* Calls f(i) for the values of i below N that belong to the thread, which are threadIdx.x + n
 * THREADS. (The loop counts n, because the compiler does not unroll a loop that starts at
 * threadIdx.x, whose count it does not know.) */
template <int N, int THREADS, class F> static __device__ __forceinline__ void share_out(const F &f)
{
    UNROLL
    for (int n = 0; n < N / THREADS; n++) f((int)threadIdx.x + n * THREADS);
    if (N % THREADS && (int)threadIdx.x < N % THREADS) f((int)threadIdx.x + N / THREADS * THREADS);
}

/* ---- elements -------------------------------------------------------------------------------- */

struct bf16 {
    uint16_t bits;
};
struct f16 { /* subnormal numbers are kept */
    uint16_t bits;
};

template <class T> static constexpr bool is_f16 = false;
template <> constexpr bool is_f16<f16> = true;

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}
static __device__ __forceinline__ float to_float(f16 x)
{
#ifdef SEQD_EMU
    return f16_value(x.bits);
#else
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#endif
}
/* Rounds to nearest, ties to even. NaN is still NaN. */
static __device__ __forceinline__ void put(float *to, float x)
{
    *to = x;
}
static __device__ __forceinline__ void put(bf16 *to, float x)
{
    const unsigned u = __float_as_uint(x);
    to->bits = (uint16_t)(x != x ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static __device__ __forceinline__ void put(f16 *to, float x)
{
#ifdef SEQD_EMU
    to->bits = f16_round(x);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(x));
#endif
}
/* Calls f with an element of type t, which must have 16 bits. */
template <class F> static inline void half_typed(enum dtype t, F f)
{
    assert(t == DT_BF16 || t == DT_F16);
    if (t == DT_F16)
        f(f16());
    else
        f(bf16());
}

/* VEC adjacent elements. If they have 16 bytes (8 elements of 16 bits, or 4 floats), one access
 * reads or writes them all. */
template <class T, int VEC> struct alignas(sizeof(T) * VEC < 16 ? sizeof(T) * VEC : 16) pack {
    T e[VEC];
};
template <class T, int VEC> static __device__ __forceinline__ void load(const T *p, float (&x)[VEC])
{
    const pack<T, VEC> v = *(const pack<T, VEC> *)p;
    UNROLL
    for (int i = 0; i < VEC; i++) x[i] = to_float(v.e[i]);
}
template <class T, int VEC>
static __device__ __forceinline__ void store(T *p, const float (&x)[VEC])
{
    pack<T, VEC> v;
    UNROLL
    for (int i = 0; i < VEC; i++) put(&v.e[i], x[i]);
    *(pack<T, VEC> *)p = v;
}

/* A tensor of any dtype, in the form of a kernel's argument. A kernel that waits for memory anyway
 * loses no time by testing the dtype. */
struct mat {
    void *data; /* NULL if there is no tensor */
    int64_t ld;
    enum dtype dtype;
};
static inline struct mat mat_of(struct tensor t)
{
    return {t.data, t.ld, t.dtype};
}
template <int VEC>
static __device__ __forceinline__ void load(const mat &t, int64_t row, int64_t col, float (&x)[VEC])
{
    const int64_t at = row * t.ld + col;
    if (t.dtype == DT_F32)
        load((const float *)t.data + at, x);
    else if (t.dtype == DT_BF16)
        load((const bf16 *)t.data + at, x);
    else
        load((const f16 *)t.data + at, x);
}
template <int VEC>
static __device__ __forceinline__ void store(const mat &t, int64_t row, int64_t col,
                                             const float (&x)[VEC])
{
    const int64_t at = row * t.ld + col;
    if (t.dtype == DT_F32)
        store((float *)t.data + at, x);
    else if (t.dtype == DT_BF16)
        store((bf16 *)t.data + at, x);
    else
        store((f16 *)t.data + at, x);
}
static __device__ __forceinline__ float get(const mat &t, int64_t row, int64_t col)
{
    float x[1];
    load(t, row, col, x);
    return x[0];
}
static __device__ __forceinline__ void set(const mat &t, int64_t row, int64_t col, float x)
{
    const float v[1] = {x};
    store(t, row, col, v);
}
/* Tells whether the tensor's rows can be read 16 bytes at a time. */
static inline bool fits_packs(struct tensor t)
{
    return !t.data || ((uintptr_t)t.data % 16 == 0 && t.ld * dtype_size(t.dtype) % 16 == 0);
}

/* Returns the number of rows before the padding, which is at the end. */
static __device__ __forceinline__ int64_t valid_rows(const int64_t *lo, const int64_t *hi,
                                                     int64_t n)
{
    while (n > 0 && hi[n - 1] <= lo[n - 1]) n--;
    return n;
}

/* ---- sums over threads ----------------------------------------------------------------------- */

template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
    UNROLL
    for (int d = WARP / 2; d; d /= 2) x += __shfl_xor_sync(FULL, x, d);
    return x;
}
static __device__ __forceinline__ float warp_max(float x)
{
    UNROLL
    for (int d = WARP / 2; d; d /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, d));
    return x;
}
/* Returns the sum of x over a block of N threads, on every thread. room is [N / WARP], in shared
 * memory. */
template <int N, class T> static __device__ __forceinline__ T block_sum(T x, T *room)
{
    x = warp_sum(x);
    __syncthreads(); /* threads may still read room */
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
    __syncthreads();
    T sum = room[0];
    UNROLL
    for (int w = 1; w < N / WARP; w++) sum += room[w];
    return sum;
}
template <int N> static __device__ __forceinline__ float block_max(float x, float *room)
{
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
    __syncthreads();
    float most = room[0];
    UNROLL
    for (int w = 1; w < N / WARP; w++) most = fmaxf(most, room[w]);
    return most;
}

#endif
