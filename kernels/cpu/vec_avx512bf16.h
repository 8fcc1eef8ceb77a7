/* vec_avx512bf16.h: vec_avx512.h, and the dot product of pairs of bf16.
 *
 * A word is the 32 bits of a pair, with the element of the lower index in the lower half. Words
 * are stored in arrays of floats and in vectors vf, which are used only to move bits. */
#ifndef SEQD_CPU_VEC_AVX512BF16_H
#define SEQD_CPU_VEC_AVX512BF16_H
#include "kernels/cpu/vec_avx512.h"
#if defined(__AVX512F__) && defined(__AVX512BF16__)

#define VEC_PAIRS 1

typedef __m512i vh2; /* 2 VL bf16: VL of a first vector, and then VL of a second vector */

/* Returns acc + x[1] y[1] + x[0] y[0] in each lane. Products are exact, and sums are rounded to
 * nearest. */
static inline vf v_dot(vf x, vf y, vf acc)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(x),
                            (__m512bh)_mm512_castps_si512(y));
}
/* Loads n elements, 1 <= n <= 2 VL, as the words that they form in memory. Elements after the
 * first n are read as 0. */
static inline vf v_load_words_n(const uint16_t *p, int64_t n)
{
    __mmask32 first = (__mmask32)(((uint64_t)1 << n) - 1);
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first, p));
}
static inline __m512i v_interleave(void)
{
    return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                            6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
}
/* Loads words (lo[i], hi[i]) of the first n lanes, 1 <= n <= VL. If hi is NULL, the words are
 * (lo[i], 0). */
static inline vf v_load_pairs_n(const uint16_t *lo, const uint16_t *hi, int64_t n)
{
    __m256i x = _mm256_maskz_loadu_epi16(v_first(n), lo);
    __m256i y = _mm256_maskz_loadu_epi16(hi ? v_first(n) : 0, hi ? hi : lo);
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(x), y, 1);
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(v_interleave(), both));
}
/* Stores the 2 VL words (lo[i], hi[i]): the first VL words to x, the rest to y. */
static inline void v_store_pairs(const uint16_t *lo, const uint16_t *hi, float *x, float *y)
{
    const __m512i l = _mm512_loadu_si512(lo), h = _mm512_loadu_si512(hi);
    /* in each quarter of 8 words, a has words 0 to 3, and b has words 4 to 7 */
    const __m512i a = _mm512_unpacklo_epi16(l, h), b = _mm512_unpackhi_epi16(l, h);
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    _mm512_storeu_si512(x, _mm512_permutex2var_epi64(a, first, b));
    _mm512_storeu_si512(y, _mm512_permutex2var_epi64(a, second, b));
}
/* Rounds x and y to nearest even and returns VL elements of x, followed by VL of y. Subnormals
 * become 0. */
static inline vh2 v_narrow2(vf x, vf y)
{
    return (vh2)_mm512_cvtne2ps_pbh(y, x);
}
static inline void v_store_halves(uint16_t *x, uint16_t *y, vh2 both)
{
    _mm256_storeu_si256((__m256i *)x, _mm512_castsi512_si256(both));
    _mm256_storeu_si256((__m256i *)y, _mm512_extracti64x4_epi64(both, 1));
}
/* Returns the two halves of v_narrow2's result as words (x[i], y[i]). */
static inline vf v_words(vh2 both)
{
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(v_interleave(), both));
}
/* Returns the words (x[i], y[i]) of values that are exactly bf16. */
static inline vf v_words_of(vf x, vf y)
{
    const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(x), 16);
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        low, _mm512_castps_si512(y), _mm512_set1_epi32((int)0xffff0000u), 0xf8)); /* a | b & c */
}
/* Converts the 4-bit codes that begin at bits `shift` and 16 + `shift` of each word, and returns
 * words whose two bf16 are 16 + code. */
static inline vf v_words_u4(vf bits, const int shift)
{
    __m512i x = _mm512_castps_si512(bits); /* the code goes to bits 3 to 6 */
    x = shift < 3 ? _mm512_slli_epi32(x, (unsigned)(3 - shift))
                  : _mm512_srli_epi32(x, (unsigned)(shift - 3));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
        x, _mm512_set1_epi32(0x00780078), _mm512_set1_epi32(0x41804180), 0xea)); /* a & b | c */
}

#endif
#endif
