/* attn.h: parts that attention forward and backward have in common: the keys that a query sees,
 * dropout's masks, and tiles with their products. In bf16 and fp16, products run on tensor cores.
 * In fp32 products run without tensor cores. Under dropout or a soft cap, products run without
 * tensor cores in every type, because probabilities are then fp32 (kernels/backend.h).
 *
 * A tile is ATTN_T rows of queries or of keys; tiles of keys are counted from key row 0 of the
 * call. Every sum over a tile is a separate chain, which starts from 0 and is then added to the
 * running sum. Rows of a tile are independent, so a row's bits do not depend on the other rows of
 * the tile. If a row sees no key of a tile, it makes no difference to the row's bits whether the
 * tile is skipped, because the tile would multiply the row's sums by 1 and add 0.
 *
 * Kernels are compiled for padded head sizes of 64, 128 and 256, and for 96 unless products are
 * fp16; columns after D are zeros. */
#ifndef SEQD_CUDA_ATTN_H
#define SEQD_CUDA_ATTN_H

#include <float.h>
#include "kernels/cuda/mma.h"
#include "kernels/philox.h"

#define ATTN_T   64
#define ATTN_MAX 256 /* head_dim */
#define LOG2_E   1.4426950408889634

/* ---- a call ---------------------------------------------------------------------------------- */

/* Dropout in the form that kernels use. The member `on` is false if there is no dropout. */
struct attn_rule {
    bool on;
    /* a value is kept if its word is at least `least` */
    uint32_t key[2], layer, sample, head, least;
    int64_t q_pos;
    float kept; /* factor of a kept element */
};

struct attn_call {
    mat q, kv;
    const int64_t *lo, *hi;
    int64_t kv_pos;
    int Tq, Tk, D, Hk, group; /* group: number of query heads that share a KV head */
    float scale, scale2;      /* scale2: scale times log2 e, for use with exp2 */
    /* the soft cap divided by the scale, because it is applied to q k before the scale; 0 means
     * that there is no cap */
    float cap;
    attn_rule drop;
    const int32_t *pages; /* page table of the keys; NULL if there is none */
};

static inline attn_rule attn_rule_of(const struct attn_drop *d)
{
    attn_rule r = {};
    if (!d) return r;
    r.on = true;
    r.key[0] = d->key[0];
    r.key[1] = d->key[1];
    r.layer = d->layer;
    r.sample = d->sample;
    r.head = d->head;
    r.q_pos = d->q_pos;
    r.least = (uint32_t)ceil(d->rate * 4294967296.0);
    r.kept = (float)(1 / (1 - d->rate));
    return r;
}

/* Makes the call from the args of forward or of backward. */
template <class A> static inline attn_call attn_call_of(const A *a)
{
    assert(a->head_dim <= ATTN_MAX && a->q.rows < 1 << 30 && a->kv.rows < 1 << 30);
    attn_call c = {};
    c.q = mat_of(a->q);
    c.kv = mat_of(a->kv);
    c.lo = a->lo;
    c.hi = a->hi;
    c.kv_pos = a->kv_pos;
    c.Tq = (int)a->q.rows;
    c.Tk = (int)a->kv.rows;
    c.D = (int)a->head_dim;
    c.Hk = (int)a->n_kv_heads;
    c.group = (int)(a->n_heads / a->n_kv_heads);
    c.scale = a->scale;
    c.scale2 = (float)((double)a->scale * LOG2_E);
    c.cap = a->cap / a->scale;
    c.drop = attn_rule_of(a->drop);
    return c;
}

/* Calls f with an element of the products' type, which has 16 bits on tensor cores and otherwise
 * is a float. */
template <class F> static inline void attn_typed(const attn_call &c, F f)
{
    if (c.q.dtype == DT_F32 || c.drop.on || c.cap > 0)
        f(float());
    else
        half_typed(c.q.dtype, f);
}

template <int N> struct attn_size {
    static const int value = N;
};
/* Calls f with the padded size for heads of D columns. In fp16, 96 becomes 128, so that fewer
 * kernels are built. */
template <class T, class F> static inline void attn_sized(int64_t D, F f)
{
    if constexpr (!is_f16<T>) {
        if (D > 64 && D <= 96) {
            f(attn_size<96>());
            return;
        }
    }
    if (D <= 64)
        f(attn_size<64>());
    else if (D <= 128)
        f(attn_size<128>());
    else
        f(attn_size<256>());
}

