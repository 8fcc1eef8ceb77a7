/* freeze.c: marks the weights of a section that training does not change. Orders the layout so
 * that the trained weights come first. Removes the end of the backward pass that would compute
 * gradients only for frozen weights. */
#include <stddef.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/program/program.h"

static_assert(FREEZE_WORDS * 64 == PROG_WEIGHTS, "a bit for each weight");

/* Places the frozen weights or, if `frozen` is false, the trained weights. The first weight that
 * is placed begins at element `at`. Joined weights are either all frozen or all trained. Returns
 * the index of the element after the last weight, rounded up. */
static int64_t place(struct program *p, bool frozen, int64_t at)
{
    for (int i = 0; i < p->n_weights; i++) {
        struct weight *w = &p->weight[i];
        if (w->frozen != frozen) continue;
        assert(!w->joined || w[-1].frozen == frozen);
        w->offset = w->joined ? w[-1].offset + prog_count(&w[-1]) : at;
        at = prog_end(w);
    }
    return at;
}

/* Lets no gradient pass back through a value if no trained weight is used before it. The section's
 * input can be such a value, and so can each shared value. */
static void cut_flows(struct program *p, const struct program_freeze *z)
{
    bool flows[PROG_VALUES];
    if (p->has_input && !z->input) p->value[PROG_X].no_grad = true;
    if (!p->n_shared) return;
    schedule_flows(z->in ? z->in : p, flows);
    for (int k = 0; k < p->n_shared; k++) {
        const int here = p->shared[k], there = (z->in ? z->in : p)->shared[k];
        if (here != PROG_NONE && !flows[there]) p->value[here].no_grad = true;
    }
}

void prog_freeze(struct program *p, const struct program_freeze *z)
{
    for (int i = 0; i < p->n_weights; i++) p->weight[i].frozen |= freeze_has(z->frozen, i);
    p->partial = true;
    p->tied_frozen = z->tied && z->in && z->in->weight[0].frozen;
    p->trained_size = place(p, false, 0);
    p->weights_size = place(p, true, p->trained_size);
    cut_flows(p, z);
}

void prog_copy(struct program *to, const struct program *from)
{
    const size_t before = offsetof(struct program, weight);
    const size_t after = offsetof(struct program, weights_size);
    memcpy(to, from, before + (size_t)from->n_weights * sizeof *from->weight);
    memcpy((char *)to + after, (const char *)from + after, sizeof *from - after);
}

bool prog_learns(const struct program *p, int first, int n)
{
    if (n > 0 && first == PROG_TIED) return !p->tied_frozen;
    for (int i = first; i < first + n; i++)
        if (!p->weight[i].frozen) return true;
    return false;
}
