/* quant.cu: products whose b is a weight in blocks of 8 or 4 bits. The tiles and the order of sums
 * are those of gemm.cu. The blocks of a step pass through registers. While the previous step is
 * multiplied, the registers hold the blocks in the format of memory. Then the blocks are written
 * to shared memory as values of a's type. So a product has the same bits as a product whose b has
 * these values.
 *
 *   16 bits  a warp processes the 16 rows and 32 columns of a block. A thread has 8 rows of two
 *            columns, which are 16 values that it writes as two packs of 16 bytes. 8 neighbouring
 *            rows of the weight are neighbours in the tile, so the tile is the transpose of the
 *            tile in gemm.cu
 *   fp32     a thread has packs of 4 rows of one column
 *   few      if the order of sums is free, one or two rows of a are multiplied by values in
 *            registers. A block of threads has one panel, whose blocks its warps share. A step is
 *            544 or 320 bytes of the weight for a warp */
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/quant.h"

/* ---- 16 bits --------------------------------------------------------------------------------- */

/* A thread's part of each step's blocks, which is 8 rows and two columns of the weight. If
 * TRANS_B, K runs along the weight's columns, else along its rows. */
template <bool INT4, bool TRANS_B, int TILE> struct half_blocks {
    static const int panels = TRANS_B ? TILE / QUANT_ROWS : TILE_K / QUANT_ROWS;
    quant_part<INT4, 8> part;
    const char *at; /* this step's block */
    int64_t stride; /* bytes from the block of a step to the block of the next step */
    bool there;
    static __device__ __forceinline__ int row(void)
    {
        return threadIdx.x / WARP % panels * QUANT_ROWS + threadIdx.x % 2 * 8;
    }
    static __device__ __forceinline__ int col(void)
    {
        return threadIdx.x / WARP / panels * QUANT_K + threadIdx.x % WARP / 2 * 2;
    }
    __device__ __forceinline__ half_blocks(const product &p, int64_t n0)
    {
        const int64_t r = TRANS_B ? n0 + row() : row(), c = TRANS_B ? col() : n0 + col();
        at = quant_block_at<INT4>(p.b, p.ldb, r, c);
        stride = quant_format<INT4>::size * (TRANS_B ? 1 : TILE_K / QUANT_ROWS * (p.ldb / QUANT_K));
        there = TRANS_B ? r < p.N : c < p.N;
        part = {};
    }
    /* Loads the blocks of the step that begins at k0, and moves to the next step. */
    __device__ __forceinline__ void fetch(const product &p, int64_t k0)
    {
        if (there && k0 + (TRANS_B ? 0 : row()) < p.K)
            part.fetch(at, row() % QUANT_ROWS, col() % QUANT_K);
        at += stride;
    }
    /* Writes the values of the step that begins at k0. Values past the end of K are set to 0,
     * because a panel's bytes past the end of K have no meaning. */
    template <class T, class SHAPE>
    __device__ __forceinline__ void put_down(const product &p, int64_t k0, T *to) const
    {
        UNROLL
        for (int j = 0; j < 2; j++) {
            pack<uint32_t, 4> x;
            UNROLL
            for (int i = 0; i < 8; i += 2) {
                float v[2] = {part.value(i, j), part.value(i + 1, j)};
                if (!TRANS_B) {
                    if (k0 + row() + i >= p.K) v[0] = 0;
                    if (k0 + row() + i + 1 >= p.K) v[1] = 0;
                }
                x.e[i / 2] = pack_pair<T>(v[0], v[1]);
            }
            *(pack<uint32_t, 4> *)(to + (col() + j) * SHAPE::ld + row()) = x;
        }
    }
};

/* The kernel for 16 bits. If TRANS_B, the weight is [N, K]; else it is [K, N]. ALIGNED means that
 * a's rows are whole packs. */
template <class T, bool INT4, bool TRANS_B, bool ALIGNED, int TILE>
static __global__ void __launch_bounds__(half_shape<TILE>::threads, TILE > 64 ? 2 : 4)
    gemm_blocks_half(product p)
{
    typedef tile<false, TILE> ta;
    typedef tile<TRANS_B, TILE> tb;
    typedef half_shape<TILE> sh;
    const int FRAGS = sh::warp_m / 16;
    DYNAMIC_SHARED(shared);
    T *const as = (T *)shared, *const bs = as + STAGES * ta::size;
    const T *a = (const T *)p.a;
    int64_t m0, n0;
    tile_begin<TILE>(p, &m0, &n0);
    const int steps = (int)((p.K + TILE_K - 1) / TILE_K);
    const int warp = threadIdx.x / WARP;
    const int wm = warp / sh::across * sh::warp_m, wn = warp % sh::across * WARP_N;
    float d[FRAGS][WARP_N / 8][4] = {};
    half_blocks<INT4, TRANS_B, TILE> w(p, n0);
    auto start = [&](int step) {
        const int64_t k0 = (int64_t)step * TILE_K;
        if (step < steps)
            fetch<ta, ALIGNED>(as + step % STAGES * ta::size, a, p.lda, m0, k0, p.M, p.K);
        copies_commit();
    };
    for (int s = 0; s < STAGES - 1; s++) start(s);
    w.fetch(p, 0);
    for (int step = 0; step < steps; step++) {
        const int64_t k0 = (int64_t)step * TILE_K;
        T *const bt = bs + step % 2 * tb::size;
        w.template put_down<T, tb>(p, k0, bt);
        copies_wait<STAGES - 2>();
        __syncthreads(); /* this stage is complete, and all threads have read the previous one */
        start(step + STAGES - 1);
        w.fetch(p, k0 + TILE_K);
        half_step<false, TRANS_B, TILE>(d, as + step % STAGES * ta::size, bt, wm, wn);
    }
    half_finish(p, d, m0 + wm, n0 + wn);
}

