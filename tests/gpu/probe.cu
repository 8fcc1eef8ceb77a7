/* probe.cu: checks each primitive of kernels/cuda/hopper.h alone, so that a wrong kernel for 9.0
 * has a cause within seconds. Operands are small integers, whose products and sums are exact: a
 * result is right only if it is equal. Each test runs in a process of its own and has ten seconds,
 * so that an illegal instruction, or a wait without an end, costs one line.
 *
 *   probe [NAME ...]    run all tests in order, or these
 *
 * The last two tests measure and never fail: the bits that sums of tensor cores lose, and the
 * cycles of their products. On the emulated device the cycles are 0. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernels/cuda/hopper.h"

enum { HEADS = 3, WRONG_SHOWN = 3, STRIP_ROW = 2 * HOPPER_STRIP, STRIP_64 = 64 * STRIP_ROW };

static struct cuda dev;
static const char *now; /* name of the test that runs in this process */
static int n_wrong;

#ifdef SEQD_EMU
enum { SECONDS = 100, TIMES = 2 };
#define LAUNCH_ONE(kernel, threads, smem, ...)                                                     \
    (need(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem)),        \
     emu_launch((const void *)(kernel), dim3(1), dim3(threads), smem, kernel, __VA_ARGS__),        \
     need(cudaGetLastError()))
#define CLOCK() 0LL
#else
enum { SECONDS = 10, TIMES = 512 };
#define LAUNCH_ONE(kernel, threads, smem, ...)                                                     \
    (need(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem)),        \
     kernel<<<1, threads, smem>>>(__VA_ARGS__), need(cudaGetLastError()),                          \
     need(cudaDeviceSynchronize()))
#define CLOCK() clock64()
#endif

/* ---- the host's part ------------------------------------------------------------------------- */

/* Ends the test's process if a call of CUDA failed. */
static void need(cudaError_t rc)
{
    if (rc == cudaSuccess) return;
    printf("  %s: %s\n", now, cudaGetErrorString(rc));
    fflush(stdout);
    _exit(1);
}

static void copy(void *to, const void *from, size_t size)
{
    need(cudaMemcpyAsync(to, (void *)from, size, cudaMemcpyDefault, NULL));
#ifndef SEQD_EMU
    need(cudaDeviceSynchronize());
#endif
}

/* Returns n elements of the device's memory with the values of `from`. The process's end frees
 * them. */
template <class T> static T *on_device(const T *from, size_t n)
{
    void *p = NULL;
    need(cudaMalloc(&p, n * sizeof(T)));
    copy(p, from, n * sizeof(T));
    return (T *)p;
}

static void want(int i, int j, float got, float expected)
{
    if (got == expected || n_wrong++ >= WRONG_SHOWN) return;
    printf("  %s: [%d][%d] is %g, want %g\n", now, i, j, (double)got, (double)expected);
}

static float float_of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Returns an integer from -3 to 3, which bf16 holds exactly. */
static bf16 small_integer(uint32_t i)
{
    const float f = (float)((int)(((i * 2654435761u ^ 0x9e3779b9u) >> 13) % 7) - 3);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return {(uint16_t)(bits >> 16)};
}

/* Rows of `heads` heads of D columns, on the host and on the device. */
struct matrix {
    int rows, heads, D;
    bf16 *host;
    struct tensor t;
};

static matrix matrix_new(int rows, int heads, int D, uint32_t seed)
{
    const int n = rows * heads * D;
    matrix m = {rows, heads, D, (bf16 *)malloc((size_t)n * sizeof(bf16)), {}};
    for (int i = 0; i < n; i++) m.host[i] = small_integer((uint32_t)i + seed);
    m.t = tensor_of(DT_BF16, on_device(m.host, (size_t)n), rows, heads * D, heads * D);
    return m;
}

/* Returns an element, or 0 outside of the matrix, where copies write zeros. */
static float value(const matrix &m, int row, int head, int col)
{
    if (row >= m.rows || col >= m.D) return 0;
    return float_of_bits((uint32_t)m.host[(row * m.heads + head) * m.D + col].bits << 16);
}

