/* delta.cu: the gated delta rule (2412.06464), one row at a time. A warp has some columns of a
 * head's state in registers, and its lanes have the rows of the state.
 *
 * S is the state after a row's decay. D is the gradient of the state after the row, including the
 * contribution of the row's d_o:
 *
 *     r = S' k;  u = beta (v - r);  S += k u';  o = scale S' q
 *     du = D' k;  dv = beta du;  dq = scale S d_o;  dk = D u - (S before u) dv
 *     D becomes exp(g) (D - k dv') for the previous row
 *
 * So D needs no state. Backward walks the rows forward for u, then back for D and dv, and then
 * forward again for the gradients that need S. The gradient of g is <D - k dv', S before u> = <D,
 * S> - u du - r dv. <D, S> is not computed for each row. It is the sum of d_o o - dv v over the
 * rows from the right. So that rounding errors do not grow, <D, S> itself is computed every
 * DELTA_SPAN rows, and a new sum begins at each of these rows. The caller's room keeps D before
 * each of these rows. In the place of row 0 it keeps the gradient of the state that leaves,
 * because d_state may overwrite that gradient. */
#include "kernels/cuda/device.h"

#define DELTA_COLS    4 /* columns of v of a warp; 8 if a head has more than 128 */
#define DELTA_WARPS   4 /* warps of a block, forward */
#define DELTA_MOST    32
#define DELTA_EPS     1e-6f
#define DELTA_THREADS 128
/* less than log 2^-24; after a decay by this logarithm, a state is less than the rounding of a
 * sum */
#define DELTA_GONE -17.f

struct delta_in {
    mat q, k, v, a, b, a_log, dt_bias;
    const int64_t *lo, *hi;
    int64_t pos, n, heads, group, K, V;
    float scale;
};

static struct delta_in in_of(const struct delta_args *a)
{
    return {mat_of(a->q),
            mat_of(a->k),
            mat_of(a->v),
            mat_of(a->a),
            mat_of(a->b),
            mat_of(a->a_log),
            mat_of(a->dt_bias),
            a->lo,
            a->hi,
            a->pos,
            a->q.rows,
            a->n_heads,
            a->n_heads / a->n_key_heads,
            a->key_dim,
            a->value_dim,
            a->scale};
}

struct delta_gate {
    float g, slope, beta; /* slope: of g by a */
};

static __device__ struct delta_gate gate_of(const struct delta_in &x, int64_t h, int64_t i)
{
    const float t = get(x.a, i, h) + get(x.dt_bias, 0, h), rate = expf(get(x.a_log, 0, h));
    const float plus = t > 20 ? t : log1pf(expf(t));
    return {-rate * plus, -rate / (1 + expf(-t)), 1 / (1 + expf(-get(x.b, i, h)))};
}

/* This lane's part of a row. It has the elements lane + 32 j of the row's unit query and unit
 * key. */
template <int J> struct delta_row {
    float q[J], k[J], beta;
    /* exp(g) equals times + plus; plus is 1 if exp(g) is near 1, and 0 otherwise */
    float times, plus;
    bool begins; /* true in the first row of a document, in which no state decays */
};

template <int J>
static __device__ __forceinline__ float unit_of(const mat &x, int64_t row, int64_t col0, int64_t K,
                                                float (&to)[J])
{
    float sum = 0;
    UNROLL
    for (int j = 0; j < J; j++) {
        const int64_t d = threadIdx.x % WARP + (int64_t)j * WARP;
        to[j] = d < K ? get(x, row, col0 + d) : 0;
        sum = fmaf(to[j], to[j], sum);
    }
    const float norm = 1 / sqrtf(warp_sum(sum) + DELTA_EPS);
    UNROLL
    for (int j = 0; j < J; j++) to[j] *= norm;
    return norm;
}

template <int J>
static __device__ __forceinline__ void row_of(const struct delta_in &x, int64_t h, int64_t i,
                                              struct delta_row<J> &r)
{
    const int64_t col0 = h / x.group * x.K;
    const struct delta_gate gate = gate_of(x, h, i);
    unit_of(x.q, i, col0, x.K, r.q);
    unit_of(x.k, i, col0, x.K, r.k);
    r.beta = gate.beta;
    r.plus = gate.g > -0.7f;
    r.times = r.plus > 0 ? expm1f(gate.g) : expf(gate.g);
    r.begins = x.lo[i] == x.pos + i;
}

