/* gemm.cu: matrix products. A block makes a tile of c, stepping through K; every element is one
 * chain of sums over K in ascending steps, whatever the other rows and columns are, so that its bits
 * depend on its own row and column alone. (A library that picks another kernel for another number of
 * rows cannot promise that.) What c held is added to the whole sum, then rounded once.
 *
 *   bf16  tensor cores, 128 x 128 tiles, three stages of 32 of K in shared memory on their way
 *   fp32  64 x 64 tiles, true fp32 products */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/mma.h"

/* ---- bf16 ------------------------------------------------------------------------------------- */

#define TILE    128 /* rows and columns of c */
#define TILE_K  32
#define STAGES  3
#define PAD     8   /* elements behind each row, so that rows lie in different banks */
#define THREADS 256 /* 2 x 4 warps of 64 x 32 */
#define WARP_M  64
#define WARP_N  32

/* One operand's tile in shared memory, as it lies in global memory: rows of K, or rows of M (N). */
template <bool K_ROWS> struct tile {
    static const int rows = K_ROWS ? TILE_K : TILE, cols = K_ROWS ? TILE : TILE_K;
    static const int ld = cols + PAD, size = rows * ld;
};

/* Elements [r0, r0 + rows) x [c0, c0 + cols) of g [n_rows, n_cols], 0 where there are none. ALIGNED:
 * 16 bytes at a time. */
template <bool K_ROWS, bool ALIGNED>
static __device__ __forceinline__ void fetch(bf16 *to, const bf16 *g, int64_t ld, int64_t r0,
                                             int64_t c0, int64_t n_rows, int64_t n_cols)
{
    typedef tile<K_ROWS> t;
    if (ALIGNED) {
        UNROLL
        for (int i = threadIdx.x; i < t::rows * t::cols / 8; i += THREADS) {
            const int r = i / (t::cols / 8), c = i % (t::cols / 8) * 8;
            const bool there = r0 + r < n_rows && c0 + c < n_cols;
            copy16_async(to + r * t::ld + c, there ? g + (r0 + r) * ld + c0 + c : g,
                         there ? 16 : 0);
        }
        return;
    }
    for (int i = threadIdx.x; i < t::rows * t::cols; i += THREADS) {
        const int r = i / t::cols, c = i % t::cols;
        const bool there = r0 + r < n_rows && c0 + c < n_cols;
        to[r * t::ld + c] = there ? g[(r0 + r) * ld + c0 + c] : bf16{0};
    }
}

/* A's fragment of rows [m, m + 16), K [k, k + 16). */
template <bool K_ROWS>
static __device__ __forceinline__ void frag_a(uint32_t (&a)[4], const bf16 *s, int m, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8;
    if (K_ROWS)
        ldmatrix4<true>(a, s + (k + i / 2 * 8 + r) * tile<true>::ld + m + i % 2 * 8);
    else
        ldmatrix4<false>(a, s + (m + i % 2 * 8 + r) * tile<false>::ld + k + i / 2 * 8);
}

/* B's of columns [n, n + 16): two of 8. */
template <bool K_ROWS>
static __device__ __forceinline__ void frag_b(uint32_t (&b)[2][2], const bf16 *s, int n, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8;
    uint32_t x[4];
    if (K_ROWS)
        ldmatrix4<true>(x, s + (k + i % 2 * 8 + r) * tile<true>::ld + n + i / 2 * 8);
    else
        ldmatrix4<false>(x, s + (n + i / 2 * 8 + r) * tile<false>::ld + k + i % 2 * 8);
    b[0][0] = x[0];
    b[0][1] = x[1];
    b[1][0] = x[2];
    b[1][1] = x[3];
}

struct product {
    const void *a, *b;
    int64_t lda, ldb, M, N, K;
    mat c;
    bool add;
};

/* One element, when its sum is whole. */
static __device__ __forceinline__ void finish(const product &p, int64_t row, int64_t col, float x)
{
    if (row >= p.M || col >= p.N) return;
    set(p.c, row, col, p.add ? get(p.c, row, col) + x : x);
}

