/* peak_memory.h: the limits of this machine's memory, in bytes per second of reading, of copying
 * and of updating in place. A limit is measured over as many bytes as the operands of an operation
 * have. It is therefore the rate of the cache that holds the operands, or of the memory. Each
 * thread reads its bytes in three ways: as one part, as two parts side by side, and as four parts
 * side by side. Each part has its own prefetch. The limit is the rate of the fastest way. */
#ifndef SEQD_BENCH_PEAK_MEMORY_H
#define SEQD_BENCH_PEAK_MEMORY_H

#include <sys/mman.h>
#include "tests/bench/peak.h"

enum peak_mix { PEAK_READ, PEAK_COPY, PEAK_UPDATE };

#define PEAK_SPAN_S 0.04 /* for one way */
#define PEAK_UNIT   1024 /* four of the largest vectors in each of four parts */

struct peak_memory {
    char *at;
    int64_t slice; /* bytes of each thread, a multiple of PEAK_UNIT */
    int reps, n_parts;
    enum peak_mix mix;
};

/* Defines NAME(p, n, n_parts), which reads n bytes as n_parts parts. It reads four vectors of the
 * first part, four of the next part, and so on, and then the next four of each part. */
#define PEAK_READER(NAME, TARGET, VECTOR_SIZE)                                                     \
    TARGET static inline void NAME(const char *p, int64_t n, int n_parts)                          \
    {                                                                                              \
        typedef float v __attribute__((vector_size(VECTOR_SIZE)));                                 \
        const int64_t part = n / n_parts;                                                          \
        v a = {0}, b = a, c = a, d = a;                                                            \
        for (int64_t i = 0; i < part; i += 4 * (int64_t)sizeof(v))                                 \
            for (int k = 0; k < n_parts; k++) {                                                    \
                const v *x = (const v *)(p + k * part + i);                                        \
                a += x[0], b += x[1], c += x[2], d += x[3];                                        \
            }                                                                                      \
        a += b, c += d, a += c;                                                                    \
        volatile float keep = a[0];                                                                \
        for (size_t i = 1; i < sizeof a / sizeof a[0]; i++) keep += a[i];                          \
    }
PEAK_READER(peak_read_portable, , 16)
#if defined(__x86_64__)
PEAK_READER(peak_read_avx512, __attribute__((target("avx512f"))), 64)
PEAK_READER(peak_read_avx2, __attribute__((target("avx2"))), 32)

__attribute__((target("avx512f"))) static inline void peak_update_avx512(char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i += 64) {
        __m512 x = _mm512_load_ps(p + i);
        __asm__ volatile("" : "+v"(x)); /* hides from the compiler that x is unchanged */
        _mm512_store_ps(p + i, x);
    }
}
#endif

static inline void peak_read(const char *p, int64_t n, int n_parts)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        peak_read_avx512(p, n, n_parts);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        peak_read_avx2(p, n, n_parts);
        return;
    }
#endif
    peak_read_portable(p, n, n_parts);
}

static inline void peak_update(char *p, int64_t n)
{
    typedef float v4 __attribute__((vector_size(16)));
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        peak_update_avx512(p, n);
        return;
    }
#endif
    v4 *x = (v4 *)p;
    volatile float still = 1; /* hides from the compiler that this number is 1 */
    const v4 factor = {still, still, still, still};
    for (int64_t i = 0; i < n / 16; i++) x[i] *= factor;
}

static inline void peak_pass(const struct peak_memory *m, char *p)
{
    if (m->mix == PEAK_COPY)
        memcpy(p, p + m->slice / 2, (size_t)m->slice / 2);
    else if (m->mix == PEAK_READ)
        peak_read(p, m->slice, m->n_parts);
    else
        peak_update(p, m->slice);
}

static inline void peak_memory_task(void *arg, int64_t task, int worker)
{
    const struct peak_memory *m = arg;
    for (int r = 0; r < m->reps; r++) {
        peak_pass(m, m->at + task * m->slice);
        __asm__ volatile("" : : : "memory"); /* the compiler must not leave out a pass */
    }
}

/* Returns the seconds of the fastest pass of all threads. */
static inline double peak_memory_s(struct peak_memory *m, struct pool *p, int n_threads)
{
    double best = INFINITY;
    const double until = peak_now_s() + PEAK_SPAN_S;
    for (int r = 0; r < 5 || peak_now_s() < until; r++) {
        const double t = peak_now_s();
        pool_run(p, peak_memory_task, m, n_threads);
        best = fmin(best, peak_now_s() - t);
    }
    return best;
}

/* Returns the GB/s that n_threads threads read and write together. Each thread has its own part of
 * the `footprint` bytes. */
static inline double peak_gb_s(int n_threads, int64_t footprint, enum peak_mix mix)
{
    const int64_t huge = 2 << 20;
    const int64_t slice = (footprint / n_threads + PEAK_UNIT - 1) & -(int64_t)PEAK_UNIT;
    const int64_t size = (slice * n_threads + huge - 1) & -huge;
    struct peak_memory m = {.at = aligned_alloc((size_t)huge, (size_t)size),
                            .slice = slice,
                            .reps = slice < huge ? (int)(huge / slice) : 1,
                            .mix = mix};
    struct pool *p = pool_open(n_threads, NULL, NULL);
    double best = INFINITY;
    if (!m.at || !p) abort();
    madvise(m.at, (size_t)size, MADV_HUGEPAGE);
    memset(m.at, 0, (size_t)size);
    for (m.n_parts = 1; m.n_parts <= (mix == PEAK_READ ? 4 : 1); m.n_parts *= 2)
        best = fmin(best, peak_memory_s(&m, p, n_threads));
    pool_close(p);
    free(m.at);
    /* Each byte of the slice is read once or written once. If the slice is updated, each byte is
     * both read and written. */
    return (mix == PEAK_UPDATE ? 2.0 : 1.0) * (double)slice * n_threads * m.reps / best * 1e-9;
}

/* Returns the size of the first core's data cache of this level. Returns 0 if there is no such
 * cache, or if the system does not report it. */
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

/* Returns the name of the cache level that holds operands of `footprint` bytes, or of the memory.
 * The operands are divided among the threads, which share L3. */
static inline const char *peak_level(int n_threads, int64_t footprint)
{
    static const char *const names[] = {"L1", "L2", "L3"};
    for (int i = 0; i < 3; i++)
        if (footprint / (i < 2 ? n_threads : 1) <= peak_cache_size(i + 1)) return names[i];
    return "DRAM";
}

#endif
