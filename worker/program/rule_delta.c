/* rule_delta.c: the rules of gated delta networks, which are the gated delta rule and the short
 * convolution before it. */
#include <math.h>
#include "api/core/assert.h"
#include "api/core/delta.h"
#include "worker/program/rule.h"

/* Adds an output for the state that enters each sum chunk. The states are kept, so no exchange is
 * needed if the operation is computed again. */
static int extra_state(const char *name, int64_t cols, struct value *v)
{
    v->name = name;
    v->state = true;
    v->cols = cols;
    v->keep = KEEP_ALWAYS;
    return 1;
}

static void need_carry(const struct program *p, const struct op *op, struct op_need *n)
{
    n->carry = rule_max(n->carry, p->value[op->out[1]].cols);
}

/* In backward, asks for room for the gradients of two states, which are used alternately. */
static void ask_carried(struct op_ask *a)
{
    ask_bytes(a, 2 * 4 * a->p->value[a->op->out[1]].cols);
}

/* In generate, asks for the range of keys that new tokens see. */
static void ask_token(struct op_ask *a)
{
    if (a->x->cache_rows) ask_bytes(a, 2 * a->x->state_rows * (int64_t)sizeof(int64_t));
}

/* ---- short convolution ----------------------------------------------------------------------- */

static void check_short_conv(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0);
    assert(rule_alike(a, out) && op->n_w == 1);
    assert(op->u.conv.width >= 2 && op->u.conv.width <= CONV_MAX_WIDTH);
    assert(p->weight[op->w].rows == a->cols && p->weight[op->w].cols == op->u.conv.width);
}

static int extra_short_conv(const struct program *p, const struct op *op, struct value v[2])
{
    return extra_state("conv_state", (op->u.conv.width - 1) * rule_in(p, op, 0)->cols, v);
}

static void scratch_short_conv(struct op_ask *a)
{
    ask_token(a);
    if (!ask_back(a)) return;
    ask_dy(a);
    ask_dx_new(a, 0);
    ask_carried(a);
}

static void work_short_conv(const struct op_site *s, struct op_work *w)
{
    work_elements(w, TERM_POINT, work_size(s, s->op->out[0]) * (double)s->op->u.conv.width,
                  s->back ? 2 : 1);
}

const struct op_rule rule_short_conv = {
    .name = "short convolution",
    .n_in = 1,
    .check = check_short_conv,
    .extra = extra_short_conv,
    .reads = READS_A | READS_SECOND,
    .joint = READS_A,
    .reads_weights = true,
    .scratch = scratch_short_conv,
    .need = need_carry,
    .cache = CACHE_STATE,
    .moves = MOVES_CARRY,
    .along = ALONG_SEQUENCE,
    .work = work_short_conv,
};

/* ---- gated delta rule ------------------------------------------------------------------------ */

static void check_delta(const struct program *p, const struct op *op, const struct value *out)
{
    const int64_t H = op->u.delta.n_heads, Hk = op->u.delta.n_key_heads;
    const int64_t Dk = op->u.delta.key_dim, Dv = op->u.delta.value_dim;
    assert(H % Hk == 0 && rule_in(p, op, 0)->cols == 2 * Hk * Dk + H * Dv);
    assert(rule_in(p, op, 1)->cols == 2 * H && out->cols == H * Dv);
    assert(op->n_w == 1 && op->n_bias == 1);
    assert(p->weight[op->w].rows == H && p->weight[op->bias].rows == H);
}

static int64_t state_size(const struct op *op)
{
    return op->u.delta.n_heads * op->u.delta.key_dim * op->u.delta.value_dim;
}

static int extra_delta(const struct program *p, const struct op *op, struct value v[2])
{
    return extra_state("state", state_size(op), v);
}

static void need_delta(const struct program *p, const struct op *op, struct op_need *n)
{
    const int64_t map = op->u.delta.n_heads * op->u.delta.key_dim * op->u.delta.key_dim;
    need_carry(p, op, n);
    n->map = rule_max(n->map, map);
    n->summary = rule_max(n->summary, map + state_size(op));
}

/* Asks for the scratch of the map (delta_map): rows of zeros that replace the values, and the
 * number 1. In backward, also asks for room for the outputs of these rows. */
static void ask_map(struct op_ask *a)
{
    const int64_t T = ask_rows(a, a->op->in[0]), rows = T < MAP_ROWS ? T : MAP_ROWS;
    const int64_t n = rows * a->op->u.delta.n_heads * a->op->u.delta.key_dim;
    ask_act(a, n);
    ask_bytes(a, 4);
    if (ask_back(a)) ask_act(a, n);
}

static void scratch_delta(struct op_ask *a)
{
    const int64_t T = ask_rows(a, a->op->in[0]);
    ask_token(a);
    if (a->x->maps) ask_map(a);
    if (!ask_back(a)) return;
    ask_dy(a);
    ask_dx_new(a, 0);
    ask_dx_new(a, 1);
    ask_carried(a);
    ask_bytes(a, 4 * T * a->op->u.delta.n_heads); /* d_log */
    ask_bytes(a, 4 * delta_spans(T) * state_size(a->op));
}

/* Counts three products for each row: S' k, the update of S, and S' q. Backward costs three times
 * as much, because it computes the states again. If states are passed by maps, the map A and the
 * summary b cost additional products. In forward, A needs the first two products with values that
 * are Dk wide, and b needs the first two products. In backward, A needs all three products, and b
 * needs one. After that, a rank applies the maps of the other ranks one after the other. */
static void work_delta(const struct op_site *s, struct op_work *w)
{
    const struct op *op = s->op;
    const double Dk = (double)op->u.delta.key_dim, Dv = (double)op->u.delta.value_dim;
    const double rows = work_rows(s, op->out[0]), H = (double)op->u.delta.n_heads;
    work_add(w, &(struct op_term){.id = TERM_STATES,
                                  .n = 3 * rows * H * Dk * Dv * (s->back ? 3 : 1),
                                  .size = sqrt(Dk * Dv),
                                  .in_turn = true});
    if (!s->maps) return;
    work_add(w, &(struct op_term){.id = TERM_STATES,
                                  .n = rows * H * Dk * (s->back ? 3 * Dk + Dv : 2 * Dk + 2 * Dv) +
                                       (s->sp - 1) * H * Dk * Dk * Dv,
                                  .size = sqrt(Dk * Dv),
                                  .in_turn = true,
                                  .beside = true});
}

const struct op_rule rule_delta = {
    .name = "gated delta rule",
    .n_in = 2,
    .check = check_delta,
    .extra = extra_delta,
    .reads = READS_A | READS_B | READS_SECOND,
    .joint = READS_A | READS_B,
    .reads_weights = true,
    .scratch = scratch_delta,
    .need = need_delta,
    .cache = CACHE_STATE,
    .moves = MOVES_MAP,
    .along = ALONG_SEQUENCE,
    .work = work_delta,
};
