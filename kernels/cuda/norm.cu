/* norm.cu: normalisation of groups of columns: LayerNorm, and RMSNorm of rows or of heads. A block
 * does one group of one row, and sums its columns in double. */
#include "kernels/cuda/sums.h"

#define NORM_THREADS 256

/* ---- forward --------------------------------------------------------------------------------- */

static __global__ void norm_fwd_kernel(mat x, mat y, mat g, mat b, float *mean_out, float *rstd_out,
                                       int64_t groups, int64_t n, bool rms, float eps,
                                       const float *sums, int64_t n_all)
{
    __shared__ double room[NORM_THREADS / WARP];
    const int64_t at = blockIdx.x, row = at / groups, c0 = at % groups * n;
    double sum = 0;
    float mean = 0;
    if (!rms) {
        for (int64_t j = threadIdx.x; j < n; j += NORM_THREADS) sum += (double)get(x, row, c0 + j);
        mean = (float)(block_sum<NORM_THREADS>(sum, room) / (double)n);
        sum = 0;
    }
    for (int64_t j = threadIdx.x; !sums && j < n; j += NORM_THREADS) {
        const double d = (double)(get(x, row, c0 + j) - mean);
        sum += d * d;
    }
    sum = sums ? (double)sums[row] : block_sum<NORM_THREADS>(sum, room);
    /* an infinite sum would otherwise turn the group into 0 */
    const double mean_square = sum / (double)(sums ? n_all : n);
    const float r = isfinite(sum) ? (float)(1.0 / sqrt(mean_square + (double)eps)) : NAN;
    for (int64_t j = threadIdx.x; j < n; j += NORM_THREADS) {
        float z = (get(x, row, c0 + j) - mean) * r;
        if (g.data) z *= get(g, 0, j);
        if (b.data) z += get(b, 0, j);
        set(y, row, c0 + j, z);
    }
    if (threadIdx.x) return;
    rstd_out[at] = r;
    if (!rms) mean_out[at] = mean;
}

void cuda_norm_fwd(struct be *be, const struct norm_fwd_args *a)
{
    shape_norm_fwd(a);
    struct cuda *c = cuda_of(be);
    const int64_t n = a->x.rows * a->groups;
    if (n > 0)
        LAUNCH(c, norm_fwd_kernel, dim3((unsigned)n), dim3(NORM_THREADS), 0, mat_of(a->x),
               mat_of(a->y), mat_of(a->g), mat_of(a->b), a->mean, a->rstd, a->groups,
               a->x.cols / a->groups, a->rms, a->eps, a->sums, a->n_all);
}

static __global__ void norm_part_kernel(mat x, mat dy, mat g, int64_t n, float *out)
{
    __shared__ double room[NORM_THREADS / WARP];
    const int64_t row = blockIdx.x;
    double sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += NORM_THREADS) {
        const double v = (double)get(x, row, j);
        const float d = dy.data ? get(dy, row, j) * (g.data ? get(g, 0, j) : 1) : 0;
        sum += v * (dy.data ? (double)d : v);
    }
    sum = block_sum<NORM_THREADS>(sum, room);
    if (threadIdx.x == 0) out[row] = (float)sum;
}

void cuda_norm_part(struct be *be, const struct norm_part_args *a)
{
    shape_norm_part(a);
    struct cuda *c = cuda_of(be);
    if (a->x.rows > 0)
        LAUNCH(c, norm_part_kernel, dim3((unsigned)a->x.rows), dim3(NORM_THREADS), 0, mat_of(a->x),
               mat_of(a->dy), mat_of(a->g), a->x.cols, a->sum);
}

