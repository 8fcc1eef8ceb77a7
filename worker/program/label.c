/* label.c: finds the best labels operation by operation. A state is the set of labels of all
 * values that are still needed. Only the cheapest way to reach each state is kept. */
#include "worker/program/label.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mem.h"

/* A state has four bits for each value that a later operation reads. They are the labels of the
 * value. For a value with one_label, the last bit tells whether the value has been read. */
enum { BITS = LABELS, SLOTS = 64 / BITS, READ = 1 << LABEL_WHOLE };

struct label_state {
    uint64_t key;
    struct label_cost cost;
};

/* How a state was reached. */
struct label_step {
    int16_t before, way;
};

struct solver {
    const struct label_graph *g;
    int last[LABEL_VALUES]; /* last operation that reads the value; -1 if no operation reads it */
    int slot[LABEL_VALUES];
    int n[2];
    /* states before the operation, and states after it */
    struct label_state state[2][LABEL_STATES];
    struct label_step step[LABEL_OPS][LABEL_STATES];
};

/* ---- slots ----------------------------------------------------------------------------------- */

static void take_slots(struct solver *s)
{
    unsigned used = 0;
    for (int v = 0; v < s->g->n_values; v++) s->last[v] = s->slot[v] = -1;
    for (int i = 0; i < s->g->n_ops; i++)
        for (int k = 0; k < LABEL_INS; k++)
            if (s->g->op[i].in[k] >= 0) s->last[s->g->op[i].in[k]] = i;
    for (int i = 0; i < s->g->n_ops; i++) {
        const int out = s->g->op[i].out;
        if (out >= 0 && s->last[out] >= 0) {
            int slot = 0;
            while (used >> slot & 1) slot++;
            assert(slot < SLOTS);
            s->slot[out] = slot;
            used |= 1u << slot;
        }
        for (int v = 0; v < s->g->n_values; v++)
            if (s->last[v] == i) used &= ~(1u << s->slot[v]);
    }
}

static unsigned labels_of(const struct solver *s, uint64_t key, int v)
{
    return (unsigned)(key >> BITS * s->slot[v]) & ((1u << BITS) - 1);
}

static uint64_t with_labels(const struct solver *s, uint64_t key, int v, unsigned labels)
{
    const int shift = BITS * s->slot[v];
    return (key & ~((((uint64_t)1 << BITS) - 1) << shift)) | (uint64_t)labels << shift;
}

/* ---- one operation --------------------------------------------------------------------------- */

static int64_t least_moved(const struct label_value *v, unsigned has, int to)
{
    int64_t least = INT64_MAX;
    for (int from = 0; from < LABELS; from++)
        if (has >> from & 1 && v->moved[from][to] < least) least = v->moved[from][to];
    assert(least < INT64_MAX);
    return least;
}

/* Reads value v with label `to`. Adds the cost of the move that this needs to the state. Returns
 * false if v cannot be read with that label. */
static bool read_value(const struct solver *s, int i, int v, int to, struct label_state *at)
{
    const struct label_value *x = &s->g->value[v];
    const unsigned has = labels_of(s, at->key, v);
    const unsigned labels = x->one_label ? has & ~(unsigned)READ : has;
    assert(s->slot[v] >= 0 && labels);
    if (x->one_label && to == LABEL_WHOLE) return false;
    unsigned now = labels | 1u << to;
    if (!(labels >> to & 1)) {
        if (x->one_label && has & READ) return false;
        if (x->one_label) now = 1u << to;
        at->cost.moved += least_moved(x, labels, to);
        at->cost.n_moves++;
        at->cost.early |= (uint64_t)1 << (63 - i);
    }
    at->key = with_labels(s, at->key, v, x->one_label ? now | READ : now);
    return true;
}

static bool cheaper(const struct label_cost *a, const struct label_cost *b)
{
    if (a->moved != b->moved) return a->moved < b->moved;
    if (a->n_moves != b->n_moves) return a->n_moves < b->n_moves;
    return a->early < b->early;
}

static void reach(struct solver *s, int i, const struct label_state *to, struct label_step by)
{
    int k = 0;
    while (k < s->n[1] && s->state[1][k].key != to->key) k++;
    assert(k < LABEL_STATES);
    if (k == s->n[1])
        s->n[1]++;
    else if (!cheaper(&to->cost, &s->state[1][k].cost))
        return;
    s->state[1][k] = *to;
    s->step[i][k] = by;
}

static void compute(struct solver *s, int i, int before, int way)
{
    const struct label_op *o = &s->g->op[i];
    const struct label_way *w = &o->way[way];
    struct label_state at = s->state[0][before];
    for (int k = 0; k < LABEL_INS; k++)
        if (o->in[k] >= 0 && !read_value(s, i, o->in[k], w->in[k], &at)) return;
    for (int k = 0; k < LABEL_INS; k++)
        if (o->in[k] >= 0 && s->last[o->in[k]] == i) at.key = with_labels(s, at.key, o->in[k], 0);
    if (o->out >= 0 && s->slot[o->out] >= 0) at.key = with_labels(s, at.key, o->out, 1u << w->out);
    reach(s, i, &at, (struct label_step){(int16_t)before, (int16_t)way});
}

/* ---- all of them ----------------------------------------------------------------------------- */

static bool solve(struct solver *s, int way[LABEL_OPS], struct label_cost *cost)
{
    const struct label_graph *g = s->g;
    take_slots(s);
    s->n[0] = 1;
    s->state[0][0] = (struct label_state){0};
    for (int i = 0; i < g->n_ops; i++) {
        s->n[1] = 0;
        for (int k = 0; k < s->n[0]; k++)
            for (int w = 0; w < g->op[i].n_ways; w++) compute(s, i, k, w);
        memcpy(s->state[0], s->state[1], (size_t)s->n[1] * sizeof s->state[0][0]);
        s->n[0] = s->n[1];
    }
    if (!s->n[0]) return false;
    assert(s->n[0] == 1); /* there is only one state, because no later operation reads a value */
    *cost = s->state[0][0].cost;
    for (int i = g->n_ops - 1, k = 0; i >= 0; i--) {
        way[i] = s->step[i][k].way;
        k = s->step[i][k].before;
    }
    return true;
}

bool label_solve(const struct label_graph *g, int way[LABEL_OPS], struct label_cost *cost)
{
    assert(g->n_ops <= LABEL_OPS && g->n_values <= LABEL_VALUES);
    struct solver *s = mem_scratch(sizeof *s);
    s->g = g;
    const bool solved = solve(s, way, cost);
    free(s);
    return solved;
}