/* TRANS_A: a is stored [K, M]; TRANS_B: b is stored [N, K]. */
template <bool TRANS_A, bool TRANS_B, bool ALIGNED>
static __global__ void __launch_bounds__(THREADS, 2) gemm_bf16(product p)
{
    typedef tile<TRANS_A> ta;
    typedef tile<!TRANS_B> tb;
    DYNAMIC_SHARED(shared);
    bf16 *const as = (bf16 *)shared, *const bs = as + STAGES * ta::size;
    const bf16 *a = (const bf16 *)p.a, *b = (const bf16 *)p.b;
    const int64_t m0 = (int64_t)blockIdx.y * TILE, n0 = (int64_t)blockIdx.x * TILE;
    const int steps = (int)((p.K + TILE_K - 1) / TILE_K);
    const int warp = threadIdx.x / WARP, wm = warp / 4 * WARP_M, wn = warp % 4 * WARP_N;
    float d[WARP_M / 16][WARP_N / 8][4] = {};
    auto start = [&](int step) {
        const int64_t k0 = (int64_t)step * TILE_K;
        bf16 *to_a = as + step % STAGES * ta::size, *to_b = bs + step % STAGES * tb::size;
        if (step < steps) {
            if (TRANS_A)
                fetch<true, ALIGNED>(to_a, a, p.lda, k0, m0, p.K, p.M);
            else
                fetch<false, ALIGNED>(to_a, a, p.lda, m0, k0, p.M, p.K);
            if (TRANS_B)
                fetch<false, ALIGNED>(to_b, b, p.ldb, n0, k0, p.N, p.K);
            else
                fetch<true, ALIGNED>(to_b, b, p.ldb, k0, n0, p.K, p.N);
        }
        copies_commit();
    };
    for (int s = 0; s < STAGES - 1; s++) start(s);
    for (int step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); /* this stage is there for all, and the one before it is free */
        start(step + STAGES - 1);
        const bf16 *at = as + step % STAGES * ta::size, *bt = bs + step % STAGES * tb::size;
        UNROLL
        for (int k = 0; k < TILE_K; k += 16) {
            uint32_t fa[WARP_M / 16][4], fb[WARP_N / 16][2][2];
            UNROLL
            for (int i = 0; i < WARP_M / 16; i++) frag_a<TRANS_A>(fa[i], at, wm + 16 * i, k);
            UNROLL
            for (int j = 0; j < WARP_N / 16; j++) frag_b<!TRANS_B>(fb[j], bt, wn + 16 * j, k);
            UNROLL
            for (int i = 0; i < WARP_M / 16; i++) UNROLL
            for (int j = 0; j < WARP_N / 8; j++) mma_bf16(d[i][j], fa[i], fb[j / 2][j % 2]);
        }
    }
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int i = 0; i < WARP_M / 16; i++) UNROLL
    for (int j = 0; j < WARP_N / 8; j++) UNROLL
    for (int e = 0; e < 4; e++)
        finish(p, m0 + wm + 16 * i + lane / 4 + e / 2 * 8, n0 + wn + 8 * j + lane % 4 * 2 + e % 2,
               d[i][j][e]);
}

