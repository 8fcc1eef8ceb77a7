/* hopper_linear.cu: the walks of linear.h in bf16 for compute capability 9.0, for heads of 64 and
 * 128 columns. A block of threads walks one segment of one head. One warp copies blocks of 64
 * rows, and each warpgroup computes 64 columns of v independently. The state of these columns is
 * kept in the group's registers, in fp32. It is transposed, [columns of v, Dk], because products
 * need this form. The output is transposed too:
 *
 *   out' = (S' q') powers + v' a'     a = q k' times powers, over shared memory
 *   S'   = S' decay + (v powers)' k
 *
 * An fp32 result that is an operand of a product is split into a sum of bf16s, which is hi + lo
 * or, in summaries, hi + mid + lo. A block's part of the state is summed separately.
 * linear_bf16.cu also splits results and sums a block's part separately. This file has no kernel
 * for the state that enters a chunk (linear_enter), because reading memory takes longer than
 * linear_bf16.cu's products.
 *
 * The speed is limited by the following counts, for a head's block of 64 rows with Dk = Dv = 128.
 * The tensor cores of a multiprocessor do 4096 flops in a cycle.
 *   rows     the products take 3072 cycles. These are 512 for q k' (computed by both groups),
 *            1024 for S' q', 512 for v' a' and 1024 for the state. Memory delivers 64 KiB (80 if
 *            out is fp32). A thread's other work is about 1650 instructions, with two warps for
 *            each scheduler. This is 3300 cycles, during the products of the other group
 *   summary  the state takes 1536 cycles, and memory delivers 32 KiB
 *   in all   131072 rows of 32 heads are 496 blocks for each of 132 multiprocessors. At 1.7 GHz
 *            and three quarters of the tensor cores' rate, rows take 1.2 ms and the summary takes
 *            0.6. Memory (4.8 TB/s) takes 0.9 ms for rows and 0.45 for the summary. With the scan,
 *            forward takes 2 ms. Backward, which is three walks, takes 6 to 7. These times are
 *            calculated, not measured
 *   memory   rows need 179 KiB of shared memory for three blocks of 64 rows. So a multiprocessor
 *            has one block of threads, or two if Dv = 64. A thread has 240 registers: 64 for the
 *            state, 64 for the state's bf16s or for the block's part of the state, 32 for out,
 *            and 32 for a or for the bf16s of v */
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/linear.h"

/* The sizes of a kernel's tiles, in elements. GROUPS is the number of warpgroups that have 64
 * columns of v each. ROWS means that out is written. */
template <int DK, int GROUPS, bool ROWS> struct hol_shape {
    static const int strips = DK / HOPPER_STRIP, threads = (GROUPS + 1) * HOPPER_GROUP;
    static const int blocks = GROUPS == 1 ? 2 : 1; /* blocks of threads for each multiprocessor */
    static const int k = LINEAR_T * DK, v = LINEAR_T * HOPPER_STRIP;
    static const int tile = (ROWS ? 2 : 1) * k + GROUPS * v, a = ROWS ? LINEAR_T * LINEAR_T : 0;
    static const int room = (208 << 10) / blocks / (int)sizeof(bf16) - 2 * GROUPS * a;
    static const int stages = room / tile < 4 ? room / tile : 4;
};

/* Tells how the rows of a block are used. `begins` has a bit for each row; the bit is set if a
 * document begins in the row. */
struct hol_seen {
    linear_span span;
    uint64_t begins;
};

/* Shared memory. A tile is k, the strips of v, and q. Each group has a separate a, as hi and
 * lo. */
template <class S> struct hol_room {
    bf16 space[S::stages * S::tile + (S::threads / HOPPER_GROUP - 1) * 2 * S::a];
    hol_seen seen[S::stages];
    int64_t lo[LINEAR_T + 1]; /* lo of the tile that is being loaded */
    linear_powers powers;
    linear_blocks blocks;
    /* the power for distance d is at both indices LINEAR_T + d and LINEAR_T - d */
    float power[2 * LINEAR_T + 1], scaled[2 * LINEAR_T + 1];
    hopper_ring<S::stages> tiles;
};

template <class R> static __device__ __forceinline__ void hol_mirror(R *room)
{
    const int i = (int)threadIdx.x, d = i < LINEAR_T ? LINEAR_T - i : i - LINEAR_T;
    if (d > LINEAR_T) return;
    room->power[i] = room->powers.power[d];
    room->scaled[i] = room->powers.scaled[d];
}

