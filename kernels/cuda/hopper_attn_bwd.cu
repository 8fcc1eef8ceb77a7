/* hopper_attn_bwd.cu: softmax attention backward in bf16 for compute capability 9.0, without
 * atomics. It has the two kernels of attn_bwd.cu, with the same owned and walked rows. One warp
 * copies tiles, and two warpgroups, with 64 owned rows each, multiply. The sums, and p and ds, are
 * kept in registers, so no product's result passes through shared memory.
 *
 * A row's chain continues from the gradient in memory. It adds 16 walked rows at a time,
 * ascending, in tiles of ATTN_T rows that are counted from row 0 of the call. ds is scaled before
 * it is rounded. If a row and a tile have no pair of a query and a key that it sees, the tile adds
 * zeros to the row. hopper_attn.cu says how much the truncation of tensor cores can lose.
 *
 * The speed is limited by the following counts, for each head and each pair of a query and a key
 * that it sees:
 *   flops   14 D, which are 8 D in dkv and 6 D in dq. One kernel with atomics would have 10 D
 *   bytes   dkv reads 4 D of q and dO for each query and 128 keys, so L2 delivers one byte for
 *           256 flops. In dq it delivers one byte for 192 flops
 *   shared  s and dP (m64n64k16, with both operands in shared memory) take 32 cycles and read 4
 *           KiB, which is all that shared memory delivers. The other products read 4 KiB in 64
 *           cycles (D = 128)
 *   exp     16 in a cycle, so 256 cycles for a tile of a group. The products of dkv take 1024
 *           cycles and the products of dq take 768 (D = 128; half as many at 64)
 *   memory  163 KiB of shared memory at D = 128 and 83 at 64. A thread has 240 registers. In dkv
 *           it uses 128 for dk and dv, 64 for s and dP, and 32 for p and ds. In dq it uses 64 for
 *           its result */
#include "kernels/cuda/attn_bwd.h"
#include "kernels/cuda/hopper.h"

#define HOB_GROUPS 2
#define HOB_STAGES 3
#define HOB_ROWS   (HOB_GROUPS * HOPPER_ROWS) /* rows that a block owns */

static const int hob_threads = (HOB_GROUPS + 1) * HOPPER_GROUP;

/* Shared memory. In dkv, own is k and v, and tile is q and dO. In dq, own is q and dO, tile is k
 * and v, and `queries` is not used. */
template <int DP> struct hob_room {
    bf16 own[2][HOB_ROWS * DP], tile[HOB_STAGES][2][ATTN_T * DP];
    bwd_queries queries[HOB_STAGES];
    hopper_barrier own_there;
    hopper_ring<HOB_STAGES> tiles;
    int left[HOB_STAGES]; /* dkv: nonzero if the buffer has a tile; 0 if the walk is over */
};

struct hob_maps {
    hopper_map q, d_o, q_own, d_o_own, kv, kv_own;
};

/* ---- the warp that brings tiles -------------------------------------------------------------- */

/* Copies rows of a head from two tensors. One thread calls it. */
template <int DP, int N>
static __device__ __forceinline__ void hob_copy(bf16 *to0, bf16 *to1, const hopper_map *map0,
                                                const hopper_map *map1, int head0, int head1,
                                                int row, hopper_barrier *b)
{
    barrier_expect(b, 2 * N * DP * (int)sizeof(bf16));
    tile_copy<DP / HOPPER_STRIP>(to0, map0, N, head0, row, b);
    tile_copy<DP / HOPPER_STRIP>(to1, map1, N, head1, row, b);
}

/* ---- the groups that multiply ---------------------------------------------------------------- */

/* Computes s or dP of a group's rows, which begin at own, against a tile that is walked. */
template <int DP>
static __device__ __forceinline__ void hob_product(float (&s)[ATTN_N][4], uint32_t own,
                                                   uint32_t tile)
{
    UNROLL
    for (int k = 0; k < DP / 16; k++)
        product<false>(s, matrix_at(matrix_k(own, k, HOB_ROWS), HOB_ROWS),
                       matrix_at(matrix_k(tile, k, ATTN_T), ATTN_T), k > 0);
}

