/* store.c: chooses the weights that are stored in blocks or panels, and computes the place of each
 * weight in memory. */
#include <stdio.h>
#include "api/core/mem.h"
#include "api/core/quant.h"
#include "worker/program/rule.h"

/* Tells whether an operation uses columns [col, col + n) of value `of` as gates of rows or of
 * states. */
static bool reads_gate(const struct program *p, const struct op *o, int of, int64_t col, int64_t n)
{
    const int in = o->kind == OP_ROW_GATE ? 2 : o->kind == OP_DELTA ? 1 : -1;
    if (in < 0 || prog_base(p, o->in[in]) != of) return false;
    const struct value *x = &p->value[o->in[in]];
    const int64_t first = x->view_of == PROG_NONE ? 0 : x->view_col;
    return first < col + n && col < first + x->cols;
}

static bool makes_gate(const struct program *p, int of, int64_t col, int64_t n)
{
    for (int i = 0; i < p->n_ops; i++)
        if (reads_gate(p, &p->op[i], of, col, n)) return true;
    return false;
}

static void store(struct program *p, int first, int n, enum weights_id format)
{
    for (int i = first; i < first + n; i++) p->weight[i].stored = format;
}

/* Returns the value that later operations read as the output of a product: that of its adapter, if
 * it has one. */
static int output_of(const struct program *p, const struct op *o)
{
    for (int i = 0; i < p->n_ops; i++)
        if (op_rules[p->op[i].kind]->adapts && p->op[i].in[0] == o->out[0]) return p->op[i].out[0];
    return o->out[0];
}

static void store_product(struct program *p, const struct op *o, enum weights_id format)
{
    const int out = prog_base(p, output_of(p, o));
    int64_t col = 0;
    for (int i = o->w; i < o->w + o->n_w; i++) {
        const int64_t n = p->weight[i].rows;
        if (!makes_gate(p, out, col, n)) store(p, i, 1, format);
        col += n;
    }
}

void store_mark(struct program *p, struct program *in, enum weights_id format)
{
    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        if (o->kind == OP_LINEAR) store_product(p, o, format);
        /* the first weight is the router, which is not stored in blocks */
        if (o->kind == OP_MOE) store(p, o->w + 1, o->n_w - 1, format);
        if (o->kind != OP_XENT || !o->n_w) continue;
        const enum weights_id head = format == WEIGHTS_PANELS ? format : WEIGHTS_INT8;
        if (o->w == PROG_TIED)
            store(in, 0, 1, head);
        else
            store(p, o->w, o->n_w, head);
    }
}

static bool in_blocks(const struct weight *w)
{
    return w->stored != WEIGHTS_MODEL && w->stored != WEIGHTS_PANELS;
}

static int64_t size_of(const struct weight *w, int64_t unit)
{
    if (in_blocks(w)) return quant_size(w->stored, w->rows, w->cols);
    return (w->cols ? w->rows * w->cols : w->rows) * unit;
}

/* Tells whether a training beside weights in blocks changes the weight. */
static bool is_learnt(const struct weight *w)
{
    return w->adapter || w->saved;
}

int64_t store_places(const struct program *p, int64_t unit, int64_t *at)
{
    bool blocks = false, adapters = false;
    for (int i = 0; i < p->n_weights; i++) {
        blocks |= in_blocks(&p->weight[i]);
        adapters |= is_learnt(&p->weight[i]);
    }
    int64_t end = adapters ? p->trained_size * unit : 0;
    for (int i = 0; i < p->n_weights; i++) {
        const struct weight *w = &p->weight[i];
        const int64_t begin = !blocks || is_learnt(w) ? w->offset * unit
                              : w->joined             ? end
                                                      : mem_round(end, MEM_ALIGN);
        if (at) at[i] = begin;
        if (!blocks || !is_learnt(w)) end = begin + size_of(w, unit);
    }
    return blocks ? mem_round(end, MEM_ALIGN) : p->weights_size * unit;
}

/* Tells whether products use weight i by halves. This is true if weight i has w1 and w3 of the
 * experts in one tensor. */
static bool has_halves(const struct program *p, int i)
{
    for (int k = 0; k < p->n_ops; k++)
        if (p->op[k].kind == OP_MOE && p->op[k].u.moe.joined && p->op[k].w + 1 == i) return true;
    return false;
}

const char *store_fault(const struct program *p, int i, char room[160])
{
    const struct weight *w = &p->weight[i];
    const bool halves = has_halves(p, i),
               more = (i + 1 < p->n_weights && w[1].joined) || w->stack > 1 || halves;
    const int64_t rows = w->rows / (w->stack > 1 ? w->stack : 1) / (halves ? 2 : 1);
    if (w->cols % QUANT_K) {
        snprintf(room, 160, "its rows of %lld values are no blocks of %d", (long long)w->cols,
                 QUANT_K);
        return room;
    }
    if (more && rows % QUANT_ROWS) {
        snprintf(room, 160, "its %lld rows are no multiple of %d", (long long)rows, QUANT_ROWS);
        return room;
    }
    return NULL;
}
