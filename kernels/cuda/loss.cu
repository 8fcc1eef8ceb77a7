/* loss.cu: embedding; cross-entropy, mean squared error and the loss of predicted noise; softmax
 * of whole rows; the routing of a mixture of experts. */
#include "kernels/cuda/each.h"
#include "kernels/cuda/quant.h"

#define LOSS_THREADS 256

/* ---- embeddings ------------------------------------------------------------------------------ */

template <bool BLOCKS> struct embed_of {
    mat table, x;
    const int32_t *ids;
    int64_t first, n; /* rows of the table */
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        const int64_t id = ids[row] - first;
        float v[VEC] = {};
        if (id >= 0 && id < n) {
            if (BLOCKS) {
                UNROLL
                for (int i = 0; i < VEC; i++) v[i] = quant_value(table, id, col + i);
            } else {
                load(table, id, col, v);
            }
        }
        store(x, row, col, v);
    }
};

void cuda_embed_fwd(struct be *be, const struct embed_fwd_args *a)
{
    shape_embed_fwd(a);
    const mat table = mat_of(a->table), x = mat_of(a->x);
    if (dtype_quant(a->table.dtype))
        each(cuda_of(be), embed_of<true>{table, x, a->ids, a->first, a->table.rows}, {a->x},
             a->x.rows, a->x.cols);
    else
        each(cuda_of(be), embed_of<false>{table, x, a->ids, a->first, a->table.rows},
             {a->table, a->x}, a->x.rows, a->x.cols);
}

/* Rows are divided into EMBED_PARTS parts by the remainders of their ids. Within a part, rows keep
 * their order. So a block that adds up some columns of a part reads only the rows of that part.
 * There are four kernels:
 *
 *     1  count  counts the rows of each part in each piece of EMBED_PIECE rows
 *     2  begin  finds the place of each piece's rows of each part
 *     3  deal   writes the rows of each piece to their places
 *     4  add    adds the rows of a part to dtable, ascending; no other block writes these rows
 *
 * Ids without a row in the table belong to no part. In kernels 1 to 3, a thread has one part and
 * looks at each id of the piece. This takes T EMBED_PARTS comparisons, which is 0.3 billion for a
 * million rows. Memory delivers 8 T bytes besides dx and dtable. */
#define EMBED_PARTS 256
#define EMBED_PIECE 2048
#define EMBED_COLS  128
#define EMBED_AHEAD 4 /* rows that are being read at the same time */

struct embed_row {
    int32_t row, id;
};
struct embed_deal {
    const int32_t *ids;
    int64_t first, n_ids; /* the ids [first, first + n_ids) have a row */
    int64_t row0, n;      /* rows [row0, row0 + n) of the call */
    /* [pieces, EMBED_PARTS]: count of the rows of each part in each piece; later the place of
     * these rows */
    int32_t *at;
    int32_t *begin;  /* [EMBED_PARTS + 1] */
    embed_row *rows; /* [n] */
};

/* Calls f(row, id) for each row of the block's piece that belongs to this thread's part. */
template <class F> static __device__ __forceinline__ void embed_each(const embed_deal &d, F f)
{
    __shared__ int32_t ids[EMBED_PIECE];
    const int64_t r0 = (int64_t)blockIdx.x * EMBED_PIECE;
    const int n = d.n - r0 < EMBED_PIECE ? (int)(d.n - r0) : EMBED_PIECE;
    for (int i = threadIdx.x; i < n; i += EMBED_PARTS) {
        const int64_t id = d.ids[d.row0 + r0 + i] - d.first;
        ids[i] = id >= 0 && id < d.n_ids ? (int32_t)id : -1;
    }
    __syncthreads();
    for (int i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] % EMBED_PARTS == (int)threadIdx.x) f((int32_t)(r0 + i), ids[i]);
}

static __global__ void __launch_bounds__(EMBED_PARTS) embed_count(embed_deal d)
{
    int32_t n = 0;
    embed_each(d, [&](int32_t, int32_t) { n++; });
    d.at[blockIdx.x * EMBED_PARTS + threadIdx.x] = n;
}

