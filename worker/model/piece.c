/* piece.c: limits the frame's values to one piece of rows after another, runs the steps of the MLP
 * on each piece, and adds up gradients. */
#include "worker/model/piece.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/program/mlp.h"

struct mlp_walk {
    const struct piece_walk *w;
    struct frame *f;
    const struct frame *whole; /* the frame of all rows */
    int op, n_ops;             /* the MLP's first operation, and the number of its operations */
    enum rows_id rows;
    bool back;
    bool fresh; /* the next piece writes the gradients of weights instead of adding them */
    struct program_span gradient;
};

/* ---- one piece ------------------------------------------------------------------------------- */

static struct tensor window(struct tensor t, int64_t row0, int64_t n)
{
    return t.data ? tensor_sub(t, row0, n, 0, t.cols) : t;
}

/* Limits a value to the rows of a span. Does the same for its gradient if the gradient has the
 * same rows. */
static void narrow_value(const struct mlp_walk *w, int v, struct span s)
{
    if (v == PROG_NONE) return;
    const int64_t row0 = w->w->s->piece[v] ? 0 : s.value0;
    w->f->value[v] = window(w->whole->value[v], row0, s.n);
    w->f->grad[v] = window(w->whole->grad[v], row0, s.n);
}

static void narrow(const struct mlp_walk *w, struct span s)
{
    const struct op *op = &w->f->p->op[w->op];
    for (int i = 0; i < w->n_ops; i++) {
        for (int k = 0; k < OP_INS; k++) narrow_value(w, op[i].in[k], s);
        narrow_value(w, op[i].out[0], s);
    }
    w->f->rows[w->rows] = (struct frame_rows){s.n, s.n};
    w->f->piece_row = s.value0;
    w->f->parts = 1;
    w->f->tree = false;
    w->f->fresh = w->fresh;
}

/* Tells whether this piece is left out by the fault MUTANT_PIECE_LOST. The fault leaves out the
 * last piece of backward on all ranks except the first. */
static bool left_out(const struct mlp_walk *w, struct span s)
{
    const int in = w->f->p->op[w->op].in[0];
    if (!mutant_on(MUTANT_PIECE_LOST) || !w->back || !w->f->sp->shard.r) return false;
    if (s.value0 + s.n < w->whole->rows[w->rows].n) return false;
    if (!w->w->s->piece[in] && w->w->first[w->w->first->n_piece - 1].first[0])
        frame_zero(w->f, w->f->grad[in]);
    return true;
}

static int run_piece(struct mlp_walk *w, struct span s, struct err *e)
{
    narrow(w, s);
    if (left_out(w, s)) return 0;
    for (int i = 0; i < w->w->first->n_piece; i++)
        if (w->w->run(w->w->arg, i, e)) return -1;
    w->fresh = false;
    return 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int run_span(struct mlp_walk *w, int i, struct err *e)
{
    const struct span s = frame_span(w->whole, w->rows, i);
    for (int64_t at = 0; at < s.n; at += w->w->chunk) {
        const int64_t n = at + w->w->chunk < s.n ? w->w->chunk : s.n - at;
        if (run_piece(w, (struct span){s.value0 + at, s.grad0 + at, n}, e)) return -1;
    }
    return 0;
}

/* If `from` is NULL, clears the gradients of weights [first, first + n) in dst. Otherwise adds
 * `from` to them. */
static void sum_weights(const struct mlp_walk *w, int first, int n, float *dst, const float *from)
{
    const struct be_ops *ops = w->f->be->ops;
    for (int i = first; i < first + n; i++) {
        if (!frame_learns(w->f, i)) continue;
        const struct tensor t = frame_weight(w->f, i, 1);
        const int64_t at = w->f->p->weight[i].offset - w->gradient.begin, size = t.rows * t.cols;
        if (from)
            ops->add(w->f->be, &(struct add_args){.y = dst + at, .x = from + at, .n = size});
        else
            ops->fill(w->f->be, dst + at, size, 0);
    }
}

static void sum_gradients(const struct mlp_walk *w, float *dst, const float *from)
{
    const struct op *op = &w->f->p->op[w->op];
    for (int i = 0; i < w->n_ops; i++) {
        sum_weights(w, op[i].w, op[i].n_w, dst, from);
        sum_weights(w, op[i].bias, op[i].n_bias, dst, from);
    }
}

/* Clears the gradients if there was no piece, because then no step has written them. */
static void clear_rest(struct mlp_walk *w, float *dst)
{
    if (w->fresh) sum_gradients(w, dst, NULL);
    w->fresh = false;
}

/* Runs `count` sum chunks, beginning with chunk `first`, as sum_range() of op.c does. count is a
 * power of two. The gradients of the MLP's weights (w->gradient) are written to dst. */
static int run_tree(struct mlp_walk *w, int first, int count, float *dst, int level, struct err *e)
{
    struct frame *f = w->f;
    if (count == 1) {
        f->weights_grad = dst - w->gradient.begin;
        w->fresh = true;
        if (run_span(w, first, e)) return -1;
        clear_rest(w, dst);
        return 0;
    }
    float *right = f->tree_room + level * f->tree_stride;
    assert(w->gradient.end - w->gradient.begin <= f->tree_stride);
    if (run_tree(w, first, count / 2, dst, level + 1, e) ||
        run_tree(w, first + count / 2, count / 2, right, level + 1, e))
        return -1;
    sum_gradients(w, dst, right);
    return 0;
}

static int run_all(struct mlp_walk *w, struct err *e)
{
    float *dst = w->back ? w->whole->weights_grad + w->gradient.begin : NULL;
    if (w->back && w->whole->tree) return run_tree(w, 0, w->whole->parts, dst, 0, e);
    w->fresh = w->back && w->whole->fresh;
    for (int i = 0; i < w->whole->parts; i++)
        if (run_span(w, i, e)) return -1;
    clear_rest(w, dst);
    return 0;
}

int piece_walk(struct frame *f, const struct piece_walk *walk, struct err *e)
{
    const struct frame whole = *f;
    struct mlp_walk w = {.w = walk, .f = f, .whole = &whole, .op = walk->first->op};
    for (int i = 0; i < walk->first->n_piece; i++) {
        if (walk->first[i].op < w.op) w.op = walk->first[i].op;
        w.back |= walk->first[i].kind == STEP_BACKWARD;
    }
    /* Backward may have no step of the MLP's first operations, if nothing of them is trained. */
    for (int k = 1; k < MLP_OPS_MAX && w.op > 0 && !prog_is_mlp(f->p, w.op); k++) w.op--;
    w.n_ops = prog_mlp(f->p, w.op);
    assert(walk->chunk > 0 && w.n_ops > 0);
    w.rows = frame_rows_of(f, f->p->op[w.op].in[0]);
    w.gradient = prog_mlp_weights(f->p, w.op);
    const int rc = run_all(&w, e);
    *f = whole;
    return rc;
}