/* Adds acc += w tile. */
template <int DP>
static __device__ __forceinline__ void hob_add(float (&acc)[DP / 8][4],
                                               const uint32_t (&w)[ATTN_T / 16][4], uint32_t tile)
{
    UNROLL
    for (int k = 0; k < ATTN_T / 16; k++)
        product<true>(acc, w[k], matrix_at(matrix_k_transposed(tile, k), ATTN_T), true);
}

template <int DP>
static __device__ __forceinline__ uint32_t hob_own(hob_room<DP> *room, int i, int g)
{
    return hopper_at(room->own[i]) + (uint32_t)(g * HOPPER_ROWS * 2 * HOPPER_STRIP);
}

/* ---- dk and dv ------------------------------------------------------------------------------- */

/* Copies the tiles, and fills in `queries` for their rows. A warp runs this function, and each
 * lane fills in two rows. */
template <int DP>
static __device__ __forceinline__ void hob_produce_queries(hob_room<DP> *room, const bwd_call &b,
                                                           const hob_maps *maps, int g, int k0)
{
    const int lane = (int)threadIdx.x % WARP;
    bwd_walk w = {g * b.c.group, (g + 1) * b.c.group, 0, k0, k0 + HOB_ROWS};
    if (lane == 0)
        hob_copy<DP, HOB_ROWS>(room->own[0], room->own[1], &maps->kv_own, &maps->kv_own, g,
                               b.c.Hk + g, k0, &room->own_there);
    for (int i = 0;; i++, w.tile++) {
        const int s = i % HOB_STAGES;
        bwd_seek(&w, b);
        const bool more = w.head < w.last;
        ring_wait_free(&room->tiles, i);
        if (lane == 0 && more)
            hob_copy<DP, ATTN_T>(room->tile[s][0], room->tile[s][1], &maps->q, &maps->d_o, w.head,
                                 w.head, w.tile * ATTN_T, &room->tiles.there[s]);
        else if (lane == 0)
            barrier_arrive(&room->tiles.there[s]);
        for (int r = lane; more && r < ATTN_T; r += WARP) {
            room->queries[s].stat[r] = bwd_stat_of<0>(b, w.head, w.tile * ATTN_T + r);
            room->queries[s].sees[r] = attn_row(b.c, w.tile * ATTN_T + r);
        }
        if (lane == 0) room->left[s] = more;
        barrier_arrive(&room->tiles.there[s]); /* this is the second arrival of lane 0 */
        if (!more) return;
    }
}

/* Tells how the queries of a tile see keys [k0, k0 + 64). All warps of a group get equal
 * results. */
static __device__ __forceinline__ attn_view hob_view(const bwd_queries *q, int k0)
{
    bool mine = false, whole = true;
    UNROLL
    for (int i = threadIdx.x % WARP; i < ATTN_T; i += WARP) {
        const attn_span s = q->sees[i];
        mine |= attn_meets(s, k0, k0 + HOPPER_ROWS);
        whole &= s.lo <= k0 && s.hi >= k0 + HOPPER_ROWS;
    }
    if (!__any_sync(FULL, mine)) return SEES_NONE;
    return __any_sync(FULL, !whole) ? SEES_SOME : SEES_ALL;
}

/* Sets a score to -inf if its query does not see its key. Rows are keys, of which a thread has
 * `key` and key + 8; columns are queries. */
static __device__ __forceinline__ void hob_mask(float (&s)[ATTN_N][4], const bwd_queries *q,
                                                int key)
{
    const int at = (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++)
        if (!attn_in(q->sees[8 * n + at + e % 2], key + e / 2 * 8)) s[n][e] = -INFINITY;
}

