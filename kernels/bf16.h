/* bf16.h: the host's conversions between fp32 and bfloat16: what every device's cast must agree
 * with. */
#ifndef SEQD_KERNELS_BF16_H
#define SEQD_KERNELS_BF16_H

#include <stdint.h>
#include <string.h>

static inline float bf16_value(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* To nearest, ties to even; too large becomes infinite, NaN stays NaN (made quiet). */
static inline uint16_t bf16_round(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
