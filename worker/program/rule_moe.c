/* rule_moe.c: the rule of MOE, with the shapes of the router and of the experts, and room for the
 * routes and slots of all rows. */
#include <stddef.h>
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_moe(const struct program *p, const struct op *op, const struct value *out)
{
    const int64_t E = op->u.moe.n_experts, I = op->u.moe.width, C = out->cols;
    const struct weight *w = &p->weight[op->w], *b = op->n_bias ? &p->weight[op->bias] : NULL;
    rule_check_alike(p, op, out);
    assert(w[0].rows == E && w[0].cols == C && E >= op->u.moe.top_k);
    assert(op->n_w == (op->u.moe.joined ? 3 : 1 + 3 * E) && !op->u.moe.alpha == !op->u.moe.limit);
    assert(op->n_bias == 0 || (op->n_bias == 3 && op->u.moe.joined));
    if (!op->u.moe.joined) return;
    assert(w[1].rows == 2 * E * I && w[1].cols == C && w[2].rows == E * C && w[2].cols == I);
    assert(!b || (b[0].rows == E && b[1].rows == 2 * E * I && b[2].rows == E * C));
}

/* Returns the number of elements of the router, or of one matrix of an expert if that is larger.
 * The gradients of experts are summed one by one. */
static int64_t gradient_moe(const struct program *p, const struct op *op)
{
    const int64_t C = p->value[op->in[0]].cols;
    return C * rule_max(op->u.moe.n_experts, op->u.moe.width);
}

static int extra_moe(const struct program *p, const struct op *op, struct value v[2])
{
    v[0].name = "moe_route";
    v[0].cols = 2 * op->u.moe.top_k;
    v[0].keep = KEEP_NONE_MODE;
    return 1;
}

static void scratch_moe(struct op_ask *a)
{
    const int in = a->op->in[0];
    const int64_t T = ask_rows(a, in), C = a->p->value[in].cols, I = a->op->u.moe.width;
    const int64_t E = a->op->u.moe.n_experts, k = a->op->u.moe.top_k;
    for (int i = 0; i < 3; i++) ask_twin(a, 4 * T * k);
    ask_twin(a, 4 * (E + 1));
    ask_stage(a, 4 * T * k); /* the routes */
    ask_act(a, T * k * C);   /* slots */
    ask_bytes(a, 4 * T * E); /* logits */
    if (a->op->n_bias) ask_bytes(a, 4 * E);
    ask_act(a, T * C); /* an expert's input */
    for (int i = 0; i < 3; i++) ask_act(a, T * I);
    ask_bytes(a, 4 * C);
    ask_act(a, T * C);
    if (!ask_back(a)) {
        ask_act(a, T * C);
        return;
    }
    ask_dy(a);
    ask_dx(a, 0);
    ask_act(a, T * k * C);
    ask_act(a, T * I);
    ask_bytes(a, 4 * T * k);
    ask_bytes(a, 4 * T * C);
    ask_bytes(a, 4 * T * C);
    ask_bytes(a, 4 * T);
    ask_bytes(a, 4 * T * E);
    if (ask_narrow(a)) ask_act(a, T * E);
}

static void work_moe(const struct op_site *s, struct op_work *w)
{
    const struct op *op = s->op;
    const double T = work_rows(s, op->in[0]), C = (double)s->p->value[op->in[0]].cols;
    const double k = (double)op->u.moe.top_k, width = (double)op->u.moe.width;
    for (int i = 0; i < work_times(s); i++) {
        work_product(w, T, C, (double)op->u.moe.n_experts);
        for (int j = 0; j < 3; j++) work_product(w, T * k, C, width);
        work_elements(w, TERM_POINT, T * k * (2 * C + 2 * width), 1);
    }
}

const struct op_rule rule_moe = {
    .name = "mixture of experts",
    .n_in = 1,
    .check = check_moe,
    .extra = extra_moe,
    .reads = READS_A | READS_SECOND,
    .reads_weights = true,
    .operands = true,
    .joint = READS_A,
    .scratch = scratch_moe,
    .need = rule_need_nothing,
    .gradient = gradient_moe,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_moe,
};
