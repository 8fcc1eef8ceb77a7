/* linear_bf16.cu: linear attention's walks in bf16 and fp16 on tensor cores. A block of 4 warps
 * walks one segment of one head, for some columns of v. A warp has 16 rows of out and some rows of
 * the state in registers, in fp32. Other warps read copies of these rows of the state in shared
 * memory.
 *
 * q, k, v and dO are bf16 and are multiplied as they are. An fp32 result that is an operand of a
 * product is split into a sum of bf16s: hi, the nearest bf16, and lo, the bf16 nearest to the
 * rest. The error of this sum, in either direction, is at most 2^-18, and 2.2e-6 in root mean
 * square. With a third term, mid, between them, there is no error.
 *
 *   a = q k' times powers    hi + lo
 *   the state in q S         hi + lo
 *   k times powers           hi + mid + lo in summaries, whose states are results. hi + lo is
 *                            enough if rows are written, because the state is then used only in
 *                            q S, which splits the state into hi + lo anyway
 *
 * fp16 inputs are also split into bf16s. Two bf16s have all 11 bits of an fp16, and the state of
 * many rows, which may exceed the range of fp16, is in the range of bf16. Only q k' is a product
 * of fp16.
 *
 * So m and dm are as exact as in fp32. The part of a row that passes through the state has two
 * errors of 2.2e-6. Together they are 3.1e-6, which is within the 5e-6 that are allowed for dq, dk
 * and dv. o is rounded to bf16 with an error of up to 2^-9, which is a thousand times the two
 * errors.
 *
 * Tensor cores truncate sums instead of rounding them. Therefore a block's part of the state is
 * summed separately and added to the state by an fp32 addition; otherwise the errors of 10,000
 * blocks would all have the same direction. */
#include "kernels/cuda/linear.h"
#include "kernels/cuda/mma.h"

#define THREADS 128
#define WARPS   (THREADS / WARP)
#define PAD     8 /* unused elements after each row, which put rows into different banks */

/* DK is the number of key columns, rounded up to a power of two. Columns that do not exist are 0.
 * TV is the number of columns of v of a block. */
template <int DK, int TV> struct sizes {
    static const int ld_k = DK + PAD, ld_v = TV + PAD;
    static const int k = LINEAR_T * ld_k, v = LINEAR_T * ld_v, state = DK * ld_v; /* elements */
    /* a warp has 16 rows of every 64 rows of the state */
    static const int slices = (DK + 63) / 64;
};

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Loads rows [r0, r0 + n) and columns [c0, c0 + cols) of g, as 64 rows of WIDTH elements. The
 * other elements become 0. */
template <int WIDTH, class T>
static __device__ __forceinline__ void fetch(T *to, const mat &g, bool wide, int64_t r0, int64_t n,
                                             int64_t c0, int64_t cols)
{
    const T *from = (const T *)g.data + r0 * g.ld + c0;
    if (wide) {
        share_out<LINEAR_T * WIDTH / 8, THREADS>([&](int i) {
            const int r = i / (WIDTH / 8), c = i % (WIDTH / 8) * 8;
            const bool there = r < n && c < cols;
            copy16_async(to + r * (WIDTH + PAD) + c, there ? from + r * g.ld + c : g.data,
                         there ? 16 : 0);
        });
        return;
    }
    for (int i = threadIdx.x; i < LINEAR_T * WIDTH; i += THREADS) {
        const int r = i / WIDTH, c = i % WIDTH;
        to[r * (WIDTH + PAD) + c] = r < n && c < cols ? from[r * g.ld + c] : T{0};
    }
}

/* Loads A's fragment of rows [m, m + 16) and K [k, k + 16). If K_ROWS, the rows in shared memory
 * are rows of K, otherwise rows of M. */
template <bool K_ROWS, int LD, class T>
static __device__ __forceinline__ void frag_a(uint32_t (&a)[4], const T *s, int m, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8;
    if (K_ROWS)
        ldmatrix4<true>(a, s + (k + i / 2 * 8 + r) * LD + m + i % 2 * 8);
    else
        ldmatrix4<false>(a, s + (m + i % 2 * 8 + r) * LD + k + i / 2 * 8);
}