struct hol_maps {
    hopper_map q, k, v;
};

static __device__ __forceinline__ int64_t hol_first_row(const linear_part &p,
                                                        const linear_blocks &b, int i)
{
    return b.row0 + (p.reverse ? b.n - 1 - i : i) * LINEAR_T;
}

/* ---- the warp that brings tiles -------------------------------------------------------------- */

/* Finds how the rows of a block are used. A warp runs it. */
static __device__ __forceinline__ void hol_see(hol_seen *to, int64_t *lo, const linear_part &p,
                                               const linear_blocks &b, int64_t r0)
{
    const int lane = (int)threadIdx.x % WARP;
    const int64_t left = b.n_valid - r0, edge = p.pos + r0;
    const int L = left < LINEAR_T ? (int)left : LINEAR_T;
    for (int r = lane; r <= LINEAR_T && r < left; r += WARP) lo[r] = p.lo[r0 + r];
    __syncwarp();
    const linear_span s = linear_span_of(lo, edge, L, r0 == 0, left <= LINEAR_T, p.reverse);
    const unsigned first = __ballot_sync(FULL, lane < L && lo[lane] == edge + lane);
    const int r = lane + WARP;
    const unsigned next = __ballot_sync(FULL, r < L && lo[r] == edge + r);
    if (lane == 0) *to = {s, first | (uint64_t)next << WARP};
    __syncwarp(); /* all lanes have read lo before the next tile's lo overwrites it */
}

/* Copies the tiles. A warp runs it. */
template <int DK, int GROUPS, bool ROWS, class R>
static __device__ __forceinline__ void hol_produce(R *room, const linear_part &p,
                                                   const linear_blocks &b, const hol_maps *maps)
{
    typedef hol_shape<DK, GROUPS, ROWS> sh;
    const int lane = (int)threadIdx.x % WARP, head = (int)(p.head + blockIdx.y);
    for (int i = 0; i < b.n; i++) {
        const int s = i % sh::stages;
        const int64_t r0 = hol_first_row(p, b, i);
        hopper_barrier *const there = &room->tiles.there[s];
        ring_wait_free(&room->tiles, i);
        if (lane == 0) {
            bf16 *const k = room->space + s * sh::tile, *const v = k + sh::k;
            barrier_expect(there, sh::tile * (int)sizeof(bf16));
            tile_copy<sh::strips>(k, &maps->k, LINEAR_T, head, (int)r0, there);
            tile_copy<GROUPS>(v, &maps->v, LINEAR_T, head, (int)r0, there);
            if (ROWS)
                tile_copy<sh::strips>(v + GROUPS * sh::v, &maps->q, LINEAR_T, head, (int)r0, there);
        }
        hol_see(&room->seen[s], room->lo, p, b, r0);
        if (lane == 0) barrier_arrive(there); /* this is the second arrival of lane 0 */
    }
}

/* ---- the groups that multiply ---------------------------------------------------------------- */

/* The place of a thread. It is computed at each use, because there are few registers. */
struct hol_place {
    int group, warp, lane;
};
template <int GROUPS> static __device__ __forceinline__ hol_place hol_here(void)
{
    const int t = thread_again();
    return {GROUPS > 1 ? t / HOPPER_GROUP : 0, t % HOPPER_GROUP / WARP, t % WARP};
}

/* A group's part of the walk. The rows of its products are columns of v. A warp has 16 of these
 * columns, from 16 * warp on. */
