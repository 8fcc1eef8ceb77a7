/* attn_bwd.cu: softmax attention backward (2205.14135, algorithm 4), without atomics. The first
 * kernel (dkv) has a block for each tile of keys and computes dk and dv. The second kernel (dq)
 * has a block for each tile of queries and computes dq. Both kernels compute scores and dP again.
 * A block owns rows and walks over tiles of other rows, in ascending order:
 *
 *        owned rows              walked rows
 *   dkv  k and v of a KV head    q and dO of the group's heads, one head after the other
 *   dq   q and dO of a head      k and v
 *
 * The two kernels compute s = owned[0] walked[0]' and dP = owned[1] walked[1]'.
 *
 * The speed is limited by the following counts, for each head and each pair of a query and a key
 * that it sees:
 *   flops   14 D, which are 8 D in dkv and 6 D in dq. One kernel with atomics would have 10 D.
 *           For heads of 256 there are 22 D, because two warps each compute the same s and dP
 *   bytes   dkv reads 4 D of q and dO (16 bits) for each query and 128 keys, so L2 delivers one
 *           byte for 256 flops. In dq it delivers one byte for 192 flops
 *   16 bits a block has 8 warps of 16 owned rows, and a multiprocessor has one block. The block's
 *           shared memory is 74 KiB at D = 64 (where registers leave no room for a second block),
 *           138 at 128 and 133 at 256. On 8.6 a block has fewer rows, and 93 KiB at 96, 86 at 128
 *           and 84 at 256. A thread has up to 255 registers. Shared memory is the limit. For s
 *           and dP, reading shared memory takes 40 cycles and the tensor cores take 32. For the
 *           later products the two take equally long
 *   fp32    77 KiB of shared memory, and two blocks of 8 warps if registers allow. Multiply-adds
 *           are the limit */
#include "kernels/cuda/attn_bwd.h"
#include "kernels/cuda/hopper.h"

/* Finds the keys that each tile of queries sees. Each block is one warp and does one tile. */
static __global__ void attn_spans(bwd_call b)
{
    const attn_span s = attn_hull(b.c, (int)blockIdx.x * ATTN_T, ATTN_T);
    if (threadIdx.x == 0) b.spans[blockIdx.x] = s;
}

/* ---- 16 bits: tensor cores ------------------------------------------------------------------- */

/* A block has 8 warps, each with 16 owned rows. Heads of 256 leave room for 64 owned rows and one
 * buffer of walked rows; two warps then have the same rows, and each computes half of the result's
 * columns. With SMALL, the block needs at most SMEM_SMALL. It then has 6 warps or, for heads above
 * 128, four warps that have the same 16 rows. */
template <int DP, bool SMALL> struct bwd_shape {
    static const int warps = !SMALL ? 8 : DP > 128 ? 4 : 6;
    /* number of warps that have the same rows */
    static const int beside = DP <= 128 ? 1 : SMALL ? 4 : 2;
    static const int stages = DP > (SMALL ? 96 : 128) ? 1 : 2;
    static const int threads = warps * WARP, rows = warps / beside * 16, cols = DP / beside;
    static const int ld = attn_ld<DP>::value, own = rows * ld, tile = ATTN_T * ld;
    static const int queries = 2 * (own + stages * tile) * 2; /* offset of the queries' numbers */
    static const int smem = queries + stages * (int)sizeof(bwd_queries);
    static_assert(!SMALL || smem <= SMEM_SMALL, "it is small");
};

/* The shared memory of both kernels. */
template <class T, int DP, bool SMALL> struct bwd_room {
    T *own[2], *tile[2]; /* tile: stage s is at bwd_shape::tile * 2 s */
    bwd_queries *queries;
};
template <class T, int DP, bool SMALL>
static __device__ __forceinline__ bwd_room<T, DP, SMALL> bwd_room_of(char *shared)
{
    typedef bwd_shape<DP, SMALL> sh;
    T *const own = (T *)shared, *const tile = own + 2 * sh::own;
    return {{own, own + sh::own}, {tile, tile + sh::tile}, (bwd_queries *)(shared + sh::queries)};
}

/* Computes s and dP of a warp's rows and the rows of the tile. own0 and own1 point to the warp's
 * rows. */