/* Loads two of B's fragments, of 8 columns each: columns [n, n + 16). */
template <bool K_ROWS, int LD, class T>
static __device__ __forceinline__ void frag_b(uint32_t (&b)[2][2], const T *s, int n, int k)
{
    const int lane = threadIdx.x % WARP, i = lane / 8, r = lane % 8;
    uint32_t x[4];
    if (K_ROWS)
        ldmatrix4<true>(x, s + (k + i % 2 * 8 + r) * LD + n + i / 2 * 8);
    else
        ldmatrix4<false>(x, s + (n + i / 2 * 8 + r) * LD + k + i % 2 * 8);
    b[0][0] = x[0];
    b[0][1] = x[1];
    b[1][0] = x[2];
    b[1][1] = x[3];
}

/* Splits pairs of elements into sums of bf16s. The largest bf16 of a sum is the first. */
template <class T> static constexpr int n_terms = is_f16<T> ? 2 : 1;
template <class T, int N>
static __device__ __forceinline__ void split(uint32_t (&out)[n_terms<T>][N],
                                             const uint32_t (&in)[N])
{
    UNROLL
    for (int i = 0; i < N; i++) {
        float x = low<T>(in[i]), y = high<T>(in[i]);
        out[0][i] = is_f16<T> ? take_bf16(&x, &y) : in[i];
        if constexpr (is_f16<T>) out[1][i] = pack_bf16(x, y);
    }
}
/* Computes d += a b, where a and b are sums of bf16s. The smallest products are added first. */
template <int M, int N>
static __device__ __forceinline__ void mma_sums(float (&d)[4], const uint32_t (&a)[M][4],
                                                const uint32_t (&b)[N][2])
{
    UNROLL
    for (int i = M - 1; i >= 0; i--) UNROLL
    for (int j = N - 1; j >= 0; j--) mma<bf16>(d, a[i], b[j]);
}

/* Computes x M for a warp's 16 rows, from m0 on: o += x (hi + lo). x and M are in shared
 * memory. */
template <int DK, int TV, class T>
static __device__ __forceinline__ void times_state(float (&o)[TV / 8][4], const T *x, int m0,
                                                   const bf16 *state)
{
    typedef sizes<DK, TV> z;
    UNROLL
    for (int k = 0; k < DK; k += 16) {
        uint32_t raw[4], fa[n_terms<T>][4], hi[2][2], lo[2][2];
        frag_a<false, z::ld_k>(raw, x, m0, k);
        split<T>(fa, raw);
        UNROLL
        for (int j = 0; j < TV / 16; j++) {
            frag_b<true, z::ld_v>(hi, state, 16 * j, k);
            frag_b<true, z::ld_v>(lo, state + z::state, 16 * j, k);
            UNROLL
            for (int i = 0; i < 2; i++) {
                const uint32_t fb[2][2] = {{hi[i][0], hi[i][1]}, {lo[i][0], lo[i][1]}};
                mma_sums(o[2 * j + i], fa, fb);
            }
        }
    }
}

/* Writes two neighbouring elements of a row. */
static __device__ __forceinline__ void put_pair(const mat &t, bool pairs, bool add, int64_t row,
                                                int64_t c0, int c, int cols, float x, float y)
{
    if (pairs && c + 1 < cols) {
        float v[2] = {0, 0};
        if (add) load(t, row, c0 + c, v);
        v[0] += x;
        v[1] += y;
        store(t, row, c0 + c, v);
        return;
    }
    if (c < cols) set(t, row, c0 + c, add ? get(t, row, c0 + c) + x : x);
    if (c + 1 < cols) set(t, row, c0 + c + 1, add ? get(t, row, c0 + c + 1) + y : y);
}

/* ---- a walk --------------------------------------------------------------------------------- */

/* The shared memory besides the tiles. lo has the lo of this block's rows and of the next block's
 * rows. */
struct walk_tables {
    linear_powers powers;
    int64_t lo[2][LINEAR_T + 1];
};

