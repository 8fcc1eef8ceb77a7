/* sched.c: places jobs in order, each of them as a whole or not at all. */
#include "daemon/sched/sched.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "daemon/sched/reason.h"
#include "daemon/sched/ring.h"
#include "daemon/sched/room.h"

/* ---- placing --------------------------------------------------------------------------------- */

/* Among the nodes with room for the gang, finds the node with the fewest free slots. Nodes with
 * many free slots are thus left for large gangs. */
static int best_fit(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    int best = -1;
    int32_t best_room = 0;
    for (int i = 0; i < n; i++) {
        if (j->only >= 0 && i != j->only) continue;
        const int32_t room = room_free(j, nodes, i);
        if (!room_usable(j, nodes, i) || room < j->n_ranks) continue;
        if (best >= 0 && room >= best_room) continue;
        best = i;
        best_room = room;
    }
    return best;
}

static bool has_part(const struct sched_job *j, int node)
{
    for (int i = 0; i < j->n_parts; i++)
        if (j->part[i].node == node) return true;
    return false;
}

/* Tells whether a node with room for `a` ranks is better than a node with room for `b` ranks, if
 * `left` ranks must still be placed. Among the nodes with room for all these ranks, the smallest
 * is the best. If no node has room for all of them, the largest is the best. This rule makes few
 * parts. */
static bool better(int32_t a, int32_t b, int32_t left)
{
    if (a >= left) return b < left || a < b;
    return b < left && a > b;
}

/* Spreads the ranks, in multiples of `unit`, over the nodes of the group of `leader`. Returns
 * false if these nodes do not suffice. */
static bool spread(struct sched_job *j, const struct sched_node *nodes, int n, int leader,
                   int32_t unit)
{
    int32_t left = j->n_ranks;
    j->n_parts = j->first = 0;
    for (; left > 0; j->first = j->n_ranks - left) {
        int best = -1;
        int32_t best_room = 0;
        for (int i = 0; i < n; i++) {
            int32_t room = room_free(j, nodes, i) / unit * unit;
            bool first = j->n_parts == 0 && j->only >= 0;
            if (room < 1 || !room_together(j, nodes, leader, i) || has_part(j, i)) continue;
            if (first && i != j->only) continue;
            if (best >= 0 && !better(room, best_room, left)) continue;
            best = i;
            best_room = room;
        }
        if (best < 0) return false;
        if (best_room > left) best_room = left;
        j->part[j->n_parts++] = (struct sched_part){(uint16_t)best, (uint16_t)best_room};
        left -= best_room;
    }
    j->first = 0;
    return true;
}

/* Tells whether each part's node has enough memory for the part's ranks. The order of the parts
 * determines which ranks a part has. */
static bool has_memory(const struct sched_job *j, const struct sched_node *nodes)
{
    int32_t first = 0;
    for (int i = 0; i < j->n_parts; first += j->part[i++].n_ranks) {
        const struct sched_node *at = &nodes[j->part[i].node];
        if (j->need && at->memory_size &&
            need_of(j->need, first, j->part[i].n_ranks) > room_memory(at))
            return false;
    }
    return true;
}

/* Moves parts that consist of whole rings to the front, so that few rings span two nodes. The part
 * of rank 0 is not moved if rank 0 must be on its node. */
static void whole_rings_first(struct sched_job *j, const struct sched_node *nodes, int32_t ring)
{
    struct sched_part as_found[JOB_MAX_RANKS];
    memcpy(as_found, j->part, sizeof as_found);
    int to = j->only >= 0 ? 1 : 0;
    for (int i = to; i < j->n_parts; i++) {
        struct sched_part p = j->part[i];
        if (p.n_ranks % ring) continue;
        memmove(&j->part[to + 1], &j->part[to], (size_t)(i - to) * sizeof p);
        j->part[to++] = p;
    }
    if (!has_memory(j, nodes)) memcpy(j->part, as_found, sizeof as_found);
}

/* Places a gang over several nodes. If any group of nodes allows it, rings are kept whole.
 * Otherwise, if any group of nodes allows it, the ranks that share layers are kept together. Among
 * the placements that are left, the placement with the fewest nodes is chosen. */
