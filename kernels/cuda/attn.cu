/* attn.cu: softmax attention forward (2205.14135, with the schedule of 2307.08691). A block has
 * one tile of queries of one head and walks over the tiles of keys that these queries see, in
 * ascending order, with o, m and l in registers. All scores are exponents of 2, and so is the
 * carried m, until attn_finish turns it into a natural logarithm.
 *
 * The speed is limited by the following counts, for each head and each pair of a query and a key
 * that it sees:
 *   flops   4 D
 *   bytes   a query has 2 D of q (16 bits) and 8 D of o, in and out. A key has 4 D of K and V,
 *           which are read once for 128 queries, so L2 delivers one byte for 128 flops
 *   16 bits a block has 128 queries, and its shared memory is 36 KiB at D = 64, 68 at 128 and 132
 *           at 256. (On 8.6 a block has 64 queries at 256, with 99 KiB, which is the limit.) A
 *           thread has up to 255 registers and at most 28 spilled bytes, which are only read for
 *           each tile. So a multiprocessor has two blocks of 4 warps or, at 256, one block of 8.
 *           Tensor cores are the limit (2048 flops in a cycle on 8.0). 16 products take 32 cycles,
 *           during which shared memory is read for 24 cycles (scores) or 16 (values). Exponentials
 *           (16 in a cycle) take 32 / D of the time of all products
 *   fp32    a block has 64 queries, 39 KiB of shared memory, and up to 8 warps, which depends on
 *           registers. Multiply-adds are the limit
 *   few queries (generation of a token): reading K and V is the limit, with 4 D bytes for each
 *           key and KV head. The few blocks would each walk all keys. So if the order of sums is
 *           free (be->any_order), keys are divided into pieces, one for each block. A second
 *           kernel then adds the states of the pieces in order */
#include "kernels/cuda/attn.h"
#include "kernels/cuda/hopper.h"

/* ---- 16 bits: tensor cores ------------------------------------------------------------------- */

/* A block has 128 queries and 4 warps. A warp has two fragments of 16 rows, so that a fragment of
 * keys or values from shared memory is used twice. Heads of 256 leave room for only one fragment,
 * so there are 8 warps. With SMALL, the block needs at most SMEM_SMALL. */
template <int DP, bool SMALL = false> struct fwd_shape {
    static const int frags = DP > 128 ? 1 : 2, warps = DP > 128 && !SMALL ? 8 : 4;
    static const int rows = 16 * frags * warps, threads = warps * WARP;
    static const int ld = attn_ld<DP>::value, smem = (rows + 2 * ATTN_T) * ld * 2;
};

/* The carried state. If a call is divided into pieces, piece is the number of keys in each,
 * otherwise 0. In pieces, o, m and l are the state of piece 0, and the state of the next piece is
 * o_step and ml_step further. No state is carried into a piece. */
struct fwd_state {
    float *o, *m, *l;
    int64_t o_ld, ml_ld;
    bool aligned;
    int piece;
    int64_t o_step, ml_step;
};

/* Narrows the call and the state to the piece of the block. */
static __device__ __forceinline__ void fwd_piece(attn_call *c, fwd_state *st)
{
    const int z = (int)blockIdx.z, from = z * st->piece;
    if (c->pages)
        c->pages += from / CACHE_PAGE;
    else
        c->kv.data = (char *)c->kv.data + from * c->kv.ld * (c->kv.dtype == DT_F32 ? 4 : 2);
    c->kv_pos += from;
    c->Tk = c->Tk - from < st->piece ? c->Tk - from : st->piece;
    st->o += z * st->o_step;
    st->m += z * st->ml_step;
    st->l += z * st->ml_step;
}

static_assert(ATTN_T == CACHE_PAGE, "the keys of a tile are adjacent in memory");

/* Returns the number of rows of kv from key row k0 to the tile of keys that begins at k0. */
static __device__ __forceinline__ int64_t fwd_moved(const attn_call &c, int k0)
{
    return c.pages ? (int64_t)c.pages[k0 / CACHE_PAGE] * CACHE_PAGE - k0 : 0;
}