template <class T, int DK, int TV, int STAGES> struct walk {
    typedef sizes<DK, TV> z;
    const linear_part &p;
    linear_blocks blocks;
    int64_t k0, v0; /* first column of q and k of this head; first column of v of this block */
    int v_cols;
    double slope;
    T *q, *k, *v; /* k and v have STAGES tiles each */
    bf16 *state_copy;
    walk_tables *t;
    int warp, lane;

    __device__ int64_t first_row(int i) const
    {
        return blocks.row0 + (p.reverse ? blocks.n - 1 - i : i) * LINEAR_T;
    }
    __device__ void start_q(int i) const
    {
        const int64_t r0 = first_row(i);
        if (i < blocks.n) fetch<DK>(q, p.q, p.wide_q, r0, blocks.n_valid - r0, k0, p.key_dim);
    }
    __device__ void start_kv(int i) const
    {
        const int64_t r0 = first_row(i), n = blocks.n_valid - r0;
        const int row = threadIdx.x;
        if (i >= blocks.n) return;
        fetch<DK>(k + i % STAGES * z::k, p.k, p.wide_k, r0, n, k0, p.key_dim);
        fetch<TV>(v + i % STAGES * z::v, p.v, p.wide_v, r0, n, v0, v_cols);
        if (row <= LINEAR_T && row < n) copy8_async(t->lo[i % 2] + row, p.lo + r0 + row);
    }
    __device__ linear_span span(int i) const
    {
        const int64_t r0 = first_row(i), left = blocks.n_valid - r0;
        return linear_span_of(t->lo[i % 2], p.pos + r0, left < LINEAR_T ? (int)left : LINEAR_T,
                              r0 == 0, left <= LINEAR_T, p.reverse);
    }

    /* Computes a = q k' of the warp's rows with all rows of the block. */
    __device__ void scores(float (&a)[8][4], const T *kt) const
    {
        UNROLL
        for (int d = 0; d < DK; d += 16) {
            uint32_t fa[4], fb[2][2];
            frag_a<false, z::ld_k>(fa, q, 16 * warp, d);
            UNROLL
            for (int j = 0; j < 4; j++) {
                frag_b<false, z::ld_k>(fb, kt, 16 * j, d);
                mma<T>(a[2 * j], fa, fb[0]);
                mma<T>(a[2 * j + 1], fa, fb[1]);
            }
        }
    }

    /* Multiplies an element of a by scale and a power if its two rows see each other, and by 0
     * otherwise. */
    __device__ void mask(float (&a)[8][4], const linear_span &s, const int64_t *lo,
                         int64_t edge) const
    {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int r = 16 * warp + lane / 4 + 8 * i, start = linear_start(lo, edge, r);
            UNROLL
            for (int j = 0; j < 16; j++) {
                const int c = j / 2 * 8 + lane % 4 * 2 + j % 2;
                const bool seen = p.reverse ? c >= r && c < s.L && linear_start(lo, edge, c) <= r
                                            : c <= r && c >= start;
                float &x = a[j / 2][2 * i + j % 2];
                x = seen ? x * t->powers.scaled[c < r ? r - c : c - r] : 0;
            }
        }
    }

    /* Multiplies o by its powers in the rows that see the state. The other rows become 0. */
    __device__ void decay(float (&o)[TV / 8][4], const linear_span &s) const
    {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int r = 16 * warp + lane / 4 + 8 * i;
            const bool sees = r >= s.see0 && r < s.see1;
            const float f = sees ? t->powers.scaled[p.reverse ? s.L - r : r] : 0;
            UNROLL
            for (int j = 0; j < TV / 8; j++) UNROLL
            for (int e = 2 * i; e < 2 * i + 2; e++) o[j][e] = sees ? o[j][e] * f : 0;
        }
    }

    /* Adds o += a v. */
    __device__ void values(float (&o)[TV / 8][4], const float (&a)[8][4], const T *vt) const
    {
        UNROLL
        for (int c = 0; c < 4; c++) {
            /* the warp's rows see none of the 16 rows of fragment c */
            if (p.reverse ? c < warp : c > warp) continue;
            uint32_t fa[2][4], raw[2][2], fb[n_terms<T>][2];
            UNROLL
            for (int i = 0; i < 4; i++) {
                float x = a[2 * c + i / 2][i % 2 * 2], y = a[2 * c + i / 2][i % 2 * 2 + 1];
                fa[0][i] = take_bf16(&x, &y);
                fa[1][i] = pack_bf16(x, y);
            }
            UNROLL
            for (int j = 0; j < TV / 16; j++) {
                frag_b<true, z::ld_v>(raw, vt, 16 * j, 16 * c);
                UNROLL
                for (int i = 0; i < 2; i++) {
                    split<T>(fb, raw[i]);
                    mma_sums(o[2 * j + i], fa, fb);
                }
            }
        }
    }

    template <bool ADD>
    __device__ void put_rows(const float (&o)[TV / 8][4], const linear_span &s, int64_t r0) const
    {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int r = 16 * warp + lane / 4 + 8 * i;
            UNROLL
            for (int j = 0; j < TV / 8; j++)
                if (r < s.L)
                    put_pair(p.out, p.pairs, ADD, r0 + r, v0, 8 * j + lane % 4 * 2, v_cols,
                             o[j][2 * i], o[j][2 * i + 1]);
        }
    }

    /* Computes d, which is the block's part of the state, for the warp's slices. Keys are split
     * into LEVELS bf16s. */
    template <int LEVELS>
    __device__ void add(float (&d)[z::slices][TV / 8][4], const linear_span &s, const T *kt,
                        const T *vt) const
    {
        if (16 * warp >= DK) return;
        UNROLL
        for (int c = 0; c < LINEAR_T; c += 16) {
            uint32_t keep[2] = {0, 0}; /* the other rows may contain NaN or infinity */
            uint32_t fb[TV / 8][n_terms<T>][2];
            float f[4] = {};
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int row = c + lane % 4 * 2 + i % 2 + i / 2 * 8;
                if (row < s.add0 || row >= s.add1) continue;
                keep[i / 2] |= i % 2 ? 0xffff0000u : 0xffffu;
                f[i] = t->powers.power[p.reverse ? row : s.L - row];
            }
            UNROLL
            for (int j = 0; j < TV / 16; j++) {
                uint32_t raw[2][2];
                frag_b<true, z::ld_v>(raw, vt, 16 * j, c);
                UNROLL
                for (int i = 0; i < 4; i++) raw[i / 2][i % 2] &= keep[i % 2];
                split<T>(fb[2 * j], raw[0]);
                split<T>(fb[2 * j + 1], raw[1]);
            }
            UNROLL
            for (int n = 0; n < z::slices; n++) {
                uint32_t raw[4], fa[LEVELS][4];
                frag_a<true, z::ld_k>(raw, kt, 16 * warp + 64 * n, c);
                UNROLL
                for (int i = 0; i < 4; i++) {
                    raw[i] &= keep[i / 2];
                    float x = low<T>(raw[i]), y = high<T>(raw[i]);
                    x *= f[i / 2 * 2];
                    y *= f[i / 2 * 2 + 1];
                    UNROLL
                    for (int l = 0; l < LEVELS; l++) fa[l][i] = take_bf16(&x, &y);
                }
                UNROLL
                for (int l = LEVELS - 1; l >= 0; l--) {
                    if (l >= n_terms<T> && slope == 0) continue; /* these terms are 0 */
                    UNROLL
                    for (int j = 0; j < TV / 8; j++) UNROLL
                    for (int e = n_terms<T> - 1; e >= 0; e--) mma<bf16>(d[n][j], fa[l], fb[j][e]);
                }
            }
        }
    }

    __device__ void pass(float (&state)[z::slices][TV / 8][4], const linear_span &s,
                         const float (&d)[z::slices][TV / 8][4]) const
    {
        const linear_decay by = s.L == LINEAR_T ? t->powers.whole : t->powers.tail;
        UNROLL
        for (int n = 0; n < z::slices; n++) UNROLL
        for (int j = 0; j < TV / 8; j++) UNROLL
        for (int e = 0; e < 4; e++)
            state[n][j][e] = s.through ? linear_pass(state[n][j][e], d[n][j][e], by) : d[n][j][e];
    }

    /* Stores the state's hi and then its lo, so that all warps can read them. */
    __device__ void copy_state(const float (&state)[z::slices][TV / 8][4]) const
    {
        if (16 * warp >= DK) return;
        UNROLL
        for (int n = 0; n < z::slices; n++) UNROLL
        for (int j = 0; j < TV / 8; j++) UNROLL
        for (int i = 0; i < 2; i++) {
            const int row = 16 * warp + 64 * n + lane / 4 + 8 * i;
            bf16 *to = state_copy + row * z::ld_v + 8 * j + lane % 4 * 2;
            float x = state[n][j][2 * i], y = state[n][j][2 * i + 1];
            *(uint32_t *)to = take_bf16(&x, &y);
            *(uint32_t *)(to + z::state) = pack_bf16(x, y);
        }
    }

    /* Calls f(x, y) for each existing element of the warp's part of the state. x is the element in
     * registers, and y is the element in global memory. */
    template <class F> __device__ void each(float (&state)[z::slices][TV / 8][4], const F &f) const
    {
        float *g = linear_state(p);
        if (16 * warp >= DK) return;
        UNROLL
        for (int n = 0; n < z::slices; n++) UNROLL
        for (int j = 0; j < TV / 8; j++) UNROLL
        for (int e = 0; e < 4; e++) {
            const int row = 16 * warp + 64 * n + lane / 4 + e / 2 * 8;
            const int col = 8 * j + lane % 4 * 2 + e % 2;
            if (row < p.key_dim && col < v_cols)
                f(state[n][j][e], g[row * p.value_dim + blockIdx.x * TV + col]);
        }
    }
};