template <int DP, class T>
static __device__ __forceinline__ void bwd_products(float (&s)[ATTN_N][4], float (&dp)[ATTN_N][4],
                                                    const T *own0, const T *own1, const T *tile0,
                                                    const T *tile1)
{
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++) s[n][e] = dp[n][e] = 0;
    UNROLL
    for (int k = 0; k < DP; k += 16) {
        uint32_t a0[4], a1[4];
        attn_a<DP>(a0, own0, k);
        attn_a<DP>(a1, own1, k);
        UNROLL
        for (int n = 0; n < ATTN_T; n += 16) {
            uint32_t b0[2][2], b1[2][2];
            attn_b<DP, true>(b0, tile0, n, k);
            attn_b<DP, true>(b1, tile1, n, k);
            UNROLL
            for (int j = 0; j < 2; j++) {
                mma<T>(s[n / 8 + j], a0, b0[j]);
                mma<T>(dp[n / 8 + j], a1, b1[j]);
            }
        }
    }
}

/* Computes acc += k (w tile). The product w tile is first summed separately. tile points to the
 * warp's first column. */
template <int DP, int COLS, class T>
static __device__ __forceinline__ void
bwd_add(float (&acc)[COLS / 8][4], const uint32_t (&w)[ATTN_T / 16][4], const T *tile, float k)
{
    UNROLL
    for (int n = 0; n < COLS; n += 16) {
        float part[2][4] = {};
        UNROLL
        for (int kk = 0; kk < ATTN_T; kk += 16) {
            uint32_t b[2][2];
            attn_b<DP, false>(b, tile, n, kk);
            mma<T>(part[0], w[kk / 16], b[0]);
            mma<T>(part[1], w[kk / 16], b[1]);
        }
        UNROLL
        for (int j = 0; j < 2; j++) UNROLL
        for (int e = 0; e < 4; e++) acc[n / 8 + j][e] = fmaf(part[j][e], k, acc[n / 8 + j][e]);
    }
}

/* Return the first row and the first column that a warp computes in its block. */
template <class SH> static __device__ __forceinline__ int bwd_warp_row(void)
{
    return (int)threadIdx.x / WARP / SH::beside * 16;
}
template <class SH> static __device__ __forceinline__ int bwd_warp_col(void)
{
    return (int)threadIdx.x / WARP % SH::beside * SH::cols;
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

/* Starts copying q and dO of the walked tile. */
template <class T, int DP, bool SMALL>
static __device__ __forceinline__ void dkv_fetch(const bwd_room<T, DP, SMALL> &room,
                                                 const bwd_call &b, const bwd_walk &w, int stage)
{
    typedef bwd_shape<DP, SMALL> sh;
    const mat from[2] = {b.c.q, b.d_o};
    UNROLL
    for (int i = 0; i < 2; i++)
        attn_fetch<DP, ATTN_T, sh::threads>(room.tile[i] + stage * 2 * sh::tile,
                                            (const T *)from[i].data + (int64_t)w.head * b.c.D,
                                            from[i].ld, w.tile * ATTN_T, b.c.Tq, b.c.D, b.aligned);
}
/* One thread's row of a tile, with the row's lse and delta and the keys that it sees. The values
 * are loaded early, and are stored when their place is free. */
struct bwd_loaded {
    bwd_stat stat;
    attn_span sees;
};
template <int RAISED>
static __device__ __forceinline__ bwd_loaded dkv_produce(const bwd_call &b, const bwd_walk &w)
{
    const int row = w.tile * ATTN_T + (int)threadIdx.x;
    if (threadIdx.x >= ATTN_T || w.head >= w.last) return {};
    return {bwd_stat_of<RAISED>(b, w.head, row), attn_row(b.c, row)};
}
static __device__ __forceinline__ void dkv_put_down(bwd_queries *to, const bwd_loaded &x)
{
    if (threadIdx.x >= ATTN_T) return;
    to->stat[threadIdx.x] = x.stat;
    to->sees[threadIdx.x] = x.sees;
}

/* Tells how the queries of a tile see keys [k0, k0 + 16). */
static __device__ __forceinline__ attn_view dkv_view(const bwd_queries *q, int k0)
{
    bool mine = false, whole = true;
    UNROLL
    for (int i = threadIdx.x % WARP; i < ATTN_T; i += WARP) {
        const attn_span s = q->sees[i];
        mine |= attn_meets(s, k0, k0 + 16);
        whole &= s.lo <= k0 && s.hi >= k0 + 16;
    }
    if (!__any_sync(FULL, mine)) return SEES_NONE;
    return __any_sync(FULL, !whole) ? SEES_SOME : SEES_ALL;
}

/* Sets scores that queries do not see to -inf. A warp's rows are keys, from k0 on, and its columns
 * are queries. */
static __device__ __forceinline__ void dkv_mask(float (&s)[ATTN_N][4], const bwd_queries *q, int k0)
{
    const int key = k0 + threadIdx.x % WARP / 4, at = threadIdx.x % 4 * 2;
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++) {
        const attn_span sees = q->sees[8 * n + at + e % 2];
        if (!attn_in(sees, key + e / 2 * 8)) s[n][e] = -INFINITY;
    }
}
template <int RAISED>
static __device__ __forceinline__ void dkv_softmax(float (&s)[ATTN_N][4], float (&dp)[ATTN_N][4],
                                                   const bwd_queries *q, float scale2)
{
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++)
        bwd_one<RAISED>(&s[n][e], &dp[n][e], scale2, q->stat[8 * n + threadIdx.x % 4 * 2 + e % 2]);
}

