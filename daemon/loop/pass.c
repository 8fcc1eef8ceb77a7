/* pass.c: describes jobs and nodes to sched_pick, and turns its choices into events. */
#include "daemon/loop/pass.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/device.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/mem.h"
#include "api/core/mutant.h"
#include "daemon/sched/sched.h"
#include "daemon/state/attempt.h"
#include "daemon/state/memory.h"
#include "daemon/state/wall.h"

_Static_assert(NODE_MAX <= SCHED_NODES, "the scheduler has room for every node");

struct sched_pass {
    struct sched_job *queue; /* owned; the n_jobs jobs of the pass, in scheduling order */
    int n_jobs, room;
    struct sched_node nodes[NODE_MAX];
};

struct sched_pass *pass_create(void)
{
    struct sched_pass *p = calloc(1, sizeof *p);
    if (!p) abort();
    return p;
}

void pass_destroy(struct sched_pass *p)
{
    if (p) free(p->queue);
    free(p);
}

static int32_t device_of(const struct job *j)
{
    const struct device_kind *k = device_find(spec_text(j->spec, j->spec->resources.device));
    return k->is_gpu ? SCHED_GPUS : k->own_memory ? SCHED_EMULATED : SCHED_SLOTS;
}

static void enqueue_gpus(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    q->gpu_size = j->need.device + GPU_RESERVE;
    /* the free memory need not include GPU_RESERVE, because other programs, such as a display
     * server, may use it */
    q->gpu_free = j->need.device;
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
static bool is_soon(const struct cluster *k, const struct sched_job *q)
{
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        if (n->up || n->lost || quarantine_find(k->quarantine, n->name)) continue;
        if (!sched_has(&q->blamed, i) && !sched_has(&q->lacks, i)) return true;
    }
    return false;
}

static int node_index(const struct cluster *k, const char *name)
{
    const struct node *n = *name ? node_find((struct nodes *)&k->nodes, name) : NULL;
    return n ? (int)(n - k->nodes.node) : -1;
}

/* Sets the only node on which rank 0 may be, if there is such a node. For a toy run it is the
 * tested node. For a job that has a checkpoint, or that begins from the checkpoint of a different
 * job, it is the node that has the checkpoint, and the job waits for that node. For a job with
 * prepared data it is the node that has the data. But if this node is away or left out, the data
 * is prepared again on a different node. */
static void choose_only(const struct cluster *k, const struct job *j, int64_t now_ms,
                        struct sched_job *q)
{
    const bool own = *j->checkpoint_node && j->spec->checkpoint.resume != RESUME_NONE;
    const bool checkpoint = own || *j->source;
    q->toy = *j->only != 0;
    q->checkpoint = own ? j->checkpoint_step : checkpoint ? j->source_step : 0;
    q->source = checkpoint && !own;
    q->only = node_index(k, q->toy       ? j->only
                            : own        ? j->checkpoint_node
                            : checkpoint ? j->source
                                         : j->prepared_node);
    if (q->only < 0 || checkpoint || q->toy) return;
    const struct node *n = &k->nodes.node[q->only];
    struct cordon why;
    const bool here = n->up && !quarantine_find(k->quarantine, n->name) &&
                      !cordon_of(k->cordons, n, now_ms, &why);
    const bool left = sched_has(&q->blamed, q->only) || sched_has(&q->lacks, q->only) ||
                      sched_has(&q->old, q->only);
    q->awaited = !n->up && !sched_has(&q->lacks, q->only);
    if (here && left) q->data = q->only + 1;
    if (!here || left) q->only = -1;
}

/* Marks the nodes whose version does not know a field that the job has set. */
static void leave_old(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    for (int i = 0; i < k->nodes.n; i++) {
        const struct node *n = &k->nodes.node[i];
        const char *needs = n->up && n->abi < WIRE_ABI ? spec_needs(j->spec, n->abi) : NULL;
        if (!needs) continue;
        sched_add(&q->old, i);
        q->needs = needs;
    }
}