/* Computes the scores s[f] = q[16 f ..] k' of fragment f. */
template <int DP, int FRAGS, class T>
static __device__ __forceinline__ void fwd_scores(float (&s)[FRAGS][ATTN_N][4], const T *q,
                                                  const T *k)
{
    UNROLL
    for (int f = 0; f < FRAGS; f++) UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 0; e < 4; e++) s[f][n][e] = 0;
    UNROLL
    for (int kk = 0; kk < DP; kk += 16) {
        uint32_t a[FRAGS][4];
        UNROLL
        for (int f = 0; f < FRAGS; f++) attn_a<DP>(a[f], q + 16 * f * attn_ld<DP>::value, kk);
        UNROLL
        for (int n = 0; n < ATTN_T; n += 16) {
            uint32_t b[2][2];
            attn_b<DP, true>(b, k, n, kk);
            UNROLL
            for (int f = 0; f < FRAGS; f++) {
                mma<T>(s[f][n / 8], a[f], b[0]);
                mma<T>(s[f][n / 8 + 1], a[f], b[1]);
            }
        }
    }
}

/* Computes o = alpha o + p v. The product p v of the tile is first summed separately, in the order
 * of keys. */
template <int DP, int FRAGS, class T>
static __device__ __forceinline__ void
fwd_values(float (&o)[FRAGS][DP / 8][4], const float (&alpha)[FRAGS][2],
           const uint32_t (&p)[FRAGS][ATTN_T / 16][4], const T *v)
{
    UNROLL
    for (int n = 0; n < DP; n += 16) {
        float part[FRAGS][2][4] = {};
        UNROLL
        for (int kk = 0; kk < ATTN_T; kk += 16) {
            uint32_t b[2][2];
            attn_b<DP, false>(b, v, n, kk);
            UNROLL
            for (int f = 0; f < FRAGS; f++) {
                mma<T>(part[f][0], p[f][kk / 16], b[0]);
                mma<T>(part[f][1], p[f][kk / 16], b[1]);
            }
        }
        UNROLL
        for (int f = 0; f < FRAGS; f++) UNROLL
        for (int j = 0; j < 2; j++) UNROLL
        for (int e = 0; e < 4; e++)
            o[f][n / 8 + j][e] = fmaf(o[f][n / 8 + j][e], alpha[f][e / 2], part[f][j][e]);
    }
}

/* Turns the scores of one row into probabilities times 2^RAISED, by subtracting the new maximum
 * and adding RAISED. o and l are larger by the same factor. A row that has not seen a key yet
 * subtracts 0 instead of -inf, because -inf - -inf is NaN. l is this lane's part of the sum. */