/* The kernel of a walk. If ROWS, computes `out` from the states that enter. Otherwise computes the
 * segment's summary. If STAGES is 2, the next block's k and v are copied while a block is
 * computed. If STAGES is 1, they are copied after the block. If SMALL, a block needs at most
 * SMEM_SMALL. */
template <class T, int DK, int TV, int STAGES, bool SMALL, bool ROWS>
static __global__ void __launch_bounds__(THREADS, DK <= 128 ? 2 : 1) walk_kernel(linear_part p)
{
    if constexpr (SMALL && !smem_is_small) return;
    typedef sizes<DK, TV> z;
    DYNAMIC_SHARED(shared);
    __shared__ walk_tables tables;
    T *const kt = (T *)shared, *const vt = kt + STAGES * z::k, *const qt = vt + STAGES * z::v;
    const int64_t h = p.head + blockIdx.y, e0 = (int64_t)blockIdx.x * TV;
    const int v_cols = p.value_dim - e0 < TV ? (int)(p.value_dim - e0) : TV;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const walk<T, DK, TV, STAGES> w = {p,
                                       linear_blocks_of(p),
                                       h * p.head_keys,
                                       h * p.value_dim + e0,
                                       v_cols,
                                       p.slope[h],
                                       qt,
                                       kt,
                                       vt,
                                       (bf16 *)(qt + z::k),
                                       &tables,
                                       warp,
                                       lane};
    if (ROWS) linear_zero(p, w.blocks, w.v0, v_cols);
    if (w.blocks.n == 0) return;
    float state[z::slices][TV / 8][4] = {};
    linear_fill(&tables.powers, w.slope, p.scale, w.blocks.n_valid);
    if (ROWS) w.start_q(0);
    w.start_kv(0);
    copies_commit();
    if (ROWS && p.states) w.each(state, [](float &mine, float &there) { mine = there; });
    if (ROWS) w.copy_state(state);
    copies_wait<0>();
    __syncthreads();
    for (int i = 0; i < w.blocks.n; i++) {
        const T *ki = kt + i % STAGES * z::k, *vi = vt + i % STAGES * z::v;
        const linear_span s = w.span(i);
        if (STAGES > 1) w.start_kv(i + 1);
        copies_commit();
        if (ROWS) {
            float a[8][4] = {}, o[TV / 8][4] = {};
            w.scores(a, ki);
            if (s.see1 > s.see0) times_state<DK, TV>(o, w.q, 16 * warp, w.state_copy);
            __syncthreads(); /* q and the copy of the state may be overwritten */
            w.start_q(i + 1);
            copies_commit();
            w.mask(a, s, tables.lo[i % 2], p.pos + w.first_row(i));
            w.decay(o, s);
            w.values(o, a, vi);
            if (p.add)
                w.template put_rows<true>(o, s, w.first_row(i));
            else
                w.template put_rows<false>(o, s, w.first_row(i));
        }
        if (!ROWS || i + 1 < w.blocks.n) {
            float d[z::slices][TV / 8][4] = {};
            w.template add<ROWS ? 2 : 3>(d, s, ki, vi);
            w.pass(state, s, d);
            if (ROWS) w.copy_state(state);
        }
        if (STAGES == 1) {
            __syncthreads(); /* k and v are free */
            w.start_kv(i + 1);
            copies_commit();
        }
        copies_wait<0>();
        __syncthreads();
    }
    if (!ROWS) w.each(state, [](float &mine, float &there) { there = mine; });
}

