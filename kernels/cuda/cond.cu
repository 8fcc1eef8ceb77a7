/* cond.cu: operations with one operand for all rows of a call, or for a group of rows: bias, and
 * adaLN's modulation and gates. */
#include "kernels/cuda/each.h"
#include "kernels/cuda/sums.h"

static __device__ __forceinline__ int64_t group_of(const int32_t *group, int64_t row)
{
    return group ? group[row] : 0;
}

/* The terms of the sum out[g]. A row of group g contributes dy * x, or dy if x.data is NULL. All
 * other rows contribute 0. */
struct group_term {
    mat dy, x;
    const int32_t *group;
    int64_t g;
    __device__ double term(int64_t row, int64_t col) const
    {
        if (group_of(group, row) != g) return 0;
        const double d = (double)get(dy, row, col);
        return x.data ? d * (double)get(x, row, col) : d;
    }
};

static void group_sums(struct cuda *c, struct tensor dy, struct tensor x, const int32_t *group,
                       struct tensor out)
{
    for (int64_t g = 0; g < out.rows; g++)
        if (group || g == 0)
            sum_rows(c, group_term{mat_of(dy), mat_of(x), group, g}, dy.rows, dy.cols,
                     (float *)out.data + g * out.ld);
}

/* ---- bias ------------------------------------------------------------------------------------ */

struct bias_of {
    mat y, b;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], w[VEC];
        load(y, row, col, v);
        load(b, 0, col, w);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] += w[i];
        store(y, row, col, v);
    }
};

void cuda_bias_fwd(struct be *be, const struct bias_fwd_args *a)
{
    shape_bias_fwd(a);
    each(cuda_of(be), bias_of{mat_of(a->y), mat_of(a->b)}, {a->y, a->b}, a->y.rows, a->y.cols);
}

void cuda_bias_bwd(struct be *be, const struct bias_bwd_args *a)
{
    shape_bias_bwd(a);
    group_sums(cuda_of(be), a->dy, (struct tensor){}, NULL,
               tensor_f32(a->db, 1, a->dy.cols, a->dy.cols));
}

/* ---- modulation ------------------------------------------------------------------------------ */

struct modulate_of {
    mat x, scale, shift, y;
    const int32_t *group;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        const int64_t g = group_of(group, row);
        float v[VEC], k[VEC], s[VEC];
        load(x, row, col, v);
        load(scale, g, col, k);
        load(shift, g, col, s);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] = v[i] * (1 + k[i]) + s[i];
        store(y, row, col, v);
    }
};

/* Sets dx to (bias + factor[g]) dy, or adds (bias + factor[g]) dy to dx. */
struct group_dx {
    mat factor, dy, dx;
    const int32_t *group;
    float bias;
    bool add;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float k[VEC], d[VEC], old[VEC] = {};
        load(factor, group_of(group, row), col, k);
        load(dy, row, col, d);
        if (add) load(dx, row, col, old);
        UNROLL
        for (int i = 0; i < VEC; i++) d[i] = (bias + k[i]) * d[i] + (add ? old[i] : 0);
        store(dx, row, col, d);
    }
};

void cuda_modulate_fwd(struct be *be, const struct modulate_fwd_args *a)
{
    shape_modulate_fwd(a);
    each(cuda_of(be),
         modulate_of{mat_of(a->x), mat_of(a->scale), mat_of(a->shift), mat_of(a->y), a->group},
         {a->x, a->scale, a->shift, a->y}, a->x.rows, a->x.cols);
}

void cuda_modulate_bwd(struct be *be, const struct modulate_bwd_args *a)
{
    shape_modulate_bwd(a);
    struct cuda *c = cuda_of(be);
    group_sums(c, a->dy, a->x, a->group, a->dscale); /* before dx, which may be dy */
    group_sums(c, a->dy, (struct tensor){}, a->group, a->dshift);
    each(c, group_dx{mat_of(a->scale), mat_of(a->dy), mat_of(a->dx), a->group, 1, a->accumulate},
         {a->scale, a->dy, a->dx}, a->x.rows, a->x.cols);
}

/* ---- gates ----------------------------------------------------------------------------------- */

struct gate_of {
    mat base, x, gate, y;
    const int32_t *group;
    template <int VEC> __device__ void at(int64_t row, int64_t col) const
    {
        float v[VEC], k[VEC], b[VEC];
        load(x, row, col, v);
        load(gate, group_of(group, row), col, k);
        load(base, row, col, b);
        UNROLL
        for (int i = 0; i < VEC; i++) v[i] = b[i] + k[i] * v[i];
        store(y, row, col, v);
    }
};

void cuda_gate_fwd(struct be *be, const struct gate_fwd_args *a)
{
    shape_gate_fwd(a);
    each(cuda_of(be),
         gate_of{mat_of(a->base), mat_of(a->x), mat_of(a->gate), mat_of(a->y), a->group},
         {a->base, a->x, a->gate, a->y}, a->x.rows, a->x.cols);
}

void cuda_gate_bwd(struct be *be, const struct gate_bwd_args *a)
{
    shape_gate_bwd(a);
    struct cuda *c = cuda_of(be);
    group_sums(c, a->dy, a->x, a->group, a->dgate); /* before dx, which may be dy */
    each(c, group_dx{mat_of(a->gate), mat_of(a->dy), mat_of(a->dx), a->group, 0, a->accumulate},
         {a->gate, a->dy, a->dx}, a->x.rows, a->x.cols);
}
