#include "worker/plan/work.h"

#include <math.h>
#include "worker/plan/traffic.h"

struct counting {
    const struct machine *m;
    const struct plan *p;
    const struct program *prog;
    double times;
    double share; /* of a product's columns: tensor parallelism splits them */
    struct work *out;
};

/* ---- rates ----------------------------------------------------------------------------------- */

/* Between two measured sizes, and below the smallest, on a line of logarithms; above the largest as
 * there. */
static double rate_at(const double rate[PROFILE_SIZES], const double size[PROFILE_SIZES], double at)
{
    const int last = PROFILE_SIZES - 1;
    int i = 0;
    if (at >= size[last]) return rate[last];
    while (i + 2 < PROFILE_SIZES && at >= size[i + 1]) i++;
    return rate[i] * pow(rate[i + 1] / rate[i], log(at / size[i]) / log(size[i + 1] / size[i]));
}

/* A product is as fast as its smallest side lets it be. */
static void product(const struct counting *c, double rows, double inner, double cols)
{
    const double *rate = c->m->rate[RATE_GEMM][c->p->precision];
    if (rows <= 0 || inner <= 0 || cols <= 0) return;
    c->out->products_s += c->times * c->share * 2 * rows * inner * cols /
                          rate_at(rate, profile_widths, fmin(rows, fmin(inner, cols)));
}

/* elements/s; 0: not counted. */
static void elements(const struct counting *c, double n, double rate)
{
    if (rate > 0) c->out->other_s += c->times * n / rate;
}

static double rows_of(const struct counting *c, int value)
{
    return (double)c->p->extent.rows[c->prog->value[value].rows];
}