/* The existing columns among [c0, c0 + C) of a head's state. A lane has rows lane + 32 j. */
template <int J, int C> struct delta_part {
    float s[J][C];
};

/* Reads head h's part from the states p. If p is NULL, the part is zeros. */
template <int J, int C>
static __device__ void part_read(const struct delta_in &x, const float *p, int64_t h, int64_t c0,
                                 struct delta_part<J, C> &to)
{
    for (int j = 0; j < J; j++)
        for (int c = 0; c < C; c++) {
            const int64_t d = threadIdx.x % WARP + (int64_t)j * WARP;
            const bool there = p && d < x.K && c0 + c < x.V;
            to.s[j][c] = there ? p[(h * x.K + d) * x.V + c0 + c] : 0;
        }
}

template <int J, int C>
static __device__ void part_write(const struct delta_in &x, float *p, int64_t h, int64_t c0,
                                  const struct delta_part<J, C> &from)
{
    for (int j = 0; p && j < J; j++)
        for (int c = 0; c < C; c++) {
            const int64_t d = threadIdx.x % WARP + (int64_t)j * WARP;
            if (d < x.K && c0 + c < x.V) p[(h * x.K + d) * x.V + c0 + c] = from.s[j][c];
        }
}

template <int J, int C>
static __device__ __forceinline__ void part_decay(struct delta_part<J, C> &p,
                                                  const struct delta_row<J> &r)
{
    UNROLL
    for (int j = 0; j < J; j++) UNROLL
    for (int c = 0; c < C; c++)
        p.s[j][c] = r.begins ? 0 : fmaf(r.times, p.s[j][c], r.plus * p.s[j][c]);
}

/* Adds p += x y'. */
template <int J, int C>
static __device__ __forceinline__ void part_add(struct delta_part<J, C> &p, const float (&x)[J],
                                                const float (&y)[C])
{
    UNROLL
    for (int j = 0; j < J; j++) UNROLL
    for (int c = 0; c < C; c++) p.s[j][c] = fmaf(x[j], y[c], p.s[j][c]);
}

/* Computes to = p' x, with the result on every lane. */
template <int J, int C>
static __device__ __forceinline__ void part_across(const struct delta_part<J, C> &p,
                                                   const float (&x)[J], float (&to)[C])
{
    UNROLL
    for (int c = 0; c < C; c++) {
        float sum = 0;
        UNROLL
        for (int j = 0; j < J; j++) sum = fmaf(p.s[j][c], x[j], sum);
        to[c] = warp_sum(sum);
    }
}

/* Computes to += times p y, for this lane's rows. */
template <int J, int C>
static __device__ __forceinline__ void part_along(const struct delta_part<J, C> &p,
                                                  const float (&y)[C], float times, float (&to)[J])
{
    UNROLL
    for (int j = 0; j < J; j++) {
        float sum = 0;
        UNROLL
        for (int c = 0; c < C; c++) sum = fmaf(p.s[j][c], y[c], sum);
        to[j] = fmaf(times, sum, to[j]);
    }
}

template <int C>
static __device__ __forceinline__ void cols_read(const mat &x, int64_t row, int64_t h, int64_t V,
                                                 int64_t c0, float (&to)[C])
{
    UNROLL
    for (int c = 0; c < C; c++) to[c] = c0 + c < V ? get(x, row, h * V + c0 + c) : 0;
}