template <class T, int DP, bool SMALL>
static __global__ void __launch_bounds__(bwd_shape<DP, SMALL>::threads, 1) attn_dkv_half(bwd_call b)
{
    if constexpr (SMALL && !smem_is_small) return;
    typedef bwd_shape<DP, SMALL> sh;
    DYNAMIC_SHARED(shared);
    const bwd_room<T, DP, SMALL> room = bwd_room_of<T, DP, SMALL>(shared);
    const attn_call &c = b.c;
    const int g = (int)blockIdx.y, k0 = (int)blockIdx.x * sh::rows;
    const int own = bwd_warp_row<sh>(), col = bwd_warp_col<sh>();
    bwd_walk w = {g * c.group, (g + 1) * c.group, 0, k0, k0 + sh::rows};
    bwd_seek(&w, b);
    if (w.head == w.last) return; /* the whole block returns */
    const int64_t k_col = (int64_t)g * c.D, v_col = k_col + (int64_t)c.Hk * c.D;
    const T *kv = (const T *)c.kv.data;
    attn_fetch<DP, sh::rows, sh::threads>(room.own[0], kv + k_col, c.kv.ld, k0, c.Tk, c.D,
                                          b.aligned);
    attn_fetch<DP, sh::rows, sh::threads>(room.own[1], kv + v_col, c.kv.ld, k0, c.Tk, c.D,
                                          b.aligned);
    dkv_fetch(room, b, w, 0);
    copies_commit();
    dkv_put_down(room.queries, dkv_produce<attn_raised<T>>(b, w));
    float dk[sh::cols / 8][4], dv[sh::cols / 8][4];
    attn_get<sh::cols>(dk, b.dkv + k_col, b.dkv_ld, k0 + own, c.Tk, col, c.D);
    attn_get<sh::cols>(dv, b.dkv + v_col, b.dkv_ld, k0 + own, c.Tk, col, c.D);
    for (int stage = 0; w.head < w.last; stage = sh::stages - 1 - stage) {
        const int other = sh::stages - 1 - stage;
        const T *q = room.tile[0] + stage * 2 * sh::tile,
                *d_o = room.tile[1] + stage * 2 * sh::tile;
        const bwd_queries *queries = room.queries + stage;
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and the previous one has been read */
        w.tile++;
        bwd_seek(&w, b);
        if (sh::stages > 1 && w.head < w.last) dkv_fetch(room, b, w, other);
        copies_commit();
        const bwd_loaded next = dkv_produce<attn_raised<T>>(b, w);
        const attn_view view = dkv_view(queries, k0 + own);
        if (view != SEES_NONE) {
            float s[ATTN_N][4], dp[ATTN_N][4];
            uint32_t a[ATTN_T / 16][4];
            bwd_products<DP>(s, dp, room.own[0] + own * sh::ld, room.own[1] + own * sh::ld, q, d_o);
            if (view == SEES_SOME) dkv_mask(s, queries, k0 + own);
            dkv_softmax<attn_raised<T>>(s, dp, queries, c.scale2);
            attn_round<T>(a, s);
            bwd_add<DP, sh::cols>(dv, a, d_o + col, bwd_lowered<attn_raised<T>>);
            attn_round<T>(a, dp);
            bwd_add<DP, sh::cols>(dk, a, q + col, c.scale);
        }
        if (sh::stages == 1) __syncthreads(); /* the tile is read */
        if (sh::stages == 1 && w.head < w.last) dkv_fetch(room, b, w, other);
        copies_commit();
        dkv_put_down(room.queries + other, next);
    }
    attn_put<sh::cols>(dk, b.dkv + k_col, b.dkv_ld, k0 + own, c.Tk, col, c.D);
    attn_put<sh::cols>(dv, b.dkv + v_col, b.dkv_ld, k0 + own, c.Tk, col, c.D);
}

