/* ops_cases.h: the cases of attention, experts, inputs and losses, in the form that ops_rows.h
 * describes, and the list of all cases. */
#ifndef SEQD_TESTS_OPS_CASES_H
#define SEQD_TESTS_OPS_CASES_H

#include "tests/lib/ops_delta.h"
#include "tests/lib/ops_linear.h"

/* ---- ATTENTION, CROSS ------------------------------------------------------------------------ */

static inline void write_attention(struct env *t)
{
    const int q = input(t, ROWS_T, 24), kv = input(t, ROWS_T, 24);
    output(t,
           &(struct op){.kind = OP_ATTENTION,
                        .in = {q, kv},
                        .u.attn = {.n_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = 6,
                                   .scale = 0.7f,
                                   .causal = true,
                                   .dim = -1}},
           ROWS_T, 24);
}
static inline void write_window(struct env *t)
{
    write_attention(t);
    t->op.u.attn.window = t->p.op[0].u.attn.window = 3;
}
static inline void write_window_both(struct env *t)
{
    write_window(t);
    t->op.u.attn.causal = t->p.op[0].u.attn.causal = false;
    for (int64_t i = 0; i < T; i++) t->hi[i] = i < 5 ? 5 : i < 11 ? 11 : 0;
}
static inline void write_cap(struct env *t)
{
    write_attention(t);
    t->op.u.attn.cap = t->p.op[0].u.attn.cap = 0.8f;
}
static inline void write_sink(struct env *t)
{
    weight(t, 4, 0);
    write_attention(t);
    t->p.op[0].n_w = t->op.n_w = 1;
    t->p.op[0].w = t->op.w = 0;
}
static inline void write_window_sink(struct env *t)
{
    write_sink(t);
    t->op.u.attn.window = t->p.op[0].u.attn.window = 3;
}
/* Writes a program of attention over a grid of 3 x 4 rows. The ranks divide the first axis, and
 * each rank has all 4 rows of the second axis. */
static inline void write_grid(struct env *t)
{
    write_attention(t);
    t->op.u.attn.dim = t->p.op[0].u.attn.dim = 1;
}
static inline void write_cross(struct env *t)
{
    const int q = input(t, ROWS_T, 24), kv = input(t, ROWS_TEXT, 48);
    output(t,
           &(struct op){.kind = OP_CROSS,
                        .in = {q, kv},
                        .u.attn = {.n_heads = 4, .n_kv_heads = 4, .head_dim = 6, .scale = 0.7f}},
           ROWS_T, 24);
}

/* Sets *from and *to. Row i attends to the rows [*from, *to). */
static inline void seen(const struct env *t, int64_t i, int64_t *from, int64_t *to)
{
    *from = 0;
    *to = TEXT - 1; /* the caption is one row shorter than TEXT */
    if (t->op.kind == OP_CROSS) return;
    if (t->op.u.attn.dim == 1) {
        *from = i / 4 * 4;
        *to = *from + 4;
        return;
    }
    *to = t->hi[i];
    *from = t->lo[i];
    const int64_t window = t->op.u.attn.window;
    if (window && *from < *to && *from <= i - window) *from = i - window + 1;
    if (window && *from<*to && * to> i + window) *to = i + window;
}

static inline void loop_attention(const struct env *t)
{
    const int64_t H = 4, Hk = t->op.u.attn.n_kv_heads, D = 6, KD = 2 * Hk * D;
    for (int64_t i = 0; i < T; i++)
        for (int64_t h = 0; h < H; h++) {
            double *o = out(t) + i * H * D + h * D;
            double sum = t->op.n_w ? exp(weight_at(t, 0)[h]) : 0;
            int64_t from, to;
            seen(t, i, &from, &to);
            for (int64_t d = 0; d < D; d++) o[d] = 0;
            for (int64_t j = from; j < to; j++) {
                const double *q = in(t, 0) + i * H * D + h * D;
                const double *k = in(t, 1) + j * KD + h / (H / Hk) * D, *v = k + Hk * D;
                double s = 0;
                for (int64_t d = 0; d < D; d++) s += q[d] * k[d];
                const double cap = t->op.u.attn.cap;
                s *= (double)t->op.u.attn.scale;
                const double p = exp(cap > 0 ? cap * tanh(s / cap) : s);
                sum += p;
                for (int64_t d = 0; d < D; d++) o[d] += p * v[d];
            }
            for (int64_t d = 0; d < D; d++) o[d] = sum > 0 ? o[d] / sum : 0;
        }
}

