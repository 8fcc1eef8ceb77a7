/* test_ops.c: every operation of a program by itself, against obvious loops in float64.
 *
 * Forward: the operation in fp32 against the loop. Backward: the gradient of sum(r * out) for random
 * r against central differences of the loop, in float64, of every input and weight. Both whole and
 * with sums taken as a tree over chunks, written and added to.
 *
 * Bounds: an output is a sum of at most a few hundred products of numbers of order 1, in fp32: 2^-24
 * each, a few hundred times, relative to the largest output; differences of step 1e-5 in float64
 * err by 1e-10 (truncation) and 1e-11 (rounding): nothing beside that. */
#include <math.h>
#include <stdlib.h>
#include "tests/test.h"
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
    struct shard shard;
    double *v[PROG_VALUES], *w; /* what the loops read and write */
    double r[T * 64], inv_freq[16];
    float nll_room[1];
    double nll[T];
    float *grads; /* of weights */
    uint64_t rng;
    int32_t ids[T], targets[T], group[T];
    int64_t pos[T], lo[T], hi[T];
    float patches[T * 16], target[T * 16], weight[T * 4], text[TEXT * 16];
};

struct op_case {
    const char *name;
    void (*write)(struct env *);       /* the program: inputs, weights, one operation */
    void (*loop)(const struct env *);  /* v[out] from v[in], w */
};

static double uniform(struct env *t)
{
    t->rng = t->rng * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(t->rng >> 11) / 9007199254740992.0 * 2 - 1;
}

static int64_t rows_of(const struct env *t, int v)
{
    const int64_t n[ROWS_N] = {T, T, TEXT, COND};
    return n[t->p.value[v].rows];
}

static int64_t count_of(const struct env *t, int v)
{
    return rows_of(t, v) * t->p.value[v].cols;
}

/* ---- programs of one operation ---------------------------------------------------------------- */

static int input(struct env *t, enum rows_id rows, int64_t cols)
{
    return prog_value(&t->p, &(struct value){.name = "in", .rows = rows, .cols = cols});
}

static void output(struct env *t, const struct op *op, enum rows_id rows, int64_t cols)
{
    const struct value out = {.name = "out", .rows = rows, .cols = cols};
    prog_op(&t->p, op, cols ? &out : NULL);
    t->op = t->p.op[0];
}

static int weight(struct env *t, int64_t rows, int64_t cols)
{
    return prog_tensor(&t->p, "w", rows, cols, INIT_NORMAL);
}

static double *in(const struct env *t, int i)
{
    return t->v[t->op.in[i]];
}
static double *out(const struct env *t)
{
    return t->v[t->op.out[0]];
}
static int64_t in_cols(const struct env *t, int i)
{
    return t->p.value[t->op.in[i]].cols;
}
static const double *weight_at(const struct env *t, int i)
{
    return t->w + t->p.weight[i].offset;
}

static double act(enum act_id fn, double x)
{
    switch (fn) {
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
    case ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_ELU1: return x > 0 ? x + 1 : exp(x);
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_TANH: return tanh(x);
    default: return x;
    }
}

/* ---- LINEAR ---------------------------------------------------------------------------------- */

/* Two joined weights, joined biases, a base. */
static void write_linear(struct env *t)
{
    const int a = input(t, ROWS_T, 12), base = input(t, ROWS_T, 9), w = weight(t, 5, 12);
    prog_joined(&t->p, "w2", 4, 12, INIT_NORMAL);
    const int b = weight(t, 5, 0);
    prog_joined(&t->p, "b2", 4, 0, INIT_NORMAL);
    output(t,
           &(struct op){.kind = OP_LINEAR, .in = {a, base}, .w = w, .n_w = 2, .bias = b,
                        .n_bias = 2},
           ROWS_T, 9);
}

static void write_linear_cond(struct env *t)
{
    const int a = input(t, ROWS_COND, 12), w = weight(t, 9, 12), b = weight(t, 9, 0);
    output(t,
           &(struct op){.kind = OP_LINEAR, .in = {a, PROG_NONE}, .w = w, .n_w = 1, .bias = b,
                        .n_bias = 1},
           ROWS_COND, 9);
}

static void loop_linear(const struct env *t)
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

/* ---- NORM ------------------------------------------------------------------------------------ */