/* ---- dq -------------------------------------------------------------------------------------- */

template <class T, int DP, bool SMALL>
static __device__ __forceinline__ void dq_fetch(const bwd_room<T, DP, SMALL> &room,
                                                const bwd_call &b, int64_t g, int k0, int stage)
{
    typedef bwd_shape<DP, SMALL> sh;
    UNROLL
    for (int i = 0; i < 2; i++)
        attn_fetch<DP, ATTN_T, sh::threads, true>(room.tile[i] + stage * 2 * sh::tile,
                                                  (const T *)b.c.kv.data +
                                                      (i * (int64_t)b.c.Hk + g) * b.c.D,
                                                  b.c.kv.ld, k0, b.c.Tk, b.c.D, b.aligned);
}

template <class T, int DP, bool SMALL>
static __global__ void __launch_bounds__(bwd_shape<DP, SMALL>::threads, 1) attn_dq_half(bwd_call b)
{
    if constexpr (SMALL && !smem_is_small) return;
    typedef bwd_shape<DP, SMALL> sh;
    DYNAMIC_SHARED(shared);
    const bwd_room<T, DP, SMALL> room = bwd_room_of<T, DP, SMALL>(shared);
    const attn_call &c = b.c;
    const int64_t head = blockIdx.y, g = head / c.group;
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * sh::rows;
    const int own = bwd_warp_row<sh>(), col = bwd_warp_col<sh>();
    const attn_span hull = attn_hull(c, i0, sh::rows);
    if (!hull.hi) return; /* the whole block returns */
    int k0 = hull.lo / ATTN_T * ATTN_T;
    attn_fetch<DP, sh::rows, sh::threads>(room.own[0], (const T *)c.q.data + head * c.D, c.q.ld, i0,
                                          c.Tq, c.D, b.aligned);
    attn_fetch<DP, sh::rows, sh::threads>(room.own[1], (const T *)b.d_o.data + head * c.D, b.d_o.ld,
                                          i0, c.Tq, c.D, b.aligned);
    dq_fetch(room, b, g, k0, 0);
    copies_commit();
    const int row = i0 + own + (int)threadIdx.x % WARP / 4;
    const bwd_stat stat[2] = {bwd_stat_of<attn_raised<T>>(b, head, row),
                              bwd_stat_of<attn_raised<T>>(b, head, row + 8)};
    const attn_bounds bounds = attn_bounds_of(c, i0 + own, 16);
    float dq[sh::cols / 8][4];
    attn_get<sh::cols>(dq, b.dq + head * c.D, b.dq_ld, i0 + own, c.Tq, col, c.D);
    for (int stage = 0; k0 < hull.hi; k0 += ATTN_T, stage = sh::stages - 1 - stage) {
        const int other = sh::stages - 1 - stage;
        const T *k = room.tile[0] + stage * 2 * sh::tile, *v = room.tile[1] + stage * 2 * sh::tile;
        const attn_view view = attn_view_of(bounds, k0);
        copies_wait<0>();
        __syncthreads(); /* this tile has arrived, and the previous one has been read */
        if (sh::stages > 1 && k0 + ATTN_T < hull.hi) dq_fetch(room, b, g, k0 + ATTN_T, other);
        copies_commit();
        if (view != SEES_NONE) {
            float s[ATTN_N][4], dp[ATTN_N][4];
            uint32_t a[ATTN_T / 16][4];
            bwd_products<DP>(s, dp, room.own[0] + own * sh::ld, room.own[1] + own * sh::ld, k, v);
            if (view == SEES_SOME) attn_mask(s, c, i0 + own, k0);
            UNROLL
            for (int n = 0; n < ATTN_N; n++) UNROLL
            for (int e = 0; e < 4; e++)
                bwd_one<attn_raised<T>>(&s[n][e], &dp[n][e], c.scale2, stat[e / 2]);
            attn_round<T>(a, dp);
            bwd_add<DP, sh::cols>(dq, a, k + col, c.scale);
        }
        if (sh::stages == 1) __syncthreads(); /* the tile is read */
        if (sh::stages == 1 && k0 + ATTN_T < hull.hi) dq_fetch(room, b, g, k0 + ATTN_T, other);
        copies_commit();
    }
    attn_put<sh::cols>(dq, b.dq + head * c.D, b.dq_ld, i0 + own, c.Tq, col, c.D);
}

