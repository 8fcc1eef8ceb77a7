/* away.c: turns elements of arrays into bytes of the store, and waits for each copy. */
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
    for (int i = 0; i < AWAY_N; i++) {
        if (p->offload.away_at[i] < 0) continue;
        a->window[i] = at;
        at += p->offload.piece;
    }
    assert((char *)at == (char *)m->arena + it->offset + it->size);
}

static int64_t byte_of(const struct away *a, enum away_array which, int64_t at)
{
    assert(away_has(a, which) && at >= 0);
    return a->plan->offload.away_at[which] + 4 * at;
}

int away_bring(const struct away *a, enum away_array which, int64_t at, float *to, int64_t n,
               struct err *e)
{
    if (!n) return 0;
    return offload_wait(a->store, offload_back(a->store, to, 4 * n, byte_of(a, which, at)), e);
}

int away_leave(const struct away *a, enum away_array which, int64_t at, const float *from,
               int64_t n, struct err *e)
{
    if (!n) return 0;
    return offload_wait(a->store, offload_out(a->store, from, 4 * n, byte_of(a, which, at)), e);
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
