/* elem.cu: elementwise operations: activations, sums, casts, Adam, permutations. */
#include <math.h>
#include "kernels/cuda/each.h"
#include "kernels/philox.h"

/* ---- activations ----------------------------------------------------------------------------- */

/* The formulas never subtract numbers that are nearly equal: 0.5 (1 + erf(z)) is computed as 0.5
 * erfc(-z), and 0.5 (1 + tanh(z)) as the sigmoid of 2z. */
static __device__ __forceinline__ float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}
/* Returns the factor by which GELU multiplies x. It is computed in double, because in the tail a
 * relative error of the argument z grows by a factor of about 2 z^2. */
static __device__ __forceinline__ double gelu_share(float x)
{
    return 0.5 * erfc((double)x * -0.70710678118654752440);
}
#define GELU_K 0.79788456080286536f /* sqrt(2 / pi) */

static __device__ float act_value(int fn, float x)
{
    switch (fn) {
    case ACT_SILU: return x * sigmoid(x);
    case ACT_GELU: return (float)((double)x * gelu_share(x));
    case ACT_GELU_TANH: return x * sigmoid(2 * GELU_K * (x + 0.044715f * x * x * x));
    case ACT_RELU: return x > 0 ? x : x <= 0 ? 0 : x; /* NaN stays NaN */
    case ACT_ELU1: return x > 0 ? x + 1 : expf(x);
    case ACT_SIGMOID: return sigmoid(x);
    case ACT_TANH: return tanhf(x);
    default: return x;
    }
}

static __device__ float act_slope(int fn, float x)
{
    switch (fn) {
    case ACT_SILU: {
        const float s = sigmoid(x);
        return s + x * s * sigmoid(-x);
    }
    case ACT_GELU:
        return (float)(gelu_share(x) +
                       (double)x * 0.39894228040143268 * (double)expf(-0.5f * x * x));
    case ACT_GELU_TANH: {
        const float z = 2 * GELU_K * (x + 0.044715f * x * x * x), s = sigmoid(z);
        return s + x * s * sigmoid(-z) * 2 * GELU_K * (1 + 3 * 0.044715f * x * x);
    }
    case ACT_RELU: return x > 0 ? 1 : x <= 0 ? 0 : x; /* NaN stays NaN */
    case ACT_ELU1: return x > 0 ? 1 : expf(x);
    case ACT_SIGMOID: return sigmoid(x) * sigmoid(-x);
    case ACT_TANH: {
        const float s = sigmoid(2 * x);
        return 4 * s * sigmoid(-2 * x);
    }
    default: return 1;
    }
}

struct act_forward {
    int fn;
    mat x, y;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC];
        load(x, row, col, v);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] = act_value(fn, v[i]);
        store(y, row, col, v);
    }
};

void cuda_act_fwd(struct be *be, const struct act_fwd_args *a)
{
    shape_act_fwd(a);
    each(cuda_of(be), act_forward{a->fn, mat_of(a->x), mat_of(a->y)}, {a->x, a->y}, a->x.rows,
         a->x.cols);
}

struct act_backward {
    int fn;
    mat x, dy, dx;
    bool add;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], d[VEC], old[VEC] = {};
        load(x, row, col, v);
        load(dy, row, col, d);
        if (add) load(dx, row, col, old);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            d[i] *= act_slope(fn, v[i]);
            if (add) d[i] += old[i];
        }
        store(dx, row, col, d);
    }
};

void cuda_act_bwd(struct be *be, const struct act_bwd_args *a)
{
    shape_act_bwd(a);
    each(cuda_of(be),
         act_backward{a->fn, mat_of(a->x), mat_of(a->dy), mat_of(a->dx), a->accumulate},
         {a->x, a->dy, a->dx}, a->x.rows, a->x.cols);
}

/* ---- gated linear units ---------------------------------------------------------------------- */

struct glu_forward {
    int fn;
    mat a, b, y;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC];
        load(a, row, col, v);
        load(b, row, col, w);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] = act_value(fn, v[i]) * w[i];
        store(y, row, col, v);
    }
};

struct glu_backward {
    int fn;
    mat a, b, dy, da, db;
    bool add_a, add_b;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC], d[VEC], ga[VEC] = {}, gb[VEC] = {};
        load(a, row, col, v);
        load(b, row, col, w);
        load(dy, row, col, d);
        if (da.data && add_a) load(da, row, col, ga);
        if (db.data && add_b) load(db, row, col, gb);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            const float to_a = act_slope(fn, v[i]) * w[i] * d[i], to_b = act_value(fn, v[i]) * d[i];
            ga[i] = add_a ? ga[i] + to_a : to_a;
            gb[i] = add_b ? gb[i] + to_b : to_b;
        }
        if (da.data) store(da, row, col, ga);
        if (db.data) store(db, row, col, gb);
    }
};