static void describe(const struct cluster *k, const struct job *j, int64_t now_ms,
                     struct sched_job *q)
{
    memset(q, 0, offsetof(struct sched_job, part)); /* clears all members before the output
                                                     * members */
    q->id = j->id;
    q->priority = j->spec->priority;
    q->n_ranks = j->spec->resources.ranks;
    q->share = job_tp(j->spec);
    q->ring = j->spec->parallel.sp * q->share;
    leave_out(k, j, q);
    leave_old(k, j, q);
    choose_only(k, j, now_ms, q);
    const int64_t left_ms = wall_left_ms(j, now_ms);
    q->wall_ms = left_ms < 0 ? 0 : left_ms > 0 ? left_ms : 1;
    q->soon = j->n_left && !sched_held(q) && is_soon(k, q);
    q->prepare = job_needs_data(j) || (*j->prepared_node && q->only < 0);
    q->one_node = j->spec->parallel.transport == TRANSPORT_SHM;
    q->not_before_ms = j->wake_ms;
    q->device = device_of(j);
    q->need = &j->need;
    q->alone = j->crowded;
    q->avoid_node = -1;
    struct user *u = users_of((struct users *)&k->users, j->owner);
    q->n_user = u ? &u->n_placed : NULL;
    q->max_user = (int32_t)k->users.limits.running;
    if (q->device == SCHED_GPUS) enqueue_gpus(k, j, q);
}

/* Tells whether a node of the attempt is lost. The job then moves if other nodes have room for
 * it. */
static bool may_move(const struct cluster *k, const struct job *j)
{
    const struct job_attempt *a = j->attempt;
    if (!attempt_alive(j) || !a || !a->assigned || a->ended) return false;
    for (int i = 0; i < a->n_parts; i++) {
        const struct node *n = node_find((struct nodes *)&k->nodes, a->parts[i].place.node);
        if (!a->parts[i].ended && n && n->lost && job_away_on(j, n->name)) return true;
    }
    return false;
}

/* Describes a job that is to be moved, and its present places on nodes. If the job is preparing
 * data, it needs a place for a preparation. Otherwise it needs places for its ranks. */
static void describe_move(const struct cluster *k, const struct job *j, struct sched_job *q)
{
    q->moves = true;
    q->prepare = j->task == TASK_PREPARE;
    q->n_user = NULL;
    q->n_parts = 0;
    for (int i = 0, n = 0; i < j->n_places; i++) {
        const struct job_place *p = &j->places[i];
        const int at = node_index(k, p->node);
        /* this never happens, because a node with a part of a job is not forgotten */
        if (at < 0) break;
        q->part[q->n_parts++] = (struct sched_part){(uint8_t)at, (uint8_t)p->n_ranks};
        for (int r = 0; r < p->n_ranks; r++, n++) {
            const struct node *node = &k->nodes.node[at];
            const char *uuid = j->gpus ? j->gpus[p->first_rank + r] : "";
            const int gpu = gpu_find(node->gpu, node->n_gpus, uuid);
            q->gpu[n] = (uint8_t)(gpu < 0 ? GPU_MAX : gpu);
        }
    }
}

struct enqueueing {
    struct sched_pass *p;
    const struct cluster *k;
    int64_t now_ms;
};

static void enqueue(void *arg, struct job *j)
{
    const struct enqueueing *to = arg;
    struct sched_pass *p = to->p;
    const bool moves = may_move(to->k, j);
    if (j->n_orders || ((j->state != JOB_QUEUED || j->attempt) && !moves)) return;
    if (p->n_jobs == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        p->queue = realloc(p->queue, (size_t)p->room * sizeof *p->queue);
        if (!p->queue) abort();
    }
    describe(to->k, j, to->now_ms, &p->queue[p->n_jobs]);
    if (moves) describe_move(to->k, j, &p->queue[p->n_jobs]);
    p->n_jobs++;
}

struct pass_list {
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
    struct pass_list *l = arg;
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
                                     .cordoned = cordoned,
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
        if (cordoned)
            snprintf(out[i].why, sizeof out[i].why, "%s%s%.*s", why.drains ? "drained" : "cordoned",
                     *why.reason ? ": " : "", SCHED_WHY_SIZE - 16, why.reason);
    }
}

