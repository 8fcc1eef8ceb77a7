/* vec_avx2.h: vectors of 8 floats, with a fused multiply-add that rounds once. */
#ifndef SEQD_CPU_VEC_AVX2_H
#define SEQD_CPU_VEC_AVX2_H
#ifdef __AVX2__

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VL 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm; /* a mask, which has all bits or no bits set in each lane */

static inline vf v_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
static inline vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
static inline vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}
static inline __m256i v_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* Load and store the first n lanes, 1 <= n <= VL. A load sets the other lanes to 0. A store writes
 * nothing for the other lanes. */
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, v_first(n));
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm256_maskstore_ps(p, v_first(n), x);
}

/* A bf16 is the upper half of a float. */
static inline vf v_load_bf16(const uint16_t *p)
{
    __m128i x = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t x[VL] = {0};
    memcpy(x, p, (size_t)n * sizeof *p);
    return v_load_bf16(x);
}
/* Rounds to nearest even. A NaN keeps its highest bits and becomes quiet. */
static inline void v_store_bf16(uint16_t *p, vf x)
{
    __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(high, vi_set1(1));
    __m256i up = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, vi_set1(0x7fff)), odd), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i y = _mm256_blendv_epi8(up, _mm256_or_si256(high, vi_set1(0x40)), nan);
    __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(halves));
}
static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    uint16_t y[VL];
    v_store_bf16(y, x);
    memcpy(p, y, (size_t)n * sizeof *p);
}

/* fp16: the conversions of F16C keep subnormals, whatever the modes of the processor are. */
static inline vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline vf v_load_f16_n(const uint16_t *p, int64_t n)
{
    uint16_t x[VL] = {0};
    memcpy(x, p, (size_t)n * sizeof *p);
    return v_load_f16(x);
}
static inline void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
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
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
/* Return the lower and the upper bf16 of each lane, as floats. */
static inline vf v_words_low(vf words)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
}
static inline vf v_words_high(vf words)
{
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_castps_si256(words), vi_set1((int)0xffff0000u)));
}
/* Returns, for each lane, its 4 bits from bit `shift` on. */
static inline vf v_u4(vf bits, const int shift)
{
    const __m256i x = _mm256_srli_epi32(_mm256_castps_si256(bits), shift);
    return _mm256_cvtepi32_ps(_mm256_and_si256(x, vi_set1(15)));
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_sel(vm m, vf a, vf b)
{
    return _mm256_blendv_ps(b, a, m);
}
static inline vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vm v_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
/* lo <= x < hi */
static inline vm vi_in(vi lo, vi x, vi hi)
{
    return _mm256_castsi256_ps(
        _mm256_andnot_si256(_mm256_cmpgt_epi32(lo, x), _mm256_cmpgt_epi32(hi, x)));
}
static inline float v_sum(vf x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
static inline float v_hmax(vf x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

/* Transposes, so that r[i][j] becomes r[j][i]. Exchanges first pairs, then quadruples, then
 * halves. */
static inline void v_transpose(vf r[VL])
{
    vf a[VL], b[VL];
#pragma GCC unroll 4
    for (int i = 0; i < VL; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < VL; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        r[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        r[4 + c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}

/* Returns the integer nearest to x. */
static inline vf v_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Splits x into an integer, which is written to *n, and a fraction in [0, 1], which is returned.
 * If x is -inf, v_scale with this *n returns 0. */
static inline vf v_frac(vf x, vf *n)
{
    x = v_max(v_set1(-160.0f), x); /* NaN stays NaN */
    *n = _mm256_floor_ps(x);
    return _mm256_sub_ps(x, *n);
}
/* Returns 2^n p for n in [-126, 127], and 0 for a smaller n. */
static inline vf v_scale(vf p, vf n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), vi_set1(127)), 23);
    vf x = _mm256_mul_ps(p, _mm256_castsi256_ps(e));
    return _mm256_andnot_ps(v_lt(n, v_set1(-126.0f)), x);
}

#endif
#endif
