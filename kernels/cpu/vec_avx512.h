/* vec_avx512.h: vectors of 16 floats, with a fused multiply-add that rounds once. */
#ifndef SEQD_CPU_VEC_AVX512_H
#define SEQD_CPU_VEC_AVX512_H
#ifdef __AVX512F__

#include <immintrin.h>
#include <stdint.h>

#define VL 16
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

static inline vf v_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
static inline vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
static inline vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
static inline vm v_first(int64_t n)
{
    return (vm)((1u << n) - 1);
}
/* Load and store the first n lanes, 1 <= n <= VL. A load sets the other lanes to 0. A store writes
 * nothing for the other lanes. */
static inline vf v_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(v_first(n), p);
}
static inline void v_store_n(float *p, vf x, int64_t n)
{
    _mm512_mask_storeu_ps(p, v_first(n), x);
}

/* A bf16 is the upper half of a float. */
static inline vf v_widen(__m256i x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
static inline vf v_load_bf16(const uint16_t *p)
{
    return v_widen(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf v_load_bf16_n(const uint16_t *p, int64_t n)
{
    return v_widen(_mm256_maskz_loadu_epi16(v_first(n), p));
}
/* Rounds to nearest even. A NaN keeps its highest bits and becomes quiet. */
static inline __m256i v_narrow(vf x)
{
#ifdef __AVX512BF16__ /* one instruction rounds, but it treats subnormals as 0 */
    if (__builtin_expect(!_mm512_fpclass_ps_mask(x, 0x20), 1))
        return (__m256i)_mm512_cvtneps_pbh(x);
#endif
    __m512i u = _mm512_castps_si512(x), high = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(high, vi_set1(1));
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, vi_set1(0x7fff)), odd), 16);
    vm nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(up, nan, high, vi_set1(0x40)));
}
static inline void v_store_bf16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, v_narrow(x));
}
static inline void v_store_bf16_n(uint16_t *p, vf x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), v_narrow(x));
}

/* fp16: the conversions keep subnormals, whatever the modes of the processor are. */
static inline vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf v_load_f16_n(const uint16_t *p, int64_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p));
}
static inline void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v_store_f16_n(uint16_t *p, vf x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

/* Loads VL signed bytes, which are codes of an int8 weight, as floats. */
static inline vf v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* Return the lower and the upper bf16 of each lane, as floats. */
static inline vf v_words_low(vf words)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
}
static inline vf v_words_high(vf words)
{
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(words), vi_set1((int)0xffff0000u)));
}
/* Returns, for each lane, its 4 bits from bit `shift` on. */
static inline vf v_u4(vf bits, const unsigned shift)
{
    const __m512i x = _mm512_srli_epi32(_mm512_castps_si512(bits), shift);
    return _mm512_cvtepi32_ps(_mm512_and_si512(x, vi_set1(15)));
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_sel(vm m, vf a, vf b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
static inline vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vm v_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
/* lo <= x < hi */
static inline vm vi_in(vi lo, vi x, vi hi)
{
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(lo, x), x, hi);
}
static inline int vm_any(vm m)
{
    return m != 0;
}
static inline float v_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
static inline float v_hmax(vf x)
{
    return _mm512_reduce_max_ps(x);
}

/* Transposes, so that r[i][j] becomes r[j][i]. Exchanges first pairs, then quadruples, then
 * 128-bit blocks twice. */
static inline void v_transpose(vf r[VL])
{
    vf a[VL], b[VL];
#pragma GCC unroll 8
    for (int i = 0; i < VL; i += 2) {
        a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < VL; i += 4) {
        __m512d x = _mm512_castps_pd(a[i]), y = _mm512_castps_pd(a[i + 2]);
        __m512d z = _mm512_castps_pd(a[i + 1]), w = _mm512_castps_pd(a[i + 3]);
        b[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
        b[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        b[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(z, w));
        b[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(z, w));
    }
    /* b[4g + c] has, in its block q, column 4q + c of rows 4g .. 4g + 3 */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        vf lo01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
        vf lo23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        vf hi01 = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
        vf hi23 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
        r[c] = _mm512_shuffle_f32x4(lo01, lo23, 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(lo01, lo23, 0xdd);
        r[4 + c] = _mm512_shuffle_f32x4(hi01, hi23, 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(hi01, hi23, 0xdd);
    }
}

/* v_round returns the integer nearest to x. v_scale returns 2^n p, or 0 if that is too small for a
 * float. */
static inline vf v_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* Returns x - floor(x), which is in [0, 1), or 0 if x is -inf. Sets *n to x, which v_scale rounds
 * down. */
static inline vf v_frac(vf x, vf *n)
{
    *n = x; /* scalef rounds x down */
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline vf v_scale(vf p, vf n)
{
    return _mm512_scalef_ps(p, n);
}

#endif
#endif
