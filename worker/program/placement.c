/* placement.c: the places of values, gradients and scratch of a section.
 *
 * Time is counted in steps. The steps of the forward list come first, and then the steps of the
 * backward list. If the contents of two buffers are needed at the same step, the buffers must not
 * share bytes. Each value, each gradient and the scratch of each step is a node. The life of a
 * node is the set of steps at which its contents are needed. If an operation computes one node in
 * the place of a second node, the two nodes are joined into one. If steps run piece by piece, all
 * of them run again for the next piece of rows, so a node that has all rows lives through all of
 * them. The nodes that live from forward into backward form the record of the layer. All other
 * nodes are placed in the workspace one by one. The largest node comes first, and each node gets
 * the lowest free place. */
#include <string.h>
#include "api/core/assert.h"
#include "worker/program/op_rules.h"
#include "worker/program/placement.h"

enum {
    ALIGN = 64, /* bytes; the same as MEM_ALIGN of api/core/mem.h */
    STEPS = PROG_OPS + PROG_STEPS,
    WORDS = (STEPS + 63) / 64,
    /* Indices of nodes. The values come first, then their gradients, then the scratch of each
     * step, and then the logits. */
    GRAD = PROG_VALUES,
    SCRATCH = 2 * PROG_VALUES,
    LOGITS = SCRATCH + STEPS,
    NODES = LOGITS + 1
};

struct life {
    uint64_t word[WORDS];
};

struct placed_node {
    struct life life;
    int64_t size;
    /* node to which this node is joined; its own index if it is not joined to another node */
    int joined;
    int64_t offset;
    bool input, result,
        shared;   /* is in a residual stream before or after the section, or is a shared value */
    bool crosses; /* lives from forward into backward */
    bool cached;
};

struct section_placer {
    const struct program *p;
    const struct schedule *s;
    const struct extent *x;
    struct placed_node node[NODES];
    /* last step that wrote each value; -1 if no step of the section writes it */
    int written[PROG_VALUES];
    int n_steps;
};

