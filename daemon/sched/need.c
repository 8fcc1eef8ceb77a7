/* need.c: reads the memory of ranks from a plan, and sums it. */
#include "daemon/sched/need.h"

#include <string.h>
#include "api/core/jread.h"

static int64_t number(struct jread *r)
{
    int64_t n = 0;
    return jread_next(r) == J_NUMBER && !jread_int(r, &n) && n > 0 ? n : 0;
}

/* Reads the members of "memory". */
static void read_memory(struct jread *r, struct need *n)
{
    while (jread_next(r) == J_KEY) {
        if (jread_is(r, "total_bytes"))
            n->device = number(r);
        else if (jread_is(r, "host_bytes"))
            n->host = number(r);
        else if (jread_skip(r))
            return;
    }
}

static void read_stages(struct jread *r, struct need *n)
{
    enum jtok t = jread_next(r);
    for (n->n_stages = 0; t == J_OBJECT && n->n_stages < JOB_MAX_RANKS; t = jread_next(r)) {
        int64_t *size = &n->stage[n->n_stages++];
        while (jread_next(r) == J_KEY) {
            if (jread_is(r, "arena_bytes"))
                *size = number(r);
            else if (jread_skip(r))
                return;
        }
    }
}

/* Completes the bytes of each stage, which so far count only the stage's segment. Adds the rest of
 * a rank's memory, which is equal for all stages. */
static void add_shared(struct need *n)
{
    int64_t most = 0;
    for (int i = 0; i < n->n_stages; i++)
        if (n->stage[i] > most) most = n->stage[i];
    for (int i = 0; i < n->n_stages; i++) n->stage[i] += n->rank - most;
}

void need_read(struct need *n, const char *plan, const struct need_of *of)
{
    const bool differ = of->stages > 1 && !of->own_memory;
    struct jread r;
    bool done = false;
    *n = (struct need){.n_stages = 1, .per_stage = of->per_stage > 0 ? of->per_stage : 1};
    jread_init(&r, plan, strlen(plan));
    if (jread_next(&r) != J_OBJECT) return;
    while (!done && jread_next(&r) == J_KEY) {
        const bool memory = jread_is(&r, "memory"), stages = jread_is(&r, "stages");
        if (memory && jread_next(&r) == J_OBJECT)
            read_memory(&r, n);
        else if (stages && differ && jread_next(&r) == J_ARRAY)
            read_stages(&r, n);
        else if (!memory && jread_skip(&r))
            break;
        done = n->device && (!differ || n->n_stages == of->stages);
    }
    n->rank = of->own_memory ? n->host : n->device + n->host;
    if (n->n_stages == of->stages && differ)
        add_shared(n);
    else
        n->n_stages = 1;
}

static int64_t of_rank(const struct need *n, int32_t rank)
{
    return n->n_stages > 1 ? n->stage[rank / n->per_stage % n->n_stages] : n->rank;
}

int64_t need_of(const struct need *n, int32_t first, int32_t count)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < count; i++) sum += of_rank(n, first + i);
    return sum;
}

int32_t need_fits(const struct need *n, int32_t first, int32_t most, int64_t size)
{
    int32_t fit = 0;
    if (!n->rank) return most;
    while (fit < most && (size -= of_rank(n, first + fit)) >= 0) fit++;
    return fit;
}
