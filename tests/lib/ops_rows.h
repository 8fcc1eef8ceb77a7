/* ops_rows.h: programs that consist of one operation on rows. For each program there is a plain
 * loop in float64 that defines the operation's result (tests/engine/test_ops.c). */
#ifndef SEQD_TESTS_OPS_ROWS_H
#define SEQD_TESTS_OPS_ROWS_H

#include <math.h>
#include <stdlib.h>
#include "tests/lib/philox.h"
#include "tests/lib/test.h"
#include "worker/model/op.h"

enum { T = 12, PARTS = 4, LEN = 5, TEXT = 5, COND = 2 };
#define TOLERANCE 4e-5 /* 300 * 2^-23 */

struct env {
    struct program p;
    struct op op;
    struct frame f;
    struct model_shape shape;
    struct batch batch;
    struct sp sp;
    struct dsp dsp;
    struct sp_carry carry;
    struct sp_linear linear;
    struct shard shard;
    /* v holds the inputs and outputs of the loops, and w their weights */
    double *v[PROG_VALUES], *w;
    double r[T * 64], inv_freq[16];
    float nll_room[1];
    double nll[T];
    float *grads; /* gradients of weights */
    uint64_t rng;
    int32_t ids[T], targets[T], group[T];
    int64_t pos[T], lo[T], hi[T];
    float patches[T * 16], target[T * 16], weight[T * 4], text[TEXT * 16];
};

struct op_case {
    const char *name;
    /* writes the program: its inputs, its weights and its single operation */
    void (*write)(struct env *);
    void (*loop)(const struct env *); /* computes v[out] from v[in] and w */
};

static inline double uniform(struct env *t)
{
    t->rng = t->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(t->rng >> 11) / 9007199254740992.0 * 2 - 1;
}

static inline int64_t rows_of(const struct env *t, int v)
{
    const int64_t n[ROWS_N] = {T, T, TEXT, COND, T};
    return n[t->p.value[v].rows];
}

static inline int64_t count_of(const struct env *t, int v)
{
    return rows_of(t, v) * t->p.value[v].cols;
}

/* ---- programs of one operation --------------------------------------------------------------- */

static inline int input(struct env *t, enum rows_id rows, int64_t cols)
{
    return prog_value(&t->p, &(struct value){.name = "in", .rows = rows, .cols = cols});
}

static inline void output(struct env *t, const struct op *op, enum rows_id rows, int64_t cols)
{
    const struct value out = {.name = "out", .rows = rows, .cols = cols};
    prog_op(&t->p, op, cols ? &out : NULL);
    t->op = t->p.op[0];
}

static inline int weight(struct env *t, int64_t rows, int64_t cols)
{
    return prog_tensor(&t->p, "w", rows, cols, INIT_NORMAL);
}

static inline double *in(const struct env *t, int i)
{
    return t->v[t->op.in[i]];
}
static inline double *out(const struct env *t)
{
    return t->v[t->op.out[0]];
}
static inline int64_t in_cols(const struct env *t, int i)
{
    return t->p.value[t->op.in[i]].cols;
}
static inline const double *weight_at(const struct env *t, int i)
{
    return t->w + t->p.weight[i].offset;
}

