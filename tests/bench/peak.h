/* peak.h: measures the largest rates of multiply-adds of this machine. A bench measures them in
 * the run whose figures it compares with them. The loops that measure them use only registers. One
 * loop is in fp32. Another is in bf16 with sums in fp32, and uses dot products or the tiles of
 * AMX. peak_memory.h has the limits of the memory. */
#ifndef SEQD_BENCH_PEAK_H
#define SEQD_BENCH_PEAK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/cpu/pool.h"
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

static inline double peak_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define PEAK_STEPS 200000

#if defined(__x86_64__)
#define PEAK_ACC 24
__attribute__((target("avx512f"))) static inline double peak_avx512(void)
{
    __m512 acc[PEAK_ACC], x = _mm512_set1_ps(1e-9f), y = _mm512_set1_ps(0.999f);
#pragma GCC unroll 24
    for (int i = 0; i < PEAK_ACC; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 24
        for (int i = 0; i < PEAK_ACC; i++) {
            acc[i] = _mm512_fmadd_ps(acc[i], y, x);
            __asm__ volatile("" : "+v"(acc[i])); /* stays in its register */
        }
    }
#pragma GCC unroll 24
    for (int i = 1; i < PEAK_ACC; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    volatile float keep = _mm512_reduce_add_ps(acc[0]);
    (void)keep;
    return 2.0 * 16 * PEAK_ACC * PEAK_STEPS;
}
#endif

#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 11)
#define PEAK_HAS_BF16 1
__attribute__((target("avx512f,avx512bf16"))) static inline double peak_bf16(void)
{
    __m512 acc[PEAK_ACC];
    const __m512i x = _mm512_set1_epi32(0x30003000), y = _mm512_set1_epi32(0x3f7f3f7f);
#pragma GCC unroll 24
    for (int i = 0; i < PEAK_ACC; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 24
        for (int i = 0; i < PEAK_ACC; i++) {
            acc[i] = _mm512_dpbf16_ps(acc[i], (__m512bh)x, (__m512bh)y);
            __asm__ volatile("" : "+v"(acc[i]));
        }
    }
#pragma GCC unroll 24
    for (int i = 1; i < PEAK_ACC; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    volatile float keep = _mm512_reduce_add_ps(acc[0]);
    (void)keep;
    return 4.0 * 16 * PEAK_ACC * PEAK_STEPS;
}
#endif

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static inline double peak_avx2(void)
{
    __m256 acc[12], x = _mm256_set1_ps(1e-9f), y = _mm256_set1_ps(0.999f);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) acc[i] = _mm256_set1_ps((float)i);
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            acc[i] = _mm256_fmadd_ps(acc[i], y, x);
            __asm__ volatile("" : "+x"(acc[i]));
        }
    }
    volatile float keep = 0;
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) keep += _mm256_cvtss_f32(acc[i]);
    return 2.0 * 8 * 12 * PEAK_STEPS;
}
#elif defined(__aarch64__)
static inline double peak_neon(void)
{
    float32x4_t acc[24], x = vdupq_n_f32(1e-9f), y = vdupq_n_f32(0.999f);
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) acc[i] = vdupq_n_f32((float)i);
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) {
            acc[i] = vfmaq_f32(acc[i], x, y);
            __asm__ volatile("" : "+w"(acc[i]));
        }
    }
    volatile float keep = 0;
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) keep += vgetq_lane_f32(acc[i], 0);
    return 2.0 * 4 * 24 * PEAK_STEPS;
}

/* Measures BFDOT, with which the row "neonbf16" multiplies. */
static inline double peak_bfdot(void)
{
    float32x4_t acc[24];
    const uint32x4_t x = vdupq_n_u32(0x30003000), y = vdupq_n_u32(0x3f7f3f7f);
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) acc[i] = vdupq_n_f32((float)i);
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++)
            __asm__ volatile(".arch_extension bf16\n\tbfdot %0.4s, %1.8h, %2.8h"
                             : "+w"(acc[i])
                             : "w"(x), "w"(y));
    }
    volatile float keep = 0;
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++) keep += vgetq_lane_f32(acc[i], 0);
    return 4.0 * 4 * 24 * PEAK_STEPS;
}
#endif

/* Measures products and sums in the compiler's vectors of 4 floats. It is used for a processor for
 * which this file has no other loop. */
static inline double peak_portable(void)
{
    typedef float v4 __attribute__((vector_size(16)));
    v4 acc[12], x = {1e-9f, 1e-9f, 1e-9f, 1e-9f}, y = {0.9f, 0.9f, 0.9f, 0.9f};
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) acc[i] = x * (float)i;
    for (int64_t n = 0; n < PEAK_STEPS; n++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            acc[i] = acc[i] * y + x;
#if defined(__x86_64__)
            __asm__ volatile("" : "+x"(acc[i]));
#endif
        }
    }
    volatile float keep = 0;
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) keep += acc[i][0];
    return 2.0 * 4 * 12 * PEAK_STEPS;
}

