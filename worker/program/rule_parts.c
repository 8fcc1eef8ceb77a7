/* rule_parts.c: the rules of GATHER and SCATTER, which exchange rows between the ranks of tensor
 * parallelism. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_gather(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0);
    assert(a->rows == ROWS_PART && out->rows == ROWS_T && a->cols == out->cols);
}

const struct op_rule rule_gather = {
    .name = "gathering of rows",
    .n_in = 1,
    .check = check_gather,
    .reads = READS_NOTHING,
    .spreads = true,
    .scratch = rule_scratch_nothing,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_PARTS,
    .work = work_nothing,
    .along = ALONG_BATCH,
};

static void check_scatter(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0), *base = rule_in(p, op, 1);
    assert(a->rows == ROWS_T && a->f32 && out->rows == ROWS_PART && a->cols == out->cols);
    assert(!base || rule_alike(base, out));
    assert(!op->n_bias || rule_weight_rows(p, op->bias, op->n_bias) == out->cols);
}

static int alias_base(const struct op *op)
{
    return op->in[1] == PROG_NONE ? PROG_NONE : 1;
}

/* In forward, asks for room for the bias in fp32 and for a column of ones. In backward, asks for
 * room for the gradient that is gathered. */
static void scratch_scatter(struct op_ask *a)
{
    ask_dy(a);
    if (ask_back(a) || !a->op->n_bias) return;
    ask_bytes(a, 4 * a->p->value[a->op->out[0]].cols);
    ask_bytes(a, 4 * ask_rows(a, a->op->out[0]));
}

const struct op_rule rule_scatter = {
    .name = "sum of parts",
    .n_in = 2,
    .n_optional = 1,
    .check = check_scatter,
    .reads = READS_NOTHING,
    .sums = true,
    .joint = READS_A,
    .over = READS_B,
    .alias = alias_base,
    .scratch = scratch_scatter,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_PARTS,
    .work = work_once,
    .along = ALONG_BATCH,
};