static inline double act(enum act_id fn, double x)
{
    switch (fn) {
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_ELU1: return x > 0 ? x + 1 : exp(x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_TANH: return tanh(x);
    default: return x;
    }
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

/* Writes a linear operation with two weights that are joined, with biases that are joined, and
 * with a base to which the result is added. */
static inline void write_linear(struct env *t)
{
    const int a = input(t, ROWS_T, 12), base = input(t, ROWS_T, 9), w = weight(t, 5, 12);
    prog_joined(&t->p, "w2", 4, 12, INIT_NORMAL);
    const int b = weight(t, 5, 0);
    prog_joined(&t->p, "b2", 4, 0, INIT_NORMAL);
    output(
        t,
        &(struct op){.kind = OP_LINEAR, .in = {a, base}, .w = w, .n_w = 2, .bias = b, .n_bias = 2},
        ROWS_T, 9);
}

static inline void write_linear_cond(struct env *t)
{
    const int a = input(t, ROWS_COND, 12), w = weight(t, 9, 12), b = weight(t, 9, 0);
    output(t,
           &(struct op){
               .kind = OP_LINEAR, .in = {a, PROG_NONE}, .w = w, .n_w = 1, .bias = b, .n_bias = 1},
           ROWS_COND, 9);
}

static inline void loop_linear(const struct env *t)
{
    const int64_t n = in_cols(t, 0), rows = rows_of(t, t->op.in[0]);
    const double *w = weight_at(t, t->op.w), *b = weight_at(t, t->op.bias);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < 9; j++) {
            double s = b[j] + (t->op.in[1] == PROG_NONE ? 0 : in(t, 1)[i * 9 + j]);
            for (int64_t k = 0; k < n; k++) s += in(t, 0)[i * n + k] * w[j * n + k];
            out(t)[i * 9 + j] = s;
        }
}

/* ---- ADAPT ----------------------------------------------------------------------------------- */

#define ADAPT_RATE 0.3

/* Writes an addition to columns 1 to 4 and 4 to 9 of a product of 10 columns. The ranks are 3. */
static inline void write_adapt(struct env *t)
{
    const int a = input(t, ROWS_T, 10), x = input(t, ROWS_T, 12), w = weight(t, 3, 12);
    weight(t, 3, 3);
    weight(t, 3, 12);
    weight(t, 5, 3);
    output(t,
           &(struct op){.kind = OP_ADAPT,
                        .in = {a, x},
                        .w = w,
                        .n_w = 4,
                        .u.adapt = {.rank = 3, .n = 2, .part = {{1, 0.7f, 0}, {4, 0.7f, 0}}}},
           ROWS_T, 10);
}

static inline void write_adapt_drop(struct env *t)
{
    write_adapt(t);
    t->op.u.adapt.drops = t->p.op[0].u.adapt.drops = true;
}

/* Returns x of a row and column for a part, after its dropout. */
static inline double adapt_input(const struct env *t, int64_t row, int64_t col, int part)
{
    const uint32_t key[2] = {11, 13};
    const double x = in(t, 1)[row * in_cols(t, 1) + col];
    if (!t->op.u.adapt.drops) return x;
    return x * philox_mask(key, &(struct philox_at){row, col, 0, 0x8000 + 2 * part, 2}, ADAPT_RATE);
}

static inline void loop_adapt(const struct env *t)
{
    const int64_t C = in_cols(t, 0), K = in_cols(t, 1), R = t->op.u.adapt.rank;
    for (int64_t i = 0; i < T * C; i++) out(t)[i] = in(t, 0)[i];
    for (int part = 0; part < t->op.u.adapt.n; part++)
        for (int64_t i = 0; i < T; i++)
            for (int64_t k = 0; k < R; k++) {
                const double *A = weight_at(t, 2 * part) + k * K, *B = weight_at(t, 2 * part + 1);
                const struct adapt_place *at = &t->op.u.adapt.part[part];
                const int64_t n = t->p.weight[2 * part + 1].rows;
                double u = 0;
                for (int64_t c = 0; c < K; c++) u += adapt_input(t, i, c, part) * A[c];
                for (int64_t c = 0; c < n; c++)
                    out(t)[i * C + at->col + c] += (double)at->scale * u * B[c * R + k];
            }
}

/* ---- NORM ------------------------------------------------------------------------------------ */

static inline void norm_case(struct env *t, enum norm_id kind, int64_t cols, int64_t groups,
                             int64_t dim, int n_w)
{
    const int a = input(t, ROWS_T, cols);
    const int w = n_w > 0 ? weight(t, dim ? dim : cols / groups, 0) : PROG_NONE;
    if (n_w > 1) weight(t, dim ? dim : cols / groups, 0);
    output(
        t,
        &(struct op){
            .kind = OP_NORM, .in = {a}, .w = w, .n_w = n_w, .u.norm = {kind, 1e-5f, groups, dim}},
        ROWS_T, cols);
}
static inline void write_rms(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 1, 0, 1);
}
static inline void write_rms_bare(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 1, 0, 0);
}
static inline void write_rms_heads(struct env *t)
{
    /* each row holds the keys of two heads, and then values, which are not normalised */
    norm_case(t, NORM_RMS, 24, 2, 8, 1);
}
static inline void write_rms_offset(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 2, 8, 1);
    t->op.u.norm.offset = t->p.op[0].u.norm.offset = true;
}
static inline void write_layer_norm(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 1, 0, 2);
}
static inline void write_layer_heads(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 3, 0, 2);
}
static inline void write_layer_bare(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 1, 0, 0);
}

static inline void norm_group(const struct env *t, const double *x, double *y, int64_t D)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < D; i++) mean += x[i] / (double)D;
    if (t->op.u.norm.kind == NORM_RMS) mean = 0;
    for (int64_t i = 0; i < D; i++) var += (x[i] - mean) * (x[i] - mean) / (double)D;
    for (int64_t i = 0; i < D; i++) {
        const double g = t->op.n_w > 0 ? weight_at(t, t->op.w)[i] : 1;
        const double b = t->op.n_w > 1 ? weight_at(t, t->op.w + 1)[i] : 0;
        const double factor = g + (double)t->op.u.norm.offset;
        y[i] = (x[i] - mean) / sqrt(var + (double)t->op.u.norm.eps) * factor + b;
    }
}