/* ---- the keys that a query sees -------------------------------------------------------------- */

/* A span of key rows [lo, hi) of the call. An empty span has both bounds 0. */
struct alignas(8) attn_span {
    int lo, hi;
};

static __device__ __forceinline__ bool attn_meets(attn_span s, int from, int to)
{
    return s.lo < to && s.hi > from;
}

static __device__ __forceinline__ bool attn_in(attn_span s, int key)
{
    return key >= s.lo && key < s.hi;
}

/* Returns the keys that query row `row` sees. A row after the last one sees none. */
static __device__ __forceinline__ attn_span attn_row(const attn_call &c, int row)
{
    if (row >= c.Tq) return {0, 0};
    int64_t lo = c.lo[row] - c.kv_pos, hi = c.hi[row] - c.kv_pos;
    lo = lo < 0 ? 0 : lo;
    hi = hi > c.Tk ? c.Tk : hi;
    if (lo >= hi) return {0, 0};
    return {(int)lo, (int)hi};
}

/* Returns the maximum to store for row `row`. If all scores of the row were -inf, its sum is 0
 * although the row saw a key. Its m must then differ from the m of a row that saw no key. */
static __device__ __forceinline__ float attn_seen(const attn_call &c, int row, float m, float l)
{
    return l == 0 && m == -INFINITY && attn_row(c, row).hi ? -FLT_MAX : m;
}

/* Returns the smallest interval that contains every key that some row of [i0, i0 + n) sees. A
 * whole warp calls this function. */
static __device__ __forceinline__ attn_span attn_hull(const attn_call &c, int i0, int n)
{
    int lo = 1 << 30, hi = 0;
    for (int i = threadIdx.x % WARP; i < n; i += WARP) {
        const attn_span s = attn_row(c, i0 + i);
        if (s.hi && s.lo < lo) lo = s.lo;
        if (s.hi > hi) hi = s.hi;
    }
    UNROLL
    for (int d = WARP / 2; d; d /= 2) {
        const int l = __shfl_xor_sync(FULL, lo, d), h = __shfl_xor_sync(FULL, hi, d);
        lo = l < lo ? l : lo;
        hi = h > hi ? h : hi;
    }
    if (!hi) lo = 0;
    return {lo, hi};
}

/* Dropout of one tile, whose keys begin at global index `key`. Philox gives four words at a time,
 * one for each key of a quad. So keep[query][quad] has one bit for each key of the quad. */
#define ATTN_QUADS (ATTN_T / 4 + 1) /* one more, because the first key may be inside a quad */
typedef uint8_t attn_keep[ATTN_T][ATTN_QUADS + 3];

template <int THREADS>
static __device__ __forceinline__ void attn_keep_make(attn_keep &keep, const attn_rule &d, int head,
                                                      int64_t row, int64_t key)
{
    for (int i = threadIdx.x; i < ATTN_T * ATTN_QUADS; i += THREADS) {
        const int r = i / ATTN_QUADS, q = i % ATTN_QUADS;
        const uint32_t counter[4] = {(uint32_t)(d.q_pos + row + r), (uint32_t)(key / 4 + q),
                                     d.layer << 16 | (d.head + (uint32_t)head), d.sample};
        uint32_t word[4];
        philox4x32(d.key, counter, word);
        unsigned bits = 0;
        UNROLL
        for (int w = 0; w < 4; w++) bits |= (word[w] >= d.least ? 1u : 0u) << w;
        keep[r][q] = (uint8_t)bits;
    }
}
/* Returns dropout's factor for key row t of the tile. */
static __device__ __forceinline__ float attn_factor(const attn_keep &keep, const attn_rule &d,
                                                    int query, int64_t key, int t)
{
    const int at = (int)(key % 4) + t;
    return keep[query][at / 4] >> at % 4 & 1 ? d.kept : 0;
}

/* ---- tiles of 16-bit elements ---------------------------------------------------------------- */

/* Probabilities are multiplied by 2^RAISED before they are rounded, because the smallest number of
 * fp16 is 2^-24. Without the factor, a million small probabilities would be lost from a sum that
 * also has a large probability. 2^15 is the largest factor that fits, because p is at most 1. bf16
 * has the range of fp32, so it needs no factor. */