void cuda_glu_fwd(struct be *be, const struct glu_fwd_args *a)
{
    shape_glu_fwd(a);
    each(cuda_of(be), glu_forward{a->fn, mat_of(a->a), mat_of(a->b), mat_of(a->y)},
         {a->a, a->b, a->y}, a->a.rows, a->a.cols);
}

void cuda_glu_bwd(struct be *be, const struct glu_bwd_args *a)
{
    shape_glu_bwd(a);
    each(cuda_of(be),
         glu_backward{a->fn, mat_of(a->a), mat_of(a->b), mat_of(a->dy), mat_of(a->da),
                      mat_of(a->db), a->accumulate_a, a->accumulate_b},
         {a->a, a->b, a->dy, a->da, a->db}, a->a.rows, a->a.cols);
}

/* ---- clamped gated units: a NaN is within every limit ---------------------------------------- */

struct clamped {
    float gate, up, gate_slope, up_slope;
};

static __device__ __forceinline__ clamped clamp_of(float a, float b, float limit)
{
    clamped x = {a, b, 1, 1};
    if (a > limit) x.gate = limit, x.gate_slope = 0;
    if (b > limit) x.up = limit, x.up_slope = 0;
    if (b < -limit) x.up = -limit, x.up_slope = 0;
    return x;
}

struct clamp_glu_forward {
    mat a, b, y;
    float alpha, limit;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC];
        load(a, row, col, v);
        load(b, row, col, w);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            const clamped x = clamp_of(v[i], w[i], limit);
            v[i] = x.gate * act_value(ACT_SIGMOID, alpha * x.gate) * (x.up + 1);
        }
        store(y, row, col, v);
    }
};

struct clamp_glu_backward {
    mat a, b, dy, da, db;
    float alpha, limit;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC], d[VEC];
        load(a, row, col, v);
        load(b, row, col, w);
        load(dy, row, col, d);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            const clamped x = clamp_of(v[i], w[i], limit);
            const float s = act_value(ACT_SIGMOID, alpha * x.gate);
            v[i] = d[i] * (x.up + 1) * (s * (1 + alpha * x.gate * (1 - s))) * x.gate_slope;
            w[i] = d[i] * x.gate * s * x.up_slope;
        }
        store(da, row, col, v);
        store(db, row, col, w);
    }
};

void cuda_clamp_glu_fwd(struct be *be, const struct clamp_glu_fwd_args *a)
{
    shape_clamp_glu_fwd(a);
    each(cuda_of(be),
         clamp_glu_forward{mat_of(a->a), mat_of(a->b), mat_of(a->y), a->alpha, a->limit},
         {a->a, a->b, a->y}, a->a.rows, a->a.cols);
}

void cuda_clamp_glu_bwd(struct be *be, const struct clamp_glu_bwd_args *a)
{
    shape_clamp_glu_bwd(a);
    each(cuda_of(be),
         clamp_glu_backward{mat_of(a->a), mat_of(a->b), mat_of(a->dy), mat_of(a->da), mat_of(a->db),
                            a->alpha, a->limit},
         {a->a, a->b, a->dy, a->da, a->db}, a->a.rows, a->a.cols);
}

/* Returns one half of each row, which is gate or up. */
static struct tensor half(struct tensor t, int which)
{
    return tensor_sub(t, 0, t.rows, which * t.cols / 2, t.cols / 2);
}

void cuda_swiglu_fwd(struct be *be, const struct swiglu_fwd_args *a)
{
    shape_swiglu_fwd(a);
    const struct glu_fwd_args g = {ACT_SILU, half(a->gu, 0), half(a->gu, 1), a->a};
    cuda_glu_fwd(be, &g);
}

void cuda_swiglu_bwd(struct be *be, const struct swiglu_bwd_args *a)
{
    shape_swiglu_bwd(a);
    const struct glu_bwd_args g = {ACT_SILU,        half(a->gu, 0),  half(a->gu, 1), a->da,
                                   half(a->dgu, 0), half(a->dgu, 1), false,          false};
    cuda_glu_bwd(be, &g);
}

/* ---- sums, casts ----------------------------------------------------------------------------- */