/* ---- MOE ------------------------------------------------------------------------------------- */

enum { EXPERTS = 5, CHOICES = 2, MOE_C = 6, MOE_I = 7 };

static inline void write_moe(struct env *t)
{
    const int a = input(t, ROWS_T, MOE_C), w = weight(t, EXPERTS, MOE_C);
    for (int e = 0; e < EXPERTS; e++) {
        weight(t, MOE_I, MOE_C);
        weight(t, MOE_I, MOE_C);
        weight(t, MOE_C, MOE_I);
    }
    output(t,
           &(struct op){.kind = OP_MOE,
                        .in = {a},
                        .w = w,
                        .n_w = 1 + 3 * EXPERTS,
                        .u.moe = {EXPERTS, CHOICES, MOE_I}},
           ROWS_T, MOE_C);
}

static inline void write_moe_plain(struct env *t)
{
    write_moe(t);
    t->op.u.moe.plain = t->p.op[0].u.moe.plain = true;
}

/* Writes experts in the form of gpt-oss. The gate and up weights of an expert are stored one after
 * the other, the matrices have biases, and the gated unit is clamped. */
static inline void write_moe_joined(struct env *t)
{
    const int a = input(t, ROWS_T, MOE_C), w = weight(t, EXPERTS, MOE_C);
    weight(t, EXPERTS * 2 * MOE_I, MOE_C);
    weight(t, EXPERTS * MOE_C, MOE_I);
    const int b = weight(t, EXPERTS, 0);
    weight(t, EXPERTS * 2 * MOE_I, 0);
    weight(t, EXPERTS * MOE_C, 0);
    output(t,
           &(struct op){.kind = OP_MOE,
                        .in = {a},
                        .w = w,
                        .n_w = 3,
                        .bias = b,
                        .n_bias = 3,
                        .u.moe = {EXPERTS, CHOICES, MOE_I, .joined = true, 0.6f, 1.702f}},
           ROWS_T, MOE_C);
}

static inline double clamped_unit(const struct env *t, double a, double b)
{
    const double limit = t->op.u.moe.limit, g = fmin(a, limit), u = fmax(-limit, fmin(b, limit));
    return g / (1 + exp(-(double)t->op.u.moe.alpha * g)) * (u + 1);
}

static inline void expert_joined(const struct env *t, int e, const double *x, double p, double *y)
{
    const double *up = weight_at(t, 1) + e * 2 * MOE_I * MOE_C, *gate_bias = weight_at(t, 4);
    const double *down = weight_at(t, 2) + e * MOE_C * MOE_I, *down_bias = weight_at(t, 5);
    gate_bias += e * 2 * MOE_I;
    for (int c = 0; c < MOE_C; c++) y[c] += p * down_bias[e * MOE_C + c];
    for (int i = 0; i < MOE_I; i++) {
        double a = gate_bias[i], b = gate_bias[MOE_I + i];
        for (int c = 0; c < MOE_C; c++) {
            a += up[i * MOE_C + c] * x[c];
            b += up[(MOE_I + i) * MOE_C + c] * x[c];
        }
        const double unit = clamped_unit(t, a, b);
        for (int c = 0; c < MOE_C; c++) y[c] += p * down[c * MOE_I + i] * unit;
    }
}

static inline void expert(const struct env *t, int e, const double *x, double p, double *y)
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

