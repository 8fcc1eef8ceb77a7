/* rule_linear.c: the rule of LINEAR, the matrix product out = [base +] a W' [+ b]. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_linear(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0), *base = rule_in(p, op, 1);
    assert(op->n_w >= 1 && rule_weight_rows(p, op->w, op->n_w) == out->cols);
    for (int i = 0; i < op->n_w; i++) assert(p->weight[op->w + i].cols == a->cols);
    assert(!op->n_bias || rule_weight_rows(p, op->bias, op->n_bias) == out->cols);
    assert(a->rows == out->rows && (!base || rule_alike(base, out)));
}

static int alias_base(const struct op *op)
{
    return op->in[1] == PROG_NONE ? PROG_NONE : 1;
}

/* Counts one product in forward. In backward, counts one product for each operand whose gradient
 * is computed. */
static void work_linear(const struct op_site *s, struct op_work *w)
{
    const struct op *op = s->op;
    double cols = 0;
    for (int i = 0; i < op->n_w; i++) cols += (double)s->p->weight[op->w + i].rows;
    for (int i = 0; i < work_times(s); i++)
        work_product(w, work_rows(s, op->out[0]), (double)s->p->weight[op->w].cols, cols);
    if (op->in[1] != PROG_NONE || op->n_bias)
        work_elements(w, TERM_POINT, work_size(s, op->out[0]), 0.5);
}

const struct op_rule rule_linear = {
    .name = "product",
    .n_in = 2,
    .n_optional = 1,
    .check = check_linear,
    .reads = READS_A,
    .reads_to_learn = READS_A,
    .reads_weights = true,
    .operands = true,
    .multiplies = true,
    .over = READS_B,
    .alias = alias_base,
    .scratch = rule_scratch_dy,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_linear,
};
