#include "daemon/sched.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_rank(const void *a, const void *b)
{
    const struct sched_job *x = a, *y = b;
    if (x->priority != y->priority) return x->priority > y->priority ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

__attribute__((format(printf, 3, 4))) static void because(struct sched_job *j, const char *code,
                                                          const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    snprintf(j->reason_code, sizeof j->reason_code, "%s", code);
    vsnprintf(j->reason, sizeof j->reason, fmt, ap);
    va_end(ap);
}

static int32_t free_slots(const struct sched_node *n)
{
    return n->up ? n->n_slots - n->n_reserved : 0;
}

static const char *s(int n)
{
    return n == 1 ? "" : "s";
}

/* ---- which nodes may hold one gang together ---------------------------------------------------- */

struct group {
    int leader; /* a node of it; -1: none */
    int n_nodes;
    int32_t slots, free;
};

static bool together(const struct sched_job *j, const struct sched_node *nodes, int a, int b)
{
    if (!nodes[a].up || !nodes[b].up) return false;
    return a == b || (!j->one_node && nodes[a].net && nodes[a].net == nodes[b].net);
}

static struct group group_of(const struct sched_job *j, const struct sched_node *nodes, int n,
                             int leader)
{
    const struct sched_node *l = &nodes[leader];
    struct group g = {.leader = leader};
    if (l->up && (j->one_node || !l->net))
        return (struct group){leader, 1, l->n_slots, free_slots(l)};
    for (int i = 0; i < n; i++) {
        if (!together(j, nodes, leader, i)) continue;
        g.n_nodes++;
        g.slots += nodes[i].n_slots;
        g.free += free_slots(&nodes[i]);
    }
    return g;
}

/* The first node of its net stands for all of them. */
static bool leads(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    if (!nodes[i].up || j->one_node || !nodes[i].net) return nodes[i].up;
    for (int k = 0; k < i; k++)
        if (together(j, nodes, k, i)) return false;
    return true;
}

/* The group with the most slots (or free ones), among those the job may use. */
static struct group widest(const struct sched_job *j, const struct sched_node *nodes, int n,
                           bool of_free)
{
    struct group best = {.leader = -1};
    if (j->only >= 0) return group_of(j, nodes, n, j->only);
    for (int i = 0; i < n; i++) {
        if (!leads(j, nodes, i)) continue;
        struct group g = group_of(j, nodes, n, i);
        int32_t more = of_free ? g.free - best.free : g.slots - best.slots;
        if (best.leader < 0 || more > 0) best = g;
    }
    return best;
}

/* ---- placing ----------------------------------------------------------------------------------- */

/* The node with the fewest free slots that still holds the gang: big holes are kept for big gangs.
 */
static int best_fit(const struct sched_node *nodes, int n, int32_t n_ranks, int only)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (!nodes[i].up || free_slots(&nodes[i]) < n_ranks || (only >= 0 && i != only)) continue;
        if (best < 0 || free_slots(&nodes[i]) < free_slots(&nodes[best])) best = i;
    }
    return best;
}

static bool has_part(const struct sched_job *j, int node)
{
    for (int i = 0; i < j->n_parts; i++)
        if (j->part[i].node == node) return true;
    return false;
}

/* Of two nodes that can take a and b ranks: is a the better one for `left` ranks? The smallest that
 * takes them all, else the largest: so the parts are as few as possible. */
static bool better(int32_t a, int32_t b, int32_t left)
{
    if (a >= left) return b < left || a < b;
    return b < left && a > b;
}

/* Parts in multiples of `ring` ranks over the group of `leader`. False: they do not suffice. */
static bool spread(struct sched_job *j, const struct sched_node *nodes, int n, int leader,
                   int32_t ring)
{
    int32_t left = j->n_ranks;
    j->n_parts = 0;
    while (left > 0) {
        int best = -1;
        int32_t best_room = 0;
        for (int i = 0; i < n; i++) {
            int32_t room = free_slots(&nodes[i]) / ring * ring;
            bool first = j->n_parts == 0 && j->only >= 0;
            if (room < 1 || !together(j, nodes, leader, i) || has_part(j, i)) continue;
            if (first && i != j->only) continue;
            if (best >= 0 && !better(room, best_room, left)) continue;
            best = i;
            best_room = room;
        }
        if (best < 0) return false;
        if (best_room > left) best_room = left;
        j->part[j->n_parts++] = (struct sched_part){(uint8_t)best, (uint8_t)best_room};
        left -= best_room;
    }
    return true;
}