template <int C>
static __device__ __forceinline__ void cols_write(const mat &x, int64_t row, int64_t h, int64_t V,
                                                  int64_t c0, const float (&from)[C])
{
    UNROLL
    for (int c = 0; c < C; c++)
        if ((int)threadIdx.x % WARP == c && c0 + c < V) set(x, row, h * V + c0 + c, from[c]);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Writes o, or u for the backward. o or u has NULL data if it is unwanted. */
template <int J>
static __global__ void delta_forward(struct delta_in x, mat o, mat u_out, const float *state,
                                     float *state_out)
{
    constexpr int C = DELTA_COLS;
    const int64_t h = blockIdx.x, n = valid_rows(x.lo, x.hi, x.n);
    const int64_t c0 = ((int64_t)blockIdx.y * DELTA_WARPS + threadIdx.x / WARP) * C;
    struct delta_part<J, C> S;
    struct delta_row<J> r;
    if (c0 >= x.V) return;
    part_read(x, state, h, c0, S);
    for (int64_t i = 0; i < n; i++) {
        float seen[C], u[C], out[C];
        row_of(x, h, i, r);
        part_decay(S, r);
        part_across(S, r.k, seen);
        cols_read(x.v, i, h, x.V, c0, u);
        UNROLL
        for (int c = 0; c < C; c++) u[c] = r.beta * (u[c] - seen[c]);
        part_add(S, r.k, u);
        if (u_out.data) cols_write(u_out, i, h, x.V, c0, u);
        if (!o.data) continue;
        part_across(S, r.q, out);
        UNROLL
        for (int c = 0; c < C; c++) out[c] *= x.scale;
        cols_write(o, i, h, x.V, c0, out);
    }
    const float zero[C] = {};
    for (int64_t i = n; o.data && i < x.n; i++) cols_write(o, i, h, x.V, c0, zero);
    part_write(x, state_out, h, c0, S);
}

/* Calls f with the number of a lane's rows among K rows, as a constant (delta_share). */
template <int J> struct delta_share {
    static constexpr int value = J;
};
template <class F> static void by_rows(int64_t K, F f)
{
    assert(K <= 8 * WARP);
    if (K <= WARP)
        f(delta_share<1>());
    else if (K <= 2 * WARP)
        f(delta_share<2>());
    else if (K <= 4 * WARP)
        f(delta_share<4>());
    else
        f(delta_share<8>());
}

static void forward(struct cuda *c, const struct delta_in &x, mat o, mat u, const float *state,
                    float *state_out)
{
    const dim3 grid((unsigned)x.heads, (unsigned)div_up(x.V, DELTA_COLS * DELTA_WARPS));
    by_rows(x.K, [&](auto j) {
        auto delta_rule = delta_forward<decltype(j)::value>;
        LAUNCH(c, delta_rule, grid, dim3(DELTA_WARPS * WARP), 0, x, o, u, state, state_out);
    });
}

void cuda_delta_fwd(struct be *be, const struct delta_fwd_args *a)
{
    shape_delta_fwd(a);
    const mat none = {};
    forward(cuda_of(be), in_of(&a->in), mat_of(a->o), none, a->state, a->state_out);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The args of the backward's kernels. A head has as many warps as its columns need. A block
 * computes the heads that share one key head, one after another, so that their sums have a fixed
 * order. */
struct delta_back {
    struct delta_in x;
    mat d_o, dq, dk, dv, db, d_log;
    const float *state, *d_state_out;
    float *d_state, *room;
    /* [heads, spans + 1]: <D, S> at the first row of each span, and after the last row */
    double *inner;
    int64_t spans;
};

/* Sums the lanes' parts over the warps. Writes the sums to to[row][col0 + d], or adds them to
 * these elements. part is [warps, K], in shared memory. */
template <int J>
static __device__ __forceinline__ void sum_warps(const struct delta_in &x, const float (&mine)[J],
                                                 float *part, const mat &to, int64_t row,
                                                 int64_t col0, bool add)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    __syncthreads(); /* threads may still read part */
    UNROLL
    for (int j = 0; j < J; j++)
        if (lane + j * WARP < x.K) part[warp * x.K + lane + j * WARP] = mine[j];
    __syncthreads();
    for (int64_t d = threadIdx.x; d < x.K; d += blockDim.x) {
        float sum = add ? get(to, row, col0 + d) : 0;
        for (int w = 0; w < warps; w++) sum += part[w * x.K + d];
        set(to, row, col0 + d, sum);
    }
}

/* Returns the sum over all warps, on the first thread. room is [DELTA_MOST], in shared memory. */
static __device__ __forceinline__ double sum_lanes(double mine, double *room)
{
    const int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    double sum = 0;
    __syncthreads();
    if (threadIdx.x % WARP == 0) room[warp] = mine;
    __syncthreads();
    for (int w = 0; threadIdx.x == 0 && w < warps; w++) sum += room[w];
    return sum;
}

/* Walks the rows from the last to the first. Computes dv, which is written over u, and the part of
 * dk that comes from D. */
template <int J, int C>
static __device__ void walk_back(const struct delta_back &b, int64_t h, int64_t n, float *part)
{
    const struct delta_in &x = b.x;
    const int64_t c0 = threadIdx.x / WARP * C, col0 = h / x.group * x.K;
    struct delta_part<J, C> D;
    struct delta_row<J> r;
    part_read(x, b.d_state_out, h, c0, D);
    part_write(x, b.room, h * b.spans, c0, D);
    for (int64_t i = n - 1; i >= 0; i--) {
        float y[C], u[C], dk[J] = {};
        row_of(x, h, i, r);
        cols_read(b.d_o, i, h, x.V, c0, y);
        cols_read(b.dv, i, h, x.V, c0, u);
        UNROLL
        for (int c = 0; c < C; c++) y[c] *= x.scale;
        part_add(D, r.q, y);
        part_along(D, u, 1, dk);
        part_across(D, r.k, y);
        UNROLL
        for (int c = 0; c < C; c++) y[c] *= r.beta;
        __syncwarp();
        cols_write(b.dv, i, h, x.V, c0, y);
        UNROLL
        for (int c = 0; c < C; c++) y[c] = -y[c];
        part_add(D, r.k, y);
        sum_warps(x, dk, part, b.dk, i, col0, h % x.group != 0);
        part_decay(D, r);
        if (i && i % DELTA_SPAN == 0) part_write(x, b.room, h * b.spans + i / DELTA_SPAN, c0, D);
    }
    part_write(x, b.d_state, h, c0, D);
}

template <int J, int C>
static __device__ double part_inner(const struct delta_in &x, const float *p, int64_t h, int64_t c0,
                                    const struct delta_part<J, C> &S)
{
    struct delta_part<J, C> D;
    double sum = 0;
    part_read(x, p, h, c0, D);
    for (int j = 0; j < J; j++)
        for (int c = 0; c < C; c++) sum += (double)D.s[j][c] * (double)S.s[j][c];
    return warp_sum(sum);
}

/* Walks the rows from the first to the last. Computes dq, the rest of dk, and db. d_log becomes
 * the terms of the sums that give g's gradient. */
template <int J, int C>
static __device__ void walk_on(const struct delta_back &b, int64_t h, int64_t n, float *part,
                               double *room)
{
    const struct delta_in &x = b.x;
    const int64_t c0 = threadIdx.x / WARP * C, col0 = h / x.group * x.K;
    struct delta_part<J, C> S;
    struct delta_row<J> r;
    double *inner = b.inner + h * (b.spans + 1);
    part_read(x, b.state, h, c0, S);
    for (int64_t i = 0; i < n; i++) {
        float v[C], dv[C], y[C], seen[C], o[C], dq[J] = {}, dk[J] = {};
        if (i % DELTA_SPAN == 0) {
            const double mine = i ? part_inner(x, b.room, h * b.spans + i / DELTA_SPAN, c0, S)
                                  : part_inner(x, b.d_state, h, c0, S);
            const double sum = sum_lanes(mine, room);
            if (threadIdx.x == 0) inner[i / DELTA_SPAN] = sum;
        }
        row_of(x, h, i, r);
        part_decay(S, r);
        cols_read(x.v, i, h, x.V, c0, v);
        cols_read(b.dv, i, h, x.V, c0, dv);
        cols_read(b.d_o, i, h, x.V, c0, y);
        part_across(S, r.k, seen);
        part_along(S, dv, -1, dk);
        double d_beta = 0, flow = 0;
        UNROLL
        for (int c = 0; c < C; c++) {
            d_beta += (double)dv[c] * (double)(v[c] - seen[c]);
            flow -= (double)dv[c] * (double)v[c];
            seen[c] = r.beta * (v[c] - seen[c]);
        }
        part_add(S, r.k, seen);
        part_across(S, r.q, o);
        part_along(S, y, x.scale, dq);
        UNROLL
        for (int c = 0; c < C; c++) flow += (double)y[c] * (double)(x.scale * o[c]);
        sum_warps(x, dq, part, b.dq, i, col0, h % x.group != 0);
        sum_warps(x, dk, part, b.dk, i, col0, true);
        d_beta = sum_lanes(d_beta, room);
        flow = sum_lanes(flow, room);
        if (threadIdx.x) continue;
        set(b.db, i, h, (float)(d_beta * (1 - (double)r.beta)));
        set(b.d_log, i, h, (float)flow);
    }
    const double end = sum_lanes(part_inner(x, b.room, h * b.spans, c0, S), room);
    if (threadIdx.x == 0) inner[n ? (n - 1) / DELTA_SPAN + 1 : 0] = end;
}

template <int J, int C>
static __global__ void __launch_bounds__(DELTA_MOST *WARP) delta_walk_back(struct delta_back b)
{
    DYNAMIC_SHARED(smem);
    const int64_t n = valid_rows(b.x.lo, b.x.hi, b.x.n), h0 = blockIdx.x * b.x.group;
    for (int64_t h = h0; h < h0 + b.x.group; h++) walk_back<J, C>(b, h, n, (float *)smem);
}

template <int J, int C>
static __global__ void __launch_bounds__(DELTA_MOST *WARP) delta_walk_on(struct delta_back b)
{
    DYNAMIC_SHARED(smem);
    const int64_t n = valid_rows(b.x.lo, b.x.hi, b.x.n), h0 = blockIdx.x * b.x.group;
    double *room = (double *)smem;
    for (int64_t h = h0; h < h0 + b.x.group; h++)
        walk_on<J, C>(b, h, n, (float *)(room + DELTA_MOST), room);
}

/* Turns dx, which is the gradient of a unit row of one key head, into the gradient of the row
 * before it was divided by its length. */
template <int J>
static __device__ void raw_of(const mat &x, const mat &dx, int64_t row, int64_t col0, int64_t K)
{
    float unit[J], sum = 0;
    const float norm = unit_of(x, row, col0, K, unit);
    UNROLL
    for (int j = 0; j < J; j++) {
        const int64_t d = threadIdx.x % WARP + (int64_t)j * WARP;
        if (d < K) sum = fmaf(unit[j], get(dx, row, col0 + d), sum);
    }
    const float along = warp_sum(sum);
    UNROLL
    for (int j = 0; j < J; j++) {
        const int64_t d = threadIdx.x % WARP + (int64_t)j * WARP;
        if (d < K) set(dx, row, col0 + d, norm * (get(dx, row, col0 + d) - along * unit[j]));
    }
}

static __device__ void zero_cols(const mat &t, int64_t row, int64_t col0, int64_t n)
{
    for (int64_t c = threadIdx.x % WARP; c < n; c += WARP) set(t, row, col0 + c, 0);
}

/* Finishes the rows. A block, of one warp, does one row of one key head. */
template <int J> static __global__ void delta_rows(struct delta_back b, mat da)
{
    const struct delta_in &x = b.x;
    const int64_t i = blockIdx.x, kh = blockIdx.y, h0 = kh * x.group;
    if (x.hi[i] > x.lo[i]) {
        raw_of<J>(x.q, b.dq, i, kh * x.K, x.K);
        raw_of<J>(x.k, b.dk, i, kh * x.K, x.K);
        return;
    }
    zero_cols(b.dq, i, kh * x.K, x.K);
    zero_cols(b.dk, i, kh * x.K, x.K);
    zero_cols(b.dv, i, h0 * x.V, x.group * x.V);
    zero_cols(da, i, h0, x.group);
    zero_cols(b.db, i, h0, x.group);
    zero_cols(b.d_log, i, h0, x.group);
}

/* Returns true if the sum of g's gradient at this row is 0, because the state before the row has
 * no effect on it. */
static __device__ bool closes(const struct delta_in &x, int64_t h, int64_t i)
{
    return x.lo[i] == x.pos + i || gate_of(x, h, i).g < DELTA_GONE;
}

/* Sums the gates' gradients from the right. Each thread does one span of a head. At the sum's
 * first row, its value is also known without the sum. The computed sum differs from that value by
 * rounding, and the difference is spread over the rows. */
static __global__ void delta_gates(struct delta_back b, mat da)
{
    const struct delta_in &x = b.x;
    const int64_t at = (int64_t)blockIdx.x * DELTA_THREADS + threadIdx.x,
                  n = valid_rows(x.lo, x.hi, x.n);
    const int64_t h = at / b.spans, s = at % b.spans, i0 = s * DELTA_SPAN;
    if (at >= x.heads * b.spans || i0 >= n) return;
    const double *inner = b.inner + h * (b.spans + 1) + s;
    double sum = inner[1];
    int64_t i = (n < i0 + DELTA_SPAN ? n : i0 + DELTA_SPAN) - 1;
    while (i >= i0) {
        int64_t first = i;
        double total = sum + (double)get(b.d_log, i, h);
        while (first > i0 && !closes(x, h, first)) total += (double)get(b.d_log, --first, h);
        const bool closed = closes(x, h, first);
        const double want = closed ? 0 : s || b.d_state ? inner[0] : total;
        const double each = (want - total) / (double)(i - first + 1);
        for (; i >= first; i--) {
            const struct delta_gate gate = gate_of(x, h, i);
            sum += (double)get(b.d_log, i, h) + each;
            if (closed && i == first) sum = 0;
            set(da, i, h, (float)(sum * (double)gate.slope));
            set(b.d_log, i, h, (float)(sum * (double)gate.g));
        }
    }
}

template <int J, int C> static void walk(struct cuda *c, const struct delta_back &b, bool on)
{
    const int64_t warps = div_up(b.x.V, C);
    const int sums = DELTA_MOST * (int)sizeof(double);
    const int smem = (int)(warps * b.x.K) * (int)sizeof(float) + sums;
    const dim3 grid((unsigned)(b.x.heads / b.x.group)), block((unsigned)warps * WARP);
    assert(warps <= DELTA_MOST && smem <= 48 << 10);
    auto walks_on = delta_walk_on<J, C>;
    auto walks_back = delta_walk_back<J, C>;
    if (on)
        LAUNCH(c, walks_on, grid, block, smem, b);
    else
        LAUNCH(c, walks_back, grid, block, smem, b);
}

static void walk_rows(struct cuda *c, const struct delta_back &b, bool on)
{
    by_rows(b.x.K, [&](auto j) {
        if (b.x.V <= DELTA_COLS * DELTA_MOST)
            walk<decltype(j)::value, DELTA_COLS>(c, b, on);
        else
            walk<decltype(j)::value, 2 * DELTA_COLS>(c, b, on);
    });
}

void cuda_delta_bwd(struct be *be, const struct delta_bwd_args *a)
{
    shape_delta_bwd(a);
    struct cuda *c = cuda_of(be);
    const mat none = {}, da = mat_of(a->da);
    const struct delta_back b = {in_of(&a->in),
                                 mat_of(a->d_o),
                                 mat_of(a->dq),
                                 mat_of(a->dk),
                                 mat_of(a->dv),
                                 mat_of(a->db),
                                 mat_of(a->d_log),
                                 a->state,
                                 a->d_state_out,
                                 a->d_state,
                                 a->room,
                                 (double *)c->be.scratch,
                                 delta_spans(a->in.q.rows)};
    const struct delta_in &x = b.x;
    if (x.n < 1) return;
    assert(x.heads * (b.spans + 1) * (int64_t)sizeof(double) <= c->be.scratch_size);
    forward(c, x, none, b.dv, a->state, NULL);
    walk_rows(c, b, false);
    walk_rows(c, b, true);
    by_rows(x.K, [&](auto j) {
        auto rows = delta_rows<decltype(j)::value>;
        LAUNCH(c, rows, dim3((unsigned)x.n, (unsigned)(x.heads / x.group)), dim3(WARP), 0, b, da);
    });
    LAUNCH(c, delta_gates, dim3((unsigned)div_up(x.heads * b.spans, DELTA_THREADS)),
           dim3(DELTA_THREADS), 0, b, da);
}