template <int DK, int TV, int STAGES, bool ROWS> static constexpr int walk_smem(void)
{
    typedef sizes<DK, TV> z;
    return 2 * (STAGES * (z::k + z::v) + (ROWS ? z::k + 2 * z::state : 0));
}

template <class T, int DK, int TV, int STAGES, bool SMALL, bool ROWS>
static void run(struct cuda *c, const linear_part &p)
{
    const int smem = walk_smem<DK, TV, STAGES, ROWS>();
    static_assert(!SMALL || smem + sizeof(walk_tables) <= SMEM_SMALL, "it is small");
    auto walk_half = walk_kernel<T, DK, TV, STAGES, SMALL, ROWS>;
    SMEM_ALLOW(c, walk_half, smem, sizeof(walk_tables));
    LAUNCH(c, walk_half,
           dim3((unsigned)div_up(p.value_dim, TV), (unsigned)p.n_heads, (unsigned)p.n_segments),
           dim3(THREADS), (size_t)smem, p);
}

/* Runs the kernel with two stages. If a block has no room for two stages, uses SMALL_TV and
 * SMALL_STAGES. */
template <class T, int DK, int TV, int SMALL_TV, int SMALL_STAGES, bool ROWS>
static void run_either(struct cuda *c, const linear_part &p)
{
    const int smem = walk_smem<DK, TV, 2, ROWS>() + (int)sizeof(walk_tables);
    if constexpr (smem > SMEM_SMALL) {
        if (smem > c->smem_most) {
            run<T, DK, SMALL_TV, SMALL_STAGES, true, ROWS>(c, p);
            return;
        }
    }
    run<T, DK, TV, 2, false, ROWS>(c, p);
}

