/* reason.c: counts nodes, slots and GPUs, and writes with these counts the reason for which a job
 * waits. */
#include "daemon/sched/reason.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "daemon/sched/room.h"

void reason(struct sched_job *j, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    snprintf(j->reason_code, sizeof j->reason_code, "%s", code);
    vsnprintf(j->reason, sizeof j->reason, fmt, ap);
    va_end(ap);
}

static const char *s(int n)
{
    return n == 1 ? "" : "s";
}

struct what {
    char text[240];
};

/* Writes why the job must be on node j->only (sched_held). */
static struct what what(const struct sched_job *j)
{
    struct what w = {"is to be tested"};
    if (!j->toy)
        snprintf(w.text, sizeof w.text,
                 j->source ? "holds the checkpoint of step %lld that it begins from"
                           : "holds its checkpoint of step %lld",
                 (long long)j->checkpoint);
    return w;
}

/* ---- counts ---------------------------------------------------------------------------------- */

static const char *unit(const struct sched_job *j, int n)
{
    if (j->device == SCHED_GPUS) return n == 1 ? "GPU" : "GPUs";
    return n == 1 ? "slot" : "slots";
}

/* The numbers of nodes that are left out, by cause, and the room of all other nodes. */
struct census {
    int up, down, quarantined, lacks, old; /* up counts the nodes that the job may use */
    int cordoned, ending, elsewhere;
    const char *why;             /* reason why the first cordoned node is cordoned */
    int32_t width, room;         /* counts of slots, or of GPUs if the job takes GPUs */
    int unfit, small, busy, all; /* numbers of GPUs */
    int cramped;
    int apart; /* nodes on which an attempt must be alone */
};

static void count_gpus(const struct sched_job *j, const struct sched_node *n, struct census *c)
{
    for (int k = 0; k < n->n_gpus && j->device == SCHED_GPUS; k++) {
        const struct sched_gpu *g = &n->gpu[k];
        c->all++;
        if (g->state == SCHED_GPU_UNFIT)
            c->unfit++;
        else if (g->memory_size < j->gpu_size)
            c->small++;
        else if (g->state == SCHED_GPU_BUSY ||
                 (g->state == SCHED_GPU_FREE && g->memory_free < j->gpu_free))
            c->busy++;
    }
}

static struct census census(const struct sched_job *j, const struct sched_node *nodes, int n)
{
    struct census c = {0};
    for (int i = 0; i < n; i++) {
        if (!nodes[i].up) c.down++;
        if (nodes[i].up && nodes[i].cordoned && !c.cordoned++) c.why = nodes[i].why;
        if (nodes[i].up && nodes[i].cordoned) continue;
        if (nodes[i].up && nodes[i].quarantined && !j->toy)
            c.quarantined++;
        else if (nodes[i].up && sched_has(&j->old, i))
            c.old++;
        else if (nodes[i].up && sched_has(&j->apart, i))
            c.elsewhere++;
        else if (nodes[i].up && room_ends(j, nodes, i))
            c.ending++;
        else if (nodes[i].up && (sched_has(&j->lacks, i) || sched_has(&j->blamed, i)))
            c.lacks++;
        if (!room_usable(j, nodes, i)) continue;
        c.up++;
        c.width += room_width(j, nodes, i);
        c.room += room_free(j, nodes, i);
        count_gpus(j, &nodes[i], &c);
        c.cramped += room_cramped(j, nodes, i);
        c.apart += nodes[i].alone;
    }
    return c;
}

/* Writes how many nodes and GPUs cannot be used, and why, for example "of 8 GPUs 1 is unfit, 2
 * have less than 12.5 GiB, 1 is used by others". The text begins with a semicolon. */
static struct what left_out(const struct sched_job *j, const struct census *c)
{
    struct what w = {""};
    int n = 0;
    if (c->apart)
        n += snprintf(w.text, sizeof w.text,
                      "; on %d node%s an attempt is alone, whose job the "
                      "kernel killed for memory",
                      c->apart, s(c->apart));
    if (c->unfit + c->small + c->busy + c->cramped == 0) return w;
    n += snprintf(w.text + n, sizeof w.text - (size_t)n, "; of %d GPU%s", c->all, s(c->all));
    if (c->unfit)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, " %d %s unfit", c->unfit,
                      c->unfit == 1 ? "is" : "are");
    if (c->small)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, "%s %d %s less than %.1f GiB",
                      c->unfit ? "," : "", c->small, c->small == 1 ? "has" : "have",
                      (double)j->gpu_size / (1 << 30));
    if (c->busy)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, "%s %d %s used by others",
                      c->unfit || c->small ? "," : "", c->busy, c->busy == 1 ? "is" : "are");
    if (c->cramped)
        snprintf(w.text + n, sizeof w.text - (size_t)n, "%s %d %s %.1f GiB of the node's memory",
                 c->unfit || c->small || c->busy ? "," : "", c->cramped,
                 c->cramped == 1 ? "lacks" : "lack", (double)j->need->rank / (1 << 30));
    return w;
}

