/* op_rules.c: the table of rules, with one row for each kind of operation. Its functions read from
 * a row the values that backward reads, the scratch of a step, the shared buffers and the work. */
#include "worker/program/op_rules.h"

#include "api/core/assert.h"

#define OP_ROW(kind, name) [kind] = &rule_##name,
const struct op_rule *const op_rules[] = {OPERATORS(OP_ROW)};
#undef OP_ROW
static_assert(sizeof op_rules / sizeof *op_rules == OP_KIND_N, "a rule for every operator");

/* ---- values ---------------------------------------------------------------------------------- */

unsigned op_reads_back(const struct program *p, const struct op *op)
{
    const struct op_rule *r = op_rules[op->kind];
    const unsigned reads = r->reads | (r->reads_too ? r->reads_too(op) : READS_NOTHING);
    return p->partial && !prog_learns(p, op->w, op->n_w) ? reads & ~r->reads_to_learn : reads;
}

bool op_finds_kept(const struct program *p, const struct op *op)
{
    return op->out[1] != PROG_NONE && p->value[op->out[1]].keep == KEEP_ALWAYS;
}

/* ---- scratch --------------------------------------------------------------------------------- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t op_extent_piece(const struct extent *x, enum rows_id rows)
{
    return least(x->mlp_chunk, x->rows[rows]);
}

static struct op_ask ask(const struct program *p, const struct step *s, const struct extent *x)
{
    struct extent piece = *x;
    struct op_ask a = {.p = p, .s = s, .op = &p->op[s->op], .x = s->piece ? &piece : x};
    for (int i = 0; i < ROWS_N; i++) piece.rows[i] = op_extent_piece(x, (enum rows_id)i);
    op_rules[a.op->kind]->scratch(&a);
    a.x = x;
    return a;
}

int64_t op_scratch(const struct program *p, const struct step *s, const struct extent *x)
{
    return ask(p, s, x).total;
}

int64_t op_stage(const struct program *p, const struct step *s, const struct extent *x)
{
    return ask(p, s, x).staged;
}

/* ---- buffers that operations share ----------------------------------------------------------- */

static int64_t weights_size(const struct program *p, int w, int n)
{
    int64_t rows = 0;
    if (w < 0) return 0;
    for (int i = w; i < w + n; i++) rows += p->weight[i].rows;
    return rows * (p->weight[w].cols > 1 ? p->weight[w].cols : 1);
}

static void raise(int64_t *most, int64_t n)
{
    if (n > *most) *most = n;
}

void op_needs(const struct program *p, const struct op *op, struct op_need *n)
{
    const struct op_rule *r = op_rules[op->kind];
    const bool learns = !p->partial || prog_learns(p, op->w, op->n_w);
    const bool of_bias = p->partial && prog_learns(p, op->bias, op->n_bias);
    if (r->gradient && (learns || of_bias)) raise(&n->gradient, r->gradient(p, op));
    if (!r->gradient && learns) raise(&n->gradient, weights_size(p, op->w, op->n_w));
    if (of_bias) raise(&n->gradient, weights_size(p, op->bias, op->n_bias));
    r->need(p, op, n);
}

/* ---- work ------------------------------------------------------------------------------------ */

void op_work(const struct op_site *s, struct op_work *out)
{
    out->n = 0;
    op_rules[s->op->kind]->work(s, out);
}

double op_products(const struct op_site *s)
{
    struct op_site forward = *s;
    struct op_work w;
    double n = 0;
    forward.back = false;
    op_work(&forward, &w);
    for (int i = 0; i < w.n; i++)
        if (w.term[i].id <= TERM_STATES && !w.term[i].beside) n += w.term[i].n;
    return n;
}