template <int DP>
static __device__ __forceinline__ void hob_dkv(hob_room<DP> *room, const bwd_call &b, int g, int k0,
                                               int group)
{
    const attn_call &c = b.c;
    const int first = k0 + group * HOPPER_ROWS, key = first + rows_mine();
    const int at = (int)threadIdx.x % 4 * 2;
    const uint32_t own_k = hob_own(room, 0, group), own_v = hob_own(room, 1, group);
    float *const dk_at = b.dkv + (int64_t)g * c.D, *const dv_at = dk_at + (int64_t)c.Hk * c.D;
    float dk[DP / 8][4], dv[DP / 8][4], s[ATTN_N][4], dp[ATTN_N][4];
    uint32_t p[ATTN_T / 16][4], ds[ATTN_T / 16][4];
    rows_get(dk, dk_at, b.dkv_ld, key, c.Tk, c.D);
    rows_get(dv, dv_at, b.dkv_ld, key, c.Tk, c.D);
    barrier_wait(&room->own_there, 0);
    for (int i = 0;; i++) {
        ring_wait(&room->tiles, i);
        if (!room->left[i % HOB_STAGES]) break;
        const bwd_queries *queries = &room->queries[i % HOB_STAGES];
        const attn_view view = hob_view(queries, first);
        if (view == SEES_NONE) {
            ring_let_go(&room->tiles, i);
            continue;
        }
        const uint32_t q = hopper_at(room->tile[i % HOB_STAGES][0]),
                       d_o = hopper_at(room->tile[i % HOB_STAGES][1]);
        products_begin();
        hob_product<DP>(s, own_k, q);
        products_commit();
        products_begin();
        hob_product<DP>(dp, own_v, d_o);
        products_commit();
        products_wait<1>();
        registers_pin(s);
        if (view == SEES_SOME) hob_mask(s, queries, key);
        UNROLL
        for (int n = 0; n < ATTN_N; n++) UNROLL
        for (int e = 0; e < 4; e++)
            s[n][e] = attn_exp2(fmaf(s[n][e], c.scale2, -queries->stat[8 * n + at + e % 2].lse));
        rows_round(p, s);
        products_begin();
        hob_add<DP>(dv, p, d_o);
        products_commit();
        products_wait<1>();
        registers_pin(dp);
        UNROLL
        for (int n = 0; n < ATTN_N; n++) UNROLL
        for (int e = 0; e < 4; e++)
            dp[n][e] = s[n][e] * (dp[n][e] - queries->stat[8 * n + at + e % 2].delta) * c.scale;
        rows_round(ds, dp);
        products_begin();
        hob_add<DP>(dk, ds, q);
        products_commit();
        products_wait<0>();
        registers_pin(dv);
        registers_pin(dk);
        ring_let_go(&room->tiles, i);
    }
    rows_put(dk, dk_at, b.dkv_ld, key, c.Tk, c.D);
    rows_put(dv, dv_at, b.dkv_ld, key, c.Tk, c.D);
}

template <int DP>
static __global__ void __launch_bounds__(hob_threads, 1)
    hopper_dkv(bwd_call b, const __grid_constant__ hob_maps maps)
{
    DYNAMIC_SHARED(shared);
    hob_room<DP> *const room = (hob_room<DP> *)hopper_align(shared);
    const int g = (int)blockIdx.y, k0 = (int)blockIdx.x * HOB_ROWS;
    const int group = (int)threadIdx.x / HOPPER_GROUP;
    if (threadIdx.x == 0) {
        barrier_init(&room->own_there, 1);
        ring_make(&room->tiles, 1 + WARP, HOB_GROUPS * HOPPER_GROUP / WARP);
        barriers_made();
    }
    __syncthreads();
    if (group == HOB_GROUPS) {
        registers_give<24>();
        if (threadIdx.x < HOB_GROUPS * HOPPER_GROUP + WARP)
            hob_produce_queries<DP>(room, b, &maps, g, k0);
    } else {
        registers_take<240>();
        hob_dkv<DP>(room, b, g, k0, group);
    }
}

