/* half.h: the host's conversions between fp32 and the two 16-bit formats, bfloat16 and IEEE 754's
 * binary16. Every device's cast must agree with them. They round to nearest, ties to even. A value
 * that is too large becomes infinite, subnormal values are kept, and a NaN becomes a quiet NaN. */
#ifndef SEQD_KERNELS_HALF_H
#define SEQD_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>
#include "kernels/backend.h"

static inline float half_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline uint32_t half_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float bf16_value(uint16_t b)
{
    return half_of_bits((uint32_t)b << 16);
}
static inline uint16_t bf16_round(float x)
{
    const uint32_t u = half_bits(x);
    if (x != x) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static inline float f16_value(uint16_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x8000) << 16, u = (uint32_t)(b & 0x7fff) << 13;
    if (u >= 0x0f800000) return half_of_bits(sign | u | 0x7f800000); /* infinity or NaN */
    return half_of_bits(sign | u) * 0x1p112f; /* the biases of the two exponents differ by 112 */
}
static inline uint16_t f16_round(float x)
{
    const uint32_t sign = half_bits(x) >> 16 & 0x8000, u = half_bits(x) & 0x7fffffff;
    if (x != x) return (uint16_t)(sign | 0x7e00 | (u >> 13 & 0x3ff));
    if (u >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and above: infinite */
    /* below 2^-14 the last bit is worth 2^-24, as it is in floats from 0.5 to 1 */
    if (u < 0x38800000)
        return (uint16_t)(sign | (half_bits(half_of_bits(u) + 0.5f) - half_bits(0.5f)));
    return (uint16_t)(sign | ((u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13));
}

/* Converts one number to or from dtype t, which is DT_BF16 or DT_F16. */
static inline float half_value(enum dtype t, uint16_t b)
{
    return t == DT_F16 ? f16_value(b) : bf16_value(b);
}
static inline uint16_t half_round(enum dtype t, float x)
{
    return t == DT_F16 ? f16_round(x) : bf16_round(x);
}

/* Convert n elements to or from dtype t, which is DT_BF16 or DT_F16. x and out may not overlap. */
void half_widen(enum dtype t, const uint16_t *x, float *out, int64_t n);
void half_narrow(enum dtype t, const float *x, uint16_t *out, int64_t n);

#endif
