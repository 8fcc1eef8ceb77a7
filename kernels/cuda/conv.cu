/* conv.cu: the short convolution of gated delta networks, and its SiLU. Each thread computes one
 * element of the result. */
#include "kernels/cuda/each.h"
#include "kernels/cuda/sums.h"

struct conv_rows {
    mat x, w;
    const int64_t *lo;
    int64_t pos, width;
    const float *state;
    int64_t cols;
    /* Returns an element of row i of x, or of the state if i < 0. The caller has checked that the
     * row is in the document. */
    __device__ float at(int64_t i, int64_t c) const
    {
        if (i >= 0) return get(x, i, c);
        return state ? state[(width - 1 + i) * cols + c] : 0;
    }
    __device__ bool sees(int64_t row, int64_t from) const
    {
        return pos + from >= lo[row];
    }
    /* Computes the value before the activation, which is a sum over the taps in ascending
     * order. */
    __device__ float sum(int64_t row, int64_t c) const
    {
        float s = 0;
        for (int64_t j = 0; j < width; j++) {
            const int64_t from = row - width + 1 + j;
            if (sees(row, from)) s = fmaf(get(w, c, j), at(from, c), s);
        }
        return s;
    }
    /* Returns the gradient of sum(row, c), computed from dy. */
    __device__ float d_sum(int64_t row, int64_t c, const mat &dy) const
    {
        const float z = sum(row, c), s = 1 / (1 + expf(-z));
        return get(dy, row, c) * (s + z * s * (1 - s));
    }
};

static struct conv_rows rows_of(const struct conv_args *a)
{
    return {mat_of(a->x), mat_of(a->w), a->lo, a->pos, a->width, a->state, a->x.cols};
}

/* ---- forward --------------------------------------------------------------------------------- */

struct conv_fwd {
    struct conv_rows r;
    const int64_t *hi;
    mat y;
    template <int VEC> __device__ void at(int64_t row, int64_t c) const
    {
        if (hi[row] <= r.lo[row]) {
            set(y, row, c, 0);
            return;
        }
        const float z = r.sum(row, c);
        set(y, row, c, z / (1 + expf(-z)));
    }
};

/* Writes the leaving state. Its rows are the last width - 1 rows of a sequence, which consists of
 * the rows of the entering state and then the valid rows of the call. Each thread does one column.
 * The two states may share memory, because the thread reads a row before it writes that row. */
struct conv_leave {
    struct conv_rows r;
    const int64_t *hi;
    int64_t n;
    float *out;
    template <int VEC> __device__ void at(int64_t, int64_t c) const
    {
        const int64_t end = valid_rows(r.lo, hi, n);
        for (int64_t j = 0; j < r.width - 1; j++)
            out[j * r.cols + c] = r.at(end - (r.width - 1) + j, c);
    }
};

void cuda_conv_fwd(struct be *be, const struct conv_fwd_args *a)
{
    shape_conv_fwd(a);
    struct cuda *c = cuda_of(be);
    const struct conv_args *in = &a->in;
    if (a->y.data)
        each_vec<1>(c, conv_fwd{rows_of(in), in->hi, mat_of(a->y)}, in->x.rows, in->x.cols);
    if (a->state_out)
        each_vec<1>(c, conv_leave{rows_of(in), in->hi, in->x.rows, a->state_out}, 1, in->x.cols);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Sums the gradient of a row. `row` is counted from the state's first row. The part from the
 * leaving state is added first, and then the parts from the rows whose sums read this row,
 * ascending. */
struct conv_dx {
    struct conv_rows r;
    const int64_t *hi;
    int64_t n;
    mat dy, dx;
    const float *d_out;
    float *d_in;
    template <int VEC> __device__ void at(int64_t row, int64_t c) const
    {
        const int64_t before = r.width - 1, i = row - before, end = valid_rows(r.lo, hi, n);
        if (i >= end && i >= 0) {
            set(dx, i, c, 0);
            return;
        }
        float sum = d_out && i >= end - before ? d_out[(i - end + before) * r.cols + c] : 0;
        for (int64_t of = i > 0 ? i : 0; of < end && of <= i + before; of++)
            if (r.sees(of, i)) sum = fmaf(get(r.w, c, before - (of - i)), r.d_sum(of, c, dy), sum);
        if (i >= 0)
            set(dx, i, c, sum);
        else if (d_in)
            d_in[row * r.cols + c] = sum;
    }
};

struct conv_dw {
    struct conv_rows r;
    const int64_t *hi;
    mat dy;
    int64_t col0; /* first column, counted in a flat [C, width] */
    __device__ double term(int64_t row, int64_t col) const
    {
        const int64_t c = (col0 + col) / r.width, from = row - r.width + 1 + (col0 + col) % r.width;
        if (hi[row] <= r.lo[row] || !r.sees(row, from)) return 0;
        return (double)(r.d_sum(row, c, dy) * r.at(from, c));
    }
};

void cuda_conv_bwd(struct be *be, const struct conv_bwd_args *a)
{
    shape_conv_bwd(a);
    struct cuda *c = cuda_of(be);
    const struct conv_args *in = &a->in;
    const struct conv_rows r = rows_of(in);
    const int64_t n = in->x.rows, all = in->x.cols * in->width, step = 1 << 14;
    if (a->dx.data)
        each_vec<1>(c,
                    conv_dx{r, in->hi, n, mat_of(a->dy), mat_of(a->dx), a->d_state_out, a->d_state},
                    n + in->width - 1, in->x.cols);
    for (int64_t at = 0; a->dw && at < all; at += step)
        sum_rows(c, conv_dw{r, in->hi, mat_of(a->dy), at}, n, all - at < step ? all - at : step,
                 a->dw + at);
}