static inline void loop_moe(const struct env *t)
{
    for (int64_t i = 0; i < T; i++) {
        const double *x = in(t, 0) + i * MOE_C;
        double p[EXPERTS] = {0}, sum = 0, all = 0, top[CHOICES];
        int best[CHOICES];
        for (int e = 0; e < EXPERTS; e++) {
            if (t->op.n_bias) p[e] = weight_at(t, 3)[e];
            for (int c = 0; c < MOE_C; c++) p[e] += weight_at(t, 0)[e * MOE_C + c] * x[c];
            p[e] = exp(p[e]);
            all += p[e];
        }
        for (int j = 0; j < CHOICES; j++) {
            best[j] = 0;
            for (int e = 1; e < EXPERTS; e++)
                if (p[e] > p[best[j]]) best[j] = e;
            sum += top[j] = p[best[j]];
            p[best[j]] = -1;
        }
        if (t->op.u.moe.plain) sum = all;
        for (int c = 0; c < MOE_C; c++) out(t)[i * MOE_C + c] = 0;
        for (int j = 0; j < CHOICES; j++)
            (t->op.u.moe.joined ? expert_joined : expert)(t, best[j], x, top[j] / sum,
                                                          out(t) + i * MOE_C);
    }
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static inline void write_position(struct env *t, enum op_kind kind, int scale, int cols)
{
    const int a = input(t, ROWS_T, cols);
    output(t, &(struct op){.kind = kind, .in = {a}, .u.position.scale = scale}, ROWS_T, cols);
}
static inline void write_position_2d(struct env *t)
{
    write_position(t, OP_POSITION_2D, 2, 8);
}
/* Computes positions on a grid of 1 x 3 patches with four frames. Row i belongs to the patch i /
 * 4. */
static inline void loop_position_2d(const struct env *t)
{
    const int64_t cols = t->p.value[t->op.out[0]].cols, n = cols / 4;
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < cols; c++) {
            const double at = c < 2 * n ? (double)(i / 4 % 3) / 2 : (double)(i / 4 / 3) / 2;
            const double a = at * pow(10000, -(double)(c % n) / (double)n);
            out(t)[i * cols + c] = in(t, 0)[i * cols + c] + (c / n % 2 ? cos(a) : sin(a));
        }
}
static inline void write_position_1d(struct env *t)
{
    write_position(t, OP_POSITION_1D, 1, 8);
}
static inline void loop_position_1d(const struct env *t)
{
    const int64_t cols = t->p.value[t->op.out[0]].cols, n = cols / 2;
    for (int64_t i = 0; i < T; i++)
        for (int64_t c = 0; c < cols; c++) {
            const double a = (double)(i % 4) * pow(10000, -(double)(c % n) / (double)n);
            out(t)[i * cols + c] = in(t, 0)[i * cols + c] + (c < n ? sin(a) : cos(a));
        }
}
static inline void write_timestep(struct env *t)
{
    output(t, &(struct op){.kind = OP_TIMESTEP}, ROWS_COND, 8);
}
static inline void loop_timestep(const struct env *t)
{
    for (int64_t i = 0; i < COND; i++)
        for (int64_t c = 0; c < 8; c++) {
            const double a = (i ? 0 : t->batch.latents.t) * pow(10, -(double)(c % 4));
            out(t)[i * 8 + c] = c < 4 ? cos(a) : sin(a);
        }
}
static inline void write_patch(struct env *t)
{
    output(t, &(struct op){.kind = OP_PATCH}, ROWS_T, 8);
}
static inline void loop_patch(const struct env *t)
{
    for (int64_t i = 0; i < T * 8; i++) out(t)[i] = (double)t->patches[i];
}
static inline void write_text(struct env *t)
{
    const int w = weight(t, TEXT, 8);
    output(t, &(struct op){.kind = OP_TEXT, .w = w, .n_w = 1}, ROWS_TEXT, 8);
}
static inline void write_null_text(struct env *t)
{
    write_text(t);
    t->batch.latents.dropped = true;
}
static inline void loop_text(const struct env *t)
{
    const bool null = t->batch.latents.dropped;
    for (int64_t i = 0; i < TEXT * 8; i++)
        out(t)[i] = i / 8 >= TEXT - 1 ? 0 : null ? weight_at(t, 0)[i] : (double)t->text[i];
}

/* ---- losses ---------------------------------------------------------------------------------- */

static inline void write_xent(struct env *t)
{
    const int a = input(t, ROWS_T, 6), w = weight(t, 7, 6), b = weight(t, 7, 0);
    output(t, &(struct op){.kind = OP_XENT, .in = {a}, .w = w, .n_w = 1, .bias = b, .n_bias = 1}, 0,
           0);
}
static inline void write_capped_xent(struct env *t)
{
    write_xent(t);
    t->op.u.xent.cap = t->p.op[0].u.xent.cap = 1.5f;
}
static inline void loop_xent(const struct env *t)
{
    const double cap = t->op.u.xent.cap;
    for (int64_t i = 0; i < T; i++) {
        double logit[7], sum = 0;
        for (int v = 0; v < 7; v++) {
            logit[v] = weight_at(t, 1)[v];
            for (int c = 0; c < 6; c++)
                logit[v] += weight_at(t, 0)[v * 6 + c] * in(t, 0)[i * 6 + c];
            if (cap > 0) logit[v] = cap * tanh(logit[v] / cap);
            sum += exp(logit[v]);
        }
        ((double *)t->nll)[i] = t->targets[i] < 0 ? 0 : log(sum) - logit[t->targets[i]];
    }
}
/* Writes the mse of four cells with three channels each. Only the first two channels of each cell
 * are compared. */
