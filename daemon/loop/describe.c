/* describe.c: describes jobs and nodes to the scheduler. */
#include "daemon/loop/describe.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/mutant.h"
#include "daemon/state/attempt.h"
#include "daemon/state/memory.h"
#include "daemon/state/wall.h"

_Static_assert(NODE_MAX <= SCHED_NODES, "the scheduler has room for every node");

/* ---- jobs ------------------------------------------------------------------------------------ */

int32_t describe_device(const struct job *j)
{
    return j->is.takes_gpus ? SCHED_GPUS : j->is.own_memory ? SCHED_EMULATED : SCHED_SLOTS;
}

static void enqueue_gpus(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    q->gpu_size = j->need->device + GPU_RESERVE;
    /* the free memory need not include GPU_RESERVE, because other programs, such as a display
     * server, may use it */
    q->gpu_free = j->need->device;
    for (int i = 0; i < k->nodes.n && *j->avoid_gpu; i++) {
        const struct node *n = &k->nodes.node[i];
        const int gpu = gpu_find(n->gpu, n->n_gpus, j->avoid_gpu);
        if (strcmp(n->name, j->avoid_node) || gpu < 0) continue;
        q->avoid_node = i;
        q->avoid_gpu = gpu;
    }
}

/* Marks the nodes that the job leaves out. */
static void leave_out(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    for (int i = 0; i < k->nodes.n && j->n_left; i++)
        for (int m = 0; m < j->n_left; m++) {
            const struct job_left *l = &j->left[m];
            if (l->blame == BLAME_JOB || strcmp(k->nodes.node[i].name, l->node)) continue;
            sched_add(l->blame == BLAME_FILES ? &q->lacks : &q->blamed, i);
        }
}

/* Tells whether a node on which the job may run has been down only for a short time, for example
 * because its agent or seqd restarts. Until that node is up again or lost, the job is not placed
 * on a node that it leaves out. */
bool describe_soon(const struct cluster *k, const struct sched_job *q)
{
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        if (n->up || n->lost || quarantine_find(k->quarantine, n->name)) continue;
        if (!sched_has(&q->blamed, i) && !sched_has(&q->lacks, i)) return true;
    }
    return false;
}

int describe_node_index(const struct cluster *k, const char *name)
{
    const struct node *n = *name ? node_find((struct nodes *)&k->nodes, name) : NULL;
    return n ? (int)(n - k->nodes.node) : -1;
}

/* Describes a job whose checkpoint, or whose data, lies in a shared directory. With a checkpoint it
 * may run only on the nodes that share the directory. With data it rather runs there, and prepares
 * them again if no such node is up. Returns true if it need not prepare data. */
static bool choose_sharing(const struct cluster *k, int64_t shared, bool checkpoint, int64_t now_ms,
                           struct sched_job *q)
{
    struct cordon why;
    bool any = false;
    q->only = -1;
    q->shared = checkpoint;
    for (int i = 0; i < k->nodes.n && !any; i++) {
        const struct node *n = &k->nodes.node[i];
        any = node_shares(n, shared) && !quarantine_find(k->quarantine, n->name) &&
              !cordon_of(k->cordons, n, now_ms, &why) && !sched_has(&q->blamed, i) &&
              !sched_has(&q->lacks, i) && !sched_has(&q->old, i);
    }
    for (int i = 0; i < k->nodes.n && (checkpoint || any); i++)
        if (!node_shares(&k->nodes.node[i], shared))
            sched_add(checkpoint ? &q->apart : &q->lacks, i);
    return any;
}

/* Sets the only node on which rank 0 may be, if there is such a node. For a toy run it is the
 * tested node. For a job that has a checkpoint, or that begins from the checkpoint of a
 * different job, it is the node that has the checkpoint, and the job waits for that node. For a
 * job with prepared data it is the node that has the data. But if this node is away or left out,
 * the data is prepared again on a different node. Returns true if the data lie in a shared
 * directory, so that rank 0 finds them on other nodes, too. */
