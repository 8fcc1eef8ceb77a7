/* spread.c: makes a label graph of a section, finds the best labels, and writes the section again.
 * If an operation reads a value with a label that the value does not have, a SWITCH is added. */
#include "worker/program/spread.h"

#include "api/core/assert.h"
#include "worker/program/label.h"
#include "worker/program/op_rules.h"

enum { HOME, AWAY, DIMS }; /* labels of values: spread along space; spread along time */

/* The section as it was written, the labels of its operations, and the indices of its values in
 * the new section. */
struct spreader {
    struct program *p;
    int n_values, n_ops;
    struct value value[PROG_VALUES];
    struct op op[PROG_OPS];
    int result;
    int label[PROG_OPS];      /* label of the operation's rows of the grid */
    int written[PROG_VALUES]; /* label of the operation that writes the value */
    /* set if an operation reads the value, or a window of it, with this label */
    bool read[PROG_VALUES][DIMS];
    /* index in p of the value with this label; PROG_NONE if it does not exist */
    int now[PROG_VALUES][DIMS];
    int n_copied;
};

static bool on_grid(const struct value *v)
{
    return v->rows == ROWS_T;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* Returns the dimensions, as bits, along which the operation's rows may be spread. */
static unsigned may_spread(const struct op *o)
{
    switch (op_rules[o->kind]->along) {
    case ALONG_NOTHING: return 1u << HOME | 1u << AWAY;
    case ALONG_DIM:
        assert(o->u.attn.dim >= 0);
        return 1u << (o->u.attn.by_heads ? HOME : !o->u.attn.dim);
    case ALONG_BATCH: return 1u << HOME;
    case ALONG_SEQUENCE: break;
    }
    assert(!"an operator of a grid");
    return 0;
}

static struct label_op graph_op(const struct program *p, const struct op *o, unsigned dims)
{
    struct label_op g = {.in = {-1, -1, -1}, .out = -1};
    for (int k = 0; k < OP_INS; k++)
        if (o->in[k] != PROG_NONE && on_grid(&p->value[o->in[k]])) g.in[k] = prog_base(p, o->in[k]);
    if (o->out[0] != PROG_NONE && on_grid(&p->value[o->out[0]])) g.out = o->out[0];
    for (int d = 0; d < DIMS; d++) {
        const signed char l = (signed char)d;
        if (dims >> d & 1) g.way[g.n_ways++] = (struct label_way){{l, l, l}, l};
    }
    return g;
}

static int grid_value(const struct program *p, int v)
{
    return v != PROG_NONE && on_grid(&p->value[v]) ? v : -1;
}

/* Makes the label graph from the section's input, operations and result. */
static void make_graph(const struct program *p, unsigned allowed, struct label_graph *g)
{
    const struct label_way home = {{HOME, HOME, HOME}, HOME};
    *g = (struct label_graph){.n_values = p->n_values};
    for (int v = 0; v < p->n_values; v++) {
        struct label_value *x = &g->value[v];
        x->moved[HOME][AWAY] = x->moved[AWAY][HOME] = p->value[v].cols;
        if (p->value[v].view_of != PROG_NONE) g->value[p->value[v].view_of].one_label = true;
    }
    g->op[g->n_ops++] = (struct label_op){.in = {-1, -1, -1},
                                          .out = p->has_input ? grid_value(p, PROG_X) : -1,
                                          .n_ways = 1,
                                          .way = {home}};
    for (int i = 0; i < p->n_ops; i++)
        g->op[g->n_ops++] = graph_op(p, &p->op[i], may_spread(&p->op[i]) & allowed);
    g->op[g->n_ops++] = (struct label_op){
        .in = {grid_value(p, p->result), -1, -1}, .out = -1, .n_ways = 1, .way = {home}};
}

/* Finds the labels of p's operations and their cost. Returns false if no labels are possible. */
static bool solve(const struct program *p, unsigned allowed, int label[PROG_OPS],
                  struct label_cost *cost)
{
    struct label_graph g;
    int way[LABEL_OPS];
    make_graph(p, allowed, &g);
    if (!label_solve(&g, way, cost)) return false;
    for (int i = 0; i < p->n_ops; i++) label[i] = g.op[1 + i].way[way[1 + i]].out;
    return true;
}

static bool no_dearer(const struct label_cost *a, const struct label_cost *b)
{
    return a->moved != b->moved ? a->moved < b->moved : a->n_moves <= b->n_moves;
}

static void choose(struct spreader *s, enum spread_stage stage)
{
    struct label_cost home, away;
    int other[PROG_OPS];
    bool found;
    if (stage == SPREAD_OPERATIONS) {
        found = solve(s->p, 1u << HOME | 1u << AWAY, s->label, &home);
    } else {
        found = solve(s->p, 1u << HOME, s->label, &home);
        if (solve(s->p, 1u << AWAY, other, &away) && (!found || !no_dearer(&home, &away))) {
            for (int i = 0; i < s->p->n_ops; i++) s->label[i] = other[i];
            found = true;
        }
    }
    assert(found);
}

/* ---- the section again, with switches -------------------------------------------------------- */

static void note_readers(struct spreader *s)
{
    const struct program *p = s->p;
    for (int v = 0; v < p->n_values; v++) s->written[v] = HOME;
    for (int i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < OP_OUTS; k++)
            if (p->op[i].out[k] != PROG_NONE) s->written[p->op[i].out[k]] = s->label[i];
        for (int k = 0; k < OP_INS; k++)
            if (p->op[i].in[k] != PROG_NONE)
                s->read[prog_base(p, p->op[i].in[k])][s->label[i]] = true;
    }
    if (p->result != PROG_NONE) s->read[p->result][HOME] = true;
}

