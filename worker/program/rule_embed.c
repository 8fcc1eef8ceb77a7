/* rule_embed.c: the rules of EMBED and EMBED_ADD. EMBED reads a row of a table for each token.
 * EMBED_ADD adds rows of a table to a value. */
#include "worker/program/rule.h"

/* Asks for room for the noise of some rows, which the host draws, and for these rows in fp32. */
static void scratch_embed(struct op_ask *a)
{
    const int64_t size = 4 * NOISE_ROWS * a->p->value[a->op->out[0]].cols;
    ask_dy(a);
    if (!a->x->noise || ask_back(a)) return;
    ask_twin(a, size);
    ask_bytes(a, size);
}

const struct op_rule rule_embed = {
    .name = "embedding",
    .n_in = 0,
    .check = rule_check_nothing,
    .reads = READS_NOTHING,
    .scratch = scratch_embed,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_once,
};

/* Asks for room for the indices of the table's rows, and for the rows that are added. */
static void scratch_embed_add(struct op_ask *a)
{
    const int64_t rows = ask_rows(a, a->op->out[0]);
    ask_twin(a, 4 * rule_max(rows, a->x->rows[ROWS_T]));
    if (ask_back(a))
        ask_dy(a);
    else
        ask_act(a, ask_elements(a, a->op->out[0]));
}

static void need_embed_add(const struct program *p, const struct op *op, struct op_need *n)
{
    n->types |= op->u.embed.index == INDEX_TYPE;
}

const struct op_rule rule_embed_add = {
    .name = "added embedding",
    .n_in = 1,
    .check = rule_check_alike,
    .reads = READS_NOTHING,
    .over = READS_A,
    .alias = rule_alias_first,
    .scratch = scratch_embed_add,
    .need = need_embed_add,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_BATCH,
    .work = work_once,
};
