/* linear.cu: runs the three passes of a linear-attention walk in their order, over as many
 * segments at a time as fit in the scratch, and handles the states that enter and leave a chunk.
 *
 * The speed is limited by the following times, for 131072 rows with 32 heads of 128 in bf16 (4.2 M
 * rows of a head, 65536 blocks), on a device that has 132 processors, 1.75 GHz and 4.8 TB/s. The
 * times are calculated, not measured. A product of 16 x 8 x 16 is assumed to take 1.6 cycles of a
 * processor (mma.sync, at six tenths of the rate of its tensor cores):
 *
 *   summary  reads k and v, 2.1 GB, in 0.45 ms. A block with 64 columns of v has 768 products,
 *            which take 1230 cycles. A processor has 993 such blocks, which take 0.7 ms
 *   scan     reads and writes the states of 128 segments, 2 MB each. This is 0.5 GB in 0.1 ms
 *   rows     reads q, k, v and the states, and writes o. This is 4.6 GB in 0.95 ms. The products
 *            (256 for q k', 160 for a v, 512 for q S, 512 for the state) take 2300 cycles. Shared
 *            memory takes 2300 cycles too, because each warp reads all of the state. If products
 *            and shared memory overlap in part, rows take 3300 cycles, or 1.9 ms
 *
 * Together this is 2.7 ms. The backward takes three times as long. Its results are fp32, which
 * adds 1 GB for each result, so the backward takes 9 ms. If the scratch has less room than the
 * states need, there are more launches, and each launch has less to do. */
#include "kernels/cuda/hopper.h"
#include "kernels/cuda/linear.h"

#define THREADS    256
#define SCAN_AHEAD 4 /* states that are being read at the same time */
#define ENDS_SIZE  256

/* ---- documents ------------------------------------------------------------------------------ */

/* Returns the first i in [0, n) for which is(i) is false, or n if there is no such i. A warp runs
 * this function, with 32 probes at a time. */
template <class F> static __device__ int64_t count_prefix(F is, int64_t n)
{
    int64_t from = 0, to = n; /* is(i) is true for all i before `from`, and false from `to` on */
    while (from < to) {
        const int64_t step = (to - from + WARP - 1) / WARP, i = from + threadIdx.x * step;
        const int yes = __popc(__ballot_sync(FULL, i < to && is(i)));
        if (yes == 0) return from;
        to = from + yes * step < to ? from + yes * step : to;
        from += (yes - 1) * step + 1;
    }
    return from;
}

static __global__ void ends_kernel(const int64_t *lo, const int64_t *hi, int64_t pos, int64_t n,
                                   struct linear_ends *to)
{
    const int64_t n_valid = count_prefix([&](int64_t i) { return hi[i] > lo[i]; }, n);
    const int64_t n_see = count_prefix([&](int64_t i) { return lo[i] < pos; }, n_valid);
    const int64_t last = n_valid ? lo[n_valid - 1] - pos : 0;
    if (threadIdx.x == 0) *to = {n_valid, n_see, last < 0 ? 0 : last};
}

static struct linear_ends *ends_of(struct cuda *c)
{
    static_assert(sizeof(struct linear_ends) <= ENDS_SIZE, "they begin the scratch");
    return (struct linear_ends *)c->be.scratch;
}

void linear_find_ends(struct cuda *c, const struct linear_args *a)
{
    LAUNCH(c, ends_kernel, dim3(1), dim3(WARP), 0, a->lo, a->hi, a->pos, a->q.rows, ends_of(c));
}

/* ---- the scan ------------------------------------------------------------------------------- */

struct scan {
    linear_part p;
    float *carry; /* [n_heads, key_dim, value_dim], carried from part to part */
    /* last state of head 0, from the piece's first row on; NULL if this is not the last part, or
     * the state is unwanted */
    float *to;
    float to_scale;
    bool first; /* no state is carried yet */
};

/* Tells whether the state that entered the segment of rows [r0, r1) still has an effect where the
 * walk leaves the segment. */
static __device__ __forceinline__ bool stays(const linear_part &p, int64_t r0, int64_t r1,
                                             int64_t n_valid)
{
    if (!p.reverse) return r0 > 0 && p.lo[r1 - 1] < p.pos + r0;
    return r1 < n_valid && p.lo[r1] < p.pos + r0;
}

