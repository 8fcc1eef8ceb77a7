/* scratch.c: what a step needs beside values and gradients. */
#include <assert.h>
#include <string.h>
#include "worker/family/program.h"

enum { ALIGN = 64 }; /* bytes: MEM_ALIGN of api/core/mem.h */

struct asking {
    const struct program *p;
    const struct step *s;
    const struct op *op;
    const struct extent *x;
    int64_t *size;
};

/* Bytes of an element that is fp32 whatever the precision; float64 where all is. */
static int64_t wide(const struct extent *x)
{
    return x->unit == 8 ? 8 : 4;
}

static int64_t rows_of(const struct asking *a, int value)
{
    return a->x->rows[a->p->value[value].rows];
}

static int64_t elements(const struct asking *a, int value)
{
    return rows_of(a, value) * a->p->value[value].cols;
}

/* Rows of a gradient that is kept chunk by chunk. */
static int64_t grad_elements(const struct asking *a, int value)
{
    const enum rows_id rows = a->p->value[value].rows;
    return elements(a, value) * (rows == ROWS_TEXT || rows == ROWS_COND ? a->x->parts : 1);
}

/* A gradient of the model's precision is not what a product of fp32 sums can be written to. */
static bool narrow(const struct asking *a)
{
    return a->x->unit < 4;
}

static int64_t rounded_output(const struct asking *a)
{
    const int out = a->op->out[0];
    if (out == PROG_NONE || !narrow(a) || !prog_grad_f32(a->p, out)) return 0;
    return grad_elements(a, out) * a->x->unit;
}

static void ask_elementwise(const struct asking *a)
{
    if (a->s->kind == STEP_FORWARD) return;
    a->size[0] = rounded_output(a);
    for (int k = 0; k < OP_INS; k++)
        if (a->s->wanted[k] && narrow(a) && prog_grad_f32(a->p, a->op->in[k]))
            a->size[1 + k] = grad_elements(a, a->op->in[k]) * a->x->unit;
}

/* An attention writes whole fp32 gradients: where input k's is something else, room for one of
 * `cols` columns. */
static int64_t own_grad(const struct asking *a, int k, int64_t cols)
{
    const int v = a->op->in[k];
    const bool fp32 = !narrow(a) || prog_grad_f32(a->p, v);
    const bool whole = a->p->value[v].view_of == PROG_NONE && cols == a->p->value[v].cols;
    if (!a->s->wanted[k] || (fp32 && whole && a->s->first[k])) return 0;
    return rows_of(a, v) * cols * wide(a->x);
}

static void ask_attention(const struct asking *a)
{
    const int q = a->op->in[0], kv = a->op->in[1];
    const int64_t sums = rows_of(a, q) * a->op->u.attn.n_heads * wide(a->x);
    if (a->s->kind == STEP_FORWARD) {
        a->size[0] = narrow(a) ? elements(a, q) * wide(a->x) : 0;
        a->size[1] = sums;
        return;
    }
    a->size[0] = own_grad(a, 0, a->p->value[q].cols);
    a->size[1] = own_grad(a, 1, a->p->value[kv].cols);
    a->size[2] = sums;
}

static void ask_linear_attention(const struct asking *a)
{
    const int q = a->op->in[0];
    const int64_t H = a->op->u.linear.n_heads, n = a->op->u.linear.normalise;
    const int64_t Dk = a->op->u.linear.key_dim, Dv = a->op->u.linear.value_dim + n;
    const int64_t more = n ? rows_of(a, q) * H * Dv * a->x->unit : 0;
    a->size[0] = a->x->parts * H * Dk * Dv * wide(a->x);
    a->size[1] = a->size[2] = more;
    if (a->s->kind == STEP_FORWARD) return;
    a->size[3] = more;
    a->size[4] = own_grad(a, 0, H * Dk);
    a->size[5] = own_grad(a, 1, H * Dk);
    a->size[6] = own_grad(a, 2, H * Dv);
}

static void ask_experts(const struct asking *a)
{
    const int in = a->op->in[0];
    const int64_t T = rows_of(a, in), C = a->p->value[in].cols, unit = a->x->unit;
    const int64_t E = a->op->u.moe.n_experts, k = a->op->u.moe.top_k, I = a->op->u.moe.width;
    const int64_t rows[4] = {T * C * unit, T * 2 * I * unit, T * I * unit, T * C * unit};
    a->size[0] = T * E * wide(a->x);
    a->size[1] = T * k * 4;
    memcpy(a->size + 2, rows, sizeof rows);
    if (a->s->kind == STEP_FORWARD) return;
    for (int i = 0; i < 4; i++) a->size[6 + i] = rows[3 - i];
    a->size[10] = T * k * wide(a->x);
    a->size[11] = T * E * wide(a->x);
}

/* The vocabulary: rows of the head, or what the plan says of a tied one. */
static void ask_logits(const struct asking *a)
{
    a->size[0] = a->x->loss_chunk * a->x->vocab * wide(a->x);
}

int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x,
                   int64_t size[PROG_SCRATCH])
{
    const struct asking a = {p, s, &p->op[s->op], x, size};
    int64_t total = 0;
    memset(size, 0, PROG_SCRATCH * sizeof *size);
    switch (a.op->kind) {
    case OP_LINEAR:
        if (s->kind == STEP_BACKWARD) size[0] = rounded_output(&a);
        break;
    case OP_NORM:
    case OP_ACT:
    case OP_GLU:
    case OP_LRPE:
    case OP_MODULATE:
    case OP_GATE:
    case OP_MIX: ask_elementwise(&a); break;
    case OP_ATTENTION:
    case OP_CROSS: ask_attention(&a); break;
    case OP_LINEAR_ATTENTION: ask_linear_attention(&a); break;
    case OP_MOE: ask_experts(&a); break;
    case OP_XENT: ask_logits(&a); break;
    default: break;
    }
    for (int i = 0; i < PROG_SCRATCH; i++) total += (size[i] + ALIGN - 1) / ALIGN * ALIGN;
    return total;
}
