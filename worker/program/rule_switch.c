/* rule_switch.c: the rules of SWITCH and HEADS, which move rows of a grid. HEADS is used only for
 * comparison with SWITCH. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_switch(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0);
    assert(out->cols == a->cols && a->rows != out->rows);
}

/* Asks for room for a gradient, which is then added to the gradient of the value. */
static void scratch_switch(struct op_ask *a)
{
    const int in = a->op->in[0];
    if (!ask_back(a) || !a->s->wanted[0] || a->s->first[0]) return;
    ask_bytes(a, ask_grad_elements(a, in) * (prog_grad_f32(a->p, in) ? 4 : a->x->unit));
}

static void need_switch(const struct program *p, const struct op *op, struct op_need *n)
{
    n->switched = rule_max(n->switched, p->value[op->in[0]].cols);
}

static void work_switch(const struct op_site *s, struct op_work *w)
{
    if (s->sp > 1) work_points(s, w, 2);
}

const struct op_rule rule_switch = {
    .name = "switch of dimensions",
    .n_in = 1,
    .check = check_switch,
    .reads = READS_NOTHING,
    .scratch = scratch_switch,
    .need = need_switch,
    .cache = CACHE_NOTHING,
    .moves = MOVES_ROWS,
    .along = ALONG_SEQUENCE,
    .work = work_switch,
};

static void check_heads(const struct program *p, const struct op *op, const struct value *out)
{
    assert(rule_alike(rule_in(p, op, 0), out) && out->rows == ROWS_T);
    assert(op->u.heads.sets >= 1 && out->cols % op->u.heads.sets == 0);
}

const struct op_rule rule_heads = {
    .name = "exchange of heads",
    .n_in = 1,
    .check = check_heads,
    .reads = READS_NOTHING,
    .scratch = scratch_switch,
    .need = need_switch,
    .cache = CACHE_NOTHING,
    .moves = MOVES_HEADS,
    .along = ALONG_BATCH,
    .work = work_switch,
};
