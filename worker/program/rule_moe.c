#include "worker/program/rule.h"

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
    ask_act(a, T * C);       /* an expert's */
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
    for (int i = 0; i < 1 + s->back; i++) {
        work_product(w, T, C, (double)op->u.moe.n_experts);
        for (int j = 0; j < 3; j++) work_product(w, T * k, C, width);
        work_elements(w, TERM_POINT, T * k * (2 * C + 2 * width), 1);
    }
}

const struct op_rule rule_moe = {
    .name = "mixture of experts",
    .n_in = 1,
    .check = check_alike,
    .extra = extra_moe,
    .reads = READS_A | READS_SECOND,
    .reads_weights = true,
    .scratch = scratch_moe,
    .need = need_nothing,
    .apart = true,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .work = work_moe,
};
