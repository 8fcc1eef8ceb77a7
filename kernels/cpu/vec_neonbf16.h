/* vec_neonbf16.h: vec_neon.h, and the dot product of pairs of bf16 (FEAT_BF16).
 *
 * Words have the same format as in vec_avx512bf16.h. */
#ifndef SEQD_CPU_VEC_NEONBF16_H
#define SEQD_CPU_VEC_NEONBF16_H
#include "kernels/cpu/vec_neon.h"
#if defined(__aarch64__) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

#define VEC_PAIRS 1

typedef uint16x8_t vh2; /* 2 VL bf16: VL of a first vector, and then VL of a second vector */

/* Returns acc + (x[0] y[0] + x[1] y[1]) in each lane. Each product and each sum is rounded to odd,
 * so its error is less than a unit in the last place. */
static inline vf v_dot(vf x, vf y, vf acc)
{
    __asm__("" : "+w"(y)); /* hides y, because GCC 12 would load a constant bf16 1.0 as fp16 */
    return vbfdotq_f32(acc, vreinterpretq_bf16_f32(x), vreinterpretq_bf16_f32(y));
}
/* Loads n elements, 1 <= n <= 2 VL, as the words that they form in memory. Elements after the
 * first n are read as 0. */
static inline vf v_load_words_n(const uint16_t *p, int64_t n)
{
    vf x = v_set1(0);
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}
/* Returns x and y as words (x[i], y[i]). */
static inline vf v_zip(uint16x4_t x, uint16x4_t y)
{
    return vreinterpretq_f32_u16(vcombine_u16(vzip1_u16(x, y), vzip2_u16(x, y)));
}
/* Loads words (lo[i], hi[i]) of the first n lanes, 1 <= n <= VL. If hi is NULL, the words are
 * (lo[i], 0). */
static inline vf v_load_pairs_n(const uint16_t *lo, const uint16_t *hi, int64_t n)
{
    return v_zip(v_halves_n(lo, n), hi ? v_halves_n(hi, n) : vdup_n_u16(0));
}
/* Rounds x and y to nearest even and returns VL elements of x, followed by VL of y. */
static inline vh2 v_narrow2(vf x, vf y)
{
    return vreinterpretq_u16_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x), y));
}
static inline void v_store_halves(uint16_t *x, uint16_t *y, vh2 both)
{
    vst1_u16(x, vget_low_u16(both));
    vst1_u16(y, vget_high_u16(both));
}
/* Returns the two halves of v_narrow2's result as words (x[i], y[i]). */
static inline vf v_words(vh2 both)
{
    return v_zip(vget_low_u16(both), vget_high_u16(both));
}

/* Returns the words (x[i], y[i]) of values that are exactly bf16. */
static inline vf v_words_of(vf x, vf y)
{
    return vreinterpretq_f32_u32(
        vsriq_n_u32(vreinterpretq_u32_f32(y), vreinterpretq_u32_f32(x), 16));
}
/* Converts the 4-bit codes that begin at bits `shift` and 16 + `shift` of each word, and returns
 * words whose two bf16 are 16 + code. */
static inline vf v_words_u4(vf bits, const int shift)
{
    uint32x4_t x = vreinterpretq_u32_f32(bits); /* the code goes to bits 3 to 6 */
    x = vandq_u32(vshlq_u32(x, vdupq_n_s32(3 - shift)), vdupq_n_u32(0x00780078));
    return vreinterpretq_f32_u32(vorrq_u32(x, vdupq_n_u32(0x41804180)));
}

#endif
#endif