/* Parts of whole rings first, so that few rings lie over two nodes; rank 0 stays where it must be. */
static void whole_rings_first(struct sched_job *j, int32_t ring)
{
    int to = j->only >= 0 ? 1 : 0;
    for (int i = to; i < j->n_parts; i++) {
        struct sched_part p = j->part[i];
        if (p.n_ranks % ring) continue;
        memmove(&j->part[to + 1], &j->part[to], (size_t)(i - to) * sizeof p);
        j->part[to++] = p;
    }
}

/* Over several nodes: rings whole if any group can, then the fewest nodes. */
static bool place_over_nodes(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int32_t ring = j->ring > 0 ? j->ring : j->n_ranks;
    struct sched_job best = *j, try = *j;
    bool found = false;
    for (int whole = 1; whole >= 0 && !found; whole--)
        for (int i = 0; i < n; i++) {
            if (j->only >= 0 ? i != j->only : !leads(j, nodes, i)) continue;
            if (!spread(&try, nodes, n, i, whole ? ring : 1)) continue;
            if (found && try.n_parts >= best.n_parts) continue;
            best = try;
            found = true;
        }
    if (!found) return false;
    whole_rings_first(&best, ring);
    j->n_parts = best.n_parts;
    memcpy(j->part, best.part, sizeof j->part);
    return true;
}

static bool place_gang(struct sched_job *j, struct sched_node *nodes, int n)
{
    int one = best_fit(nodes, n, j->n_ranks, j->only);
    if (one >= 0) {
        j->n_parts = 1;
        j->part[0] = (struct sched_part){(uint8_t)one, (uint8_t)j->n_ranks};
    } else if (j->one_node || !place_over_nodes(j, nodes, n)) {
        j->n_parts = 0;
        return false;
    }
    j->node = j->part[0].node;
    for (int i = 0; i < j->n_parts; i++) nodes[j->part[i].node].n_reserved += j->part[i].n_ranks;
    return true;
}

static int prepare_node(const struct sched_node *nodes, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (!nodes[i].up || nodes[i].n_preparing >= SCHED_MAX_PREPARE) continue;
        if (best < 0 || nodes[i].n_preparing < nodes[best].n_preparing) best = i;
    }
    return best;
}

/* ---- why not ----------------------------------------------------------------------------------- */

struct what {
    char text[48];
};

/* What the node that it must be on has of it. */
static struct what what(const struct sched_job *j)
{
    struct what w = {"data"};
    if (j->checkpoint)
        snprintf(w.text, sizeof w.text, "checkpoint of step %lld", (long long)j->checkpoint);
    return w;
}

static void because_no_node(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const char *name = j->only >= 0 ? nodes[j->only].name : NULL;
    if (name && j->checkpoint)
        because(j, "no_node",
                "node %s, which holds its %s, is down; to begin anew elsewhere: "
                "seqctl restart %lld",
                name, what(j).text, (long long)j->id);
    else if (name)
        because(j, "no_node", "node %s, which holds its %s, is down", name, what(j).text);
    else
        because(j, "no_node", "no node is up (%d known)", n);
}

static void because_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                              const struct group *g)
{
    int up = 0;
    for (int i = 0; i < n; i++) up += nodes[i].up;
    if (j->only >= 0 && !nodes[j->only].n_slots)
        because(j, "too_large", "rank 0 needs a slot on node %s, which holds its %s and has none",
                nodes[j->only].name, what(j).text);
    else if (j->only >= 0)
        because(j, "too_large",
                "needs %d slots, node %s, which holds its %s, and what it reaches have %d",
                j->n_ranks, nodes[j->only].name, what(j).text, g->slots);
    else
        because(j, "too_large", "needs %d slots%s, the %s %d (%d node%s up, %d down)", j->n_ranks,
                j->one_node ? " on one node (parallel.transport is shm)" : "",
                g->n_nodes == 1 ? "largest node up has" : "nodes up that reach each other have",
                g->slots, up, s(up), n - up);
}

