/* away.c: turns elements of arrays into bytes of the store, and keeps the tickets of gradients that
 * leave. */
#include "worker/train/away.h"

#include "api/core/assert.h"

void away_init(struct away *a, struct model *m)
{
    const struct plan *p = m->plan;
    const struct plan_item *it = &p->item[PLAN_UPDATE];
    float *at = (float *)(m->arena + it->offset);
    *a = (struct away){.plan = p};
    if (!p->offload.optimizer) return;
    assert(it->name && m->offload);
    a->store = m->offload;
    model_note_placed(m, it, it->size);
    for (int i = 0; i < 2 * AWAY_N; i++) {
        if (p->offload.away_at[i % AWAY_N] < 0) continue;
        a->window[i / AWAY_N][i % AWAY_N] = at;
        at += p->offload.piece;
    }
    assert((char *)at == (char *)m->arena + it->offset + it->size);
}

static int64_t byte_of(const struct away *a, enum away_array which, int64_t at)
{
    assert(away_has(a, which) && at >= 0);
    return a->plan->offload.away_at[which] + 4 * at;
}

int64_t away_bring(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n)
{
    return n ? offload_back(a->store, to, 4 * n, byte_of(a, which, at)) : 0;
}

int away_wait(const struct away *a, int64_t ticket, struct err *e)
{
    return offload_wait(a->store, ticket, e);
}

void away_send(struct away *a, enum away_array which, int64_t at, const float *from, int64_t n)
{
    if (n) a->last = offload_out(a->store, from, 4 * n, byte_of(a, which, at));
}

/* Returns a free slot. If there is none, waits for the copy that was requested first. */
static struct away_leaving *slot_of(struct away *a, struct err *e)
{
    struct away_leaving *first = a->leaving;
    for (struct away_leaving *l = a->leaving; l < a->leaving + AWAY_LEAVING; l++) {
        if (!l->ticket) return l;
        if (l->ticket < first->ticket) first = l;
    }
    return away_wait(a, first->ticket, e) ? NULL : first;
}

int away_leave(struct away *a, enum away_array which, int64_t at, const float *from, int64_t n,
               struct err *e)
{
    if (!n) return 0;
    struct away_leaving *l = slot_of(a, e);
    if (!l) return -1;
    away_send(a, which, at, from, n);
    *l = (struct away_leaving){from, n, a->last};
    return 0;
}

int away_left(struct away *a, const float *from, int64_t n, struct err *e)
{
    for (struct away_leaving *l = a->leaving; l < a->leaving + AWAY_LEAVING; l++) {
        if (!l->ticket || l->from >= from + n || from >= l->from + l->n) continue;
        if (away_wait(a, l->ticket, e)) return -1;
        l->ticket = 0;
    }
    return 0;
}

int away_settle(struct away *a, struct err *e)
{
    if (a->store && away_wait(a, a->last, e)) return -1;
    a->last = 0;
    for (int i = 0; i < AWAY_LEAVING; i++) a->leaving[i].ticket = 0;
    return 0;
}

int away_read(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n,
              struct err *e)
{
    return offload_read(a->store, to, 4 * n, byte_of(a, which, at), e);
}

void away_write(const struct away *a, enum away_array which, int64_t at, const float *from,
                int64_t n)
{
    offload_write(a->store, from, 4 * n, byte_of(a, which, at));
}
