/* schedule.c: the steps of a section, forward and backward.
 *
 * Backward runs the operations in reverse. If the backward step of an operation reads values that
 * were not kept, forward steps before it compute these values again. Each of these forward steps
 * comes after the steps that write the values it reads. A value that was computed again is usually
 * kept for later steps. But a KEEP_NEVER value that was needed only to compute another value again
 * is dropped. It is computed again right before each step that reads it. Rows that were gathered
 * from ranks are kept as well, so no rows are gathered twice in a backward pass.
 *
 * A dense MLP in pieces keeps neither the output of its first product nor the output of its
 * activation. Its forward steps are adjacent in the list, and run on one piece of the rows after
 * another. Its backward steps are also adjacent and run in this way, together with the steps that
 * compute the two values again. */
#include <string.h>
#include "api/core/assert.h"
#include "worker/program/mlp.h"
#include "worker/program/op_rules.h"

struct scheduler {
    const struct program *p;
    const struct schedule_mode *mode;
    struct schedule *s;
    bool present[PROG_VALUES]; /* set if the memory of the value has its content */
    bool flows[PROG_VALUES];   /* set if a gradient passes back through the value */
    /* set if the value's gradient, or this window of it, has been written */
    bool begun[PROG_VALUES];
};

static bool kept(const struct value *v, enum recompute_id mode)
{
    switch (v->keep) {
    case KEEP_NEVER: return false;
    case KEEP_NONE_MODE: return mode == RECOMPUTE_NONE;
    case KEEP_RING: return mode == RECOMPUTE_NONE || mode == RECOMPUTE_SELECTIVE;
    case KEEP_ALWAYS: break;
    }
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static bool in_pieces(const struct program *p, const struct schedule_mode *mode, int op)
{
    return mode->train && mode->pieces && p->has_input && p->result != PROG_NONE &&
           prog_is_mlp(p, op);
}

/* Marks the values of the MLP that begins with operation `op`, and the windows of these values.
 * The last value is not marked. Neither is the output of the last product, if an ADAPT writes the
 * last value over it. */
static void mark_values(const struct program *p, struct schedule *s, int op)
{
    const int end = op + prog_mlp(p, op), last = end - 1 - (p->op[end - 1].kind == OP_ADAPT);
    for (int v = 0; v < p->n_values; v++) {
        const int writer = prog_writer(p, v);
        s->piece[v] |= writer >= op && writer < last;
    }
}

static void mark_steps(struct step *first, int n)
{
    for (int i = 0; i < n; i++) first[i].piece = true;
    first->n_piece = n;
}

static bool is_loss(const struct program *p)
{
    return p->result == PROG_NONE;
}

/* ---- forward --------------------------------------------------------------------------------- */

static struct step forward_step(int op)
{
    return (struct step){.kind = STEP_FORWARD, .op = op, .alias = PROG_NONE};
}

static void make_forward(const struct program *p, const struct schedule_mode *mode,
                         struct schedule *s)
{
    s->n_forward = p->n_ops;
    memset(s->piece, 0, sizeof s->piece);
    for (int i = 0; i < p->n_ops; i++) s->forward[i] = forward_step(i);
    for (int i = 0; i < p->n_ops; i++) {
        if (!in_pieces(p, mode, i)) continue;
        mark_values(p, s, i);
        mark_steps(&s->forward[i], prog_mlp(p, i));
    }
}

/* ---- which gradients there are --------------------------------------------------------------- */

/* Tells whether an operation reads a trained weight, or a value through which a gradient flows. */
static bool leads_into(const struct program *p, const bool *flows, const struct op *op)
{
    bool any = prog_learns(p, op->w, op->n_w) || prog_learns(p, op->bias, op->n_bias);
    for (int k = 0; k < OP_INS; k++) any |= op->in[k] != PROG_NONE && flows[op->in[k]];
    return any;
}

static bool op_flows(const struct scheduler *w, const struct op *op)
{
    return leads_into(w->p, w->flows, op);
}

/* One pass over the values is enough, because values are in the order in which they are written,
 * and a view comes after the value of which it is a window. */
void schedule_flows(const struct program *p, bool *flows)
{
    for (int i = 0; i < p->n_values; i++) {
        const struct value *v = &p->value[i];
        const int op = prog_writer(p, i);
        if (v->view_of != PROG_NONE)
            flows[i] = flows[v->view_of] && !v->no_grad;
        else
            flows[i] = !v->no_grad && (op == PROG_NONE || leads_into(p, flows, &p->op[op]));
    }
}

/* Returns the first value that is the same window as `value`. The index of this value identifies
 * that window of the gradient. */
static int window(const struct program *p, int value)
{
    const struct value *v = &p->value[value];
    for (int i = 0; v->view_of != PROG_NONE && i < value; i++)
        if (p->value[i].view_of == v->view_of && p->value[i].view_col == v->view_col &&
            p->value[i].cols == v->cols)
            return i;
    return value;
}

/* Returns the number of columns of a value's gradient that have been written. */
static int64_t written_cols(const struct scheduler *w, int value)
{
    int64_t n = 0;
    if (w->begun[value]) return w->p->value[value].cols;
    for (int i = 0; i < w->p->n_values; i++)
        if (w->p->value[i].view_of == value && w->begun[i]) n += w->p->value[i].cols;
    return n;
}

/* ---- taking over a gradient's buffer --------------------------------------------------------- */

static bool has_windows(const struct program *p, int value)
{
    if (p->value[value].view_of != PROG_NONE) return true;
    for (int i = value + 1; i < p->n_values; i++)
        if (p->value[i].view_of == value) return true;
    return false;
}

static int alias_of(const struct scheduler *w, const struct op *op, const struct step *st)
{
    const struct program *p = w->p;
    const struct op_rule *r = op_rules[op->kind];
    const int k = r->alias ? r->alias(op) : PROG_NONE, out = op->out[0];
    if (k == PROG_NONE || !st->wanted[k] || !st->first[k]) return PROG_NONE;
    const int in = op->in[k];
    for (int j = 0; j < OP_INS; j++)
        if (j != k && op->in[j] == in) return PROG_NONE;
    if (has_windows(p, in) || p->value[in].shared || p->value[out].shared) return PROG_NONE;
    if (prog_grad_f32(p, in) != prog_grad_f32(p, out)) return PROG_NONE;
    return k;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void push(struct scheduler *w, struct step st)
{
    assert(w->s->n_backward < PROG_STEPS);
    w->s->backward[w->s->n_backward++] = st;
}

static void recompute(struct scheduler *w, int value);

/* Computes the result of an MLP in pieces again. The MLP begins with operation i. The values
 * inside the MLP are not kept. */
static void recompute_pieces(struct scheduler *w, int i)
{
    const int n = prog_mlp(w->p, i), last = i + n - 1;
    const struct op *down = &w->p->op[last - (w->p->op[last].kind == OP_ADAPT)];
    recompute(w, w->p->op[i].in[0]);
    if (down->in[1] != PROG_NONE) recompute(w, down->in[1]);
    for (int k = 0; k < n; k++) push(w, forward_step(i + k));
    mark_steps(&w->s->backward[w->s->n_backward - n], n);
    w->present[w->p->op[last].out[0]] = true;
}

static void recompute(struct scheduler *w, int value)
{
    const int v = prog_base(w->p, value);
    if (w->present[v]) return;
    const int i = prog_writer(w->p, v);
    assert(i != PROG_NONE);
    const int first = prog_mlp_ending(w->p, i);
    if (first >= 0 && in_pieces(w->p, w->mode, first)) {
        recompute_pieces(w, first);
        return;
    }
    const struct op *op = &w->p->op[i];
    for (int k = 0; k < OP_INS; k++)
        if (op->in[k] != PROG_NONE) recompute(w, op->in[k]);
    push(w, forward_step(i));
    for (int k = 0; k < OP_OUTS; k++)
        if (op->out[k] != PROG_NONE) w->present[op->out[k]] = true;
}

/* Lists the values that the backward of op reads. Returns the number of values. */
static int reads_of(const struct program *p, const struct op *op, int out[OP_INS + OP_OUTS])
{
    const unsigned bits = op_reads_back(p, op);
    int n = 0;
    for (int k = 0; k < OP_INS; k++)
        if (bits >> k & 1 && op->in[k] != PROG_NONE) out[n++] = op->in[k];
    for (int k = 0; k < OP_OUTS; k++)
        if (bits >> (OP_INS + k) & 1 && op->out[k] != PROG_NONE) out[n++] = op->out[k];
    return n;
}

/* Tells whether value v has rows that were gathered from all ranks. */
static bool is_gathered(const struct program *p, int v)
{
    const int op = prog_writer(p, v);
    return op != PROG_NONE && p->op[op].kind == OP_GATHER;
}

/* Drops KEEP_NEVER values that were computed again for a step. The dropped values were not present
 * in `before`. The values that the step reads are not dropped. If an operation writes one of these
 * values, its other results are not dropped either. */
static void drop_means(struct scheduler *w, const bool *before, const int *read, int n)
{
    const struct program *p = w->p;
    for (int v = 0; v < p->n_values; v++) {
        if (before[v] || !w->present[v] || p->value[v].keep != KEEP_NEVER) continue;
        if (w->s->piece[v] || is_gathered(p, v)) continue;
        bool wanted = false;
        for (int i = 0; i < n; i++) wanted |= prog_writer(p, read[i]) == prog_writer(p, v);
        w->present[v] = wanted;
    }
}

static void backward_of(struct scheduler *w, int i)
{
    const struct program *p = w->p;
    const struct op *op = &p->op[i];
    struct step st = {.kind = STEP_BACKWARD, .op = i};
    bool before[PROG_VALUES];
    int read[OP_INS + OP_OUTS];
    const int n = reads_of(p, op, read);
    memcpy(before, w->present, sizeof before);
    for (int k = 0; k < n; k++) recompute(w, read[k]);
    drop_means(w, before, read, n);
    for (int k = 0; k < OP_INS; k++) {
        const bool joint = p->partial && op_rules[op->kind]->joint >> k & 1;
        if (op->in[k] == PROG_NONE || !(joint || w->flows[op->in[k]])) continue;
        const int v = window(p, op->in[k]);
        st.wanted[k] = true;
        st.first[k] = !w->begun[v] && !p->value[prog_base(p, v)].shared;
        w->begun[v] = true;
    }
    st.alias = alias_of(w, op, &st);
    push(w, st);
}

/* Lists the backward of operation i, unless no gradient passes back through it. */
static void backward_at(struct scheduler *w, int i)
{
    const struct program *p = w->p;
    const struct op *op = &p->op[i];
    const int out = op->out[0];
    if (!op_flows(w, op) || (out != PROG_NONE && !w->flows[out])) return;
    if (out != PROG_NONE && !p->value[out].shared) {
        const int64_t cols = written_cols(w, out);
        if (cols == 0) return; /* no operation reads the output */
        assert(cols == p->value[out].cols);
    }
    backward_of(w, i);
}

/* Lists the backward of the MLP that begins with operation i. This needs all rows of the MLP's
 * input. If the input was not kept, it is computed again first. */
static void backward_pieces(struct scheduler *w, int i)
{
    const int x = w->p->op[i].in[0], n = prog_mlp(w->p, i);
    bool before[PROG_VALUES];
    if (!w->flows[w->p->op[i + n - 1].out[0]]) return;
    memcpy(before, w->present, sizeof before);
    recompute(w, x);
    drop_means(w, before, &x, 1);
    const int begin = w->s->n_backward;
    for (int k = n - 1; k >= 0; k--) backward_at(w, i + k);
    if (w->s->n_backward > begin) mark_steps(&w->s->backward[begin], w->s->n_backward - begin);
}

static void make_backward(const struct program *p, const struct schedule_mode *mode,
                          struct schedule *s)
{
    struct scheduler w = {.p = p, .mode = mode, .s = s};
    schedule_flows(p, w.flows);
    for (int v = 0; v < p->n_values; v++) {
        const bool given = prog_writer(p, v) == PROG_NONE;
        const bool keeps = !is_loss(p) && !s->piece[v] && kept(&p->value[v], mode->recompute);
        w.present[v] = given || p->value[v].shared || keeps;
        w.begun[v] = given && p->value[v].shared;
    }
    if (p->result != PROG_NONE) w.begun[p->result] = true;
    for (int i = p->n_ops - 1; i >= 0; i--) {
        const int first = prog_mlp_ending(p, i);
        if (first >= 0 && in_pieces(p, mode, first)) {
            backward_pieces(&w, first);
            i = first;
        } else {
            backward_at(&w, i);
        }
    }
}

void schedule_make(const struct program *p, const struct schedule_mode *mode, struct schedule *s)
{
    s->n_forward = s->n_backward = 0;
    make_forward(p, mode, s);
    if (mode->train) make_backward(p, mode, s);
}
