/* gemm.cu: matrix products. A block computes a tile of c in steps through K. Every element is one
 * chain of sums over K in ascending steps. The chain depends neither on the other rows and columns
 * nor on the size of the tile, so an element's bits depend only on its own row and column. (A
 * library does not promise this if it chooses its kernel by the number of rows; see blas.h.) The
 * old c is added to the whole sum, which is then rounded once.
 *
 * The speed is limited by the following counts, for a tile of t x t and a step of K:
 *   flops   2 t^2 for 4 t bytes of bf16 or fp16 from L2, which is 64 for each byte at t = 128.
 *           fp32 needs twice as many bytes
 *   16 bits tensor cores are the limit (on 8.0, 2048 flops in a cycle). For 16 of K, the 64 x 32
 *           elements of a warp take 128 cycles. Four warps then read 12 KiB of shared memory,
 *           which is 96 of the 128 bytes that can be read in a cycle. With 61 KiB and 128
 *           registers, a multiprocessor has two blocks of 8 warps
 *   fp32    multiply-adds are the limit (128 in a cycle). The 8 x 8 elements of a thread need 64
 *           bytes of shared memory. With 33 KiB, a multiprocessor has two blocks of 8 warps
 *   small   if there are fewer tiles of 128 than multiprocessors, tiles of 64 are used. There are
 *           then four times as many blocks, with half as many flops for each byte */
#include "kernels/cuda/blas.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/quant.h"

/* ---- 16 bits --------------------------------------------------------------------------------- */

/* The kernel for 16 bits. If TRANS_A, a is stored as [K, M]; if TRANS_B, b is stored as [N, K]. */
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
        __syncthreads(); /* this stage has arrived for all threads, and the previous one is free */
        start(step + STAGES - 1);
        const T *at = as + step % STAGES * ta::size, *bt = bs + step % STAGES * tb::size;
        half_step<TRANS_A, !TRANS_B, TILE>(d, at, bt, wm, wn);
    }
    half_finish(p, d, m0 + wm, n0 + wn);
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

/* Computes a tile. In both operands, elements past the end of K are zeros. */
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
        __syncthreads(); /* this stage is complete, and all threads have read the previous one */
        pa.fetch(a, p.lda, k0 + F32_K, m0, p.K, p.M, p.aligned);
        pb.fetch(b, p.ldb, k0 + F32_K, n0, p.K, p.N, p.aligned);
        f32_step<TILE>(d, room.a[stage], room.b[stage], tm, tn);
    }
    f32_finish(p, d, m0 + tm, n0 + tn);
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
    struct cuda *c = cuda_of(be);
    const bool blocks = dtype_quant(a->b.dtype);
    if (a->c.rows < 1 || a->c.cols < 1) return;
    const bool done = c->blas && !blocks && blas_gemm(c, a);
    ++(done ? c->library.n_done : c->library.n_left);
    if (done) return;
    const product p = product_of(a);
    if (blocks)
        quant_gemm(c, a);
    else if (a->trans_a)
        run<true, false>(c, p, a);
    else
        a->trans_b ? run<false, true>(c, p, a) : run<false, false>(c, p, a);
    const struct bias_fwd_args bias = {a->c, a->bias};
    if (a->bias.data) cuda_bias_fwd(be, &bias);
}