static bool place_over_nodes(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const int32_t ring = j->ring > 0 ? j->ring : j->n_ranks, share = j->share > 0 ? j->share : 1;
    const int32_t unit[] = {ring, share, 1};
    if (j->only >= 0 && room_free(j, nodes, j->only) < 1) return false;
    struct sched_job best = *j, try = *j;
    bool found = false;
    for (int u = 0; u < 3 && !found; u++) {
        uint64_t seen = 0;
        for (int i = 0; i < n && (!u || unit[u] < unit[u - 1]); i++) {
            if (j->only >= 0 ? i != j->only : !room_leads(j, nodes, i, &seen)) continue;
            if (!spread(&try, nodes, n, i, unit[u])) continue;
            if (found && try.n_parts >= best.n_parts) continue;
            best = try;
            found = true;
        }
    }
    if (!found) return false;
    whole_rings_first(&best, nodes, ring);
    j->n_parts = best.n_parts;
    memcpy(j->part, best.part, sizeof j->part);
    return true;
}

/* Marks the slots, GPUs and memory of the job's parts as taken, so that no other job gets them.
 * `keep` means that they are only reserved, because the job does not start yet. */
static void take(struct sched_job *j, struct sched_node *nodes, bool keep)
{
    uint8_t *gpu = j->gpu;
    for (int i = 0, first = 0; i < j->n_parts; first += j->part[i++].n_ranks) {
        struct sched_node *at = &nodes[j->part[i].node];
        const int n = j->part[i].n_ranks;
        bool free[GPU_MAX];
        if (j->need) at->memory_held += need_of(j->need, first, n);
        at->n_attempts += !keep;
        at->alone = at->alone || (j->alone && !keep);
        if (j->device != SCHED_GPUS) {
            *(keep ? &at->n_kept : &at->n_reserved) += n;
            continue;
        }
        room_gpus(j, nodes, j->part[i].node, free);
        const bool picked = ring_pick(at->gpu, free, at->n_gpus, n, gpu);
        assert(picked);
        for (int k = 0; k < n; k++) at->gpu[gpu[k]].state = keep ? SCHED_GPU_KEPT : SCHED_GPU_HELD;
        gpu += n;
    }
}

static bool find_place(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int one = best_fit(j, nodes, n);
    if (one >= 0) {
        j->n_parts = 1;
        j->part[0] = (struct sched_part){(uint16_t)one, (uint16_t)j->n_ranks};
    } else if (j->one_node || !place_over_nodes(j, nodes, n)) {
        j->n_parts = 0;
        return false;
    }
    j->node = j->part[0].node;
    return true;
}

bool sched_find(struct sched_job *j, const struct sched_node *nodes, int n)
{
    if (find_place(j, nodes, n)) return true;
    if (j->only < 0 || sched_held(j)) return false;
    j->only = -1; /* the node that has the job's data has no room, so try all nodes */
    return find_place(j, nodes, n);
}

void sched_take(struct sched_job *j, struct sched_node *nodes)
{
    take(j, nodes, false);
}

/* Finds a node on which to prepare data. Rank 0 will run on the same node. If the job begins from
 * a checkpoint, the node must be the node of the checkpoint. Otherwise a node with room for the
 * ranks is preferred. */
static int prepare_node(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    int best = -1;
    int32_t want = 0;
    if (j->checkpoint && j->only >= 0) {
        return room_prepares(j, nodes, j->only) ? j->only : -1;
    }
    for (int i = 0; i < n && j->device != SCHED_SLOTS; i++) {
        const int32_t width = room_usable(j, nodes, i) ? room_width(j, nodes, i) : 0;
        if (width > want) want = width < j->n_ranks ? width : j->n_ranks;
    }
    for (int i = 0; i < n; i++) {
        if (!room_prepares(j, nodes, i)) continue;
        if (want && room_width(j, nodes, i) < want) continue;
        if (best < 0 || nodes[i].n_preparing < nodes[best].n_preparing) best = i;
    }
    return best;
}

static void place_prepare(struct sched_job *j, struct sched_node *nodes, int n)
{
    j->node = prepare_node(j, nodes, n);
    if (j->node < 0) {
        reason_preparing(j, nodes, n);
        return;
    }
    struct sched_node *at = &nodes[j->node];
    at->n_preparing++;
    at->n_attempts++;
    at->memory_held += NEED_ERRAND;
    at->alone = at->alone || j->alone;
    j->n_parts = 1;
    j->part[0] = (struct sched_part){(uint16_t)j->node, 1};
}