static void add_value(struct spreader *s, struct value v, int old, int label)
{
    if (on_grid(&v) && label == AWAY) v.rows = ROWS_ALT;
    s->now[old][label] = s->p->n_values;
    assert(s->p->n_values < PROG_VALUES);
    s->p->value[s->p->n_values++] = v;
}

/* Copies a value that no operation writes. It is the input, a shared value or a window. */
static void copy_value(struct spreader *s, int v)
{
    struct value x = s->value[v];
    if (x.view_of == PROG_NONE) {
        add_value(s, x, v, HOME);
        return;
    }
    const int of = x.view_of;
    const int label = on_grid(&x) && s->read[of][AWAY] ? AWAY : HOME;
    x.view_of = s->now[of][label];
    add_value(s, x, v, label);
}

/* If an operation reads value v with the label that v was not written with, adds v with that
 * label. */
static void add_switch(struct spreader *s, int v)
{
    const int from = s->written[v], to = !from;
    if (!on_grid(&s->value[v]) || !s->read[v][to]) return;
    struct value out = {.name = to == AWAY ? "switched" : "switched_back",
                        .rows = to == AWAY ? ROWS_ALT : ROWS_T,
                        .cols = s->value[v].cols,
                        /* kept, so that the switch is not made again in backward */
                        .keep = KEEP_RING};
    if (v == s->result) {
        out.name = s->value[v].name;
        out.keep = s->value[v].keep;
        s->p->value[s->now[v][from]].name = "before_switch";
        s->p->value[s->now[v][from]].keep = KEEP_NONE_MODE;
    }
    s->now[v][to] = prog_op(
        s->p, &(struct op){.kind = OP_SWITCH, .in = {s->now[v][from]}, .u.dims = {from, to}}, &out);
}

static void copy_until(struct spreader *s, int v)
{
    for (; s->n_copied < v; s->n_copied++) {
        copy_value(s, s->n_copied);
        if (s->value[s->n_copied].view_of == PROG_NONE) add_switch(s, s->n_copied);
    }
}

static void copy_op(struct spreader *s, int i)
{
    struct program *p = s->p;
    struct op o = s->op[i];
    const int label = s->label[i];
    copy_until(s, o.out[0] == PROG_NONE ? s->n_values : o.out[0]);
    for (int k = 0; k < OP_INS; k++)
        if (o.in[k] != PROG_NONE)
            o.in[k] = s->now[o.in[k]][on_grid(&s->value[o.in[k]]) ? label : HOME];
    const int at = p->n_ops++;
    assert(p->n_ops <= PROG_OPS);
    for (int k = 0; k < OP_OUTS; k++) {
        if (o.out[k] == PROG_NONE) continue;
        const bool grid = on_grid(&s->value[o.out[k]]);
        assert(o.out[k] == s->n_copied);
        add_value(s, s->value[o.out[k]], s->n_copied++, grid ? label : HOME);
        o.out[k] = p->n_values - 1;
    }
    p->op[at] = o;
    for (int k = 0; k < OP_OUTS; k++)
        if (s->op[i].out[k] != PROG_NONE) add_switch(s, s->op[i].out[k]);
}

void prog_spread(struct program *p, enum spread_stage stage)
{
    struct spreader s = {.p = p, .n_values = p->n_values, .n_ops = p->n_ops, .result = p->result};
    for (int v = 0; v < p->n_values; v++) s.value[v] = p->value[v];
    for (int i = 0; i < p->n_ops; i++) s.op[i] = p->op[i];
    choose(&s, stage);
    note_readers(&s);
    for (int v = 0; v < p->n_values; v++) s.now[v][HOME] = s.now[v][AWAY] = PROG_NONE;
    p->n_values = p->n_ops = 0;
    for (int i = 0; i < s.n_ops; i++) copy_op(&s, i);
    copy_until(&s, s.n_values);
    if (s.result != PROG_NONE) p->result = s.now[s.result][HOME];
    for (int k = 0; k < PROG_SHARED; k++)
        if (p->shared[k] != PROG_NONE) p->shared[k] = s.now[p->shared[k]][HOME];
}
