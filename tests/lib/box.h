/* box.h: matrices for kernel tests. There are sentinels before the first row, after the last row
 * and between the rows, so that a write outside of the matrix is found. */
#ifndef SEQD_TESTS_BOX_H
#define SEQD_TESTS_BOX_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "tests/lib/ref.h"
#include "tests/lib/twin.h"

#define BOX_GUARD    40          /* the number of elements before and after the matrix */
#define BOX_SENTINEL 0x7fa5a5a5u /* a NaN, which appears in the results if it is read */
/* a NaN both in bf16 (where it is the upper half of BOX_SENTINEL) and in fp16 */
#define BOX_SENTINEL_HALF 0x7fa5u

struct box {
    struct tensor t; /* the window */
    void *mem;
    int64_t n; /* number of elements of the allocation */
};

static inline struct box box_new_as(enum dtype type, int64_t rows, int64_t cols, int64_t gap)
{
    struct box b;
    b.n = rows * (cols + gap) + 2 * BOX_GUARD;
    assert(b.n > 0 && b.n < (int64_t)1 << 40);
    b.mem = twin_new(b.n * dtype_size(type));
    for (int64_t i = 0; i < b.n; i++)
        if (type == DT_F32)
            ((uint32_t *)b.mem)[i] = BOX_SENTINEL;
        else
            ((uint16_t *)b.mem)[i] = BOX_SENTINEL_HALF;
    char *window = (char *)b.mem + BOX_GUARD * dtype_size(type);
    b.t = tensor_of(type, window, rows, cols, cols + gap);
    return b;
}
static inline struct box box_new(int64_t rows, int64_t cols, int64_t gap)
{
    return box_new_as(DT_F32, rows, cols, gap);
}
static inline void box_free(struct box *b)
{
    twin_free(b->mem);
}
static inline void *box_ptr(struct box b, int64_t i, int64_t j)
{
    return (char *)b.t.data + (i * b.t.ld + j) * dtype_size(b.t.dtype);
}
/* returns the address of an element; fp32 only */
static inline float *box_at(struct box b, int64_t i, int64_t j)
{
    return box_ptr(b, i, j);
}

/* Returns the bf16 or fp16 number that is nearest to x, with ties to even. To find it, x is
 * divided by the distance between neighbouring numbers of its binade, and the quotient is rounded
 * to an integer. Both steps are exact in double. A number beyond the largest number of the type
 * becomes infinity, and a NaN becomes a quiet NaN. */
static inline uint16_t box_half(enum dtype type, double x)
{
    const int n = type == DT_F16 ? 10 : 7, bias = type == DT_F16 ? 15 : 127;
    const uint16_t sign = signbit(x) ? 0x8000 : 0, infinite = (uint16_t)((2 * bias + 1) << n);
    uint64_t word;
    if (isnan(x)) return sign | infinite | (uint16_t)(1 << (n - 1));
    if (isinf(x) || x == 0) return sign | (x == 0 ? 0 : infinite);
    memcpy(&word, &x, sizeof word);
    int e = (int)(word >> 52 & 0x7ff) - 1022; /* |x| is in [1/2, 1) 2^e */
    if (e < 2 - bias) e = 2 - bias;
    /* the sum with 2^52 has no bits for a fraction, so that it is rounded */
    const double sum = fabs(x) * ref_power(n + 1 - e) + 0x1p52;
    const int64_t whole = (int64_t)(sum - 0x1p52);
    /* the leading bit of the significand is included in `whole`, and adds one to the exponent */
    const int64_t bits = ((int64_t)(e - 2 + bias) << n) + whole;
    return (uint16_t)(sign | (bits > infinite ? infinite : bits));
}
static inline void box_set(struct box b, int64_t i, int64_t j, float value)
{
    if (b.t.dtype == DT_F32)
        *box_at(b, i, j) = value;
    else
        *(uint16_t *)box_ptr(b, i, j) = box_half(b.t.dtype, value);
}

static inline bool box_intact(struct box b)
{
    int64_t row = 0, begin = BOX_GUARD; /* the next row of the window */
    for (int64_t k = 0; k < b.n; k++) {
        if (k == begin && row < b.t.rows) {
            row++;
            begin += b.t.ld;
            k += b.t.cols - 1;
            continue;
        }
        bool same = b.t.dtype == DT_F32 ? ((uint32_t *)b.mem)[k] == BOX_SENTINEL
                                        : ((uint16_t *)b.mem)[k] == BOX_SENTINEL_HALF;
        if (!same) return false;
    }
    return true;
}

static inline uint64_t box_rand(uint64_t *state) /* splitmix64 */
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
/* Draws a number from an approximately normal distribution with the given standard deviation, as
 * the sum of four uniform numbers. */
static inline float box_normal(uint64_t *state, double deviation)
{
    uint64_t z = box_rand(state);
    double s = 0;
    for (int i = 0; i < 4; i++) s += (double)((z >> (16 * i)) & 0xffff) / 65536.0;
    return (float)((s - 2.0) * 1.7320508 * deviation);
}
static inline void box_random(struct box b, uint64_t seed, double deviation)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        for (int64_t j = 0; j < b.t.cols; j++) box_set(b, i, j, box_normal(&seed, deviation));
}
static inline void box_fill(struct box b, float value)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        for (int64_t j = 0; j < b.t.cols; j++) box_set(b, i, j, value);
}
/* Makes a box with the same shape and contents in other memory. The gap between its rows is
 * `gap`. */
static inline struct box box_copy(struct box from, int64_t gap)
{
    struct box b = box_new_as(from.t.dtype, from.t.rows, from.t.cols, gap);
    for (int64_t i = 0; i < b.t.rows; i++)
        memcpy(box_ptr(b, i, 0), box_ptr(from, i, 0), (size_t)(b.t.cols * dtype_size(b.t.dtype)));
    return b;
}
/* Tells whether b and the rows [r0, r0 + b.rows) of big have the same bits. */
static inline bool box_same_bits(struct box b, struct box big, int64_t r0)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        if (memcmp(box_ptr(b, i, 0), box_ptr(big, r0 + i, 0),
                   (size_t)(b.t.cols * dtype_size(b.t.dtype))))
            return false;
    return true;
}

#endif