static void list_held(const struct cluster *k, struct sched_node *out)
{
    struct pass_list l = {k, out};
    jobs_each((struct jobs *)&k->jobs, list_job, &l);
}

bool pass_elsewhere(const struct cluster *k, const struct job *j, const char *node, int64_t now_ms)
{
    struct sched_node *nodes = mem_scratch(NODE_MAX * sizeof *nodes);
    struct sched_job *q = mem_scratch(sizeof *q);
    describe(k, j, now_ms, q);
    const int i = node_index(k, node);
    if (i >= 0) sched_add(&q->lacks, i);
    if (!sched_held(q)) q->only = -1;
    list_nodes(k, now_ms, nodes);
    const bool could = sched_could(q, nodes, k->nodes.n) || (!sched_held(q) && is_soon(k, q)) ||
                       (q->awaited && strcmp(node, j->prepared_node));
    free(q);
    free(nodes);
    return could;
}

/* Writes the UUID of the GPU that rank r was given. */
static void name_gpu(const struct cluster *k, const struct sched_job *q, int r,
                     char out[GPU_UUID_SIZE])
{
    int part = 0, first = 0;
    while (r >= first + q->part[part].n_ranks) first += q->part[part++].n_ranks;
    memcpy(out, k->nodes.node[q->part[part].node].gpu[q->gpu[r]].uuid, GPU_UUID_SIZE);
}

static void assign(const struct cluster *k, const struct job *j, const struct sched_job *q,
                   struct event *ev)
{
    const struct node *nodes = k->nodes.node;
    int32_t first = 0;
    *ev = (struct event){.type = EV_ASSIGN, .rank = -1, .epoch = j->epoch + 1};
    ev->task = q->prepare ? TASK_PREPARE : TASK_RUN;
    ev->n_ranks = q->prepare ? 1 : q->n_ranks;
    memcpy(ev->node, nodes[q->node].name, sizeof ev->node);
    ev->n_places = q->n_parts;
    for (int i = 0; i < q->n_parts; i++) {
        struct job_place *p = &ev->places[i];
        p->first_rank = first;
        p->n_ranks = q->part[i].n_ranks;
        memcpy(p->node, nodes[q->part[i].node].name, sizeof p->node);
        memcpy(p->instance, nodes[q->part[i].node].instance, sizeof p->instance);
        first += p->n_ranks;
    }
    for (int r = 0; r < ev->n_ranks && q->device == SCHED_GPUS && !q->prepare; r++)
        name_gpu(k, q, r, ev->gpus[r]);
}

static void forget_placed(void *arg, struct job *j)
{
    struct user *u = users_of(arg, j->owner);
    if (u) u->n_placed = 0;
}

static void count_placed(void *arg, struct job *j)
{
    struct user *u = users_of(arg, j->owner);
    if (u && (j->gpus || job_slots(j, NULL))) u->n_placed++;
}

static void count_users(const struct cluster *k)
{
    struct users *users = (struct users *)&k->users;
    if (!users->limits.running) return;
    jobs_each((struct jobs *)&k->jobs, forget_placed, users);
    jobs_each((struct jobs *)&k->jobs, count_placed, users);
}

int pass_pick(struct sched_pass *p, const struct cluster *k, int64_t now_ms)
{
    p->n_jobs = 0;
    jobs_each((struct jobs *)&k->jobs, enqueue, &(struct enqueueing){p, k, now_ms});
    if (!p->n_jobs) return 0;
    list_nodes(k, now_ms, p->nodes);
    list_held(k, p->nodes);
    count_users(k);
    sched_pick(p->queue, p->n_jobs, p->nodes, k->nodes.n, now_ms);
    return p->n_jobs;
}

struct job *pass_verdict(const struct sched_pass *p, const struct cluster *k, int i,
                         struct event *ev)
{
    const struct sched_job *q = &p->queue[i];
    struct job *j = jobs_find(&k->jobs, q->id);
    static_assert(sizeof j->reason == sizeof q->reason, "a reason fits");
    memcpy(j->reason_code, q->reason_code, sizeof j->reason_code);
    memcpy(j->reason, q->reason, sizeof j->reason);
    if (q->node < 0) return NULL;
    assign(k, j, q, ev);
    return j;
}