static inline double peak_work(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return peak_avx512();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return peak_avx2();
#elif defined(__aarch64__)
    return peak_neon();
#endif
    return peak_portable();
}

#if defined(PEAK_HAS_BF16)
/* Measures the tiles of AMX. Each of two tiles is multiplied with each of two further tiles, which
 * gives four sums. Each of these products has 16 x 16 x 32 multiply-adds. */
static inline double peak_amx(void)
{
    _Alignas(64) struct {
        uint8_t palette, start, zero[14];
        uint16_t row_size[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) config.row_size[i] = 64, config.rows[i] = 16;
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    for (int64_t n = 0; n < PEAK_STEPS / 4; n++)
        __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n\t"
                         "tdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
                         "tdpbf16ps %tmm6, %tmm5, %tmm2\n\t"
                         "tdpbf16ps %tmm7, %tmm5, %tmm3");
    __asm__ volatile("tilerelease");
    return 4.0 * 2 * 16 * 16 * 32 * (PEAK_STEPS / 4);
}
#endif

struct peak_call {
    double (*work)(void);
    double done[POOL_MAX_THREADS];
};

static inline void peak_task(void *arg, int64_t task, int worker)
{
    struct peak_call *c = arg;
    c->done[task] = c->work();
}

/* Returns GFLOP/s, the best of many short runs on n_threads cores. */
static inline double peak_gflops(int n_threads, double (*work)(void))
{
    struct pool *p = pool_open(n_threads, NULL, NULL);
    struct peak_call call = {.work = work};
    double best = INFINITY, sum = 0;
    for (int r = 0; r < 400; r++) {
        double t = peak_now_s();
        pool_run(p, peak_task, &call, n_threads);
        best = fmin(best, peak_now_s() - t);
    }
    for (int i = 0; i < n_threads; i++) sum += call.done[i];
    pool_close(p);
    return sum / best * 1e-9;
}

/* The largest and the smallest GFLOP/s that were measured in this run, and the unit that reached
 * them. */
struct peaks {
    double fp32, bf16, fp32_low, bf16_low;
    const char *fp32_unit, *bf16_unit;
};

/* Returns the rate of the unit for products of bf16, or 0 if there is none. */
static inline double peak_bf16_gflops(int n_threads, const char *isa)
{
#if defined(PEAK_HAS_BF16)
    const bool amx = !strcmp(isa, "amx");
    if (amx || __builtin_cpu_supports("avx512bf16"))
        return peak_gflops(n_threads, amx ? peak_amx : peak_bf16);
#elif defined(__aarch64__)
    if (!strcmp(isa, "neonbf16")) return peak_gflops(n_threads, peak_bfdot);
#endif
    return 0;
}

/* Measures the peaks. `isa` is the instruction set of an opened CPU device. If it is "amx", this
 * process may use the tiles of AMX. If no product of bf16 is faster, bf16 is widened and
 * multiplied as fp32. */
static inline struct peaks peaks_measure(int n_threads, const char *isa)
{
    struct peaks p = {.fp32 = peak_gflops(n_threads, peak_work), .fp32_unit = "fp32 FMA"};
    const double own = peak_bf16_gflops(n_threads, isa);
    p.bf16 = p.fp32, p.bf16_unit = p.fp32_unit;
    if (own > p.fp32) p.bf16 = own, p.bf16_unit = strcmp(isa, "amx") ? "bf16 dot" : "AMX tiles";
    p.fp32_low = p.fp32, p.bf16_low = p.bf16;
    return p;
}

/* Measures the peaks again, because they vary on a machine that other programs use or whose clock
 * changes. */
static inline void peaks_again(struct peaks *p, int n_threads, const char *isa)
{
    const double fp32 = peak_gflops(n_threads, peak_work);
    const double bf16 = p->bf16_unit == p->fp32_unit ? fp32 : peak_bf16_gflops(n_threads, isa);
    p->fp32 = fmax(p->fp32, fp32), p->fp32_low = fmin(p->fp32_low, fp32);
    p->bf16 = fmax(p->bf16, bf16), p->bf16_low = fmin(p->bf16_low, bf16);
}

static inline void peaks_print(const struct peaks *p, int n_threads)
{
    printf("of %d thread(s), smallest to largest: %s %.1f to %.1f GFLOP/s, of bf16 by %s %.1f to "
           "%.1f GFLOP/s\n",
           n_threads, p->fp32_unit, p->fp32_low, p->fp32, p->bf16_unit, p->bf16_low, p->bf16);
    printf(
        "{\"bench\":\"peaks\",\"threads\":%d,\"fp32_unit\":\"%s\",\"fp32_low\":%.1f,\"fp32\":%.1f,"
        "\"bf16_unit\":\"%s\",\"bf16_low\":%.1f,\"bf16\":%.1f}\n",
        n_threads, p->fp32_unit, p->fp32_low, p->fp32, p->bf16_unit, p->bf16_low, p->bf16);
    fflush(stdout);
}

#endif