static inline void write_mse(struct env *t)
{
    const int a = input(t, ROWS_T, 12);
    output(t, &(struct op){.kind = OP_MSE, .in = {a}}, 0, 0);
}
static inline void loop_mse(const struct env *t)
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

/* Writes the noise loss of four cells at step 371. Each cell has one noise and the number that
 * determines its variance.
 *
 * The variational bound of the variance treats the predicted noise as a constant, because no
 * gradient flows through it. When a test changes an input to compute a finite difference, this
 * constant must not change. The reference therefore reads it from the float that the operation
 * read, which the test does not change. */
static inline void write_noise(struct env *t)
{
    const int a = input(t, ROWS_T, 8);
    output(t, &(struct op){.kind = OP_NOISE, .in = {a}}, 0, 0);
    t->batch.latents.t = 371;
}
static inline double noise_bound(const struct env *t, int64_t at, double v, double log_min,
                                 double log_max, double slope)
{
    const double e = (double)((float *)t->f.value[t->op.in[0]].data)[at];
    const double d = slope * (e - (double)t->target[at]);
    const double s = (v + 1) / 2 * log_max + (1 - v) / 2 * log_min;
    return 0.5 * (-1 + s - log_min + exp(log_min - s) + d * d * exp(-s)) / log(2);
}
static inline void loop_noise(const struct env *t)
{
    double kept = 1, before = 1;
    const double beta = 1e-4 + 371 * (0.02 - 1e-4) / 999;
    for (int i = 0; i <= 371; i++) before = kept, kept *= 1 - (1e-4 + i * (0.02 - 1e-4) / 999);
    const double log_min = log(beta * (1 - before) / (1 - kept));
    const double slope = beta * sqrt(before) / (1 - kept) * sqrt(1 / kept - 1);
    for (int64_t i = 0; i < T; i++) {
        double s = 0;
        for (int k = 0; k < 4; k++) {
            const int64_t at = i * 8 + 2 * k;
            const double d = in(t, 0)[at] - (double)t->target[at], v = in(t, 0)[at + 1];
            s += (double)t->weight[i * 4 + k] *
                 (d * d + noise_bound(t, at, v, log_min, log(beta), slope));
        }
        ((double *)t->nll)[i] = s;
    }
}

/* ---- running one ----------------------------------------------------------------------------- */

static const struct op_case cases[] = {
    {"linear", write_linear, loop_linear},
    {"linear of conditioning", write_linear_cond, loop_linear},
    {"adapter", write_adapt, loop_adapt},
    {"adapter with dropout", write_adapt_drop, loop_adapt},
    {"rms norm", write_rms, loop_norm},
    {"rms norm without weight", write_rms_bare, loop_norm},
    {"rms norm of heads", write_rms_heads, loop_norm},
    {"rms norm of heads by 1 + g", write_rms_offset, loop_norm},
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
    {"gate of rows", write_row_gate, loop_row_gate},
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
    {"attention in a window both ways", write_window_both, loop_attention},
    {"attention under a soft cap", write_cap, loop_attention},
    {"attention with sinks", write_sink, loop_attention},
    {"attention with sinks in a window", write_window_sink, loop_attention},
    {"attention along a dimension", write_grid, loop_attention},
    {"cross attention", write_cross, loop_attention},
    {"short convolution", write_short_conv, loop_short_conv},
    {"gated delta rule", write_delta, loop_delta},
    {"linear attention", write_linear_attention, loop_linear_attention},
    {"linear attention of angles", write_angles, loop_angles},
    {"switch of dimensions", write_switch, loop_switch},
    {"rows to heads", write_to_heads, loop_same},
    {"heads to rows", write_from_heads, loop_same},
    {"gathering of rows", write_gather, loop_same},
    {"sum of parts", write_scatter, loop_scatter},
    {"mixture of experts", write_moe, loop_moe},
    {"mixture of experts by plain weights", write_moe_plain, loop_moe},
    {"mixture of clamped experts with biases", write_moe_joined, loop_moe},
    {"patch", write_patch, loop_patch},
    {"position_2d", write_position_2d, loop_position_2d},
    {"position_1d", write_position_1d, loop_position_1d},
    {"timestep", write_timestep, loop_timestep},
    {"text", write_text, loop_text},
    {"null text", write_null_text, loop_text},
    {"cross-entropy", write_xent, loop_xent},
    {"cross-entropy under a soft cap", write_capped_xent, loop_xent},
    {"squared error", write_mse, loop_mse},
    {"noise and variance", write_noise, loop_noise},
};

#endif