template <int DK, int GROUPS, bool ROWS> struct hol_group {
    typedef hol_shape<DK, GROUPS, ROWS> sh;
    const linear_part &p;
    hol_room<sh> *room;

    __device__ int64_t first_row(int i) const
    {
        return hol_first_row(p, room->blocks, i);
    }
    __device__ const hol_seen &seen(int i) const
    {
        return room->seen[i % sh::stages];
    }
    __device__ bf16 *tile(int i) const
    {
        return room->space + i % sh::stages * sh::tile;
    }
    /* `step` advances a descriptor by 16 * k columns, and `step_transposed` by 16 * k rows. k_at
     * and q_at return the descriptors of k and q of tile i. */
    static __device__ uint64_t step(uint64_t m, int k)
    {
        return m + (matrix_k(0, k, LINEAR_T) >> 4);
    }
    static __device__ uint64_t step_transposed(uint64_t m, int k)
    {
        return m + (matrix_k_transposed(0, k) >> 4);
    }
    __device__ uint64_t k_at(int i) const
    {
        return matrix_at(hopper_at(tile(i)), LINEAR_T);
    }
    __device__ uint64_t q_at(int i) const
    {
        return matrix_at(hopper_at(tile(i) + sh::k + GROUPS * sh::v), LINEAR_T);
    }
    /* Returns the address of the hi part of a. The lo part begins sh::a elements after it. */
    __device__ uint32_t a_at(void) const
    {
        return hopper_at(room->space + sh::stages * sh::tile +
                         hol_here<GROUPS>().group * 2 * sh::a);
    }
    /* Calls f(x, y) for each element of the thread's part of the state. x is the element in
     * registers, and y is the element in global memory. */
    template <class F> __device__ void each(float (&state)[DK / 8][4], const F &f) const
    {
        const hol_place t = hol_here<GROUPS>();
        float *g = linear_state(p) + t.group * HOPPER_STRIP + rows_mine();
        UNROLL
        for (int n = 0; n < DK / 8; n++) UNROLL
        for (int e = 0; e < 4; e++)
            f(state[n][e], g[(8 * n + t.lane % 4 * 2 + e % 2) * p.value_dim + e / 2 * 8]);
    }

    /* Loads v' in the form of A. A product has 16 rows of the block. */
    __device__ void get_v(uint32_t (&v)[4][4], int i) const
    {
        const hol_place t = hol_here<GROUPS>();
        const int r = t.lane / 16 * 8 + t.lane % 8;
        const int piece = (2 * t.warp + t.lane / 8 % 2) ^ t.lane % 8;
        const bf16 *at = tile(i) + sh::k + t.group * sh::v + r * HOPPER_STRIP + piece * 8;
        UNROLL
        for (int k = 0; k < 4; k++) ldmatrix4<true>(v[k], at, 16 * k * HOPPER_STRIP);
    }
    static __device__ uint32_t pair_within(int row, int from, int to)
    {
        return (row >= from && row < to ? 0xffffu : 0) |
               (row + 1 >= from && row + 1 < to ? 0xffff0000u : 0);
    }
    /* Zeroes the rows outside [from, to), which may contain NaN or infinity. */
    __device__ void keep(uint32_t (&v)[4][4], int from, int to) const
    {
        const hol_place t = hol_here<GROUPS>();
        UNROLL
        for (int k = 0; k < 4; k++) UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = 16 * k + t.lane % 4 * 2 + i / 2 * 8;
            v[k][i] &= pair_within(row, from, to);
        }
    }
    /* Multiplies v by the powers with which rows are added to the state. Rows that are not added
     * become 0. */
    template <int LEVELS>
    __device__ void scale(uint32_t (&to)[LEVELS][4][4], const uint32_t (&v)[4][4],
                          const linear_span &s) const
    {
        const hol_place t = hol_here<GROUPS>();
        const float *f = room->power + LINEAR_T - (p.reverse ? 0 : s.L) + t.lane % 4 * 2;
        UNROLL
        for (int k = 0; k < 4; k++) UNROLL
        for (int i = 0; i < 4; i++) {
            const int row = 16 * k + t.lane % 4 * 2 + i / 2 * 8;
            const uint32_t kept = v[k][i] & pair_within(row, s.add0, s.add1);
            float x = low<bf16>(kept) * f[16 * k + i / 2 * 8];
            float y = high<bf16>(kept) * f[16 * k + i / 2 * 8 + 1];
            UNROLL
            for (int l = 0; l < LEVELS; l++) to[l][k][i] = take_bf16(&x, &y);
        }
    }
    /* Zeroes k of the rows that are not added to the state, once all groups have computed their
     * scores. */
    __device__ void leave_out(const linear_span &s, int i) const
    {
        const hol_place t = hol_here<GROUPS>();
        if (s.add0 == 0 && s.add1 == LINEAR_T) return;
        const int each = 2 * GROUPS; /* lanes that share a row */
        const int row = (4 * t.group + t.warp) * (WARP / each) + t.lane / each;
        const uint32_t k = hopper_at(tile(i)) +
                           (uint32_t)(row * 2 * HOPPER_STRIP + t.lane % each * 4);
        named_barrier_sync(1 + GROUPS, GROUPS * HOPPER_GROUP);
        if (row < s.add0 || row >= s.add1) {
            UNROLL
            for (int w = 0; w < DK / 2; w += each)
                shared_put(k + (uint32_t)(w / 32 * sh::v * 2 + w % 32 * 4), 0);
        }
        shared_made();
        named_barrier_sync(1 + GROUPS, GROUPS * HOPPER_GROUP);
    }
    template <int LEVELS>
    __device__ void add(float (&d)[DK / 8][4], const uint32_t (&v)[LEVELS][4][4], int i) const
    {
        const uint64_t b = k_at(i);
        UNROLL
        for (int l = LEVELS - 1; l >= 0; l--) UNROLL
        for (int k = 0; k < 4; k++)
            product<true>(d, v[l][k], step_transposed(b, k), l < LEVELS - 1 || k > 0);
    }
    __device__ void pass(float (&state)[DK / 8][4], const linear_span &s,
                         const float (&d)[DK / 8][4]) const
    {
        const linear_decay by = s.L == LINEAR_T ? room->powers.whole : room->powers.tail;
        UNROLL
        for (int n = 0; n < DK / 8; n++) UNROLL
        for (int e = 0; e < 4; e++)
            state[n][e] = s.through ? linear_pass(state[n][e], d[n][e], by) : d[n][e];
    }

    /* Computes a = q k'. */
    __device__ void scores(float (&a)[LINEAR_T / 8][4], int i) const
    {
        const uint64_t q = q_at(i), b = k_at(i);
        UNROLL
        for (int k = 0; k < DK / 16; k++) product<false>(a, step(q, k), step(b, k), k > 0);
    }
    /* Multiplies an element of a by scale and a power if its two rows see each other, and by 0
     * otherwise. Puts the result into shared memory. */
    __device__ void put_a(float (&a)[LINEAR_T / 8][4], const hol_seen &seen) const
    {
        const hol_place t = hol_here<GROUPS>();
        /* the row of a that this lane gives to stmatrix */
        const uint32_t to = a_at() + (uint32_t)((16 * t.warp + t.lane % 8) * 2 * HOPPER_STRIP);
        const uint32_t piece = (uint32_t)((t.lane / 8 ^ t.lane % 8) * 16);
        UNROLL
        for (int h = 0; h < 2; h++) {
            const int r = 16 * t.warp + t.lane / 4 + 8 * h, at = t.lane % 4 * 2;
            const uint64_t before = seen.begins << (LINEAR_T - 1 - r);
            const uint64_t after = seen.begins >> r >> 1;
            int from = before ? r - __clzll((long long)before) : 0, to_col = r + 1;
            if (p.reverse) {
                from = r;
                to_col = after ? r + __ffsll((long long)after) : seen.span.L;
            }
            const float *f = room->scaled + LINEAR_T - r + at;
            UNROLL
            for (int n = 0; n < LINEAR_T / 8; n += 4) {
                uint32_t hi[4], lo[4];
                UNROLL
                for (int j = 0; j < 4; j++) {
                    const int c = 8 * (n + j);
                    float *x = &a[n + j][2 * h];
                    UNROLL
                    for (int e = 0; e < 2; e++) {
                        const bool seen = at + c + e >= from && at + c + e < to_col;
                        x[e] *= f[c + e];
                        x[e] = seen ? x[e] : 0;
                    }
                    hi[j] = take_bf16(&x[0], &x[1]);
                    lo[j] = pack_bf16(x[0], x[1]);
                }
                const uint32_t there = to + (piece ^ (uint32_t)(16 * n));
                shared_put4(there + 8 * h * 2 * HOPPER_STRIP, hi);
                shared_put4(there + 8 * h * 2 * HOPPER_STRIP + 2 * sh::a, lo);
            }
        }
        shared_made();
    }
    /* Splits the state into hi and lo, in the form of A of products. */
    __device__ void split(uint32_t (&hi)[DK / 16][4], uint32_t (&lo)[DK / 16][4],
                          const float (&state)[DK / 8][4]) const
    {
        UNROLL
        for (int k = 0; k < DK / 16; k++) UNROLL
        for (int i = 0; i < 4; i++) {
            float x = state[2 * k + i / 2][i % 2 * 2], y = state[2 * k + i / 2][i % 2 * 2 + 1];
            hi[k][i] = take_bf16(&x, &y);
            lo[k][i] = pack_bf16(x, y);
        }
    }
    __device__ void times_state(float (&o)[LINEAR_T / 8][4], const uint32_t (&hi)[DK / 16][4],
                                const uint32_t (&lo)[DK / 16][4], int i) const
    {
        const uint64_t q = q_at(i);
        UNROLL
        for (int k = 0; k < DK / 16; k++) {
            product<false>(o, lo[k], step(q, k), k > 0);
            product<false>(o, hi[k], step(q, k), true);
        }
    }
    /* Multiplies out by its powers in the rows that see the state. The other rows become 0. */
    __device__ void decay(float (&o)[LINEAR_T / 8][4], const linear_span &s) const
    {
        const hol_place t = hol_here<GROUPS>();
        const int at = t.lane % 4 * 2;
        const float *f = room->scaled + LINEAR_T - (p.reverse ? s.L : 0) + at;
        UNROLL
        for (int n = 0; n < LINEAR_T / 8; n++) UNROLL
        for (int e = 0; e < 4; e++) {
            const int r = 8 * n + e % 2;
            o[n][e] *= f[r];
            o[n][e] = at + r >= s.see0 && at + r < s.see1 ? o[n][e] : 0;
        }
    }
    /* Adds out += a v. */
    __device__ void values(float (&o)[LINEAR_T / 8][4], const uint32_t (&v)[4][4]) const
    {
        const uint64_t hi = matrix_at(a_at(), LINEAR_T), lo = hi + (2 * sh::a >> 4);
        UNROLL
        for (int k = 0; k < 4; k++) {
            product<false>(o, v[k], step(lo, k), true);
            product<false>(o, v[k], step(hi, k), true);
        }
    }
    __device__ void put_rows(const float (&o)[LINEAR_T / 8][4], const linear_span &s, int i) const
    {
        const hol_place t = hol_here<GROUPS>();
        const int64_t r0 = first_row(i);
        const int64_t c0 = (p.head + blockIdx.y) * p.value_dim + t.group * HOPPER_STRIP +
                           16 * t.warp;
        if (p.out.dtype == DT_BF16) {
            bf16 *to = (bf16 *)p.out.data + (r0 + t.lane / 4) * p.out.ld + c0 + t.lane % 4 * 2;
            UNROLL
            for (int n = 0; n < LINEAR_T / 8; n++, to += 8 * p.out.ld) UNROLL
            for (int h = 0; h < 2; h++) {
                const uint32_t x = matrix_turn(pack_bf16(o[n][2 * h], o[n][2 * h + 1]));
                if (8 * n + t.lane / 4 < s.L) *(uint32_t *)(to + 8 * h) = x;
            }
            return;
        }
        float *to = (float *)p.out.data + (r0 + t.lane % 4 * 2) * p.out.ld + c0 + t.lane / 4;
        UNROLL
        for (int n = 0; n < LINEAR_T / 8; n++, to += 8 * p.out.ld) UNROLL
        for (int e = 0; e < 4; e++)
            if (8 * n + t.lane % 4 * 2 + e % 2 < s.L) to[e % 2 * p.out.ld + e / 2 * 8] = o[n][e];
    }

    __device__ void rows(void) const
    {
        float state[DK / 8][4] = {};
        if (p.states) each(state, [](float &mine, float &there) { mine = there; });
        for (int i = 0; i < room->blocks.n; i++) {
            float a[LINEAR_T / 8][4], o[LINEAR_T / 8][4], d[DK / 8][4];
            uint32_t v[4][4], powered[2][4][4], hi[DK / 16][4], lo[DK / 16][4];
            ring_wait(&room->tiles, i);
            products_begin();
            scores(a, i);
            products_commit();
            split(hi, lo, state);
            products_begin();
            times_state(o, hi, lo, i);
            products_commit();
            products_wait<1>();
            registers_pin(a);
            named_barrier_sync(1 + hol_here<GROUPS>().group,
                               HOPPER_GROUP); /* the previous a has been read */
            put_a(a, seen(i));
            products_wait<0>();
            registers_pin(o);
            const linear_span s = seen(i).span;
            leave_out(s, i);
            get_v(v, i);
            scale(powered, v, s);
            if (s.L < LINEAR_T) keep(v, 0, s.L);
            decay(o, s);
            named_barrier_sync(1 + hol_here<GROUPS>().group, HOPPER_GROUP);
            products_begin();
            values(o, v);
            products_commit();
            products_begin();
            add(d, powered, i);
            products_commit();
            products_wait<1>();
            registers_pin(o);
            put_rows(o, s, i);
            products_wait<0>();
            registers_pin(d);
            pass(state, s, d);
            ring_let_go(&room->tiles, i);
        }
    }

    __device__ void summary(void) const
    {
        float state[DK / 8][4] = {};
        for (int i = 0; i < room->blocks.n; i++) {
            float d[DK / 8][4];
            uint32_t v[4][4], powered[3][4][4];
            ring_wait(&room->tiles, i);
            const linear_span s = seen(i).span;
            get_v(v, i);
            scale(powered, v, s);
            leave_out(s, i);
            products_begin();
            add(d, powered, i);
            products_commit();
            products_wait<0>();
            registers_pin(d);
            pass(state, s, d);
            ring_let_go(&room->tiles, i);
        }
        each(state, [](float &mine, float &there) { there = mine; });
    }
};

