/* gemm.cu: matrix products. A block makes a tile of c, stepping through K; every element is one
 * chain of sums over K in ascending steps, whatever the other rows and columns are and however
 * large the tile is, so that its bits depend on its own row and column alone. (A library that picks
 * another kernel for another number of rows cannot promise that: blas.h.) The old c is added to the
 * whole sum, which is then rounded once.
 *
 * Arithmetic of its limit, for a tile of t x t and a step of K:
 *   flops   2 t^2 for 4 t bytes of bf16 or fp16 that L2 gives: 64 a byte at t = 128; twice
 *           that of fp32
 *   16 bits tensor cores (8.0: 2048 flops a cycle): a warp's 64 x 32 take 128 cycles for 16 of K,
 *           in which four warps read 12 KiB of shared memory, 96 of the 128 bytes a cycle that
 *           there are. 61 KiB and 128 registers: two blocks of 8 warps to a multiprocessor
 *   fp32    multiply-adds (128 a cycle): a thread's 8 x 8 for 64 bytes of shared memory; 33 KiB,
 *           two blocks of 8 warps
 *   small   tiles of 64 where those of 128 would be fewer than multiprocessors: four times as many
 *           blocks, at half the flops a byte */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/mma.h"

struct product {
    const void *a, *b;
    int64_t lda, ldb, M, N, K;
    mat c;
    bool add;
    bool aligned; /* rows of a and b are whole packs of 16 bytes */
    bool pairs;   /* c can be written two neighbours at a time */
};

/* ---- tiles of c ------------------------------------------------------------------------------ */

#define TILES_TOGETHER 8 /* rows of tiles that blocks take before the next column of tiles */

/* Finds a block's first row and column: blocks that run together share the parts of a and b in
 * L2. */
template <int TILE>
static __device__ __forceinline__ void tile_begin(const product &p, int64_t *m0, int64_t *n0)
{
    const int64_t rows = (p.M + TILE - 1) / TILE, cols = (p.N + TILE - 1) / TILE;
    const int64_t band = blockIdx.x / (TILES_TOGETHER * cols) * TILES_TOGETHER;
    const int64_t at = blockIdx.x % (TILES_TOGETHER * cols);
    const int64_t high = rows - band < TILES_TOGETHER ? rows - band : TILES_TOGETHER;
    *m0 = (band + at % high) * TILE;
    *n0 = at / high * TILE;
}

static inline unsigned tiles_of(const product &p, int tile)
{
    const int64_t n = div_up(p.M, tile) * div_up(p.N, tile);
    assert(n < (int64_t)1 << 31);
    return (unsigned)n;
}

static inline bool wants_small(struct cuda *c, const product &p)
{
    return div_up(p.M, 128) * div_up(p.N, 128) < c->n_sm;
}