template <class T, bool ROWS> static void choose(struct cuda *c, const linear_part &p)
{
    const int most = is_f16<T> ? 32 : 64;  /* two terms of each element occupy registers */
    const int least = is_f16<T> ? 64 : 32; /* one shape less to build */
    if (p.key_dim <= least)
        run<T, least, least, 2, false, ROWS>(c, p);
    else if (p.key_dim <= 64)
        run<T, 64, 64, 2, false, ROWS>(c, p);
    else if (p.key_dim <= 128)
        run_either<T, 128, most, 32, 2, ROWS>(c, p);
    else
        run_either<T, 256, 32, 16, 1, ROWS>(c, p);
}

void linear_summary_bf16(struct cuda *c, const linear_part &p)
{
    half_typed(p.k.dtype, [&](auto type) { choose<decltype(type), false>(c, p); });
}

void linear_rows_bf16(struct cuda *c, const linear_part &p)
{
    half_typed(p.q.dtype, [&](auto type) { choose<decltype(type), true>(c, p); });
}

/* ---- the entering state --------------------------------------------------------------------- */

/* Applies M to rows. A block of threads goes over the rows of a segment. It stores its columns of
 * M in shared memory once, as hi + lo. */
template <class T, int DK, int TV>
static __global__ void __launch_bounds__(THREADS) apply_kernel(linear_apply_part p)
{
    typedef sizes<DK, TV> z;
    DYNAMIC_SHARED(shared);
    T *const xt = (T *)shared;
    bf16 *const hi = (bf16 *)(xt + 2 * z::k), *const lo = hi + z::state;
    const int64_t all = p.transposed ? p.cols : p.rows, to = p.transposed ? p.rows : p.cols;
    const int64_t in = all - p.from < DK ? all - p.from : DK; /* inputs of the piece */
    const int64_t h = blockIdx.y, e0 = (int64_t)blockIdx.x * TV;
    const int64_t begin = p.to_end ? p.ends->last : 0;
    const int64_t end = p.to_end ? p.ends->n_valid : p.ends->n_see;
    const int64_t s0 = (int64_t)blockIdx.z * LINEAR_ROWS;
    const int64_t s1 = s0 + LINEAR_ROWS < end ? s0 + LINEAR_ROWS : end;
    /* the first block that has a row of [begin, end) */
    const int64_t b0 = begin > s0 ? begin / LINEAR_T * LINEAR_T : s0;
    const int cols = to - e0 < TV ? (int)(to - e0) : TV, m0 = threadIdx.x / WARP * 16;
    const int lane = threadIdx.x % WARP;
    const double slope = p.slope[h];
    const float *m = p.m + h * p.rows * p.cols + p.from * (p.transposed ? 1 : p.cols);
    auto start = [&](int64_t r0, int stage) {
        if (r0 < s1) fetch<DK>(xt + stage * z::k, p.x, p.wide, r0, s1 - r0, h * all + p.from, in);
        copies_commit();
    };
    if (b0 >= s1) return;
    start(b0, 0);
    for (int i = threadIdx.x; i < DK * TV; i += THREADS) {
        const int d = p.transposed ? i % DK : i / TV, e = p.transposed ? i / DK : i % TV;
        float x = 0;
        if (d < in && e < cols)
            x = p.transposed ? m[(e0 + e) * p.cols + d] : m[d * p.cols + e0 + e];
        put(hi + d * z::ld_v + e, x);
        put(lo + d * z::ld_v + e, x - to_float(hi[d * z::ld_v + e]));
    }
    for (int64_t r0 = b0, stage = 0; r0 < s1; r0 += LINEAR_T, stage = !stage) {
        copies_wait<0>();
        __syncthreads();
        start(r0 + LINEAR_T, !stage);
        float o[TV / 8][4] = {};
        times_state<DK, TV>(o, xt + stage * z::k, m0, hi);
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int64_t row = r0 + m0 + lane / 4 + 8 * i;
            if (row < begin || row >= s1) continue;
            const int64_t distance = p.to_end ? end - row : row;
            const float f = (float)((double)p.scale * linear_power(slope, distance));
            UNROLL
            for (int j = 0; j < TV / 8; j++)
                put_pair(p.out, p.pairs, true, row, h * to + e0, 8 * j + lane % 4 * 2, cols,
                         f * o[j][2 * i], f * o[j][2 * i + 1]);
        }
    }
}