template <class T, bool INT4, bool TRANS_B, bool ALIGNED, int TILE>
static void run_half(struct cuda *c, const product &p)
{
    const int smem = 2 * (STAGES * tile<false, TILE>::size + 2 * tile<TRANS_B, TILE>::size);
    static_assert(smem <= SMEM_SMALL, "a block of 8.6 has room for it");
    auto product_blocks = gemm_blocks_half<T, INT4, TRANS_B, ALIGNED, TILE>;
    SMEM_ALLOW(c, product_blocks, smem, 0);
    LAUNCH(c, product_blocks, dim3(tiles_of(p, TILE)), dim3(half_shape<TILE>::threads),
           (size_t)smem, p);
}

/* Only tests have an a whose rows are not whole packs. So one size of tile is enough for these
 * tests. */
template <class T, bool INT4, bool TRANS_B>
static void choose_half(struct cuda *c, const product &p)
{
    if (!p.aligned)
        run_half<T, INT4, TRANS_B, false, 64>(c, p);
    else if (wants_small(c, p))
        run_half<T, INT4, TRANS_B, true, 64>(c, p);
    else
        run_half<T, INT4, TRANS_B, true, 128>(c, p);
}

/* ---- fp32 ------------------------------------------------------------------------------------ */

/* A thread's packs of 4 rows of the weight, in a step of K [k0, k0 + F32_K) x [n0, n0 + TILE). */
template <bool INT4, bool TRANS_B, int TILE> struct f32_blocks {
    static const int n = F32_K * TILE / 4 / F32_THREADS;
    quant_part<INT4, 4> part[n];
    static __device__ __forceinline__ int pack_of(int i)
    {
        return made_again((int)threadIdx.x) + i * F32_THREADS;
    }
    static __device__ __forceinline__ int k(int i)
    {
        const int at = pack_of(i);
        return TRANS_B ? at / (TILE / 4) : at % (F32_K / 4) * 4;
    }
    static __device__ __forceinline__ int col(int i)
    {
        const int at = pack_of(i);
        return TRANS_B ? at % (TILE / 4) * 4 : at / (F32_K / 4);
    }
    __device__ __forceinline__ void fetch(const product &p, int64_t k0, int64_t n0)
    {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int64_t kk = k0 + k(i), c = n0 + col(i);
            const int64_t row = TRANS_B ? c : kk, at = TRANS_B ? kk : c;
            if (kk >= p.K || c >= p.N) continue;
            part[i].fetch(quant_block_at<INT4>(p.b, p.ldb, row, at), (int)(row % QUANT_ROWS),
                          (int)(at % QUANT_K));
        }
    }
    /* Writes the values. Values past the end of K are 0. */
    __device__ __forceinline__ void put_down(const product &p, int64_t k0,
                                             float (&to)[F32_K][TILE + 4]) const
    {
        UNROLL
        for (int i = 0; i < n; i++) {
            const int kk = k(i), c = col(i), parity = TRANS_B ? kk : c;
            float x[4];
            UNROLL
            for (int e = 0; e < 4; e++) {
                x[e] = part[i].value(e, parity);
                if (k0 + kk + (TRANS_B ? 0 : e) >= p.K) x[e] = 0;
            }
            if (TRANS_B) {
                store(&to[kk][c], x);
            } else {
                UNROLL
                for (int e = 0; e < 4; e++) to[kk + e][c] = x[e];
            }
        }
    }
};

template <bool INT4, bool TRANS_B, int TILE>
static __global__ void __launch_bounds__(F32_THREADS, 2) gemm_blocks_f32(product p)
{
    const int EACH = TILE / 16;
    __shared__ f32_room<TILE> room;
    const float *a = (const float *)p.a;
    int64_t m0, n0;
    tile_begin<TILE>(p, &m0, &n0);
    const int tm = threadIdx.x / 16 * 4, tn = threadIdx.x % 16 * 4;
    float d[EACH][EACH] = {};
    f32_packs<false, TILE> pa;
    f32_blocks<INT4, TRANS_B, TILE> pb = {};
    pa.fetch(a, p.lda, 0, m0, p.K, p.M, p.aligned);
    pb.fetch(p, 0, n0);
    for (int64_t k0 = 0; k0 < p.K; k0 += F32_K) {
        const int stage = (int)(k0 / F32_K % 2);
        pa.put_down(room.a[stage]);
        pb.put_down(p, k0, room.b[stage]);
        __syncthreads(); /* this stage is complete, and all threads have read the previous one */
        pa.fetch(a, p.lda, k0 + F32_K, m0, p.K, p.M, p.aligned);
        pb.fetch(p, k0 + F32_K, n0);
        f32_step<TILE>(d, room.a[stage], room.b[stage], tm, tn);
    }
    f32_finish(p, d, m0 + tm, n0 + tn);
}

