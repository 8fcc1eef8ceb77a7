/* figure.h: common code of the benchmarks of a device. It has the device's memory and clock, and
 * prints a figure as a line of a table and as JSON.
 *
 *     BENCH_SECONDS=150   begins no figure after this time, and reports each as not run
 *     BENCH_SMALL=1       uses the smallest shapes, to check only that the program works
 *     BENCH_MEMORY=BYTES  uses at most this much of the device's memory
 *     BENCH_ONLY=WORDS    runs only the figures whose keys contain WORDS
 *
 * Each batch of calls has a mean time per call, and a figure is the smallest of these means. All
 * calls of a batch are queued, and the host waits only for the end of the batch. As in a training,
 * the calls therefore share the cost of the device's queue. A figure has the same key in
 * tests/gpu/torch_bench.py. If the operation computes products, the figure names the code that
 * computes them, which is cublasLt or the device's own kernels. A job uses cublasLt unless its
 * determinism is "ranks" (worker/rank/run.c), so both are measured. */
#ifndef SEQD_GPU_FIGURE_H
#define SEQD_GPU_FIGURE_H

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "kernels/backend.h"
#include "tests/lib/box.h"

#define FIGURE_BATCH_S 0.05
#define FIGURE_BATCHES 5

static struct bench {
    struct be *be;
    FILE *json;                /* NULL if none is written */
    const char *device, *only; /* only is NULL for all figures */
    double until_s;
    int64_t memory; /* 0 if it is not known */
    bool small;
} bench;

static inline double bench_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double bench_number(const char *name, double otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atof(text) : otherwise;
}

static inline void bench_init(int argc, char **argv)
{
    bench.device = getenv("SEQD_TEST_DEVICE") ? getenv("SEQD_TEST_DEVICE") : "cpu";
    bench.small = bench_number("BENCH_SMALL", 0) != 0;
    bench.until_s = bench_now_s() + bench_number("BENCH_SECONDS", 1e9);
    bench.memory = (int64_t)bench_number("BENCH_MEMORY", 0);
    bench.only = getenv("BENCH_ONLY");
    bench.json = argc > 1 ? fopen(argv[1], "a") : NULL;
    if (argc > 1 && !bench.json) {
        perror(argv[1]);
        exit(1);
    }
}

/* Selects how devices that are opened after this call compute products: with a library, if there
 * is one, or with their own kernels. */
static inline void bench_products_by(bool library)
{
    setenv("SEQD_CUDA_BLAS", library ? "1" : "0", 1);
}

static inline void bench_open(const char *isa, bool library)
{
    struct err e;
    bench_products_by(library);
    bench.be = be_open(
        &(struct be_options){.device = bench.device, .isa = isa, .n_threads = 1, .any_order = true},
        &e);
    if (bench.be) return;
    fprintf(stderr, "%s\n", e.text);
    exit(1);
}

static inline void bench_sync(struct be *b)
{
    struct err e;
    if (!b->ops->sync || b->ops->sync(b, &e) == 0) return;
    fprintf(stderr, "%s\n", e.text);
    exit(1);
}

/* ---- figures --------------------------------------------------------------------------------- */

struct figure {
    char key[96];
    double work, s; /* flops, bytes or tokens of a call; seconds of a call */
    const char *unit;
    double of;      /* the limit in the same unit, or 0 if it is not known */
    const char *by; /* the code that computes the products, or NULL if the operation has no
                     * products */
};

#define BY_LIBRARY "cublasLt"
#define BY_OWN     "own kernels"

/* Returns the name of the code that has computed products on an opened device since its counts had
 * these values. */
static inline const char *figure_by(const struct be *be, int64_t n_done, int64_t n_left)
{
    const struct be_library none = {.n_left = n_left + 1}, *l = be->library ? be->library : &none;
    return l->n_done == n_done   ? BY_OWN
           : l->n_left == n_left ? BY_LIBRARY
                                 : BY_LIBRARY " and " BY_OWN;
}

static inline void figure_key(struct figure *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(f->key, sizeof f->key, format, args);
    va_end(args);
}

static inline double figure_rate(const struct figure *f)
{
    const double scale = !strcmp(f->unit, "TFLOP/s") ? 1e-12 : !strcmp(f->unit, "GB/s") ? 1e-9 : 1;
    return f->work * scale / f->s;
}

static inline void figure_print(const struct figure *f, const char *more)
{
    const double rate = figure_rate(f);
    printf("%-44s %12.4g %-8s %12.4f ms", f->key, rate, f->unit, f->s * 1e3);
    if (f->of > 0) printf(" %6.3f of what was measured", rate / f->of);
    if (f->by) printf("  by %s", f->by);
    printf("%s\n", more);
    fflush(stdout);
    if (!bench.json) return;
    fprintf(bench.json,
            "{\"key\":\"%s\",\"device\":\"%s\",\"by\":\"%s\",\"rate\":%.6g,\"unit\":\"%s\","
            "\"ms\":%.6g,\"of_limit\":%.4g}\n",
            f->key, bench.device, f->by ? f->by : "", rate, f->unit, f->s * 1e3,
            f->of > 0 ? rate / f->of : 0);
    fflush(bench.json);
}

