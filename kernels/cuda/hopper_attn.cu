/* hopper_attn.cu: softmax attention forward in bf16 for compute capability 9.0 (with the schedule
 * of 2407.08608). A block has 128 queries of one head and walks over the tiles of keys that these
 * queries see, in ascending order. One warp copies tiles. Two warpgroups, with 64 queries each,
 * use the tensor cores alternately. While one group turns its scores into probabilities, the
 * products of the other group run. Within a group, the next scores are computed while the values
 * of the previous tile are added.
 *
 * Inputs and outputs are those of attn.cu. The carried o, m and l are used with scores as
 * exponents of 2. A row's bits depend only on its own keys. Tiles of HOP_T keys are counted from
 * key row 0 of the call, and o's chain continues from the carried o: o = alpha o, then o += p v,
 * 16 keys at a time. A tile that a row does not see multiplies by 1 and adds zeros. Tensor cores
 * may truncate a sum where other units round. So n additions lose at most n 2^-23 of the chain's
 * largest value, where n is a sixteenth of the number of keys. The kernels for 8.0 lose less,
 * because they sum each tile separately. A call's dtype, head size, dropout and alignment decide
 * whether these kernels or the kernels for 8.0 are used. The number of rows does not matter.
 *
 * The speed is limited by the following counts, for each head and each pair of a query and a key
 * that it sees:
 *   flops   4 D; the tensor cores of a multiprocessor do 4096 in a cycle
 *   bytes   a key has 4 D of K and V, which are read once for 128 queries, so L2 delivers one
 *           byte for 128 flops, or 32 bytes in a cycle if the tensor cores are busy
 *   shared  the scores of a group for a tile (m64n128k16) take 64 cycles for 16 columns. Reading q
 *           and k for these scores takes 48 cycles, and reading the values takes 32
 *   exp     16 in a cycle, so 512 cycles for a tile of a group. The products of the group take
 *           1024 cycles (D = 128) or 512 (D = 64). At 128, exp overlaps with the products of the
 *           other group. At 64, it takes as long as all products
 *   memory  161 KiB of shared memory at D = 128 (two buffers of keys and of values) and 145 at 64
 *           (four buffers), so a multiprocessor has one block. A thread of a group has 240
 *           registers, of which 64 have o, 64 have scores and 32 have p */
#include "kernels/cuda/attn.h"
#include "kernels/cuda/hopper.h"

#define HOP_T      128 /* keys of a tile */
#define HOP_GROUPS 2   /* groups of queries */

template <int DP> struct hop_shape {
    static const int strips = DP / HOPPER_STRIP, rows = HOP_GROUPS * HOPPER_ROWS;
    static const int stages = DP > 64 ? 2 : 4, threads = (HOP_GROUPS + 1) * HOPPER_GROUP;
    static const int q_size = rows * DP * (int)sizeof(bf16);
    static const int tile_size = HOP_T * DP * (int)sizeof(bf16);
};

template <int DP> struct hop_room {
    bf16 q[hop_shape<DP>::rows * DP];
    bf16 k[hop_shape<DP>::stages][HOP_T * DP], v[hop_shape<DP>::stages][HOP_T * DP];
    hopper_barrier q_there;
    hopper_ring<hop_shape<DP>::stages> keys, values;
};
template <int DP> struct hop_smem {
    static const int value = (int)sizeof(hop_room<DP>) + 1024; /* room to align for strips */
};

struct hop_call {
    attn_call c;
    float *o, *m, *l;
    int64_t o_ld, ml_ld;
};

/* The tiles [first, last) of keys. */
struct hop_tiles {
    int first, last;
};
static __device__ __forceinline__ hop_tiles hop_tiles_of(attn_span s)
{
    return {s.lo / HOP_T, (s.hi + HOP_T - 1) / HOP_T};
}

/* ---- the warp that brings tiles -------------------------------------------------------------- */

/* Copies the tiles. A tile's keys are copied before its values, because the values are needed one
 * tile later. One thread calls it. */
