/* loss.cu: the ends of a model: embedding, cross-entropy, mean squared error; and softmax of whole
 * rows, a mixture's routing. */
#include "kernels/cuda/each.h"

#define LOSS_THREADS 256

/* ---- embeddings ------------------------------------------------------------------------------- */

struct embed_of {
    mat table, x;
    const int32_t *ids;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC];
        load(table, ids[row], col, v);
        store(x, row, col, v);
    }
};

void cuda_embed_fwd(struct be *be, const struct embed_fwd_args *a)
{
    shape_embed_fwd(a);
    each(cuda_of(be), embed_of{mat_of(a->table), mat_of(a->x), a->ids}, {a->table, a->x}, a->x.rows,
         a->x.cols);
}

/* A block has EMBED_COLS columns and the ids whose remainder by EMBED_PARTS is its own: it looks
 * through all rows' ids and adds those of its part, ascending. Nobody else writes there. */
#define EMBED_COLS  128
#define EMBED_PARTS 64

static __global__ void embed_bwd_kernel(mat dx, float *dtable, int64_t ld, const int32_t *ids,
                                        int64_t rows, int64_t cols)
{
    const int64_t col = (int64_t)blockIdx.x * EMBED_COLS + threadIdx.x;
    for (int64_t r0 = 0; r0 < rows; r0 += WARP) {
        const int64_t mine = r0 + threadIdx.x % WARP;
        const int id = mine < rows ? ids[mine] : -1;
        unsigned found = __ballot_sync(FULL, id >= 0 && id % EMBED_PARTS == (int)blockIdx.y);
        while (found) {
            const int k = __ffs((int)found) - 1;
            const int64_t to = __shfl_sync(FULL, id, k);
            if (col < cols) dtable[to * ld + col] += get(dx, r0 + k, col);
            found &= found - 1;
        }
    }
}

void cuda_embed_bwd(struct be *be, const struct embed_bwd_args *a)
{
    shape_embed_bwd(a);
    struct cuda *c = cuda_of(be);
    const dim3 grid((unsigned)div_up(a->dx.cols, EMBED_COLS), EMBED_PARTS);
    if (a->dx.rows > 0)
        LAUNCH(c, embed_bwd_kernel, grid, dim3(EMBED_COLS), 0, mat_of(a->dx),
               (float *)a->dtable.data, a->dtable.ld, a->ids, a->dx.rows, a->dx.cols);
}

/* ---- softmax ---------------------------------------------------------------------------------- */

/* Over x [from, to): the largest, and the sum of exp(x - largest), in double. */
struct row_sum {
    float max;
    double sum;
};
static __device__ struct row_sum row_exp(const float *x, int64_t from, int64_t to, double *room)
{
    float max = -INFINITY;
    double sum = 0;
    for (int64_t j = from + threadIdx.x; j < to; j += LOSS_THREADS) max = fmaxf(max, x[j]);
    max = block_max<LOSS_THREADS>(max, (float *)room);
    for (int64_t j = from + threadIdx.x; j < to; j += LOSS_THREADS) sum += (double)expf(x[j] - max);
    return {max, block_sum<LOSS_THREADS>(sum, room)};
}

/* What is written may lie over what others of the block are about to read: a barrier between
 * (kernels/backend.h says what overlaps). */
static __global__ void xent_kernel(const float *logits, int64_t ld, mat dlogits,
                                   const int32_t *targets, double *nll, int64_t V, float scale,
                                   bool backward)
{
    __shared__ double room[LOSS_THREADS / WARP];
    const int64_t row = blockIdx.x;
    const float *x = logits + row * ld;
    const int target = targets[row];
    if (target < 0) {
        if (threadIdx.x == 0) nll[row] = 0;
        for (int64_t j = threadIdx.x; backward && j < V; j += LOSS_THREADS) set(dlogits, row, j, 0);
        return;
    }
    const float at = x[target];
    const struct row_sum s = row_exp(x, 0, V, room);
    if (threadIdx.x == 0) nll[row] = log(s.sum) + ((double)s.max - (double)at);
    const float k = (float)((double)scale / s.sum);
    for (int64_t j0 = 0; backward && j0 < V; j0 += LOSS_THREADS) {
        const int64_t j = j0 + threadIdx.x;
        const float d = j < V ? expf(x[j] - s.max) * k - (j == target ? scale : 0) : 0;
        __syncthreads();
        if (j < V) set(dlogits, row, j, d);
    }
}

void cuda_xent(struct be *be, const struct xent_args *a)
{
    shape_xent(a);
    struct cuda *c = cuda_of(be);
    if (a->logits.rows > 0)
        LAUNCH(c, xent_kernel, dim3((unsigned)a->logits.rows), dim3(LOSS_THREADS), 0,
               (const float *)a->logits.data, a->logits.ld, mat_of(a->dlogits), a->targets, a->nll,
               a->logits.cols, a->scale, a->backward);
}

static __global__ void softmax_fwd_kernel(float *all, int64_t ld, int64_t n, const int64_t *lo,
                                          const int64_t *hi, int64_t col_pos, float *lse)
{
    __shared__ double room[LOSS_THREADS / WARP];
    const int64_t row = blockIdx.x;
    float *x = all + row * ld;
    int64_t from = lo[row] - col_pos, to = hi[row] - col_pos;
    from = from < 0 ? 0 : from > n ? n : from;
    to = to < from ? from : to > n ? n : to;
    for (int64_t j = threadIdx.x; j < n; j += LOSS_THREADS)
        if (j < from || j >= to) x[j] = 0;
    if (lse && threadIdx.x == 0) lse[row] = -INFINITY;
    if (from == to) return;
    const struct row_sum s = row_exp(x, from, to, room);
    const float k = (float)(1 / s.sum);
    for (int64_t j = from + threadIdx.x; j < to; j += LOSS_THREADS) x[j] = expf(x[j] - s.max) * k;
    if (lse && threadIdx.x == 0) lse[row] = (float)((double)s.max + log(s.sum));
}