static void because_waiting(struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct group g = widest(j, nodes, n, true);
    const struct sched_node *only = j->only >= 0 ? &nodes[j->only] : NULL;
    int up = 0;
    int32_t slots = 0, left = 0;
    for (int i = 0; i < n; i++) {
        up += nodes[i].up;
        slots += nodes[i].up ? nodes[i].n_slots : 0;
        left += free_slots(&nodes[i]);
    }
    if (only && g.free >= j->n_ranks)
        because(j, "waiting_for_slots",
                "0/%d slots free on node %s, which holds its %s: rank 0 needs one there",
                only->n_slots, only->name, what(j).text);
    else if (only)
        because(j, "waiting_for_slots",
                "%d/%d slots free on node %s, which holds its %s%s, needs %d", g.free, g.slots,
                only->name, what(j).text, g.n_nodes > 1 ? ", and what it reaches" : "", j->n_ranks);
    else if (j->one_node)
        because(j, "waiting_for_slots",
                "%d/%d slots free on %d node%s, needs %d on one node (parallel.transport is shm)",
                left, slots, up, s(up), j->n_ranks);
    else
        because(j, "waiting_for_slots", "%d/%d slots free on %d node%s%s, needs %d", g.free,
                g.slots, g.n_nodes, s(g.n_nodes), g.n_nodes < up ? " that reach each other" : "",
                j->n_ranks);
}

static void because_behind(struct sched_job *j, const struct sched_node *nodes, int n,
                           int64_t first)
{
    int up = 0;
    int32_t slots = 0, left = 0;
    for (int i = 0; i < n; i++) {
        up += nodes[i].up;
        slots += nodes[i].up ? nodes[i].n_slots : 0;
        left += free_slots(&nodes[i]);
    }
    because(j, "behind", "behind job %lld, which is first in line; %d/%d slots free on %d node%s",
            (long long)first, left, slots, up, s(up));
}

static void place_prepare(struct sched_job *j, struct sched_node *nodes, int n)
{
    int up = 0;
    for (int i = 0; i < n; i++) up += nodes[i].up;
    j->node = prepare_node(nodes, n);
    if (j->node >= 0) {
        nodes[j->node].n_preparing++;
        j->n_parts = 1;
        j->part[0] = (struct sched_part){(uint8_t)j->node, 1};
    } else if (!up) {
        because(j, "no_node", "no node is up (%d known)", n);
    } else {
        because(j, "waiting_to_prepare", "%d preparations run on %d node%s, at most %d each",
                up * SCHED_MAX_PREPARE, up, s(up), SCHED_MAX_PREPARE);
    }
}

/* Places one job or says why not. Returns whether those behind it must wait. */
static bool place(struct sched_job *j, struct sched_node *nodes, int n, int64_t first)
{
    if (j->prepare) {
        place_prepare(j, nodes, n);
        return false; /* preparing holds no slots: nobody is in the way */
    }
    struct group g = widest(j, nodes, n, false);
    if (g.leader < 0 || !nodes[g.leader].up) {
        because_no_node(j, nodes, n);
        return false;
    }
    if (j->n_ranks > g.slots || (j->only >= 0 && !nodes[j->only].n_slots)) {
        because_too_large(j, nodes, n, &g);
        return false;
    }
    if (first) {
        because_behind(j, nodes, n, first);
        return false;
    }
    if (place_gang(j, nodes, n)) return false;
    because_waiting(j, nodes, n);
    return true;
}

void sched_pick(struct sched_job *jobs, int n_jobs, struct sched_node *nodes, int n_nodes,
                int64_t now_ms)
{
    int64_t first = 0; /* the job all later ones wait behind */
    if (n_jobs) qsort(jobs, (size_t)n_jobs, sizeof *jobs, by_rank);
    for (int i = 0; i < n_jobs; i++) {
        struct sched_job *j = &jobs[i];
        j->node = -1;
        j->n_parts = 0;
        j->reason_code[0] = j->reason[0] = 0;
        if (j->not_before_ms > now_ms) {
            because(j, "backoff", "waits %.1f s more after its last failure",
                    (double)(j->not_before_ms - now_ms) / 1000);
            continue;
        }
        if (place(j, nodes, n_nodes, first)) first = j->id;
    }
}