template <class T, int DK, int TV>
static void run_apply(struct cuda *c, const linear_apply_part &p, int64_t n_heads)
{
    typedef sizes<DK, TV> z;
    const int smem = 2 * (2 * z::k + 2 * z::state);
    static_assert(smem <= SMEM_SMALL, "a block of 8.6 has room for it");
    auto apply_half = apply_kernel<T, DK, TV>;
    SMEM_ALLOW(c, apply_half, smem, 0);
    LAUNCH(c, apply_half,
           dim3((unsigned)div_up(p.transposed ? p.rows : p.cols, TV), (unsigned)n_heads,
                (unsigned)div_up(p.n, LINEAR_ROWS)),
           dim3(THREADS), (size_t)smem, p);
}

/* Chooses the kernel for the piece of `in` key columns that begins at p.from. */
template <class T>
static void choose_apply(struct cuda *c, const linear_apply_part &p, int64_t in, int64_t n_heads)
{
    const int least = is_f16<T> ? 64 : 32;
    if (in <= least)
        run_apply<T, least, least>(c, p, n_heads);
    else if (in <= 64)
        run_apply<T, 64, 64>(c, p, n_heads);
    else if (in <= 128)
        run_apply<T, 128, 64>(c, p, n_heads);
    else
        run_apply<T, 256, 16>(c, p, n_heads);
}

void linear_apply_bf16(struct cuda *c, const linear_apply_part &p, int64_t n_heads)
{
    const int64_t in = p.transposed ? p.cols : p.rows;
    linear_apply_part x = p;
    for (x.from = 0; x.from < in; x.from += LINEAR_KEYS) {
        const int64_t n = in - x.from < LINEAR_KEYS ? in - x.from : LINEAR_KEYS;
        half_typed(p.x.dtype, [&](auto type) { choose_apply<decltype(type)>(c, x, n, n_heads); });
    }
}