/* ---- dq -------------------------------------------------------------------------------------- */

/* Copies n tiles of keys, from `first` on. One thread calls it. */
template <int DP>
static __device__ __forceinline__ void hob_produce_keys(hob_room<DP> *room, const bwd_call &b,
                                                        const hob_maps *maps, int head, int i0,
                                                        int first, int n)
{
    const int g = head / b.c.group;
    hob_copy<DP, HOB_ROWS>(room->own[0], room->own[1], &maps->q_own, &maps->d_o_own, head, head, i0,
                           &room->own_there);
    for (int i = 0; i < n; i++) {
        const int s = i % HOB_STAGES;
        ring_wait_free(&room->tiles, i);
        hob_copy<DP, ATTN_T>(room->tile[s][0], room->tile[s][1], &maps->kv, &maps->kv, g,
                             b.c.Hk + g, (first + i) * ATTN_T, &room->tiles.there[s]);
    }
}

/* Sets scores that queries do not see to -inf. A thread's rows are two queries, and its columns
 * are keys, from k0 on. */
static __device__ __forceinline__ void hob_mask_keys(float (&s)[ATTN_N][4],
                                                     const attn_span (&sees)[2], int k0)
{
    const int at = k0 + (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++)
        if (!attn_in(sees[e / 2], at + 8 * n + e % 2)) s[n][e] = -INFINITY;
}

template <int DP>
static __device__ __forceinline__ void hob_dq(hob_room<DP> *room, const bwd_call &b, int head,
                                              int i0, int first, int n, int group)
{
    const attn_call &c = b.c;
    const int first_row = i0 + group * HOPPER_ROWS, row = first_row + rows_mine();
    const attn_bounds bounds = attn_bounds_of(c, first_row, HOPPER_ROWS);
    const attn_span sees[2] = {attn_row(c, row), attn_row(c, row + 8)};
    const bwd_stat stat[2] = {bwd_stat_of<0>(b, head, row), bwd_stat_of<0>(b, head, row + 8)};
    const uint32_t own_q = hob_own(room, 0, group), own_d_o = hob_own(room, 1, group);
    float *const dq_at = b.dq + (int64_t)head * c.D;
    float dq[DP / 8][4], s[ATTN_N][4], dp[ATTN_N][4];
    uint32_t ds[ATTN_T / 16][4];
    rows_get(dq, dq_at, b.dq_ld, row, c.Tq, c.D);
    barrier_wait(&room->own_there, 0);
    for (int i = 0; i < n; i++) {
        const int k0 = (first + i) * ATTN_T;
        const attn_view view = attn_view_of(bounds, k0);
        ring_wait(&room->tiles, i);
        if (view == SEES_NONE) {
            ring_let_go(&room->tiles, i);
            continue;
        }
        const uint32_t k = hopper_at(room->tile[i % HOB_STAGES][0]),
                       v = hopper_at(room->tile[i % HOB_STAGES][1]);
        products_begin();
        hob_product<DP>(s, own_q, k);
        products_commit();
        products_begin();
        hob_product<DP>(dp, own_d_o, v);
        products_commit();
        products_wait<1>();
        registers_pin(s);
        if (view == SEES_SOME) hob_mask_keys(s, sees, k0);
        UNROLL
        for (int j = 0; j < ATTN_N; j++) UNROLL
        for (int e = 0; e < 4; e++) s[j][e] = attn_exp2(fmaf(s[j][e], c.scale2, -stat[e / 2].lse));
        registers_pin(s);
        if (i + 1 < n)
            ring_wait(&room->tiles, i + 1); /* has a loop, so the compiler does not wait first */
        products_wait<0>();
        registers_pin(dp);
        UNROLL
        for (int j = 0; j < ATTN_N; j++) UNROLL
        for (int e = 0; e < 4; e++) dp[j][e] = s[j][e] * (dp[j][e] - stat[e / 2].delta) * c.scale;
        rows_round(ds, dp);
        products_begin();
        hob_add<DP>(dq, ds, k);
        products_commit();
        products_wait<0>();
        registers_pin(dq);
        ring_let_go(&room->tiles, i);
    }
    rows_put(dq, dq_at, b.dq_ld, row, c.Tq, c.D);
}

