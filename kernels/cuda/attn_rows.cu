/* attn_rows.cu: the operations of attention that have no products: finishing, delta, the merging of
 * ranks' partial results, and sinks. */
#include "kernels/cuda/attn.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/sums.h"
/* ---- finish and delta ------------------------------------------------------------------------ */

/* Finishes one element. The thread of a head's first column also writes m. The threads of other
 * columns may read m before or after that write, because both values of m give the same `seen`. */
struct finish_of {
    mat o, out;
    float *m;
    const float *l;
    int64_t ml_ld;
    int D;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        const int64_t head = (int)col / D, i = head * ml_ld + row;
        const float sum = l[i];
        const bool seen = sum != 0 || m[i] != -INFINITY;
        float x[VEC];
        load(o, row, col, x);
        UNROLL
        for (int e = 0; e < VEC; e++) x[e] = seen ? x[e] / sum : 0;
        store(out, row, col, x);
        if (col != head * D || !seen) return;
        m[i] = sum == 0 ? NAN : (float)((double)m[i] / LOG2_E + log((double)sum));
    }
};

void cuda_attn_finish(struct be *be, const struct attn_finish_args *a)
{
    shape_attn_finish(a);
    const finish_of f = {mat_of(a->o), mat_of(a->out), a->m, a->l, a->ml_ld, (int)a->head_dim};
    if (a->head_dim % 8 == 0 && fits_packs(a->o) && fits_packs(a->out))
        each_vec<8>(cuda_of(be), f, a->o.rows, a->o.cols);
    else
        each_vec<1>(cuda_of(be), f, a->o.rows, a->o.cols);
}

/* A warp has one row of one head. delta and its products are in double, because delta is
 * subtracted from dP. */
#define DELTA_WARPS 8

static __global__ void attn_delta_kernel(mat o, mat d_o, float *delta, int64_t ld, int64_t rows,
                                         int64_t n_heads, int64_t D)
{
    const int64_t at = (int64_t)blockIdx.x * DELTA_WARPS + threadIdx.x / WARP;
    const int64_t row = at / n_heads, head = at % n_heads;
    if (row >= rows) return; /* true for a whole warp, or for none of its lanes */
    double sum = 0;
    for (int64_t d = threadIdx.x % WARP; d < D; d += WARP)
        sum += (double)get(o, row, head * D + d) * (double)get(d_o, row, head * D + d);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) delta[head * ld + row] = (float)sum;
}

void cuda_attn_delta(struct be *be, const struct attn_delta_args *a)
{
    shape_attn_delta(a);
    struct cuda *c = cuda_of(be);
    const int64_t n = a->o.rows * a->n_heads;
    if (n > 0)
        LAUNCH(c, attn_delta_kernel, dim3((unsigned)div_up(n, DELTA_WARPS)),
               dim3(DELTA_WARPS * WARP), 0, mat_of(a->o), mat_of(a->d_o), a->delta, a->ld,
               a->o.rows, a->n_heads, a->head_dim);
}

/* ---- merging of ranks' parts ----------------------------------------------------------------- */

/* Merges some columns of a row. Each thread computes the weights of its head's parts, because
 * there are few parts. */
struct merge_of {
    const float *parts;
    int64_t n_parts, stride, rows, H;
    int D;
    mat out;
    __device__ float lse(int64_t p, int64_t head, int64_t row) const
    {
        return parts[p * stride + rows * H * D + head * rows + row];
    }
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        const int64_t head = (int)col / D;
        float max = -INFINITY, x[VEC] = {};
        double sum = 0;
        bool some = false;
        for (int64_t p = 0; p < n_parts; p++) {
            max = fmaxf(max, lse(p, head, row));
            some |= lse(p, head, row) != -INFINITY;
        }
        for (int64_t p = 0; some && p < n_parts; p++) sum += (double)expf(lse(p, head, row) - max);
        const float by = (float)(1 / sum);
        for (int64_t p = 0; some && p < n_parts; p++) {
            if (lse(p, head, row) == -INFINITY) continue;
            const float w = expf(lse(p, head, row) - max) * by;
            const float *o = parts + p * stride + row * H * D + col;
            UNROLL
            for (int e = 0; e < VEC; e++) x[e] = fmaf(w, o[e], x[e]);
        }
        store(out, row, col, x);
    }
};

void cuda_attn_merge(struct be *be, const struct attn_merge_args *a)
{
    shape_attn_merge(a);
    const merge_of f = {a->parts,   a->n_parts,       a->stride,     a->out.rows,
                        a->n_heads, (int)a->head_dim, mat_of(a->out)};
    if (a->head_dim % 8 == 0 && fits_packs(a->out))
        each_vec<8>(cuda_of(be), f, a->out.rows, a->out.cols);
    else
        each_vec<1>(cuda_of(be), f, a->out.rows, a->out.cols);
}

/* ---- sinks ----------------------------------------------------------------------------------- */

/* Starts row h of m and l with the sink of head h, as an exponent of 2, like attn_fwd's m. */
struct sink_of {
    mat sink;
    float *m, *l;
    int64_t ml_ld;
    template <int VEC> __device__ void at(int64_t head, int64_t i) const
    {
        m[head * ml_ld + i] = (float)((double)get(sink, 0, head) * LOG2_E);
        l[head * ml_ld + i] = 1;
    }
};

void cuda_attn_sink_fwd(struct be *be, const struct attn_sink_fwd_args *a)
{
    shape_attn_sink_fwd(a);
    each_vec<1>(cuda_of(be), sink_of{mat_of(a->sink), a->m, a->l, a->ml_ld}, a->n_heads, a->rows);
}

struct sink_term {
    mat sink;
    const float *lse, *delta;
    int64_t ml_ld;
    __device__ double term(int64_t row, int64_t head) const
    {
        const int64_t i = head * ml_ld + row;
        if (lse[i] == -INFINITY) return 0;
        return -exp((double)get(sink, 0, head) - (double)lse[i]) * (double)delta[i];
    }
};

void cuda_attn_sink_bwd(struct be *be, const struct attn_sink_bwd_args *a)
{
    shape_attn_sink_bwd(a);
    sum_rows(cuda_of(be), sink_term{mat_of(a->sink), a->lse, a->delta, a->ml_ld}, a->rows,
             a->n_heads, a->d_sink);
}