static inline void loop_norm(const struct env *t)
{
    const int64_t C = in_cols(t, 0), G = t->op.u.norm.groups;
    const int64_t D = t->op.u.norm.dim ? t->op.u.norm.dim : C / G;
    for (int64_t i = 0; i < T; i++) {
        memcpy(out(t) + i * C, in(t, 0) + i * C, (size_t)C * 8);
        for (int64_t g = 0; g < G; g++)
            norm_group(t, in(t, 0) + i * C + g * D, out(t) + i * C + g * D, D);
    }
}

/* ---- ACT, GLU, MIX --------------------------------------------------------------------------- */

static inline void write_act(struct env *t)
{
    const int a = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_ACT, .in = {a}, .u.act.kind = ACT_GELU_TANH}, ROWS_T, 11);
}
static inline void write_act_cond(struct env *t)
{
    const int a = input(t, ROWS_COND, 11);
    output(t, &(struct op){.kind = OP_ACT, .in = {a}, .u.act.kind = ACT_SILU}, ROWS_COND, 11);
}
static inline void loop_act(const struct env *t)
{
    for (int64_t i = 0; i < count_of(t, t->op.in[0]); i++)
        out(t)[i] = act(t->op.u.act.kind, in(t, 0)[i]);
}

static inline void write_glu(struct env *t)
{
    const int a = input(t, ROWS_T, 11), b = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_GLU, .in = {a, b}, .u.act.kind = ACT_SIGMOID}, ROWS_T, 11);
}
static inline void write_swiglu(struct env *t)
{
    const int ab = input(t, ROWS_T, 22), a = prog_view(&t->p, ab, 0, 11);
    const int b = prog_view(&t->p, ab, 11, 11);
    output(t, &(struct op){.kind = OP_GLU, .in = {a, b}, .u.act.kind = ACT_SILU}, ROWS_T, 11);
}
static inline void loop_glu(const struct env *t)
{
    for (int64_t i = 0; i < T * 11; i++)
        out(t)[i] = act(t->op.u.act.kind, in(t, 0)[i]) * in(t, 1)[i];
}

static inline void write_mix(struct env *t)
{
    const int a = input(t, ROWS_T, 11), b = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_MIX, .in = {a, b}, .u.mix = {1.5f, -0.5f}}, ROWS_T, 11);
}
static inline void write_mix_one(struct env *t)
{
    const int a = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_MIX, .in = {a, PROG_NONE}, .u.mix = {1.5f, 7}}, ROWS_T, 11);
}
static inline void loop_mix(const struct env *t)
{
    for (int64_t i = 0; i < T * 11; i++)
        out(t)[i] = 1.5 * in(t, 0)[i] - (t->op.in[1] == PROG_NONE ? 0 : 0.5 * in(t, 1)[i]);
}

/* ---- MODULATE, GATE, ROW_GATE, TABLE --------------------------------------------------------- */

static inline void write_modulate(struct env *t)
{
    const int a = input(t, ROWS_T, 10), all = input(t, ROWS_COND, 30);
    const int shift = prog_view(&t->p, all, 0, 10), scale = prog_view(&t->p, all, 10, 10);
    prog_view(&t->p, all, 20, 10);
    output(t, &(struct op){.kind = OP_MODULATE, .in = {a, shift, scale}}, ROWS_T, 10);
}
static inline void loop_modulate(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < 10; j++)
            out(t)[i * 10 + j] = in(t, 0)[i * 10 + j] * (1 + in(t, 2)[t->group[i] * 10 + j]) +
                                 in(t, 1)[t->group[i] * 10 + j];
}

static inline void write_gate(struct env *t)
{
    const int base = input(t, ROWS_T, 10), a = input(t, ROWS_T, 10);
    const int all = input(t, ROWS_COND, 20), gate = prog_view(&t->p, all, 10, 10);
    prog_view(&t->p, all, 0, 10);
    output(t, &(struct op){.kind = OP_GATE, .in = {base, a, gate}}, ROWS_T, 10);
}
static inline void loop_gate(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < 10; j++)
            out(t)[i * 10 + j] = in(t, 0)[i * 10 + j] +
                                 in(t, 2)[t->group[i] * 10 + j] * in(t, 1)[i * 10 + j];
}

static inline void write_row_gate(struct env *t)
{
    const int base = input(t, ROWS_T, 10), a = input(t, ROWS_T, 10), gate = input(t, ROWS_T, 1);
    output(t, &(struct op){.kind = OP_ROW_GATE, .in = {base, a, gate}}, ROWS_T, 10);
}
static inline void loop_row_gate(const struct env *t)
{
    for (int64_t i = 0; i < T * 10; i++)
        out(t)[i] = in(t, 0)[i] + act(ACT_SIGMOID, in(t, 2)[i / 10]) * in(t, 1)[i];
}