void cuda_softmax_fwd(struct be *be, const struct softmax_fwd_args *a)
{
    shape_softmax_fwd(a);
    struct cuda *c = cuda_of(be);
    if (a->x.rows > 0)
        LAUNCH(c, softmax_fwd_kernel, dim3((unsigned)a->x.rows), dim3(LOSS_THREADS), 0,
               (float *)a->x.data, a->x.ld, a->x.cols, a->lo, a->hi, a->col_pos, a->lse);
}

struct softmax_back {
    mat p, dp;
    const float *delta;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], d[VEC];
        load(p, row, col, v);
        load(dp, row, col, d);
        UNROLL
        for (int i = 0; i < VEC; i++) d[i] = v[i] * (d[i] - delta[row]);
        store(dp, row, col, d);
    }
};

void cuda_softmax_bwd(struct be *be, const struct softmax_bwd_args *a)
{
    shape_softmax_bwd(a);
    each(cuda_of(be), softmax_back{mat_of(a->p), mat_of(a->dp), a->delta}, {a->p, a->dp}, a->p.rows,
         a->p.cols);
}

/* ---- mean squared error ----------------------------------------------------------------------- */

#define MSE_ROWS 4 /* of a block: a warp each */

static __global__ void mse_kernel(mat x, mat y, mat dx, const float *weight, double *row_loss,
                                  int64_t rows, int64_t cols, float scale)
{
    const int64_t row = (int64_t)blockIdx.x * MSE_ROWS + threadIdx.x / WARP;
    if (row >= rows) return; /* a whole warp */
    const float w = weight ? weight[row] : 1;
    const float slope = (float)(2.0 * (double)scale * (double)w);
    double sum = 0;
    for (int64_t j = threadIdx.x % WARP; j < cols; j += WARP) {
        const float d = get(x, row, j) - get(y, row, j);
        sum += (double)d * (double)d;
        if (dx.data) set(dx, row, j, d * slope);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0) row_loss[row] = (double)w * sum;
}

void cuda_mse(struct be *be, const struct mse_args *a)
{
    shape_mse(a);
    struct cuda *c = cuda_of(be);
    if (a->x.rows > 0)
        LAUNCH(c, mse_kernel, dim3((unsigned)div_up(a->x.rows, MSE_ROWS)), dim3(MSE_ROWS * WARP), 0,
               mat_of(a->x), mat_of(a->y), mat_of(a->dx), a->weight, a->row_loss, a->x.rows,
               a->x.cols, a->scale);
}

/* ---- routing ---------------------------------------------------------------------------------- */

/* A logit as the order sees it: one that is no number comes last, but has an expert. */
static __device__ __forceinline__ float route_rank(float x)
{
    return x != x ? -INFINITY : x;
}

/* The largest behind number `at` in the order: descending, then ascending index; at < 0: the first. */
static __device__ int route_next(const float *x, int E, int at)
{
    int best = -1;
    for (int e = 0; e < E; e++) {
        const float v = route_rank(x[e]), last = at < 0 ? 0 : route_rank(x[at]);
        if (at >= 0 && !(v < last || (v == last && e > at))) continue;
        if (best < 0 || v > route_rank(x[best])) best = e;
    }
    return best;
}

/* A thread has a row: experts are few. */
static __global__ void route_fwd_kernel(const float *logits, int64_t ld, int64_t rows, int E, int k,
                                        int32_t *expert, float *weight)
{
    const int64_t row = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (row >= rows) return;
    const float *x = logits + row * ld;
    int32_t *e = expert + row * k;
    double sum = 0;
    for (int j = 0, at = -1; j < k; j++) {
        at = route_next(x, E, at);
        e[j] = at;
        sum += exp((double)x[at] - (double)x[e[0]]);
    }
    for (int j = 0; j < k; j++)
        weight[row * k + j] = (float)(exp((double)x[e[j]] - (double)x[e[0]]) / sum);
}

/* Weights over their sum are a softmax of the chosen ones. */
static __global__ void route_bwd_kernel(float *dlogits, int64_t ld, int64_t rows, int E, int k,
                                        const int32_t *expert, const float *weight,
                                        const float *dweight)
{
    const int64_t row = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (row >= rows) return;
    float *dx = dlogits + row * ld;
    const float *w = weight + row * k, *dw = dweight + row * k;
    double dot = 0;
    for (int j = 0; j < k; j++) dot += (double)w[j] * (double)dw[j];
    for (int e = 0; e < E; e++) dx[e] = 0;
    for (int j = 0; j < k; j++)
        dx[expert[row * k + j]] = (float)((double)w[j] * ((double)dw[j] - dot));
}

void cuda_route(struct be *be, const struct route_args *a)
{
    shape_route(a);
    struct cuda *c = cuda_of(be);
    const struct tensor t = a->dweight ? a->dlogits : a->logits;
    const dim3 grid((unsigned)div_up(t.rows, LOSS_THREADS));
    if (t.rows < 1) return;
    if (a->dweight)
        LAUNCH(c, route_bwd_kernel, grid, dim3(LOSS_THREADS), 0, (float *)t.data, t.ld, t.rows,
               (int)t.cols, (int)a->k, a->expert, a->weight, a->dweight);
    else
        LAUNCH(c, route_fwd_kernel, grid, dim3(LOSS_THREADS), 0, (const float *)t.data, t.ld,
               t.rows, (int)t.cols, (int)a->k, a->expert, a->weight);
}
