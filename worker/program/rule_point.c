/* rule_point.c: the rules of operators that compute each row by itself, without products: ACT,
 * GLU, MIX, ROW_GATE, and MODULATE, GATE, TABLE and SELECT of adaLN. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

/* ---- ACT, GLU, MIX --------------------------------------------------------------------------- */

static void work_act(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, s->back ? 1.5 : 1);
}

const struct op_rule rule_act = {
    .name = "activation",
    .n_in = 1,
    .check = rule_check_alike,
    .reads = READS_A,
    .in_mlp = true,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = rule_scratch_rows_of,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_act,
};

const struct op_rule rule_glu = {
    .name = "gated activation",
    .n_in = 2,
    .check = rule_check_alike,
    .reads = READS_A | READS_B,
    .in_mlp = true,
    .over_inputs = true,
    .scratch = rule_scratch_rows_of,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_act,
};

static int alias_mix(const struct op *op)
{
    if (op->u.mix.alpha == 1) return 0;
    return op->in[1] != PROG_NONE && op->u.mix.beta == 1 ? 1 : PROG_NONE;
}

static void work_mix(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, 0.5);
}

const struct op_rule rule_mix = {
    .name = "sum of two",
    .n_in = 2,
    .n_optional = 1,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .over = READS_A | READS_B,
    .alias = alias_mix,
    .scratch = rule_scratch_nothing,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_mix,
};

/* ---- ROW_GATE -------------------------------------------------------------------------------- */

static void check_row_gate(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *base = rule_in(p, op, 0), *gate = rule_in(p, op, 2);
    assert(rule_alike(base, out) && rule_alike(base, rule_in(p, op, 1)));
    assert(base->rows == ROWS_T && gate->rows == ROWS_T && gate->cols == 1);
}

static void scratch_row_gate(struct op_ask *a)
{
    const int64_t T = ask_rows(a, a->op->in[1]), C = a->p->value[a->op->in[1]].cols;
    ask_bytes(a, 4 * C);
    ask_bytes(a, 4 * T);
    ask_act(a, T * C);
    if (!ask_back(a)) return;
    ask_dy(a);
    ask_dx(a, 1);
    ask_bytes(a, 4 * T * C);
}

static void work_row_gate(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, s->back ? 4 : 3);
}

const struct op_rule rule_row_gate = {
    .name = "gate of rows",
    .n_in = 3,
    .check = check_row_gate,
    .reads = READS_B | READS_C,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_row_gate,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_row_gate,
};

/* ---- adaLN ----------------------------------------------------------------------------------- */

/* Asks for room for the gradients of n vectors from one chunk. They are then added to the
 * gradients from the other chunks. */
static void ask_vectors(struct op_ask *a, int x, int n)
{
    if (!ask_back(a)) return;
    ask_dy(a);
    ask_dx(a, x);
    for (int i = 0; i < n; i++)
        ask_bytes(a, 4 * a->x->rows[ROWS_COND] * a->p->value[a->op->in[x]].cols);
}

static void work_conditioned(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, s->back ? 2 : 1);
}

static void check_modulate(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0), *shift = rule_in(p, op, 1);
    assert(rule_alike(a, out) && rule_alike(shift, rule_in(p, op, 2)) && shift->cols == a->cols);
}

static void scratch_modulate(struct op_ask *a)
{
    ask_vectors(a, 0, 2);
}

const struct op_rule rule_modulate = {
    .name = "modulation",
    .n_in = 3,
    .check = check_modulate,
    .reads = READS_A | READS_C,
    .joint = READS_A,
    .scratch = scratch_modulate,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_conditioned,
};

static void check_gate(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *base = rule_in(p, op, 0);
    assert(rule_alike(base, out) && rule_alike(base, rule_in(p, op, 1)));
    assert(rule_in(p, op, 2)->cols == base->cols);
}

static void scratch_gate(struct op_ask *a)
{
    ask_vectors(a, 1, 1);
}

const struct op_rule rule_gate = {
    .name = "gate",
    .n_in = 3,
    .check = check_gate,
    .reads = READS_B | READS_C,
    .joint = READS_B,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_gate,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_conditioned,
};

const struct op_rule rule_select = {
    .name = "selection",
    .n_in = 2,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .scratch = rule_scratch_rows_of,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_once,
};

const struct op_rule rule_table_add = {
    .name = "table",
    .n_in = 1,
    .check = rule_check_nothing, /* its input may be repeated in the output */
    .reads = READS_NOTHING,
    .scratch = rule_scratch_dy,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_nothing,
};
