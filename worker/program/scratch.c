/* scratch.c: what a step needs beside values and gradients: what worker/model/op_*.c takes, piece
 * by piece, in the same order. */
#include <string.h>
#include "worker/program/program.h"

enum { ALIGN = 64 /* bytes: MEM_ALIGN of api/core/mem.h */, STAGE = 64 << 10 };

struct asking {
    const struct program *p;
    const struct step *s;
    const struct op *op;
    const struct extent *x;
    int64_t total, staged;
};

static void take(struct asking *a, int64_t size)
{
    a->total += (size + ALIGN - 1) / ALIGN * ALIGN;
}

static void take_staged(struct asking *a, int64_t size)
{
    a->staged += (size + ALIGN - 1) / ALIGN * ALIGN;
}

/* What the host fills: struct twin of worker/model/op.h. */
static void take_twin(struct asking *a, int64_t size)
{
    take(a, size);
    take_staged(a, size);
}

static void take_act(struct asking *a, int64_t elements)
{
    take(a, elements * a->x->unit);
}

static bool backward(const struct asking *a)
{
    return a->s->kind == STEP_BACKWARD;
}

static int64_t rows_of(const struct asking *a, int value)
{
    return a->x->rows[a->p->value[value].rows];
}

static int64_t elements(const struct asking *a, int value)
{
    return rows_of(a, value) * a->p->value[value].cols;
}

/* A gradient that is kept chunk by chunk has as many rows for each. */
static int64_t grad_elements(const struct asking *a, int value)
{
    const enum rows_id rows = a->p->value[value].rows;
    return elements(a, value) * (rows == ROWS_TEXT || rows == ROWS_COND ? a->x->parts : 1);
}

static bool narrow(const struct asking *a)
{
    return a->x->unit < 4;
}

/* The output's gradient rounded to the model's precision, where it is fp32. */
static void take_dy(struct asking *a)
{
    const int out = a->op->out[0];
    if (backward(a) && narrow(a) && prog_grad_f32(a->p, out)) take_act(a, grad_elements(a, out));
}

/* The gradient of input k in the model's precision, where it is fp32. */
static void take_dx(struct asking *a, int k)
{
    const int in = a->op->in[k];
    if (in == PROG_NONE || !a->s->wanted[k]) return;
    if (narrow(a) && prog_grad_f32(a->p, in)) take_act(a, grad_elements(a, in));
}

/* The gradient of input k in fp32 by itself, where what is wanted is not that or holds something.
 * */