static __global__ void __launch_bounds__(EMBED_PARTS) embed_begin(embed_deal d, int pieces)
{
    __shared__ int32_t counts[EMBED_PARTS];
    int32_t n = 0, at = 0;
    for (int i = 0; i < pieces; i++) n += d.at[i * EMBED_PARTS + threadIdx.x];
    counts[threadIdx.x] = n;
    __syncthreads();
    for (int i = 0; i < (int)threadIdx.x; i++) at += counts[i];
    d.begin[threadIdx.x] = at;
    if (threadIdx.x == EMBED_PARTS - 1) d.begin[EMBED_PARTS] = at + n;
    for (int i = 0; i < pieces; i++) {
        int32_t *const to = d.at + i * EMBED_PARTS + threadIdx.x;
        n = *to;
        *to = at;
        at += n;
    }
}

static __global__ void __launch_bounds__(EMBED_PARTS) embed_put(embed_deal d)
{
    int32_t at = d.at[blockIdx.x * EMBED_PARTS + threadIdx.x];
    embed_each(d, [&](int32_t row, int32_t id) { d.rows[at++] = {row, id}; });
}

/* Adds the rows of a part. If a row's id equals the id of one of the last EMBED_AHEAD rows, the
 * row continues the sum of that earlier row. */
static __global__ void __launch_bounds__(EMBED_COLS)
    embed_add(embed_deal d, mat dx, float *dtable, int64_t ld, int64_t cols)
{
    const int64_t col = (int64_t)blockIdx.x * EMBED_COLS + threadIdx.x;
    const int end = d.begin[blockIdx.y + 1];
    if (col >= cols) return;
    for (int i0 = d.begin[blockIdx.y]; i0 < end; i0 += EMBED_AHEAD) {
        int32_t id[EMBED_AHEAD];
        float x[EMBED_AHEAD], sum[EMBED_AHEAD];
        UNROLL
        for (int i = 0; i < EMBED_AHEAD; i++) {
            id[i] = -1;
            if (i0 + i >= end) continue;
            const embed_row r = d.rows[i0 + i];
            id[i] = r.id;
            x[i] = get(dx, d.row0 + r.row, col);
            sum[i] = dtable[id[i] * ld + col];
        }
        UNROLL
        for (int i = 0; i < EMBED_AHEAD; i++) {
            if (id[i] < 0) continue;
            UNROLL
            for (int j = 0; j < i; j++)
                if (id[j] == id[i]) sum[i] = sum[j];
            sum[i] += x[i];
            dtable[id[i] * ld + col] = sum[i];
        }
    }
}

/* Processes as many rows at a time as fit in the scratch. */
void cuda_embed_bwd(struct be *be, const struct embed_bwd_args *a)
{
    shape_embed_bwd(a);
    struct cuda *c = cuda_of(be);
    const int64_t T = a->dx.rows, piece = EMBED_PIECE * (int64_t)sizeof(embed_row) +
                                          EMBED_PARTS * (int64_t)sizeof(int32_t);
    const int64_t begin = 2 * EMBED_PARTS * (int64_t)sizeof(int32_t); /* a whole number of rows */
    const int64_t most = (c->be.scratch_size - begin) / piece, all = div_up(T, EMBED_PIECE);
    const int64_t pieces = all < most ? all : most;
    assert(most > 0 && T < (int64_t)1 << 31);
    embed_deal d = {};
    d.ids = a->ids;
    d.first = a->first;
    d.n_ids = a->dtable.rows;
    d.begin = (int32_t *)c->be.scratch;
    d.rows = (embed_row *)(c->be.scratch + begin);
    d.at = (int32_t *)(d.rows + pieces * EMBED_PIECE);
    for (; d.row0 < T; d.row0 += d.n) {
        d.n = T - d.row0 < pieces * EMBED_PIECE ? T - d.row0 : pieces * EMBED_PIECE;
        const dim3 grid((unsigned)div_up(d.n, EMBED_PIECE)), threads(EMBED_PARTS);
        LAUNCH(c, embed_count, grid, threads, 0, d);
        LAUNCH(c, embed_begin, dim3(1), threads, 0, d, (int)grid.x);
        LAUNCH(c, embed_put, grid, threads, 0, d);
        LAUNCH(c, embed_add, dim3((unsigned)div_up(a->dx.cols, EMBED_COLS), EMBED_PARTS),
               dim3(EMBED_COLS), 0, d, mat_of(a->dx), (float *)a->dtable.data, a->dtable.ld,
               a->dx.cols);
    }
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* The maximum of x [from, to), and the sum of exp(x - max) in double. */
struct row_sum {
    float max;
    double sum;
};
static __device__ float row_max(const float *x, int64_t from, int64_t to, double *room)
{
    float max = -INFINITY;
    for (int64_t j = from + threadIdx.x; j < to; j += LOSS_THREADS) max = fmaxf(max, x[j]);
    return block_max<LOSS_THREADS>(max, (float *)room);
}
static __device__ double row_over(const float *x, int64_t from, int64_t to, float max, double *room)
{
    double sum = 0;
    for (int64_t j = from + threadIdx.x; j < to; j += LOSS_THREADS) sum += (double)expf(x[j] - max);
    return block_sum<LOSS_THREADS>(sum, room);
}
static __device__ struct row_sum row_exp(const float *x, int64_t from, int64_t to, double *room)
{
    const float max = row_max(x, from, to, room);
    return {max, row_over(x, from, to, max, room)};
}

static __device__ double row_total(const float *x, int64_t n, double *room)
{
    double sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += LOSS_THREADS) sum += (double)x[j];
    return block_sum<LOSS_THREADS>(sum, room);
}

