/* peak.h: the multiply-add peaks of this machine, of fp32 and of bf16 with sums in fp32, measured
 * with nothing but registers in the loop. */
#ifndef SEQD_BENCH_PEAK_H
#define SEQD_BENCH_PEAK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include "kernels/cpu/pool.h"
#if defined(__x86_64__)
#include <immintrin.h>
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

/* Without AVX-512: products and sums in the compiler's vectors of 4. */
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
#endif
    return peak_portable();
}

#if defined(PEAK_HAS_BF16)
/* The same by the tiles of AMX, four sums from two and two: 16 x 16 x 32 products each. */
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

/* Whether a device said that it runs on tiles: the process may use them then. */
static bool peak_has_amx;

/* Without a product of bf16 it is widened, and multiplied as fast as fp32. */
static inline double peak_work_bf16(void)
{
#if defined(PEAK_HAS_BF16)
    if (peak_has_amx) return peak_amx();
    if (__builtin_cpu_supports("avx512bf16")) return peak_bf16();
#endif
    return peak_work();
}

struct peak_call {
    double (*work)(void);
    double done[POOL_MAX_THREADS];
};

static inline void peak_task(void *arg, int64_t task, int worker)
{
    struct peak_call *c = arg;
    c->done[task] = c->work();
}

/* GFLOP/s, the best of many short runs on n_threads cores. */
static inline double peak_gflops(int n_threads, double (*work)(void))
{
    struct pool *p = pool_open(n_threads, NULL);
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

#endif