/* Carries the states from segment to segment. Each thread has one element of a head's state. */
static __global__ void scan_kernel(scan s)
{
    const linear_part &p = s.p;
    const int64_t size = p.key_dim * p.value_dim, all = p.n_heads * size;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x, n_valid = p.ends->n_valid;
    if (at >= all) return;
    const double slope = p.slope[p.head + at / size];
    const linear_decay whole = linear_decay_of(slope, LINEAR_ROWS);
    float state = s.first ? 0 : s.carry[at];
    for (int64_t i0 = 0; i0 < p.n_segments; i0 += SCAN_AHEAD) {
        float sum[SCAN_AHEAD];
        UNROLL
        for (int j = 0; j < SCAN_AHEAD; j++) {
            const int64_t i = p.reverse ? p.n_segments - 1 - i0 - j : i0 + j;
            if (i0 + j < p.n_segments) sum[j] = p.states[i * all + at];
        }
        UNROLL
        for (int j = 0; j < SCAN_AHEAD; j++) {
            const int64_t i = p.reverse ? p.n_segments - 1 - i0 - j : i0 + j;
            const int64_t r0 = (p.segment + i) * LINEAR_ROWS;
            if (i0 + j >= p.n_segments || r0 >= n_valid) continue;
            const int64_t r1 = r0 + LINEAR_ROWS < n_valid ? r0 + LINEAR_ROWS : n_valid;
            p.states[i * all + at] = state;
            if (!stays(p, r0, r1, n_valid))
                state = sum[j];
            else if (r1 - r0 == LINEAR_ROWS)
                state = linear_pass(state, sum[j], whole);
            else
                state = linear_pass(state, sum[j], linear_decay_of(slope, r1 - r0));
        }
    }
    s.carry[at] = state;
    if (s.to)
        s.to[(p.head + at / size) * p.head_keys * p.value_dim + at % size] = state * s.to_scale;
}

/* ---- a walk --------------------------------------------------------------------------------- */

/* Tells whether the columns of a head can be read 16 bytes at a time. */
static bool wide(struct tensor t, int64_t head_cols)
{
    return fits_packs(t) && head_cols % 8 == 0;
}
static bool pairs(struct tensor t, int64_t head_cols)
{
    return (uintptr_t)t.data % 8 == 0 && t.ld % 2 == 0 && head_cols % 2 == 0;
}

static void walk_part(struct cuda *c, const linear_part &p, scan *s)
{
    const bool half = p.k.dtype != DT_F32;
    if (s && p.n_segments > 0 && !hopper_linear_summary(c, p))
        (half ? linear_summary_bf16 : linear_summary_f32)(c, p);
    if (s) {
        s->p = p;
        LAUNCH(c, scan_kernel, dim3((unsigned)div_up(p.n_heads * p.key_dim * p.value_dim, THREADS)),
               dim3(THREADS), 0, *s);
    }
    if (p.n_segments > 0 && p.out.data && !hopper_linear_rows(c, p))
        (half ? linear_rows_bf16 : linear_rows_f32)(c, p);
}

static void walk_heads(struct cuda *c, linear_part p, const struct linear_walk *w, int64_t room)
{
    const int64_t all = div_up(p.n, LINEAR_ROWS), size = p.key_dim * p.value_dim * p.n_heads;
    const bool alone = all <= 1 && !w->state; /* no state is ever seen */
    const int64_t most = room / p.n_heads - 1 < 65535 ? room / p.n_heads - 1 : 65535;
    const int64_t step = alone || all < most ? all : most, n_parts = all ? div_up(all, step) : 1;
    scan s = {};
    s.carry = (float *)(c->be.scratch + ENDS_SIZE);
    s.to_scale = w->state_scale;
    for (int64_t i = 0; i < n_parts; i++) {
        p.segment = (w->reverse ? n_parts - 1 - i : i) * step;
        p.n_segments = all - p.segment < step ? all - p.segment : step;
        p.states = alone ? NULL : s.carry + size;
        s.first = i == 0;
        s.to = i == n_parts - 1 ? w->state : NULL;
        walk_part(c, p, alone ? NULL : &s);
    }
}

