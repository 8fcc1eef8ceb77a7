/* half.c: converts arrays in the host's memory, in loops that compile to vector instructions. */
#include "kernels/half.h"

void half_widen(enum dtype t, const uint16_t *restrict x, float *restrict out, int64_t n)
{
    if (t == DT_F16)
        for (int64_t i = 0; i < n; i++) out[i] = f16_value(x[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = bf16_value(x[i]);
}

void half_narrow(enum dtype t, const float *restrict x, uint16_t *restrict out, int64_t n)
{
    if (t == DT_F16)
        for (int64_t i = 0; i < n; i++) out[i] = f16_round(x[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = bf16_round(x[i]);
}