template <bool INT4, bool TRANS_B, int TILE> static void run_f32(struct cuda *c, const product &p)
{
    auto product_blocks_f32 = gemm_blocks_f32<INT4, TRANS_B, TILE>;
    LAUNCH(c, product_blocks_f32, dim3(tiles_of(p, TILE)), dim3(F32_THREADS), 0, p);
}

/* ---- few rows -------------------------------------------------------------------------------- */

#define FEW_ROWS    2 /* largest number of rows of a */
#define FEW_THREADS 512
#define FEW_WARPS   (FEW_THREADS / WARP)

/* Computes the columns of c [ROWS, N] that belong to one panel; the weight is [N, K]. */
template <class T, bool INT4, int ROWS>
static __global__ void __launch_bounds__(FEW_THREADS, 2) gemm_blocks_few(product p)
{
    __shared__ float room[FEW_WARPS][ROWS][QUANT_ROWS];
    const int warp = threadIdx.x / WARP, row = threadIdx.x % 2 * 8;
    const int k = threadIdx.x % WARP / 2 * 2;
    const int64_t n0 = (int64_t)blockIdx.x * QUANT_ROWS;
    const T *a = (const T *)p.a;
    float sum[ROWS][8] = {};
    quant_part<INT4, 8> w = {}, next = {};
    auto start = [&](int64_t k0) {
        if (k0 < p.K) next.fetch(quant_block_at<INT4>(p.b, p.ldb, n0, k0), row, k);
    };
    start((int64_t)warp * QUANT_K);
    for (int64_t k0 = (int64_t)warp * QUANT_K; k0 < p.K; k0 += FEW_WARPS * QUANT_K) {
        w = next;
        start(k0 + FEW_WARPS * QUANT_K);
        UNROLL
        for (int m = 0; m < ROWS; m++) {
            const T *from = a + m * p.lda + k0 + k;
            const float x = to_float(from[0]), y = to_float(from[1]);
            UNROLL
            for (int i = 0; i < 8; i++)
                sum[m][i] = fmaf(y, w.value(i, 1), fmaf(x, w.value(i, 0), sum[m][i]));
        }
    }
    UNROLL
    for (int m = 0; m < ROWS; m++) UNROLL
    for (int i = 0; i < 8; i++) {
        UNROLL
        for (int lane = 2; lane < WARP; lane *= 2)
            sum[m][i] += __shfl_xor_sync(FULL, sum[m][i], lane);
        if (k == 0) room[warp][m][row + i] = sum[m][i];
    }
    __syncthreads();
    const int m = threadIdx.x / QUANT_ROWS, i = threadIdx.x % QUANT_ROWS;
    if (m >= ROWS || n0 + i >= p.N) return;
    float x = 0;
    for (int v = 0; v < FEW_WARPS; v++) x += room[v][m][i];
    set(p.c, m, n0 + i, p.add ? get(p.c, m, n0 + i) + x : x);
}

template <class T, bool INT4> static void run_few(struct cuda *c, const product &p)
{
    auto one_row = gemm_blocks_few<T, INT4, 1>, two_rows = gemm_blocks_few<T, INT4, 2>;
    const int64_t panels = div_up(p.N, QUANT_ROWS);
    assert(panels < (int64_t)1 << 31);
    if (p.M == 1)
        LAUNCH(c, one_row, dim3((unsigned)panels), dim3(FEW_THREADS), 0, p);
    else
        LAUNCH(c, two_rows, dim3((unsigned)panels), dim3(FEW_THREADS), 0, p);
}

/* ---- the choice ------------------------------------------------------------------------------ */

template <bool INT4, bool TRANS_B> static void run(struct cuda *c, const product &p, enum dtype t)
{
    const bool few = TRANS_B && c->be.any_order && p.M <= FEW_ROWS;
    if (t != DT_F32)
        half_typed(t, [&](auto type) {
            few ? run_few<decltype(type), INT4>(c, p)
                : choose_half<decltype(type), INT4, TRANS_B>(c, p);
        });
    else if (few)
        run_few<float, INT4>(c, p);
    else if (wants_small(c, p))
        run_f32<INT4, TRANS_B, 64>(c, p);
    else
        run_f32<INT4, TRANS_B, 128>(c, p);
}

void quant_gemm(struct cuda *c, const struct gemm_args *a)
{
    const product p = product_of(a);
    assert((uintptr_t)a->b.data % 16 == 0 && a->b.ld == a->b.cols && !a->trans_a);
    if (a->b.dtype == DT_INT4)
        a->trans_b ? run<true, true>(c, p, a->a.dtype) : run<true, false>(c, p, a->a.dtype);
    else
        a->trans_b ? run<false, true>(c, p, a->a.dtype) : run<false, false>(c, p, a->a.dtype);
}
