/* backfill.c: finds the first of the ends after which a job fits. */
#include "daemon/sched/backfill.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"

static bool fits(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct sched_job try = *j;
    return sched_find(&try, nodes, n);
}

/* Sets r->nodes to the nodes after the first n of the holds have ended. */
static void end_first(struct backfill *r, const struct backfill_hold *holds, int n,
                      const struct sched_node *nodes, int n_nodes)
{
    memcpy(r->nodes, nodes, (size_t)n_nodes * sizeof *nodes);
    for (int i = 0; i < n; i++) sched_release(&holds[i].job, r->nodes);
}

void backfill_reserve(struct backfill *r, const struct sched_job *j,
                      const struct backfill_hold *holds, int n_holds,
                      const struct sched_node *nodes, int n_nodes)
{
    int too_few = 0, enough = 0;
    r->job = *j;
    r->at_ms = BACKFILL_UNKNOWN;
    while (enough < n_holds && holds[enough].end_ms != BACKFILL_UNKNOWN) enough++;
    end_first(r, holds, enough, nodes, n_nodes);
    if (!enough || !fits(j, r->nodes, n_nodes)) return;
    while (enough - too_few > 1) {
        const int middle = too_few + (enough - too_few) / 2;
        end_first(r, holds, middle, nodes, n_nodes);
        *(fits(j, r->nodes, n_nodes) ? &enough : &too_few) = middle;
    }
    end_first(r, holds, enough, nodes, n_nodes);
    r->at_ms = holds[enough - 1].end_ms;
}

bool backfill_allows(const struct backfill *r, const struct sched_job *placed, int64_t end_ms,
                     int n_nodes)
{
    if (r->at_ms == BACKFILL_UNKNOWN) return false;
    if (end_ms <= r->at_ms) return true;
    const size_t size = (size_t)n_nodes * sizeof *r->nodes;
    struct sched_node *nodes = mem_scratch(size);
    memcpy(nodes, r->nodes, size);
    sched_hold(placed, nodes);
    const bool fit = fits(&r->job, nodes, n_nodes);
    free(nodes);
    return fit;
}

void backfill_add(struct backfill *r, const struct sched_job *placed, int64_t end_ms)
{
    if (end_ms > r->at_ms) sched_hold(placed, r->nodes);
}