static hopper_map map_of(const matrix &m, int n_rows)
{
    const hopper_map map = hopper_map_of(&dev, m.t, m.heads, m.D, n_rows);
    if (!dev.failed.code) return map;
    printf("  %s: %s\n", now, dev.failed.text);
    fflush(stdout);
    _exit(1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static __device__ void barrier_new(hopper_barrier *b)
{
    if (threadIdx.x == 0) {
        barrier_init(b, 1);
        barriers_made();
    }
    __syncthreads();
}

/* Copies a strip of n rows of head 1, and writes its words as they lie in shared memory. */
static __global__ void copy_kernel(const __grid_constant__ hopper_map map, int row, int n,
                                   uint32_t *out)
{
    DYNAMIC_SHARED(shared);
    char *const strip = hopper_align(shared);
    hopper_barrier *const there = (hopper_barrier *)(strip + n * STRIP_ROW);
    barrier_new(there);
    if (threadIdx.x == 0) {
        barrier_expect(there, n * STRIP_ROW);
        strip_copy(strip, &map, 0, 1, row, there);
    }
    barrier_wait(there, 0);
    for (int i = threadIdx.x; i < n * STRIP_ROW / 4; i += blockDim.x)
        out[i] = ((uint32_t *)strip)[i];
}

static void copies(int rows, int D, int row, int n)
{
    const matrix m = matrix_new(rows, HEADS, D, 11);
    const size_t words = (size_t)n * STRIP_ROW / 4;
    uint32_t *host = (uint32_t *)calloc(words, 4), *out = on_device(host, words);
    const hopper_map map = map_of(m, n);
    LAUNCH_ONE(copy_kernel, 64, n * STRIP_ROW + 2048, map, row, n, out);
    copy(host, out, words * 4);
    for (int r = 0; r < n; r++)
        for (int c = 0; c < HOPPER_STRIP; c++) {
            const int at = r * HOPPER_STRIP + ((c / 8) ^ (r % 8)) * 8 + c % 8;
            want(r, c, float_of_bits((uint32_t)((uint16_t *)host)[at] << 16),
                 value(m, row + r, 1, c));
        }
}

template <int ROWS, int D, int ROW, int N> static void test_copy(void)
{
    copies(ROWS, D, ROW, N);
}

/* ---- a product of a group -------------------------------------------------------------------- */

/* Ways by which B comes to shared memory after its copy. */
enum by { BY_COPY, BY_WORDS, BY_MATRICES };

/* Writes each word again by the threads. */
static __device__ void write_words(bf16 *b, int n)
{
    uint32_t *const x = (uint32_t *)b;
    for (int i = threadIdx.x; i < n; i += HOPPER_GROUP) {
        const uint32_t word = x[i];
        shared_put(hopper_at(x + i), word);
        if (i / HOPPER_GROUP % 32 == 31) shared_made();
    }
    shared_made();
    __syncthreads();
}

/* Writes the 8 x 8 matrices again, four at a time, as ldmatrix reads them. */
static __device__ void write_matrices(bf16 *b, int rows, int cols)
{
    const int lane = threadIdx.x % WARP;
    for (int r = threadIdx.x / WARP * 8; r < rows; r += 32)
        for (int half = 0; half < cols / 32; half++) {
            bf16 *const strip = b + half / 2 * rows * HOPPER_STRIP;
            const int piece = (4 * (half % 2) + lane / 8) ^ (lane % 8);
            bf16 *const at = strip + (r + lane % 8) * HOPPER_STRIP + piece * 8;
            uint32_t x[4];
            ldmatrix4<false>(x, at);
            __syncwarp();
            shared_put4(hopper_at(at), x);
            shared_made();
        }
    __syncthreads();
}

/* Reads this warp's rows of A [64, 16 STEPS] into registers. */
template <int STEPS> static __device__ void rows_read(uint32_t (&x)[STEPS][4], const bf16 *a)
{
    const int lane = threadIdx.x % WARP, r = threadIdx.x / WARP * 16 + lane % 16;
    UNROLL
    for (int k = 0; k < STEPS; k++) {
        const int c = 2 * k + lane / 16;
        ldmatrix4<false>(x[k],
                         a + c / 8 * 64 * HOPPER_STRIP + r * HOPPER_STRIP + (c % 8 ^ r % 8) * 8);
    }
}

/* Computes D [64, N] = A [64, K] B. B is [N, K], or [K, N] if it is TURNED. IN_REGISTERS: A is. */
template <int N, bool TURNED, int K, bool IN_REGISTERS>
static __global__ void __launch_bounds__(HOPPER_GROUP, 1)
    product_kernel(const __grid_constant__ hopper_map map_a,
                   const __grid_constant__ hopper_map map_b, int by, float *out)
{
    DYNAMIC_SHARED(shared);
    bf16 *const a = (bf16 *)hopper_align(shared), *const b = a + 64 * 128;
    hopper_barrier *const there = (hopper_barrier *)(b + 128 * 128);
    const int b_rows = TURNED ? K : N, b_cols = TURNED ? N : K;
    barrier_new(there);
    if (threadIdx.x == 0) {
        barrier_expect(there, (64 * K + N * K) * 2);
        tile_copy<K / HOPPER_STRIP>(a, &map_a, 64, 0, 0, there);
        tile_copy<(TURNED ? N : K) / HOPPER_STRIP>(b, &map_b, b_rows, 0, 0, there);
    }
    barrier_wait(there, 0);
    if (by == BY_WORDS) write_words(b, b_rows * b_cols / 2);
    if (by == BY_MATRICES) write_matrices(b, b_rows, b_cols);
    float d[N / 8][4];
    uint32_t rows[K / 16][4];
    for (int n = 0; n < N / 8; n++)
        for (int e = 0; e < 4; e++) d[n][e] = 12345; /* the first product does not add to it */
    rows_read(rows, a);
    products_begin();
    UNROLL
    for (int k = 0; k < K / 16; k++) {
        const uint32_t at = TURNED ? matrix_k_transposed(hopper_at(b), k)
                                   : matrix_k(hopper_at(b), k, b_rows);
        if (IN_REGISTERS)
            product<TURNED>(d, rows[k], matrix_at(at, b_rows), k > 0);
        else
            product<TURNED>(d, matrix_at(matrix_k(hopper_at(a), k, 64), 64), matrix_at(at, b_rows),
                            k > 0);
    }
    products_commit();
    products_wait<0>();
    registers_pin(d);
    rows_put(d, out, N, rows_mine(), 64, N);
}

template <int N, bool TURNED, int K, bool IN_REGISTERS> static void products(enum by by)
{
    const matrix a = matrix_new(64, 1, K, 1);
    const matrix b = TURNED ? matrix_new(K, 1, N, 2) : matrix_new(N, 1, K, 2);
    float *host = (float *)calloc(64 * N, 4), *out = on_device(host, 64 * N);
    const hopper_map map_a = map_of(a, 64), map_b = map_of(b, b.rows);
    const auto kernel = product_kernel<N, TURNED, K, IN_REGISTERS>;
    LAUNCH_ONE(kernel, HOPPER_GROUP, (64 * 128 + 128 * 128) * 2 + 2048, map_a, map_b, (int)by, out);
    copy(host, out, 64 * N * 4);
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += value(a, i, 0, k) * (TURNED ? value(b, k, 0, j) : value(b, j, 0, k));
            want(i, j, host[i * N + j], sum);
        }
}

/* ---- a ring ---------------------------------------------------------------------------------- */

enum { RING_TILES = 17, RING_GROUPS = 2, RING_THREADS = 3 * HOPPER_GROUP, TURNS = 64 };

struct ring_room {
    bf16 a[RING_GROUPS][64 * 64], tile[3][64 * 64];
    hopper_barrier own;
    hopper_ring<3> ring;
    int turn[TURNS], n_turns;
};

/* The thread that copies. */
static __device__ void ring_fill(ring_room *r, const hopper_map *map_a, const hopper_map *map_b)
{
    barrier_expect(&r->own, RING_GROUPS * STRIP_64);
    for (int g = 0; g < RING_GROUPS; g++) strip_copy(r->a[g], map_a, 0, 0, 64 * g, &r->own);
    for (int i = 0; i < RING_TILES; i++) {
        ring_wait_free(&r->ring, i);
        barrier_expect(&r->ring.there[i % 3], STRIP_64);
        strip_copy(r->tile[i % 3], map_b, 0, 0, 64 * i, &r->ring.there[i % 3]);
    }
}

/* A group that multiplies each tile, in turns with the other group. */
static __device__ void ring_multiply(ring_room *r, int group, float *out)
{
    float d[8][4] = {};
    barrier_wait(&r->own, 0);
    if (group == 1) named_arrive(1, RING_GROUPS * HOPPER_GROUP);
    for (int i = 0; i < RING_TILES; i++) {
        ring_wait(&r->ring, i);
        named_barrier_sync(1 + group, RING_GROUPS * HOPPER_GROUP);
        if (threadIdx.x % HOPPER_GROUP == 0 && r->n_turns < TURNS) r->turn[r->n_turns++] = group;
        products_begin();
        UNROLL
        for (int k = 0; k < 4; k++)
            product<false>(d, matrix_at(matrix_k(hopper_at(r->a[group]), k, 64), 64),
                           matrix_at(matrix_k(hopper_at(r->tile[i % 3]), k, 64), 64), true);
        products_commit();
        const bool last = group == 1 && i == RING_TILES - 1;
        if (!last) named_arrive(1 + (group + 1) % 2, RING_GROUPS * HOPPER_GROUP);
        products_wait<0>();
        registers_pin(d);
        ring_let_go(&r->ring, i);
    }
    rows_put(d, out + group * 64 * 64, 64, rows_mine(), 64, 64);
}

/* One warp copies tiles. Two groups multiply them, with registers that the third group gives. */
static __global__ void __launch_bounds__(RING_THREADS, 1)
    ring_kernel(const __grid_constant__ hopper_map map_a, const __grid_constant__ hopper_map map_b,
                float *out, int *turn)
{
    DYNAMIC_SHARED(shared);
    ring_room *const r = (ring_room *)hopper_align(shared);
    const int group = threadIdx.x / HOPPER_GROUP;
    if (threadIdx.x == 0) {
        barrier_init(&r->own, 1);
        ring_make(&r->ring, 1, RING_GROUPS * HOPPER_GROUP / WARP);
        r->n_turns = 0;
        barriers_made();
    }
    __syncthreads();
    if (group == RING_GROUPS) {
        registers_give<24>();
        if (threadIdx.x % HOPPER_GROUP == 0) ring_fill(r, &map_a, &map_b);
        return;
    }
    registers_take<240>();
    ring_multiply(r, group, out);
    named_barrier_sync(5, RING_GROUPS * HOPPER_GROUP);
    if (threadIdx.x < TURNS)
        turn[threadIdx.x] = (int)threadIdx.x < r->n_turns ? r->turn[threadIdx.x] : -1;
}

static void test_ring(void)
{
    const matrix a = matrix_new(RING_GROUPS * 64, 1, 64, 3);
    const matrix b = matrix_new(64 * RING_TILES, 1, 64, 4);
    float *host = (float *)calloc((size_t)a.rows * 64, 4), *out = on_device(host, a.rows * 64);
    int turn[TURNS] = {}, *turns = on_device(turn, TURNS);
    const hopper_map map_a = map_of(a, 64), map_b = map_of(b, 64);
    LAUNCH_ONE(ring_kernel, RING_THREADS, (int)sizeof(ring_room) + 1024, map_a, map_b, out, turns);
    copy(host, out, (size_t)a.rows * 64 * 4);
    copy(turn, turns, sizeof turn);
    for (int i = 0; i < a.rows; i++)
        for (int j = 0; j < 64; j++) {
            float sum = 0;
            for (int row = j; row < b.rows; row += 64)
                for (int k = 0; k < 64; k++) sum += value(a, i, 0, k) * value(b, row, 0, k);
            want(i, j, host[i * 64 + j], sum);
        }
    for (int i = 0; i < 2 * RING_TILES; i++) want(i, 0, (float)turn[i], (float)(i % 2));
}

/* ---- bits that sums lose --------------------------------------------------------------------- */

/* Writes c + first + 15 times 2^-e, as wgmma and as mma.sync add it. Row 0 of a tile is not
 * swizzled. */
static __global__ void __launch_bounds__(HOPPER_GROUP, 1)
    cut_kernel(float c, float first, int e, float *out)
{
    DYNAMIC_SHARED(shared);
    bf16 *const a = (bf16 *)hopper_align(shared), *const b = a + 64 * HOPPER_STRIP;
    const float least = exp2f((float)-e);
    for (int i = threadIdx.x; i < STRIP_64 * 2 / 4; i += HOPPER_GROUP) {
        shared_put(hopper_at((uint32_t *)a + i), 0);
        if (i / HOPPER_GROUP % 16 == 15) shared_made();
    }
    shared_made();
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int k = 0; k < 8; k++) {
            shared_put(hopper_at((uint32_t *)a + k), pack_bf16(k ? least : first, least));
            shared_put(hopper_at((uint32_t *)b + k), pack_bf16(1, 1));
        }
        shared_made();
    }
    __syncthreads();
    float d[8][4], m[4] = {c, c, c, c};
    for (int n = 0; n < 8; n++)
        for (int x = 0; x < 4; x++) d[n][x] = c;
    products_begin();
    product<false>(d, matrix_at(hopper_at(a), 64), matrix_at(hopper_at(b), 64), true);
    products_commit();
    products_wait<0>();
    registers_pin(d);
    uint32_t row[4] = {0, 0, 0, 0}, col[2] = {0, 0};
    if (threadIdx.x % WARP / 4 == 0) {
        row[0] = pack_bf16(threadIdx.x % 4 ? least : first, least);
        row[2] = pack_bf16(least, least);
        col[0] = col[1] = pack_bf16(1, 1);
    }
    mma<bf16>(m, row, col);
    if (threadIdx.x == 0) out[0] = d[0][0], out[1] = m[0];
}

