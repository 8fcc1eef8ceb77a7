/* box.h: matrices for kernel tests, with sentinels before, after and between the rows, so that a
 * write outside the window shows. */
#ifndef SEQD_TESTS_BOX_H
#define SEQD_TESTS_BOX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/backend.h"

#define BOX_GUARD    40          /* floats before and after */
#define BOX_SENTINEL 0x7fa5a5a5u /* a NaN: whoever reads past the window spreads it */

struct box {
    struct tensor t; /* the window */
    uint32_t *mem;
    int64_t n;
};

static inline struct box box_new(int64_t rows, int64_t cols, int64_t gap)
{
    struct box b;
    b.n = rows * (cols + gap) + 2 * BOX_GUARD;
    b.mem = malloc((size_t)b.n * sizeof *b.mem);
    for (int64_t i = 0; i < b.n; i++) b.mem[i] = BOX_SENTINEL;
    b.t = tensor_f32((float *)b.mem + BOX_GUARD, rows, cols, cols + gap);
    return b;
}
static inline void box_free(struct box *b)
{
    free(b->mem);
}
static inline float *box_at(struct box b, int64_t i, int64_t j)
{
    return (float *)b.t.data + i * b.t.ld + j;
}

static inline bool box_intact(struct box b)
{
    for (int64_t k = 0; k < b.n; k++) {
        int64_t at = k - BOX_GUARD, row = at / b.t.ld, col = at % b.t.ld;
        bool inside = at >= 0 && row < b.t.rows && col < b.t.cols;
        if (!inside && b.mem[k] != BOX_SENTINEL) return false;
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
/* About normal with the given deviation: the sum of four uniforms. */
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
        for (int64_t j = 0; j < b.t.cols; j++) *box_at(b, i, j) = box_normal(&seed, deviation);
}
static inline void box_fill(struct box b, float value)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        for (int64_t j = 0; j < b.t.cols; j++) *box_at(b, i, j) = value;
}
/* The same shape and contents in other memory, with another gap. */
static inline struct box box_copy(struct box from, int64_t gap)
{
    struct box b = box_new(from.t.rows, from.t.cols, gap);
    for (int64_t i = 0; i < b.t.rows; i++)
        memcpy(box_at(b, i, 0), box_at(from, i, 0), (size_t)b.t.cols * sizeof(float));
    return b;
}
/* Same bits in the window of b and in rows [r0, r0 + b.rows) of big. */
static inline bool box_same_bits(struct box b, struct box big, int64_t r0)
{
    for (int64_t i = 0; i < b.t.rows; i++)
        if (memcmp(box_at(b, i, 0), box_at(big, r0 + i, 0), (size_t)b.t.cols * sizeof(float)))
            return false;
    return true;
}

#endif
