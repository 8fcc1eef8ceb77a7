/* quant.c: quantises blocks as llama.cpp's reference does, and converts them back to numbers. */
#include "kernels/quant.h"

#include <math.h>
#include "api/core/assert.h"
#include "kernels/half.h"

/* The place of a row in a block of a panel. */
struct lane {
    uint16_t *scale, *least; /* least: int4 */
    uint8_t *code;           /* int8: address of code 0; the next code is QUANT_ROWS bytes later */
    /* int4: address of the word of codes 0 to 7; the row's next word is QUANT_ROWS words later */
    uint32_t *word;
};

static struct lane lane_of(struct tensor w, int64_t row, int64_t block)
{
    const enum weights_id f = dtype_format(w.dtype);
    char *const panel = (char *)w.data + quant_size(f, row / QUANT_ROWS * QUANT_ROWS, w.cols) +
                        block * quant_block(f);
    const int64_t r = row % QUANT_ROWS;
    struct lane x = {.scale = (uint16_t *)panel + r};
    if (f == WEIGHTS_INT8) {
        x.code = (uint8_t *)panel + 2 * QUANT_ROWS + r;
        return x;
    }
    x.least = x.scale + QUANT_ROWS;
    x.word = (uint32_t *)panel + QUANT_ROWS + r;
    return x;
}

/* Writes code k of int4. The calls for a block must be in ascending order of k. */
static void put_code(struct lane to, int k, uint32_t code)
{
    uint32_t *const word = to.word + k / 8 * QUANT_ROWS;
    *word = (k % 8 ? *word : 0) | code << QUANT_SHIFT(k);
}

/* Returns the largest magnitude, or NaN if any element is NaN or infinity. */
static float largest(const float *x)
{
    float most = 0;
    for (int i = 0; i < QUANT_K; i++) {
        const float a = fabsf(x[i]);
        if (!(a <= most)) most = a; /* also true if a is NaN */
        if (a != a) return a;
    }
    return most + most * 0;
}

static void put_int8(struct lane to, const float *x)
{
    const float scale = largest(x) / 127, inverse = scale != 0 ? 1 / scale : 0;
    *to.scale = f16_round(scale);
    for (int k = 0; k < QUANT_K; k++) {
        const float q = roundf(x[k] * inverse);
        to.code[k * QUANT_ROWS] = (uint8_t)(isfinite(q) ? (int8_t)q : 0);
    }
}

static void put_int4(struct lane to, const float *x)
{
    float low = x[0], high = x[0], sum = 0;
    for (int k = 0; k < QUANT_K; k++) {
        if (x[k] < low) low = x[k];
        if (x[k] > high) high = x[k];
        sum += x[k] * 0; /* NaN if an element is not finite */
    }
    const float scale = (high - low) / 15 + sum, inverse = scale != 0 ? 1 / scale : 0;
    *to.scale = f16_round(scale);
    *to.least = f16_round(low);
    for (int k = 0; k < QUANT_K; k++) {
        const float q = (x[k] - low) * inverse + 0.5f;
        put_code(to, k, q >= 0 && q < 16 ? (uint32_t)q : q >= 16 ? 15 : 0);
    }
}

void quant_put(struct tensor w, int64_t at, int64_t n, const float *x)
{
    assert(w.cols % QUANT_K == 0 && at % QUANT_K == 0 && n % QUANT_K == 0);
    assert(at >= 0 && at + n <= w.rows * w.cols);
    for (; n > 0; n -= QUANT_K, at += QUANT_K, x += QUANT_K) {
        const struct lane to = lane_of(w, at / w.cols, at % w.cols / QUANT_K);
        if (w.dtype == DT_INT4)
            put_int4(to, x);
        else
            put_int8(to, x);
    }
}

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static void take_int4(struct lane to, const uint8_t *block)
{
    const uint8_t *code = block + 4;
    *to.scale = half_at(block);
    *to.least = half_at(block + 2);
    for (int k = 0; k < QUANT_K; k++) /* low halves first */
        put_code(to, k, k < QUANT_K / 2 ? code[k] & 15 : code[k - QUANT_K / 2] >> 4);
}

static void take_int8(struct lane to, const uint8_t *block)
{
    *to.scale = half_at(block);
    for (int k = 0; k < QUANT_K; k++) to.code[k * QUANT_ROWS] = block[2 + k];
}

void quant_put_blocks(struct tensor w, int64_t at, int64_t n, const uint8_t *blocks)
{
    const int64_t size = quant_row(dtype_format(w.dtype), QUANT_K);
    assert(w.cols % QUANT_K == 0 && at % QUANT_K == 0 && n % QUANT_K == 0);
    assert(at >= 0 && at + n <= w.rows * w.cols);
    for (; n > 0; n -= QUANT_K, at += QUANT_K, blocks += size) {
        const struct lane to = lane_of(w, at / w.cols, at % w.cols / QUANT_K);
        (w.dtype == DT_INT4 ? take_int4 : take_int8)(to, blocks);
    }
}

static float value_of(struct lane from, int64_t k)
{
    const float scale = f16_value(*from.scale);
    if (!from.least) return scale * (float)(int8_t)from.code[k * QUANT_ROWS];
    const uint32_t code = from.word[k / 8 * QUANT_ROWS] >> QUANT_SHIFT(k) & 15;
    const float product = scale * (float)code; /* exact */
    return product + f16_value(*from.least);
}

void quant_get(struct tensor w, int64_t at, int64_t n, float *out)
{
    assert(at >= 0 && at + n <= w.rows * w.cols);
    for (int64_t i = 0; i < n; i++, at++)
        out[i] = value_of(lane_of(w, at / w.cols, at % w.cols / QUANT_K), at % QUANT_K);
}

int64_t quant_not_finite(struct tensor w, bool *past)
{
    for (int64_t r = 0; r < w.rows; r++)
        for (int64_t b = 0; b < w.cols / QUANT_K; b++) {
            const struct lane x = lane_of(w, r, b);
            const float scale = f16_value(*x.scale), least = x.least ? f16_value(*x.least) : 0;
            if (isfinite(scale) && isfinite(least)) continue;
            *past = !isnan(scale) && !isnan(least);
            return r * w.cols + b * QUANT_K;
        }
    return -1;
}
