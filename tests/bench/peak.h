/* peak.h: the limits of this machine, measured in the run that is compared with it:
 *
 *   multiply-adds   of fp32, and of bf16 with sums in fp32 (dot products, or the tiles of AMX),
 *                   with nothing but registers in the loop
 *   memory          bytes a second of reading, of copying and of updating in place, over as many
 *                   bytes as an operation has in its operands: so of the cache that they lie in, or
 *                   of memory */
#ifndef SEQD_BENCH_PEAK_H
#define SEQD_BENCH_PEAK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
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

/* BFDOT, which the row "neonbf16" multiplies by. */
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

/* Without either: products and sums in the compiler's vectors of 4. */
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

/* GFLOP/s, the largest and the smallest that were measured in this run, and by which unit. */
struct peaks {
    double fp32, bf16, fp32_low, bf16_low;
    const char *fp32_unit, *bf16_unit;
};

/* Returns the rate of the unit for products of bf16; 0: there is none. */
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

/* isa: that of an opened CPU device: with "amx", this process may use the tiles. Without a product
 * of bf16 that is faster, it is widened and multiplied as fp32. */
static inline struct peaks peaks_measure(int n_threads, const char *isa)
{
    struct peaks p = {.fp32 = peak_gflops(n_threads, peak_work), .fp32_unit = "fp32 FMA"};
    const double own = peak_bf16_gflops(n_threads, isa);
    p.bf16 = p.fp32, p.bf16_unit = p.fp32_unit;
    if (own > p.fp32) p.bf16 = own, p.bf16_unit = strcmp(isa, "amx") ? "bf16 dot" : "AMX tiles";
    p.fp32_low = p.fp32, p.bf16_low = p.bf16;
    return p;
}

/* Measures them again: a machine that others use, or whose clock changes, has a range. */
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

/* ---- memory ---------------------------------------------------------------------------------- */

enum peak_mix { PEAK_READ, PEAK_COPY, PEAK_UPDATE };

#define PEAK_SPAN_S 0.04 /* for one of them */

struct peak_memory {
    char *at;
    int64_t slice; /* bytes of a thread, a multiple of 1024 */
    int reps;
    enum peak_mix mix;
};

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static inline void peak_read_avx512(const char *p, int64_t n)
{
    __m512 a = _mm512_setzero_ps(), b = a, c = a, d = a;
    for (int64_t i = 0; i < n; i += 256) {
        a = _mm512_add_ps(a, _mm512_load_ps(p + i)),
        b = _mm512_add_ps(b, _mm512_load_ps(p + i + 64));
        c = _mm512_add_ps(c, _mm512_load_ps(p + i + 128));
        d = _mm512_add_ps(d, _mm512_load_ps(p + i + 192));
    }
    __asm__ volatile("" : : "v"(a), "v"(b), "v"(c), "v"(d));
}
__attribute__((target("avx512f"))) static inline void peak_update_avx512(char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64) {
        __m512 x = _mm512_load_ps(p + i);
        __asm__ volatile("" : "+v"(x)); /* it may be another one now */
        _mm512_store_ps(p + i, x);
    }
}
#endif

static inline void peak_pass(char *p, int64_t n, enum peak_mix mix)
{
    typedef float v4 __attribute__((vector_size(16)));
    if (mix == PEAK_COPY) {
        memcpy(p, p + n / 2, (size_t)n / 2);
        return;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        if (mix == PEAK_READ)
            peak_read_avx512(p, n);
        else
            peak_update_avx512(p, n);
        return;
    }
#endif
    v4 *x = (v4 *)p, a = {0}, b = a, c = a, d = a;
    volatile float still = 1; /* as far as the compiler knows, another number */
    const v4 factor = {still, still, still, still};
    if (mix == PEAK_UPDATE)
        for (int64_t i = 0; i < n / 16; i++) x[i] *= factor;
    else
        for (int64_t i = 0; i < n / 16; i += 4)
            a += x[i], b += x[i + 1], c += x[i + 2], d += x[i + 3];
    volatile float keep = a[0] + b[0] + c[0] + d[0];
    (void)keep;
}

static inline void peak_memory_task(void *arg, int64_t task, int worker)
{
    const struct peak_memory *m = arg;
    for (int r = 0; r < m->reps; r++) {
        peak_pass(m->at + task * m->slice, m->slice, m->mix);
        __asm__ volatile("" : : : "memory"); /* each pass is made */
    }
}

/* GB/s read and written by n_threads, each over its part of footprint bytes. */
static inline double peak_gb_s(int n_threads, int64_t footprint, enum peak_mix mix)
{
    const int64_t huge = 2 << 20, slice = (footprint / n_threads + 1023) & -(int64_t)1024;
    const int64_t size = (slice * n_threads + huge - 1) & -huge;
    struct peak_memory m = {.at = aligned_alloc((size_t)huge, (size_t)size),
                            .slice = slice,
                            .reps = slice < huge ? (int)(huge / slice) : 1,
                            .mix = mix};
    struct pool *p = pool_open(n_threads, NULL, NULL);
    double best = INFINITY;
    const double until = peak_now_s() + PEAK_SPAN_S;
    if (!m.at || !p) abort();
    madvise(m.at, (size_t)size, MADV_HUGEPAGE);
    memset(m.at, 0, (size_t)size);
    for (int r = 0; r < 5 || peak_now_s() < until; r++) {
        const double t = peak_now_s();
        pool_run(p, peak_memory_task, &m, n_threads);
        best = fmin(best, peak_now_s() - t);
    }
    pool_close(p);
    free(m.at);
    /* bytes read and written: the whole slice once, or twice if it is updated */
    return (mix == PEAK_UPDATE ? 2.0 : 1.0) * (double)slice * n_threads * m.reps / best * 1e-9;
}

/* Bytes of the first core's data cache of a level; 0: it has none, or the system does not say. */
static inline int64_t peak_cache_size(int level)
{
    for (int i = 0; i < 8; i++) {
        char path[96], type[32] = "";
        int at = 0;
        long kib = 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        FILE *f = fopen(path, "re");
        if (!f) return 0;
        if (fscanf(f, "%d", &at) != 1) at = 0;
        fclose(f);
        strcpy(strrchr(path, '/'), "/type");
        if (at == level && (f = fopen(path, "re"))) {
            if (fscanf(f, "%31s", type) != 1) *type = 0;
            fclose(f);
        }
        strcpy(strrchr(path, '/'), "/size");
        if (at != level || !strcmp(type, "Instruction") || !(f = fopen(path, "re"))) continue;
        if (fscanf(f, "%ldK", &kib) != 1) kib = 0;
        fclose(f);
        return (int64_t)kib << 10;
    }
    return 0;
}

/* The level that holds operands of `footprint` bytes split over the threads; they share L3. */
static inline const char *peak_level(int n_threads, int64_t footprint)
{
    static const char *const names[] = {"L1", "L2", "L3"};
    for (int i = 0; i < 3; i++)
        if (footprint / (i < 2 ? n_threads : 1) <= peak_cache_size(i + 1)) return names[i];
    return "DRAM";
}

#endif