/* Writes the counts of all nodes, for example "3 nodes up, 1 down, 1 in quarantine". */
static struct what all_nodes(const struct sched_job *j, const struct census *c)
{
    struct what w;
    int n = snprintf(w.text, sizeof w.text, "%d node%s up, %d down", c->up, s(c->up), c->down);
    if (c->quarantined)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %d in quarantine", c->quarantined);
    if (c->cordoned)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %d %s%s", c->cordoned,
                      c->cordoned > 1 ? "cordoned, the first " : "", c->why);
    if (c->ending)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %d %s before limits.wall_s",
                      c->ending, c->ending == 1 ? "ends" : "end");
    if (c->elsewhere)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %d without that directory",
                      c->elsewhere);
    if (c->lacks)
        n += snprintf(w.text + n, sizeof w.text - (size_t)n, ", %d left out after failing this job",
                      c->lacks);
    if (c->old)
        snprintf(w.text + n, sizeof w.text - (size_t)n,
                 ", %d of an older version without %.48s (upgrade seqw there)", c->old, j->needs);
    return w;
}

/* ---- memory ---------------------------------------------------------------------------------- */

struct size {
    char text[32];
};

static struct size size(int64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct size s;
    double v = (double)bytes;
    int u = 0;
    while (v >= 1024 && u < 4) v /= 1024, u++;
    snprintf(s.text, sizeof s.text, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return s;
}

/* Writes the memory that the job's ranks need, for example "4 x 242.9 MiB". Each rank is counted
 * as the largest rank. */
static struct size needed(const struct sched_job *j)
{
    const struct size one = size(j->need->rank);
    struct size s;
    if (j->n_ranks == 1) return one;
    snprintf(s.text, sizeof s.text, "%d x %.20s", j->n_ranks, one.text);
    return s;
}

/* Returns the node with the largest memory among the nodes that the job may use. If of_free is
 * set, returns the node with the largest free memory. *n_usable gets the number of nodes that the
 * job may use. */
static const struct sched_node *roomiest(const struct sched_job *j, const struct sched_node *nodes,
                                         int n, bool of_free, int *n_usable)
{
    const struct sched_node *best = NULL;
    int64_t most = -1;
    *n_usable = 0;
    for (int i = 0; i < n; i++) {
        const int64_t has = of_free ? room_memory(&nodes[i]) : nodes[i].memory_size;
        if (!room_usable(j, nodes, i) || (sched_held(j) && i != j->only)) continue;
        ++*n_usable;
        if (has <= most) continue;
        best = &nodes[i];
        most = has;
    }
    return best;
}

static void reason_memory(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int n_usable;
    const struct sched_node *at = roomiest(j, nodes, n, true, &n_usable);
    reason(j, "waiting_for_memory", "needs %s, %s%s of node %s%s%s are free", needed(j).text,
           n_usable > 1 ? "at most " : "", size(room_memory(at)).text, at->name,
           sched_held(j) ? ", which " : "", sched_held(j) ? what(j).text : "");
}

static void reason_alone(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int busy = 0, usable = 0;
    for (int i = 0; i < n; i++) {
        if (!room_usable(j, nodes, i)) continue;
        usable++;
        busy += nodes[i].n_attempts > 0;
    }
    reason(j, "waiting_for_memory",
           "the kernel ran out of memory beside it: it is to be alone on its node, and %d of %d "
           "node%s run%s others",
           busy, usable, s(usable), usable == 1 ? "s" : "");
}

void reason_too_heavy(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int n_usable;
    const struct sched_node *at = roomiest(j, nodes, n, false, &n_usable);
    const struct census c = census(j, nodes, n);
    reason(j, "too_large", "needs %s of memory, node %s, the largest that it may use, has %s (%s)",
           needed(j).text, at->name, size(at->memory_size).text, all_nodes(j, &c).text);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static const char *only_state(const struct sched_node *n)
{
    if (!n || !n->up) return "down";
    return n->cordoned ? n->why : "in quarantine";
}

/* Writes that no node with the shared directory of the checkpoint can take the job. */
static void reason_shared(struct sched_job *j, const struct census *c)
{
    char again[64] = "";
    if (!j->source)
        snprintf(again, sizeof again, "; to start again: seqctl restart %lld", (long long)j->id);
    reason(j, "no_node", "no node with the shared directory that %s can take it: %s%s",
           what(j).text, all_nodes(j, c).text, again);
}

void reason_no_node(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const struct census c = census(j, nodes, n);
    const struct sched_node *only = j->only >= 0 ? &nodes[j->only] : NULL;
    const char *state = only && room_ends(j, nodes, j->only) ? "to end before limits.wall_s"
                                                             : only_state(only);
    char old[112];
    if (only && only->up && sched_has(&j->old, j->only)) {
        snprintf(old, sizeof old, "of an older version without %.48s: upgrade seqw there",
                 j->needs);
        state = old;
    }
    if (j->toy)
        reason(j, "no_node", "the node that it tests is %s", only ? state : "not here");
    else if (only && j->source)
        reason(j, "no_node", "node %s, which %s, is %s", only->name, what(j).text, state);
    else if (only)
        reason(j, "no_node",
               "node %s, which %s, is %s; to start again on another node: seqctl restart %lld",
               only->name, what(j).text, state, (long long)j->id);
    else if (j->shared)
        reason_shared(j, &c);
    else if (c.quarantined + c.lacks + c.cordoned + c.ending + c.old)
        reason(j, "no_node", "no node can take it: %s", all_nodes(j, &c).text);
    else
        reason(j, "no_node", "no node is up (%d known)", n);
}

void reason_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                      const struct room_group *g)
{
    const struct census c = census(j, nodes, n);
    const char *units = unit(j, j->n_ranks);
    if (j->only >= 0 && !room_width(j, nodes, j->only))
        reason(j, "too_large", "rank 0 needs a %s on node %s, which %s and has none%s", unit(j, 1),
               nodes[j->only].name, what(j).text, left_out(j, &c).text);
    else if (j->only >= 0)
        reason(j, "too_large", "needs %d %s, node %s, which %s, and what it reaches have %d%s",
               j->n_ranks, units, nodes[j->only].name, what(j).text, g->slots,
               left_out(j, &c).text);
    else
        reason(j, "too_large", "needs %d %s%s, the %s %d (%s)%s", j->n_ranks, units,
               j->one_node ? " on one node (parallel.transport is shm)" : "",
               g->n_nodes == 1 ? "largest node up has" : "nodes up that reach each other have",
               g->slots, all_nodes(j, &c).text, left_out(j, &c).text);
}

void reason_waiting(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const struct room_group g = room_widest(j, nodes, n, true);
    const struct sched_node *only = j->only >= 0 ? &nodes[j->only] : NULL;
    const struct census c = census(j, nodes, n);
    const char *code = j->device == SCHED_GPUS ? "waiting_for_gpus" : "waiting_for_slots";
    const char *units = unit(j, 2);
    const struct what out = left_out(j, &c);
    if (j->alone) {
        reason_alone(j, nodes, n);
        return;
    }
    if (j->device != SCHED_GPUS && room_lacks_memory(j, nodes, n)) {
        reason_memory(j, nodes, n);
        return;
    }
    if (only && g.free >= j->n_ranks)
        reason(j, code, "0/%d %s free on node %s, which %s: rank 0 needs one there%s",
               room_width(j, nodes, j->only), units, only->name, what(j).text, out.text);
    else if (only)
        reason(j, code, "%d/%d %s free on node %s, which %s%s, needs %d%s", g.free, g.slots, units,
               only->name, what(j).text, g.n_nodes > 1 ? ", and what it reaches" : "", j->n_ranks,
               out.text);
    else if (j->one_node)
        reason(j, code,
               "%d/%d %s free on %d node%s, needs %d on one node (parallel.transport is shm)%s",
               c.room, c.width, units, c.up, s(c.up), j->n_ranks, out.text);
    else
        reason(j, code, "%d/%d %s free on %d node%s%s, needs %d%s", g.free, g.slots, units,
               g.n_nodes, s(g.n_nodes), g.n_nodes < c.up ? " that reach each other" : "",
               j->n_ranks, out.text);
}

void reason_behind(struct sched_job *j, const struct sched_node *nodes, int n, int64_t first)
{
    const struct census c = census(j, nodes, n);
    reason(j, "behind", "behind job %lld, which is first in line; %d/%d %s free on %d node%s",
           (long long)first, c.room, c.width, unit(j, 2), c.up, s(c.up));
}

void reason_preparing(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const int up = census(j, nodes, n).up;
    int full = 0, n_usable;
    for (int i = 0; i < n; i++)
        full += room_usable(j, nodes, i) && nodes[i].n_preparing >= SCHED_MAX_PREPARE;
    const struct sched_node *at = roomiest(j, nodes, n, true, &n_usable);
    if (at && j->alone) {
        reason_alone(j, nodes, n);
        return;
    }
    if (at && full < n_usable) {
        reason(j, "waiting_for_memory", "to prepare its data needs %s, %s%s of node %s are free",
               size(NEED_ERRAND).text, n_usable > 1 ? "at most " : "", size(room_memory(at)).text,
               at->name);
        return;
    }
    if (j->checkpoint && j->only >= 0)
        reason(j, "waiting_to_prepare", "node %s, which %s, prepares %d already, at most %d",
               nodes[j->only].name, what(j).text, nodes[j->only].n_preparing, SCHED_MAX_PREPARE);
    else if (up)
        reason(j, "waiting_to_prepare", "%d preparations run on %d node%s, at most %d each",
               up * SCHED_MAX_PREPARE, up, s(up), SCHED_MAX_PREPARE);
    else
        reason_no_node(j, nodes, n);
}
