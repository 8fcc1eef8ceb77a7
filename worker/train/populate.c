/* populate.c: touches the pages of the plan's items. */
#include "worker/train/populate.h"

static bool wanted(const struct plan_item *it, int id)
{
    return it->name && !it->shared && !it->in_host && id != PLAN_SCRATCH && id != PLAN_BOUNCE &&
           id != PLAN_PIPE_REST;
}

void populate_training(const struct train_options *o)
{
    for (int id = 0; id < PLAN_ID_N; id++) {
        const struct plan_item *it = &o->plan->item[id];
        char *base = it->in_segment ? o->segment : o->arena;
        if (base && wanted(it, id)) be_populate(o->be, base + it->offset, it->size);
    }
}