static void norm_case(struct env *t, enum norm_id kind, int64_t cols, int64_t groups, int64_t dim,
                      int n_w)
{
    const int a = input(t, ROWS_T, cols);
    const int w = n_w > 0 ? weight(t, dim ? dim : cols / groups, 0) : PROG_NONE;
    if (n_w > 1) weight(t, dim ? dim : cols / groups, 0);
    output(t,
           &(struct op){.kind = OP_NORM, .in = {a}, .w = w, .n_w = n_w,
                        .u.norm = {kind, 1e-5f, groups, dim}},
           ROWS_T, cols);
}
static void write_rms(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 1, 0, 1);
}
static void write_rms_bare(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 1, 0, 0);
}
static void write_rms_heads(struct env *t)
{
    norm_case(t, NORM_RMS, 24, 2, 8, 1); /* a KV row: two key heads, then values */
}
static void write_layer_norm(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 1, 0, 2);
}
static void write_layer_heads(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 3, 0, 2);
}
static void write_layer_bare(struct env *t)
{
    norm_case(t, NORM_LAYER, 24, 1, 0, 0);
}

static void norm_group(const struct env *t, const double *x, double *y, int64_t D)
{
    double mean = 0, var = 0;
    for (int64_t i = 0; i < D; i++) mean += x[i] / (double)D;
    if (t->op.u.norm.kind == NORM_RMS) mean = 0;
    for (int64_t i = 0; i < D; i++) var += (x[i] - mean) * (x[i] - mean) / (double)D;
    for (int64_t i = 0; i < D; i++) {
        const double g = t->op.n_w > 0 ? weight_at(t, t->op.w)[i] : 1;
        const double b = t->op.n_w > 1 ? weight_at(t, t->op.w + 1)[i] : 0;
        y[i] = (x[i] - mean) / sqrt(var + (double)t->op.u.norm.eps) * g + b;
    }
}

static void loop_norm(const struct env *t)
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

static void write_act(struct env *t)
{
    const int a = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_ACT, .in = {a}, .u.act.kind = ACT_GELU_TANH}, ROWS_T, 11);
}
static void write_act_cond(struct env *t)
{
    const int a = input(t, ROWS_COND, 11);
    output(t, &(struct op){.kind = OP_ACT, .in = {a}, .u.act.kind = ACT_SILU}, ROWS_COND, 11);
}
static void loop_act(const struct env *t)
{
    for (int64_t i = 0; i < count_of(t, t->op.in[0]); i++)
        out(t)[i] = act(t->op.u.act.kind, in(t, 0)[i]);
}

static void write_glu(struct env *t)
{
    const int a = input(t, ROWS_T, 11), b = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_GLU, .in = {a, b}, .u.act.kind = ACT_SIGMOID}, ROWS_T, 11);
}
static void write_swiglu(struct env *t)
{
    const int ab = input(t, ROWS_T, 22), a = prog_view(&t->p, ab, 0, 11);
    const int b = prog_view(&t->p, ab, 11, 11);
    output(t, &(struct op){.kind = OP_GLU, .in = {a, b}, .u.act.kind = ACT_SILU}, ROWS_T, 11);
}
static void loop_glu(const struct env *t)
{
    for (int64_t i = 0; i < T * 11; i++)
        out(t)[i] = act(t->op.u.act.kind, in(t, 0)[i]) * in(t, 1)[i];
}

static void write_mix(struct env *t)
{
    const int a = input(t, ROWS_T, 11), b = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_MIX, .in = {a, b}, .u.mix = {1.5f, -0.5f}}, ROWS_T, 11);
}
static void write_mix_one(struct env *t)
{
    const int a = input(t, ROWS_T, 11);
    output(t, &(struct op){.kind = OP_MIX, .in = {a, PROG_NONE}, .u.mix = {1.5f, 7}}, ROWS_T, 11);
}
static void loop_mix(const struct env *t)
{
    for (int64_t i = 0; i < T * 11; i++)
        out(t)[i] = 1.5 * in(t, 0)[i] - (t->op.in[1] == PROG_NONE ? 0 : 0.5 * in(t, 1)[i]);
}

/* ---- MODULATE, GATE, TABLE ------------------------------------------------------------------- */

static void write_modulate(struct env *t)
{
    const int a = input(t, ROWS_T, 10), all = input(t, ROWS_COND, 30);
    const int shift = prog_view(&t->p, all, 0, 10), scale = prog_view(&t->p, all, 10, 10);
    prog_view(&t->p, all, 20, 10);
    output(t, &(struct op){.kind = OP_MODULATE, .in = {a, shift, scale}}, ROWS_T, 10);
}
static void loop_modulate(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < 10; j++)
            out(t)[i * 10 + j] = in(t, 0)[i * 10 + j] * (1 + in(t, 2)[t->group[i] * 10 + j]) +
                                 in(t, 1)[t->group[i] * 10 + j];
}