template <bool TRANS_A, bool TRANS_B, bool ALIGNED>
static void run_bf16(struct cuda *c, const product &p)
{
    const size_t smem = sizeof(bf16) * STAGES * (tile<TRANS_A>::size + tile<!TRANS_B>::size);
    auto product_bf16 = gemm_bf16<TRANS_A, TRANS_B, ALIGNED>;
    (void)cudaFuncSetAttribute(product_bf16, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    LAUNCH(c, product_bf16, dim3((unsigned)div_up(p.N, TILE), (unsigned)div_up(p.M, TILE)),
           dim3(THREADS), smem, p);
}

template <bool TRANS_A, bool TRANS_B>
static void choose_bf16(struct cuda *c, const product &p, bool aligned)
{
    if (aligned)
        run_bf16<TRANS_A, TRANS_B, true>(c, p);
    else
        run_bf16<TRANS_A, TRANS_B, false>(c, p);
}

/* ---- fp32 ------------------------------------------------------------------------------------- */

#define F32_TILE 64
#define F32_K    16
#define F32_EACH 4 /* rows and columns of a thread */

/* Shared memory has both tiles as rows of K, whatever lies in global memory. */
template <bool TRANS_A, bool TRANS_B> static __global__ void gemm_f32(product p)
{
    __shared__ float as[F32_K][F32_TILE + 4], bs[F32_K][F32_TILE + 4];
    const float *a = (const float *)p.a, *b = (const float *)p.b;
    const int64_t m0 = (int64_t)blockIdx.y * F32_TILE, n0 = (int64_t)blockIdx.x * F32_TILE;
    const int tm = threadIdx.x / 16 * F32_EACH, tn = threadIdx.x % 16 * F32_EACH;
    float d[F32_EACH][F32_EACH] = {};
    for (int64_t k0 = 0; k0 < p.K; k0 += F32_K) {
        __syncthreads();
        for (int i = threadIdx.x; i < F32_K * F32_TILE; i += THREADS) {
            /* neighbours in global memory are neighbours among threads */
            const int ka = TRANS_A ? i / F32_TILE : i % F32_K,
                      ma = TRANS_A ? i % F32_TILE : i / F32_K;
            const int kb = TRANS_B ? i % F32_K : i / F32_TILE,
                      nb = TRANS_B ? i / F32_K : i % F32_TILE;
            const int64_t m = m0 + ma, n = n0 + nb;
            as[ka][ma] = k0 + ka < p.K && m < p.M
                             ? (TRANS_A ? a[(k0 + ka) * p.lda + m] : a[m * p.lda + k0 + ka])
                             : 0;
            bs[kb][nb] = k0 + kb < p.K && n < p.N
                             ? (TRANS_B ? b[n * p.ldb + k0 + kb] : b[(k0 + kb) * p.ldb + n])
                             : 0;
        }
        __syncthreads();
        const int steps = p.K - k0 < F32_K ? (int)(p.K - k0) : F32_K;
        for (int k = 0; k < steps; k++) UNROLL
        for (int i = 0; i < F32_EACH; i++) UNROLL
        for (int j = 0; j < F32_EACH; j++) d[i][j] = fmaf(as[k][tm + i], bs[k][tn + j], d[i][j]);
    }
    UNROLL
    for (int i = 0; i < F32_EACH; i++) UNROLL
    for (int j = 0; j < F32_EACH; j++) finish(p, m0 + tm + i, n0 + tn + j, d[i][j]);
}

template <bool TRANS_A, bool TRANS_B> static void run_f32(struct cuda *c, const product &p)
{
    auto product_f32 = gemm_f32<TRANS_A, TRANS_B>;
    LAUNCH(c, product_f32, dim3((unsigned)div_up(p.N, F32_TILE), (unsigned)div_up(p.M, F32_TILE)),
           dim3(THREADS), 0, p);
}

/* ---- the slot --------------------------------------------------------------------------------- */

template <bool TRANS_A, bool TRANS_B>
static void run(struct cuda *c, const product &p, const struct gemm_args *a)
{
    /* a row's last pack may reach past the tile's columns, never past the row's stride */
    const bool aligned = fits_packs(a->a) && fits_packs(a->b) && a->a.cols % 8 == 0 &&
                         a->b.cols % 8 == 0;
    if (a->a.dtype == DT_BF16)
        choose_bf16<TRANS_A, TRANS_B>(c, p, aligned);
    else
        run_f32<TRANS_A, TRANS_B>(c, p);
}

void cuda_gemm(struct be *be, const struct gemm_args *a)
{
    shape_gemm(a);
    struct cuda *c = cuda_of(be);
    if (a->c.rows < 1 || a->c.cols < 1 || (c->blas && blas_gemm(c, a))) return;
    const product p = {a->a.data,
                       a->b.data,
                       a->a.ld,
                       a->b.ld,
                       a->c.rows,
                       a->c.cols,
                       a->trans_a ? a->a.rows : a->a.cols,
                       mat_of(a->c),
                       a->accumulate};
    if (a->trans_a)
        a->trans_b ? run<true, true>(c, p, a) : run<true, false>(c, p, a);
    else
        a->trans_b ? run<false, true>(c, p, a) : run<false, false>(c, p, a);
}
