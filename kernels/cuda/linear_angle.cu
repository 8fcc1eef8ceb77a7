/* linear_angle.cu: the gradient of LRPE's angles through linear attention (backend.h), computed
 * row by row, in double. A block of threads has one angle of one head, and a thread has some
 * columns of v. Columns are independent of each other until their sums are added at the end. No
 * result is written before that, so the next rows can be read while a row is computed. */
#include "kernels/cuda/linear.h"

#define THREADS 128

struct angle {
    mat q, k, v, d_o;
    const double *slope;
    const int64_t *lo, *hi;
    int64_t pos, n, D, value_dim;
    double scale;
    const float *state, *d_state; /* [H, 2, D, value_dim] */
    float *dtheta;
};

/* The sums of one column of v. s1 and s2 are the states of the two halves of k. a1 and a2 are the
 * states s1 and s2, weighed by distances. sum is the column's part of the gradient. */
struct angle_sums {
    double s1, s2, a1, a2, sum;
};

static __device__ __forceinline__ void angle_pass(angle_sums &t, double lambda)
{
    t.a1 = lambda * (t.a1 + t.s1), t.s1 *= lambda;
    t.a2 = lambda * (t.a2 + t.s2), t.s2 *= lambda;
}

/* Returns the share of column e of v in the gradient of angle d of head h. This share is the sum
 * over rows [0, n_valid) and the part of the state that leaves after these rows. at1 and at2 are
 * the places of the column in the states, one for each half of the key. */
static __device__ double angle_column(const angle &x, int64_t h, int64_t d, int64_t e,
                                      int64_t n_valid, double lambda)
{
    const int64_t c1 = 2 * h * x.D + d, c2 = c1 + x.D, col = h * x.value_dim + e;
    const int64_t at1 = c1 * x.value_dim + e, at2 = c2 * x.value_dim + e;
    const bool enters = x.state && n_valid > 0 && x.lo[0] < x.pos;
    angle_sums t = {};
    if (enters) t.s1 = (double)x.state[at1], t.s2 = (double)x.state[at2];
    for (int64_t i = 0; i < n_valid; i++) {
        if (i > 0 && x.lo[i] >= x.pos + i)
            t.s1 = t.s2 = t.a1 = t.a2 = 0;
        else if (i > 0)
            angle_pass(t, lambda);
        const double g = (double)get(x.d_o, i, col), v = (double)get(x.v, i, col);
        t.sum += g * ((double)get(x.q, i, c1) * t.a2 - (double)get(x.q, i, c2) * t.a1);
        t.s1 += (double)get(x.k, i, c1) * v;
        t.s2 += (double)get(x.k, i, c2) * v;
    }
    t.sum *= x.scale;
    if (!x.d_state || n_valid == 0) return t.sum;
    angle_pass(t, lambda);
    return t.sum + (t.a2 * (double)x.d_state[at1] - t.a1 * (double)x.d_state[at2]);
}

static __global__ void __launch_bounds__(THREADS) angle_kernel(angle x)
{
    __shared__ double room[THREADS / WARP];
    const int64_t d = blockIdx.x, h = blockIdx.y, n_valid = valid_rows(x.lo, x.hi, x.n);
    const double lambda = linear_power(x.slope[h], 1);
    double sum = 0;
    for (int64_t e = threadIdx.x; e < x.value_dim; e += THREADS)
        sum += angle_column(x, h, d, e, n_valid, lambda);
    sum = block_sum<THREADS>(sum, room);
    if (threadIdx.x == 0) x.dtheta[h * x.D + d] = (float)sum;
}

void cuda_linear_angle(struct be *be, const struct linear_angle_args *a)
{
    shape_linear_angle(a);
    const struct linear_args *in = &a->in;
    angle x = {};
    x.q = mat_of(in->q), x.k = mat_of(in->k), x.v = mat_of(in->v), x.d_o = mat_of(a->d_o);
    x.slope = in->slope, x.lo = in->lo, x.hi = in->hi;
    x.pos = in->pos, x.n = in->q.rows, x.D = in->key_dim / 2, x.value_dim = in->value_dim;
    x.scale = (double)in->scale;
    x.state = (const float *)a->state, x.d_state = (const float *)a->d_state;
    x.dtheta = a->dtheta;
    LAUNCH(cuda_of(be), angle_kernel, dim3((unsigned)x.D, (unsigned)in->n_heads), dim3(THREADS), 0,
           x);
}