template <int DP>
static __device__ __forceinline__ void hop_produce(hop_room<DP> *room, const hopper_map *q,
                                                   const hopper_map *kv, const attn_call &c,
                                                   hop_tiles tiles, int i0, int head)
{
    typedef hop_shape<DP> sh;
    const int g = head / c.group;
    barrier_expect(&room->q_there, sh::q_size);
    tile_copy<sh::strips>(room->q, q, sh::rows, head, i0, &room->q_there);
    for (int i = 0; i < tiles.last - tiles.first; i++) {
        const int s = i % sh::stages, row = (tiles.first + i) * HOP_T;
        ring_wait_free(&room->keys, i);
        barrier_expect(&room->keys.there[s], sh::tile_size);
        tile_copy<sh::strips>(room->k[s], kv, HOP_T, g, row, &room->keys.there[s]);
        ring_wait_free(&room->values, i);
        barrier_expect(&room->values.there[s], sh::tile_size);
        tile_copy<sh::strips>(room->v[s], kv, HOP_T, c.Hk + g, row, &room->values.there[s]);
    }
}

/* ---- the groups that multiply ---------------------------------------------------------------- */

/* The groups take turns in computing. A group waits for its turn. When the group's products are
 * under way, it gives the turn to the next group. The last group does not pass on its last
 * turn. */
static __device__ __forceinline__ void hop_turn_wait(int group)
{
    named_barrier_sync(1 + group, 2 * HOPPER_GROUP);
}
static __device__ __forceinline__ void hop_turn_pass(int group, bool last)
{
    if (group == HOP_GROUPS - 1 && last) return;
    named_arrive(1 + (group + 1) % HOP_GROUPS, 2 * HOPPER_GROUP);
}

template <int DP>
static __device__ __forceinline__ void hop_scores(float (&s)[HOP_T / 8][4], uint32_t q, uint32_t k)
{
    UNROLL
    for (int kk = 0; kk < DP / 16; kk++)
        product<false>(s, matrix_at(matrix_k(q, kk, hop_shape<DP>::rows), hop_shape<DP>::rows),
                       matrix_at(matrix_k(k, kk, HOP_T), HOP_T), kk > 0);
}
template <int DP>
static __device__ __forceinline__ void hop_values(float (&o)[DP / 8][4],
                                                  const uint32_t (&p)[HOP_T / 16][4], uint32_t v)
{
    UNROLL
    for (int kk = 0; kk < HOP_T / 16; kk++)
        product<true>(o, p[kk], matrix_at(matrix_k_transposed(v, kk), HOP_T), true);
}

/* The two rows of a thread. For each row it has the keys that the row sees, the maximum, and this
 * lane's part of the sum. */
struct hop_rows {
    attn_span sees[2];
    float m[2], l[2], alpha[2];
};

static __device__ __forceinline__ void hop_mask(float (&s)[HOP_T / 8][4], const hop_rows &r, int k0)
{
    const int at = k0 + (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int n = 0; n < HOP_T / 8; n++) UNROLL
    for (int e = 0; e < 4; e++)
        if (!attn_in(r.sees[e / 2], at + 8 * n + e % 2)) s[n][e] = -INFINITY;
}

/* Turns scores into probabilities and sets alpha, the factor of the carried o and l. A row that
 * has not seen a key yet subtracts 0 instead of -inf, because -inf - -inf is NaN. */
static __device__ __forceinline__ void hop_softmax(float (&s)[HOP_T / 8][4], hop_rows *r,
                                                   float scale2)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        float max = -INFINITY, sum = 0;
        UNROLL
        for (int n = 0; n < HOP_T / 8; n++) max = fmaxf(max, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
        max = fmaxf(max, __shfl_xor_sync(FULL, max, 1));
        max = fmaxf(max, __shfl_xor_sync(FULL, max, 2));
        const float now = fmaxf(r->m[h], max * scale2), base = now == -INFINITY ? 0 : now;
        r->alpha[h] = attn_exp2(r->m[h] - base);
        UNROLL
        for (int n = 0; n < HOP_T / 8; n++) UNROLL
        for (int e = 2 * h; e < 2 * h + 2; e++) {
            s[n][e] = attn_exp2(fmaf(s[n][e], scale2, -base));
            sum += s[n][e];
        }
        r->m[h] = now;
        r->l[h] = fmaf(r->l[h], r->alpha[h], sum);
    }
}

/* Rounds p to bf16, in the form of A of the next product, and multiplies o by its factor. */
template <int DP>
static __device__ __forceinline__ void hop_consume(uint32_t (&p)[HOP_T / 16][4],
                                                   const float (&s)[HOP_T / 8][4],
                                                   float (&o)[DP / 8][4], const hop_rows &r)
{
    rows_round(p, s);
    UNROLL
    for (int n = 0; n < DP / 8; n++) UNROLL
    for (int e = 0; e < 4; e++) o[n][e] *= r.alpha[e / 2];
}