/* Frees the slots, GPUs and memory of the node, as if every attempt on the node had ended. */
static void make_idle(struct sched_node *at)
{
    at->n_reserved = at->n_kept = at->n_attempts = 0;
    at->memory_held = 0;
    at->alone = false;
    for (int k = 0; k < at->n_gpus; k++) {
        if (at->gpu[k].state != SCHED_GPU_UNFIT) at->gpu[k].state = SCHED_GPU_FREE;
        at->gpu[k].memory_free = at->gpu[k].memory_size;
    }
}

/* Tells whether a job of several stages would fit on idle nodes. The number of ranks that a node
 * can hold depends on the stages of the ranks. For that reason the job is placed on idle copies of
 * the nodes. */
static bool fits_stages(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct sched_node *idle = malloc((size_t)n * sizeof *idle);
    struct sched_job try = *j;
    if (!idle) abort();
    memcpy(idle, nodes, (size_t)n * sizeof *idle);
    for (int i = 0; i < n; i++) {
        make_idle(&idle[i]);
        idle[i].kept_for[0] = idle[i].kept_for[1] = 0;
    }
    const bool found = find_place(&try, idle, n);
    free(idle);
    return found;
}

/* Tells whether the job would fit on idle nodes. */
static bool fits(const struct sched_job *j, const struct sched_node *nodes, int n,
                 const struct room_group *g)
{
    if (g->leader < 0 || !room_usable(j, nodes, g->leader)) return false;
    if (j->need && j->need->n_stages > 1) return fits_stages(j, nodes, n);
    return j->n_ranks <= g->slots && (j->only < 0 || room_width(j, nodes, j->only) > 0);
}

bool sched_could(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    const struct room_group g = room_widest(j, nodes, n, false);
    return fits(j, nodes, n, &g);
}

static bool could_without(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct sched_job free = *j;
    free.only = -1;
    return sched_could(&free, nodes, n);
}

static bool any_usable(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    for (int i = 0; i < n; i++)
        if (room_usable(j, nodes, i)) return true;
    return false;
}

/* Allows the job's data to be prepared again on a different node. For a job on GPUs the
 * preparation is a separate task, which takes no GPU. */
static void let_data_go(struct sched_job *j)
{
    j->prepare = j->prepare || j->device == SCHED_GPUS;
    j->only = -1;
}

static bool is_empty(const struct sched_set *s)
{
    uint64_t any = 0;
    for (int i = 0; i < SCHED_NODES / 64; i++) any |= s->bits[i];
    return !any;
}

/* Tells whether every node suits the job's next task. This is true if the task is a preparation,
 * which takes no slots, if the ranks need no special device, and if the job need not run on the
 * node of a checkpoint. */
static bool is_bare(const struct sched_job *j)
{
    return j->prepare && j->device == SCHED_SLOTS && !(j->checkpoint && j->only >= 0);
}

/* Drops the preferences of the job one by one until the job would fit on idle nodes. It first
 * drops the preference for the node that has the data. Then it no longer avoids the GPU that
 * failed the job, then the nodes that failed the job, and at last the nodes without the job's
 * files. */
static void give_way(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const bool bare = is_bare(j); /* any node suits the job */
    const bool picky = (j->only >= 0 && !sched_held(j)) || j->avoid_node >= 0 ||
                       !is_empty(&j->blamed) || !is_empty(&j->lacks);
    if (!picky) return; /* most jobs return here, before the comparisons below */
    for (int step = 0; step < 4; step++) {
        if (bare ? any_usable(j, nodes, n) : sched_could(j, nodes, n)) return;
        if (j->only >= 0 && !sched_held(j) && could_without(j, nodes, n)) {
            let_data_go(j);
            return;
        }
        if (step == 0) j->avoid_node = -1;
        if (step == 1 && !j->soon) j->blamed = (struct sched_set){0};
        if (step == 2 && !j->soon && !j->awaited) j->lacks = (struct sched_set){0};
    }
    if (!sched_held(j)) j->only = -1;
}

/* Uses the data on a node that the job has left out, if give_way allows that node again. Otherwise
 * the data would be prepared again, and also on a node that the job has left out. */
static void take_data(struct sched_job *j, const struct sched_node *nodes)
{
    if (!j->data || !j->prepare || !room_usable(j, nodes, j->data - 1)) return;
    j->prepare = false;
    j->only = j->data - 1;
}

