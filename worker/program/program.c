/* program.c: adds weights, values and operations to a program, and has functions that read a
 * program: the operation that writes a value, the operations that read it, decays. */
#include "worker/program/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/program/op_rules.h"

void prog_init(struct program *p, const char *prefix)
{
    p->n_values = p->n_ops = p->n_weights = p->n_shared = 0;
    p->weights_size = p->trained_size = 0;
    p->has_input = p->partial = p->tied_frozen = false;
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

int64_t prog_count(const struct weight *w)
{
    return w->cols ? w->rows * w->cols : w->rows;
}

int64_t prog_end(const struct weight *w)
{
    return (w->offset + prog_count(w) + PROG_ALIGN - 1) / PROG_ALIGN * PROG_ALIGN;
}

int prog_weight(struct program *p, const struct weight *w)
{
    struct weight *to = &p->weight[p->n_weights];
    assert(p->n_weights < PROG_WEIGHTS && w->name[0] && w->rows > 0 && w->cols >= 0);
    assert(!w->joined || p->n_weights > 0);
    assert(w->head_major_parts <= HEAD_PARTS);
    *to = *w;
    to->offset = p->weights_size;
    if (w->joined) to->offset = to[-1].offset + prog_count(&to[-1]);
    p->weights_size = p->trained_size = prog_end(to);
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
    /* a view of a view becomes a window of the value that owns the memory */
    if (v.view_of != PROG_NONE) {
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

/* Adds out[1] and out[2], which backward needs in addition to the result. */
static void add_extra(struct program *p, struct op *op)
{
    const struct op_rule *r = op_rules[op->kind];
    struct value v[2] = {{.f32 = true, .no_grad = true}};
    if (op->in[0] != PROG_NONE) v[0].rows = p->value[op->in[0]].rows;
    v[1] = v[0];
    const int n = r->extra ? r->extra(p, op, v) : 0;
    for (int i = 0; i < 2; i++) op->out[1 + i] = i < n ? prog_value(p, &v[i]) : PROG_NONE;
}

int prog_op(struct program *p, const struct op *op, const struct value *out)
{
    const struct op_rule *r = op_rules[op->kind];
    struct op *to = &p->op[p->n_ops];
    assert(p->n_ops < PROG_OPS);
    *to = *op;
    for (int i = 0; i < OP_INS; i++) {
        if (i >= r->n_in) to->in[i] = PROG_NONE;
        assert(to->in[i] < p->n_values);
        assert(to->in[i] >= (i < r->n_in - r->n_optional ? 0 : PROG_NONE));
        for (int k = 0; k < i; k++) assert(to->in[i] == PROG_NONE || to->in[i] != to->in[k]);
    }
    if (!to->n_w) to->w = PROG_NONE;
    if (!to->n_bias) to->bias = PROG_NONE;
    r->check(p, to, out);
    to->out[0] = out ? prog_value(p, out) : PROG_NONE;
    add_extra(p, to);
    p->n_ops++;
    return to->out[0];
}

/* ---- readers, and gradients in fp32 ---------------------------------------------------------- */

int prog_writer(const struct program *p, int value)
{
    const int v = prog_base(p, value);
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_OUTS; k++)
            if (p->op[i].out[k] == v) return i;
    return PROG_NONE;
}

static bool has_views(const struct program *p, int value)
{
    for (int i = value + 1; i < p->n_values; i++)
        if (p->value[i].view_of == value) return true;
    return false;
}

/* Tells whether an attention is the only operation that reads the value. The value may be rotated
 * before. */
static bool only_attended(const struct program *p, int value)
{
    int n = 0, last = PROG_NONE;
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_INS; k++)
            if (p->op[i].in[k] == value) n++, last = i;
    if (n != 1) return false;
    const struct op *op = &p->op[last];
    const struct op_rule *r = op_rules[op->kind];
    return r->attends || (r->rotates && only_attended(p, op->out[0]));
}

/* Tells whether value v is a part of a sum over ranks. */
static bool is_summed(const struct program *p, int v)
{
    for (int i = 0; i < p->n_ops; i++)
        if (op_rules[p->op[i].kind]->sums && p->op[i].in[0] == v) return true;
    return false;
}

/* Returns the output of the ADAPT that reads value v as its product, or PROG_NONE. */
static int adapted_to(const struct program *p, int v)
{
    for (int i = 0; i < p->n_ops; i++)
        if (op_rules[p->op[i].kind]->adapts && p->op[i].in[0] == v) return p->op[i].out[0];
    return PROG_NONE;
}

bool prog_grad_f32(const struct program *p, int value)
{
    const int v = prog_base(p, value), op = prog_writer(p, v);
    if (op != PROG_NONE && op_rules[p->op[op].kind]->spreads) return true;
    const int adapted = adapted_to(p, v);
    if (adapted != PROG_NONE) return prog_grad_f32(p, adapted);
    if (is_summed(p, v)) return false;
    if (p->value[v].f32 || p->value[v].shared) return true;
    if (p->value[v].rows == ROWS_COND || p->value[v].rows == ROWS_TEXT) return true;
    if (op == PROG_NONE || has_views(p, v) || !only_attended(p, v)) return false;
    const struct op_rule *r = op_rules[p->op[op].kind];
    return r->rotates || r->adapts || (r->multiplies && p->op[op].in[1] == PROG_NONE);
}

/* ---- decays ---------------------------------------------------------------------------------- */

/* Returns the slope of head h of H in ALiBi (2108.12409), which is a power of two. If H is not a
 * power of two, the first heads have the slopes for the next lower power of two. The other heads
 * then have every second slope for the next higher power of two. */
static double alibi(int64_t h, int64_t H)
{
    int64_t n = 1;
    while (n * 2 <= H) n *= 2;
    if (h < n) return exp2(-8.0 * (double)(h + 1) / (double)n);
    return exp2(-4.0 * (double)(2 * (h - n) + 1) / (double)n);
}

double prog_slope(enum slope_id id, int64_t h, int64_t H, int64_t l, int64_t L)
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