/* Loads the carried state. Four lanes share a row, and only the first of the four loads l. */
static __device__ __forceinline__ void hop_begin(hop_rows *r, const hop_call &h, int row, int head)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int at = row + 8 * i;
        const bool there = at < h.c.Tq;
        r->sees[i] = attn_row(h.c, at);
        r->m[i] = there ? h.m[head * h.ml_ld + at] : -INFINITY;
        r->l[i] = there && threadIdx.x % 4 == 0 ? h.l[head * h.ml_ld + at] : 0;
    }
}
static __device__ __forceinline__ void hop_end(const hop_rows &r, const hop_call &h, int row,
                                               int head)
{
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int at = row + 8 * i;
        float sum = r.l[i];
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        if (at >= h.c.Tq || threadIdx.x % 4) continue;
        h.m[head * h.ml_ld + at] = attn_seen(h.c, at, r.m[i], sum);
        h.l[head * h.ml_ld + at] = sum;
    }
}

/* Skips a tile that no query of the group sees. Passes the turn and, once the tile has arrived,
 * releases the tile's buffer. Before the tile has arrived, the other group may still read the
 * buffer's previous tile. */
template <int DP>
static __device__ __forceinline__ void hop_skip(hop_room<DP> *room, int i, int group, bool last)
{
    hop_turn_wait(group);
    hop_turn_pass(group, last);
    ring_wait(&room->keys, i);
    ring_let_go(&room->keys, i);
    ring_wait(&room->values, i);
    ring_let_go(&room->values, i);
}

/* Runs a group over its tiles. `all` has the tiles of the block, which include the group's
 * tiles. */
template <int DP>
static __device__ __forceinline__ void hop_multiply(hop_room<DP> *room, const hop_call &h,
                                                    hop_tiles all, int i0, int head, int group)
{
    const attn_call &c = h.c;
    const int first_row = i0 + group * HOPPER_ROWS, n = all.last - all.first;
    const int row = first_row + rows_mine();
    const attn_bounds bounds = attn_bounds_of(c, first_row, HOPPER_ROWS);
    const hop_tiles seen = hop_tiles_of(bounds.some);
    const int first = seen.last ? seen.first - all.first : n;
    const int last = seen.last ? seen.last - all.first : n;
    const uint32_t q = hopper_at(room->q) + (uint32_t)(group * HOPPER_ROWS * 2 * HOPPER_STRIP);
    float o[DP / 8][4], s[HOP_T / 8][4];
    uint32_t p[HOP_T / 16][4];
    hop_rows rows;
    float *const carried = h.o + (int64_t)head * c.D;
    rows_get(o, carried, h.o_ld, row, c.Tq, c.D);
    hop_begin(&rows, h, row, head);
    const auto settle = [&](int i) { /* called when the scores of tile i are complete */
                                     const int k0 = (all.first + i) * HOP_T;
                                     if (bounds.all.lo > k0 || bounds.all.hi < k0 + HOP_T)
                                         hop_mask(s, rows, k0);
                                     hop_softmax(s, &rows, c.scale2);
                                     registers_pin(s);
    };
    const auto wait_keys = [&](int i) {
        if (i < last) ring_wait(&room->keys, i);
    };
    /* passes the first turn to group 0 */
    if (group == HOP_GROUPS - 1) hop_turn_pass(group, false);
    for (int i = 0; i < first; i++) hop_skip(room, i, group, i == n - 1);
    if (first < last) {
        barrier_wait(&room->q_there, 0);
        wait_keys(first);
        hop_turn_wait(group);
        products_begin();
        hop_scores<DP>(s, q, hopper_at(room->k[first % hop_shape<DP>::stages]));
        products_commit();
        hop_turn_pass(group, first == n - 1);
        products_wait<0>();
        registers_pin(s);
        ring_let_go(&room->keys, first);
        settle(first);
        wait_keys(first + 1);
        hop_consume<DP>(p, s, o, rows);
    }
    for (int i = first + 1; i < last; i++) {
        const int now = i % hop_shape<DP>::stages, before = (i - 1) % hop_shape<DP>::stages;
        hop_turn_wait(group);
        products_begin();
        hop_scores<DP>(s, q, hopper_at(room->k[now]));
        products_commit();
        ring_wait(&room->values, i - 1);
        products_begin();
        hop_values<DP>(o, p, hopper_at(room->v[before]));
        products_commit();
        hop_turn_pass(group, i == n - 1);
        products_wait<1>();
        registers_pin(s);
        ring_let_go(&room->keys, i);
        settle(i);
        wait_keys(i + 1); /* has a loop, so the compiler does not wait for the values first */
        products_wait<0>();
        registers_pin(o);
        ring_let_go(&room->values, i - 1);
        hop_consume<DP>(p, s, o, rows);
    }
    if (first < last) {
        const int before = (last - 1) % hop_shape<DP>::stages;
        ring_wait(&room->values, last - 1);
        products_begin();
        hop_values<DP>(o, p, hopper_at(room->v[before]));
        products_commit();
        products_wait<0>();
        registers_pin(o);
        ring_let_go(&room->values, last - 1);
    }
    for (int i = last; i < n; i++) hop_skip(room, i, group, i == n - 1);
    rows_put(o, carried, h.o_ld, row, c.Tq, c.D);
    hop_end(rows, h, row, head);
}

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int DP> static __device__ __forceinline__ void hop_barriers(hop_room<DP> *room)
{
    const int readers = HOP_GROUPS * HOPPER_GROUP / WARP;
    barrier_init(&room->q_there, 1);
    ring_make(&room->keys, 1, readers);
    ring_make(&room->values, 1, readers);
    barriers_made();
}