/* Reserves room for a job that waits for the only node on which it may run. The reserved room is
 * all the room that the job would take if that node were idle. Returns false if the job would not
 * fit even on the idle node. If several jobs wait for a node, the node is reserved only for the
 * first of them. */
static bool keep(struct sched_job *j, struct sched_node *nodes, int n)
{
    if (!sched_held(j) || !room_usable(j, nodes, j->only)) return false;
    struct sched_node *at = &nodes[j->only], was = *at;
    int64_t *kept_for = &at->kept_for[j->device == SCHED_GPUS];
    if (*kept_for) return true; /* the node is reserved for an earlier job */
    struct sched_job try = *j;
    make_idle(at);
    const bool would = find_place(&try, nodes, n);
    if (would) take(&try, nodes, true);
    *at = was;
    if (would) *kept_for = j->id;
    return would;
}

/* Tells whether `keep` has reserved the node for this job. */
static bool has_kept(const struct sched_job *j, const struct sched_node *nodes)
{
    return sched_held(j) && nodes[j->only].kept_for[j->device == SCHED_GPUS] == j->id;
}

/* Writes that the job waits because it has too many ranks for the nodes, or because each rank
 * takes too much memory. */
static void say_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                          const struct room_group *g)
{
    struct sched_job light = *j;
    light.need = NULL;
    if (j->device != SCHED_GPUS && sched_could(&light, nodes, n))
        reason_too_heavy(j, nodes, n);
    else
        reason_too_large(j, nodes, n, g);
}

/* Places one job, or writes why it waits. Returns whether the jobs after it must wait. */
static bool place(struct sched_job *j, struct sched_node *nodes, int n, int64_t first)
{
    give_way(j, nodes, n);
    take_data(j, nodes);
    struct room_group g = room_widest(j, nodes, n, false);
    const bool bare = is_bare(j); /* any node can prepare its data */
    if (bare) {
        place_prepare(j, nodes, n);
        return false; /* a preparation holds no slots, so no later job has to wait for it */
    }
    if (g.leader < 0 || !room_usable(j, nodes, g.leader) || (j->toy && j->only < 0)) {
        reason_no_node(j, nodes, n);
        return false;
    }
    if (!fits(j, nodes, n, &g)) {
        say_too_large(j, nodes, n, &g);
        return false;
    }
    if (j->prepare) {
        place_prepare(j, nodes, n);
        return false;
    }
    if (first && !j->toy) { /* a toy run does not wait for the jobs that are on its node */
        reason_behind(j, nodes, n, first);
        return false;
    }
    if (sched_find(j, nodes, n)) {
        take(j, nodes, false);
        return false;
    }
    reason_waiting(j, nodes, n);
    return !keep(j, nodes, n) && !j->toy;
}

/* Returns the bytes of memory that a part needs. It has n ranks, beginning with rank `first`. */
static int64_t part_memory(const struct sched_job *j, int32_t first, int32_t n)
{
    if (j->prepare) return NEED_ERRAND;
    return j->need ? need_of(j->need, first, n) : 0;
}

/* Returns the number of ranks that the job has on a node. *memory gets the bytes of memory of
 * these ranks. */
static int32_t given_on(const struct sched_job *j, int node, int64_t *memory)
{
    *memory = 0;
    for (int i = 0, first = 0; i < j->n_parts; first += j->part[i++].n_ranks)
        if (j->part[i].node == node) {
            *memory = part_memory(j, first, j->part[i].n_ranks);
            return j->part[i].n_ranks;
        }
    return 0;
}

static void set_gpus(struct sched_node *at, const uint8_t *gpu, int32_t n, int from, int to)
{
    for (int k = 0; k < n; k++) {
        if (gpu[k] >= at->n_gpus || at->gpu[gpu[k]].state != from) continue;
        at->gpu[gpu[k]].state = (uint8_t)to;
        if (to == SCHED_GPU_FREE) at->gpu[gpu[k]].memory_free = at->gpu[gpu[k]].memory_size;
    }
}

/* Frees the slots, GPUs and memory of a job that moves, while a new place is searched for it. The
 * array `alone` tells for each part whether no other attempt may be on the part's node. */