/* Writes the complete sums of N neighbours of a row, from a column that N divides. */
template <int N>
static __device__ __forceinline__ void finish(const product &p, int64_t row, int64_t col,
                                              const float (&x)[N])
{
    if (row >= p.M || col >= p.N) return;
    if (p.pairs && col + N <= p.N) {
        UNROLL
        for (int i = 0; i < N; i += 2) {
            float v[2] = {};
            if (p.add) load(p.c, row, col + i, v);
            v[0] += x[i];
            v[1] += x[i + 1];
            store(p.c, row, col + i, v);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < N; i++)
        if (col + i < p.N) set(p.c, row, col + i, p.add ? get(p.c, row, col + i) + x[i] : x[i]);
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

#define TILE_K 32
#define STAGES 3 /* stages of TILE_K in shared memory; others arrive while one is used */
#define PAD    8 /* elements after each row, so that rows lie in different banks */
#define WARP_N 32

/* A block's warps stand in two rows; each warp has WARP_N columns. */
template <int TILE> struct half_shape {
    static const int warp_m = TILE / 2, across = TILE / WARP_N, threads = 2 * across * WARP;
};

/* One operand's tile in shared memory, as it lies in global memory: rows of K, or rows of M (N). */
template <bool K_ROWS, int TILE> struct tile {
    static const int rows = K_ROWS ? TILE_K : TILE, cols = K_ROWS ? TILE : TILE_K;
    static const int ld = cols + PAD, size = rows * ld, threads = half_shape<TILE>::threads;
};

/* Loads elements [r0, r0 + rows) x [c0, c0 + cols) of g [n_rows, n_cols], 0 where there are none.
 * ALIGNED: 16 bytes at a time. */
template <class TILE, bool ALIGNED, class T>
static __device__ __forceinline__ void fetch(T *to, const T *g, int64_t ld, int64_t r0, int64_t c0,
                                             int64_t n_rows, int64_t n_cols)
{
    if (ALIGNED) {
        share_out<TILE::rows * TILE::cols / 8, TILE::threads>([&](int i) {
            const int r = i / (TILE::cols / 8), c = i % (TILE::cols / 8) * 8;
            const bool there = r0 + r < n_rows && c0 + c < n_cols;
            copy16_async(to + r * TILE::ld + c, there ? g + (r0 + r) * ld + c0 + c : g,
                         there ? 16 : 0);
        });
        return;
    }
    for (int i = threadIdx.x; i < TILE::rows * TILE::cols; i += TILE::threads) {
        const int r = i / TILE::cols, c = i % TILE::cols;
        const bool there = r0 + r < n_rows && c0 + c < n_cols;
        to[r * TILE::ld + c] = there ? g[(r0 + r) * ld + c0 + c] : T{0};
    }
}

/* Loads A's fragment of rows [m, m + 16), K [k, k + 16). */
template <bool K_ROWS, int TILE, class T>
static __device__ __forceinline__ void frag_a(uint32_t (&a)[4], const T *s, int m, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8, ld = tile<K_ROWS, TILE>::ld;
    if (K_ROWS)
        ldmatrix4<true>(a, s + (k + i / 2 * 8 + r) * ld + m + i % 2 * 8);
    else
        ldmatrix4<false>(a, s + (m + i % 2 * 8 + r) * ld + k + i / 2 * 8);
}

/* Loads B's fragments of columns [n, n + 16): two of 8. */
template <bool K_ROWS, int TILE, class T>
static __device__ __forceinline__ void frag_b(uint32_t (&b)[2][2], const T *s, int n, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8, ld = tile<K_ROWS, TILE>::ld;
    uint32_t x[4];
    if (K_ROWS)
        ldmatrix4<true>(x, s + (k + i % 2 * 8 + r) * ld + n + i / 2 * 8);
    else
        ldmatrix4<false>(x, s + (n + i / 2 * 8 + r) * ld + k + i % 2 * 8);
    b[0][0] = x[0];
    b[0][1] = x[1];
    b[1][0] = x[2];
    b[1][1] = x[3];
}

/* TRANS_A: a is stored [K, M]; TRANS_B: b is stored [N, K]. */
template <class T, bool TRANS_A, bool TRANS_B, bool ALIGNED, int TILE>
static __global__ void __launch_bounds__(half_shape<TILE>::threads, TILE > 64 ? 2 : 4)
    gemm_half(product p)
{
    typedef tile<TRANS_A, TILE> ta;
    typedef tile<!TRANS_B, TILE> tb;
    typedef half_shape<TILE> sh;
    const int FRAGS = sh::warp_m / 16;
    DYNAMIC_SHARED(shared);
    T *const as = (T *)shared, *const bs = as + STAGES * ta::size;
    const T *a = (const T *)p.a, *b = (const T *)p.b;
    int64_t m0, n0;
    tile_begin<TILE>(p, &m0, &n0);
    const int steps = (int)((p.K + TILE_K - 1) / TILE_K);
    const int warp = threadIdx.x / WARP;
    const int wm = warp / sh::across * sh::warp_m, wn = warp % sh::across * WARP_N;
    float d[FRAGS][WARP_N / 8][4] = {};
    auto start = [&](int step) {
        const int64_t k0 = (int64_t)step * TILE_K;
        T *to_a = as + step % STAGES * ta::size, *to_b = bs + step % STAGES * tb::size;
        if (step < steps) {
            if (TRANS_A)
                fetch<ta, ALIGNED>(to_a, a, p.lda, k0, m0, p.K, p.M);
            else
                fetch<ta, ALIGNED>(to_a, a, p.lda, m0, k0, p.M, p.K);
            if (TRANS_B)
                fetch<tb, ALIGNED>(to_b, b, p.ldb, n0, k0, p.N, p.K);
            else
                fetch<tb, ALIGNED>(to_b, b, p.ldb, k0, n0, p.K, p.N);
        }
        copies_commit();
    };
    for (int s = 0; s < STAGES - 1; s++) start(s);
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* this stage has arrived for all threads; the one before it is free */
        start(step + STAGES - 1);
        const T *at = as + step % STAGES * ta::size, *bt = bs + step % STAGES * tb::size;
        UNROLL
        for (int k = 0; k < TILE_K; k += 16) {
            uint32_t fa[FRAGS][4], fb[WARP_N / 16][2][2];
            UNROLL
            for (int i = 0; i < FRAGS; i++) frag_a<TRANS_A, TILE>(fa[i], at, wm + 16 * i, k);
            UNROLL
            for (int j = 0; j < WARP_N / 16; j++) frag_b<!TRANS_B, TILE>(fb[j], bt, wn + 16 * j, k);
            UNROLL
            for (int i = 0; i < FRAGS; i++) UNROLL
            for (int j = 0; j < WARP_N / 8; j++) mma<T>(d[i][j], fa[i], fb[j / 2][j % 2]);
        }
    }
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int i = 0; i < FRAGS; i++) UNROLL
    for (int j = 0; j < WARP_N / 8; j++) UNROLL
    for (int e = 0; e < 2; e++) {
        const float x[2] = {d[i][j][2 * e], d[i][j][2 * e + 1]};
        finish(p, m0 + wm + 16 * i + lane / 4 + e * 8, n0 + wn + 8 * j + lane % 4 * 2, x);
    }
}