/* ---- fp32, and 16 bits under dropout or a soft cap ------------------------------------------- */

struct bwd_f32_room {
    f32_slice own[2], tile[2];
    f32_tile p, ds;
    attn_keep keep;
};

/* A tile of a tensor, with the rows from r0 on and a head's columns from col on. The tensor has n
 * rows. */
struct f32_rows {
    mat x;
    int r0, n;
    int64_t col;
};

/* Computes s and dP of a pair of tiles. */
static __device__ __forceinline__ void f32_products(bwd_f32_room *room, const bwd_call &b,
                                                    const f32_rows (&own)[2],
                                                    const f32_rows (&tile)[2],
                                                    float (&s)[F32_EACH][F32_EACH],
                                                    float (&dp)[F32_EACH][F32_EACH])
{
    const int D = b.c.D;
    for (int d = 0; d < D; d += F32_SLICE) {
        const int n = D - d < F32_SLICE ? D - d : F32_SLICE;
        UNROLL
        for (int i = 0; i < 2; i++) {
            f32_fetch(room->own[i], own[i].x, own[i].r0, own[i].n, own[i].col, d, D, b.aligned);
            f32_fetch(room->tile[i], tile[i].x, tile[i].r0, tile[i].n, tile[i].col, d, D,
                      b.aligned);
        }
        __syncthreads();
        f32_dot(s, room->own[0], room->tile[0], n);
        f32_dot(dp, room->own[1], room->tile[1], n);
        __syncthreads();
    }
}

/* Sets element (r, t) of the tiles p and ds. Dropout masks dP before delta is subtracted, and
 * masks the probabilities for dv; ds is computed from probabilities that are not masked. Under a
 * soft cap, ds is the gradient of the score before the cap. */
static __device__ __forceinline__ void f32_one(bwd_f32_room *room, const attn_call &c,
                                               const bwd_stat &q, int r, int t, bool seen, float s,
                                               float dp, float factor)
{
    const float y = c.cap > 0 ? tanhf(s / c.cap) : 0;
    if (c.cap > 0) s = c.cap * y;
    const float p = seen ? exp2f(fmaf(s, c.scale2, -q.lse)) : 0, ds = p * (dp * factor - q.delta);
    room->p[r][t] = p * factor;
    room->ds[r][t] = c.cap > 0 ? ds * (1 - y * y) : ds;
}

/* Computes acc += k (w x), slice by slice. The product w x is first summed separately. */
template <int DP>
static __device__ __forceinline__ void f32_add(f32_acc<DP> &acc, const f32_tile &w,
                                               f32_slice &slice, const f32_rows &x, int D,
                                               bool aligned, float k)
{
    UNROLL
    for (int d = 0; d < f32_acc<DP>::slices; d++) {
        if (d * F32_SLICE >= D) break;
        float part[F32_EACH][2];
        f32_fetch(slice, x.x, x.r0, x.n, x.col, d * F32_SLICE, D, aligned);
        __syncthreads();
        f32_mix(part, w, slice);
        UNROLL
        for (int i = 0; i < F32_EACH; i++) UNROLL
        for (int e = 0; e < 2; e++) acc.x[d][i][e] = fmaf(part[i][e], k, acc.x[d][i][e]);
        __syncthreads();
    }
}

