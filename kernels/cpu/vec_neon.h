/* vec_neon.h: vectors of 4 floats on arm64, with a fused multiply-add that rounds once. */
#ifndef SEQD_CPU_VEC_NEON_H
#define SEQD_CPU_VEC_NEON_H
#ifdef __aarch64__

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define VL 4
typedef float32x4_t vf;
typedef int32x4_t vi;
typedef uint32x4_t vm; /* a mask, which has all bits or no bits set in each lane */

static inline vf v_set1(float x)
{
    return vdupq_n_f32(x);
}
static inline vi vi_set1(int32_t x)
{
    return vdupq_n_s32(x);
}
static inline vf v_load(const float *p)
{
    return vld1q_f32(p);
}
static inline void v_store(float *p, vf x)
{
    vst1q_f32(p, x);
}
static inline vi vi_load(const int32_t *p)
{
    return vld1q_s32(p);
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

/* Loads the first n of four 16-bit values and sets the rest to 0. */
static inline uint16x4_t v_halves_n(const uint16_t *p, int64_t n)
{
    uint16x4_t x = vdup_n_u16(0);
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}

/* A bf16 is the upper half of a float. */
static inline vf v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    return vreinterpretq_f32_u32(vshll_n_u16(v_halves_n(p, n), 16));
}
/* Rounds to nearest even. A NaN keeps its highest bits and becomes quiet. */
static inline uint16x4_t v_to_bf16(vf x)
{
    const uint32x4_t u = vreinterpretq_u32_f32(x), high = vshrq_n_u32(u, 16);
    const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t up = vshrq_n_u32(vaddq_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd), 16);
    const uint32x4_t same = vceqq_f32(x, x);
    return vmovn_u32(vbslq_u32(same, up, vorrq_u32(high, vdupq_n_u32(0x40))));
}
static inline void v_store_bf16(uint16_t *p, vf x)
{
    vst1_u16(p, v_to_bf16(x));
}
static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    const uint16x4_t y = v_to_bf16(x);
    memcpy(p, &y, (size_t)n * sizeof *p);
}

/* fp16: the conversions keep subnormals as long as FPCR.FZ16 is 0, which it is. */
static inline vf v_load_f16_n(const uint16_t *p, int64_t n)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(v_halves_n(p, n)));
}
static inline vf v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline void v_store_f16(uint16_t *p, vf x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}
static inline void v_store_f16_n(uint16_t *p, vf x, int64_t n)
{
    uint16_t y[VL];
    v_store_f16(y, x);
    memcpy(p, y, (size_t)n * sizeof *p);
}

/* Loads VL signed bytes, which are codes of an int8 weight, as floats. */
static inline vf v_load_i8(const int8_t *p)
{
    int8_t x[8] = {0};
    memcpy(x, p, VL);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(x)))));
}
/* Return the lower and the upper bf16 of each lane, as floats. */
static inline vf v_words_low(vf words)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(words), 16));
}
static inline vf v_words_high(vf words)
{
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(words), vdupq_n_u32(0xffff0000u)));
}
/* Returns, for each lane, its 4 bits from bit `shift` on. */
static inline vf v_u4(vf bits, const int shift)
{
    const uint32x4_t x = vshlq_u32(vreinterpretq_u32_f32(bits), vdupq_n_s32(-shift));
    return vcvtq_f32_u32(vandq_u32(x, vdupq_n_u32(15)));
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
static inline vf v_sel(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}
static inline vm v_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}
/* Returns b if a or b is NaN, as on x86-64. (FMAX would return the NaN.) */
static inline vf v_max(vf a, vf b)
{
    return v_sel(v_lt(b, a), a, b);
}
/* lo <= x < hi */
static inline vm vi_in(vi lo, vi x, vi hi)
{
    return vandq_u32(vcleq_s32(lo, x), vcltq_s32(x, hi));
}
static inline float v_sum(vf x)
{
    const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
}
static inline float v_hmax(vf x)
{
    return vmaxnmvq_f32(x);
}

/* r[i][j] becomes r[j][i]. */
static inline void v_transpose(vf r[VL])
{
    const float32x4x2_t a = vtrnq_f32(r[0], r[1]), b = vtrnq_f32(r[2], r[3]);
    r[0] = vcombine_f32(vget_low_f32(a.val[0]), vget_low_f32(b.val[0]));
    r[1] = vcombine_f32(vget_low_f32(a.val[1]), vget_low_f32(b.val[1]));
    r[2] = vcombine_f32(vget_high_f32(a.val[0]), vget_high_f32(b.val[0]));
    r[3] = vcombine_f32(vget_high_f32(a.val[1]), vget_high_f32(b.val[1]));
}

/* Returns the integer nearest to x. */
static inline vf v_round(vf x)
{
    return vrndnq_f32(x);
}
/* Splits x into an integer, which is written to *n, and a fraction in [0, 1], which is returned.
 * An x below -160 counts as -160, and v_scale then returns 0. */
static inline vf v_frac(vf x, vf *n)
{
    x = v_max(v_set1(-160.0f), x); /* NaN stays NaN */
    *n = vrndmq_f32(x);
    return vsubq_f32(x, *n);
}
/* Returns 2^n p for n in [-126, 127], and 0 for a smaller n. */
static inline vf v_scale(vf p, vf n)
{
    const vi e = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vi_set1(127)), 23);
    return v_sel(v_lt(n, v_set1(-126.0f)), v_set1(0), vmulq_f32(p, vreinterpretq_f32_s32(e)));
}

#endif
#endif