static void write_gate(struct env *t)
{
    const int base = input(t, ROWS_T, 10), a = input(t, ROWS_T, 10);
    const int all = input(t, ROWS_COND, 20), gate = prog_view(&t->p, all, 10, 10);
    prog_view(&t->p, all, 0, 10);
    output(t, &(struct op){.kind = OP_GATE, .in = {base, a, gate}}, ROWS_T, 10);
}
static void loop_gate(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; j < 10; j++)
            out(t)[i * 10 + j] = in(t, 0)[i * 10 + j] +
                                 in(t, 2)[t->group[i] * 10 + j] * in(t, 1)[i * 10 + j];
}

static void write_select(struct env *t)
{
    const int a = input(t, ROWS_T, 10), b = input(t, ROWS_T, 10);
    output(t, &(struct op){.kind = OP_SELECT, .in = {a, b}}, ROWS_T, 10);
}
static void loop_select(const struct env *t)
{
    for (int64_t i = 0; i < T * 10; i++) out(t)[i] = in(t, t->group[i / 10])[i];
}

static void write_table_repeat(struct env *t)
{
    const int a = input(t, ROWS_COND, 6), w = weight(t, 3, 6);
    output(t, &(struct op){.kind = OP_TABLE, .in = {a}, .w = w, .n_w = 1}, ROWS_COND, 18);
}
static void write_table(struct env *t)
{
    const int a = input(t, ROWS_COND, 18), w = weight(t, 3, 6);
    output(t, &(struct op){.kind = OP_TABLE, .in = {a}, .w = w, .n_w = 1}, ROWS_COND, 18);
}
static void loop_table(const struct env *t)
{
    for (int64_t i = 0; i < COND * 18; i++) 
        out(t)[i] = in(t, 0)[i / 18 * in_cols(t, 0) + i % 18 % in_cols(t, 0)] +
                    weight_at(t, 0)[i % 18];
}

/* ---- EMBED, EMBED_ADD ------------------------------------------------------------------------ */

static void write_embed(struct env *t)
{
    const int w = weight(t, 7, 6);
    output(t, &(struct op){.kind = OP_EMBED, .w = w, .n_w = 1, .u.embed.scale = 2.5f}, ROWS_T, 6);
}
static void loop_embed(const struct env *t)
{
    for (int64_t i = 0; i < T * 6; i++)
        out(t)[i] = 2.5 * weight_at(t, 0)[t->ids[i / 6] * 6 + i % 6];
}

static void write_embed_add(struct env *t)
{
    const int a = input(t, ROWS_T, 6), w = weight(t, T, 6);
    output(t,
           &(struct op){.kind = OP_EMBED_ADD, .in = {a}, .w = w, .n_w = 1,
                        .u.embed.index = INDEX_POSITION},
           ROWS_T, 6);
}
static void loop_embed_add(const struct env *t)
{
    for (int64_t i = 0; i < T * 6; i++)
        out(t)[i] = in(t, 0)[i] + weight_at(t, 0)[t->pos[i / 6] * 6 + i % 6];
}

/* ---- ROPE, LRPE ------------------------------------------------------------------------------ */

static void write_rope(struct env *t)
{
    const int a = input(t, ROWS_T, 24); /* two heads of 8, and values that do not turn */
    output(t, &(struct op){.kind = OP_ROPE, .in = {a}, .u.rope = {2, 8, 0, false, false}}, ROWS_T,
           24);
}
static void write_rope_part(struct env *t)
{
    const int a = input(t, ROWS_T, 24);
    output(t, &(struct op){.kind = OP_ROPE, .in = {a}, .u.rope = {3, 8, 4, true, false}}, ROWS_T,
           24);
}
static void loop_rope(const struct env *t)
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

/* Queries and keys of two heads, with the same angles. */
static void write_lrpe(struct env *t)
{
    const int a = input(t, ROWS_T, 24), w = weight(t, 2, 6);
    output(t, &(struct op){.kind = OP_LRPE, .in = {a}, .w = w, .n_w = 1}, ROWS_T, 48);
}
static void loop_lrpe(const struct env *t)
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

/* ---- ATTENTION, CROSS ------------------------------------------------------------------------ */

static void write_attention(struct env *t)
{
    const int q = input(t, ROWS_T, 24), kv = input(t, ROWS_T, 24);
    output(t,
           &(struct op){.kind = OP_ATTENTION, .in = {q, kv},
                        .u.attn = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 6, .scale = 0.7f,
                                   .causal = true, .dim = -1}},
           ROWS_T, 24);
}
static void write_window(struct env *t)
{
    write_attention(t);
    t->op.u.attn.window = t->p.op[0].u.attn.window = 3;
}
/* Rows [3 spread, 4 whole]. */
static void write_grid(struct env *t)
{
    write_attention(t);
    t->op.u.attn.dim = t->p.op[0].u.attn.dim = 1;
}
static void write_cross(struct env *t)
{
    const int q = input(t, ROWS_T, 24), kv = input(t, ROWS_TEXT, 48);
    output(t,
           &(struct op){.kind = OP_CROSS, .in = {q, kv},
                        .u.attn = {.n_heads = 4, .n_kv_heads = 4, .head_dim = 6, .scale = 0.7f}},
           ROWS_T, 24);
}

