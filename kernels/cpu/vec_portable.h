/* vec_portable.h: vectors of 4 floats in the compiler's own vector extension, for every machine.
 *
 * v_fma rounds the product and then the sum, because a fused multiply-add is far too slow without
 * hardware for it. */
#ifndef SEQD_CPU_VEC_PORTABLE_H
#define SEQD_CPU_VEC_PORTABLE_H

#include <stdint.h>
#include <string.h>

#define VL 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef uint16_t vh __attribute__((vector_size(8)));
typedef vi vm; /* a mask, which is 0 or -1 in each lane */

static inline vf v_set1(float x)
{
    return (vf){x, x, x, x};
}
static inline vi vi_set1(int32_t x)
{
    return (vi){x, x, x, x};
}
static inline vf v_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline void v_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}
static inline vi vi_load(const int32_t *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
/* Load and store the first n lanes, 1 <= n <= VL. A load sets the other lanes to 0. A store writes
 * nothing for the other lanes. */
static inline vf v_load_n(const float *p, int64_t n)
{
    vf x = v_set1(0);
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    memcpy(p, &x, (size_t)n * sizeof *p);
}

/* A bf16 is the upper half of a float. */
static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    vh x = {0};
    memcpy(&x, p, (size_t)n * sizeof *p);
    return (vf)(__builtin_convertvector(x, vu) << 16);
}
static inline vf v_load_bf16(const uint16_t *p)
{
    return v_load_bf16_n(p, VL);
}
/* Rounds to nearest even. A NaN keeps its highest bits and becomes quiet. */
static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    vu u = (vu)x, high = u >> 16, up = (u + 0x7fff + (high & 1)) >> 16;
    vu nan = (vu)(x != x);
    vh y = __builtin_convertvector((nan & (high | 0x40)) | (~nan & up), vh);
    memcpy(p, &y, (size_t)n * sizeof *p);
}
static inline void v_store_bf16(uint16_t *p, vf x)
{
    v_store_bf16_n(p, x, VL);
}

/* fp16: the conversions give the same results as f16_value and f16_round of kernels/half.h. */
static inline vf v_load_f16_n(const uint16_t *p, int64_t n)
{
    vh x = {0};
    memcpy(&x, p, (size_t)n * sizeof *p);
    const vu h = __builtin_convertvector(x, vu), sign = (h & 0x8000) << 16, u = (h & 0x7fff) << 13;
    const vu special = (vu)(u >= 0x0f800000);
    const vu y = (vu)((vf)(sign | u) * v_set1(0x1p112f));
    return (vf)((special & (sign | u | 0x7f800000)) | (~special & y));
}
static inline vf v_load_f16(const uint16_t *p)
{
    return v_load_f16_n(p, VL);
}
static inline void v_store_f16_n(uint16_t *p, vf x, int64_t n)
{
    const vu sign = (vu)x >> 16 & 0x8000, u = (vu)x & 0x7fffffff;
    const vu nan = (vu)(u > 0x7f800000), large = (vu)(u >= 0x477ff000),
             small = (vu)(u < 0x38800000);
    const vu near = (vu)((vf)u + v_set1(0.5f)) - (vu)v_set1(0.5f);
    vu y = (u - 0x38000000 + 0xfff + (u >> 13 & 1)) >> 13;
    y = (small & near) | (~small & y);
    y = (large & 0x7c00) | (~large & y);
    y = (nan & ((u >> 13 & 0x3ff) | 0x7e00)) | (~nan & y);
    const vh out = __builtin_convertvector(sign | y, vh);
    memcpy(p, &out, (size_t)n * sizeof *p);
}
static inline void v_store_f16(uint16_t *p, vf x)
{
    v_store_f16_n(p, x, VL);
}

/* Loads VL signed bytes, which are codes of an int8 weight, as floats. */
static inline vf v_load_i8(const int8_t *p)
{
    return (vf){p[0], p[1], p[2], p[3]};
}
/* Return the lower and the upper bf16 of each lane, as floats. */
static inline vf v_words_low(vf words)
{
    return (vf)((vu)words << 16);
}
static inline vf v_words_high(vf words)
{
    return (vf)((vu)words & 0xffff0000u);
}
/* Returns, for each lane, its 4 bits from bit `shift` on. */
static inline vf v_u4(vf bits, const int shift)
{
    return __builtin_convertvector((vu)bits >> shift & 15, vf);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}
static inline vf v_sel(vm m, vf a, vf b)
{
    return (vf)((m & (vi)a) | (~m & (vi)b));
}
static inline vf v_max(vf a, vf b)
{
    return v_sel(a > b, a, b);
}
static inline vm v_lt(vf a, vf b)
{
    return a < b;
}
/* lo <= x < hi */
static inline vm vi_in(vi lo, vi x, vi hi)
{
    return (lo <= x) & (x < hi);
}
static inline int vm_any(vm m)
{
    return (m[0] | m[1] | m[2] | m[3]) != 0;
}
static inline float v_sum(vf x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}
static inline float v_hmax(vf x)
{
    float m = x[0];
    for (int i = 1; i < VL; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* r[i][j] becomes r[j][i]. */
static inline void v_transpose(vf r[VL])
{
    vf a = r[0], b = r[1], c = r[2], d = r[3];
    r[0] = (vf){a[0], b[0], c[0], d[0]};
    r[1] = (vf){a[1], b[1], c[1], d[1]};
    r[2] = (vf){a[2], b[2], c[2], d[2]};
    r[3] = (vf){a[3], b[3], c[3], d[3]};
}

/* v_round returns the integer nearest to x, for |x| < 2^22. v_scale returns 2^n p for n in [-126,
 * 127], and 0 for a smaller n. */
static inline vf v_round(vf x)
{
    return (x + v_set1(12582912.0f)) - v_set1(12582912.0f);
}
/* Splits x into an integer, which is written to *n, and a fraction in [0, 1], which is returned.
 * If x is -inf, v_scale with this *n returns 0. */
static inline vf v_frac(vf x, vf *n)
{
    x = v_max(v_set1(-160.0f), x); /* NaN stays NaN */
    *n = v_round(x - v_set1(0.5f));
    return x - *n;
}
static inline vf v_scale(vf p, vf n)
{
    vi e = (__builtin_convertvector(n, vi) + vi_set1(127)) << 23;
    return v_sel(v_lt(n, v_set1(-126.0f)), v_set1(0), p * (vf)e);
}

#endif
