/* rule_rope.c: the rules of ROPE and LRPE. ROPE rotates queries and keys in place. The result of
 * LRPE has twice as many columns as its input. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

/* Asks for room for the index of each row's frame. */
static void scratch_rope(struct op_ask *a)
{
    if (a->op->u.rope.frames) ask_twin(a, 8 * ask_rows(a, a->op->in[0]));
}

static void need_rope(const struct program *p, const struct op *op, struct op_need *n)
{
    n->rotary = rule_max(n->rotary,
                         op->u.rope.rotary_dim ? op->u.rope.rotary_dim : op->u.rope.head_dim);
}

static void work_rope(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, 2);
}

const struct op_rule rule_rope = {
    .name = "rotary embedding",
    .n_in = 1,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .rotates = true,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_rope,
    .need = need_rope,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_rope,
};

static void check_lrpe(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0);
    assert(out->cols == 2 * a->cols && a->rows == out->rows);
}

static void work_lrpe(const struct op_site *s, struct op_work *w)
{
    work_elements(w, TERM_ROTATE, (1 + s->back) * work_size(s, s->op->in[0]), 1);
}

const struct op_rule rule_lrpe = {
    .name = "linearized position encoding",
    .n_in = 1,
    .check = check_lrpe,
    .reads = READS_NOTHING,
    .reads_weights = true,
    .scratch = rule_scratch_rows_of,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_lrpe,
};