/* [from, to) that row i sees. */
static void seen(const struct env *t, int64_t i, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = TEXT - 1; /* the caption is a row short */
    if (t->op.kind == OP_CROSS) return;
    if (t->op.u.attn.dim == 1) {
        *from = i / 4 * 4;
        *to = *from + 4;
        return;
    }
    *to = t->hi[i];
    *from = t->lo[i];
    if (t->op.u.attn.window && *from < *to - t->op.u.attn.window)
        *from = *to - t->op.u.attn.window;
}

static void loop_attention(const struct env *t)
{
    const int64_t H = 4, Hk = t->op.u.attn.n_kv_heads, D = 6, KD = 2 * Hk * D;
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < H; h++) {
            double *o = out(t) + i * H * D + h * D, sum = 0;
            int64_t from, to;
            seen(t, i, &from, &to);
            for (int64_t d = 0; d < D; d++) o[d] = 0;
            for (int64_t j = from; j < to; j++) {
                const double *q = in(t, 0) + i * H * D + h * D;
                const double *k = in(t, 1) + j * KD + h / (H / Hk) * D, *v = k + Hk * D;
                double s = 0;
                for (int64_t d = 0; d < D; d++) s += q[d] * k[d];
                const double p = exp((double)t->op.u.attn.scale * s);
                sum += p;
                for (int64_t d = 0; d < D; d++) o[d] += p * v[d];
            }
            for (int64_t d = 0; d < D; d++) o[d] = sum > 0 ? o[d] / sum : 0;
        }
}

/* ---- MOE ------------------------------------------------------------------------------------- */

enum { EXPERTS = 5, CHOICES = 2, MOE_C = 6, MOE_I = 7 };

static void write_moe(struct env *t)
{
    const int a = input(t, ROWS_T, MOE_C), w = weight(t, EXPERTS, MOE_C);
    for (int e = 0; e < EXPERTS; e++) {
        weight(t, MOE_I, MOE_C);
        weight(t, MOE_I, MOE_C);
        weight(t, MOE_C, MOE_I);
    }
    output(t,
           &(struct op){.kind = OP_MOE, .in = {a}, .w = w, .n_w = 1 + 3 * EXPERTS,
                        .u.moe = {EXPERTS, CHOICES, MOE_I}},
           ROWS_T, MOE_C);
}

static void expert(const struct env *t, int e, const double *x, double p, double *y)
{
    const double *w1 = weight_at(t, 1 + 3 * e), *w3 = weight_at(t, 2 + 3 * e);
    const double *w2 = weight_at(t, 3 + 3 * e);
    for (int i = 0; i < MOE_I; i++) {
        double a = 0, b = 0;
        for (int c = 0; c < MOE_C; c++) {
            a += w1[i * MOE_C + c] * x[c];
            b += w3[i * MOE_C + c] * x[c];
        }
        for (int c = 0; c < MOE_C; c++) y[c] += p * w2[c * MOE_I + i] * act(ACT_SILU, a) * b;
    }
}