static void let_own(const struct sched_job *held, struct sched_node *nodes, bool *alone)
{
    for (int i = 0, first = 0; i < held->n_parts; first += held->part[i++].n_ranks) {
        struct sched_node *at = &nodes[held->part[i].node];
        const int32_t n = held->part[i].n_ranks;
        at->n_attempts--;
        at->memory_held -= part_memory(held, first, n);
        alone[i] = at->alone && !at->n_attempts;
        if (alone[i]) at->alone = false;
        if (held->prepare)
            at->n_preparing--;
        else if (held->device != SCHED_GPUS)
            at->n_reserved -= n;
        else
            set_gpus(at, held->gpu + first, n, SCHED_GPU_HELD, SCHED_GPU_FREE);
    }
}

/* Takes back the resources that let_own freed, except for the resources that the new place
 * uses. */
static void hold_own(const struct sched_job *held, const struct sched_job *j,
                     struct sched_node *nodes, const bool *alone)
{
    for (int i = 0, first = 0; i < held->n_parts; first += held->part[i++].n_ranks) {
        struct sched_node *at = &nodes[held->part[i].node];
        int64_t has;
        const int32_t n = held->part[i].n_ranks, given = given_on(j, held->part[i].node, &has);
        const int32_t more = n > given ? n - given : 0;
        const int64_t memory = part_memory(held, first, n);
        at->n_attempts += !given;
        at->memory_held += memory > has ? memory - has : 0;
        at->alone = at->alone || alone[i];
        if (held->prepare)
            at->n_preparing += more;
        else if (held->device != SCHED_GPUS)
            at->n_reserved += more;
        else
            set_gpus(at, held->gpu + first, n, SCHED_GPU_FREE, SCHED_GPU_HELD);
    }
}

void sched_release(const struct sched_job *held, struct sched_node *nodes)
{
    bool alone[JOB_MAX_RANKS];
    let_own(held, nodes, alone);
}

void sched_hold(const struct sched_job *j, struct sched_node *nodes)
{
    for (int i = 0, first = 0; i < j->n_parts; first += j->part[i++].n_ranks) {
        struct sched_node *at = &nodes[j->part[i].node];
        at->n_attempts++;
        at->memory_held += part_memory(j, first, j->part[i].n_ranks);
        if (j->device != SCHED_GPUS)
            at->n_reserved += j->part[i].n_ranks;
        else
            set_gpus(at, j->gpu + first, j->part[i].n_ranks, SCHED_GPU_FREE, SCHED_GPU_HELD);
    }
}

static bool place_again(struct sched_job *j, struct sched_node *nodes, int n, int64_t first)
{
    const struct sched_job held = *j;
    bool alone[JOB_MAX_RANKS];
    let_own(&held, nodes, alone);
    j->n_parts = 0;
    const bool waits = place(j, nodes, n, first);
    hold_own(&held, j, nodes, alone);
    return waits;
}

bool sched_barred(struct sched_job *j, int64_t now_ms)
{
    const bool backs_off = j->not_before_ms > now_ms;
    j->node = -1;
    if (!j->moves) j->n_parts = 0;
    j->reason_code[0] = j->reason[0] = 0;
    if (backs_off)
        reason(j, "backoff", "waits %.1f s more after its last failure",
               (double)(j->not_before_ms - now_ms) / 1000);
    else if (j->n_user && j->max_user && *j->n_user >= j->max_user)
        reason(j, "user_limit", "its user has %d jobs with ranks on nodes, the most that one may",
               *j->n_user);
    return *j->reason_code;
}

void sched_place(struct sched_line *l, struct sched_job *j, struct sched_node *nodes, int n_nodes)
{
    int64_t *in_front = &l->first[j->device == SCHED_GPUS];
    const bool waits = j->moves ? place_again(j, nodes, n_nodes, *in_front)
                                : place(j, nodes, n_nodes, *in_front);
    if (j->node >= 0 || j->moves || has_kept(j, nodes)) l->n_changes++;
    if (waits) {
        *in_front = j->id;
        /* Jobs that take slots and jobs that take GPUs share the memory of nodes. For that reason
         * a job that waits for memory is first in both lines. */
        int64_t *other = &l->first[j->device != SCHED_GPUS];
        if (!*other && room_lacks_memory(j, nodes, n_nodes)) *other = j->id;
    }
    if (j->n_user && j->node >= 0 && !j->prepare) ++*j->n_user;
}