template <int DP>
static __global__ void __launch_bounds__(F32_THREADS, DP > 64 ? 1 : 2) attn_dkv_f32(bwd_call b)
{
    DYNAMIC_SHARED(shared);
    bwd_f32_room *const room = (bwd_f32_room *)shared;
    const attn_call &c = b.c;
    const int g = (int)blockIdx.y, k0 = (int)blockIdx.x * ATTN_T;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, lane = threadIdx.x % WARP;
    const int64_t k_col = (int64_t)g * c.D, v_col = k_col + (int64_t)c.Hk * c.D;
    const f32_rows own[2] = {{c.kv, k0, c.Tk, k_col}, {c.kv, k0, c.Tk, v_col}};
    bwd_walk w = {g * c.group, (g + 1) * c.group, 0, k0, k0 + ATTN_T};
    bwd_seek(&w, b);
    if (w.head == w.last) return;
    f32_acc<DP> dk, dv;
    f32_get(dk, b.dkv + k_col, b.dkv_ld, k0, c.Tk, c.D);
    f32_get(dv, b.dkv + v_col, b.dkv_ld, k0, c.Tk, c.D);
    for (; w.head < w.last; w.tile++, bwd_seek(&w, b)) {
        const int i0 = w.tile * ATTN_T;
        const attn_span rows[2] = {attn_row(c, i0 + lane), attn_row(c, i0 + WARP + lane)};
        if (!attn_anybody(rows, k0)) continue;
        const int64_t col = (int64_t)w.head * c.D;
        const f32_rows tile[2] = {{c.q, i0, c.Tq, col}, {b.d_o, i0, c.Tq, col}};
        float s[F32_EACH][F32_EACH] = {}, dp[F32_EACH][F32_EACH] = {};
        if (c.drop.on) attn_keep_make<F32_THREADS>(room->keep, c.drop, w.head, i0, c.kv_pos + k0);
        f32_products(room, b, own, tile, s, dp);
        UNROLL
        for (int j = 0; j < F32_EACH; j++) {
            const int t = tx + 16 * j;
            const bwd_stat q = bwd_stat_of<0>(b, w.head, i0 + t);
            const attn_span sees = attn_row(c, i0 + t);
            UNROLL
            for (int i = 0; i < F32_EACH; i++) {
                const int r = ty + 16 * i;
                const float f = c.drop.on ? attn_factor(room->keep, c.drop, t, c.kv_pos + k0, r)
                                          : 1;
                f32_one(room, c, q, r, t, attn_in(sees, k0 + r), s[i][j], dp[i][j], f);
            }
        }
        f32_add(dv, room->p, room->tile[1], tile[1], c.D, b.aligned, 1);
        f32_add(dk, room->ds, room->tile[0], tile[0], c.D, b.aligned, c.scale);
    }
    f32_put(dk, b.dkv + k_col, b.dkv_ld, k0, c.Tk, c.D);
    f32_put(dv, b.dkv + v_col, b.dkv_ld, k0, c.Tk, c.D);
}