static void loop_moe(const struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        const double *x = in(t, 0) + i * MOE_C;
        double p[EXPERTS] = {0}, sum = 0, top[CHOICES];
        int best[CHOICES];
        for (int e = 0; e < EXPERTS; e++) {
            for (int c = 0; c < MOE_C; c++) p[e] += weight_at(t, 0)[e * MOE_C + c] * x[c];
            p[e] = exp(p[e]);
        }
        for (int j = 0; j < CHOICES; j++) {
            best[j] = 0;
            for (int e = 1; e < EXPERTS; e++)
                if (p[e] > p[best[j]]) best[j] = e;
            sum += top[j] = p[best[j]];
            p[best[j]] = -1;
        }
        for (int c = 0; c < MOE_C; c++) out(t)[i * MOE_C + c] = 0;
        for (int j = 0; j < CHOICES; j++)
            expert(t, best[j], x, top[j] / sum, out(t) + i * MOE_C);
    }
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static void write_position_2d(struct env *t)
{
    const int a = input(t, ROWS_T, 8);
    output(t, &(struct op){.kind = OP_POSITION_2D, .in = {a}, .u.position.scale = 2}, ROWS_T, 8);
}
/* Patch grid of 1 x 3, four frames: row i is place i / 4. */
static void loop_position_2d(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < 8; c++) {
            const double at = c < 4 ? (double)(i / 4 % 3) / 2 : (double)(i / 4 / 3) / 2;
            const double a = at * (c % 2 ? 0.01 : 1);
            out(t)[i * 8 + c] = in(t, 0)[i * 8 + c] + (c % 4 < 2 ? sin(a) : cos(a));
        }
}
static void write_position_1d(struct env *t)
{
    const int a = input(t, ROWS_T, 8);
    output(t, &(struct op){.kind = OP_POSITION_1D, .in = {a}, .u.position.scale = 1}, ROWS_T, 8);
}
static void loop_position_1d(const struct env *t)
{
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < 8; c++) {
            const double a = (double)(i % 4) * pow(10, -(double)(c % 4));
            out(t)[i * 8 + c] = in(t, 0)[i * 8 + c] + (c < 4 ? sin(a) : cos(a));
        }
}
static void write_timestep(struct env *t)
{
    output(t, &(struct op){.kind = OP_TIMESTEP}, ROWS_COND, 8);
}
static void loop_timestep(const struct env *t)
{
    for (int64_t i = 0; i < COND; i++)
        for (int64_t c = 0; c < 8; c++) {
            const double a = (i ? 0 : t->batch.latents.t) * pow(10, -(double)(c % 4));
            out(t)[i * 8 + c] = c < 4 ? cos(a) : sin(a);
        }
}
static void write_patch(struct env *t)
{
    output(t, &(struct op){.kind = OP_PATCH}, ROWS_T, 8);
}
static void loop_patch(const struct env *t)
{
    for (int64_t i = 0; i < T * 8; i++) out(t)[i] = (double)t->patches[i];
}
static void write_text(struct env *t)
{
    const int w = weight(t, TEXT, 8);
    output(t, &(struct op){.kind = OP_TEXT, .w = w, .n_w = 1}, ROWS_TEXT, 8);
}
static void write_null_text(struct env *t)
{
    write_text(t);
    t->batch.latents.dropped = true;
}
static void loop_text(const struct env *t)
{
    const bool null = t->batch.latents.dropped;
    for (int64_t i = 0; i < TEXT * 8; i++)
        out(t)[i] = i / 8 >= TEXT - 1 ? 0 : null ? weight_at(t, 0)[i] : (double)t->text[i];
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void write_xent(struct env *t)
{
    const int a = input(t, ROWS_T, 6), w = weight(t, 7, 6), b = weight(t, 7, 0);
    output(t, &(struct op){.kind = OP_XENT, .in = {a}, .w = w, .n_w = 1, .bias = b, .n_bias = 1}, 0,
           0);
}
static void loop_xent(const struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        double logit[7], sum = 0;
        for (int v = 0; v < 7; v++) {
            logit[v] = weight_at(t, 1)[v];
            for (int c = 0; c < 6; c++) logit[v] += weight_at(t, 0)[v * 6 + c] * in(t, 0)[i * 6 + c];
            sum += exp(logit[v]);
        }
        ((double *)t->nll)[i] = t->targets[i] < 0 ? 0 : log(sum) - logit[t->targets[i]];
    }
}
/* Four cells of three channels, of which two are compared. */
static void write_mse(struct env *t)
{
    const int a = input(t, ROWS_T, 12);
    output(t, &(struct op){.kind = OP_MSE, .in = {a}}, 0, 0);
}
static void loop_mse(const struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        double s = 0;
        for (int c = 0; c < 8; c++) {
            const double d = in(t, 0)[i * 12 + c / 2 * 3 + c % 2] - (double)t->target[i * 8 + c];
            s += (double)t->weight[i * 4 + c / 2] * d * d;
        }
        ((double *)t->nll)[i] = s;
    }
}

/* ---- running one ----------------------------------------------------------------------------- */

static const struct op_case cases[] = {
    {"linear", write_linear, loop_linear},
    {"linear of conditioning", write_linear_cond, loop_linear},
    {"rms norm", write_rms, loop_norm},
    {"rms norm without weight", write_rms_bare, loop_norm},
    {"rms norm of heads", write_rms_heads, loop_norm},
    {"layer norm", write_layer_norm, loop_norm},
    {"layer norm of heads", write_layer_heads, loop_norm},
    {"layer norm without weights", write_layer_bare, loop_norm},
    {"act", write_act, loop_act},
    {"act of conditioning", write_act_cond, loop_act},
    {"glu", write_glu, loop_glu},
    {"swiglu of halves", write_swiglu, loop_glu},
    {"mix", write_mix, loop_mix},
    {"mix of one", write_mix_one, loop_mix},
    {"modulate", write_modulate, loop_modulate},
    {"gate", write_gate, loop_gate},
    {"select", write_select, loop_select},
    {"table", write_table, loop_table},
    {"table of what is repeated", write_table_repeat, loop_table},
    {"embed", write_embed, loop_embed},
    {"embed_add", write_embed_add, loop_embed_add},
    {"rope", write_rope, loop_rope},
    {"rope of a part, neighbours", write_rope_part, loop_rope},
    {"lrpe", write_lrpe, loop_lrpe},
    {"attention", write_attention, loop_attention},
    {"attention in a window", write_window, loop_attention},
    {"attention along a dimension", write_grid, loop_attention},
    {"cross attention", write_cross, loop_attention},
    {"mixture of experts", write_moe, loop_moe},
    {"patch", write_patch, loop_patch},
    {"position_2d", write_position_2d, loop_position_2d},
    {"position_1d", write_position_1d, loop_position_1d},
    {"timestep", write_timestep, loop_timestep},
    {"text", write_text, loop_text},
    {"null text", write_null_text, loop_text},
    {"cross-entropy", write_xent, loop_xent},
    {"squared error", write_mse, loop_mse},
};