static void test_cut(void)
{
    float host[2] = {0, 0}, *out = on_device(host, 2);
    for (int in_c = 0; in_c < 2; in_c++)
        for (int e = 21; e <= 28; e++) {
            const float c = in_c ? 1.0f : 0.0f, first = in_c ? 0.0f : 1.0f;
            LAUNCH_ONE(cut_kernel, HOPPER_GROUP, STRIP_64 * 2 + 2048, c, first, e, out);
            copy(host, out, sizeof host);
            printf("  %s 1 and 15 of 2^-%d, above 1 in units of 2^-23: wgmma %.3f, mma.sync %.3f, "
                   "exact %.3f\n",
                   in_c ? "accumulator" : "product", e, ((double)host[0] - 1) * 8388608,
                   ((double)host[1] - 1) * 8388608, 15 * exp2(23 - e));
        }
}

/* ---- cycles ---------------------------------------------------------------------------------- */

enum unit { SHARED_128, SHARED_64, REGISTERS_128, REGISTERS_64, EXP2 };

static __device__ __forceinline__ float exp2_unit(float x)
{
#ifdef SEQD_EMU
    return exp2f(x);
#else
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Measures the cycles of `times` rounds. In a round, each of two groups computes four products, or
 * each thread eight exponentials. The tiles are of ones. */
template <enum unit UNIT>
static __global__ void __launch_bounds__(2 * HOPPER_GROUP, 1)
    cycles_kernel(int times, long long *out, float *sink)
{
    DYNAMIC_SHARED(shared);
    bf16 *const tile = (bf16 *)hopper_align(shared);
    for (int i = threadIdx.x; i < 4 * STRIP_64 / 2; i += blockDim.x) tile[i] = {0x3f80};
    shared_made();
    __syncthreads();
    float wide[16][4] = {}, narrow[8][4] = {}, y[8];
    uint32_t rows[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
    const uint32_t a = hopper_at(tile) + threadIdx.x / HOPPER_GROUP * STRIP_64;
    const uint32_t b = hopper_at(tile) + 2 * STRIP_64;
    for (int i = 0; i < 8; i++) y[i] = (float)threadIdx.x * 1e-3f + (float)i;
    const long long begin = CLOCK();
    for (int i = 0; i < times; i++) {
        if (UNIT == EXP2) {
            UNROLL
            for (int k = 0; k < 8; k++) y[k] = exp2_unit(y[k]);
            continue;
        }
        products_begin();
        UNROLL
        for (int k = 0; k < 4; k++) {
            const uint64_t at = matrix_at(matrix_k(a, k, 64), 64);
            if (UNIT == SHARED_128) product<false>(wide, at, matrix_at(b + 32 * k, 128), true);
            if (UNIT == SHARED_64) product<false>(narrow, at, matrix_at(b + 32 * k, 64), true);
            if (UNIT == REGISTERS_128)
                product<true>(wide, rows, matrix_at(matrix_k_transposed(b, k), 64), true);
            if (UNIT == REGISTERS_64)
                product<true>(narrow, rows, matrix_at(matrix_k_transposed(b, k), 64), true);
        }
        products_commit();
        products_wait<0>();
    }
    registers_pin(wide);
    registers_pin(narrow);
    const long long end = CLOCK();
    if (threadIdx.x == 0) *out = end - begin;
    float sum = 0; /* so that no value is left out */
    for (int i = 0; i < 8; i++) sum += y[i] + wide[i][0] + narrow[i][1];
    if (sum == 42) *sink = sum;
}

template <enum unit UNIT> static void cycles(const char *what, int limit)
{
    long long host = 0, *out = on_device(&host, 1);
    float zero = 0, *sink = on_device(&zero, 1);
    const auto kernel = cycles_kernel<UNIT>;
    for (int run = 0; run < 2; run++) /* the second run has the code in its cache */
        LAUNCH_ONE(kernel, 2 * HOPPER_GROUP, 4 * STRIP_64 + 2048, TIMES, out, sink);
    copy(&host, out, sizeof host);
    printf("  %s: %.1f cycles, at least %d\n", what, (double)host / TIMES / (UNIT == EXP2 ? 8 : 4),
           limit);
}

static void test_cycles(void)
{
    cycles<SHARED_128>("m64n128k16 of two groups, both operands in shared memory", 128);
    cycles<SHARED_64>("m64n64k16 of two groups, both operands in shared memory", 64);
    cycles<REGISTERS_128>("m64n128k16 of two groups, A in registers", 128);
    cycles<REGISTERS_64>("m64n64k16 of two groups, A in registers", 64);
    cycles<EXP2>("exponentials of 256 threads", 16);
}

/* ---- all of them ----------------------------------------------------------------------------- */

template <int N, bool TURNED, int K, bool IN_REGISTERS, enum by BY> static void test_product(void)
{
    products<N, TURNED, K, IN_REGISTERS>(BY);
}

static const struct test {
    const char *name;
    void (*run)(void);
} tests[] = {
    {"copy", test_copy<200, 64, 5, 64>},
    {"copy_128_rows", test_copy<200, 64, 5, 128>},
    {"copy_past_end", test_copy<70, 64, 40, 64>},
    {"copy_narrow", test_copy<70, 40, 0, 64>}, /* the strip is wider than the head */
    {"shared_n64", test_product<64, false, 64, false, BY_COPY>},
    {"shared_n64_two_strips", test_product<64, false, 128, false, BY_COPY>},
    {"shared_n128_two_strips", test_product<128, false, 128, false, BY_COPY>},
    {"shared_turned_n64", test_product<64, true, 64, false, BY_COPY>},
    {"shared_turned_n128", test_product<128, true, 64, false, BY_COPY>},
    {"registers_n64", test_product<64, false, 128, true, BY_COPY>},
    {"registers_turned_n64", test_product<64, true, 64, true, BY_COPY>},
    {"registers_turned_n128", test_product<128, true, 128, true, BY_COPY>},
    {"written_by_words", test_product<64, false, 64, false, BY_WORDS>},
    {"written_by_matrices", test_product<64, true, 64, false, BY_MATRICES>},
    {"ring", test_ring},
    {"cut", test_cut},
    {"cycles", test_cycles},
};
enum { N_TESTS = sizeof tests / sizeof *tests };

/* Runs a test in this process, which ends. */
static void run_here(const struct test *t)
{
    struct err e = {};
    now = t->name;
    alarm(SECONDS);
    if (hopper_open(&dev, "sm90", &e)) {
        printf("  %s: %s\n", now, e.text);
        n_wrong++;
    } else {
        t->run();
    }
    fflush(stdout);
    _exit(n_wrong != 0);
}

/* Runs a test in a process of its own, and returns whether it passed. */
static bool passes(const struct test *t)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) run_here(t);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        printf("FAIL %s: it does not start\n", t->name);
    else if (!status)
        printf("ok   %s\n", t->name);
    else if (WIFEXITED(status))
        printf("FAIL %s: wrong, see probe.log\n", t->name);
    else
        printf("FAIL %s: %s\n", t->name,
               WTERMSIG(status) == SIGALRM ? "no end" : strsignal(WTERMSIG(status)));
    return pid > 0 && !status;
}

static const struct test *named(const char *name)
{
    for (int i = 0; i < N_TESTS; i++)
        if (!strcmp(tests[i].name, name)) return &tests[i];
    return NULL;
}

int main(int argc, char **argv)
{
    const int n = argc > 1 ? argc - 1 : N_TESTS;
    int n_passed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++)
        if (!named(argv[i])) {
            fprintf(stderr, "probe: no test is named \"%s\"\n", argv[i]);
            return 2;
        }
    for (int i = 0; i < n; i++) n_passed += passes(argc > 1 ? named(argv[i + 1]) : &tests[i]);
    printf("%d passed, %d failed\n", n_passed, n - n_passed);
    return n_passed != n;
}
