/* quant.h: weights in blocks: the formats of model.weights, and their bytes. Pure arithmetic.
 *
 * A matrix [N, K] of weights is cut into blocks of 32 neighbours in k, the dimension over which a
 * product sums. Each block has its own scale. A value is
 *   int8   scale * code            code -128 to 127   (llama.cpp's Q8_0)
 *   int4   scale * code + least    code 0 to 15       (llama.cpp's Q4_1)
 * with scale and least in fp16. For weights in fp32, codes and scales are computed as llama.cpp
 * computes them; int8 codes are then -127 to 127. Blocks that are read from a file keep the codes
 * and scales of the file.
 *
 * In memory the blocks of 16 neighbouring rows are next to each other, because a product reads
 * that many rows at a time:
 *   panel  rows [16 p, 16 p + 16); the panels are in ascending order, and in each panel the blocks
 *          are in ascending order of k
 *   block  scale[16], for int4 also least[16], then the codes in ascending order of k
 *          int8: code[k][16], a byte each
 *          int4: word[k / 8][16], 32 bits little-endian, with code k at bit QUANT_SHIFT(k), so
 *          that codes k and k + 1 (k even) are 16 bits apart
 * The last panel may have rows past N, which are not used. */
#ifndef SEQD_CORE_QUANT_H
#define SEQD_CORE_QUANT_H

#include <stdint.h>
#include "api/core/formats.h"

enum {
    QUANT_K = 32,                            /* values of a block */
    QUANT_ROWS = 16,                         /* rows of a panel */
    QUANT_INT8 = QUANT_ROWS * (2 + QUANT_K), /* bytes of a block of a panel */
    QUANT_INT4 = QUANT_ROWS * (4 + QUANT_K / 2)
};

/* Bit of an int4 word at which code k begins. It is a macro so that kernels of devices can use
 * it. */
#define QUANT_SHIFT(k) ((int)((k) % 2 * 16 + (k) % 8 / 2 * 4))

/* Returns the bytes of one block of a panel. w is WEIGHTS_INT8 or WEIGHTS_INT4. */
static inline int64_t quant_block(enum weights_id w)
{
    return w == WEIGHTS_INT4 ? QUANT_INT4 : QUANT_INT8;
}
/* Returns the bytes of a matrix. `cols` must be a multiple of QUANT_K. */
static inline int64_t quant_size(enum weights_id w, int64_t rows, int64_t cols)
{
    return (rows + QUANT_ROWS - 1) / QUANT_ROWS * (cols / QUANT_K) * quant_block(w);
}
/* Returns the bytes of n values of one row. The blocks follow each other in the order of
 * llama.cpp's files:
 *   int8   scale, then codes in ascending order of k                     (Q8_0)
 *   int4   scale, least, 16 bytes: code of k low, code of k + 16 high    (Q4_1)
 * scale and least are little-endian. n must be a multiple of QUANT_K. */
static inline int64_t quant_row(enum weights_id w, int64_t n)
{
    return n / QUANT_K * (quant_block(w) / QUANT_ROWS);
}

#endif
