/* mlp.c: finds dense MLPs by the order of operations and by the values that pass between them. */
#include "worker/program/mlp.h"

#include "worker/program/op_rules.h"

/* Tells whether operations a and b are the only ones that read the value or a window of it. */
static bool read_by(const struct program *p, int value, int a, int b)
{
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_INS; k++) {
            const int in = p->op[i].in[k];
            if (i != a && i != b && in != PROG_NONE && prog_base(p, in) == value) return false;
        }
    return value != p->result;
}

/* Returns the operation that follows the product `op` and its ADAPT, if it has one. */
static int after_product(const struct program *p, int op)
{
    const bool adapted = op + 1 < p->n_ops && p->op[op + 1].kind == OP_ADAPT &&
                         p->op[op + 1].in[0] == p->op[op].out[0] &&
                         read_by(p, p->op[op].out[0], op + 1, op + 1);
    return op + 1 + adapted;
}

int prog_mlp(const struct program *p, int op)
{
    const struct op *up = &p->op[op];
    if (op + MLP_OPS > p->n_ops || up->kind != OP_LINEAR || up->in[1] != PROG_NONE) return 0;
    const int i = after_product(p, op);
    if (i + 1 >= p->n_ops) return 0;
    const struct op *act = &p->op[i], *down = &p->op[i + 1];
    const int x = p->op[i - 1].out[0], a = act->out[0];
    if (down->kind != OP_LINEAR || !op_rules[act->kind]->in_mlp) return 0;
    if (p->value[x].rows != ROWS_T && p->value[x].rows != ROWS_ALT) return 0;
    for (int k = 0; k < OP_INS; k++)
        if (act->in[k] != PROG_NONE && prog_base(p, act->in[k]) != x) return 0;
    const int end = after_product(p, i + 1);
    const bool is = down->in[0] == a && read_by(p, x, i, i) && read_by(p, a, i + 1, end - 1);
    return is ? end - op : 0;
}

int prog_mlp_ending(const struct program *p, int op)
{
    for (int i = op - MLP_OPS + 1; i >= 0 && i > op - MLP_OPS_MAX; i--)
        if (i + prog_mlp(p, i) == op + 1) return i;
    return PROG_NONE;
}

static void widen(const struct program *p, int w, int n, struct program_span *s)
{
    for (int i = w; n > 0 && i < w + n; i++) {
        const struct weight *x = &p->weight[i];
        if (x->frozen) continue;
        if (x->offset < s->begin) s->begin = x->offset;
        if (x->offset + prog_count(x) > s->end) s->end = x->offset + prog_count(x);
    }
}

struct program_span prog_mlp_weights(const struct program *p, int op)
{
    struct program_span s = {p->weights_size, 0};
    for (int i = op; i < op + prog_mlp(p, op); i++) {
        widen(p, p->op[i].w, p->op[i].n_w, &s);
        widen(p, p->op[i].bias, p->op[i].n_bias, &s);
    }
    return s.end ? s : (struct program_span){0};
}