struct mix_of {
    mat a, b, y;
    float alpha, beta;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC];
        load(a, row, col, v);
        if (b.data) load(b, row, col, w);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            v[i] *= alpha;
            if (b.data) v[i] += beta * w[i];
        }
        store(y, row, col, v);
    }
};

void cuda_mix(struct be *be, const struct mix_args *a)
{
    shape_mix(a);
    each(cuda_of(be), mix_of{mat_of(a->a), mat_of(a->b), mat_of(a->y), a->alpha, a->beta},
         {a->a, a->b, a->y}, a->y.rows, a->y.cols);
}

struct cast_of {
    mat dst, src;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC];
        load(src, row, col, v);
        store(dst, row, col, v);
    }
};

void cuda_cast(struct be *be, const struct cast_args *a)
{
    shape_cast(a);
    each(cuda_of(be), cast_of{mat_of(a->dst), mat_of(a->src)}, {a->dst, a->src}, a->src.rows,
         a->src.cols);
}

struct add_of {
    mat y, x;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC];
        load(y, row, col, v);
        load(x, row, col, w);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] += w[i];
        store(y, row, col, v);
    }
};

void cuda_add(struct be *be, const struct add_args *a)
{
    const struct tensor y = tensor_f32(a->y, 1, a->n, a->n);
    const struct tensor x = tensor_f32((float *)a->x, 1, a->n, a->n);
    each(cuda_of(be), add_of{mat_of(y), mat_of(x)}, {y, x}, 1, a->n);
}

struct fill_of {
    mat y;
    float value;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC];
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] = value;
        store(y, row, col, v);
    }
};

void cuda_fill(struct be *be, float *p, int64_t n, float value)
{
    const struct tensor y = tensor_f32(p, 1, n, n);
    each(cuda_of(be), fill_of{mat_of(y), value}, {y}, 1, n);
}

/* ---- dropout --------------------------------------------------------------------------------- */

/* Applies dropout to one element, by its word of Philox. The element is the probability of a query
 * (row) and a key (column). One counter gives the words of four neighbouring keys (struct
 * attn_drop). */
struct dropout_of {
    float *x;
    int64_t ld, col_pos;
    struct attn_drop drop;
    uint32_t head;
    float kept; /* factor of a kept element */
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        const uint32_t least = (uint32_t)ceil(drop.rate * 4294967296.0);
        const int64_t key = col_pos + col;
        const uint32_t counter[4] = {(uint32_t)(drop.q_pos + row), (uint32_t)(key / 4),
                                     drop.layer << 16 | head, drop.sample};
        uint32_t word[4];
        philox4x32(drop.key, counter, word);
        x[row * ld + col] *= word[key % 4] >= least ? kept : 0;
    }
};

void cuda_dropout(struct be *be, const struct dropout_args *a)
{
    shape_dropout(a);
    const dropout_of f = {(float *)a->x.data,
                          a->x.ld,
                          a->col_pos,
                          *a->drop,
                          (uint32_t)a->head + a->drop->head,
                          (float)(1 / (1 - a->drop->rate))};
    each_vec<1>(cuda_of(be), f, a->x.rows, a->x.cols);
}

/* ---- the optimizer --------------------------------------------------------------------------- */

/* AdamW of one element. The factors that are common to a step are computed once, in double. */
struct adamw_of {
    float *p, *m, *v;
    mat p_half; /* data is NULL if it is not wanted */
    const float *g;
    float clip, b1, c1, b2, c2, decay, step, root, eps;
    template <int VEC> __device__ void at(int64_t, int64_t col) const
    {
        float x[VEC], mi[VEC], vi[VEC], pi[VEC];
        load(g + col, x);
        load(m + col, mi);
        load(v + col, vi);
        load(p + col, pi);
        UNROLL
        for (int i = 0; i < VEC; i++) {
            const float d = x[i] * clip;
            mi[i] = b1 * mi[i] + c1 * d;
            vi[i] = b2 * vi[i] + c2 * (d * d);
            pi[i] = pi[i] * decay - step * (mi[i] / (sqrtf(vi[i]) * root + eps));
        }
        store(m + col, mi);
        store(v + col, vi);
        store(p + col, pi);
        if (p_half.data) store(p_half, 0, col, pi);
    }
};