static void fill_batch(struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        t->ids[i] = (int32_t)(i * 5 % 7);
        t->targets[i] = i % 4 == 3 ? -1 : (int32_t)(i * 3 % 7);
        t->lo[i] = i < 5 ? 0 : i < 11 ? 5 : 0; /* two documents and a row of padding */
        t->hi[i] = i < 11 ? i + 1 : 0;
        t->pos[i] = i - t->lo[i];
        t->group[i] = i % 3 == 1;
        for (int k = 0; k < 4; k++) t->weight[i * 4 + k] = i == 11 ? 0 : (float)((i + k) % 3);
    }
    for (int64_t i = 0; i < T * 8; i++) t->patches[i] = (float)uniform(t);
    for (int64_t i = 0; i < T * 8; i++) t->target[i] = (float)uniform(t);
    for (int64_t i = 0; i < TEXT * 8; i++) t->text[i] = (float)uniform(t);
    for (int j = 0; j < 16; j++) t->inv_freq[j] = pow(100, -j / 4.0);
    t->batch = (struct batch){.ids = t->ids,
                              .targets = t->targets,
                              .pos = t->pos,
                              .lo = t->lo,
                              .hi = t->hi,
                              .group = {t->group, t->group},
                              .latents = {.grid = {4, 1, 3},
                                          .t = 3.5,
                                          .patches = t->patches,
                                          .target = t->target,
                                          .weight = t->weight,
                                          .text = t->text,
                                          .n_text = TEXT - 1}};
}

static float *floats(int64_t n)
{
    float *p = aligned_alloc(64, (size_t)(n * 4 + 63) / 64 * 64);
    for (int64_t i = 0; i < n; i++) p[i] = NAN;
    return p;
}

static int64_t grad_rows(const struct env *t, int v)
{
    const enum rows_id rows = t->p.value[v].rows;
    return rows_of(t, v) * (rows == ROWS_TEXT || rows == ROWS_COND ? t->f.parts : 1);
}

/* Values and gradients in fp32, poisoned; inputs and weights random. */
static void place(struct env *t)
{
    struct frame *f = &t->f;
    for (int v = 0; v < t->p.n_values; v++) {
        const struct value *x = &t->p.value[v];
        t->v[v] = calloc((size_t)count_of(t, v), 8);
        if (x->view_of != PROG_NONE) {
            f->value[v] = tensor_sub(f->value[x->view_of], 0, rows_of(t, v), x->view_col, x->cols);
            f->grad[v] = tensor_sub(f->grad[x->view_of], 0, grad_rows(t, v), x->view_col, x->cols);
            continue;
        }
        f->value[v] = tensor_f32(floats(count_of(t, v)), rows_of(t, v), x->cols, x->cols);
        const bool made = v == t->op.out[0] || v == t->op.out[1];
        for (int64_t i = 0; i < count_of(t, v) && !made; i++)
            ((float *)f->value[v].data)[i] = (float)uniform(t), t->v[v][i] =
                (double)((float *)f->value[v].data)[i];
        if (v == t->op.out[1]) continue;
        f->grad[v] = tensor_f32(floats(grad_rows(t, v) * x->cols), grad_rows(t, v), x->cols,
                                x->cols);
    }
    const int64_t n = t->p.weights_size;
    t->w = calloc((size_t)n + 1, 8);
    f->weights = floats(n + 1);
    f->weights_grad = floats(n + 1);
    for (int64_t i = 0; i < n; i++)
        t->w[i] = (double)(((float *)f->weights)[i] = (float)uniform(t));
    f->scratch_size = 1 << 20;
    f->scratch = (char *)floats(f->scratch_size / 4);
    f->tree_stride = 4096;
    f->tree_room = floats(4 * f->tree_stride);
    f->logits = floats(7 * 3);
    f->loss_chunk = 3;
    f->loss_scale = 0.25f;
    f->nll = calloc(T, 8);
}

