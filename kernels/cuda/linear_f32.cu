/* linear_f32.cu: linear attention's walks in true fp32. A block of 256 threads walks one segment
 * of one head, for 64 columns of v, with the state in shared memory. It walks only 32 columns if
 * 256 rows of the state do not fit in a block of 8.6. A product is 64 x 64 x 64, with 64 key
 * columns at a time, and a thread has 4 x 4 elements of the product. */
#include "kernels/cuda/linear.h"

#define THREADS 256
/* key columns that are used at a time; also the largest number of columns of v */
#define TILE 64
#define LD   65 /* row size of a tile, such that rows are in different banks */
#define EACH 4

static_assert(TILE == LINEAR_T, "all products are of one size");

/* Return row i and column j of this thread. The thread's rows are adjacent and its columns are 16
 * apart, so that adjacent lanes have adjacent columns. */
static __device__ __forceinline__ int row_of(int i)
{
    return (int)threadIdx.x / 16 * EACH + i;
}
static __device__ __forceinline__ int col_of(int j)
{
    return (int)threadIdx.x % 16 + 16 * j;
}

/* A factor of a product. The element for row r and index k of the sum is at[r * row + k * step].
 * In the second factor, r is a column. */
struct factor {
    const float *at;
    int row, step;
};

/* Computes d += a b over k in [k0, k1). If f is not NULL, each term is multiplied by f[k]. */
template <int N>
static __device__ __forceinline__ void multiply(float (&d)[EACH][N], factor a, factor b, int k0,
                                                int k1, const float *f)
{
    for (int k = k0; k < k1; k++) {
        float x[EACH], y[N];
        UNROLL
        for (int i = 0; i < EACH; i++) x[i] = a.at[row_of(i) * a.row + k * a.step];
        UNROLL
        for (int j = 0; j < N; j++) y[j] = b.at[col_of(j) * b.row + k * b.step];
        if (f) UNROLL
        for (int i = 0; i < EACH; i++) x[i] *= f[k];
        UNROLL
        for (int i = 0; i < EACH; i++) UNROLL
        for (int j = 0; j < N; j++) d[i][j] = fmaf(x[i], y[j], d[i][j]);
    }
}

/* Loads rows [r0, r0 + n) and columns [c0, c0 + cols) of g as a tile of 64 x 64. The other
 * elements become 0. */
static __device__ __forceinline__ void fetch(float *to, const mat &g, int64_t r0, int64_t n,
                                             int64_t c0, int64_t cols)
{
    const float *from = (const float *)g.data + r0 * g.ld + c0;
    for (int i = threadIdx.x; i < LINEAR_T * TILE; i += THREADS) {
        const int r = i / TILE, c = i % TILE;
        to[r * LD + c] = r < n && c < cols ? from[r * g.ld + c] : 0;
    }
}

/* ---- a walk --------------------------------------------------------------------------------- */

struct walk_tables {
    linear_powers powers;
    float add[LINEAR_T]; /* the power with which a row is added to the state */
    int64_t lo[LINEAR_T + 1];
};

/* COLS is the number of columns of v, which is 16 N. Each thread has N of these columns, 16
 * columns apart. */
