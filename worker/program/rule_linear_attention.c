/* rule_linear_attention.c: the rule of LINEAR_ATTENTION, with its states, its angles, and its
 * scratch for each way to compute it. */
#include <math.h>
#include "api/core/assert.h"
#include "worker/program/rule.h"

static void check_linear_attention(const struct program *p, const struct op *op,
                                   const struct value *out)
{
    const int64_t H = op->u.linear.n_heads;
    assert(rule_in(p, op, 0)->cols == H * op->u.linear.key_dim);
    assert(rule_alike(rule_in(p, op, 0), rule_in(p, op, 1)));
    assert(rule_in(p, op, 2)->cols == H * op->u.linear.value_dim);
    assert(rule_alike(rule_in(p, op, 2), out));
    if (!op->n_w) return;
    const struct weight *theta = &p->weight[op->w];
    assert(op->n_w == 1 && !op->u.linear.normalise && theta->rows == H);
    assert(2 * theta->cols == op->u.linear.key_dim);
}

/* Returns the number of angles of LRPE. */
static int64_t angles(const struct op *op)
{
    return op->n_w ? op->u.linear.n_heads * op->u.linear.key_dim / 2 : 0;
}

/* Returns the number of columns of a state. It is the number of columns of a head's value and, if
 * outputs are normalised, one more, for the sum of keys. */
static int64_t state_cols(const struct op *op)
{
    return op->u.linear.value_dim + op->u.linear.normalise;
}

/* Adds the state of each sum chunk. The states are kept, so no exchange is needed if the operation
 * is computed again. */
static int extra_linear_attention(const struct program *p, const struct op *op, struct value v[2])
{
    v[0].name = "state";
    v[0].state = true;
    v[0].cols = op->u.linear.n_heads * op->u.linear.key_dim * state_cols(op);
    v[0].keep = KEEP_ALWAYS;
    return 1;
}

static unsigned reads_linear_attention(const struct op *op)
{
    return op->u.linear.normalise ? READS_OUT : READS_NOTHING;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Asks for scratch for outputs that are divided by the sum of their weights. v and o then have one
 * more column. */
static void ask_normalised(struct op_ask *a)
{
    const int64_t T = ask_rows(a, a->op->in[0]), H = a->op->u.linear.n_heads;
    const int64_t D = a->op->u.linear.value_dim, wide = T * H * (D + 1);
    ask_bytes(a, 4 * T);
    ask_act(a, wide);
    ask_act(a, wide);
    ask_bytes(a, 4 * T * H * D);
    /* the sums, and the two arrays that divide() uses */
    for (int i = 0; i < 3; i++) ask_bytes(a, 4 * H * T);
    if (!ask_back(a)) return;
    ask_act(a, wide);
    ask_bytes(a, 4 * H * T);
    for (int64_t h = 0; h < 2 * H; h++) ask_bytes(a, 4 * T);
    ask_bytes(a, 4 * wide);
}

static void scratch_linear_attention(struct op_ask *a)
{
    /* the range of keys that new tokens see */
    if (a->x->cache_rows) ask_bytes(a, 2 * 8 * a->x->state_rows);
    if (a->op->u.linear.normalise) ask_normalised(a);
    if (!ask_back(a)) return;
    ask_dy(a);
    for (int k = 0; k < OP_INS; k++) ask_dx_new(a, k);
    if (a->op->n_w) ask_bytes(a, 4 * PROG_SUMS * angles(a->op));
}

static void need_linear_attention(const struct program *p, const struct op *op, struct op_need *n)
{
    n->state = rule_max(n->state, p->value[op->out[1]].cols);
    n->slopes = rule_max(n->slopes, op->u.linear.n_heads);
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Counts the two products that compute q k' v from the state: first k v', then q S. */
static void work_linear_attention(const struct op_site *s, struct op_work *w)
{
    const struct op *op = s->op;
    const double Dk = (double)op->u.linear.key_dim, Dv = (double)state_cols(op);
    const double rows = work_rows(s, op->out[0]), H = (double)op->u.linear.n_heads;
    work_add(w, &(struct op_term){.id = TERM_STATES,
                                  .n = 2 * rows * H * Dk * Dv * (1 + s->back),
                                  .size = sqrt(Dk * Dv)});
    /* the gradient of theta is computed row by row, with five multiply-adds for each element of k
     * v' */
    if (op->n_w && s->back)
        work_add(w, &(struct op_term){
                        .id = TERM_STATES, .n = 5 * rows * H * Dk * Dv, .size = sqrt(Dk * Dv)});
    if (op->u.linear.normalise) work_elements(w, TERM_POINT, 5 * work_size(s, op->out[0]), 1);
}

const struct op_rule rule_linear_attention = {
    .name = "linear attention",
    .n_in = 3,
    .check = check_linear_attention,
    .extra = extra_linear_attention,
    .reads = READS_A | READS_B | READS_C | READS_SECOND,
    .joint = READS_A | READS_B | READS_C,
    .reads_too = reads_linear_attention,
    .attends = true,
    .scratch = scratch_linear_attention,
    .need = need_linear_attention,
    .cache = CACHE_STATE,
    .moves = MOVES_STATES,
    .along = ALONG_SEQUENCE,
    .work = work_linear_attention,
};