/* Merges a row's statistics from several parts of its columns. Every thread merges them, in the
 * same order. */
static __device__ struct xent_stat xent_merge(const struct xent_stat *parts, int n, int64_t T,
                                              int64_t row)
{
    struct xent_stat s = {-INFINITY, 0, 0, 0};
    for (int i = 0; i < n; i++) s.max = fmax(s.max, parts[i * T + row].max);
    for (int i = 0; i < n; i++) {
        const struct xent_stat part = parts[i * T + row];
        s.sum += part.sum * exp(part.max - s.max);
        s.target += part.target;
        s.total += part.total;
    }
    return s;
}

/* Members of struct xent_args that say which loss is computed. */
struct xent_loss {
    float scale, cap;
    double smoothing, z_loss;
    int64_t vocab;
};

/* Returns the loss of a row. */
static __device__ double xent_value(struct xent_loss l, struct xent_stat s)
{
    const double lse = log(s.sum) + s.max;
    double loss = log(s.sum) + (s.max - s.target);
    if (l.smoothing > 0) loss += l.smoothing * (s.target - s.total / (double)l.vocab);
    if (l.z_loss > 0) loss += l.z_loss * lse * lse;
    return loss;
}

/* The gradient of a row is e^(x - max) k, minus `own` in the target's column and `other` in all
 * other columns. scale includes the row's weight. */
struct xent_slope {
    float max, k, own, other;
};
static __device__ struct xent_slope xent_slope(struct xent_loss l, struct xent_stat s, float scale)
{
    const double lse = log(s.sum) + s.max, all = (double)scale;
    const double other = l.smoothing > 0 ? all * l.smoothing / (double)l.vocab : 0;
    struct xent_slope out = {(float)s.max, (float)(all / s.sum), scale, (float)other};
    if (l.z_loss > 0) out.k = (float)(all * (1 + 2 * l.z_loss * lse) / s.sum);
    if (l.smoothing > 0) out.own = (float)(all * (1 - l.smoothing) + other);
    return out;
}

/* A gradient may be written over logits that other threads of the block still read, so there is a
 * barrier between reading and writing (kernels/backend.h says which memory may overlap). */
static __global__ void xent_kernel(const float *logits, int64_t ld, mat dlogits,
                                   const int32_t *targets, double *nll, int64_t V,
                                   struct xent_loss loss, bool backward,
                                   const struct xent_stat *parts, int n_parts, int64_t first,
                                   const float *weight)
{
    __shared__ double room[LOSS_THREADS / WARP];
    const int64_t row = blockIdx.x;
    const float *x = logits + row * ld;
    const int64_t target = targets[row] - first; /* a column, which may be of another part */
    if (targets[row] < 0) {
        if (threadIdx.x == 0) nll[row] = 0;
        for (int64_t j = threadIdx.x; backward && j < V; j += LOSS_THREADS) set(dlogits, row, j, 0);
        return;
    }
    struct xent_stat s = {0, 0, 0, 0};
    if (parts) {
        s = xent_merge(parts, n_parts, gridDim.x, row);
    } else {
        const float at = x[target];
        const double total = loss.smoothing > 0 ? row_total(x, V, room) : 0;
        const struct row_sum own = row_exp(x, 0, V, room);
        s = {(double)own.max, own.sum, (double)at, total};
    }
    if (threadIdx.x == 0) nll[row] = xent_value(loss, s);
    const float cap = loss.cap;
    const struct xent_slope g = xent_slope(loss, s, weight ? loss.scale * weight[row] : loss.scale);
    for (int64_t j0 = 0; backward && j0 < V; j0 += LOSS_THREADS) {
        const int64_t j = j0 + threadIdx.x;
        float d = j < V ? expf(x[j] - g.max) * g.k - (j == target ? g.own : g.other) : 0;
        if (cap > 0 && j < V) d *= 1 - x[j] / cap * (x[j] / cap); /* the slope of the cap */
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
               a->logits.cols,
               (struct xent_loss){a->scale, a->cap, a->smoothing, a->z_loss, a->vocab}, a->backward,
               a->parts, a->n_parts, a->first, a->weight);
}

