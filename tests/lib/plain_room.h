/* plain_room.h: the room that nodes have for a job, rings of GPUs, and reasons, as plain_sched.h
 * needs them. It shares no code with daemon/sched. */
#ifndef SEQD_TESTS_PLAIN_ROOM_H
#define SEQD_TESTS_PLAIN_ROOM_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "daemon/sched/room.h"

/* ---- room ------------------------------------------------------------------------------------ */

static bool plain_room_ends(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    return nodes[i].ends && j->wall_ms > nodes[i].left_ms;
}

static bool plain_room_usable(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    if (!nodes[i].up || nodes[i].cordoned || (nodes[i].quarantined && !j->toy)) return false;
    if (plain_room_ends(j, nodes, i)) return false;
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

static int32_t plain_room_gpus(const struct sched_job *j, const struct sched_node *nodes, int i,
                               bool *free)
{
    int32_t n = 0;
    for (int k = 0; k < nodes[i].n_gpus; k++) {
        const bool good = suits(j, nodes, i, k) && (!free || is_free(j, &nodes[i].gpu[k]));
        if (free) free[k] = good;
        n += good;
    }
    return n;
}

static int64_t plain_room_memory(const struct sched_node *node)
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

static int32_t plain_room_cramped(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    bool free[GPU_MAX];
    if (j->device != SCHED_GPUS) return 0;
    const struct sched_node *at = &nodes[i];
    const int32_t any = plain_room_gpus(j, nodes, i, NULL),
                  now = plain_room_gpus(j, nodes, i, free);
    const int32_t never = any - beside(j, at, at->memory_size, any);
    const int32_t not_now = now - beside(j, at, plain_room_memory(at), now);
    return never > not_now ? never : not_now;
}

static int32_t plain_room_width(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    const struct sched_node *at = &nodes[i];
    const int32_t all = j->device == SCHED_GPUS ? plain_room_gpus(j, nodes, i, NULL)
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

static bool plain_room_prepares(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    const struct sched_node *at = &nodes[i];
    const bool fits = !at->memory_size || !at->memory_held || plain_room_memory(at) >= NEED_ERRAND;
    return plain_room_usable(j, nodes, i) && at->n_preparing < SCHED_MAX_PREPARE && fits &&
           !is_apart(j, at);
}

static int32_t plain_room_free(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    bool free[GPU_MAX];
    const struct sched_node *at = &nodes[i];
    const int64_t kept_for = at->kept_for[j->device == SCHED_GPUS];
    if (!plain_room_usable(j, nodes, i) || (kept_for && kept_for != j->id)) return 0;
    if (is_apart(j, at)) return 0;
    if (j->device == SCHED_GPUS)
        return beside(j, at, plain_room_memory(at), plain_room_gpus(j, nodes, i, free));
    if (!plain_room_width(j, nodes, i)) return 0;
    const int32_t slots = at->n_slots - at->n_reserved - at->n_kept;
    return slots > 0 ? beside(j, at, plain_room_memory(at), slots) : slots;
}

/* ---- which nodes may hold one gang together -------------------------------------------------- */

static bool plain_room_together(const struct sched_job *j, const struct sched_node *nodes, int a,
                                int b)
{
    if (!plain_room_usable(j, nodes, a) || !plain_room_usable(j, nodes, b)) return false;
    return a == b || (!j->one_node && nodes[a].net && nodes[a].net == nodes[b].net);
}

static struct room_group group_of(const struct sched_job *j, const struct sched_node *nodes, int n,
                                  int leader)
{
    const struct sched_node *l = &nodes[leader];
    struct room_group g = {.leader = leader};
    if (plain_room_usable(j, nodes, leader) && (j->one_node || !l->net))
        return (struct room_group){leader, 1, plain_room_width(j, nodes, leader),
                                   plain_room_free(j, nodes, leader)};
    for (int i = 0; i < n; i++) {
        if (!plain_room_together(j, nodes, leader, i)) continue;
        g.n_nodes++;
        g.slots += plain_room_width(j, nodes, i);
        g.free += plain_room_free(j, nodes, i);
    }
    return g;
}

/* Tells whether node i is the first usable node of its net. This node represents the whole net. */
static bool plain_room_leads(const struct sched_job *j, const struct sched_node *nodes, int i)
{
    const bool usable = plain_room_usable(j, nodes, i);
    if (!usable || j->one_node || !nodes[i].net) return usable;
    for (int k = 0; k < i; k++)
        if (plain_room_together(j, nodes, k, i)) return false;
    return true;
}

static struct room_group plain_room_widest(const struct sched_job *j,
                                           const struct sched_node *nodes, int n, bool of_free)
{
    struct room_group best = {.leader = -1};
    if (j->only >= 0) return group_of(j, nodes, n, j->only);
    for (int i = 0; i < n; i++) {
        if (!plain_room_leads(j, nodes, i)) continue;
        struct room_group g = group_of(j, nodes, n, i);
        int32_t more = of_free ? g.free - best.free : g.slots - best.slots;
        if (best.leader < 0 || more > 0) best = g;
    }
    return best;
}

static bool plain_room_lacks_memory(const struct sched_job *j, const struct sched_node *nodes,
                                    int n)
{
    struct sched_job light = *j;
    light.need = NULL;
    if (!j->need || !j->need->rank) return false;
    if (j->only >= 0 && !plain_room_free(&light, nodes, j->only)) return false;
    return plain_room_widest(&light, nodes, n, true).free >= j->n_ranks;
}

/* ---- rings ----------------------------------------------------------------------------------- */

/* Returns the GPU nearest to `from` that `left` marks. If several GPUs are equally near, returns
 * the first of these. Returns -1 if no GPU is left. */
static int nearest(const struct sched_gpu *gpus, const bool *left, int n, int from)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (left[i] && (best < 0 || gpus[from].far[i] < gpus[from].far[best])) best = i;
    return best;
}

/* Walks from `start` over `want` GPUs. Returns the length of the closed walk, or -1 if there are
 * too few GPUs. */
static int walk(const struct sched_gpu *gpus, const bool *may, int n, int start, int want,
                uint8_t *out)
{
    bool left[GPU_MAX];
    int length = 0, at = start;
    memcpy(left, may, (size_t)n * sizeof *left);
    for (int i = 0; i < want; i++) {
        if (at < 0) return -1;
        out[i] = (uint8_t)at;
        left[at] = false;
        if (i > 0) length += gpus[out[i - 1]].far[at];
        at = nearest(gpus, left, n, at);
    }
    return length + gpus[out[want - 1]].far[start];
}

static bool plain_ring_pick(const struct sched_gpu *gpus, const bool *may, int n, int want,
                            uint8_t *out)
{
    uint8_t way[GPU_MAX];
    int shortest = -1;
    for (int start = 0; start < n && want <= n; start++) {
        const int length = may[start] ? walk(gpus, may, n, start, want, way) : -1;
        if (length < 0 || (shortest >= 0 && length >= shortest)) continue;
        shortest = length;
        memcpy(out, way, (size_t)want);
    }
    return shortest >= 0;
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void plain_reason(struct sched_job *j, const char *code, const char *fmt, ...)
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
        else if (nodes[i].up && plain_room_ends(j, nodes, i))
            c.ending++;
        else if (nodes[i].up && (sched_has(&j->lacks, i) || sched_has(&j->blamed, i)))
            c.lacks++;
        if (!plain_room_usable(j, nodes, i)) continue;
        c.up++;
        c.width += plain_room_width(j, nodes, i);
        c.room += plain_room_free(j, nodes, i);
        count_gpus(j, &nodes[i], &c);
        c.cramped += plain_room_cramped(j, nodes, i);
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
        const int64_t has = of_free ? plain_room_memory(&nodes[i]) : nodes[i].memory_size;
        if (!plain_room_usable(j, nodes, i) || (sched_held(j) && i != j->only)) continue;
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
    plain_reason(j, "waiting_for_memory", "needs %s, %s%s of node %s%s%s are free", needed(j).text,
                 n_usable > 1 ? "at most " : "", size(plain_room_memory(at)).text, at->name,
                 sched_held(j) ? ", which " : "", sched_held(j) ? what(j).text : "");
}

static void reason_alone(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int busy = 0, usable = 0;
    for (int i = 0; i < n; i++) {
        if (!plain_room_usable(j, nodes, i)) continue;
        usable++;
        busy += nodes[i].n_attempts > 0;
    }
    plain_reason(
        j, "waiting_for_memory",
        "the kernel ran out of memory beside it: it is to be alone on its node, and %d of %d "
        "node%s run%s others",
        busy, usable, s(usable), usable == 1 ? "s" : "");
}

static void plain_reason_too_heavy(struct sched_job *j, const struct sched_node *nodes, int n)
{
    int n_usable;
    const struct sched_node *at = roomiest(j, nodes, n, false, &n_usable);
    const struct census c = census(j, nodes, n);
    plain_reason(j, "too_large",
                 "needs %s of memory, node %s, the largest that it may use, has %s (%s)",
                 needed(j).text, at->name, size(at->memory_size).text, all_nodes(j, &c).text);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static const char *only_state(const struct sched_node *n)
{
    if (!n || !n->up) return "down";
    return n->cordoned ? n->why : "in quarantine";
}

static void plain_reason_no_node(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const struct census c = census(j, nodes, n);
    const struct sched_node *only = j->only >= 0 ? &nodes[j->only] : NULL;
    const char *state = only && plain_room_ends(j, nodes, j->only) ? "to end before limits.wall_s"
                                                                   : only_state(only);
    char old[112];
    if (only && only->up && sched_has(&j->old, j->only)) {
        snprintf(old, sizeof old, "of an older version without %.48s: upgrade seqw there",
                 j->needs);
        state = old;
    }
    if (j->toy)
        plain_reason(j, "no_node", "the node that it tests is %s", only ? state : "not here");
    else if (only && j->source)
        plain_reason(j, "no_node", "node %s, which %s, is %s", only->name, what(j).text, state);
    else if (only)
        plain_reason(
            j, "no_node",
            "node %s, which %s, is %s; to start again on another node: seqctl restart %lld",
            only->name, what(j).text, state, (long long)j->id);
    else if (j->shared)
        plain_reason(j, "no_node",
                     j->source
                         ? "no node with the shared directory that %s can take it: %s"
                         : "no node with the shared directory that %s can take it: %s; to start "
                           "again: seqctl restart %lld",
                     what(j).text, all_nodes(j, &c).text, (long long)j->id);
    else if (c.quarantined + c.lacks + c.cordoned + c.ending + c.old)
        plain_reason(j, "no_node", "no node can take it: %s", all_nodes(j, &c).text);
    else
        plain_reason(j, "no_node", "no node is up (%d known)", n);
}

static void plain_reason_too_large(struct sched_job *j, const struct sched_node *nodes, int n,
                                   const struct room_group *g)
{
    const struct census c = census(j, nodes, n);
    const char *units = unit(j, j->n_ranks);
    if (j->only >= 0 && !plain_room_width(j, nodes, j->only))
        plain_reason(j, "too_large", "rank 0 needs a %s on node %s, which %s and has none%s",
                     unit(j, 1), nodes[j->only].name, what(j).text, left_out(j, &c).text);
    else if (j->only >= 0)
        plain_reason(j, "too_large",
                     "needs %d %s, node %s, which %s, and what it reaches have %d%s", j->n_ranks,
                     units, nodes[j->only].name, what(j).text, g->slots, left_out(j, &c).text);
    else
        plain_reason(j, "too_large", "needs %d %s%s, the %s %d (%s)%s", j->n_ranks, units,
                     j->one_node ? " on one node (parallel.transport is shm)" : "",
                     g->n_nodes == 1 ? "largest node up has"
                                     : "nodes up that reach each other have",
                     g->slots, all_nodes(j, &c).text, left_out(j, &c).text);
}

static void plain_reason_waiting(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const struct room_group g = plain_room_widest(j, nodes, n, true);
    const struct sched_node *only = j->only >= 0 ? &nodes[j->only] : NULL;
    const struct census c = census(j, nodes, n);
    const char *code = j->device == SCHED_GPUS ? "waiting_for_gpus" : "waiting_for_slots";
    const char *units = unit(j, 2);
    const struct what out = left_out(j, &c);
    if (j->alone) {
        reason_alone(j, nodes, n);
        return;
    }
    if (j->device != SCHED_GPUS && plain_room_lacks_memory(j, nodes, n)) {
        reason_memory(j, nodes, n);
        return;
    }
    if (only && g.free >= j->n_ranks)
        plain_reason(j, code, "0/%d %s free on node %s, which %s: rank 0 needs one there%s",
                     plain_room_width(j, nodes, j->only), units, only->name, what(j).text,
                     out.text);
    else if (only)
        plain_reason(j, code, "%d/%d %s free on node %s, which %s%s, needs %d%s", g.free, g.slots,
                     units, only->name, what(j).text, g.n_nodes > 1 ? ", and what it reaches" : "",
                     j->n_ranks, out.text);
    else if (j->one_node)
        plain_reason(
            j, code,
            "%d/%d %s free on %d node%s, needs %d on one node (parallel.transport is shm)%s",
            c.room, c.width, units, c.up, s(c.up), j->n_ranks, out.text);
    else
        plain_reason(j, code, "%d/%d %s free on %d node%s%s, needs %d%s", g.free, g.slots, units,
                     g.n_nodes, s(g.n_nodes), g.n_nodes < c.up ? " that reach each other" : "",
                     j->n_ranks, out.text);
}

static void plain_reason_behind(struct sched_job *j, const struct sched_node *nodes, int n,
                                int64_t first)
{
    const struct census c = census(j, nodes, n);
    plain_reason(j, "behind", "behind job %lld, which is first in line; %d/%d %s free on %d node%s",
                 (long long)first, c.room, c.width, unit(j, 2), c.up, s(c.up));
}

static void plain_reason_preparing(struct sched_job *j, const struct sched_node *nodes, int n)
{
    const int up = census(j, nodes, n).up;
    int full = 0, n_usable;
    for (int i = 0; i < n; i++)
        full += plain_room_usable(j, nodes, i) && nodes[i].n_preparing >= SCHED_MAX_PREPARE;
    const struct sched_node *at = roomiest(j, nodes, n, true, &n_usable);
    if (at && j->alone) {
        reason_alone(j, nodes, n);
        return;
    }
    if (at && full < n_usable) {
        plain_reason(j, "waiting_for_memory",
                     "to prepare its data needs %s, %s%s of node %s are free",
                     size(NEED_ERRAND).text, n_usable > 1 ? "at most " : "",
                     size(plain_room_memory(at)).text, at->name);
        return;
    }
    if (j->checkpoint && j->only >= 0)
        plain_reason(j, "waiting_to_prepare", "node %s, which %s, prepares %d already, at most %d",
                     nodes[j->only].name, what(j).text, nodes[j->only].n_preparing,
                     SCHED_MAX_PREPARE);
    else if (up)
        plain_reason(j, "waiting_to_prepare", "%d preparations run on %d node%s, at most %d each",
                     up * SCHED_MAX_PREPARE, up, s(up), SCHED_MAX_PREPARE);
    else
        plain_reason_no_node(j, nodes, n);
}

#endif