template <int N> struct walk {
    static const int COLS = 16 * N;
    const linear_part &p;
    linear_blocks blocks;
    int64_t k0, v0; /* first column of q and k of this head; first column of v of this block */
    int v_cols;
    float *q, *k, *v, *a, *state; /* tiles; state [key_dim, COLS] */
    walk_tables *t;

    /* Processes n key columns, from d0 on. Adds q's products with the state to o, and q's products
     * with k to a. Then adds k's part to the state. */
    template <bool ROWS>
    __device__ void keys(float (&o)[EACH][N], float (&a)[EACH][EACH], const linear_span &s, int d0,
                         int n) const
    {
        if (ROWS) {
            multiply(a, {q, LD, 1}, {k, LD, 1}, 0, n, NULL);
            if (s.see1 > s.see0) multiply(o, {q, LD, 1}, {state + d0 * COLS, 1, COLS}, 0, n, NULL);
            /* all threads have read these rows of the state before the rows change */
            __syncthreads();
        }
        float d[EACH][N] = {};
        multiply(d, {k, 1, LD}, {v, 1, LD}, s.add0, s.add1, t->add);
        const linear_decay by = s.L == LINEAR_T ? t->powers.whole : t->powers.tail;
        UNROLL
        for (int i = 0; i < EACH; i++) UNROLL
        for (int j = 0; j < N; j++) {
            if (row_of(i) >= n) continue;
            float *x = state + (d0 + row_of(i)) * COLS + col_of(j);
            *x = s.through ? linear_pass(*x, d[i][j], by) : d[i][j];
        }
    }

    /* Computes the rows' output from the state and from each other, after all key columns have
     * been processed. */
    __device__ void rows(float (&o)[EACH][N], const float (&b)[EACH][EACH], const linear_span &s,
                         int64_t r0) const
    {
        const int64_t edge = p.pos + r0;
        UNROLL
        for (int i = 0; i < EACH; i++) {
            const int r = row_of(i);
            const bool sees = r >= s.see0 && r < s.see1;
            const float f = sees ? t->powers.scaled[p.reverse ? s.L - r : r] : 0;
            UNROLL
            for (int j = 0; j < EACH; j++) {
                const int c = col_of(j), near = c < r ? c : r, far = c < r ? r : c;
                const bool seen = (p.reverse ? c >= r : c <= r) && far < s.L &&
                                  linear_start(t->lo, edge, far) <= near;
                a[r * LD + c] = seen ? b[i][j] * t->powers.scaled[far - near] : 0;
            }
            UNROLL
            for (int j = 0; j < N; j++) o[i][j] = sees ? o[i][j] * f : 0;
        }
        __syncthreads();
        multiply(o, {a, LD, 1}, {v, 1, LD}, 0, s.L, NULL);
        UNROLL
        for (int i = 0; i < EACH; i++) UNROLL
        for (int j = 0; j < N; j++)
            if (row_of(i) < s.L && col_of(j) < v_cols) {
                const int64_t r = r0 + row_of(i), c = v0 + col_of(j);
                set(p.out, r, c, p.add ? get(p.out, r, c) + o[i][j] : o[i][j]);
            }
    }

    template <bool ROWS> __device__ void block(int i) const
    {
        const int64_t r0 = blocks.row0 + (p.reverse ? blocks.n - 1 - i : i) * LINEAR_T;
        const int64_t left = blocks.n_valid - r0;
        const int L = left < LINEAR_T ? (int)left : LINEAR_T, row = threadIdx.x;
        float o[EACH][N] = {}, b[EACH][EACH] = {};
        __syncthreads(); /* all threads have finished the previous block */
        fetch(v, p.v, r0, L, v0, v_cols);
        if (row < LINEAR_T && row < L) t->add[row] = t->powers.power[p.reverse ? row : L - row];
        if (row <= LINEAR_T && row < left) t->lo[row] = p.lo[r0 + row];
        __syncthreads();
        const linear_span s = linear_span_of(t->lo, p.pos + r0, L, r0 == 0, left <= LINEAR_T,
                                             p.reverse);
        for (int d0 = 0; d0 < p.key_dim; d0 += TILE) {
            const int n = p.key_dim - d0 < TILE ? (int)(p.key_dim - d0) : TILE;
            if (d0) __syncthreads();
            if (ROWS) fetch(q, p.q, r0, L, k0 + d0, n);
            fetch(k, p.k, r0, L, k0 + d0, n);
            __syncthreads();
            keys<ROWS>(o, b, s, d0, n);
        }
        if (ROWS) rows(o, b, s, r0);
    }

    /* Calls f(x, y) for each element of the state. x is the element in shared memory, and y is the
     * element in global memory. */
    template <class F> __device__ void each(const F &f) const
    {
        float *g = linear_state(p) + blockIdx.x * COLS;
        for (int i = threadIdx.x; i < (int)p.key_dim * COLS; i += THREADS)
            if (i % COLS < v_cols) f(state[i], g[i / COLS * p.value_dim + i % COLS]);
    }
};

/* The kernel of a walk. If ROWS, computes `out` from the states that enter. Otherwise computes the
 * segment's summary. */
template <int N, bool ROWS>
static __global__ void __launch_bounds__(THREADS) walk_kernel(linear_part p)
{
    const int COLS = walk<N>::COLS;
    DYNAMIC_SHARED(shared);
    __shared__ walk_tables tables;
    float *const tiles = (float *)shared;
    const int size = LINEAR_T * LD;
    const int64_t h = p.head + blockIdx.y, e0 = (int64_t)blockIdx.x * COLS;
    const walk<N> w = {p,
                       linear_blocks_of(p),
                       h * p.head_keys,
                       h * p.value_dim + e0,
                       p.value_dim - e0 < COLS ? (int)(p.value_dim - e0) : COLS,
                       tiles + 2 * size,
                       tiles,
                       tiles + size,
                       tiles + 3 * size,
                       tiles + (ROWS ? 4 : 2) * size,
                       &tables};
    if (ROWS) linear_zero(p, w.blocks, w.v0, w.v_cols);
    if (w.blocks.n == 0) return;
    linear_fill(&tables.powers, p.slope[h], p.scale, w.blocks.n_valid);
    for (int i = threadIdx.x; i < (int)p.key_dim * COLS; i += THREADS) w.state[i] = 0;
    __syncthreads();
    if (ROWS && p.states) w.each([](float &mine, float &there) { mine = there; });
    for (int i = 0; i < w.blocks.n; i++) w.template block<ROWS>(i);
    __syncthreads();
    if (!ROWS) w.each([](float &mine, float &there) { there = mine; });
}