void cuda_rmsnorm_fwd(struct be *be, const struct rmsnorm_fwd_args *a)
{
    shape_rmsnorm_fwd(a);
    struct norm_fwd_args n = {};
    n.x = a->x;
    n.y = a->y;
    n.g = a->g;
    n.rstd = a->rstd;
    n.groups = 1;
    n.rms = true;
    n.eps = a->eps;
    cuda_norm_fwd(be, &n);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Sets dx to the following value, or adds the value to dx:
 *
 *     r (dy g - mean(dy g) - x^ mean(dy g x^)), where x^ = (x - mean) r
 *
 * With rms, mean(dy g) is left out, and x^ = x r. */
static __global__ void norm_dx_kernel(mat x, mat dy, mat dx, mat g, const float *means,
                                      const float *rstd, int64_t groups, int64_t n, bool rms,
                                      bool add, const float *sums, int64_t n_all, int64_t n_same)
{
    __shared__ double room[NORM_THREADS / WARP];
    const int64_t at = blockIdx.x, row = at / groups, c0 = at % groups * n;
    const float r = rstd[at], mean = rms ? 0 : means[at];
    double sum = 0, dot = 0;
    for (int64_t j = threadIdx.x; j < n; j += NORM_THREADS) {
        const float d = get(dy, row, c0 + j) * (g.data ? get(g, 0, j) : 1);
        sum += (double)d;
        dot += (double)d * (double)(get(x, row, c0 + j) - mean);
    }
    if (!rms) sum = block_sum<NORM_THREADS>(sum, room);
    dot = block_sum<NORM_THREADS>(dot, room);
    if (sums) dot = (double)sums[row] / (double)n_same;
    const float shift = rms ? 0 : (float)(sum / (double)n);
    const float slope = (float)((double)r * (double)r * dot / (double)(sums ? n_all : n));
    for (int64_t j = threadIdx.x; j < n; j += NORM_THREADS) {
        float d = get(dy, row, c0 + j) * (g.data ? get(g, 0, j) : 1) - shift;
        d = r * (d - (get(x, row, c0 + j) - mean) * slope);
        if (add) d += get(dx, row, c0 + j);
        set(dx, row, c0 + j, d);
    }
}

/* The terms of g's gradient. Row r of the sum is group r % groups of row r / groups. */
struct norm_dg {
    mat x, dy;
    const float *mean, *rstd;
    int64_t groups, n;
    bool rms;
    __device__ double term(int64_t r, int64_t col) const
    {
        const int64_t row = r / groups, at = r % groups * n + col;
        const float centred = get(x, row, at) - (rms ? 0 : mean[r]);
        return (double)(get(dy, row, at) * (centred * rstd[r]));
    }
};
struct norm_db {
    mat dy;
    int64_t groups, n;
    __device__ double term(int64_t r, int64_t col) const
    {
        return (double)get(dy, r / groups, r % groups * n + col);
    }
};

void cuda_norm_bwd(struct be *be, const struct norm_bwd_args *a)
{
    shape_norm_bwd(a);
    struct cuda *c = cuda_of(be);
    const int64_t rows = a->x.rows * a->groups, n = a->x.cols / a->groups;
    const mat x = mat_of(a->x), dy = mat_of(a->dy);
    if (rows < 1) return;
    if (a->dg) sum_rows(c, norm_dg{x, dy, a->mean, a->rstd, a->groups, n, a->rms}, rows, n, a->dg);
    if (a->db) sum_rows(c, norm_db{dy, a->groups, n}, rows, n, a->db);
    LAUNCH(c, norm_dx_kernel, dim3((unsigned)rows), dim3(NORM_THREADS), 0, x, dy, mat_of(a->dx),
           mat_of(a->g), a->mean, a->rstd, a->groups, n, a->rms, a->accumulate, a->sums, a->n_all,
           a->n_same);
}

void cuda_rmsnorm_bwd(struct be *be, const struct rmsnorm_bwd_args *a)
{
    shape_rmsnorm_bwd(a);
    struct norm_bwd_args n = {};
    n.x = a->x;
    n.dy = a->dy;
    n.dx = a->dx;
    n.g = a->g;
    n.rstd = a->rstd;
    n.dg = a->dg;
    n.groups = 1;
    n.rms = true;
    n.accumulate = a->accumulate;
    cuda_norm_bwd(be, &n);
}