/* Walks key columns [k0, k0 + K) of every head. */
static void walk_keys(struct cuda *c, const struct linear_args *a, struct linear_walk w, int64_t k0,
                      int64_t K)
{
    const int64_t V = w.value_dim;
    /* the number of states that fit; each head has one state that is carried, and one for each
     * segment */
    const int64_t room = (c->be.scratch_size - ENDS_SIZE) / (K * V * (int64_t)sizeof(float));
    const int64_t heads = a->n_heads < room / 2 ? a->n_heads : room / 2;
    assert(heads > 0);
    const int64_t cols = w.q.cols - k0;
    w.q = tensor_sub(w.q, 0, w.q.rows, k0, cols), w.k = tensor_sub(w.k, 0, w.k.rows, k0, cols);
    if (w.state) w.state += k0 * V;
    linear_part p = {};
    p.q = mat_of(w.q);
    p.k = mat_of(w.k);
    p.v = mat_of(w.v);
    p.out = mat_of(w.out);
    p.wide_q = wide(w.q, w.key_dim);
    p.wide_k = wide(w.k, w.key_dim);
    p.wide_v = wide(w.v, V);
    p.pairs = pairs(w.out, V);
    p.slope = a->slope;
    p.lo = a->lo;
    p.ends = ends_of(c);
    p.pos = a->pos;
    p.n = a->q.rows;
    p.key_dim = K;
    p.head_keys = w.key_dim;
    p.add = k0 > 0;
    p.value_dim = V;
    p.scale = a->scale;
    p.reverse = w.reverse;
    for (int64_t h = 0; h < a->n_heads; h += heads) {
        p.head = h;
        p.n_heads = a->n_heads - h < heads ? a->n_heads - h : heads;
        walk_heads(c, p, &w, room);
    }
}

void linear_walk_run(struct cuda *c, const struct linear_args *a, const struct linear_walk *w)
{
    const int64_t K = w->key_dim;
    for (int64_t k0 = 0; k0 < K; k0 += LINEAR_KEYS)
        walk_keys(c, a, *w, k0, K - k0 < LINEAR_KEYS ? K - k0 : LINEAR_KEYS);
}

void cuda_linear_fwd(struct be *be, const struct linear_fwd_args *a)
{
    shape_linear_fwd(a);
    struct cuda *c = cuda_of(be);
    const struct linear_args *in = &a->in;
    const struct linear_walk w = {in->q,         in->k, in->v,         a->o, in->key_dim,
                                  in->value_dim, false, (float *)a->m, 1};
    linear_find_ends(c, in);
    linear_walk_run(c, in, &w);
}

/* ---- states that enter and leave a chunk ---------------------------------------------------- */

void linear_apply_run(struct cuda *c, const struct linear_args *a, const struct linear_apply *p)
{
    linear_apply_part part = {};
    part.x = mat_of(p->x);
    part.out = mat_of(p->out);
    part.wide = wide(p->x, p->transposed ? p->cols : p->rows);
    part.pairs = pairs(p->out, p->transposed ? p->rows : p->cols);
    part.slope = a->slope;
    part.ends = ends_of(c);
    part.m = p->m;
    part.n = a->q.rows;
    part.rows = p->rows;
    part.cols = p->cols;
    part.transposed = p->transposed;
    part.to_end = p->to_end;
    part.scale = p->scale;
    if (part.n > 0)
        (part.x.dtype == DT_F32 ? linear_apply_f32 : linear_apply_bf16)(c, part, a->n_heads);
}

void cuda_linear_enter(struct be *be, const struct linear_enter_args *a)
{
    shape_linear_enter(a);
    struct cuda *c = cuda_of(be);
    const struct linear_args *in = &a->in;
    const struct linear_apply p = {
        in->q, a->o, (const float *)a->state, in->key_dim, in->value_dim, false, false, in->scale};
    linear_find_ends(c, in);
    linear_apply_run(c, in, &p);
}

static __global__ void fold_kernel(struct linear_fold_args a)
{
    const int64_t size = a.key_dim * a.value_dim;
    const int64_t at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= a.n_heads * size) return;
    float x = ((const float *)a.m)[at];
    if (a.through) {
        const double power = linear_power(a.slope[at / size], a.n_valid);
        x = (float)(power * (double)((const float *)a.in)[at] + (double)x);
    }
    ((float *)a.out)[at] = x;
}

void cuda_linear_fold(struct be *be, const struct linear_fold_args *a)
{
    shape_linear_fold(a);
    LAUNCH(cuda_of(be), fold_kernel,
           dim3((unsigned)div_up(a->n_heads * a->key_dim * a->value_dim, THREADS)), dim3(THREADS),
           0, *a);
}