template <class T> static constexpr int attn_raised = is_f16<T> ? 15 : 0;

/* The distance, in elements, from one row to the next row in shared memory. With this distance,
 * the 16-byte pieces that eight neighbouring rows have for equal columns are in different
 * banks. */
template <int DP> struct attn_ld {
    static const int value = DP + 8;
};

/* Loads N rows of a head's D columns, from row r0 on. x points to row 0 of the head's first
 * column. Rows after the last one become 0. aligned means that rows begin at multiples of 16 bytes
 * and D is a whole number of packs. With AGAIN, each call computes the addresses again, so that
 * they occupy no registers between calls. */
template <int DP, int N, int THREADS, bool AGAIN = false, class T>
static __device__ __forceinline__ void attn_fetch(T *to, const T *x, int64_t ld, int r0, int n_rows,
                                                  int D, bool aligned)
{
    const int LD = attn_ld<DP>::value;
    if (aligned) {
        const int zero = AGAIN ? made_again(0) : 0;
        share_out<N *(DP / 8), THREADS>([&](int at) {
            const int i = at + zero, r = i / (DP / 8), c = i % (DP / 8) * 8;
            const bool there = r0 + r < n_rows && c < D;
            copy16_async(to + r * LD + c, there ? x + (r0 + r) * ld + c : x, there ? 16 : 0);
        });
        return;
    }
    for (int i = threadIdx.x; i < N * DP; i += THREADS) {
        const int r = i / DP, c = i % DP;
        to[r * LD + c] = r0 + r < n_rows && c < D ? x[(r0 + r) * ld + c] : T{0};
    }
}

/* Loads A's fragment of rows [0, 16) of s and K [k, k + 16). */
template <int DP, class T>
static __device__ __forceinline__ void attn_a(uint32_t (&a)[4], const T *s, int k)
{
    const int lane = threadIdx.x % WARP;
    ldmatrix4<false>(a, s + lane % 16 * attn_ld<DP>::value + lane / 16 * 8, k);
}
/* Loads two of B's fragments, of 8 columns each: columns [n, n + 16). If TURNED, B(k, n) is
 * s[n][k], otherwise s[k][n]. */
template <int DP, bool TURNED, class T>
static __device__ __forceinline__ void attn_b(uint32_t (&b)[2][2], const T *s, int n, int k)
{
    const int lane = threadIdx.x % WARP, LD = attn_ld<DP>::value;
    uint32_t x[4];
    if (TURNED)
        ldmatrix4<false>(x, s + (lane / 16 * 8 + lane % 8) * LD + lane / 8 % 2 * 8, n * LD + k);
    else
        ldmatrix4<true>(x, s + lane % 16 * LD + lane / 16 * 8, k * LD + n);
    b[0][0] = x[0];
    b[0][1] = x[1];
    b[1][0] = x[2];
    b[1][1] = x[3];
}

/* ATTN_N is the number of fragments, of 8 columns each, of the products of a warp's 16 rows with
 * ATTN_T rows. A lane's x[n][e] is the product in row lane / 4 + e / 2 * 8 and column 8 n + lane %
 * 4 * 2 + e % 2. */
#define ATTN_N (ATTN_T / 8)

/* Tells how the rows of a warp see a tile. SEES_NONE means that no row sees a key, SEES_SOME that
 * some rows see some keys, and SEES_ALL that every row sees every key. */
enum attn_view { SEES_NONE, SEES_SOME, SEES_ALL };

/* The keys that a warp's queries see. `some` has the keys that any of the queries sees; every
 * query sees all keys in `all`. */
struct attn_bounds {
    attn_span some, all;
};
static __device__ __forceinline__ attn_bounds attn_bounds_of(const attn_call &c, int row, int n)
{
    int lo = 0, hi = c.Tk;
    for (int i = threadIdx.x % WARP; i < n; i += WARP) {
        const attn_span s = attn_row(c, row + i);
        lo = s.lo > lo ? s.lo : lo;
        hi = s.hi < hi ? s.hi : hi;
    }
    UNROLL
    for (int d = WARP / 2; d; d /= 2) {
        const int l = __shfl_xor_sync(FULL, lo, d), h = __shfl_xor_sync(FULL, hi, d);
        lo = l > lo ? l : lo;
        hi = h < hi ? h : hi;
    }
    return {attn_hull(c, row, n), {lo, hi}};
}
/* Tells how the queries see the keys of the tile that begins at k0. */
static __device__ __forceinline__ attn_view attn_view_of(const attn_bounds &b, int k0)
{
    if (!attn_meets(b.some, k0, k0 + ATTN_T)) return SEES_NONE;
    return b.all.lo <= k0 && b.all.hi >= k0 + ATTN_T ? SEES_ALL : SEES_SOME;
}

