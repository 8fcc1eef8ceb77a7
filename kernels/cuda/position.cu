/* position.cu: rotary embeddings and LRPE. Angles are products in double, and are reduced in
 * double, because at position 2^22 neighbouring angles in fp32 are half a radian apart. A thread
 * rotates one pair of columns in all heads of a row, so that each sine is computed only once. */
#include "kernels/cuda/device.h"

#define ROPE_THREADS 128

static __global__ void rope_kernel(mat x, const int64_t *pos, const double *inv_freq, int64_t rows,
                                   int64_t half, int64_t n_heads, int64_t head_dim, bool inverse,
                                   bool interleaved, float scale, bool single)
{
    const int64_t i = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x;
    if (i >= rows * half) return;
    const int64_t row = i / half, j = i % half;
    double s, c;
    const double angle = single ? (double)((float)pos[row] * (float)inv_freq[j])
                                : (double)pos[row] * inv_freq[j];
    sincos(angle, &s, &c);
    const float sn = (inverse ? -(float)s : (float)s) * scale, cs = (float)c * scale;
    const int64_t at0 = interleaved ? 2 * j : j, at1 = interleaved ? 2 * j + 1 : j + half;
    for (int64_t h = 0; h < n_heads; h++) {
        const float u = get(x, row, h * head_dim + at0), v = get(x, row, h * head_dim + at1);
        set(x, row, h * head_dim + at0, u * cs - v * sn);
        set(x, row, h * head_dim + at1, v * cs + u * sn);
    }
}

void cuda_rope(struct be *be, const struct rope_args *a)
{
    shape_rope(a);
    struct cuda *c = cuda_of(be);
    const int64_t half = (a->rotary_dim ? a->rotary_dim : a->head_dim) / 2, n = a->x.rows * half;
    if (n > 0)
        LAUNCH(c, rope_kernel, dim3((unsigned)div_up(n, ROPE_THREADS)), dim3(ROPE_THREADS), 0,
               mat_of(a->x), a->pos, a->inv_freq, a->x.rows, half, a->n_heads, a->head_dim,
               a->inverse, a->interleaved, a->scale, a->single);
}

/* ---- LRPE ------------------------------------------------------------------------------------ */

/* Computes the cosine and sine columns in a row of y [H, 2, D] from column `col` of the same row
 * of x [H, D]. */
static __global__ void lrpe_fwd_kernel(mat x, mat y, mat theta, const int64_t *pos, int64_t n,
                                       int64_t n_heads, int64_t D)
{
    const int64_t i = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x;
    if (i >= n) return;
    const int64_t row = i / (n_heads * D), col = i % (n_heads * D), h = col / D, d = col % D;
    double s, c;
    sincos((double)pos[row] * (double)get(theta, h, d), &s, &c);
    const float v = get(x, row, col);
    set(y, row, 2 * h * D + d, v * (float)c);
    set(y, row, (2 * h + 1) * D + d, v * (float)s);
}

void cuda_lrpe_fwd(struct be *be, const struct lrpe_fwd_args *a)
{
    shape_lrpe_fwd(a);
    struct cuda *c = cuda_of(be);
    const int64_t n = a->x.rows * a->x.cols;
    if (n > 0)
        LAUNCH(c, lrpe_fwd_kernel, dim3((unsigned)div_up(n, ROPE_THREADS)), dim3(ROPE_THREADS), 0,
               mat_of(a->x), mat_of(a->y), mat_of(a->theta), a->pos, n, a->n_heads, a->head_dim);
}

static __global__ void lrpe_dx_kernel(mat dy, mat dx, mat theta, const int64_t *pos, int64_t n,
                                      int64_t n_heads, int64_t D, bool add)
{
    const int64_t i = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x;
    if (i >= n) return;
    const int64_t row = i / (n_heads * D), col = i % (n_heads * D), h = col / D, d = col % D;
    double s, c;
    sincos((double)pos[row] * (double)get(theta, h, d), &s, &c);
    float v = get(dy, row, 2 * h * D + d) * (float)c + get(dy, row, (2 * h + 1) * D + d) * (float)s;
    if (add) v += get(dx, row, col);
    set(dx, row, col, v);
}

void cuda_lrpe_bwd(struct be *be, const struct lrpe_bwd_args *a)
{
    shape_lrpe_bwd(a);
    struct cuda *c = cuda_of(be);
    const int64_t n = a->dx.rows * a->dx.cols;
    if (n < 1) return;
    LAUNCH(c, lrpe_dx_kernel, dim3((unsigned)div_up(n, ROPE_THREADS)), dim3(ROPE_THREADS), 0,
           mat_of(a->dy), mat_of(a->dx), mat_of(a->theta), a->pos, n, a->n_heads, a->head_dim,
           a->accumulate);
}
