/* gemm.h: parts of matrix products that the kernels for numbers (gemm.cu) and for weights in
 * blocks (quant.cu) share: tiles of c, their operands in shared memory, and the multiply-adds of a
 * step. */
#ifndef SEQD_CUDA_GEMM_H
#define SEQD_CUDA_GEMM_H

#include "kernels/cuda/mma.h"

struct product {
    const void *a, *b;
    int64_t lda, ldb, M, N, K;
    mat c;
    bool add;
    bool aligned; /* rows of a, and of b unless it is in blocks, are whole packs of 16 bytes */
    bool pairs;   /* two neighbouring elements of c can be written together */
};

static inline product product_of(const struct gemm_args *a)
{
    const int64_t size = dtype_size(a->c.dtype), pack = 16 / dtype_size(a->a.dtype);
    return {a->a.data,
            a->b.data,
            a->a.ld,
            a->b.ld,
            a->c.rows,
            a->c.cols,
            a->trans_a ? a->a.rows : a->a.cols,
            mat_of(a->c),
            a->accumulate,
            fits_packs(a->a) && a->a.cols % pack == 0 &&
                (dtype_quant(a->b.dtype) || (fits_packs(a->b) && a->b.cols % pack == 0)),
            (uintptr_t)a->c.data % (uintptr_t)(2 * size) == 0 && a->c.ld % 2 == 0};
}

/* ---- tiles of c ------------------------------------------------------------------------------ */

#define TILES_TOGETHER 8 /* rows of tiles that blocks compute before the next column of tiles */

/* Finds a block's first row and column. Blocks that run together share parts of a and b in L2. */
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

/* Writes the complete sums of N neighbours of a row. Their first column must be a multiple of
 * N. */
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
/* number of steps of TILE_K in shared memory; two of them arrive while a third is used */
#define STAGES 3
#define PAD    8 /* unused elements after each row, which put rows into different banks */
#define WARP_N 32

/* The warps of a block are in two rows, and each warp has WARP_N columns. */
template <int TILE> struct half_shape {
    static const int warp_m = TILE / 2, across = TILE / WARP_N, threads = 2 * across * WARP;
};

/* The tile of one operand in shared memory, in the same order as in global memory. With K_ROWS,
 * each row is a row of K. Otherwise each row is a row of M (for a) or of N (for b). */
template <bool K_ROWS, int TILE> struct tile {
    static const int rows = K_ROWS ? TILE_K : TILE, cols = K_ROWS ? TILE : TILE_K;
    static const int ld = cols + PAD, size = rows * ld, threads = half_shape<TILE>::threads;
};

/* Loads rows [r0, r0 + rows) and columns [c0, c0 + cols) of g [n_rows, n_cols]. Elements that do
 * not exist are read as 0. If ALIGNED is set, 16 bytes are loaded at a time. */
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

/* Loads two of B's fragments, of 8 columns each: columns [n, n + 16). */
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

/* Adds the products of a step of TILE_K to the warp's sums d. d holds the tile's rows from wm on
 * and its columns from wn on. */
template <bool A_K_ROWS, bool B_K_ROWS, int TILE, class T, int FRAGS>
static __device__ __forceinline__ void half_step(float (&d)[FRAGS][WARP_N / 8][4], const T *at,
                                                 const T *bt, int wm, int wn)
{
    UNROLL
    for (int k = 0; k < TILE_K; k += 16) {
        uint32_t fa[FRAGS][4], fb[WARP_N / 16][2][2];
        UNROLL
        for (int i = 0; i < FRAGS; i++) frag_a<A_K_ROWS, TILE>(fa[i], at, wm + 16 * i, k);
        UNROLL
        for (int j = 0; j < WARP_N / 16; j++) frag_b<B_K_ROWS, TILE>(fb[j], bt, wn + 16 * j, k);
        UNROLL
        for (int i = 0; i < FRAGS; i++) UNROLL
        for (int j = 0; j < WARP_N / 8; j++) mma<T>(d[i][j], fa[i], fb[j / 2][j % 2]);
    }
}

/* Writes the warp's sums to c, from row m and column n on. */
template <int FRAGS>
static __device__ __forceinline__ void
half_finish(const product &p, const float (&d)[FRAGS][WARP_N / 8][4], int64_t m, int64_t n)
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int i = 0; i < FRAGS; i++) UNROLL
    for (int j = 0; j < WARP_N / 8; j++) UNROLL
    for (int e = 0; e < 2; e++) {
        const float x[2] = {d[i][j][2 * e], d[i][j][2 * e + 1]};
        finish(p, m + 16 * i + lane / 4 + e * 8, n + 8 * j + lane % 4 * 2, x);
    }
}

/* ---- fp32 ------------------------------------------------------------------------------------ */

#define F32_K 16
/* 16 x 16 threads; a thread has EACH x EACH elements, in fours that are 64 rows or columns
 * apart */
#define F32_THREADS 256

/* In shared memory, the tiles of both operands are rows of K, whatever their order in global
 * memory is. */
template <int TILE> struct f32_room {
    float a[2][F32_K][TILE + 4], b[2][F32_K][TILE + 4];
};

/* A thread's packs of 4 elements of [k0, k0 + F32_K) x [c0, c0 + TILE), while they are in
 * registers. With K_ROWS, global memory has rows of K too, and a pack is a part of a row of K.
 * Otherwise a pack has four neighbours along K. */
template <bool K_ROWS, int TILE> struct f32_packs {
    static const int n = F32_K * TILE / 4 / F32_THREADS;
    float x[n][4];
    /* Computes the place of pack i again in each step, because 128 registers are too few for the
     * sums and the places. */
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
    /* Loads the packs from g, which is [K, n_cols] or [n_cols, K]. */
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

/* Adds the products of a step of F32_K to the thread's sums d. d holds the tile's rows from tm on
 * and its columns from tn on. */
template <int TILE, int EACH>
static __device__ __forceinline__ void f32_step(float (&d)[EACH][EACH],
                                                const float (&a)[F32_K][TILE + 4],
                                                const float (&b)[F32_K][TILE + 4], int tm, int tn)
{
    UNROLL
    for (int k = 0; k < F32_K; k++) {
        float x[EACH / 4][4], y[EACH / 4][4];
        UNROLL
        for (int i = 0; i < EACH / 4; i++) {
            load(&a[k][tm + 64 * i], x[i]);
            load(&b[k][tn + 64 * i], y[i]);
        }
        UNROLL
        for (int i = 0; i < EACH; i++) UNROLL
        for (int j = 0; j < EACH; j++) d[i][j] = fmaf(x[i / 4][i % 4], y[j / 4][j % 4], d[i][j]);
    }
}

/* Writes the thread's sums to c, from row m and column n on. */
template <int EACH>
static __device__ __forceinline__ void f32_finish(const product &p, const float (&d)[EACH][EACH],
                                                  int64_t m, int64_t n)
{
    UNROLL
    for (int i = 0; i < EACH; i++) UNROLL
    for (int j = 0; j < EACH; j += 4) {
        const float x[4] = {d[i][j], d[i][j + 1], d[i][j + 2], d[i][j + 3]};
        finish(p, m + i / 4 * 64 + i % 4, n + j / 4 * 64, x);
    }
}

#endif