static double size_of(const struct counting *c, int value)
{
    return rows_of(c, value) * (double)c->prog->value[value].cols;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void count_linear(const struct counting *c, const struct op *op, bool back)
{
    const double rows = rows_of(c, op->out[0]);
    double cols = 0;
    for (int i = 0; i < op->n_w; i++) cols += (double)c->prog->weight[op->w + i].rows;
    for (int i = 0; i < 1 + back; i++) product(c, rows, (double)c->prog->weight[op->w].cols, cols);
    if (op->in[1] != PROG_NONE || op->n_bias) elements(c, size_of(c, op->out[0]), 2 * c->m->point);
}

/* Logits, and backward the gradients of both operands. */
static void count_loss(const struct counting *c, const struct op *op, bool back)
{
    const double T = rows_of(c, op->in[0]), V = (double)c->p->extent.vocab;
    for (int i = 0; i < (back ? 3 : 1); i++)
        product(c, T, (double)c->prog->value[op->in[0]].cols, V);
    elements(c, T * V, c->m->point);
}

static void count_moe(const struct counting *c, const struct op *op, bool back)
{
    const double T = rows_of(c, op->in[0]), C = (double)c->prog->value[op->in[0]].cols;
    const double k = (double)op->u.moe.top_k, width = (double)op->u.moe.width;
    for (int i = 0; i < 1 + back; i++) {
        product(c, T, C, (double)op->u.moe.n_experts);
        for (int j = 0; j < 3; j++) product(c, T * k, C, width);
        elements(c, T * k * (2 * C + 2 * width), c->m->point);
    }
}

/* Of the slowest rank over the mean: with a causal mask and contiguous shards the last one sees
 * nearly everything; of heads that do not divide some ranks have one more. */
static double imbalance(const struct plan *p, const struct op *op)
{
    const double H = (double)op->u.attn.n_heads;
    if (op->u.attn.dim >= 0) return 1;
    if (p->strategy == STRATEGY_ULYSSES) return ceil(H / p->sp) * p->sp / H;
    if (p->layout == LAYOUT_ZIGZAG || p->strategy != STRATEGY_RSA || !op->u.attn.causal) return 1;
    return (2.0 * p->sp - 1) / p->sp;
}

/* A tile's edge costs as much as its middle: rates are measured over 512 keys. */
static double edges(const struct counting *c, double keys)
{
    const double tile = 32, measured = 512;
    return c->m->measured ? (1 + tile / keys) / (1 + tile / measured) : 1;
}

static void count_attention(const struct counting *c, const struct op *op, bool back)
{
    const struct plan *p = c->p;
    const int kind = back ? RATE_ATTN_BACK : RATE_ATTN;
    const double rate = rate_at(c->m->rate[kind][p->precision], profile_heads,
                                (double)op->u.attn.head_dim);
    const double keys = op->kind == OP_CROSS  ? (double)p->extent.rows[ROWS_TEXT]
                        : op->u.attn.dim >= 0 ? (double)p->grid[op->u.attn.dim]
                                              : (double)p->T;
    const double slowest = op->kind == OP_CROSS ? 1 : imbalance(p, op);
    const double flops = 2 * traffic_op_products(p, c->prog, op) * (1 + back) / p->sp;
    if (keys <= 0) return;
    c->out->attention_s += c->times * flops * slowest * edges(c, keys) / rate;
    elements(c, (1 + back) * size_of(c, op->out[0]), c->m->point);
}

/* What entered is added after, for a third of the whole (kernels/backend.h). */
static void count_states(const struct counting *c, const struct op *op, bool back)
{
    const double H = (double)op->u.linear.n_heads, Dk = (double)op->u.linear.key_dim;
    const double Dv = (double)(op->u.linear.value_dim + op->u.linear.normalise);
    const int kind = back ? RATE_LINEAR_BACK : RATE_LINEAR;
    const double rate = rate_at(c->m->rate[kind][c->p->precision], profile_heads, sqrt(Dk * Dv));
    const bool enters = c->m->measured && (c->p->sp > 1 || c->p->n_windows > 1);
    const double flops = 4 * rows_of(c, op->out[0]) * H * Dk * Dv * (1 + back);
    c->out->other_s += c->times * flops * (enters ? 4.0 / 3 : 1) / rate;
    if (op->u.linear.normalise) elements(c, 5 * size_of(c, op->out[0]), c->m->point);
}

static void count_norm(const struct counting *c, const struct op *op, bool back)
{
    elements(c, size_of(c, op->out[0]), back ? c->m->norm / 2.5 : c->m->norm);
}

/* Element by element: passes over the output forward and backward, an activation's at 1 and 1.5. */
static void count_points(const struct counting *c, const struct op *op, bool back)
{
    static const double passes[OP_KIND_N][2] = {
        [OP_EMBED] = {1, 1},   [OP_EMBED_ADD] = {1, 1}, [OP_ACT] = {1, 1.5},    [OP_GLU] = {1, 1.5},
        [OP_MIX] = {0.5, 0.5}, [OP_ROPE] = {2, 2},      [OP_MODULATE] = {1, 2}, [OP_GATE] = {1, 2},
        [OP_SELECT] = {1, 1},  [OP_SWITCH] = {2, 2},    [OP_MSE] = {1, 1}};
    const int value = op->out[0] == PROG_NONE ? op->in[0] : op->out[0];
    if (op->kind == OP_SWITCH && c->p->sp == 1) return;
    elements(c, passes[op->kind][back] * size_of(c, value), c->m->point);
}

static void count_op(const struct counting *c, const struct op *op, bool back)
{
    switch (op->kind) {
    case OP_LINEAR: count_linear(c, op, back); break;
    case OP_XENT: count_loss(c, op, back); break;
    case OP_MOE: count_moe(c, op, back); break;
    case OP_ATTENTION:
    case OP_CROSS: count_attention(c, op, back); break;
    case OP_LINEAR_ATTENTION: count_states(c, op, back); break;
    case OP_NORM: count_norm(c, op, back); break;
    case OP_LRPE: elements(c, (1 + back) * size_of(c, op->in[0]), c->m->turn); break;
    case OP_POSITION_2D:
    case OP_POSITION_1D: elements(c, size_of(c, op->out[0]), c->m->turn); break;
    default: count_points(c, op, back); break;
    }
}

/* ---- sections -------------------------------------------------------------------------------- */

enum pass {
    PASS_STATES, /* forward, without the losses */
    PASS_LOSSES, /* and with them */
    PASS_BOTH    /* forward and backward */
};

static bool is_loss(const struct op *op)
{
    return op->kind == OP_XENT || op->kind == OP_MSE;
}

/* train: the model is made to train, and runs that schedule's forward list. */
static void count_section(struct counting *c, const struct program *prog, enum pass pass,
                          bool train)
{
    const bool last = prog->result == PROG_NONE;
    struct schedule s;
    schedule_make(prog, train, c->p->recompute, &s);
    c->prog = prog;
    for (int i = 0; i < s.n_forward && !(last && pass == PASS_BOTH); i++)
        if (pass != PASS_STATES || !is_loss(&prog->op[s.forward[i].op]))
            count_op(c, &prog->op[s.forward[i].op], false);
    for (int i = 0; i < s.n_backward && pass == PASS_BOTH; i++)
        count_op(c, &prog->op[s.backward[i].op], s.backward[i].kind == STEP_BACKWARD);
}

static void count_pass(struct counting *c, const struct model_shape *shape, enum pass pass,
                       double times)
{
    const struct plan *p = c->p;
    const bool train = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    const bool split = p->strategy == STRATEGY_TP || p->strategy == STRATEGY_TP_SP;
    struct family f;
    family_write(shape, &f);
    c->times = times;
    c->share = 1;
    count_section(c, &f.in, pass, train);
    count_section(c, &f.out, pass, train);
    c->share = split ? 1.0 / p->sp : 1;
    for (int k = 0; k < f.n_kinds; k++) {
        c->times = times * (double)p->shards.n_of[ZERO_LAYER + k];
        if (c->times > 0) count_section(c, &f.layer[k], pass, train);
    }
}

/* Gradients cleared and their norm, then AdamW of what the rank owns. */
static void count_update(struct counting *c)
{
    c->times = 1;
    elements(c, (double)c->p->n_grad, 2 * c->m->point);
    elements(c, (double)c->p->n_shard, c->m->update);
}

void work_count(const struct machine *m, const struct model_shape *shape, const struct plan *p,
                struct work *out)
{
    static const enum pass passes[JOB_KIND_N] = {
        [JOB_TRAIN] = PASS_BOTH, [JOB_VERIFY] = PASS_BOTH, [JOB_SCORE] = PASS_LOSSES};
    struct counting c = {.m = m, .p = p, .out = out};
    const double n = (double)p->micro_batches;
    *out = (struct work){0};
    count_pass(&c, shape, passes[p->kind], n * (double)p->n_windows);
    if (p->n_windows > 1) count_pass(&c, shape, PASS_STATES, n * (double)(p->n_windows - 1));
    if (p->kind == JOB_TRAIN) count_update(&c);
}
