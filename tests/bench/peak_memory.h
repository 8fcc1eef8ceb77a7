/* peak_memory.h: the limits of this machine's memory, in bytes a second of reading, of copying and
 * of updating in place. They are measured over as many bytes as an operation has in its operands:
 * so of the cache that holds them, or of memory. */
#ifndef SEQD_BENCH_PEAK_MEMORY_H
#define SEQD_BENCH_PEAK_MEMORY_H

#include <sys/mman.h>
#include "tests/bench/peak.h"

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