static __global__ void xent_part_kernel(const float *logits, int64_t ld, const int32_t *targets,
                                        int64_t V, int64_t first, bool smooth,
                                        struct xent_stat *stat)
{
    __shared__ double room[LOSS_THREADS / WARP];
    const int64_t row = blockIdx.x, target = targets[row] - first;
    const float *x = logits + row * ld;
    struct xent_stat s = {0, 0, 0, 0};
    if (targets[row] >= 0) {
        const float max = row_max(x, 0, V, room);
        /* Subtracts 0 if no logit is above -inf, because -inf - -inf is NaN. A logit that is NaN
         * still makes the sum NaN. */
        s.sum = row_over(x, 0, V, max == -INFINITY ? 0 : max, room);
        s.max = (double)max;
        if (smooth) s.total = row_total(x, V, room);
        if (target >= 0 && target < V) s.target = (double)x[target];
    }
    if (threadIdx.x == 0) stat[row] = s;
}

void cuda_xent_part(struct be *be, const struct xent_part_args *a)
{
    shape_xent_part(a);
    struct cuda *c = cuda_of(be);
    if (a->logits.rows > 0)
        LAUNCH(c, xent_part_kernel, dim3((unsigned)a->logits.rows), dim3(LOSS_THREADS), 0,
               (const float *)a->logits.data, a->logits.ld, a->targets, a->logits.cols, a->first,
               a->smooth, a->stat);
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

/* ---- mean squared error ---------------------------------------------------------------------- */

#define MSE_ROWS 4 /* rows of a block, one for each warp */

static __global__ void mse_kernel(mat x, mat y, mat dx, const float *weight, double *row_loss,
                                  int64_t rows, int64_t cols, float scale)
{
    const int64_t row = (int64_t)blockIdx.x * MSE_ROWS + threadIdx.x / WARP;
    if (row >= rows) return; /* true for a whole warp, or for none of its lanes */
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

/* ---- noise and its variance ------------------------------------------------------------------ */

#define NOISE_LEAST 1e-12 /* lower bound of a probability whose logarithm is taken */

struct noise_of {
    double slope, log_min, log_max, scale;
    bool last;
};

/* Computes, as kernels/cpu/noise.c does, a bound and its derivative with respect to s, the
 * logarithm of the variance. */
static __device__ double noise_divergence(double log_min, double s, double d, double *slope)
{
    const double ratio = exp(log_min - s), apart = d * d * exp(-s);
    *slope = 0.5 * (1 - ratio - apart);
    return 0.5 * (s - log_min - 1 + ratio + apart);
}

static __device__ double noise_below(double x, double *density)
{
    const double root = 0.79788456080286535588, cubic = 0.044715; /* sqrt(2 / pi) */
    const double h = tanh(root * (x + cubic * x * x * x));
    *density = 0.5 * (1 - h * h) * root * (1 + 3 * cubic * x * x) * (-0.5 * x);
    return 0.5 * (1 + h);
}

static __device__ double noise_likelihood(double z, double s, double d, double *slope)
{
    const double inverse = exp(-0.5 * s), step = 1.0 / 255, edge = 0.999;
    double upper, lower;
    double p = noise_below(inverse * (d + step), &upper);
    double q = noise_below(inverse * (d - step), &lower);
    if (z < -edge)
        q = lower = 0;
    else if (z > edge)
        p = 1, upper = 0;
    *slope = p - q < NOISE_LEAST ? 0 : -(upper - lower) / (p - q);
    return -log(p - q < NOISE_LEAST ? NOISE_LEAST : p - q);
}

/* Each thread does one row, which has few channels. Most of the kernel's time is spent in exp in
 * double, 2 to 4 times for each value. */
static __global__ void noise_kernel(mat x, mat y, mat dx, const float *weight, double *row_loss,
                                    int64_t rows, int64_t C, noise_of a)
{
    const int64_t row = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (row >= rows) return;
    const double w = weight[row], half = 0.5 * (a.log_max - a.log_min);
    double sum = 0;
    for (int64_t c = 0; c < C; c++) {
        const double miss = (double)get(x, row, c) - (double)get(y, row, c), d = a.slope * miss;
        const double s = a.log_min + half * ((double)get(x, row, C + c) + 1);
        double slope;
        const double bound = a.last ? noise_likelihood(get(y, row, C + c), s, d, &slope)
                                    : noise_divergence(a.log_min, s, d, &slope);
        /* The constant is ln 2. The last term is 0, unless a value that is clamped or not used is
         * NaN or infinity. NaN and infinity must not be hidden. */
        sum += miss * miss + bound / 0.69314718055994530942 + 0 * (s + (double)get(y, row, C + c));
        if (!dx.data) continue;
        set(dx, row, c, (float)(2 * a.scale * w * miss));
        set(dx, row, C + c, (float)(a.scale * w * half * slope / 0.69314718055994530942));
    }
    row_loss[row] = w * sum;
}

void cuda_noise(struct be *be, const struct noise_args *a)
{
    shape_noise(a);
    struct cuda *c = cuda_of(be);
    const noise_of of = {a->slope, a->log_min, a->log_max, (double)a->scale, a->last};
    if (a->x.rows > 0)
        LAUNCH(c, noise_kernel, dim3((unsigned)div_up(a->x.rows, LOSS_THREADS)), dim3(LOSS_THREADS),
               0, mat_of(a->x), mat_of(a->y), mat_of(a->dx), a->weight, a->row_loss, a->x.rows,
               a->x.cols / 2, of);
}

/* ---- routing --------------------------------------------------------------------------------- */

/* Returns the value by which a logit is ordered. For NaN this value is -inf, so that the logit's
 * expert comes last but can still be chosen. */
static __device__ __forceinline__ float route_rank(float x)
{
    return x != x ? -INFINITY : x;
}

/* Returns the index of the logit that follows the logit at index `at`. Logits are in descending
 * order, and equal logits are in ascending order of their indices. If at < 0, returns the index of
 * the first logit. */
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

/* Each thread does one row, because there are few experts. */
static __global__ void route_fwd_kernel(const float *logits, int64_t ld, int64_t rows, int E, int k,
                                        int32_t *expert, float *weight, bool plain)
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
    for (int i = 0; i < E; i++)
        if (isnan(x[i])) sum = (double)NAN;
    if (plain && !isnan(sum)) {
        sum = 0;
        for (int i = 0; i < E; i++) sum += exp((double)x[i] - (double)x[e[0]]);
    }
    for (int j = 0; j < k; j++)
        weight[row * k + j] = (float)(exp((double)x[e[j]] - (double)x[e[0]]) / sum);
}

/* Without logits, weights are a softmax over the chosen experts. With logits (plain), they are
 * part of a softmax over all experts. */
static __global__ void route_bwd_kernel(float *dlogits, int64_t ld, int64_t rows, int E, int k,
                                        const int32_t *expert, const float *weight,
                                        const float *dweight, const float *logits,
                                        int64_t logits_ld)
{
    const int64_t row = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (row >= rows) return;
    float *dx = dlogits + row * ld;
    const float *w = weight + row * k, *dw = dweight + row * k;
    double dot = 0;
    for (int j = 0; j < k; j++) dot += (double)w[j] * (double)dw[j];
    for (int e = 0; e < E; e++) dx[e] = 0;
    for (int e = 0; logits && e < E; e++) {
        const float *x = logits + row * logits_ld, top = x[expert[row * k]];
        dx[e] = (float)(-(double)w[0] * exp((double)x[e] - (double)top) * dot);
    }
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
               (int)t.cols, (int)a->k, a->expert, a->weight, a->dweight,
               a->plain ? (const float *)a->logits.data : nullptr, a->logits.ld);
    else
        LAUNCH(c, route_fwd_kernel, grid, dim3(LOSS_THREADS), 0, (const float *)t.data, t.ld,
               t.rows, (int)t.cols, (int)a->k, a->expert, a->weight, a->plain);
}
