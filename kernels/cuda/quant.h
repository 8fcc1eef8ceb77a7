/* quant.h: weights in blocks (api/core/quant.h) in registers: parts of a panel in the order of
 * memory, and their values. */
#ifndef SEQD_CUDA_QUANT_H
#define SEQD_CUDA_QUANT_H

#include "kernels/cuda/device.h"

/* Computes a product whose b is in blocks, without adding the bias. */
void quant_gemm(struct cuda *c, const struct gemm_args *a);

/* The format of a block of a panel. size is the number of bytes of the block. codes is the number
 * of bytes before its first code. */
template <bool INT4> struct quant_format {
    static const int size = INT4 ? QUANT_INT4 : QUANT_INT8;
    static const int codes = QUANT_ROWS * (INT4 ? 4 : 2);
};

/* Returns the block that has element (row, col) of a weight whose rows have `cols` values. */
template <bool INT4>
static __device__ __forceinline__ const char *quant_block_at(const void *w, int64_t cols,
                                                             int64_t row, int64_t col)
{
    const int64_t block = row / QUANT_ROWS * (cols / QUANT_K) + col / QUANT_K;
    return (const char *)w + block * quant_format<INT4>::size;
}

/* Return byte i of a word, or its lowest 4 bits, as a float. They put the number into the lowest
 * bits of a float's fraction. The float is then 2^23 plus the number. */
static __device__ __forceinline__ float quant_signed(uint32_t word, int i)
{
    return __uint_as_float(0x4b000000u | ((word ^ 0x80808080u) >> 8 * i & 255)) - 8388736.f;
}
static __device__ __forceinline__ float quant_low(uint32_t word)
{
    return __uint_as_float(0x4b000000u | (word & 15)) - 8388608.f;
}

/* ROWS neighbouring rows of a panel, 4 or 8. A part of 4 rows has one column of a block. A part of
 * 8 rows has the two columns k and k + 1, where k is even. */
template <bool INT4, int ROWS> struct quant_part {
    typedef pack<uint32_t, INT4 ? 4 : ROWS / 4> words_of;
    pack<f16, ROWS> scale, least; /* least: int4 */
    /* int4: one word of each row, which begins with the code of k; int8: the words of one k */
    words_of code[ROWS / 4];

    /* Loads rows of a panel at column k of the block. `row` is the first row, a multiple of
     * ROWS. */
    __device__ __forceinline__ void fetch(const char *block, int row, int k)
    {
        const char *from = block + quant_format<INT4>::codes;
        scale = *(const pack<f16, ROWS> *)(block + 2 * row);
        if (INT4) {
            least = *(const pack<f16, ROWS> *)(block + 2 * (QUANT_ROWS + row));
            UNROLL
            for (int j = 0; j < ROWS / 4; j++) {
                code[j] = *(const words_of *)(from + 4 * (k / 8 * QUANT_ROWS + row + 4 * j));
                UNROLL
                for (int i = 0; i < 4; i++) code[j].e[i] >>= QUANT_SHIFT(k & ~1);
            }
            return;
        }
        UNROLL
        for (int j = 0; j < ROWS / 4; j++)
            code[j] = *(const words_of *)(from + (k + j) * QUANT_ROWS + row);
    }
    /* Returns the value of row i at column k of the block, which fetch() must have loaded. Only
     * the parity of k is used. */
    __device__ __forceinline__ float value(int i, int k) const
    {
        const float s = to_float(scale.e[i]);
        if (INT4)
            return s * quant_low(code[i / 4].e[i % 4] >> QUANT_SHIFT(k % 2)) + to_float(least.e[i]);
        return s * quant_signed(code[ROWS == 8 ? k % 2 : 0].e[i / 4], i % 4);
    }
};

/* Returns the value of an element of a table in blocks. */
static __device__ __forceinline__ float quant_value(const mat &t, int64_t row, int64_t col)
{
    const int r = (int)(row % QUANT_ROWS), k = (int)(col % QUANT_K);
    if (t.dtype == DT_INT4) {
        const char *b = quant_block_at<true>(t.data, t.ld, row, col);
        const uint32_t *word = (const uint32_t *)(b + quant_format<true>::codes);
        return to_float(((const f16 *)b)[r]) *
                   quant_low(word[k / 8 * QUANT_ROWS + r] >> QUANT_SHIFT(k)) +
               to_float(((const f16 *)b)[QUANT_ROWS + r]);
    }
    const char *b = quant_block_at<false>(t.data, t.ld, row, col);
    return to_float(((const f16 *)b)[r]) *
           (float)(int8_t)b[quant_format<false>::codes + k * QUANT_ROWS + r];
}

#endif
