/* mma.h: products of bf16 and fp16 on the tensor cores of compute capability 8.0, and the copies
 * that bring tiles to them.
 *
 * A warp computes the product D [16, 8] += A [16, 16] B [16, 8], with sums in fp32. Lane t = 4 g +
 * r has
 *   a[0..3]  A(g, 2r..), A(g + 8, 2r..), A(g, 2r + 8..), A(g + 8, 2r + 8..)   two columns a word
 *   b[0..1]  B(2r.., g), B(2r + 8.., g)                                      two rows a word
 *   d[0..3]  D(g, 2r), D(g, 2r + 1), D(g + 8, 2r), D(g + 8, 2r + 1)
 * So a rounded D can be the A of another product. The d of two products that are neighbours in N
 * form one a. */
#ifndef SEQD_CUDA_MMA_H
#define SEQD_CUDA_MMA_H

#include "kernels/cuda/device.h"

/* Rounds two floats into a word, with lo in the lower half. */
template <class T> static __device__ __forceinline__ uint32_t pack_pair(float lo, float hi)
{
#ifdef SEQD_EMU
    T a, b;
    put(&a, lo);
    put(&b, hi);
    return (uint32_t)a.bits | (uint32_t)b.bits << 16;
#else
    uint32_t out;
    if constexpr (is_f16<T>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(hi), "f"(lo));
    return out;
#endif
}
static __device__ __forceinline__ uint32_t pack_bf16(float lo, float hi)
{
    return pack_pair<bf16>(lo, hi);
}

template <class T> static __device__ __forceinline__ float low(uint32_t pair)
{
    if constexpr (is_f16<T>) return to_float(f16{(uint16_t)pair});
    return __uint_as_float(pair << 16);
}
template <class T> static __device__ __forceinline__ float high(uint32_t pair)
{
    if constexpr (is_f16<T>) return to_float(f16{(uint16_t)(pair >> 16)});
    return __uint_as_float(pair & 0xffff0000u);
}
/* Returns the bf16 values nearest to *x and *y as a word, and subtracts them from *x and *y. */
static __device__ __forceinline__ uint32_t take_bf16(float *x, float *y)
{
    const uint32_t hi = pack_bf16(*x, *y);
    *x -= low<bf16>(hi);
    *y -= high<bf16>(hi);
    return hi;
}

/* Computes d += a b, with elements of type T. */
template <class T>
static __device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4],
                                           const uint32_t (&b)[2])
{
#ifdef SEQD_EMU
    const struct emu_fragments mine = {
        {a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {d[0], d[1], d[2], d[3]}};
    memcpy(d, emu_mma(&mine, is_f16<T>), sizeof d);
#else
#define MMA_OF(type)                                                                               \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 "                    \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                 \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
    if constexpr (is_f16<T>)
        MMA_OF("f16");
    else
        MMA_OF("bf16");
#undef MMA_OF
#endif
}

/* Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane t names the 16-byte row t
 * % 8 of matrix t / 8. offset is added to the row's address, in elements; a constant offset is
 * part of the load and needs no register. In lane 4 g + r, out[i] has the elements (g, 2r) and (g,
 * 2r + 1) of matrix i or, if TURNED, the elements (2r, g) and (2r + 1, g). */
template <bool TURNED, class T>
static __device__ __forceinline__ void ldmatrix4(uint32_t (&out)[4], const T *row, int offset = 0)
{
#ifdef SEQD_EMU
    row += offset;
    assert((uintptr_t)row % 16 == 0);
    const int lane = emu_lane(), g = lane / 4, r = lane % 4;
    emu_exchange(&row, sizeof row);
    for (int i = 0; i < 4; i++) {
        uint16_t e[2];
        for (int k = 0; k < 2; k++) {
            const int at_row = TURNED ? 2 * r + k : g, at_col = TURNED ? g : 2 * r + k;
            const T *p;
            memcpy(&p, emu_of_lane(8 * i + at_row), sizeof p);
            e[k] = p[at_col].bits;
        }
        out[i] = (uint32_t)e[0] | (uint32_t)e[1] << 16;
    }
    /* makes sure that no lane overwrites a word that another lane still reads */
    emu_exchange(&row, 1);
#else
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row) + (uint32_t)(2 * offset);
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                     : "r"(at)
                     : "memory");
#endif
}

/* Copies 16 bytes to shared memory, asynchronously. `have`, which is 0 or 16, is the number of
 * bytes that are read. If it is 0, the 16 bytes become 0. */
static __device__ __forceinline__ void copy16_async(void *shared, const void *global, int have)
{
#ifdef SEQD_EMU
    emu_copy_async(shared, global, 16, have);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(have)
                 : "memory");
#endif
}
/* Copies 8 bytes to shared memory, asynchronously. */
static __device__ __forceinline__ void copy8_async(int64_t *shared, const int64_t *global)
{
#ifdef SEQD_EMU
    emu_copy_async(shared, global, 8, 8);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
#endif
}
/* Ends a group of the copies of this thread. */
static __device__ __forceinline__ void copies_commit(void)
{
#ifdef SEQD_EMU
    emu_copies_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/* Waits until at most N groups of this thread are under way. */
template <int N> static __device__ __forceinline__ void copies_wait(void)
{
#ifdef SEQD_EMU
    emu_copies_wait(N);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

#endif