static void drop(struct env *t)
{
    struct frame *f = &t->f;
    for (int v = 0; v < t->p.n_values; v++) {
        free(t->v[v]);
        if (t->p.value[v].view_of != PROG_NONE) continue;
        free(f->value[v].data);
        free(f->grad[v].data);
    }
    void *rest[] = {t->w, f->weights, f->weights_grad, f->scratch, f->tree_room, f->logits, f->nll,
                    t->sp.buf.m, t->sp.buf.delta};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) free(rest[i]);
    memset(t->v, 0, sizeof t->v);
    memset(f, 0, sizeof *f);
}

static void open_frame(struct env *t, struct be *be, bool tree)
{
    struct err e = {0};
    const int64_t len = tree ? LEN : T;
    t->shape = (struct model_shape){.in_channels = 2, .out_channels = 3, .patch_t = 1,
                                    .patch_h = 2, .patch_w = 2};
    CHECK(!shard_init(&t->shard, T, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    t->sp = (struct sp){.ops = &sp_local, .be = be, .shard = t->shard};
    t->sp.buf.m = floats(4 * T);
    t->sp.buf.delta = floats(4 * T);
    t->dsp = (struct dsp){.be = be, .P = 1, .n = {3, 4}};
    t->f = (struct frame){.be = be,
                          .p = &t->p,
                          .shape = &t->shape,
                          .rows = {{T, len}, {T, len}, {TEXT, 0}, {COND, 0}},
                          .parts = tree ? PARTS : 1,
                          .tree = tree,
                          .batch = &t->batch,
                          .sp = &t->sp,
                          .dsp = &t->dsp,
                          .inv_freq = t->inv_freq};
}

/* What is differentiated: sum(r * out), or the scaled loss. */
static double objective(struct env *t, const struct op_case *c)
{
    double s = 0;
    for (int v = 0; v < t->p.n_values; v++) {
        const struct value *x = &t->p.value[v];
        for (int64_t i = 0; x->view_of != PROG_NONE && i < count_of(t, v); i++)
            t->v[v][i] = t->v[x->view_of][i / x->cols * t->p.value[x->view_of].cols +
                                          x->view_col + i % x->cols];
    }
    c->loop(t);
    if (t->op.out[0] == PROG_NONE)
        for (int64_t i = 0; i < T; i++) s += 0.25 * t->nll[i];
    else
        for (int64_t i = 0; i < count_of(t, t->op.out[0]); i++) s += t->r[i] * out(t)[i];
    return s;
}

static double difference(struct env *t, const struct op_case *c, double *x)
{
    const double old = *x, h = 1e-5;
    *x = old + h;
    const double up = objective(t, c);
    *x = old - h;
    const double down = objective(t, c);
    *x = old;
    return (up - down) / (2 * h);
}

struct worst {
    double err, size;
};

static void compare(struct worst *w, double got, double want)
{
    const double d = fabs(got - want);
    if (!(d <= w->err)) w->err = isnan(d) ? INFINITY : d;
    if (fabs(want) > w->size) w->size = fabs(want);
}

static bool good(const struct worst *w)
{
    return w->err <= TOLERANCE * (w->size > 1 ? w->size : 1);
}

static void check_forward(struct env *t, const struct op_case *c)
{
    struct worst w = {0};
    struct err e = {0};
    CHECK_MSG(!op_table[t->op.kind]->forward(&t->f, &t->op, &e), "%s: %s", c->name, e.text);
    objective(t, c);
    if (t->op.out[0] == PROG_NONE)
        for (int64_t i = 0; i < T; i++) compare(&w, t->f.nll[i], t->nll[i]);
    else
        for (int64_t i = 0; i < count_of(t, t->op.out[0]); i++)
            compare(&w, (double)((float *)t->f.value[t->op.out[0]].data)[i], out(t)[i]);
    CHECK_MSG(good(&w), "%s forward: off by %g of %g", c->name, w.err, w.size);
}

/* The gradient of element i of value v, its parts added. */
static double grad_at(const struct env *t, int v, int64_t i)
{
    const int64_t n = count_of(t, v), all = grad_rows(t, v) * t->p.value[v].cols;
    double s = 0;
    for (int64_t k = i; k < all; k += n) s += (double)((float *)t->f.grad[v].data)[k];
    return s;
}

static bool is_input(const struct env *t, int v)
{
    for (int i = 0; i < OP_INS; i++)
        if (t->op.in[i] != PROG_NONE && prog_base(&t->p, t->op.in[i]) == v) return true;
    return false;
}

/* In parts, the output's gradient is whole in the second one and elsewhere 0: parts must not mix. */
static void set_output_grad(struct env *t)
{
    const int v = t->op.out[0];
    if (v == PROG_NONE) return;
    const int64_t n = count_of(t, v), all = grad_rows(t, v) * t->p.value[v].cols;
    float *g = t->f.grad[v].data;
    for (int64_t i = 0; i < n; i++) t->r[i] = (double)(float)uniform(t);
    for (int64_t i = 0; i < all; i++) g[i] = 0;
    for (int64_t i = 0; i < n; i++) g[all > n ? n + i : i] = (float)t->r[i];
}

/* add: to what is there already, 0.5 each (in every part). */
static void run_backward(struct env *t, const struct op_case *c, bool add)
{
    struct step s = {.kind = STEP_BACKWARD, .op = 0, .alias = PROG_NONE};
    struct err e = {0};
    for (int i = 0; i < OP_INS; i++) s.first[i] = !add;
    for (int v = 0; v < t->p.n_values; v++)
        for (int64_t i = 0; add && is_input(t, v) && i < grad_rows(t, v) * t->p.value[v].cols; i++)
            ((float *)t->f.grad[v].data)[i] = 0.5f;
    for (int64_t i = 0; i < t->p.weights_size; i++) /* a tree's sum replaces what is there */
        t->f.weights_grad[i] = t->f.tree ? NAN : 0;
    scratch_reset(&t->f);
    CHECK_MSG(!op_table[t->op.kind]->backward(&t->f, &t->op, &s, &e), "%s: %s", c->name, e.text);
}

/* Columns of a value that some view which the operation reads covers, or all. */
static bool covered(const struct env *t, int v, int64_t col)
{
    for (int i = 0; i < OP_INS; i++) {
        const int u = t->op.in[i];
        if (u == PROG_NONE || prog_base(&t->p, u) != v) continue;
        const struct value *x = &t->p.value[u];
        if (u == v || (col >= x->view_col && col < x->view_col + x->cols)) return true;
    }
    return false;
}

static void check_values(struct env *t, const struct op_case *c, bool add)
{
    for (int v = 0; v < t->p.n_values; v++) {
        struct worst w = {0};
        const double before = add ? 0.5 * (double)grad_rows(t, v) / (double)rows_of(t, v) : 0;
        if (!is_input(t, v)) continue;
        for (int64_t i = 0; i < count_of(t, v); i++)
            if (covered(t, v, i % t->p.value[v].cols))
                compare(&w, grad_at(t, v, i) - before, difference(t, c, &t->v[v][i]));
        CHECK_MSG(good(&w), "%s, gradient of value %d%s%s: off by %g of %g", c->name, v,
                  add ? ", added" : "", t->f.tree ? ", in parts" : "", w.err, w.size);
        CHECK_MSG(w.size > 1e-3, "%s: a gradient that is 0 shows nothing", c->name);
    }
}

static void check_weights(struct env *t, const struct op_case *c)
{
    for (int k = 0; k < t->p.n_weights; k++) {
        const struct weight *x = &t->p.weight[k];
        const int64_t n = x->rows * (x->cols ? x->cols : 1);
        struct worst w = {0};
        if (t->op.kind == OP_TEXT) continue; /* not trained */
        for (int64_t i = x->offset; i < x->offset + n; i++)
            compare(&w, (double)t->f.weights_grad[i], difference(t, c, &t->w[i]));
        CHECK_MSG(good(&w), "%s, gradient of weight %d%s: off by %g of %g", c->name, k,
                  t->f.tree ? ", as a tree" : "", w.err, w.size);
    }
}

static void test_case(struct be *be, const struct op_case *c, bool tree)
{
    struct env *t = calloc(1, sizeof *t);
    t->rng = 7;
    fill_batch(t);
    prog_init(&t->p, "");
    c->write(t);
    open_frame(t, be, tree);
    place(t);
    for (size_t i = 0; i < sizeof t->r / sizeof *t->r; i++) t->r[i] = (double)(float)uniform(t);
    check_forward(t, c);
    set_output_grad(t);
    run_backward(t, c, false);
    check_values(t, c, false);
    check_weights(t, c);
    set_output_grad(t);
    run_backward(t, c, true);
    check_values(t, c, true);
    drop(t);
    free(t);
}

static void test_all(bool tree)
{
    struct err e = {0};
    struct be *be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    CHECK(be);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) test_case(be, &cases[i], tree);
    be_close(be);
}

static void test_whole(void)
{
    test_all(false);
}

static void test_tree(void)
{
    test_all(true);
}

int main(void)
{
    RUN(test_whole);
    RUN(test_tree);
    return test_done("ops");
}
