/* rule_norm.c: the rule of NORM, which is RMSNorm or LayerNorm and also writes the statistics of
 * each row. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_norm(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0);
    const int64_t groups = op->u.norm.groups, dim = op->u.norm.dim;
    assert(groups > 0 && rule_alike(a, out));
    assert(dim ? groups * dim <= a->cols : a->cols % groups == 0);
    assert(!op->u.norm.span || (groups == 1 && op->u.norm.kind == NORM_RMS && op->n_w == 1));
}

static int extra_norm(const struct program *p, const struct op *op, struct value v[2])
{
    v[0].name = "norm_stat";
    v[0].cols = op->u.norm.groups * (op->u.norm.kind == NORM_LAYER ? 2 : 1);
    v[0].keep = KEEP_NEVER;
    return 1;
}

/* Asks for room for the factors 1 + g, and for the numbers that ranks sum, one for each row. */
static void scratch_norm(struct op_ask *a)
{
    rule_scratch_rows_of(a);
    if (a->op->u.norm.span) ask_bytes(a, 4 * ask_rows(a, a->op->out[0]));
    if (a->op->u.norm.offset) ask_bytes(a, 4 * a->p->weight[a->op->w].rows);
}

static void work_norm(const struct op_site *s, struct op_work *w)
{
    work_elements(w, TERM_NORM, work_size(s, s->op->out[0]), s->back ? 2.5 : 1);
}

const struct op_rule rule_norm = {
    .name = "norm",
    .n_in = 1,
    .check = check_norm,
    .extra = extra_norm,
    .reads = READS_A | READS_SECOND,
    .reads_weights = true,
    .joint = READS_A,
    .scratch = scratch_norm,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_SPAN,
    .along = ALONG_NOTHING,
    .work = work_norm,
};
