/* ops_delta.h: the cases of gated delta networks, in the form that ops_rows.h describes. The loops
 * compute one row after the other, without blocks or chunks. */
#ifndef SEQD_TESTS_OPS_DELTA_H
#define SEQD_TESTS_OPS_DELTA_H

#include "tests/lib/ops_rows.h"

enum { TAPS = 4, HEADS = 4, KEY_HEADS = 2, KEYS = 3, VALUES = 5 };

static inline void write_short_conv(struct env *t)
{
    const int a = input(t, ROWS_T, 7), w = weight(t, 7, TAPS);
    output(t,
           &(struct op){.kind = OP_SHORT_CONV, .in = {a}, .w = w, .n_w = 1, .u.conv.width = TAPS},
           ROWS_T, 7);
}
static inline void loop_short_conv(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < 7; c++) {
            double z = 0;
            for (int64_t j = 0; j < TAPS; j++) {
                const int64_t from = i - (TAPS - 1) + j;
                if (from >= t->lo[i] && t->hi[i] > t->lo[i])
                    z += weight_at(t, 0)[c * TAPS + j] * in(t, 0)[from * 7 + c];
            }
            out(t)[i * 7 + c] = act(ACT_SILU, z);
        }
}

static inline void write_delta(struct env *t)
{
    const int64_t rows = 2 * KEY_HEADS * KEYS + HEADS * VALUES;
    const int qkv = input(t, ROWS_T, rows), all = input(t, ROWS_T, 3 + 2 * HEADS);
    const int ba = prog_view(&t->p, all, 3, 2 * HEADS);
    prog_view(&t->p, all, 0, 3);
    const int w = weight(t, HEADS, 0), log = weight(t, HEADS, 0);
    output(t,
           &(struct op){.kind = OP_DELTA,
                        .in = {qkv, ba},
                        .w = w,
                        .n_w = 1,
                        .bias = log,
                        .n_bias = 1,
                        .u.delta = {HEADS, KEY_HEADS, KEYS, VALUES, 0.7f}},
           ROWS_T, HEADS * VALUES);
}

static inline void delta_unit(const double *x, double *y)
{
    double sum = 1e-6;
    for (int i = 0; i < KEYS; i++) sum += x[i] * x[i];
    for (int i = 0; i < KEYS; i++) y[i] = x[i] / sqrt(sum);
}

static inline void delta_row(const struct env *t, int64_t i, int h, double S[KEYS][VALUES])
{
    const double *row = in(t, 0) + i * in_cols(t, 0), *ba = in(t, 1) + i * 2 * HEADS;
    const double *v = row + 2 * KEY_HEADS * KEYS + h * VALUES;
    const double step = log1p(exp(ba[HEADS + h] + weight_at(t, 0)[h]));
    const double decay = exp(-exp(weight_at(t, 1)[h]) * step), beta = act(ACT_SIGMOID, ba[h]);
    const int hk = h / (HEADS / KEY_HEADS);
    double q[KEYS], k[KEYS];
    delta_unit(row + hk * KEYS, q);
    delta_unit(row + KEY_HEADS * KEYS + hk * KEYS, k);
    for (int c = 0; c < VALUES; c++) {
        double seen = 0, o = 0;
        for (int d = 0; d < KEYS; d++) seen += (S[d][c] *= decay) * k[d];
        for (int d = 0; d < KEYS; d++) S[d][c] += k[d] * beta * (v[c] - seen);
        for (int d = 0; d < KEYS; d++) o += q[d] * S[d][c];
        out(t)[i * HEADS * VALUES + h * VALUES + c] = (double)t->op.u.delta.scale * o;
    }
}

static inline void loop_delta(const struct env *t)
{
    for (int h = 0; h < HEADS; h++) {
        double S[KEYS][VALUES];
        for (int64_t i = 0; i < T; i++) {
            if (i == 0 || t->lo[i] != t->lo[i - 1]) memset(S, 0, sizeof S);
            if (t->hi[i] > t->lo[i])
                delta_row(t, i, h, S);
            else
                memset(out(t) + i * HEADS * VALUES + h * VALUES, 0, VALUES * sizeof(double));
        }
    }
}

#endif