template <int DP>
static __global__ void __launch_bounds__(hop_shape<DP>::threads, 1)
    hopper_attn_kernel(hop_call h, const __grid_constant__ hopper_map q,
                       const __grid_constant__ hopper_map kv)
{
    DYNAMIC_SHARED(shared);
    hop_room<DP> *const room = (hop_room<DP> *)hopper_align(shared);
    const int head = (int)blockIdx.y, group = (int)threadIdx.x / HOPPER_GROUP;
    /* tasks begin with the last rows, because under a causal mask the last rows see the largest
     * number of keys */
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * hop_shape<DP>::rows;
    const attn_span hull = attn_hull(h.c, i0, hop_shape<DP>::rows);
    if (!hull.hi) return; /* the whole block returns */
    const hop_tiles tiles = hop_tiles_of(hull);
    if (threadIdx.x == 0) hop_barriers(room);
    __syncthreads();
    if (group == HOP_GROUPS) {
        registers_give<24>();
        if (threadIdx.x == HOP_GROUPS * HOPPER_GROUP)
            hop_produce<DP>(room, &q, &kv, h.c, tiles, i0, head);
    } else {
        registers_take<240>();
        hop_multiply<DP>(room, h, tiles, i0, head, group);
    }
}

template <int DP> static void run(struct cuda *c, const struct attn_fwd_args *a, const hop_call &h)
{
    typedef hop_shape<DP> sh;
    const int smem = hop_smem<DP>::value;
    const dim3 grid((unsigned)div_up(a->q.rows, sh::rows), (unsigned)a->n_heads);
    const hopper_map q = hopper_map_of(c, a->q, a->n_heads, a->head_dim, sh::rows);
    const hopper_map kv = hopper_map_of(c, a->kv, 2 * a->n_kv_heads, a->head_dim, HOP_T);
    auto attn_fwd = hopper_attn_kernel<DP>;
    SMEM_ALLOW(c, attn_fwd, smem, 0);
    LAUNCH(c, attn_fwd, grid, dim3(sh::threads), (size_t)smem, h, q, kv);
}

bool hopper_attn_fwd(struct cuda *c, const struct attn_fwd_args *a)
{
    if (!c->hopper || a->drop || a->cap > 0 || a->head_dim > 128) return false;
    if (!hopper_takes(a->q, a->head_dim) || !hopper_takes(a->kv, a->head_dim)) return false;
    if (!rows_fit(a->o)) return false;
    const hop_call h = {attn_call_of(a), (float *)a->o.data, a->m, a->l, a->o.ld, a->ml_ld};
    if (h.c.Tq < 1 || h.c.Tk < 1) return true;
    if (a->head_dim <= 64)
        run<64>(c, a, h);
    else
        run<128>(c, a, h);
    return true;
}