static void take_new(struct asking *a, int k)
{
    const int in = a->op->in[k];
    const bool fp32 = !narrow(a) || prog_grad_f32(a->p, in);
    if (a->s->wanted[k] && !(fp32 && a->s->first[k])) take(a, 4 * grad_elements(a, in));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Over the sequence: the first key of each row where there is a window; ulysses: of all ranks' rows,
 * too. */
static void ask_sequence(struct asking *a)
{
    const int64_t T = rows_of(a, a->op->in[0]);
    if (a->op->u.attn.window > 0) {
        take_twin(a, 8 * T);
        if (a->x->strategy == STRATEGY_ULYSSES) take_twin(a, 8 * a->x->sp * T);
    }
    if (!backward(a)) {
        if (narrow(a)) take(a, 4 * elements(a, a->op->in[0]));
        return;
    }
    take_new(a, 0);
    take_new(a, 1);
    take_dy(a);
}

/* Of rows that see the same keys, `rows` at a time. */
static void ask_whole(struct asking *a, int64_t rows)
{
    const int64_t H = a->op->u.attn.n_heads;
    take(a, 8 * rows);
    take(a, 8 * rows);
    take(a, 4 * H * rows);
    if (!backward(a)) {
        if (narrow(a)) take(a, 4 * rows * H * a->op->u.attn.head_dim);
        return;
    }
    take_dy(a);
    take_new(a, 0);
    take_new(a, 1);
}

/* ---- linear attention ------------------------------------------------------------------------ */

/* Outputs divided by their summed weights: v and o have a column more. */
static void ask_normalised(struct asking *a)
{
    const int64_t T = rows_of(a, a->op->in[0]), H = a->op->u.linear.n_heads;
    const int64_t D = a->op->u.linear.value_dim, wide = T * H * (D + 1);
    take(a, 4 * T);
    take_act(a, wide);
    take_act(a, wide);
    take(a, 4 * T * H * D);
    for (int i = 0; i < 3; i++) take(a, 4 * H * T); /* sums, and what divides by them */
    if (!backward(a)) return;
    take_act(a, wide);
    take(a, 4 * H * T);
    for (int64_t h = 0; h < 2 * H; h++) take(a, 4 * T);
    take(a, 4 * wide);
}

static void ask_linear_attention(struct asking *a)
{
    if (a->x->cache_rows) take(a, 2 * 8); /* what a new token sees */
    if (a->op->u.linear.normalise) ask_normalised(a);
    if (!backward(a)) return;
    take_dy(a);
    for (int k = 0; k < OP_INS; k++) take_new(a, k);
}

/* ---- experts --------------------------------------------------------------------------------- */

static void ask_experts(struct asking *a)
{
    const int in = a->op->in[0];
    const int64_t T = rows_of(a, in), C = a->p->value[in].cols, I = a->op->u.moe.width;
    const int64_t E = a->op->u.moe.n_experts, k = a->op->u.moe.top_k;
    for (int i = 0; i < 3; i++) take_twin(a, 4 * T * k);
    take_twin(a, 4 * (E + 1));
    take_staged(a, 4 * T * k); /* the routes */
    take_act(a, T * k * C);    /* slots */
    take(a, 4 * T * E);        /* logits */
    take_act(a, T * C);        /* an expert's */
    for (int i = 0; i < 3; i++) take_act(a, T * I);
    take(a, 4 * C);
    take_act(a, T * C);
    if (!backward(a)) {
        take_act(a, T * C);
        return;
    }
    take_dy(a);
    take_dx(a, 0);
    take_act(a, T * k * C);
    take_act(a, T * I);
    take(a, 4 * T * k);
    take(a, 4 * T * C);
    take(a, 4 * T * C);
    take(a, 4 * T);
    take(a, 4 * T * E);
    if (narrow(a)) take_act(a, T * E);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void ask_elementwise(struct asking *a)
{
    if (!backward(a)) return;
    take_dy(a);
    for (int k = 0; k < OP_INS; k++) take_dx(a, k);
}

/* adaLN: one chunk's gradients of n vectors before they are added to the others'. */
static void ask_conditioned(struct asking *a, int x, int n)
{
    if (!backward(a)) return;
    take_dy(a);
    take_dx(a, x);
    for (int i = 0; i < n; i++) take(a, 4 * a->x->rows[ROWS_COND] * a->p->value[a->op->in[x]].cols);
}

static void ask_embed_add(struct asking *a)
{
    const int64_t rows = rows_of(a, a->op->out[0]), T = a->x->rows[ROWS_T];
    take_twin(a, 4 * (rows > T ? rows : T));
    if (backward(a))
        take_dy(a);
    else
        take_act(a, elements(a, a->op->out[0]));
}

int64_t op_stage_lines(int64_t rows, int64_t cols)
{
    const int64_t n = STAGE / (4 * cols);
    return n < 1 ? 1 : n < rows ? n : rows;
}

static void ask_table_of_sines(struct asking *a)
{
    const int out = a->op->out[0];
    const int64_t rows = rows_of(a, out), cols = a->p->value[out].cols;
    if (backward(a)) return;
    take(a, 4 * rows * cols);
    take_twin(a, 4 * op_stage_lines(rows, cols) * cols);
}

static void ask_xent(struct asking *a)
{
    if (!a->op->n_bias) return;
    if (narrow(a)) take(a, 4 * a->x->vocab);
    if (backward(a)) take(a, 4 * a->x->parts * a->x->vocab);
}

static void ask_switch(struct asking *a)
{
    const int in = a->op->in[0];
    if (!backward(a) || !a->s->wanted[0] || a->s->first[0]) return;
    take(a, grad_elements(a, in) * (prog_grad_f32(a->p, in) ? 4 : a->x->unit));
}

static struct asking ask(const struct program *p, const struct step *s, const struct extent *x)
{
    struct asking a = {.p = p, .s = s, .op = &p->op[s->op], .x = x};
    switch (a.op->kind) {
    case OP_EMBED:
    case OP_LINEAR:
    case OP_TABLE: take_dy(&a); break;
    case OP_EMBED_ADD: ask_embed_add(&a); break;
    case OP_POSITION_2D:
    case OP_POSITION_1D: ask_table_of_sines(&a); break;
    case OP_TIMESTEP:
        if (!backward(&a)) take_twin(&a, 4 * elements(&a, a.op->out[0]));
        break;
    case OP_NORM:
    case OP_ACT:
    case OP_GLU:
    case OP_SELECT:
    case OP_LRPE: ask_elementwise(&a); break;
    case OP_ROPE:
        if (a.op->u.rope.frames) take_twin(&a, 8 * rows_of(&a, a.op->in[0]));
        break;
    case OP_ATTENTION:
        if (a.op->u.attn.dim < 0)
            ask_sequence(&a);
        else
            ask_whole(&a, x->grid[a.op->u.attn.dim]);
        break;
    case OP_CROSS: ask_whole(&a, rows_of(&a, a.op->in[0])); break;
    case OP_LINEAR_ATTENTION: ask_linear_attention(&a); break;
    case OP_MODULATE: ask_conditioned(&a, 0, 2); break;
    case OP_GATE: ask_conditioned(&a, 1, 1); break;
    case OP_SWITCH: ask_switch(&a); break;
    case OP_MOE: ask_experts(&a); break;
    case OP_XENT: ask_xent(&a); break;
    case OP_MSE:
        for (int i = 0; i <= backward(&a); i++) take(&a, 4 * elements(&a, a.op->in[0]));
        break;
    default: break;
    }
    return a;
}

int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x)
{
    return ask(p, s, x).total;
}

int64_t op_stage(const struct program *p, const struct step *s, const struct extent *x)
{
    return ask(p, s, x).staged;
}