template <int DP>
static __global__ void __launch_bounds__(hob_threads, 1)
    hopper_dq(bwd_call b, const __grid_constant__ hob_maps maps)
{
    DYNAMIC_SHARED(shared);
    hob_room<DP> *const room = (hob_room<DP> *)hopper_align(shared);
    const int head = (int)blockIdx.y, group = (int)threadIdx.x / HOPPER_GROUP;
    /* tasks begin with the last rows, because under a causal mask the last rows see the largest
     * number of keys */
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * HOB_ROWS;
    const attn_span hull = attn_hull(b.c, i0, HOB_ROWS);
    if (!hull.hi) return; /* the whole block returns */
    const int first = hull.lo / ATTN_T, n = (hull.hi + ATTN_T - 1) / ATTN_T - first;
    if (threadIdx.x == 0) {
        barrier_init(&room->own_there, 1);
        ring_make(&room->tiles, 1, HOB_GROUPS * HOPPER_GROUP / WARP);
        barriers_made();
    }
    __syncthreads();
    if (group == HOB_GROUPS) {
        registers_give<24>();
        if (threadIdx.x == HOB_GROUPS * HOPPER_GROUP)
            hob_produce_keys<DP>(room, b, &maps, head, i0, first, n);
    } else {
        registers_take<240>();
        hob_dq<DP>(room, b, head, i0, first, n, group);
    }
}

/* ---- the slot -------------------------------------------------------------------------------- */

template <int DP> static void run(struct cuda *c, const struct attn_bwd_args *a, const bwd_call &b)
{
    const int smem = (int)sizeof(hob_room<DP>) + 1024; /* room to align for strips */
    const int64_t D = a->head_dim;
    const hob_maps maps = {hopper_map_of(c, a->q, a->n_heads, D, ATTN_T),
                           hopper_map_of(c, a->d_o, a->n_heads, D, ATTN_T),
                           hopper_map_of(c, a->q, a->n_heads, D, HOB_ROWS),
                           hopper_map_of(c, a->d_o, a->n_heads, D, HOB_ROWS),
                           hopper_map_of(c, a->kv, 2 * a->n_kv_heads, D, ATTN_T),
                           hopper_map_of(c, a->kv, 2 * a->n_kv_heads, D, HOB_ROWS)};
    auto attn_dkv = hopper_dkv<DP>;
    auto attn_dq = hopper_dq<DP>;
    SMEM_ALLOW(c, attn_dkv, smem, 0);
    SMEM_ALLOW(c, attn_dq, smem, 0);
    const dim3 threads(hob_threads);
    LAUNCH(c, attn_dkv, dim3((unsigned)div_up(b.c.Tk, HOB_ROWS), (unsigned)b.c.Hk), threads,
           (size_t)smem, b, maps);
    LAUNCH(c, attn_dq, dim3((unsigned)div_up(b.c.Tq, HOB_ROWS), (unsigned)a->n_heads), threads,
           (size_t)smem, b, maps);
}

bool hopper_attn_bwd(struct cuda *c, const struct attn_bwd_args *a, const bwd_call &b)
{
    if (!c->hopper || a->drop || a->cap > 0 || a->head_dim > 128) return false;
    if (!hopper_takes(a->q, a->head_dim) || !hopper_takes(a->kv, a->head_dim)) return false;
    if (!hopper_takes(a->d_o, a->head_dim) || !rows_fit(a->dq) || !rows_fit(a->dkv)) return false;
    if (a->head_dim <= 64)
        run<64>(c, a, b);
    else
        run<128>(c, a, b);
    return true;
}