template <class T, bool TRANS_A, bool TRANS_B, bool ALIGNED, int TILE>
static void run_half(struct cuda *c, const product &p)
{
    const int smem = 2 * STAGES * (tile<TRANS_A, TILE>::size + tile<!TRANS_B, TILE>::size);
    static_assert(smem <= SMEM_SMALL, "a block of 8.6 has room for it");
    auto product_half = gemm_half<T, TRANS_A, TRANS_B, ALIGNED, TILE>;
    SMEM_ALLOW(c, product_half, smem, 0);
    LAUNCH(c, product_half, dim3(tiles_of(p, TILE)), dim3(half_shape<TILE>::threads), (size_t)smem,
           p);
}

template <class T, bool TRANS_A, bool TRANS_B>
static void choose_half(struct cuda *c, const product &p)
{
    const bool small = wants_small(c, p);
    if (p.aligned)
        small ? run_half<T, TRANS_A, TRANS_B, true, 64>(c, p)
              : run_half<T, TRANS_A, TRANS_B, true, 128>(c, p);
    else
        small ? run_half<T, TRANS_A, TRANS_B, false, 64>(c, p)
              : run_half<T, TRANS_A, TRANS_B, false, 128>(c, p);
}

/* ---- fp32 ------------------------------------------------------------------------------------ */

#define F32_K       16
#define F32_THREADS 256 /* 16 x 16, of EACH x EACH elements: four neighbours, and four 64 further */

/* Both operands' tiles are rows of K in shared memory, however they lie in global memory. */
template <int TILE> struct f32_room {
    float a[2][F32_K][TILE + 4], b[2][F32_K][TILE + 4];
};

/* A thread's packs of 4 elements, of rows of K [k0, k0 + F32_K) x [c0, c0 + TILE), on their way
 * through registers. K_ROWS: memory has rows of K too, and packs run along the row; otherwise packs
 * run along K. */
template <bool K_ROWS, int TILE> struct f32_packs {
    static const int n = F32_K * TILE / 4 / F32_THREADS;
    float x[n][4];
    /* Computes the place of pack i again in each step: 128 registers cannot keep the places beside
     * the sums. */
    static __device__ __forceinline__ int pack(int i)
    {
        return made_again((int)threadIdx.x) + i * F32_THREADS;
    }
    static __device__ __forceinline__ int k(int i)
    {
        const int at = pack(i);
        return K_ROWS ? at / (TILE / 4) : at % (F32_K / 4) * 4;
    }
    static __device__ __forceinline__ int col(int i)
    {
        const int at = pack(i);
        return K_ROWS ? at % (TILE / 4) * 4 : at / (F32_K / 4);
    }
    /* Loads the packs from g, which is [K, n_cols], or [n_cols, K]. */
    __device__ __forceinline__ void fetch(const float *g, int64_t ld, int64_t k0, int64_t c0,
                                          int64_t K, int64_t n_cols, bool aligned)
    {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t kk = k0 + k(i), c = c0 + col(i);
            const float *from = K_ROWS ? g + kk * ld + c : g + c * ld + kk;
            UNROLL
            for (int e = 0; e < 4; e++) x[i][e] = 0;
            if (kk >= K || c >= n_cols) continue;
            if (aligned) {
                load(from, x[i]);
                continue;
            }
            UNROLL
            for (int e = 0; e < 4; e++)
                if ((K_ROWS ? c : kk) + e < (K_ROWS ? n_cols : K)) x[i][e] = from[e];
        }
    }
    __device__ __forceinline__ void put_down(float (&to)[F32_K][TILE + 4]) const
    {
        UNROLL
        for (int i = 0; i < n; i++)
            if (K_ROWS) {
                store(&to[k(i)][col(i)], x[i]);
            } else {
                UNROLL
                for (int e = 0; e < 4; e++) to[k(i) + e][col(i)] = x[i][e];
            }
    }
};