/* ---- the kernel ------------------------------------------------------------------------------ */

template <int DK, int GROUPS, bool ROWS>
static __global__ void __launch_bounds__(hol_shape<DK, GROUPS, ROWS>::threads,
                                         hol_shape<DK, GROUPS, ROWS>::blocks)
    hopper_linear_kernel(linear_part p, const __grid_constant__ hol_maps maps)
{
    typedef hol_shape<DK, GROUPS, ROWS> sh;
    DYNAMIC_SHARED(shared);
    hol_room<sh> *const room = (hol_room<sh> *)hopper_align(shared);
    const linear_blocks blocks = linear_blocks_of(p);
    const int group = (int)threadIdx.x / HOPPER_GROUP;
    const int64_t h = p.head + blockIdx.y;
    if (ROWS) linear_zero(p, blocks, h * p.value_dim, (int)p.value_dim);
    if (blocks.n == 0) return;
    linear_fill(&room->powers, p.slope[h], p.scale, blocks.n_valid);
    __syncthreads();
    hol_mirror(room);
    if (threadIdx.x == 0) {
        room->blocks = blocks;
        ring_make(&room->tiles, 2, GROUPS * HOPPER_GROUP / WARP);
        barriers_made();
    }
    __syncthreads();
    if (group == GROUPS) {
        registers_give<24, sh::blocks>();
        if (threadIdx.x < GROUPS * HOPPER_GROUP + WARP)
            hol_produce<DK, GROUPS, ROWS>(room, p, blocks, &maps);
    } else {
        registers_take<GROUPS == 1 ? 232 : 240, sh::blocks>();
        const hol_group<DK, GROUPS, ROWS> g = {p, room};
        if (ROWS)
            g.rows();
        else
            g.summary();
    }
}