template <int DP>
static __global__ void __launch_bounds__(F32_THREADS, DP > 128 ? 1 : 2) attn_dq_f32(bwd_call b)
{
    DYNAMIC_SHARED(shared);
    bwd_f32_room *const room = (bwd_f32_room *)shared;
    const attn_call &c = b.c;
    const int64_t head = blockIdx.y, col = head * c.D, k_col = head / c.group * c.D,
                  v_col = k_col + (int64_t)c.Hk * c.D;
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * ATTN_T;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16, lane = threadIdx.x % WARP;
    const f32_rows own[2] = {{c.q, i0, c.Tq, col}, {b.d_o, i0, c.Tq, col}};
    const attn_span hull = attn_hull(c, i0, ATTN_T);
    if (!hull.hi) return;
    const attn_span rows[2] = {attn_row(c, i0 + lane), attn_row(c, i0 + WARP + lane)};
    f32_acc<DP> dq;
    f32_get(dq, b.dq + col, b.dq_ld, i0, c.Tq, c.D);
    for (int k0 = hull.lo / ATTN_T * ATTN_T; k0 < hull.hi; k0 += ATTN_T) {
        if (!attn_anybody(rows, k0)) continue;
        const f32_rows tile[2] = {{c.kv, k0, c.Tk, k_col}, {c.kv, k0, c.Tk, v_col}};
        float s[F32_EACH][F32_EACH] = {}, dp[F32_EACH][F32_EACH] = {};
        if (c.drop.on)
            attn_keep_make<F32_THREADS>(room->keep, c.drop, (int)head, i0, c.kv_pos + k0);
        f32_products(room, b, own, tile, s, dp);
        UNROLL
        for (int i = 0; i < F32_EACH; i++) {
            const int r = ty + 16 * i;
            const bwd_stat q = bwd_stat_of<0>(b, head, i0 + r);
            const attn_span sees = attn_row(c, i0 + r);
            UNROLL
            for (int j = 0; j < F32_EACH; j++) {
                const int t = tx + 16 * j;
                const float f = c.drop.on ? attn_factor(room->keep, c.drop, r, c.kv_pos + k0, t)
                                          : 1;
                f32_one(room, c, q, r, t, attn_in(sees, k0 + t), s[i][j], dp[i][j], f);
            }
        }
        f32_add(dq, room->ds, room->tile[0], tile[0], c.D, b.aligned, c.scale);
    }
    f32_put(dq, b.dq + col, b.dq_ld, i0, c.Tq, c.D);
}

/* ---- the slot -------------------------------------------------------------------------------- */

template <class T, int DP, bool SMALL>
static void run_bwd(struct cuda *c, const bwd_call &b, int64_t n_heads)
{
    const bool half = sizeof(T) == 2;
    typedef bwd_shape<DP, SMALL> sh;
    const int rows = half ? sh::rows : ATTN_T;
    const int smem = half ? sh::smem : (int)sizeof(bwd_f32_room);
    if constexpr (half && !SMALL && sh::smem > SMEM_SMALL) {
        if (smem > c->smem_most) {
            run_bwd<T, DP, true>(c, b, n_heads);
            return;
        }
    }
    const dim3 threads(half ? sh::threads : F32_THREADS);
    auto attn_dkv = attn_dkv_f32<DP>, attn_dq = attn_dq_f32<DP>;
    if constexpr (half)
        attn_dkv = attn_dkv_half<T, DP, SMALL>, attn_dq = attn_dq_half<T, DP, SMALL>;
    SMEM_ALLOW(c, attn_dkv, smem, 0);
    SMEM_ALLOW(c, attn_dq, smem, 0);
    LAUNCH(c, attn_dkv, dim3((unsigned)div_up(b.c.Tk, rows), (unsigned)b.c.Hk), threads,
           (size_t)smem, b);
    LAUNCH(c, attn_dq, dim3((unsigned)div_up(b.c.Tq, rows), (unsigned)n_heads), threads,
           (size_t)smem, b);
}

void cuda_attn_bwd(struct be *be, const struct attn_bwd_args *a)
{
    shape_attn_bwd(a);
    struct cuda *c = cuda_of(be);
    bwd_call b = {};
    b.c = attn_call_of(a);
    b.d_o = mat_of(a->d_o);
    b.dq = (float *)a->dq.data;
    b.dkv = (float *)a->dkv.data;
    b.dq_ld = a->dq.ld;
    b.dkv_ld = a->dkv.ld;
    b.ml_ld = a->ml_ld;
    b.lse = a->lse;
    b.delta = a->delta;
    b.spans = (attn_span *)c->be.scratch;
    b.n_tiles = (int)div_up(a->q.rows, ATTN_T);
    b.aligned = fits_packs(a->q) && fits_packs(a->kv) && fits_packs(a->d_o) && a->head_dim % 8 == 0;
    if (b.c.Tq < 1 || b.c.Tk < 1) return;
    assert(b.n_tiles * (int64_t)sizeof *b.spans <= c->be.scratch_size);
    LAUNCH(c, attn_spans, dim3((unsigned)b.n_tiles), dim3(WARP), 0, b);
    if (hopper_attn_bwd(c, a, b)) return;
    attn_typed(b.c, [&](auto type) {
        attn_sized<decltype(type)>(a->head_dim, [&](auto size) {
            run_bwd<decltype(type), decltype(size)::value, false>(c, b, a->n_heads);
        });
    });
}
