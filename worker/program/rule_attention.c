/* rule_attention.c: the rules of ATTENTION and CROSS. ATTENTION is over the sequence, or over a
 * dimension that is whole on the rank. CROSS attends to the conditioning text. */
#include "api/core/assert.h"
#include "worker/program/rule.h"

static bool over_sequence(const struct op *op)
{
    return op->kind == OP_ATTENTION && op->u.attn.dim < 0;
}

static void check_attention(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *q = rule_in(p, op, 0), *kv = rule_in(p, op, 1);
    const int64_t H = op->u.attn.n_heads, Hk = op->u.attn.n_kv_heads, D = op->u.attn.head_dim;
    assert(q->cols == H * D && kv->cols == 2 * Hk * D && out->cols == H * D);
    assert(Hk > 0 && H % Hk == 0 && (op->kind == OP_CROSS || q->rows == kv->rows));
    if (op->n_w == 0) return;
    assert(op->n_w == 1 && p->weight[op->w].rows == H && !p->weight[op->w].cols);
    assert(over_sequence(op));
}

/* Describes the log-sum-exp of each head, which backward needs. For attention over the sequence,
 * it also describes the memory that the strategy needs in backward. Most strategies need none. */
static int extra_attention(const struct program *p, const struct op *op, struct value v[2])
{
    v[0].name = op->kind == OP_CROSS ? "cross_lse" : "attn_lse";
    v[0].cols = op->u.attn.n_heads;
    v[0].keep = v[1].keep = KEEP_RING;
    v[1].name = "attn_kept";
    v[1].cols = 1;
    v[1].form = true;
    return over_sequence(op) ? 2 : 1;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Asks for the scratch of attention over the sequence. With a window, this is room for the first
 * key of each row. If rows look both ways, there is also room for the end of each row's keys. If
 * the operation reads the ranges of all rows of the group, each of these rows needs as much
 * room. */
static void ask_sequence(struct op_ask *a)
{
    const int64_t T = ask_rows(a, a->op->in[0]);
    const int n = a->op->u.attn.window <= 0 ? 0 : a->op->u.attn.causal ? 1 : 2;
    for (int i = 0; i < n; i++) {
        ask_twin(a, 8 * T);
        if (a->x->ranges) ask_twin(a, 8 * a->x->ranges * T);
    }
    if (!ask_back(a)) {
        if (ask_narrow(a)) ask_bytes(a, 4 * ask_elements(a, a->op->in[0]));
        return;
    }
    ask_dx_new(a, 0);
    ask_dx_new(a, 1);
    ask_dy(a);
    if (a->op->n_w) ask_bytes(a, 4 * PROG_SUMS * a->op->u.attn.n_heads);
}

/* Asks for scratch for rows that all see the same keys. `rows` rows are processed at a time. */
static void ask_whole(struct op_ask *a, int64_t rows)
{
    const int64_t H = a->op->u.attn.n_heads;
    ask_bytes(a, 8 * rows);
    ask_bytes(a, 8 * rows);
    ask_bytes(a, 4 * H * rows);
    if (!ask_back(a)) {
        if (ask_narrow(a)) ask_bytes(a, 4 * rows * H * a->op->u.attn.head_dim);
        return;
    }
    ask_dy(a);
    ask_dx_new(a, 0);
    ask_dx_new(a, 1);
}

static void scratch_attention(struct op_ask *a)
{
    if (over_sequence(a->op))
        ask_sequence(a);
    else
        ask_whole(a, a->x->grid[a->op->u.attn.dim]);
}

static void scratch_cross(struct op_ask *a)
{
    ask_whole(a, ask_rows(a, a->op->in[0]));
}

static void need_attention(const struct program *p, const struct op *op, struct op_need *n)
{
    if (!over_sequence(op)) return;
    n->kv = rule_max(n->kv, 2 * op->u.attn.n_kv_heads * op->u.attn.head_dim);
    n->heads = rule_max(n->heads, op->u.attn.n_heads);
    n->head_dim = rule_max(n->head_dim, op->u.attn.head_dim);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Counts the pairs of a query and a key that the query sees, each pair twice: for the product with
 * keys, and for the product with values. A causal row sees half of the sequence or, with a window,
 * a band of it. A row that looks both ways sees the whole sequence or, with a window, two bands of
 * it. */
static double pairs(const struct op_site *s)
{
    const struct op *op = s->op;
    const double S = s->S;
    if (op->kind == OP_CROSS) return 2 * S * s->rows[ROWS_TEXT];
    if (op->u.attn.dim >= 0) return 2 * S * s->grid[op->u.attn.dim];
    const double window = (double)op->u.attn.window, W = window > 0 && window < S ? window : S;
    return 2 * (op->u.attn.causal ? S * W - W * W / 2 : 2 * S * W - W * W);
}

static double keys_of(const struct op_site *s)
{
    if (s->op->kind == OP_CROSS) return s->rows[ROWS_TEXT];
    return over_sequence(s->op) ? s->rows[ROWS_T] : s->grid[s->op->u.attn.dim];
}

static void work_attention(const struct op_site *s, struct op_work *w)
{
    const struct op *op = s->op;
    const double HD = (double)(op->u.attn.n_heads * op->u.attn.head_dim), keys = keys_of(s);
    if (keys <= 0) return;
    work_add(w, &(struct op_term){.id = TERM_ATTENTION,
                                  .n = pairs(s) * HD * (1 + s->back),
                                  .keys = keys,
                                  .size = (double)op->u.attn.head_dim,
                                  .uneven = over_sequence(op)});
    work_elements(w, TERM_POINT, (1 + s->back) * work_size(s, op->out[0]), 1);
}

const struct op_rule rule_attention = {
    .name = "attention",
    .n_in = 2,
    .check = check_attention,
    .extra = extra_attention,
    .reads = READS_A | READS_B | READS_OUT | READS_SECOND | READS_THIRD,
    .reads_weights = true,
    .attends = true,
    .joint = READS_A | READS_B,
    .scratch = scratch_attention,
    .need = need_attention,
    .cache = CACHE_ROWS,
    .moves = MOVES_KEYS,
    .along = ALONG_DIM,
    .work = work_attention,
};

const struct op_rule rule_cross = {
    .name = "cross-attention",
    .n_in = 2,
    .check = check_attention,
    .extra = extra_attention,
    .reads = READS_A | READS_B | READS_OUT | READS_SECOND,
    .attends = true,
    .joint = READS_A | READS_B,
    .scratch = scratch_cross,
    .need = rule_need_nothing,
    .cache = CACHE_NOTHING,
    .moves = MOVES_NOTHING,
    .along = ALONG_NOTHING,
    .work = work_attention,
};
