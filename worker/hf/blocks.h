/* blocks.h: converts values that a GGUF file stores in blocks of 32, each with its own scale. Used
 * only inside worker/hf.
 *
 *   Q8_0  fp16 d, 32 of int8 q:                          x = d q
 *   Q4_0  fp16 d, 16 bytes of two values of 4 bits each: x = d (q - 8)
 *   Q4_1  fp16 d, fp16 m, 16 bytes as in Q4_0:           x = d q + m
 *
 * Byte j of the 16 bytes stores value j in its low 4 bits and value j + 16 in its high 4 bits.
 * Values are computed in fp32. They are rounded after the product, and again after the sum.
 * Q8_0 and Q4_1 are the formats int8 and int4 of model.weights. Q4_0 can be written as int4
 * with least = -8 d, or as int8 with codes q - 8. tested: tests/engine/test_gguf.c from:
 * github.com/ggml-org/ggml, src/ggml-quants.c, dequantize_row_* */
#ifndef SEQD_HF_BLOCKS_H
#define SEQD_HF_BLOCKS_H

#include <stdint.h>
#include "api/core/quant.h"

#define BLOCK_VALUES 32
#define BLOCK_MOST   34 /* bytes of the largest block */

struct block_kind {
    int size;   /* size of a block in bytes */
    int halves; /* number of fp16 numbers at the beginning of a block: 1 if the block has a
                 * scale, 2 if it has a scale and a least value */
    /* Widens n blocks into 32 n values. */
    void (*widen)(const uint8_t *blocks, float *out, int64_t n);
    /* One function for each format of model.weights. It writes the values of n blocks as
     * blocks of that format, one block after another (quant_row). A number beyond the range of
     * fp16 becomes infinite. The function is NULL if the format cannot represent all values of
     * these blocks. */
    void (*pass[WEIGHTS_N])(const uint8_t *blocks, uint8_t *out, int64_t n);
};
/* Finds the first block, among n blocks, whose scale or least value is NaN or infinite.
 * Returns its index, or -1 if there is no such block. */
int64_t block_not_finite(const struct block_kind *k, const uint8_t *blocks, int64_t n);
/* Returns the row for the format with index i: Q8_0 (0), Q4_0 (1) or Q4_1 (2). This is the
 * order of enum st_dtype. */
const struct block_kind *block_kind(int i);

#endif