static int walk_smem(const linear_part &p, int cols, bool rows)
{
    return (int)sizeof(float) * ((rows ? 4 : 2) * LINEAR_T * LD + (int)p.key_dim * cols);
}

template <int N, bool ROWS> static void run(struct cuda *c, const linear_part &p)
{
    const int smem = walk_smem(p, walk<N>::COLS, ROWS);
    auto walk_f32 = walk_kernel<N, ROWS>;
    SMEM_ALLOW(c, walk_f32, smem, sizeof(walk_tables));
    LAUNCH(c, walk_f32,
           dim3((unsigned)div_up(p.value_dim, walk<N>::COLS), (unsigned)p.n_heads,
                (unsigned)p.n_segments),
           dim3(THREADS), (size_t)smem, p);
}

void linear_summary_f32(struct cuda *c, const linear_part &p)
{
    run<EACH, false>(c, p);
}

void linear_rows_f32(struct cuda *c, const linear_part &p)
{
    if (walk_smem(p, TILE, true) + (int)sizeof(walk_tables) <= c->smem_most)
        run<EACH, true>(c, p);
    else
        run<EACH / 2, true>(c, p);
}

/* ---- the entering state --------------------------------------------------------------------- */

/* Applies M to rows. A block of threads has 64 rows and 64 columns of out. */
static __global__ void __launch_bounds__(THREADS, 2) apply_kernel(linear_apply_part p)
{
    __shared__ float x[LINEAR_T * LD], m[TILE * LD], f[LINEAR_T];
    const int64_t in = p.transposed ? p.cols : p.rows, to = p.transposed ? p.rows : p.cols;
    const int64_t h = blockIdx.y, e0 = (int64_t)blockIdx.z * TILE;
    const int64_t begin = p.to_end ? p.ends->last : 0;
    const int64_t end = p.to_end ? p.ends->n_valid : p.ends->n_see;
    const int64_t r0 = (int64_t)blockIdx.x * LINEAR_T, row = r0 + threadIdx.x;
    const float *from = p.m + h * p.rows * p.cols;
    float o[EACH][EACH] = {};
    if (r0 >= end || r0 + LINEAR_T <= begin) return;
    if (threadIdx.x < LINEAR_T) {
        const int64_t distance = p.to_end ? end - row : row;
        f[threadIdx.x] = (float)((double)p.scale * linear_power(p.slope[h], distance));
    }
    for (int64_t d0 = 0; d0 < in; d0 += TILE) {
        const int n = in - d0 < TILE ? (int)(in - d0) : TILE;
        __syncthreads();
        fetch(x, p.x, r0, end - r0, h * in + d0, n);
        for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
            const int d = p.transposed ? i % TILE : i / TILE,
                      e = p.transposed ? i / TILE : i % TILE;
            const bool there = d < n && e0 + e < to;
            m[d * LD + e] = !there         ? 0
                            : p.transposed ? from[(e0 + e) * p.cols + d0 + d]
                                           : from[(d0 + d) * p.cols + e0 + e];
        }
        __syncthreads();
        multiply(o, {x, LD, 1}, {m, 1, LD}, 0, n, NULL);
    }
    UNROLL
    for (int i = 0; i < EACH; i++) {
        const int64_t r = r0 + row_of(i);
        UNROLL
        for (int j = 0; j < EACH; j++) {
            const int64_t c = e0 + col_of(j);
            if (r < begin || r >= end || c >= to) continue;
            set(p.out, r, h * to + c, get(p.out, r, h * to + c) + f[row_of(i)] * o[i][j]);
        }
    }
}

void linear_apply_f32(struct cuda *c, const linear_apply_part &p, int64_t n_heads)
{
    LAUNCH(c, apply_kernel,
           dim3((unsigned)div_up(p.n, LINEAR_T), (unsigned)n_heads,
                (unsigned)div_up(p.transposed ? p.rows : p.cols, TILE)),
           dim3(THREADS), 0, p);
}