static int64_t rounded(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- sets of steps --------------------------------------------------------------------------- */

static void life_add(struct life *l, int from, int to)
{
    for (int t = from; t <= to; t++) l->word[t / 64] |= (uint64_t)1 << t % 64;
}

static bool lives(const struct life *l, int t)
{
    return l->word[t / 64] >> t % 64 & 1;
}

static bool is_empty(const struct life *l)
{
    uint64_t any = 0;
    for (int i = 0; i < WORDS; i++) any |= l->word[i];
    return !any;
}

static bool meet(const struct life *a, const struct life *b)
{
    for (int i = 0; i < WORDS; i++)
        if (a->word[i] & b->word[i]) return true;
    return false;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static int root(const struct section_placer *b, int n)
{
    while (b->node[n].joined != n) n = b->node[n].joined;
    return n;
}

static void join(struct section_placer *b, int to, int from)
{
    struct placed_node *a = &b->node[root(b, to)], *c = &b->node[root(b, from)];
    if (a == c) return;
    for (int i = 0; i < WORDS; i++) a->life.word[i] |= c->life.word[i];
    if (c->size > a->size) a->size = c->size;
    a->crosses |= c->crosses;
    a->input |= c->input;
    a->result |= c->result;
    a->shared |= c->shared;
    c->joined = (int)(a - b->node);
}

static int64_t wide(const struct extent *x)
{
    return x->unit == 8 ? 8 : 4;
}

static int64_t rows_of(const struct section_placer *b, int v)
{
    const enum rows_id rows = b->p->value[v].rows;
    return b->s->piece[v] ? op_extent_piece(b->x, rows) : b->x->rows[rows];
}

static int64_t value_size(const struct section_placer *b, int v)
{
    const struct value *w = &b->p->value[v];
    const int64_t rows = w->state ? b->x->parts : rows_of(b, v);
    if (w->form) return b->x->attn_kept;
    return rows * w->cols * (w->f32 ? wide(b->x) : b->x->unit);
}

static int64_t grad_size(const struct section_placer *b, int v)
{
    const struct value *w = &b->p->value[v];
    const bool apart = w->rows == ROWS_TEXT || w->rows == ROWS_COND;
    return rows_of(b, v) * w->cols * (apart ? b->x->parts : 1) *
           (prog_grad_f32(b->p, v) ? wide(b->x) : b->x->unit);
}

static void init_nodes(struct section_placer *b)
{
    memset(b->node, 0, sizeof b->node);
    for (int i = 0; i < NODES; i++) b->node[i].joined = i;
    for (int v = 0; v < b->p->n_values; v++) {
        b->written[v] = -1;
        if (b->p->value[v].view_of != PROG_NONE) continue;
        b->node[v].size = value_size(b, v);
        b->node[GRAD + v].size = grad_size(b, v);
        if (b->p->value[v].shared) b->node[v].shared = b->node[GRAD + v].shared = true;
    }
    if (b->p->has_input) b->node[PROG_X].input = b->node[GRAD + PROG_X].input = true;
    const int out = b->p->result;
    if (out != PROG_NONE) b->node[out].result = b->node[GRAD + out].result = true;
}

/* ---- lives ----------------------------------------------------------------------------------- */

static void reads(struct section_placer *b, int value, int t)
{
    const int v = prog_base(b->p, value), from = b->written[v];
    life_add(&b->node[v].life, from < 0 ? 0 : from, t);
    if (from >= 0 && from < b->s->n_forward && t >= b->s->n_forward) b->node[v].crosses = true;
}

static void writes(struct section_placer *b, int value, int t)
{
    b->written[value] = t;
    life_add(&b->node[value].life, t, t);
}

/* Adds a forward step to the lives of its values. If the step computes an operation again, it
 * reads the states that the first run of the operation made. */
static void live_forward(struct section_placer *b, const struct op *op, int t)
{
    for (int k = 0; k < OP_INS; k++)
        if (op->in[k] != PROG_NONE) reads(b, op->in[k], t);
    for (int k = 0; k < OP_OUTS; k++) {
        if (op->out[k] == PROG_NONE) continue;
        if (k == 1 && op_finds_kept(b->p, op) && t >= b->s->n_forward)
            reads(b, op->out[k], t);
        else
            writes(b, op->out[k], t);
    }
}

/* Adds a backward step to the lives of its values and gradients. A gradient is first needed in
 * the step that writes it first. It is last needed in the backward step of the operation that
 * wrote the value. */
static void live_backward(struct section_placer *b, const struct step *st, int t)
{
    const struct op *op = &b->p->op[st->op];
    const unsigned bits = op_reads_back(b->p, op);
    for (int k = 0; k < OP_INS; k++) {
        if (op->in[k] == PROG_NONE) continue;
        if (bits >> k & 1) reads(b, op->in[k], t);
        if (!st->wanted[k]) continue;
        const int v = prog_base(b->p, op->in[k]), writer = prog_writer(b->p, v);
        struct life *g = &b->node[GRAD + v].life;
        int end = b->n_steps - 1;
        for (int i = t; writer != PROG_NONE && i < b->n_steps; i++) {
            const struct step *s = &b->s->backward[i - b->s->n_forward];
            if (s->kind == STEP_BACKWARD && s->op == writer) end = i;
        }
        life_add(g, t, end);
    }
    for (int k = 0; k < OP_OUTS; k++)
        if (op->out[k] != PROG_NONE && bits >> (OP_INS + k) & 1) reads(b, op->out[k], t);
    if (op->out[0] != PROG_NONE && op->out[0] == b->p->result)
        life_add(&b->node[GRAD + op->out[0]].life, b->s->n_forward, t);
}

static void find_lives(struct section_placer *b)
{
    const int nf = b->s->n_forward;
    b->n_steps = nf + b->s->n_backward;
    for (int t = 0; t < b->n_steps; t++) {
        const struct step *st = t < nf ? &b->s->forward[t] : &b->s->backward[t - nf];
        if (st->kind == STEP_FORWARD)
            live_forward(b, &b->p->op[st->op], t);
        else
            live_backward(b, st, t);
        b->node[SCRATCH + t].size = op_scratch(b->p, st, b->x);
        life_add(&b->node[SCRATCH + t].life, t, t);
        if (!op_rules[b->p->op[st->op].kind]->logits || b->x->logits_apart) continue;
        b->node[LOGITS].size = b->x->loss_chunk * b->x->vocab * 4;
        life_add(&b->node[LOGITS].life, t, t);
    }
    /* Keeps the result up to the last step. A training keeps every residual stream anyway. */
    const int out = b->p->result;
    if (b->x->train && b->p->has_input) life_add(&b->node[PROG_X].life, 0, b->n_steps - 1);
    if (out != PROG_NONE)
        life_add(&b->node[out].life, b->x->train ? 0 : b->written[out], b->n_steps - 1);
}

static const struct step *step_at(const struct section_placer *b, int t)
{
    const int nf = b->s->n_forward;
    return t < nf ? &b->s->forward[t] : &b->s->backward[t - nf];
}

/* Extends lives in dense MLPs that run piece by piece. If a node has all rows, it lives through
 * all steps of the MLP, because they run again for the next piece. Lives are extended after nodes
 * have been joined, because joining is decided for one piece. */
static void extend_lives(struct section_placer *b)
{
    for (int t = 0; t < b->n_steps; t++) {
        const int n = step_at(b, t)->n_piece;
        for (int k = 0; n > 0 && k < SCRATCH; k++) {
            struct life *l = &b->node[k].life;
            bool any = false;
            for (int i = t; i < t + n; i++) any |= lives(l, i);
            if (any && !b->s->piece[k % PROG_VALUES]) life_add(l, t, t + n - 1);
        }
    }
}

/* ---- in place -------------------------------------------------------------------------------- */

/* Tells whether nodes x and y may be joined. They must have the same size. They may live at the
 * same time only in steps that run the operation of `run` in the same direction as `run`. */
static bool may_join(const struct section_placer *b, int x, int y, const struct step *run)
{
    const struct placed_node *a = &b->node[root(b, x)], *c = &b->node[root(b, y)];
    if (a->shared || c->shared || b->node[x].size != b->node[y].size) return false;
    for (int t = 0; t < b->n_steps; t++) {
        const struct step *st = step_at(b, t);
        if (st->kind == run->kind && st->op == run->op) continue;
        if (lives(&a->life, t) && lives(&c->life, t)) return false;
    }
    return true;
}

/* Tells whether no step reads the content of an operation's input after the operation has run. A
 * step may read the output, which has overwritten the input. */
static bool ends_with(const struct section_placer *b, int in, int op)
{
    const struct placed_node *a = &b->node[root(b, in)];
    for (int t = 0; t + 1 < b->n_steps; t++) {
        const struct step *st = step_at(b, t);
        if (st->kind == STEP_FORWARD && st->op == op && lives(&a->life, t + 1)) return false;
    }
    return true;
}

static void join_forward(struct section_placer *b)
{
    for (int i = 0; i < b->s->n_forward; i++) {
        const struct step *st = &b->s->forward[i];
        const struct op *op = &b->p->op[st->op];
        for (int k = 0; k < OP_INS; k++) {
            const int in = op->in[k];
            if (!(op_rules[op->kind]->over >> k & 1) || in == PROG_NONE) continue;
            if (b->p->value[in].view_of != PROG_NONE) continue;
            if (!ends_with(b, in, st->op) || !may_join(b, in, op->out[0], st)) continue;
            join(b, in, op->out[0]);
            break;
        }
    }
}

/* Joins gradients with the values over which backward may write them (GLU). Each of these values
 * is a whole input, or the values are two windows of one value. */
static void join_over_values(struct section_placer *b, const struct step *st)
{
    const struct op *op = &b->p->op[st->op];
    const int x = prog_base(b->p, op->in[0]), y = prog_base(b->p, op->in[1]);
    const int64_t cols = b->p->value[op->in[0]].cols + b->p->value[op->in[1]].cols;
    if (op->in[0] == op->in[1]) return;
    if (x == y) {
        const bool both = st->wanted[0] && st->wanted[1] && st->first[0] && st->first[1];
        if (both && cols == b->p->value[x].cols && may_join(b, x, GRAD + x, st))
            join(b, x, GRAD + x);
        return;
    }
    for (int k = 0; k < 2; k++) {
        const int v = op->in[k];
        if (b->p->value[v].view_of != PROG_NONE || !st->wanted[k] || !st->first[k]) continue;
        if (may_join(b, v, GRAD + v, st)) join(b, v, GRAD + v);
    }
}

static void join_gradients(struct section_placer *b)
{
    for (int i = 0; i < b->s->n_backward; i++) {
        const struct step *st = &b->s->backward[i];
        const struct op *op = &b->p->op[st->op];
        if (st->kind != STEP_BACKWARD) continue;
        if (st->alias != PROG_NONE) {
            const int from = GRAD + op->in[st->alias], to = GRAD + op->out[0];
            assert(may_join(b, to, from, st));
            join(b, to, from);
        }
        if (op_rules[op->kind]->over_inputs) join_over_values(b, st);
    }
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool in_work(const struct section_placer *b, int n)
{
    const struct placed_node *a = &b->node[n];
    return a->joined == n && a->size > 0 && !is_empty(&a->life) && !a->input && !a->result &&
           !a->shared && !a->crosses && !a->cached;
}

/* Returns the lowest place for node n. It must not overlap a placed node that lives at the same
 * time. */
static int64_t lowest(const struct section_placer *b, int n, const int *placed, int n_placed)
{
    int64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n_placed; i++) {
            const struct placed_node *a = &b->node[placed[i]];
            if (!meet(&a->life, &b->node[n].life)) continue;
            if (at + b->node[n].size <= a->offset || a->offset + a->size <= at) continue;
            at = rounded(a->offset + a->size);
            moved = true;
        }
    }
    return at;
}

static int largest(const struct section_placer *b, const bool *done)
{
    int best = -1;
    for (int n = 0; n < NODES; n++)
        if (!done[n] && in_work(b, n) && (best < 0 || b->node[n].size > b->node[best].size))
            best = n;
    return best;
}

static int64_t fill_work(struct section_placer *b)
{
    bool done[NODES] = {false};
    int placed[NODES], n_placed = 0;
    int64_t size = 0;
    for (int n; (n = largest(b, done)) >= 0;) {
        struct placed_node *a = &b->node[n];
        a->offset = lowest(b, n, placed, n_placed);
        placed[n_placed++] = n;
        done[n] = true;
        if (rounded(a->offset + a->size) > size) size = rounded(a->offset + a->size);
    }
    return size;
}

static int64_t fill_records(struct section_placer *b, bool cached)
{
    int64_t at = 0;
    for (int n = 0; n < SCRATCH; n++) {
        struct placed_node *a = &b->node[n];
        if (a->joined != n || a->input || a->result || a->shared) continue;
        if (cached ? !a->cached : !a->crosses || a->cached) continue;
        a->offset = at;
        at += rounded(a->size);
    }
    return at;
}

static int shared_number(const struct program *p, int value)
{
    for (int k = 0; k < p->n_shared; k++)
        if (p->shared[k] == value) return k;
    assert(!"a shared value");
    return 0;
}

static struct place shared_place(const struct section_placer *b, int n, int value)
{
    const struct value *v = &b->p->value[value];
    if (n >= GRAD && (!b->x->train || v->no_grad)) return (struct place){.where = PLACE_NONE};
    return (struct place){PLACE_SHARED, shared_number(b->p, value), 0, b->node[n].size};
}

static struct place place_of(const struct section_placer *b, int n, int value)
{
    const struct placed_node *a = &b->node[root(b, n)];
    struct place at = {PLACE_WORK, 0, a->offset, b->node[n].size};
    if (a->shared) return shared_place(b, n, value);
    if (is_empty(&b->node[n].life) || (b->p->value[value].form && !b->node[n].size))
        return (struct place){.where = PLACE_NONE};
    if (a->cached) {
        at.where = PLACE_CACHE;
    } else if (a->input || a->result) {
        const bool before = b->p->has_input && value == PROG_X;
        at.where = before || !a->result ? PLACE_INPUT : PLACE_RESULT;
        at.offset = 0;
    } else if (a->crosses) {
        at.where = PLACE_KEPT;
    }
    return at;
}

/* Returns the place of a view. `base` is the place of the value of which it is a window. */
static struct place window_of(const struct program *p, int v, struct place base, int64_t element)
{
    if (base.where != PLACE_NONE) base.offset += p->value[v].view_col * element;
    return base;
}

static void write_places(const struct section_placer *b, struct placement *out)
{
    const struct program *p = b->p;
    for (int v = 0; v < p->n_values; v++) {
        const int of = p->value[v].view_of;
        if (of == PROG_NONE) {
            out->value[v] = place_of(b, v, v);
            out->grad[v] = place_of(b, GRAD + v, v);
            continue;
        }
        const int64_t grad = prog_grad_f32(p, of) ? wide(b->x) : b->x->unit;
        const int64_t value = p->value[of].f32 ? wide(b->x) : b->x->unit;
        out->value[v] = window_of(p, v, out->value[of], value);
        out->grad[v] = window_of(p, v, out->grad[of], grad);
    }
    if (b->node[LOGITS].size)
        out->logits = (struct place){PLACE_WORK, 0, b->node[LOGITS].offset, b->node[LOGITS].size};
    for (int t = 0; t < b->n_steps; t++) {
        const int nf = b->s->n_forward;
        int64_t *at = t < nf ? &out->scratch_forward[t] : &out->scratch_backward[t - nf];
        *at = b->node[SCRATCH + t].offset;
    }
}

/* Tells whether the streams before and after the section can use one buffer, because no step needs
 * both. */
static bool one_serves(const struct section_placer *b, int x, int y)
{
    const struct placed_node *a = &b->node[root(b, x)], *c = &b->node[root(b, y)];
    return a == c || !meet(&a->life, &c->life);
}

static void find_caches(struct section_placer *b)
{
    for (int i = 0; b->x->cache_rows && i < b->p->n_ops; i++) {
        const struct op *op = &b->p->op[i];
        if (op_rules[op->kind]->cache != CACHE_ROWS || !op->u.attn.causal) continue;
        const struct value *kv = &b->p->value[op->in[1]];
        assert(kv->view_of == PROG_NONE);
        struct placed_node *a = &b->node[root(b, op->in[1])];
        assert(!a->input && !a->result);
        a->cached = true;
        a->size = b->node[op->in[1]].size = b->x->n_caches * b->x->cache_rows * kv->cols *
                                            b->x->unit;
    }
}

int64_t placement_state_stride(const struct place *state)
{
    return rounded(state->size);
}

int64_t placement_state_count(const struct program *p, int op)
{
    const struct op *o = &p->op[op];
    return op_rules[o->kind]->cache == CACHE_STATE ? p->value[o->out[1]].cols : 0;
}

int64_t placement_states_size(const struct program *p)
{
    int64_t size = 0;
    for (int i = 0; i < p->n_ops; i++) size += rounded(4 * placement_state_count(p, i));
    return size;
}

/* Places the states after the context. In the cache record, they come after the keys and
 * values. */
static void place_states(const struct section_placer *b, struct placement *out)
{
    for (int i = 0; i < b->p->n_ops; i++) {
        const int64_t size = placement_state_count(b->p, i) * wide(b->x);
        out->state[i] = (struct place){.where = PLACE_NONE};
        if (!size || !b->x->cache_rows) continue;
        out->state[i] = (struct place){PLACE_CACHE, 0, out->cache_size, size};
        out->cache_size += b->x->n_states * placement_state_stride(&out->state[i]);
    }
}

void placement_make(const struct program *p, const struct schedule *s, const struct extent *x,
                    struct placement *out)
{
    struct section_placer b = {.p = p, .s = s, .x = x};
    memset(out, 0, sizeof *out);
    init_nodes(&b);
    find_lives(&b);
    join_forward(&b);
    join_gradients(&b);
    extend_lives(&b);
    find_caches(&b);
    out->work_size = fill_work(&b);
    out->kept_size = fill_records(&b, false);
    out->cache_size = fill_records(&b, true);
    place_states(&b, out);
    write_places(&b, out);
    if (p->has_input && p->result != PROG_NONE) {
        out->in_place = !x->train && one_serves(&b, PROG_X, p->result);
        out->grad_in_place = one_serves(&b, GRAD + PROG_X, GRAD + p->result);
    }
}
