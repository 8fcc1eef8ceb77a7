/* blocks.c: has one simple loop for each kind of block and each conversion. */
#include "worker/hf/blocks.h"

#include <string.h>
#include "api/core/assert.h"
#include "kernels/half.h"

enum { Q8_0_SIZE = 34, Q4_0_SIZE = 18, Q4_1_SIZE = 20, HALF = BLOCK_VALUES / 2 };

static float fp16(const uint8_t *p)
{
    const uint16_t bits = (uint16_t)(p[0] | p[1] << 8);
    float x;
    half_widen(DT_F16, &bits, &x, 1);
    return x;
}

static void widen_q8_0(const uint8_t *p, float *out, int64_t n)
{
    for (; n > 0; n--, p += Q8_0_SIZE, out += BLOCK_VALUES) {
        const float d = fp16(p);
        for (int i = 0; i < BLOCK_VALUES; i++) out[i] = d * (float)(int8_t)p[2 + i];
    }
}

static void widen_q4_0(const uint8_t *p, float *out, int64_t n)
{
    for (; n > 0; n--, p += Q4_0_SIZE, out += BLOCK_VALUES) {
        const float d = fp16(p);
        for (int i = 0; i < HALF; i++) {
            out[i] = d * (float)((p[2 + i] & 15) - 8);
            out[i + HALF] = d * (float)((p[2 + i] >> 4) - 8);
        }
    }
}

static void widen_q4_1(const uint8_t *p, float *out, int64_t n)
{
    for (; n > 0; n--, p += Q4_1_SIZE, out += BLOCK_VALUES) {
        const float d = fp16(p), m = fp16(p + 2);
        for (int i = 0; i < HALF; i++) {
            out[i] = d * (float)(p[4 + i] & 15) + m;
            out[i + HALF] = d * (float)(p[4 + i] >> 4) + m;
        }
    }
}

static void copy_q8_0(const uint8_t *p, uint8_t *out, int64_t n)
{
    memcpy(out, p, (size_t)(n * Q8_0_SIZE));
}

static void copy_q4_1(const uint8_t *p, uint8_t *out, int64_t n)
{
    memcpy(out, p, (size_t)(n * Q4_1_SIZE));
}

static void q4_0_as_int4(const uint8_t *p, uint8_t *out, int64_t n)
{
    for (; n > 0; n--, p += Q4_0_SIZE, out += Q4_1_SIZE) {
        const uint16_t least = f16_round(-8 * fp16(p)); /* the product is exact, or infinite if
                                                         * it is beyond the range of fp16 */
        memcpy(out, p, 2);
        out[2] = (uint8_t)least;
        out[3] = (uint8_t)(least >> 8);
        memcpy(out + 4, p + 2, HALF);
    }
}

static void q4_0_as_int8(const uint8_t *p, uint8_t *out, int64_t n)
{
    for (; n > 0; n--, p += Q4_0_SIZE, out += Q8_0_SIZE) {
        memcpy(out, p, 2);
        for (int i = 0; i < HALF; i++) {
            out[2 + i] = (uint8_t)((p[2 + i] & 15) - 8);
            out[2 + i + HALF] = (uint8_t)((p[2 + i] >> 4) - 8);
        }
    }
}

static const struct block_kind kinds[] = {
    {Q8_0_SIZE, 1, widen_q8_0, {[WEIGHTS_INT8] = copy_q8_0}},
    {Q4_0_SIZE, 1, widen_q4_0, {[WEIGHTS_INT8] = q4_0_as_int8, [WEIGHTS_INT4] = q4_0_as_int4}},
    {Q4_1_SIZE, 2, widen_q4_1, {[WEIGHTS_INT4] = copy_q4_1}}};

int64_t block_not_finite(const struct block_kind *k, const uint8_t *blocks, int64_t n)
{
    for (int64_t i = 0; i < n; i++, blocks += k->size)
        for (int h = 0; h < k->halves; h++)
            /* All bits of the exponent are 1, so the number is NaN or infinite. */
            if ((blocks[2 * h + 1] & 0x7c) == 0x7c) return i;
    return -1;
}

const struct block_kind *block_kind(int i)
{
    assert(i >= 0 && i < (int)(sizeof kinds / sizeof *kinds));
    return &kinds[i];
}
