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

struct totals {
    int n_up, n_down;
    int32_t slots, free_slots, largest; /* over the nodes that are up */
};

static struct totals count(const struct sched_node *nodes, int n)
{
    struct totals t = {0};
    for (int i = 0; i < n; i++) {
        if (!nodes[i].up) {
            t.n_down++;
            continue;
        }
        t.n_up++;
        t.slots += nodes[i].n_slots;
        t.free_slots += nodes[i].n_slots - nodes[i].n_reserved;
        if (nodes[i].n_slots > t.largest) t.largest = nodes[i].n_slots;
    }
    return t;
}

/* The node with the fewest free slots that still holds the gang: big holes are kept for big gangs.
 */
static int best_fit(const struct sched_node *nodes, int n, int32_t n_ranks, int only)
{
    int best = -1;
    int32_t best_free = 0;
    for (int i = 0; i < n; i++) {
        int32_t free_slots = nodes[i].n_slots - nodes[i].n_reserved;
        if (!nodes[i].up || free_slots < n_ranks || (only >= 0 && i != only)) continue;
        if (best >= 0 && free_slots >= best_free) continue;
        best = i;
        best_free = free_slots;
    }
    return best;
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

static const char *s(int n)
{
    return n == 1 ? "" : "s";
}

/* Places one job or says why not. Returns whether those behind it must wait. */
static bool place(struct sched_job *j, struct sched_node *nodes, int n, int64_t first)
{
    bool pinned = !j->prepare && j->only >= 0;
    struct totals t = pinned ? count(nodes + j->only, 1) : count(nodes, n);
    if (!t.n_up) {
        if (pinned)
            because(j, "no_node", "node %s, which holds its data, is down", nodes[j->only].name);
        else
            because(j, "no_node", "no node is up (%d known)", n);
        return false;
    }
    if (j->prepare) {
        j->node = prepare_node(nodes, n);
        if (j->node >= 0)
            nodes[j->node].n_preparing++;
        else
            because(j, "waiting_to_prepare", "%d preparations run on %d node%s, at most %d each",
                    t.n_up * SCHED_MAX_PREPARE, t.n_up, s(t.n_up), SCHED_MAX_PREPARE);
        return false; /* preparing holds no slots: nobody is in the way */
    }
    if (j->n_ranks > t.largest) {
        because(j, "too_large",
                "needs %d slots on one node, the largest node up has %d (%d node%s "
                "up, %d down)",
                j->n_ranks, t.largest, t.n_up, s(t.n_up), t.n_down);
        return false;
    }
    if (first) {
        because(j, "behind",
                "behind job %lld, which is first in line; %d/%d slots free on %d node%s",
                (long long)first, t.free_slots, t.slots, t.n_up, s(t.n_up));
        return false;
    }
    j->node = best_fit(nodes, n, j->n_ranks, j->only);
    if (j->node >= 0) {
        nodes[j->node].n_reserved += j->n_ranks;
        return false;
    }
    if (pinned)
        because(j, "waiting_for_slots",
                "%d/%d slots free on node %s, which holds its data, needs %d", t.free_slots,
                t.slots, nodes[j->only].name, j->n_ranks);
    else
        because(j, "waiting_for_slots", "%d/%d slots free on %d node%s, needs %d on one node",
                t.free_slots, t.slots, t.n_up, s(t.n_up), j->n_ranks);
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
        j->reason_code[0] = j->reason[0] = 0;
        if (j->not_before_ms > now_ms) {
            because(j, "backoff", "waits %.1f s more after its last failure",
                    (double)(j->not_before_ms - now_ms) / 1000);
            continue;
        }
        if (place(j, nodes, n_nodes, first)) first = j->id;
    }
}