/* Computes a tile. Elements past the last of K are zeros on both sides. */
template <bool TRANS_A, bool TRANS_B, int TILE>
static __global__ void __launch_bounds__(F32_THREADS, 2) gemm_f32(product p)
{
    const int EACH = TILE / 16;
    __shared__ f32_room<TILE> room;
    const float *a = (const float *)p.a, *b = (const float *)p.b;
    int64_t m0, n0;
    tile_begin<TILE>(p, &m0, &n0);
    const int tm = threadIdx.x / 16 * 4, tn = threadIdx.x % 16 * 4;
    float d[EACH][EACH] = {};
    f32_packs<TRANS_A, TILE> pa;
    f32_packs<!TRANS_B, TILE> pb;
    pa.fetch(a, p.lda, 0, m0, p.K, p.M, p.aligned);
    pb.fetch(b, p.ldb, 0, n0, p.K, p.N, p.aligned);
    for (int64_t k0 = 0; k0 < p.K; k0 += F32_K) {
        const int stage = (int)(k0 / F32_K % 2);
        pa.put_down(room.a[stage]);
        pb.put_down(room.b[stage]);
        __syncthreads(); /* this stage is complete; all threads have read the one before it */
        pa.fetch(a, p.lda, k0 + F32_K, m0, p.K, p.M, p.aligned);
        pb.fetch(b, p.ldb, k0 + F32_K, n0, p.K, p.N, p.aligned);
        UNROLL
        for (int k = 0; k < F32_K; k++) {
            float x[EACH / 4][4], y[EACH / 4][4];
            UNROLL
            for (int i = 0; i < EACH / 4; i++) {
                load(&room.a[stage][k][tm + 64 * i], x[i]);
                load(&room.b[stage][k][tn + 64 * i], y[i]);
            }
            UNROLL
            for (int i = 0; i < EACH; i++) UNROLL
            for (int j = 0; j < EACH; j++)
                d[i][j] = fmaf(x[i / 4][i % 4], y[j / 4][j % 4], d[i][j]);
        }
    }
    UNROLL
    for (int i = 0; i < EACH; i++) UNROLL
    for (int j = 0; j < EACH; j += 4) {
        const float x[4] = {d[i][j], d[i][j + 1], d[i][j + 2], d[i][j + 3]};
        finish(p, m0 + tm + i / 4 * 64 + i % 4, n0 + tn + j / 4 * 64, x);
    }
}

template <bool TRANS_A, bool TRANS_B, int TILE>
static void run_f32(struct cuda *c, const product &p)
{
    auto product_f32 = gemm_f32<TRANS_A, TRANS_B, TILE>;
    LAUNCH(c, product_f32, dim3(tiles_of(p, TILE)), dim3(F32_THREADS), 0, p);
}

/* ---- the slot -------------------------------------------------------------------------------- */

template <bool TRANS_A, bool TRANS_B>
static void run(struct cuda *c, const product &p, const struct gemm_args *a)
{
    if (a->a.dtype != DT_F32)
        half_typed(a->a.dtype,
                   [&](auto type) { choose_half<decltype(type), TRANS_A, TRANS_B>(c, p); });
    else if (wants_small(c, p))
        run_f32<TRANS_A, TRANS_B, 64>(c, p);
    else
        run_f32<TRANS_A, TRANS_B, 128>(c, p);
}

void cuda_gemm(struct be *be, const struct gemm_args *a)
{
    shape_gemm(a);
    assert(!dtype_quant(a->b.dtype)); /* rules_weights() refuses the job */
    struct cuda *c = cuda_of(be);
    if (a->c.rows < 1 || a->c.cols < 1) return;
    const bool done = c->blas && blas_gemm(c, a);
    ++(done ? c->library.n_done : c->library.n_left);
    if (done) return;
    const int64_t size = dtype_size(a->c.dtype), pack = 16 / dtype_size(a->a.dtype);
    const product p = {a->a.data,
                       a->b.data,
                       a->a.ld,
                       a->b.ld,
                       a->c.rows,
                       a->c.cols,
                       a->trans_a ? a->a.rows : a->a.cols,
                       mat_of(a->c),
                       a->accumulate,
                       fits_packs(a->a) && fits_packs(a->b) && a->a.cols % pack == 0 &&
                           a->b.cols % pack == 0,
                       (uintptr_t)a->c.data % (uintptr_t)(2 * size) == 0 && a->c.ld % 2 == 0};
    if (a->trans_a)
        run<true, false>(c, p, a);
    else
        a->trans_b ? run<false, true>(c, p, a) : run<false, false>(c, p, a);
    const struct bias_fwd_args bias = {a->c, a->bias};
    if (a->bias.data) cuda_bias_fwd(be, &bias);
}
