/* quant.h: weights in blocks: the formats of model.weights, and their bytes. Pure arithmetic.
 *
 * A matrix [N, K] of weights is cut into blocks of 32 neighbours in k, the numbers that a product
 * adds up. Each block has its own scale. A value is
 *   int8   scale * code            code -128 to 127   (llama.cpp's Q8_0)
 *   int4   scale * code + least    code 0 to 15       (llama.cpp's Q4_1)
 * with scale and least in fp16. Codes and scales are those that llama.cpp computes from the same
 * fp32 values (int8 codes are then -127 to 127). Blocks of a file keep the codes and scales of the
 * file. In memory the blocks of 16 neighbouring rows lie together, since a product takes that many
 * rows at a time:
 *   panel  rows [16 p, 16 p + 16), one after another; its blocks ascend in k
 *   block  scale[16], int4: least[16], then codes of k ascending
 *          int8: code[k][16], a byte each; int4: word[k / 8][16], 32 bits little-endian, code k at
 *          bit QUANT_SHIFT(k): codes k and k + 1 (k even) lie 16 bits apart
 * Rows past N in the last panel are unused. */
#ifndef SEQD_CORE_QUANT_H
#define SEQD_CORE_QUANT_H

#include <stdint.h>
#include "api/core/choices.h"

enum {
    QUANT_K = 32,                            /* values of a block */
    QUANT_ROWS = 16,                         /* rows of a panel */
    QUANT_INT8 = QUANT_ROWS * (2 + QUANT_K), /* bytes of a block of a panel */
    QUANT_INT4 = QUANT_ROWS * (4 + QUANT_K / 2)
};

/* The bit of code k in its word of int4; a macro, since kernels of devices use it too. */
#define QUANT_SHIFT(k) ((int)((k) % 2 * 16 + (k) % 8 / 2 * 4))

/* Returns the bytes of a panel's block. w: WEIGHTS_INT8 or WEIGHTS_INT4. */
static inline int64_t quant_block(enum weights_id w)
{
    return w == WEIGHTS_INT4 ? QUANT_INT4 : QUANT_INT8;
}
/* Returns the bytes of a matrix. cols is a multiple of QUANT_K. */
static inline int64_t quant_size(enum weights_id w, int64_t rows, int64_t cols)
{
    return (rows + QUANT_ROWS - 1) / QUANT_ROWS * (cols / QUANT_K) * quant_block(w);
}
/* Returns the bytes of n values in one row, block after block, as files of llama.cpp have them:
 *   int8   scale, codes of k ascending                              (Q8_0)
 *   int4   scale, least, 16 bytes: code of k low, of k + 16 high    (Q4_1)
 * with scale and least little-endian. n is a multiple of QUANT_K. */
static inline int64_t quant_row(enum weights_id w, int64_t n)
{
    return n / QUANT_K * (quant_block(w) / QUANT_ROWS);
}

#endif
