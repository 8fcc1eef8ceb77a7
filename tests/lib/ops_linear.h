/* ops_linear.h: the cases of linear attention that rotates queries and keys by angles, in the form
 * that ops_rows.h describes. */
#ifndef SEQD_TESTS_OPS_LINEAR_H
#define SEQD_TESTS_OPS_LINEAR_H

#include "tests/lib/ops_moves.h"

enum { LIN_H = LINEAR_HEADS, LIN_K = 6, LIN_V = 5 };
static inline void write_angles(struct env *t)
{
    const int w = weight(t, LIN_H, LIN_K / 2);
    const int q = input(t, ROWS_T, LIN_H * LIN_K), k = input(t, ROWS_T, LIN_H * LIN_K);
    const int v = input(t, ROWS_T, LIN_H * LIN_V);
    output(t,
           &(struct op){
               .kind = OP_LINEAR_ATTENTION,
               .in = {q, k, v},
               .w = w,
               .n_w = 1,
               .u.linear = {.n_heads = LIN_H, .key_dim = LIN_K, .value_dim = LIN_V, .scale = 0.7f}},
           ROWS_T, LIN_H * LIN_V);
}

/* Returns the angle by which the queries and keys of row i still have to be rotated. They were
 * rotated with the theta in the float weights. If the test has changed theta since then, the angle
 * is the row's position times the change of theta. */
static inline double lin_turned(const struct env *t, int64_t i, int64_t h, int64_t d)
{
    const int64_t at = h * (LIN_K / 2) + d;
    return (double)t->pos[i] * (weight_at(t, 0)[at] - (double)((float *)t->f.weights)[at]);
}

static inline double lin_product(const struct env *t, int64_t i, int64_t j, int64_t h)
{
    const int64_t D = LIN_K / 2;
    const double *q = in(t, 0) + (i * LIN_H + h) * LIN_K, *k = in(t, 1) + (j * LIN_H + h) * LIN_K;
    double s = 0;
    for (int64_t d = 0; d < D; d++) {
        const double by = lin_turned(t, i, h, d) - lin_turned(t, j, h, d);
        s += cos(by) * (q[d] * k[d] + q[d + D] * k[d + D]);
        s += sin(by) * (q[d] * k[d + D] - q[d + D] * k[d]);
    }
    return s;
}

static inline void loop_angles(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < LIN_H; h++) {
            double *o = out(t) + (i * LIN_H + h) * LIN_V;
            memset(o, 0, LIN_V * sizeof *o);
            for (int64_t j = t->lo[i]; j < t->hi[i]; j++) {
                const double p = exp(-linear_slopes[h] * (double)(i - j)) * lin_product(t, i, j, h);
                for (int64_t e = 0; e < LIN_V; e++)
                    o[e] += (double)t->op.u.linear.scale * p *
                            in(t, 2)[(j * LIN_H + h) * LIN_V + e];
            }
        }
}

#endif