void cuda_adamw(struct be *be, const struct adamw_args *a)
{
    const double bias1 = 1 - pow(a->beta1, (double)a->t), bias2 = 1 - pow(a->beta2, (double)a->t);
    const struct tensor half = tensor_of(a->half, a->p_half, 1, a->n, a->n);
    const adamw_of f = {a->p,
                        a->m,
                        a->v,
                        mat_of(half),
                        a->g,
                        (float)a->clip,
                        (float)a->beta1,
                        (float)(1 - a->beta1),
                        (float)a->beta2,
                        (float)(1 - a->beta2),
                        (float)(1 - a->lr * a->weight_decay),
                        (float)(a->lr / bias1),
                        (float)(1 / sqrt(bias2)),
                        (float)a->eps};
    const struct tensor all[] = {tensor_f32(a->p, 1, a->n, a->n), tensor_f32(a->m, 1, a->n, a->n),
                                 tensor_f32(a->v, 1, a->n, a->n),
                                 tensor_f32((float *)a->g, 1, a->n, a->n), half};
    each(cuda_of(be), f, all, 1, a->n);
}

/* A block of threads sums a unit in 256 running sums. The 256 sums are added to 16 sums, and the
 * 16 sums are added as a tree. Memory is the limit, with 4 bytes for each element. */
#define SUMSQ_THREADS 256
static __global__ void __launch_bounds__(SUMSQ_THREADS)
    sumsq_kernel(const float *g, int64_t n, int64_t unit, double *out)
{
    __shared__ double s[SUMSQ_THREADS];
    const int64_t i0 = blockIdx.x * unit, i1 = i0 + unit < n ? i0 + unit : n;
    const int lane = threadIdx.x % 16;
    double sum = 0;
    for (int64_t i = i0 + threadIdx.x; i < i1; i += SUMSQ_THREADS)
        sum += (double)g[i] * (double)g[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= 16) return;
    sum = 0;
    for (int j = 0; j < SUMSQ_THREADS; j += 16) sum += s[j + lane];
    for (int w = 8; w; w /= 2) sum += __shfl_xor_sync(0xffff, sum, w);
    if (lane == 0) out[blockIdx.x] = sum;
}

void cuda_sumsq(struct be *be, const struct sumsq_args *a)
{
    struct cuda *c = cuda_of(be);
    if (a->n > 0)
        LAUNCH(c, sumsq_kernel, dim3((unsigned)div_up(a->n, a->unit)), dim3(SUMSQ_THREADS), 0, a->g,
               a->n, a->unit, a->out);
}

/* ---- permutations ---------------------------------------------------------------------------- */

/* Permutes in words of type W, which are the bytes that a thread moves at a time. */
template <class W>
static __global__ void permute_kernel(struct permute_args a, int64_t words, int64_t n)
{
    const int64_t stride = (int64_t)gridDim.x * EACH_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * EACH_THREADS + threadIdx.x; i < n; i += stride) {
        const int64_t w = i % words, i2 = i / words % a.n[2], at = i / words / a.n[2];
        const int64_t i1 = at % a.n[1], i0 = at / a.n[1];
        char *dst = (char *)a.dst + i0 * a.dst_stride[0] + i1 * a.dst_stride[1] +
                    i2 * a.dst_stride[2];
        const char *src = (const char *)a.src + i0 * a.src_stride[0] + i1 * a.src_stride[1] +
                          i2 * a.src_stride[2];
        ((W *)dst)[w] = ((const W *)src)[w];
    }
}

template <class W> static void permute_by(struct cuda *c, const struct permute_args *a)
{
    const int64_t words = a->size / (int64_t)sizeof(W), n = a->n[0] * a->n[1] * a->n[2] * words;
    const int64_t blocks = div_up(n, EACH_THREADS);
    auto permute_words = permute_kernel<W>;
    if (n > 0)
        LAUNCH(c, permute_words, dim3((unsigned)(blocks < EACH_BLOCKS ? blocks : EACH_BLOCKS)),
               dim3(EACH_THREADS), 0, *a, words, n);
}

void cuda_permute(struct be *be, const struct permute_args *a)
{
    shape_permute(a);
    uint64_t all = (uint64_t)(uintptr_t)a->dst | (uint64_t)(uintptr_t)a->src | (uint64_t)a->size;
    for (int i = 0; i < 3; i++) all |= (uint64_t)a->dst_stride[i] | (uint64_t)a->src_stride[i];
    if (all % 16 == 0)
        permute_by<uint4>(cuda_of(be), a);
    else if (all % 4 == 0)
        permute_by<uint32_t>(cuda_of(be), a);
    else
        permute_by<uint8_t>(cuda_of(be), a);
}