static inline void write_select(struct env *t)
{
    const int a = input(t, ROWS_T, 10), b = input(t, ROWS_T, 10);
    output(t, &(struct op){.kind = OP_SELECT, .in = {a, b}}, ROWS_T, 10);
}
static inline void loop_select(const struct env *t)
{
    for (int64_t i = 0; i < T * 10; i++) out(t)[i] = in(t, t->group[i / 10])[i];
}

static inline void write_table_repeat(struct env *t)
{
    const int a = input(t, ROWS_COND, 6), w = weight(t, 3, 6);
    output(t, &(struct op){.kind = OP_TABLE, .in = {a}, .w = w, .n_w = 1}, ROWS_COND, 18);
}
static inline void write_table(struct env *t)
{
    const int a = input(t, ROWS_COND, 18), w = weight(t, 3, 6);
    output(t, &(struct op){.kind = OP_TABLE, .in = {a}, .w = w, .n_w = 1}, ROWS_COND, 18);
}
static inline void loop_table(const struct env *t)
{
    for (int64_t i = 0; i < COND * 18; i++)
        out(t)[i] = in(t, 0)[i / 18 * in_cols(t, 0) + i % 18 % in_cols(t, 0)] +
                    weight_at(t, 0)[i % 18];
}

/* ---- EMBED, EMBED_ADD ------------------------------------------------------------------------ */

static inline void write_embed(struct env *t)
{
    const int w = weight(t, 7, 6);
    output(t, &(struct op){.kind = OP_EMBED, .w = w, .n_w = 1, .u.embed.scale = 2.5f}, ROWS_T, 6);
}
static inline void loop_embed(const struct env *t)
{
    for (int64_t i = 0; i < T * 6; i++)
        out(t)[i] = 2.5 * weight_at(t, 0)[t->ids[i / 6] * 6 + i % 6];
}

static inline void write_embed_add(struct env *t)
{
    const int a = input(t, ROWS_T, 6), w = weight(t, T, 6);
    output(t,
           &(struct op){
               .kind = OP_EMBED_ADD, .in = {a}, .w = w, .n_w = 1, .u.embed.index = INDEX_POSITION},
           ROWS_T, 6);
}
static inline void loop_embed_add(const struct env *t)
{
    for (int64_t i = 0; i < T * 6; i++)
        out(t)[i] = in(t, 0)[i] + weight_at(t, 0)[t->pos[i / 6] * 6 + i % 6];
}

/* ---- ROPE, LRPE ------------------------------------------------------------------------------ */

static inline void write_rope(struct env *t)
{
    /* two heads with 8 columns each, followed by values, which are not rotated */
    const int a = input(t, ROWS_T, 24);
    output(t, &(struct op){.kind = OP_ROPE, .in = {a}, .u.rope = {2, 8, 0, false, false}}, ROWS_T,
           24);
}
static inline void write_rope_part(struct env *t)
{
    const int a = input(t, ROWS_T, 24);
    output(t, &(struct op){.kind = OP_ROPE, .in = {a}, .u.rope = {3, 8, 4, true, false}}, ROWS_T,
           24);
}
static inline void loop_rope(const struct env *t)
{
    const int64_t D = 8, R = t->op.u.rope.rotary_dim ? t->op.u.rope.rotary_dim : D;
    const bool pairs = t->op.u.rope.interleaved;
    memcpy(out(t), in(t, 0), sizeof(double) * T * 24);
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < t->op.u.rope.n_heads; h++)
            for (int64_t j = 0; j < R / 2; j++) {
                const int64_t a = i * 24 + h * D + (pairs ? 2 * j : j), b = a + (pairs ? 1 : R / 2);
                const double x = (double)t->pos[i] * t->inv_freq[j];
                out(t)[a] = in(t, 0)[a] * cos(x) - in(t, 0)[b] * sin(x);
                out(t)[b] = in(t, 0)[b] * cos(x) + in(t, 0)[a] * sin(x);
            }
}

/* Writes lrpe of queries and keys. There are two heads, and both are rotated by the same
 * angles. */
static inline void write_lrpe(struct env *t)
{
    const int a = input(t, ROWS_T, 24), w = weight(t, 2, 6);
    output(t, &(struct op){.kind = OP_LRPE, .in = {a}, .w = w, .n_w = 1}, ROWS_T, 48);
}
static inline void loop_lrpe(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < 4; h++)
            for (int64_t j = 0; j < 6; j++) {
                const double x = in(t, 0)[i * 24 + h * 6 + j];
                const double a = weight_at(t, 0)[h % 2 * 6 + j] * (double)t->pos[i];
                out(t)[i * 48 + h * 12 + j] = x * cos(a);
                out(t)[i * 48 + h * 12 + 6 + j] = x * sin(a);
            }
}

#endif