static bool choose_only(const struct cluster *k, const struct job *j, int64_t now_ms,
                        struct sched_job *q)
{
    const bool own = *j->checkpoint_node && j->is.resumes;
    const bool checkpoint = own || *j->source;
    q->toy = *j->only != 0;
    q->checkpoint = own ? j->checkpoint_step : checkpoint ? j->source_step : 0;
    q->source = checkpoint && !own;
    /* prepared data that lie elsewhere than the checkpoint are made again there */
    const bool has_data = !checkpoint || !*j->prepared_node || j->prepared_shared;
    const int64_t shared = q->toy       ? 0
                           : own        ? j->checkpoint_shared
                           : checkpoint ? j->source_shared
                                        : j->prepared_shared;
    if (shared) return choose_sharing(k, shared, checkpoint, now_ms, q) && has_data;
    q->only = describe_node_index(k, q->toy       ? j->only
                                     : own        ? j->checkpoint_node
                                     : checkpoint ? j->source
                                                  : j->prepared_node);
    if (q->only < 0 || checkpoint || q->toy) return false;
    const struct node *n = &k->nodes.node[q->only];
    struct cordon why;
    const bool here = n->up && !quarantine_find(k->quarantine, n->name) &&
                      !cordon_of(k->cordons, n, now_ms, &why);
    const bool left = sched_has(&q->blamed, q->only) || sched_has(&q->lacks, q->only) ||
                      sched_has(&q->old, q->only);
    q->awaited = !n->up && !sched_has(&q->lacks, q->only);
    if (here && left) q->data = q->only + 1;
    if (!here || left) q->only = -1;
    return false;
}

/* Marks the nodes whose version does not know a field that the job has set. */
static void leave_old(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        const char *needs = n->up && n->abi < WIRE_ABI ? spec_needs(job_spec(j), n->abi) : NULL;
        if (!needs) continue;
        sched_add(&q->old, i);
        q->needs = needs;
    }
}

void describe_job(const struct cluster *k, const struct job *j, int64_t now_ms, struct sched_job *q)
{
    memset(q, 0, offsetof(struct sched_job, part)); /* clears all members before the output
                                                     * members */
    q->id = j->id;
    q->priority = j->is.priority;
    q->n_ranks = j->is.n_ranks;
    q->share = j->is.share;
    q->ring = j->is.ring;
    leave_out(k, j, q);
    leave_old(k, j, q);
    const bool made = choose_only(k, j, now_ms, q);
    const int64_t left_ms = wall_left_ms(j, now_ms);
    q->wall_ms = left_ms < 0 ? 0 : left_ms > 0 ? left_ms : 1;
    q->soon = j->n_left && !sched_held(q) && describe_soon(k, q);
    q->prepare = job_needs_data(j) || (*j->prepared_node && q->only < 0 && !made);
    q->one_node = j->is.one_node;
    q->not_before_ms = j->wake_ms;
    q->device = describe_device(j);
    q->need = j->need;
    q->alone = j->crowded;
    q->avoid_node = -1;
    struct user *u = users_of((struct users *)&k->users, j->owner);
    q->n_user = u ? &u->n_placed : NULL;
    q->max_user = (int32_t)k->users.limits.running;
    if (q->device == SCHED_GPUS) enqueue_gpus(k, j, q);
}

/* Describes the places of a job on nodes, and their GPUs. */
static void describe_places(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    q->n_parts = 0;
    for (int i = 0, n = 0; i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        const int at = describe_node_index(k, p->node);
        /* this never happens, because a node with a part of a job is not forgotten */
        if (at < 0) break;
        q->part[q->n_parts++] = (struct sched_part){(uint16_t)at, (uint16_t)p->n_ranks};
        for (int r = 0; r < p->n_ranks; r++, n++) {
            const struct node *node = &k->nodes.node[at];
            const char *uuid = j->gpus ? j->gpus[p->first_rank + r] : "";
            const int gpu = gpu_find(node->gpu, node->n_gpus, uuid);
            q->gpu[n] = (uint8_t)(gpu < 0 ? GPU_MAX : gpu);
        }
    }
}

void describe_move(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    q->moves = true;
    q->prepare = j->task == TASK_PREPARE;
    q->n_user = NULL;
    describe_places(k, j, q);
}

/* ---- attempts that run ----------------------------------------------------------------------- */

struct hold_list {
    const struct cluster *k;
    int64_t now_ms, backfill_ms;
    struct backfill_hold *hold;
    int n, room;
};

/* Returns the latest end of the attempt. */
static int64_t end_of(const struct hold_list *l, const struct job *j)
{
    const int64_t left_ms = wall_left_ms(j, l->now_ms);
    const int64_t ran_ms = j->attempt ? attempt_ran_ms(j->attempt, l->now_ms) : 0;
    if (j->state == JOB_STOPPING) return l->now_ms;
    if (left_ms >= 0) return l->now_ms + left_ms;
    if (!l->backfill_ms || j->is.kind == JOB_SERVE) return BACKFILL_UNKNOWN;
    return l->now_ms + (ran_ms < l->backfill_ms ? l->backfill_ms - ran_ms : 0);
}

static void list_hold(void *arg, struct job *j)
{
    struct hold_list *l = arg;
    if (!job_placed(j) || j->task != TASK_RUN) return;
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->hold = realloc(l->hold, (size_t)l->room * sizeof *l->hold);
        if (!l->hold) abort();
    }
    struct backfill_hold *h = &l->hold[l->n++];
    h->end_ms = end_of(l, j);
    h->job = (struct sched_job){
        .id = j->id, .device = j->gpus ? SCHED_GPUS : SCHED_SLOTS, .need = j->need};
    describe_places(l->k, j, &h->job);
}