template <int RAISED>
static __device__ __forceinline__ float fwd_softmax(float (&s)[ATTN_N][4], int half, float scale2,
                                                    float *m, float *l)
{
    float max = -INFINITY, sum = 0;
    UNROLL
    for (int n = 0; n < ATTN_N; n++) max = fmaxf(max, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    max = fmaxf(max, __shfl_xor_sync(FULL, max, 1));
    max = fmaxf(max, __shfl_xor_sync(FULL, max, 2));
    const float now = fmaxf(*m, fmaf(max, scale2, -RAISED)), base = now == -INFINITY ? 0 : now;
    const float alpha = attn_exp2(*m - base);
    UNROLL
    for (int n = 0; n < ATTN_N; n++) UNROLL
    for (int e = 2 * half; e < 2 * half + 2; e++) {
        s[n][e] = attn_exp2(fmaf(s[n][e], scale2, -base));
        sum += s[n][e];
    }
    *m = now;
    *l = fmaf(*l, alpha, sum);
    return alpha;
}

/* Loads a lane's carried m and l for rows below n_rows; other rows start empty. Four lanes share a
 * row. Only the first of the four loads the row's l, because fwd_end adds the l of all four. */
template <int FRAGS>
static __device__ __forceinline__ void fwd_begin(const fwd_state &st, int n_rows, int row,
                                                 int64_t head, float (&m)[FRAGS][2],
                                                 float (&l)[FRAGS][2])
{
    UNROLL
    for (int i = 0; i < 2 * FRAGS; i++) {
        const int at = row + 8 * i + threadIdx.x % WARP / 4;
        m[i / 2][i % 2] = at < n_rows ? st.m[head * st.ml_ld + at] : -INFINITY;
        l[i / 2][i % 2] = at < n_rows && threadIdx.x % 4 == 0 ? st.l[head * st.ml_ld + at] : 0;
    }
}
template <int FRAGS>
static __device__ __forceinline__ void fwd_end(const fwd_state &st, const attn_call &c, int row,
                                               int64_t head, const float (&m)[FRAGS][2],
                                               const float (&l)[FRAGS][2])
{
    UNROLL
    for (int i = 0; i < 2 * FRAGS; i++) {
        const int at = row + 8 * i + threadIdx.x % WARP / 4;
        float sum = l[i / 2][i % 2];
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        if (at >= c.Tq || threadIdx.x % 4) continue;
        st.m[head * st.ml_ld + at] = attn_seen(c, at, m[i / 2][i % 2], sum);
        st.l[head * st.ml_ld + at] = sum;
    }
}

/* While the scores of a tile are computed, the tile's values are copied. While its values are
 * added, the next tile's keys are copied. So there is one buffer for keys and one for values. A
 * warp whose rows see no key of a tile computes nothing for that tile. With APART, keys may be
 * divided into pieces, and there may be a page table. */
template <class T, int DP, bool SMALL, bool APART>
static __global__ void __launch_bounds__(fwd_shape<DP, SMALL>::threads, DP > 128 ? 1 : 2)
    attn_fwd_half(attn_call c, fwd_state st)
{
    if constexpr (SMALL && !smem_is_small) return;
    if (APART && st.piece) fwd_piece(&c, &st);
    typedef fwd_shape<DP, SMALL> sh;
    const int FRAGS = sh::frags;
    DYNAMIC_SHARED(shared);
    T *const qs = (T *)shared, *const ks = qs + sh::rows * sh::ld, *const vs = ks + ATTN_T * sh::ld;
    const int64_t head = blockIdx.y, g = head / c.group;
    const T *q = (const T *)c.q.data + head * c.D;
    const T *k = (const T *)c.kv.data + g * c.D, *v = k + (int64_t)c.Hk * c.D;
    /* tasks begin with the last rows, because under a causal mask the last rows see the largest
     * number of keys */
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * sh::rows;
    const int own = threadIdx.x / WARP * 16 * FRAGS, row = i0 + own;
    const attn_span hull = attn_hull(c, i0, sh::rows);
    if (!hull.hi) return; /* the whole block returns */
    attn_fetch<DP, sh::rows, sh::threads>(qs, q, c.q.ld, i0, c.Tq, c.D, st.aligned);
    int k0 = hull.lo / ATTN_T * ATTN_T;
    int64_t moved = APART ? fwd_moved(c, k0) * c.kv.ld : 0;
    attn_fetch<DP, ATTN_T, sh::threads, true>(ks, k + moved, c.kv.ld, k0, c.Tk, c.D, st.aligned);
    copies_commit();
    float o[FRAGS][DP / 8][4], m[FRAGS][2], l[FRAGS][2];
    const attn_bounds bounds = attn_bounds_of(c, row, 16 * FRAGS);
    const int carried = APART && st.piece ? 0 : c.Tq;
    fwd_begin<FRAGS>(st, carried, row, head, m, l);
    UNROLL
    for (int f = 0; f < FRAGS; f++)
        attn_get<DP>(o[f], st.o + head * c.D, st.o_ld, row + 16 * f, carried, 0, c.D);
    for (; k0 < hull.hi; k0 += ATTN_T) {
        float alpha[FRAGS][2];
        uint32_t p[FRAGS][ATTN_T / 16][4];
        const attn_view view = attn_view_of(bounds, k0);
        copies_wait<0>();
        __syncthreads(); /* the keys have arrived, and the previous values have been read */
        attn_fetch<DP, ATTN_T, sh::threads, true>(vs, v + moved, c.kv.ld, k0, c.Tk, c.D,
                                                  st.aligned);
        copies_commit();
        if (view != SEES_NONE) {
            float s[FRAGS][ATTN_N][4];
            fwd_scores<DP, FRAGS>(s, qs + own * sh::ld, ks);
            UNROLL
            for (int f = 0; f < FRAGS; f++) {
                if (view == SEES_SOME) attn_mask(s[f], c, row + 16 * f, k0);
                UNROLL
                for (int h = 0; h < 2; h++)
                    alpha[f][h] = fwd_softmax<attn_raised<T>>(s[f], h, c.scale2, &m[f][h],
                                                              &l[f][h]);
                attn_round<T>(p[f], s[f]);
            }
        }
        copies_wait<0>();
        __syncthreads(); /* the values have arrived, and these keys have been read */
        if (k0 + ATTN_T < hull.hi) {
            if (APART) moved = fwd_moved(c, k0 + ATTN_T) * c.kv.ld;
            attn_fetch<DP, ATTN_T, sh::threads, true>(ks, k + moved, c.kv.ld, k0 + ATTN_T, c.Tk,
                                                      c.D, st.aligned);
        }
        copies_commit();
        if (view != SEES_NONE) fwd_values<DP, FRAGS>(o, alpha, p, vs);
    }
    const int end_row = made_again(row);
    const int64_t end_head = made_again((int)head);
    UNROLL
    for (int f = 0; f < FRAGS; f++)
        attn_put<DP>(o[f], st.o + end_head * c.D, st.o_ld, end_row + 16 * f, c.Tq, 0, c.D);
    fwd_end<FRAGS>(st, c, end_row, end_head, m, l);
}

/* ---- fp32, and 16 bits under dropout or a soft cap ------------------------------------------- */

struct fwd_room {
    f32_slice a, b;
    f32_tile p;
    attn_keep keep;
};

/* Does the same as fwd_softmax for a row that is spread over 16 lanes, with four scores in each
 * lane. */
static __device__ __forceinline__ float f32_softmax(float (&s)[F32_EACH], float scale2, float *m,
                                                    float *l)
{
    float max = -INFINITY, sum = 0;
    UNROLL
    for (int j = 0; j < F32_EACH; j++) max = fmaxf(max, s[j]);
    UNROLL
    for (int d = 8; d; d /= 2) max = fmaxf(max, __shfl_xor_sync(FULL, max, d));
    const float now = fmaxf(*m, max * scale2), base = now == -INFINITY ? 0 : now;
    const float alpha = exp2f(*m - base);
    UNROLL
    for (int j = 0; j < F32_EACH; j++) {
        s[j] = exp2f(fmaf(s[j], scale2, -base));
        sum += s[j];
    }
    UNROLL
    for (int d = 8; d; d /= 2) sum += __shfl_xor_sync(FULL, sum, d);
    *m = now;
    *l = fmaf(*l, alpha, sum);
    return alpha;
}

/* Puts the probabilities of a tile, masked by dropout, into shared memory. s has the scores. */
static __device__ __forceinline__ void f32_probabilities(fwd_room *room, const attn_call &c,
                                                         float (&s)[F32_EACH][F32_EACH],
                                                         const attn_span (&rows)[F32_EACH], int k0,
                                                         float (&m)[F32_EACH], float (&l)[F32_EACH],
                                                         float (&alpha)[F32_EACH])
{
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    UNROLL
    for (int i = 0; i < F32_EACH; i++) {
        UNROLL
        for (int j = 0; j < F32_EACH; j++) {
            if (c.cap > 0) s[i][j] = c.cap * tanhf(s[i][j] / c.cap);
            if (!attn_in(rows[i], k0 + tx + 16 * j)) s[i][j] = -INFINITY;
        }
        alpha[i] = f32_softmax(s[i], c.scale2, &m[i], &l[i]);
        UNROLL
        for (int j = 0; j < F32_EACH; j++) {
            const int r = ty + 16 * i, t = tx + 16 * j;
            const float f = c.drop.on ? attn_factor(room->keep, c.drop, r, c.kv_pos + k0, t) : 1;
            room->p[r][t] = s[i][j] * f;
        }
    }
}

template <int DP, bool APART>
static __global__ void __launch_bounds__(F32_THREADS, DP > 64 ? 1 : 2)
    attn_fwd_f32(attn_call c, fwd_state st)
{
    if (APART && st.piece) fwd_piece(&c, &st);
    DYNAMIC_SHARED(shared);
    fwd_room *const room = (fwd_room *)shared;
    const int64_t head = blockIdx.y, q_col = head * c.D, k_col = head / c.group * c.D,
                  v_col = k_col + (int64_t)c.Hk * c.D;
    const int i0 = (int)(gridDim.x - 1 - blockIdx.x) * ATTN_T, lane = threadIdx.x % WARP;
    const attn_span hull = attn_hull(c, i0, ATTN_T);
    if (!hull.hi) return;
    const attn_span warp_rows[2] = {attn_row(c, i0 + lane), attn_row(c, i0 + WARP + lane)};
    attn_span rows[F32_EACH];
    float m[F32_EACH], l[F32_EACH], alpha[F32_EACH];
    f32_acc<DP> o;
    const int carried = APART && st.piece ? 0 : c.Tq;
    f32_get(o, st.o + q_col, st.o_ld, i0, carried, c.D);
    UNROLL
    for (int i = 0; i < F32_EACH; i++) {
        const int r = i0 + (int)threadIdx.x / 16 + 16 * i;
        rows[i] = attn_row(c, r);
        m[i] = r < carried ? st.m[head * st.ml_ld + r] : -INFINITY;
        l[i] = r < carried ? st.l[head * st.ml_ld + r] : 0;
    }
    for (int k0 = hull.lo / ATTN_T * ATTN_T; k0 < hull.hi; k0 += ATTN_T) {
        if (!attn_anybody(warp_rows, k0)) continue;
        const int64_t moved = APART ? fwd_moved(c, k0) * c.kv.ld : 0;
        float s[F32_EACH][F32_EACH] = {};
        if (c.drop.on)
            attn_keep_make<F32_THREADS>(room->keep, c.drop, (int)head, i0, c.kv_pos + k0);
        for (int d = 0; d < c.D; d += F32_SLICE) {
            f32_fetch(room->a, c.q, i0, c.Tq, q_col, d, c.D, st.aligned);
            f32_fetch(room->b, c.kv, k0, c.Tk, k_col + moved, d, c.D, st.aligned);
            __syncthreads();
            f32_dot(s, room->a, room->b, c.D - d < F32_SLICE ? c.D - d : F32_SLICE);
            __syncthreads();
        }
        f32_probabilities(room, c, s, rows, k0, m, l, alpha);
        UNROLL
        for (int d = 0; d < f32_acc<DP>::slices; d++) {
            if (d * F32_SLICE >= c.D) break;
            float part[F32_EACH][2];
            f32_fetch(room->b, c.kv, k0, c.Tk, v_col + moved, d * F32_SLICE, c.D, st.aligned);
            __syncthreads();
            f32_mix(part, room->p, room->b);
            UNROLL
            for (int i = 0; i < F32_EACH; i++) UNROLL
            for (int e = 0; e < 2; e++) o.x[d][i][e] = fmaf(o.x[d][i][e], alpha[i], part[i][e]);
            __syncthreads();
        }
    }
    f32_put(o, st.o + q_col, st.o_ld, i0, c.Tq, c.D);
    UNROLL
    for (int i = 0; i < F32_EACH; i++) {
        const int r = i0 + (int)threadIdx.x / 16 + 16 * i;
        if (threadIdx.x % 16 || r >= c.Tq) continue;
        st.m[head * st.ml_ld + r] = attn_seen(c, r, m[i], l[i]);
        st.l[head * st.ml_ld + r] = l[i];
    }
}

/* ---- pieces of keys -------------------------------------------------------------------------- */

#define MERGE_THREADS 128
#define PIECE_LEAST                                                                                \
    512 /* keys, which are 8 tiles, because each piece writes and reads D + 2 floats for a row */

/* Adds the pieces in which a row sees keys to the carried state of the row. A block has one row of
 * one head. */
static __global__ void attn_merge(attn_call c, fwd_state st, fwd_state part)
{
    const int row = (int)blockIdx.x;
    const int64_t head = blockIdx.y, at = head * st.ml_ld + row, part_at = head * part.ml_ld + row;
    const attn_span s = attn_row(c, row);
    if (!s.hi) return;
    const int first = s.lo / part.piece, last = (s.hi - 1) / part.piece;
    const float carried = st.m[at];
    float m = carried;
    for (int z = first; z <= last; z++) m = fmaxf(m, part.m[z * part.ml_step + part_at]);
    const float base = m == -INFINITY ? 0 : m, old = exp2f(carried - base);
    float *const o = st.o + row * st.o_ld + head * c.D;
    for (int d = threadIdx.x; d < c.D; d += MERGE_THREADS) {
        float sum = old * o[d];
        for (int z = first; z <= last; z++)
            sum = fmaf(exp2f(part.m[z * part.ml_step + part_at] - base),
                       part.o[z * part.o_step + row * part.o_ld + head * c.D + d], sum);
        o[d] = sum;
    }
    __syncthreads(); /* all threads have read the carried state */
    if (threadIdx.x) return;
    float sum = old * st.l[at];
    for (int z = first; z <= last; z++)
        sum = fmaf(exp2f(part.m[z * part.ml_step + part_at] - base),
                   part.l[z * part.ml_step + part_at], sum);
    st.m[at] = m;
    st.l[at] = sum;
}

/* Divides the keys into pieces, and returns the states of the pieces, which are in the scratch.
 * The result's `piece` is 0 if the call is not divided. n_blocks is the number of blocks that the
 * call has if it is not divided. Aims at four blocks for each multiprocessor, in pieces of
 * PIECE_LEAST keys or more. */
static fwd_state fwd_pieces(struct cuda *c, const attn_call &call, int64_t n_heads,
                            int64_t n_blocks)
{
    fwd_state part = {};
    const int64_t state = n_heads * call.Tq * (call.D + 2) * (int64_t)sizeof(float);
    const int64_t most = c->be.scratch_size / state;
    if (!c->be.any_order || n_blocks >= c->n_sm || call.Tk < 2 * PIECE_LEAST || most < 2)
        return part;
    int64_t n = div_up(4 * c->n_sm, n_blocks);
    if (n > most) n = most;
    const int64_t piece = div_up(div_up(call.Tk, n), ATTN_T) * ATTN_T;
    part.piece = (int)(piece > PIECE_LEAST ? piece : PIECE_LEAST);
    n = div_up(call.Tk, part.piece);
    part.o_ld = n_heads * call.D;
    part.ml_ld = call.Tq;
    part.o_step = call.Tq * part.o_ld;
    part.ml_step = n_heads * call.Tq;
    part.o = (float *)c->be.scratch;
    part.m = part.o + n * part.o_step;
    part.l = part.m + n * part.ml_step;
    return part;
}

/* ---- the slot -------------------------------------------------------------------------------- */

template <class T, int DP, bool SMALL> struct fwd_kernels {
    static const bool half = sizeof(T) == 2;
    typedef fwd_shape<DP, SMALL> sh;
    static const int rows = half ? sh::rows : ATTN_T, threads = half ? sh::threads : F32_THREADS;
    static const int smem = half ? sh::smem : (int)sizeof(fwd_room);
    static_assert(!SMALL || smem <= SMEM_SMALL, "it is small");
    template <bool APART>
    static void launch(struct cuda *c, const attn_call &call, const fwd_state &st, dim3 grid)
    {
        auto attn_fwd = attn_fwd_f32<DP, APART>;
        if constexpr (half) attn_fwd = attn_fwd_half<T, DP, SMALL, APART>;
        SMEM_ALLOW(c, attn_fwd, smem, 0);
        LAUNCH(c, attn_fwd, grid, dim3((unsigned)threads), (size_t)smem, call, st);
    }
};

template <class T, int DP, bool SMALL>
static void run_fwd(struct cuda *c, const attn_call &call, const fwd_state &st, fwd_state part,
                    int64_t n_heads)
{
    typedef fwd_kernels<T, DP, SMALL> kernels;
    if constexpr (!SMALL && kernels::smem > SMEM_SMALL) {
        if (kernels::smem > c->smem_most) {
            run_fwd<T, DP, true>(c, call, st, part, n_heads);
            return;
        }
    }
    dim3 grid((unsigned)div_up(call.Tq, kernels::rows), (unsigned)n_heads);
    if (!part.piece) {
        if (call.pages)
            kernels::template launch<true>(c, call, st, grid);
        else
            kernels::template launch<false>(c, call, st, grid);
        return;
    }
    grid.z = (unsigned)div_up(call.Tk, part.piece);
    kernels::template launch<true>(c, call, part, grid);
    LAUNCH(c, attn_merge, dim3((unsigned)call.Tq, grid.y), dim3(MERGE_THREADS), 0, call, st, part);
}

void cuda_attn_fwd(struct be *be, const struct attn_fwd_args *a)
{
    shape_attn_fwd(a);
    if (a->q.rows < 1 || attn_keys(a) < 1) return;
    struct cuda *c = cuda_of(be);
    attn_call call = attn_call_of(a);
    call.Tk = (int)attn_keys(a);
    call.pages = a->pages;
    fwd_state part = fwd_pieces(c, call, a->n_heads, div_up(call.Tq, 2 * ATTN_T) * a->n_heads);
    if (!part.piece && !a->pages && hopper_attn_fwd(c, a)) return;
    part.aligned = fits_packs(a->q) && fits_packs(a->kv) && a->head_dim % 8 == 0;
    const fwd_state st = {(float *)a->o.data, a->m, a->l, a->o.ld, a->ml_ld, part.aligned};
    attn_typed(call, [&](auto type) {
        attn_sized<decltype(type)>(a->head_dim, [&](auto size) {
            run_fwd<decltype(type), decltype(size)::value, false>(c, call, st, part, a->n_heads);
        });
    });
}
