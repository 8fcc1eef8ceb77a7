/* ops_moves.h: the cases of operations that send rows between ranks, and of linear attention, in
 * the form that ops_rows.h describes. They run on one rank. */
#ifndef SEQD_TESTS_OPS_MOVES_H
#define SEQD_TESTS_OPS_MOVES_H

#include "tests/lib/ops_rows.h"

enum { PLACES_OF = 3, FRAMES_OF = 4, LINEAR_HEADS = 2, LINEAR_KEYS = 3, LINEAR_VALUES = 4 };

/* ---- SWITCH, HEADS --------------------------------------------------------------------------- */

static inline void write_switch(struct env *t)
{
    const int a = input(t, ROWS_T, 5);
    output(t, &(struct op){.kind = OP_SWITCH, .in = {a}, .u.dims = {.from = 0, .to = 1}}, ROWS_ALT,
           5);
}

/* Moves the rows from the order [place, frame] to the order [frame, place]. */
static inline void loop_switch(const struct env *t)
{
    for (int64_t place = 0; place < PLACES_OF; place++)
        for (int64_t frame = 0; frame < FRAMES_OF; frame++)
            for (int64_t c = 0; c < 5; c++)
                out(t)[(frame * PLACES_OF + place) * 5 + c] = in(
                    t, 0)[(place * FRAMES_OF + frame) * 5 + c];
}

static inline void write_to_heads(struct env *t)
{
    const int a = input(t, ROWS_T, 12);
    output(t, &(struct op){.kind = OP_HEADS, .in = {a}, .u.heads = {.sets = 2}}, ROWS_T, 12);
}
static inline void write_from_heads(struct env *t)
{
    const int a = input(t, ROWS_T, 6);
    output(t, &(struct op){.kind = OP_HEADS, .in = {a}, .u.heads = {.sets = 1, .back = true}},
           ROWS_T, 6);
}

/* Copies the rows unchanged. On one rank, the operation has no effect, because the rank has all
 * rows and all heads. */
static inline void loop_same(const struct env *t)
{
    memcpy(out(t), in(t, 0), (size_t)count_of(t, t->op.out[0]) * sizeof(double));
}

/* ---- GATHER, SCATTER ------------------------------------------------------------------------- */

static inline void write_gather(struct env *t)
{
    const int a = input(t, ROWS_PART, 7);
    output(t, &(struct op){.kind = OP_GATHER, .in = {a}}, ROWS_T, 7);
}

static inline void write_scatter(struct env *t)
{
    const int a = input(t, ROWS_T, 7), base = input(t, ROWS_PART, 7), b = weight(t, 7, 0);
    t->p.value[a].f32 = true;
    output(t, &(struct op){.kind = OP_SCATTER, .in = {a, base}, .bias = b, .n_bias = 1}, ROWS_PART,
           7);
}
static inline void loop_scatter(const struct env *t)
{
    for (int64_t i = 0; i < T * 7; i++)
        out(t)[i] = in(t, 0)[i] + in(t, 1)[i] + weight_at(t, 0)[i % 7];
}

/* ---- LINEAR_ATTENTION ------------------------------------------------------------------------ */

static const double linear_slopes[LINEAR_HEADS] = {0, 0.3};

static inline void write_linear_attention(struct env *t)
{
    const int q = input(t, ROWS_T, LINEAR_HEADS * LINEAR_KEYS);
    const int k = input(t, ROWS_T, LINEAR_HEADS * LINEAR_KEYS);
    const int v = input(t, ROWS_T, LINEAR_HEADS * LINEAR_VALUES);
    const struct op op = {.kind = OP_LINEAR_ATTENTION,
                          .in = {q, k, v},
                          .u.linear = {.n_heads = LINEAR_HEADS,
                                       .key_dim = LINEAR_KEYS,
                                       .value_dim = LINEAR_VALUES,
                                       .scale = 0.7f}};
    output(t, &op, ROWS_T, LINEAR_HEADS * LINEAR_VALUES);
}

/* Computes the states one after another, from the first row to the last:
 *
 *     S = lambda S + k v'
 *     o = scale q S */
static inline void loop_linear_attention(const struct env *t)
{
    enum { K = LINEAR_KEYS, V = LINEAR_VALUES, H = LINEAR_HEADS };
    for (int h = 0; h < H; h++) {
        double S[K][V];
        for (int64_t i = 0; i < T; i++) {
            const double *q = in(t, 0) + (i * H + h) * K, *k = in(t, 1) + (i * H + h) * K;
            const double *v = in(t, 2) + (i * H + h) * V;
            const bool there = t->hi[i] > t->lo[i];
            if (i == 0 || t->lo[i] != t->lo[i - 1]) memset(S, 0, sizeof S);
            for (int c = 0; c < V; c++) {
                double o = 0;
                for (int d = 0; d < K && there; d++) {
                    S[d][c] = exp(-linear_slopes[h]) * S[d][c] + k[d] * v[c];
                    o += q[d] * S[d][c];
                }
                out(t)[(i * H + h) * V + c] = (double)t->op.u.linear.scale * o;
            }
        }
    }
}

#endif
