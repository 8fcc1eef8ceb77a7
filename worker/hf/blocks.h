/* blocks.h: values that a GGUF file keeps in blocks of 32 with a scale of their own. Inside
 * worker/hf.
 *
 *   Q8_0  fp16 d, 32 of int8 q:                          x = d q
 *   Q4_0  fp16 d, 16 bytes of two values of 4 bits each: x = d (q - 8)
 *   Q4_1  fp16 d, fp16 m, 16 bytes of such:              x = d q + m
 * Byte j of the 16 has value j in its low bits and value j + 16 in its high bits. Results are those
 * of fp32 arithmetic, rounded after the product and after the sum.
 * tested: tests/engine/test_gguf.c
 * from: github.com/ggml-org/ggml, src/ggml-quants.c, dequantize_row_* */
#ifndef SEQD_HF_BLOCKS_H
#define SEQD_HF_BLOCKS_H

#include <stdint.h>

#define BLOCK_VALUES 32
#define BLOCK_MOST   34 /* bytes of the largest block */

struct block_kind {
    int size; /* bytes of a block */
    /* Widens n blocks into 32 n values. */
    void (*widen)(const uint8_t *blocks, float *out, int64_t n);
};
/* Returns a row: 0 of Q8_0, 1 of Q4_0, 2 of Q4_1, the order of enum st_dtype. */
const struct block_kind *block_kind(int i);

#endif