/* Sets the scores of keys that a row does not see to -inf. Rows are queries, from `row` on, and
 * columns are keys, from k0 on. */
static __device__ __forceinline__ void attn_mask(float (&s)[ATTN_N][4], const attn_call &c, int row,
                                                 int k0)
{
    const int lane = threadIdx.x % WARP, at = k0 + lane % 4 * 2;
    const attn_span rows[2] = {attn_row(c, row + lane / 4), attn_row(c, row + lane / 4 + 8)};
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++)
        if (!attn_in(rows[e / 2], at + 8 * n + e % 2)) s[n][e] = -INFINITY;
}

/* Rounds the probabilities to T, in the form of operand A of the next product. */
template <class T>
static __device__ __forceinline__ void attn_round(uint32_t (&a)[ATTN_T / 16][4],
                                                  const float (&x)[ATTN_N][4])
{
    UNROLL
    for (int k = 0; k < ATTN_T / 16; k++) UNROLL
    for (int i = 0; i < 4; i++)
        a[k][i] = pack_pair<T>(x[2 * k + i / 2][i % 2 * 2], x[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* attn_get reads a warp's 16 rows x N columns of an fp32 tensor, from (row, col) on, in the order
 * of products. attn_put writes them. An element past n_rows or n_cols is read as 0 and is not
 * written. */
template <int N>
static __device__ __forceinline__ void attn_get(float (&to)[N / 8][4], const float *x, int64_t ld,
                                                int row, int n_rows, int col, int n_cols)
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int n = 0; n < N / 8; n++) UNROLL
    for (int e = 0; e < 4; e++) {
        const int r = row + lane / 4 + e / 2 * 8, c = col + 8 * n + lane % 4 * 2 + e % 2;
        to[n][e] = r < n_rows && c < n_cols ? x[r * ld + c] : 0;
    }
}
template <int N>
static __device__ __forceinline__ void attn_put(const float (&from)[N / 8][4], float *x, int64_t ld,
                                                int row, int n_rows, int col, int n_cols)
{
    const int lane = threadIdx.x % WARP;
    UNROLL
    for (int n = 0; n < N / 8; n++) UNROLL
    for (int e = 0; e < 4; e++) {
        const int r = row + lane / 4 + e / 2 * 8, c = col + 8 * n + lane % 4 * 2 + e % 2;
        if (r < n_rows && c < n_cols) x[r * ld + c] = from[n][e];
    }
}

/* Returns exp2 with an error of at most 2^-22, or 0 if the result is below the smallest normal
 * number. This is enough for results that are rounded to 16 bits. */
static __device__ __forceinline__ float attn_exp2(float x)
{
#ifdef SEQD_EMU
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- tiles of fp32 --------------------------------------------------------------------------- */

/* A block of 16 x 16 threads computes a pair of tiles. Each thread has 4 x 4 products, in rows ty
 * + 16 i and columns tx + 16 j. Head columns pass through shared memory in slices, so that a
 * block's memory does not grow with D. */
#define F32_THREADS 256
#define F32_SLICE   32
#define F32_EACH    4

typedef float f32_slice[ATTN_T][F32_SLICE + 4];
typedef float f32_tile[ATTN_T][ATTN_T + 16]; /* two rows of a warp are in different banks */

/* Loads columns [c, c + F32_SLICE) of ATTN_T rows, from r0 on. x's column `col` is the first
 * column of the head. */
static __device__ __forceinline__ void f32_fetch(f32_slice &to, const mat &x, int r0, int n_rows,
                                                 int64_t col, int c, int D, bool aligned)
{
    share_out<ATTN_T * F32_SLICE / 4, F32_THREADS>([&](int i) {
        const int r = i / (F32_SLICE / 4), at = i % (F32_SLICE / 4) * 4;
        const bool row = r0 + r < n_rows;
        float v[4] = {};
        if (aligned) {
            if (row && c + at < D) load(x, r0 + r, col + c + at, v);
        } else {
            UNROLL
            for (int e = 0; e < 4; e++)
                if (row && c + at + e < D) v[e] = get(x, r0 + r, col + c + at + e);
        }
        store(&to[r][at], v);
    });
}

/* Adds the products of a slice of n columns: d[i][j] += a[row i] b[row j]. */
static __device__ __forceinline__ void f32_dot(float (&d)[F32_EACH][F32_EACH], const f32_slice &a,
                                               const f32_slice &b, int n)
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int k = 0; k < n; k += 4) {
        float x[F32_EACH][4], y[F32_EACH][4];
        UNROLL
        for (int i = 0; i < F32_EACH; i++) load(&a[ty + 16 * i][k], x[i]);
        UNROLL
        for (int j = 0; j < F32_EACH; j++) load(&b[tx + 16 * j][k], y[j]);
        UNROLL
        for (int i = 0; i < F32_EACH; i++) UNROLL
        for (int j = 0; j < F32_EACH; j++) UNROLL
        for (int e = 0; e < 4; e++) d[i][j] = fmaf(x[i][e], y[j][e], d[i][j]);
    }
}

