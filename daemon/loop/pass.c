/* pass.c: brings the jobs that wait into scheduling order, places them one by one, and turns their
 * places into events. */
#include "daemon/loop/pass.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/mem.h"
#include "daemon/loop/describe.h"
#include "daemon/loop/shapes.h"
#include "daemon/state/attempt.h"
#include "daemon/state/job_after.h"

/* A job of the pass. */
struct queued {
    int64_t id;
    struct job *job; /* valid during pass_pick */
    int32_t priority;
    int32_t shape; /* index into shapes; -1 if the job moves */
    /* number of its user's jobs that run or come before it in its priority; users take turns by
     * it */
    int32_t turn;
};

struct sched_pass {
    struct queued *queue; /* owned; the n_jobs jobs of the pass, in scheduling order */
    int n_jobs, room;
    struct shapes shapes;
    struct sched_job *placed; /* owned; the n_placed jobs that have got a place */
    int n_placed, placed_room;
    int64_t now_ms, backfill_ms;
    struct backfill_hold *holds; /* owned; the attempts that run; made with the first reservation */
    int n_holds;                 /* -1 until then */
    struct backfill
        *first[2];    /* owned; reservations of the first jobs of the lines for slots and GPUs */
    bool reserved[2]; /* whether `first` is of this pass */
    /* Ids of the jobs that were first in the lines at the end of the last pass, or 0. They stay
     * first in their priority, because a turn that passed to another user at each pass would let a
     * large job wait for ever. */
    int64_t kept[2];
    struct sched_node nodes[NODE_MAX];
};

struct sched_pass *pass_create(int64_t backfill_ms)
{
    struct sched_pass *p = calloc(1, sizeof *p);
    if (!p) abort();
    for (int i = 0; i < 2; i++)
        if (!(p->first[i] = calloc(1, sizeof *p->first[i]))) abort();
    p->backfill_ms = backfill_ms;
    return p;
}

void pass_destroy(struct sched_pass *p)
{
    if (!p) return;
    for (int i = 0; i < 2; i++) free(p->first[i]);
    free(p->holds);
    shapes_fini(&p->shapes);
    free(p->queue);
    free(p->placed);
    free(p);
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
    const int shape = moves ? -1 : shapes_of(&p->shapes, to->k, j, to->now_ms);
    if (!moves) job_rest(j);
    p->queue[p->n_jobs++] = (struct queued){j->id, j, j->is.priority, shape, 0};
}

static int by_rank(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->priority != y->priority) return x->priority > y->priority ? -1 : 1;
    if (x->turn != y->turn) return x->turn < y->turn ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void begin_turns(void *arg, struct user *u)
{
    u->n_turns = u->n_placed;
}

/* Brings the jobs into scheduling order. Within a priority the users take turns: the next job is of
 * the user with the fewest jobs that run or have had their turn. */
static void sort_queue(struct sched_pass *p, struct users *users)
{
    qsort(p->queue, (size_t)p->n_jobs, sizeof *p->queue, by_rank);
    for (int i = 0; i < p->n_jobs; i++) {
        struct queued *q = &p->queue[i];
        struct user *u = users_of(users, q->job->owner);
        if (!i || q->priority != q[-1].priority) users_each(users, begin_turns, NULL);
        /* a job that waits for others takes no turn from its user's other jobs */
        const bool waits = q->shape >= 0 && job_after_waits(q->job);
        q->turn = u && !waits ? u->n_turns++ : 0;
        if (q->id == p->kept[0] || q->id == p->kept[1]) q->turn = -1;
    }
    qsort(p->queue, (size_t)p->n_jobs, sizeof *p->queue, by_rank);
}