static int by_end(const void *a, const void *b)
{
    const struct backfill_hold *x = a, *y = b;
    if (x->end_ms != y->end_ms) return x->end_ms < y->end_ms ? -1 : 1;
    return x->job.id < y->job.id ? -1 : x->job.id > y->job.id;
}

int describe_holds(const struct cluster *k, int64_t now_ms, int64_t backfill_ms,
                   struct backfill_hold **out)
{
    struct hold_list l = {k, now_ms, backfill_ms, NULL, 0, 0};
    jobs_each_placed((struct jobs *)&k->jobs, list_hold, &l);
    if (l.n) qsort(l.hold, (size_t)l.n, sizeof *l.hold, by_end);
    *out = l.hold;
    return l.n;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

struct node_list {
    const struct cluster *k;
    struct sched_node *nodes;
};

/* Marks the job's GPUs as held. They are found by their UUIDs in the node's present list. A GPU
 * that is gone is skipped. */
static void hold_gpus(const struct job *j, const struct node *n, const struct job_place *p,
                      struct sched_node *out)
{
    for (int k = 0; k < n->n_gpus; k++)
        if (job_gpu_rank(j, n->name, n->gpu[k].uuid) >= 0 && out->gpu[k].state != SCHED_GPU_UNFIT)
            out->gpu[k].state = SCHED_GPU_HELD;
}

/* Lists the GPUs of the node. An attempt that seqd has given up may use any GPU of the node until
 * the node reports that the attempt is gone. */
static void list_gpus(const struct node *n, struct sched_node *out)
{
    out->n_gpus = n->n_gpus;
    for (int k = 0; k < n->n_gpus; k++) {
        const struct gpu *g = &n->gpu[k];
        struct sched_gpu *s = &out->gpu[k];
        *s = (struct sched_gpu){.memory_size = g->memory_size, .memory_free = g->memory_free};
        s->state = g->health != GPU_OK  ? SCHED_GPU_UNFIT
                   : n->n_stale         ? SCHED_GPU_HELD
                   : g->n_processes > 0 ? SCHED_GPU_BUSY
                                        : SCHED_GPU_FREE;
        memcpy(s->far, g->far, sizeof s->far);
    }
}

static void list_job(void *arg, struct job *j)
{
    struct node_list *l = arg;
    const bool prepares = j->task == TASK_PREPARE;
    if (!job_placed(j)) return;
    if (mutant_on(MUTANT_SLOT_EARLY) && j->state == JOB_STOPPING) return;
    for (int i = 0; i < j->n_places; i++) {
        const struct node *n = node_find((struct nodes *)&l->k->nodes, j->places[i].node);
        if (!n) continue;
        struct sched_node *out = &l->nodes[n - l->k->nodes.node];
        out->memory_held += job_memory(j, &j->places[i]);
        out->n_attempts++;
        out->alone = out->alone || j->alone;
        if (prepares)
            out->n_preparing += j->state == JOB_STARTING;
        else if (!j->gpus)
            out->n_reserved += j->places[i].n_ranks;
        else
            hold_gpus(j, n, &j->places[i], out);
    }
}

static void list_nodes(const struct cluster *k, int64_t now_ms, struct sched_node *out)
{
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        struct cordon why;
        const bool cordoned = cordon_of(k->cordons, n, now_ms, &why);
        out[i] = (struct sched_node){.up = n->up,
                                     .cordoned = cordoned || n->shared_away,
                                     .ends = n->end_s != 0,
                                     .left_ms = cordon_left_ms(n, now_ms),
                                     .quarantined = quarantine_find(k->quarantine, n->name),
                                     .net = node_net(n),
                                     .n_slots = n->n_slots,
                                     .n_reserved = node_stale_slots(n),
                                     .emulated = n->emulated,
                                     .memory_size = n->memory_size,
                                     .memory_held = memory_beside(k, n),
                                     .n_attempts = n->n_stale};
        list_gpus(n, &out[i]);
        memcpy(out[i].name, n->name, sizeof out[i].name);
        if (n->shared_away) snprintf(out[i].why, sizeof out[i].why, "without its shared directory");
        if (cordoned)
            snprintf(out[i].why, sizeof out[i].why, "%s%s%.*s", why.drains ? "drained" : "cordoned",
                     *why.reason ? ": " : "", SCHED_WHY_SIZE - 16, why.reason);
    }
}

void describe_nodes(const struct cluster *k, int64_t now_ms, struct sched_node *out)
{
    struct node_list l = {k, out};
    list_nodes(k, now_ms, out);
    jobs_each_placed((struct jobs *)&k->jobs, list_job, &l);
}