/* Sets part[i][e] = sum over k of w[row i][k] b[k][2 tx + e]. */
static __device__ __forceinline__ void f32_mix(float (&part)[F32_EACH][2], const f32_tile &w,
                                               const f32_slice &b)
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    UNROLL
    for (int i = 0; i < F32_EACH; i++) part[i][0] = part[i][1] = 0;
    for (int k = 0; k < ATTN_T; k += 4) {
        float x[F32_EACH][4];
        UNROLL
        for (int i = 0; i < F32_EACH; i++) load(&w[ty + 16 * i][k], x[i]);
        UNROLL
        for (int e = 0; e < 4; e++) {
            float y[2];
            load(&b[k + e][2 * tx], y);
            UNROLL
            for (int i = 0; i < F32_EACH; i++) {
                part[i][0] = fmaf(x[i][e], y[0], part[i][0]);
                part[i][1] = fmaf(x[i][e], y[1], part[i][1]);
            }
        }
    }
}

/* A thread's part of ATTN_T rows x DP columns, as [slice][row i][e]. The column of an element is
 * 32 slice + 2 tx + e. */
template <int DP> struct f32_acc {
    static const int slices = DP / F32_SLICE;
    float x[slices][F32_EACH][2];
};
template <int DP>
static __device__ __forceinline__ void f32_get(f32_acc<DP> &to, const float *x, int64_t ld, int r0,
                                               int n_rows, int D)
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    UNROLL
    for (int s = 0; s < f32_acc<DP>::slices; s++) UNROLL
    for (int i = 0; i < F32_EACH; i++) UNROLL
    for (int e = 0; e < 2; e++) {
        const int r = r0 + ty + 16 * i, c = F32_SLICE * s + 2 * tx + e;
        to.x[s][i][e] = r < n_rows && c < D ? x[r * ld + c] : 0;
    }
}
template <int DP>
static __device__ __forceinline__ void f32_put(const f32_acc<DP> &from, float *x, int64_t ld,
                                               int r0, int n_rows, int D)
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    UNROLL
    for (int s = 0; s < f32_acc<DP>::slices; s++) UNROLL
    for (int i = 0; i < F32_EACH; i++) UNROLL
    for (int e = 0; e < 2; e++) {
        const int r = r0 + ty + 16 * i, c = F32_SLICE * s + 2 * tx + e;
        if (r < n_rows && c < D) x[r * ld + c] = from.x[s][i][e];
    }
}

/* Tells whether any of ATTN_T queries sees one of keys [k0, k0 + ATTN_T). rows has, on each lane
 * of the warp, the intervals of two of the queries. */
static __device__ __forceinline__ bool attn_anybody(const attn_span (&rows)[2], int k0)
{
    return __any_sync(FULL, attn_meets(rows[0], k0, k0 + ATTN_T) ||
                                attn_meets(rows[1], k0, k0 + ATTN_T)) != 0;
}

#endif
