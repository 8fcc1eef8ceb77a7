/* rule_input.c: the rules of the inputs of diffusion models: PATCH, POSITION_2D and _1D, TIMESTEP,
 * TEXT. */
#include "worker/program/rule.h"

enum { STAGE = 64 << 10 };

static void need_patch(const struct program *p, const struct op *op, struct op_need *n)
{
    n->patch = rule_max(n->patch, p->value[op->out[0]].cols);
}

const struct op_rule rule_patch = {
    .name = "patches",
    .n_in = 0,
    .check = rule_check_nothing,
    .reads = READS_NOTHING,
    .scratch = rule_scratch_nothing,
    .need = need_patch,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_nothing,
};

/* ---- sines ----------------------------------------------------------------------------------- */

int64_t rule_stage_lines(int64_t rows, int64_t cols)
{
    const int64_t n = STAGE / (4 * cols);
    return n < 1 ? 1 : n < rows ? n : rows;
}

/* Asks for room for a table that has the output's rows, and for the lines that are computed at a
 * time. */
static void scratch_position(struct op_ask *a)
{
    const int out = a->op->out[0];
    const int64_t rows = ask_rows(a, out), cols = a->p->value[out].cols;
    if (ask_back(a)) return;
    ask_bytes(a, 4 * rows * cols);
    ask_twin(a, 4 * rule_stage_lines(rows, cols) * cols);
}

static void work_position(const struct op_site *s, struct op_work *w)
{
    work_elements(w, TERM_ROTATE, work_size(s, s->op->out[0]), 1);
}

const struct op_rule rule_position_2d = {
    .name = "position in the frame",
    .n_in = 1,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_position,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_position,
};

const struct op_rule rule_position_1d = {
    .name = "position in time",
    .n_in = 1,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_position,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_position,
};

static void scratch_timestep(struct op_ask *a)
{
    if (!ask_back(a)) ask_twin(a, 4 * ask_elements(a, a->op->out[0]));
}

const struct op_rule rule_timestep = {
    .name = "time step",
    .n_in = 0,
    .check = rule_check_nothing,
    .reads = READS_NOTHING,
    .scratch = scratch_timestep,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_nothing,
};

/* ---- TEXT ------------------------------------------------------------------------------------ */

static void need_text(const struct program *p, const struct op *op, struct op_need *n)
{
    n->text = true;
}

const struct op_rule rule_text = {
    .name = "caption",
    .n_in = 0,
    .check = rule_check_nothing,
    .reads = READS_NOTHING,
    .scratch = rule_scratch_nothing,
    .need = need_text,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_nothing,
};
