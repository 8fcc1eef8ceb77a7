#include "worker/program/program.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ALIGN = 16 }; /* elements: one cache line */

void prog_init(struct program *p, const char *prefix)
{
    p->n_values = p->n_ops = p->n_weights = p->n_shared = 0;
    p->weights_size = 0;
    p->has_input = false;
    p->result = PROG_NONE;
    for (int i = 0; i < PROG_SHARED; i++) p->shared[i] = PROG_NONE;
    p->prefix = prefix;
    p->layer_base = 0;
    p->layer_step = 1;
}

int prog_input(struct program *p, int64_t width)
{
    assert(p->n_values == 0);
    p->has_input = true;
    return prog_value(p, &(struct value){.name = "x", .cols = width, .keep = KEEP_ALWAYS});
}

/* ---- weights --------------------------------------------------------------------------------- */

static int64_t count_of(const struct weight *w)
{
    return w->cols ? w->rows * w->cols : w->rows;
}

static int64_t rounded(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

int prog_weight(struct program *p, const struct weight *w)
{
    struct weight *to = &p->weight[p->n_weights];
    assert(p->n_weights < PROG_WEIGHTS && w->name[0] && w->rows > 0 && w->cols >= 0);
    assert(!w->joined || p->n_weights > 0);
    *to = *w;
    to->offset = p->weights_size;
    if (w->joined) to->offset = to[-1].offset + count_of(&to[-1]);
    p->weights_size = rounded(to->offset + count_of(to));
    return p->n_weights++;
}

static int named(struct program *p, const char *name, struct weight *w)
{
    const int n = snprintf(w->name, sizeof w->name, "%s", name);
    assert(n > 0 && n < (int)sizeof w->name);
    return prog_weight(p, w);
}

int prog_tensor(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init)
{
    return named(p, name, &(struct weight){.rows = rows, .cols = cols, .init = init});
}

int prog_joined(struct program *p, const char *name, int64_t rows, int64_t cols, enum init_id init)
{
    return named(p, name,
                 &(struct weight){.rows = rows, .cols = cols, .init = init, .joined = true});
}

/* ---- values ---------------------------------------------------------------------------------- */

static int add_value(struct program *p, const struct value *v)
{
    assert(p->n_values < PROG_VALUES && v->cols > 0 && v->rows < ROWS_N);
    p->value[p->n_values] = *v;
    return p->n_values++;
}

int prog_value(struct program *p, const struct value *v)
{
    struct value own = *v;
    own.view_of = PROG_NONE;
    own.view_col = 0;
    const int i = add_value(p, &own);
    if (!v->shared) return i;
    assert(!p->has_input && p->n_shared < PROG_SHARED);
    p->shared[p->n_shared++] = i;
    return i;
}

int prog_view(struct program *p, int of, int64_t col, int64_t cols)
{
    assert(of >= 0 && of < p->n_values);
    struct value v = p->value[of];
    if (v.view_of != PROG_NONE) { /* of a view: a window of what it is a window of */
        col += v.view_col;
        of = v.view_of;
    }
    assert(!v.state && col >= 0 && col + cols <= p->value[of].cols);
    v.name = "";
    v.view_of = of;
    v.view_col = col;
    v.cols = cols;
    return add_value(p, &v);
}

int prog_shared(struct program *p, const struct program *in, const char *name)
{
    p->n_shared = in->n_shared;
    for (int k = 0; k < in->n_shared; k++) {
        const struct value *v = &in->value[in->shared[k]];
        if (strcmp(v->name, name)) continue;
        if (p->shared[k] == PROG_NONE) p->shared[k] = add_value(p, v);
        return p->shared[k];
    }
    assert(!"a value that `in` shares");
    return PROG_NONE;
}

int prog_base(const struct program *p, int value)
{
    const int of = p->value[value].view_of;
    return of == PROG_NONE ? value : of;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* How many inputs a kind has, the last `optional` of which may be PROG_NONE. */
static const struct arity {
    int n, optional;
} arities[OP_KIND_N] = {
    [OP_EMBED] = {0, 0},
    [OP_EMBED_ADD] = {1, 0},
    [OP_PATCH] = {0, 0},
    [OP_POSITION_2D] = {1, 0},
    [OP_POSITION_1D] = {1, 0},
    [OP_TIMESTEP] = {0, 0},
    [OP_TEXT] = {0, 0},
    [OP_LINEAR] = {2, 1},
    [OP_NORM] = {1, 0},
    [OP_ACT] = {1, 0},
    [OP_GLU] = {2, 0},
    [OP_MIX] = {2, 1},
    [OP_ROPE] = {1, 0},
    [OP_LRPE] = {1, 0},
    [OP_ATTENTION] = {2, 0},
    [OP_CROSS] = {2, 0},
    [OP_LINEAR_ATTENTION] = {3, 0},
    [OP_MODULATE] = {3, 0},
    [OP_GATE] = {3, 0},
    [OP_SELECT] = {2, 0},
    [OP_TABLE] = {1, 0},
    [OP_SWITCH] = {1, 0},
    [OP_MOE] = {1, 0},
    [OP_XENT] = {1, 0},
    [OP_MSE] = {1, 0},
};

static const struct value *input(const struct program *p, const struct op *op, int i)
{
    return op->in[i] == PROG_NONE ? NULL : &p->value[op->in[i]];
}

static int64_t weight_rows(const struct program *p, int w, int n)
{
    int64_t rows = 0;
    for (int i = w; i < w + n; i++) {
        assert(i >= 0 && i < p->n_weights && (i == w || p->weight[i].joined));
        rows += p->weight[i].rows;
    }
    return rows;
}

static bool same_size(const struct value *a, const struct value *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

static void check_linear(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = input(p, op, 0), *base = input(p, op, 1);
    assert(op->n_w >= 1 && weight_rows(p, op->w, op->n_w) == out->cols);
    for (int i = 0; i < op->n_w; i++) assert(p->weight[op->w + i].cols == a->cols);
    assert(!op->n_bias || weight_rows(p, op->bias, op->n_bias) == out->cols);
    assert(a->rows == out->rows && (!base || same_size(base, out)));
}

static void check_attention(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *q = input(p, op, 0), *kv = input(p, op, 1);
    const int64_t H = op->u.attn.n_heads, Hk = op->u.attn.n_kv_heads, D = op->u.attn.head_dim;
    assert(q->cols == H * D && kv->cols == 2 * Hk * D && out->cols == H * D);
    assert(Hk > 0 && H % Hk == 0 && (op->kind == OP_CROSS || q->rows == kv->rows));
}

static void check_linear_attention(const struct program *p, const struct op *op,
                                   const struct value *out)
{
    const int64_t H = op->u.linear.n_heads;
    assert(input(p, op, 0)->cols == H * op->u.linear.key_dim);
    assert(same_size(input(p, op, 0), input(p, op, 1)));
    assert(input(p, op, 2)->cols == H * op->u.linear.value_dim);
    assert(same_size(input(p, op, 2), out));
}

static void check_norm(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = input(p, op, 0);
    const int64_t groups = op->u.norm.groups, dim = op->u.norm.dim;
    assert(groups > 0 && same_size(a, out));
    assert(dim ? groups * dim <= a->cols : a->cols % groups == 0);
}

/* Of the others: what must have one size. */
static void check_rest(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = input(p, op, 0);
    switch (op->kind) {
    case OP_GLU:
    case OP_SELECT:
    case OP_MIX: assert(!input(p, op, 1) || same_size(a, input(p, op, 1))); /* fall through */
    case OP_ACT:
    case OP_ROPE:
    case OP_EMBED_ADD:
    case OP_POSITION_2D:
    case OP_POSITION_1D:
    case OP_MOE: assert(same_size(a, out)); break;
    case OP_MODULATE:
        assert(same_size(a, out) && same_size(input(p, op, 1), input(p, op, 2)));
        assert(input(p, op, 1)->cols == a->cols);
        break;
    case OP_GATE:
        assert(same_size(a, out) && same_size(a, input(p, op, 1)));
        assert(input(p, op, 2)->cols == a->cols);
        break;
    case OP_LRPE: assert(out->cols == 2 * a->cols && a->rows == out->rows); break;
    case OP_SWITCH: assert(out->cols == a->cols && a->rows != out->rows); break;
    default: break;
    }
}

static void check_op(const struct program *p, const struct op *op, const struct value *out)
{
    switch (op->kind) {
    case OP_LINEAR: check_linear(p, op, out); break;
    case OP_ATTENTION:
    case OP_CROSS: check_attention(p, op, out); break;
    case OP_LINEAR_ATTENTION: check_linear_attention(p, op, out); break;
    case OP_NORM: check_norm(p, op, out); break;
    case OP_XENT:
    case OP_MSE: assert(!out); break;
    default: check_rest(p, op, out); break;
    }
}

/* out[1]: what backward needs beside the result. */
static bool second_output(const struct program *p, const struct op *op, struct value *v)
{
    *v = (struct value){.f32 = true, .no_grad = true};
    if (op->in[0] != PROG_NONE) v->rows = p->value[op->in[0]].rows;
    switch (op->kind) {
    case OP_NORM:
        v->name = "norm_stat";
        v->cols = op->u.norm.groups * (op->u.norm.kind == NORM_LAYER ? 2 : 1);
        v->keep = KEEP_NEVER;
        return true;
    case OP_ATTENTION:
    case OP_CROSS:
        v->name = op->kind == OP_CROSS ? "cross_lse" : "attn_lse";
        v->cols = op->u.attn.n_heads;
        v->keep = KEEP_RING;
        return true;
    case OP_LINEAR_ATTENTION:
        v->name = "state";
        v->state = true;
        v->cols = op->u.linear.n_heads * op->u.linear.key_dim *
                  (op->u.linear.value_dim + op->u.linear.normalise);
        v->keep = KEEP_ALWAYS;
        return true;
    case OP_MOE:
        v->name = "moe_route";
        v->cols = 2 * op->u.moe.top_k;
        v->keep = KEEP_NONE_MODE;
        return true;
    default: return false;
    }
}

/* out[2]: what a way of attention keeps. */
static bool third_output(const struct program *p, const struct op *op, struct value *v)
{
    *v = (struct value){.name = "attn_kept",
                        .cols = 1,
                        .keep = KEEP_RING,
                        .f32 = true,
                        .form = true,
                        .no_grad = true};
    if (op->kind != OP_ATTENTION || op->u.attn.dim >= 0) return false;
    v->rows = p->value[op->in[0]].rows;
    return true;
}

int prog_op(struct program *p, const struct op *op, const struct value *out)
{
    const struct arity *n = &arities[op->kind];
    struct op *to = &p->op[p->n_ops];
    struct value more;
    assert(p->n_ops < PROG_OPS);
    *to = *op;
    for (int i = 0; i < OP_INS; i++) {
        if (i >= n->n) to->in[i] = PROG_NONE;
        assert(to->in[i] < p->n_values && to->in[i] >= (i < n->n - n->optional ? 0 : PROG_NONE));
        for (int k = 0; k < i; k++) assert(to->in[i] == PROG_NONE || to->in[i] != to->in[k]);
    }
    if (!to->n_w) to->w = PROG_NONE;
    if (!to->n_bias) to->bias = PROG_NONE;
    check_op(p, to, out);
    to->out[0] = out ? prog_value(p, out) : PROG_NONE;
    to->out[1] = second_output(p, to, &more) ? prog_value(p, &more) : PROG_NONE;
    to->out[2] = third_output(p, to, &more) ? prog_value(p, &more) : PROG_NONE;
    p->n_ops++;
    return to->out[0];
}

/* ---- what is read, what is fp32 -------------------------------------------------------------- */

int prog_writer(const struct program *p, int value)
{
    const int v = prog_base(p, value);
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_OUTS; k++)
            if (p->op[i].out[k] == v) return i;
    return PROG_NONE;
}

static bool attends(enum op_kind kind)
{
    return kind == OP_ATTENTION || kind == OP_CROSS || kind == OP_LINEAR_ATTENTION;
}

static bool has_views(const struct program *p, int value)
{
    for (int i = value + 1; i < p->n_values; i++)
        if (p->value[i].view_of == value) return true;
    return false;
}

/* Its only reader is an attention, or turns it into what only an attention reads. */
static bool only_attended(const struct program *p, int value)
{
    int n = 0, last = PROG_NONE;
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_INS; k++)
            if (p->op[i].in[k] == value) n++, last = i;
    if (n != 1) return false;
    const struct op *op = &p->op[last];
    return attends(op->kind) || (op->kind == OP_ROPE && only_attended(p, op->out[0]));
}

bool prog_grad_f32(const struct program *p, int value)
{
    const int v = prog_base(p, value), op = prog_writer(p, v);
    if (p->value[v].f32 || p->value[v].shared) return true;
    if (p->value[v].rows == ROWS_COND || p->value[v].rows == ROWS_TEXT) return true;
    if (op == PROG_NONE || has_views(p, v) || !only_attended(p, v)) return false;
    return p->op[op].kind == OP_ROPE || (p->op[op].kind == OP_LINEAR && p->op[op].in[1] < 0);
}

unsigned op_reads_back(const struct op *op)
{
    enum { A = 1, B = 2, C = 4, OUT = 8, SECOND = 16, THIRD = 32 };
    switch (op->kind) {
    case OP_LINEAR:
    case OP_ACT:
    case OP_LRPE:
    case OP_XENT:
    case OP_MSE: return A;
    case OP_NORM:
    case OP_MOE: return A | SECOND;
    case OP_GLU: return A | B;
    case OP_ATTENTION: return A | B | OUT | SECOND | THIRD;
    case OP_CROSS: return A | B | OUT | SECOND;
    case OP_LINEAR_ATTENTION: return A | B | C | SECOND | (op->u.linear.normalise ? OUT : 0);
    case OP_MODULATE: return A | C;
    case OP_GATE: return B | C;
    default: return 0;
    }
}

/* ---- decays ---------------------------------------------------------------------------------- */

/* ALiBi (2108.12409): powers of two; of other H the slopes of the power below, then every second
 * one of the power above. */
static double alibi(int64_t h, int64_t H)
{
    int64_t n = 1;
    while (n * 2 <= H) n *= 2;
    if (h < n) return exp2(-8.0 * (double)(h + 1) / (double)n);
    return exp2(-4.0 * (double)(2 * (h - n) + 1) / (double)n);
}

double slope_of(enum slope_id id, int64_t h, int64_t H, int64_t l, int64_t L)
{
    const double last = (double)(L - 1);
    switch (id) {
    case SLOPE_TNL: return alibi(h, H) * (1 - (L > 1 ? (double)l / last : 0) + 1e-5);
    case SLOPE_MINIMAX:
        return exp2(-8.0 * (double)(h + 1) / (double)H) * (1 - (double)l / (last + 1e-5) + 1e-5);
    case SLOPE_RETNET: return -log1p(-exp2(-5.0 - (double)h));
    case SLOPE_NONE: break;
    }
    return 0;
}