static inline void figure_not_run(const struct figure *f, const char *why)
{
    char plain[512];
    snprintf(plain, sizeof plain, "%s", why);
    for (char *c = plain; *c; c++)
        if (*c == '"' || *c == '\\') *c = '\''; /* JSON */
    printf("%-44s not run%s%s: %s\n", f->key, f->by ? ", by " : "", f->by ? f->by : "", plain);
    fflush(stdout);
    if (!bench.json) return;
    fprintf(bench.json, "{\"key\":\"%s\",\"device\":\"%s\",\"by\":\"%s\",\"not_run\":\"%s\"}\n",
            f->key, bench.device, f->by ? f->by : "", plain);
    fflush(bench.json);
}

/* Tells whether the figure must be left out, because the time is over (which is reported) or
 * because it is not requested. */
static inline bool figure_late(const struct figure *f)
{
    if (bench.only && !strstr(f->key, bench.only)) return true;
    if (bench_now_s() < bench.until_s) return false;
    figure_not_run(f, "out of time");
    return true;
}

static inline double figure_batch(void (*run)(void *), void *arg, int n)
{
    const double start = bench_now_s();
    for (int i = 0; i < n; i++) run(arg);
    bench_sync(bench.be);
    return (bench_now_s() - start) / n;
}

/* Seconds of a call. */
static inline double figure_time(void (*run)(void *), void *arg)
{
    figure_batch(run, arg, 1); /* the first call loads the code */
    double best = figure_batch(run, arg, 1);
    if (bench.small) return best;
    const double n = ceil(FIGURE_BATCH_S / best);
    for (int i = 0; i < FIGURE_BATCHES && (i < 2 || bench_now_s() < bench.until_s); i++)
        best = fmin(best, figure_batch(run, arg, n < 200 ? (int)n : 200));
    return best;
}

/* ---- device memory --------------------------------------------------------------------------- */

struct lump { /* a buffer of the device */
    void *at;
    int64_t size;
};

/* Buffers that are allocated together. If one of them does not fit into the memory, the whole
 * figure is left out. */
#define LUMPS 16
struct lumps {
    struct lump of[LUMPS];
    int n;
    bool short_of_memory;
};

static inline void *lump_new(struct lumps *l, int64_t size)
{
    struct err e;
    void *p = l->short_of_memory ? NULL : bench.be->ops->alloc(bench.be, size, &e);
    if (!p) l->short_of_memory = true;
    if (p) l->of[l->n++] = (struct lump){p, size};
    return p;
}

static inline void lumps_free(struct lumps *l)
{
    bench_sync(bench.be);
    while (l->n-- > 0) bench.be->ops->free(bench.be, l->of[l->n].at, l->of[l->n].size);
    *l = (struct lumps){0};
}

/* Tells whether all buffers could be made. If not, the figure reports it. */
static inline bool lumps_fit(const struct lumps *l, const struct figure *f)
{
    if (l->short_of_memory) figure_not_run(f, "more memory than the device has");
    return !l->short_of_memory;
}

/* Makes a tensor of normally distributed numbers with the given standard deviation. One block of
 * numbers is drawn and repeated. */
static inline struct tensor lump_random(struct lumps *l, enum dtype type, int64_t rows,
                                        int64_t cols, double deviation)
{
    enum { N = 1 << 16 };
    static char block[N * 4];
    uint64_t seed = 7;
    const int64_t size = rows * cols * dtype_size(type), whole = N * dtype_size(type);
    char *p = lump_new(l, size);
    for (int64_t i = 0; i < N; i++) {
        const float x = box_normal(&seed, deviation);
        if (type == DT_F32)
            ((float *)block)[i] = x;
        else
            ((uint16_t *)block)[i] = box_half(type, x);
    }
    for (int64_t at = 0; p && at < size; at += whole)
        bench.be->ops->upload(bench.be, p + at, block, size - at < whole ? size - at : whole);
    return tensor_of(type, p, rows, cols, cols);
}

static inline struct tensor lump_zero(struct lumps *l, enum dtype type, int64_t rows, int64_t cols)
{
    return tensor_of(type, lump_new(l, rows * cols * dtype_size(type)), rows, cols, cols);
}

static inline void *lump_copy(struct lumps *l, const void *from, int64_t size)
{
    void *p = lump_new(l, size);
    if (p) bench.be->ops->upload(bench.be, p, from, size);
    return p;
}

/* Makes, on the device, the arrays `lo` and `hi` of causal attention within documents of `doc`
 * rows. `pairs` is the number of pairs of a row and a row that it sees. */
static inline void lump_causal(struct lumps *l, int64_t n, int64_t doc, const int64_t **lo,
                               const int64_t **hi, double *pairs)
{
    int64_t *x = malloc((size_t)(2 * n) * sizeof *x);
    if (!x) abort();
    *pairs = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = i / doc * doc, x[n + i] = i + 1;
        *pairs += (double)(i + 1 - x[i]);
    }
    *lo = lump_copy(l, x, n * 8);
    *hi = lump_copy(l, x + n, n * 8);
    free(x);
}

#endif