static hopper_map map_of(struct cuda *c, const linear_part &p, const mat &x, int64_t D)
{
    const int64_t heads = p.head + p.n_heads;
    return hopper_map_of(c, tensor_of(DT_BF16, x.data, p.n, heads * D, x.ld), heads, D, LINEAR_T);
}

template <int DK, int GROUPS, bool ROWS> static void run(struct cuda *c, const linear_part &p)
{
    typedef hol_shape<DK, GROUPS, ROWS> sh;
    const int smem = (int)sizeof(hol_room<sh>) + 1024; /* room to align for strips */
    const hopper_map k = map_of(c, p, p.k, DK), v = map_of(c, p, p.v, GROUPS * HOPPER_STRIP);
    const hol_maps maps = {ROWS ? map_of(c, p, p.q, DK) : k, k, v};
    auto linear_walk = hopper_linear_kernel<DK, GROUPS, ROWS>;
    SMEM_ALLOW(c, linear_walk, smem, 0);
    LAUNCH(c, linear_walk, dim3(1, (unsigned)p.n_heads, (unsigned)p.n_segments), dim3(sh::threads),
           (size_t)smem, p, maps);
}

template <bool ROWS> static bool choose(struct cuda *c, const linear_part &p)
{
    const int64_t K = p.key_dim, V = p.value_dim;
    if (!c->hopper || (K != 64 && K != 128) || (V != 64 && V != 128)) return false;
    if (p.head_keys != K) return false;
    if (p.k.dtype != DT_BF16 || p.v.dtype != DT_BF16 || !p.wide_k || !p.wide_v) return false;
    if (ROWS && (p.q.dtype != DT_BF16 || !p.wide_q)) return false;
    if ((ROWS && p.out.dtype == DT_BF16 && !p.pairs) || p.n > INT32_MAX) return false;
    if (K == 64)
        (V == 64 ? run<64, 1, ROWS> : run<64, 2, ROWS>)(c, p);
    else
        (V == 64 ? run<128, 1, ROWS> : run<128, 2, ROWS>)(c, p);
    return true;
}

bool hopper_linear_summary(struct cuda *c, const linear_part &p)
{
    return choose<false>(c, p);
}

bool hopper_linear_rows(struct cuda *c, const linear_part &p)
{
    return choose<true>(c, p);
}