bool pass_elsewhere(const struct cluster *k, const struct job *j, const char *node, int64_t now_ms)
{
    struct sched_node *nodes = mem_scratch(NODE_MAX * sizeof *nodes);
    struct sched_job *q = mem_scratch(sizeof *q);
    describe_job(k, j, now_ms, q);
    const int i = describe_node_index(k, node);
    if (i >= 0) sched_add(&q->lacks, i);
    if (!sched_held(q)) q->only = -1;
    describe_nodes(k, now_ms, nodes);
    const bool could = sched_could(q, nodes, k->nodes.n) ||
                       (!sched_held(q) && describe_soon(k, q)) ||
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
    ev->shared = nodes[q->node].shared;
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

static void forget_placed(void *arg, struct user *u)
{
    u->n_placed = 0;
}

static void count_placed(void *arg, struct job *j)
{
    struct user *u = users_of(arg, j->owner);
    if (u && job_placed(j) && (j->gpus || job_slots(j, NULL))) u->n_placed++;
}

static void count_users(const struct cluster *k)
{
    struct users *users = (struct users *)&k->users;
    users_each(users, forget_placed, NULL);
    jobs_each_placed((struct jobs *)&k->jobs, count_placed, users);
}

/* Gives the job a reason of its own. */
static struct job_reason *give_reason(struct job *j, const struct sched_job *q)
{
    struct job_reason *r = job_reason_create(q->reason_code, q->reason);
    job_reason_set(j, r);
    return r;
}

/* Makes room for one more place. */
static struct sched_job *next_place(struct sched_pass *p)
{
    if (p->n_placed == p->placed_room) {
        p->placed_room = p->placed_room ? 2 * p->placed_room : 16;
        p->placed = realloc(p->placed, (size_t)p->placed_room * sizeof *p->placed);
        if (!p->placed) abort();
    }
    return &p->placed[p->n_placed];
}

static void move(struct sched_pass *p, const struct cluster *k, struct sched_line *l, struct job *j,
                 int64_t now_ms)
{
    struct sched_job *q = next_place(p);
    describe_job(k, j, now_ms, q);
    describe_move(k, j, q);
    if (!sched_barred(q, now_ms)) sched_place(l, q, p->nodes, k->nodes.n);
    if (q->node < 0) {
        job_reason_drop(give_reason(j, q));
        return;
    }
    job_reason_set(j, NULL);
    p->n_placed++;
}

/* Writes that the job is barred. Jobs that wait for the limit of a user share the reason. */
static void bar(struct shape *s, struct job *j)
{
    const struct sched_job *q = &s->job;
    const bool limit = q->n_user && !strcmp(q->reason_code, "user_limit");
    if (!limit) {
        job_reason_drop(give_reason(j, q));
        return;
    }
    if (s->over && s->n_over == *q->n_user) {
        job_reason_set(j, s->over);
        return;
    }
    job_reason_drop(s->over);
    s->over = give_reason(j, q);
    s->n_over = *q->n_user;
}

/* Makes the reservations of the jobs that have become first in line by this call of sched_place. */
static void reserve_first(struct sched_pass *p, const struct cluster *k, const struct sched_line *l,
                          const struct sched_job *q)
{
    for (int line = 0; line < 2; line++) {
        if (l->first[line] != q->id || p->reserved[line]) continue;
        if (p->n_holds < 0) {
            free(p->holds);
            p->n_holds = describe_holds(k, p->now_ms, p->backfill_ms, &p->holds);
        }
        backfill_reserve(p->first[line], q, p->holds, p->n_holds, p->nodes, k->nodes.n);
        p->reserved[line] = true;
    }
}

/* Starts a job before the first in line, if that delays no first job. */
static bool fill_in(struct sched_pass *p, const struct cluster *k, struct sched_job *q)
{
    const int n = k->nodes.n;
    const struct job *j = jobs_find(&k->jobs, q->id);
    const bool endless = j && j->is.kind == JOB_SERVE; /* no time limit by default */
    const int64_t run_ms = q->wall_ms ? q->wall_ms : endless ? 0 : p->backfill_ms;
    const int64_t end_ms = run_ms ? p->now_ms + run_ms : BACKFILL_UNKNOWN;
    const int own = q->device == SCHED_GPUS;
    struct sched_job try = *q;
    bool allowed = !q->alone && p->reserved[own];
    if (!allowed || !sched_find(&try, p->nodes, n)) return false;
    struct sched_node *was = mem_scratch((size_t)n * sizeof *was);
    memcpy(was, p->nodes, (size_t)n * sizeof *was);
    sched_take(&try, p->nodes);
    for (int line = 0; line < 2; line++)
        if (p->reserved[line] && (line == own || p->first[line]->at_ms != BACKFILL_UNKNOWN))
            allowed = allowed && backfill_allows(p->first[line], &try, end_ms, n);
    for (int line = 0; line < 2 && allowed; line++)
        if (p->reserved[line]) backfill_add(p->first[line], &try, end_ms);
    if (!allowed) memcpy(p->nodes, was, (size_t)n * sizeof *was);
    free(was);
    if (!allowed) return false;
    *q = try;
    q->reason_code[0] = q->reason[0] = 0;
    return true;
}

/* Places the job of the shape. If an earlier job of the shape waits and nothing has changed since,
 * this job waits for the same reason. */
static void place(struct sched_pass *p, const struct cluster *k, struct sched_line *l,
                  struct shape *s, struct job *j)
{
    const int64_t first = l->first[s->job.device == SCHED_GPUS];
    const uint64_t n_changes = l->n_changes;
    if (s->reason && s->first == first && s->n_changes == n_changes) {
        job_reason_set(j, s->reason);
        return;
    }
    struct sched_job *q = next_place(p);
    *q = s->job;
    sched_place(l, q, p->nodes, k->nodes.n);
    reserve_first(p, k, l, q);
    if (q->node < 0 && !strcmp(q->reason_code, "behind") && fill_in(p, k, q)) {
        l->n_changes++;
        if (q->n_user) ++*q->n_user;
    }
    if (q->node >= 0) {
        job_reason_set(j, NULL);
        p->n_placed++;
        return;
    }
    job_reason_drop(s->reason);
    s->reason = give_reason(j, q);
    s->first = first;
    s->n_changes = n_changes;
}

static void look_at(struct sched_pass *p, const struct cluster *k, struct sched_line *l, int i,
                    int64_t now_ms)
{
    struct job *j = p->queue[i].job;
    if (p->queue[i].shape < 0) { /* it has begun, so it waits for no other job any more */
        move(p, k, l, j, now_ms);
        return;
    }
    if (job_after_waits(j)) {
        job_after_reason(j);
        return;
    }
    struct shape *s = &p->shapes.of[p->queue[i].shape];
    struct user *u = s->job.max_user ? users_of((struct users *)&k->users, j->owner) : NULL;
    s->job.id = j->id;
    s->job.not_before_ms = j->wake_ms;
    s->job.n_user = u ? &u->n_placed : NULL;
    if (sched_barred(&s->job, now_ms))
        bar(s, j);
    else
        place(p, k, l, s, j);
}

int pass_pick(struct sched_pass *p, const struct cluster *k, int64_t now_ms)
{
    struct sched_line l = {0};
    p->n_jobs = p->n_placed = 0;
    p->now_ms = now_ms;
    p->n_holds = -1;
    p->reserved[0] = p->reserved[1] = false;
    shapes_begin(&p->shapes, k);
    jobs_prune_placed((struct jobs *)&k->jobs);
    jobs_each((struct jobs *)&k->jobs, enqueue, &(struct enqueueing){p, k, now_ms});
    if (!p->n_jobs) return 0;
    describe_nodes(k, now_ms, p->nodes);
    count_users(k);
    sort_queue(p, (struct users *)&k->users);
    for (int i = 0; i < p->n_jobs; i++) look_at(p, k, &l, i, now_ms);
    memcpy(p->kept, l.first, sizeof p->kept);
    return p->n_jobs;
}

struct job *pass_verdict(const struct sched_pass *p, const struct cluster *k, int i,
                         struct event *ev)
{
    const struct sched_job *q = i < p->n_placed ? &p->placed[i] : NULL;
    struct job *j = q ? jobs_find(&k->jobs, q->id) : NULL;
    if (j) assign(k, j, q, ev);
    return j;
}

int64_t pass_queued(const struct sched_pass *p, int i)
{
    return i < p->n_jobs ? p->queue[i].id : 0;
}

int64_t pass_starts_ms(const struct sched_pass *p, int64_t id)
{
    for (int line = 0; line < 2; line++)
        if (p->reserved[line] && p->first[line]->job.id == id &&
            p->first[line]->at_ms != BACKFILL_UNKNOWN)
            return p->first[line]->at_ms;
    return 0;
}
