/* room.c: computes the room that nodes and groups of nodes have for a job. */
#include "daemon/sched/room.h"

bool room_ends(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    return nodes[i].ends && j->wall_ms > nodes[i].left_ms;
}

bool room_usable(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    if (!nodes[i].up || nodes[i].cordoned || (nodes[i].quarantined && !j->toy)) return false;
    if (room_ends(j, nodes, i)) return false;
    return !sched_has(&j->blamed, i) && !sched_has(&j->lacks, i) && !sched_has(&j->old, i) &&
           !sched_has(&j->apart, i);
}

/* ---- the room of a node for a job ------------------------------------------------------------ */

/* Tells whether the GPU suits this job. The answer changes only when GPUs are repaired or
 * added. */
static bool suits(const struct sched_job *j, const struct sched_node *nodes, int i, int k)
{
    const struct sched_gpu *g = &nodes[i].gpu[k];
    if (j->avoid_node == i && j->avoid_gpu == k) return false;
    return g->state != SCHED_GPU_UNFIT && g->memory_size >= j->gpu_size;
}

static bool is_free(const struct sched_job *j, const struct sched_gpu *g)
{
    return g->state == SCHED_GPU_FREE && g->memory_free >= j->gpu_free;
}

int32_t room_gpus(const struct sched_job *j, const struct sched_node *nodes, int i, bool *free)
{
    int32_t n = 0;
    for (int k = 0; k < nodes[i].n_gpus; k++) {
        const bool good = suits(j, nodes, i, k) && (!free || is_free(j, &nodes[i].gpu[k]));
        if (free) free[k] = good;
        n += good;
    }
    return n;
}

int64_t room_memory(const struct sched_node *node)
{
    return node->memory_held < node->memory_size ? node->memory_size - node->memory_held : 0;
}

/* Returns how many ranks fit into size bytes of the node's memory. The result is at most n. */
static int32_t beside(const struct sched_job *j, const struct sched_node *node, int64_t size,
                      int32_t n)
{
    if (!j->need || !node->memory_size) return n;
    return need_fits(j->need, j->first, n, size);
}

int32_t room_cramped(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    bool free[GPU_MAX];
    if (j->device != SCHED_GPUS) return 0;
    const struct sched_node *at = &nodes[i];
    const int32_t any = room_gpus(j, nodes, i, NULL), now = room_gpus(j, nodes, i, free);
    const int32_t never = any - beside(j, at, at->memory_size, any);
    const int32_t not_now = now - beside(j, at, room_memory(at), now);
    return never > not_now ? never : not_now;
}

int32_t room_width(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    const struct sched_node *at = &nodes[i];
    const int32_t all = j->device == SCHED_GPUS ? room_gpus(j, nodes, i, NULL)
                        : j->device == SCHED_EMULATED && !at->emulated ? 0
                                                                       : at->n_slots;
    return beside(j, at, at->memory_size, all);
}

/* Tells whether the job is kept off the node. This is true if an attempt on the node must be alone
 * there, or if the job must be alone and the node has an attempt. */
static bool is_apart(const struct sched_job *j, const struct sched_node *node)
{
    return node->alone || (j->alone && node->n_attempts > 0);
}

bool room_prepares(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    const struct sched_node *at = &nodes[i];
    const bool fits = !at->memory_size || !at->memory_held || room_memory(at) >= NEED_ERRAND;
    return room_usable(j, nodes, i) && at->n_preparing < SCHED_MAX_PREPARE && fits &&
           !is_apart(j, at);
}

int32_t room_free(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    bool free[GPU_MAX];
    const struct sched_node *at = &nodes[i];
    const int64_t kept_for = at->kept_for[j->device == SCHED_GPUS];
    if (!room_usable(j, nodes, i) || (kept_for && kept_for != j->id)) return 0;
    if (is_apart(j, at)) return 0;
    if (j->device == SCHED_GPUS)
        return beside(j, at, room_memory(at), room_gpus(j, nodes, i, free));
    if (!room_width(j, nodes, i)) return 0;
    const int32_t slots = at->n_slots - at->n_reserved - at->n_kept;
    return slots > 0 ? beside(j, at, room_memory(at), slots) : slots;
}

/* ---- which nodes may hold one gang together -------------------------------------------------- */

bool room_together(const struct sched_job *j, const struct sched_node *nodes, int a, int b)
{
    if (!room_usable(j, nodes, a) || !room_usable(j, nodes, b)) return false;
    return a == b || (!j->one_node && nodes[a].net && nodes[a].net == nodes[b].net);
}

static struct room_group group_of(const struct sched_job *j, const struct sched_node *nodes, int n,
                                  int leader)
{
    const struct sched_node *l = &nodes[leader];
    struct room_group g = {.leader = leader};
    if (room_usable(j, nodes, leader) && (j->one_node || !l->net))
        return (struct room_group){leader, 1, room_width(j, nodes, leader),
                                   room_free(j, nodes, leader)};
    for (int i = 0; i < n; i++) {
        if (!room_together(j, nodes, leader, i)) continue;
        g.n_nodes++;
        g.slots += room_width(j, nodes, i);
        g.free += room_free(j, nodes, i);
    }
    return g;
}

bool room_leads(const struct sched_job *j, const struct sched_node *nodes, int i, uint64_t *seen)
{
    const bool usable = room_usable(j, nodes, i);
    const int32_t net = nodes[i].net;
    if (!usable || j->one_node || !net) return usable;
    if (net > 0 && net < 64) {
        const uint64_t bit = (uint64_t)1 << net;
        const bool first = !(*seen & bit);
        *seen |= bit;
        return first;
    }
    for (int k = 0; k < i; k++)
        if (room_together(j, nodes, k, i)) return false;
    return true;
}

struct room_group room_widest(const struct sched_job *j, const struct sched_node *nodes, int n,
                              bool of_free)
{
    struct room_group best = {.leader = -1};
    uint64_t seen = 0;
    if (j->only >= 0) return group_of(j, nodes, n, j->only);
    for (int i = 0; i < n; i++) {
        if (!room_leads(j, nodes, i, &seen)) continue;
        struct room_group g = group_of(j, nodes, n, i);
        int32_t more = of_free ? g.free - best.free : g.slots - best.slots;
        if (best.leader < 0 || more > 0) best = g;
    }
    return best;
}

bool room_lacks_memory(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct sched_job light = *j;
    light.need = NULL;
    if (!j->need || !j->need->rank) return false;
    if (j->only >= 0 && !room_free(&light, nodes, j->only)) return false;
    return room_widest(&light, nodes, n, true).free >= j->n_ranks;
}
