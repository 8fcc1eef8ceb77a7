/* test_seqd_shapes: compares passes (daemon/loop/pass.h), in which jobs of one shape share a
 * verdict, with a plain scheduler that looks at every node for every job (plain_sched.h). Random
 * queues must get the same places, the same GPUs and the same reasons from both. */
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/describe.h"
#include "daemon/loop/pass.h"
#include "tests/lib/plain_sched.h"
#include "tests/lib/test.h"

enum { N_NODES = 5, N_JOBS = 40, N_SHAPES = 4, N_USERS = 3, NOW = 1000 };

static unsigned seed = 11;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

/* ---- a random cluster ------------------------------------------------------------------------ */

static void make_gpus(struct node *n, int i)
{
    n->n_gpus = below(3) ? below(5) : 0;
    for (int k = 0; k < n->n_gpus; k++) {
        struct gpu *g = &n->gpu[k];
        snprintf(g->uuid, sizeof g->uuid, "GPU-n%d-%d", i, k);
        g->memory_size = GPU_RESERVE + 2 + below(3);
        g->memory_free = below(5) ? g->memory_size : 1;
        g->health = below(9) ? GPU_OK : GPU_LOST;
        g->n_processes = below(9) == 0;
        for (int o = 0; o < n->n_gpus; o++) g->far[o] = (uint8_t)below(6);
    }
}

static void make_node(struct cluster *k, int i)
{
    char name[NODE_NAME];
    snprintf(name, sizeof name, "n%d", i);
    struct node *n = node_expect(&k->nodes, name, 0);
    n->abi = below(6) ? WIRE_ABI : WIRE_ABI_BEFORE;
    n->up = below(6) != 0;
    n->lost = !n->up && below(2);
    n->n_slots = below(9);
    n->memory_size = below(3) ? (1 + below(8)) * NEED_ERRAND : 0;
    n->emulated = below(2);
    n->shared = below(3);
    n->shared_away = n->shared && !below(6);
    n->end_s = below(8) == 0;
    n->end_ms = NOW + below(4) * 1000;
    if (below(5)) snprintf(n->address, sizeof n->address, "10.0.0.%d", 1 + i);
    make_gpus(n, i);
    if (below(9) == 0) {
        struct cordon c = {.at_ms = 1};
        snprintf(c.node, sizeof c.node, "%s", name);
        snprintf(c.reason, sizeof c.reason, "a new kernel");
        cordon_load(k->cordons, &c);
    }
    if (below(12) == 0) quarantine_load(k->quarantine, name, 1, "broken");
}

static void make_spec(struct job_spec *s)
{
    static const char *const devices[] = {"cpu", "cpu", "emulated", "cuda"};
    const char *device = devices[below(4)];
    memset(s, 0, sizeof *s);
    s->text_used = 1;
    s->kind = below(3) ? JOB_TRAIN : JOB_MERGE;
    CHECK(!spec_intern(s, device, strlen(device), &s->resources.device));
    s->parallel.sp = 1 + below(3);
    s->parallel.tp = below(3) ? 0 : 2;
    s->parallel.pp = below(4) ? 0 : 2;
    s->resources.ranks = s->parallel.sp * (s->parallel.tp ? 2 : 1) * (s->parallel.pp ? 2 : 1);
    s->parallel.transport = below(4) ? TRANSPORT_AUTO : TRANSPORT_SHM;
    s->limits.wall_s = below(3) ? 0 : 1 + below(3);
    s->checkpoint.resume = below(2) ? RESUME_AUTO : RESUME_NONE;
}

static void make_need(const struct job_spec *s, struct need *n)
{
    *n = (struct need){.n_stages = 1, .per_stage = 1, .device = below(4), .host = below(2)};
    n->rank = below(3) ? below(5) * NEED_ERRAND / 2 : 0;
    if (!s->parallel.pp || !n->rank || below(2)) return;
    n->n_stages = 2;
    n->stage[0] = n->rank, n->stage[1] = n->rank / 2;
}

/* Gives some jobs what makes them differ from others of their spec. */
static void vary(struct job *j, int now)
{
    char node[NODE_NAME];
    snprintf(node, sizeof node, "n%d", below(N_NODES + 1));
    if (below(2)) strcpy(j->prepared_id, "data"), strcpy(j->prepared_node, node);
    if (below(5) == 0) strcpy(j->checkpoint_node, node), j->checkpoint_step = 1 + below(2);
    if (below(9) == 0) strcpy(j->source, node), j->source_step = 4;
    j->checkpoint_shared = *j->checkpoint_node ? below(3) : 0;
    j->source_shared = *j->source ? below(3) : 0;
    j->prepared_shared = *j->prepared_node ? below(3) : 0;
    if (below(20) == 0) strcpy(j->only, node);
    if (below(12) == 0) j->crowded = true;
    if (below(9) == 0) j->wake_ms = now + below(3) * 500;
    if (below(12) == 0) {
        strcpy(j->avoid_node, node);
        snprintf(j->avoid_gpu, sizeof j->avoid_gpu, "GPU-%.8s-%d", node, below(4));
    }
    for (int i = below(8) ? 0 : 1 + below(2); i > 0; i--) {
        if (!(j->left = realloc(j->left, (size_t)(j->n_left + 1) * sizeof *j->left))) abort();
        j->left[j->n_left] = (struct job_left){.blame = 1 + below(3)};
        snprintf(j->left[j->n_left++].node, NODE_NAME, "n%d", below(N_NODES));
    }
}

/* Makes the job run on a node, if it is up. */
static void make_running(const struct cluster *k, struct job *j)
{
    const struct node *n = &k->nodes.node[below(k->nodes.n)];
    if (!n->up) return;
    j->is.wall_s = 0; /* test_seqd_backfill has limits, by which jobs may start earlier */
    j->state = JOB_RUNNING;
    j->task = TASK_RUN;
    j->n_places = 1;
    j->places = calloc(1, sizeof *j->places);
    j->away_ms = calloc(1, sizeof *j->away_ms);
    if (!j->places || !j->away_ms) abort();
    strcpy(j->places->node, n->name);
    j->places->n_ranks = 1;
    if (!n->n_gpus || below(2)) return;
    if (!(j->gpus = calloc(1, sizeof *j->gpus))) abort();
    strcpy(j->gpus[0], n->gpu[below(n->n_gpus)].uuid);
}

static void make_cluster(struct cluster *k)
{
    static struct job_spec specs[N_SHAPES];
    struct need needs[N_SHAPES];
    const int n_nodes = 1 + below(N_NODES), n_jobs = below(N_JOBS);
    cluster_init(k);
    k->users.limits.running = below(3) ? 0 : 1 + below(4);
    for (int i = 0; i < n_nodes; i++) make_node(k, i);
    for (int i = 0; i < N_SHAPES; i++) make_spec(&specs[i]), make_need(&specs[i], &needs[i]);
    const bool alike = below(2);
    for (int i = 0; i < n_jobs; i++) {
        const int shape = below(N_SHAPES);
        specs[shape].priority = below(2);
        struct job *j = job_create(1 + i, &specs[shape]);
        if (!j) abort();
        job_set_need(j, &needs[shape]);
        snprintf(j->owner, sizeof j->owner, "u%d", below(N_USERS));
        if (!alike || below(8) == 0) vary(j, NOW);
        if (below(6) == 0) make_running(k, j);
        jobs_add(&k->jobs, j);
    }
}

/* ---- the comparison -------------------------------------------------------------------------- */

struct gathering {
    const struct cluster *k;
    struct sched_job queue[N_JOBS];
    int32_t n_user[N_USERS];
    int32_t rank[N_JOBS]; /* the priorities of the jobs */
    int n;
};

static void gather(void *arg, struct job *j)
{
    struct gathering *g = arg;
    int32_t *user = &g->n_user[j->owner[1] - '0'];
    if (j->state != JOB_QUEUED) {
        ++*user;
        return;
    }
    struct sched_job *q = &g->queue[g->n++];
    describe_job(g->k, j, NOW, q);
    q->n_user = user;
}

/* Tells whether a comes before b in scheduling order. */
static bool comes_before(const struct gathering *g, const struct sched_job *a,
                         const struct sched_job *b)
{
    int turn[2] = {*a->n_user, *b->n_user};
    if (g->rank[a - g->queue] != g->rank[b - g->queue])
        return g->rank[a - g->queue] > g->rank[b - g->queue];
    for (int i = 0; i < g->n; i++) {
        const struct sched_job *o = &g->queue[i];
        if (g->rank[i] != g->rank[a - g->queue]) continue;
        turn[0] += o->n_user == a->n_user && o->id < a->id;
        turn[1] += o->n_user == b->n_user && o->id < b->id;
    }
    return turn[0] != turn[1] ? turn[0] < turn[1] : a->id < b->id;
}

/* Gives each job a priority of its own, so that plain_pick has the order of a pass. */
static void set_order(struct gathering *g)
{
    for (int i = 0; i < g->n; i++) g->rank[i] = g->queue[i].priority;
    for (int i = 0; i < g->n; i++) {
        int n = 0;
        for (int k = 0; k < g->n; k++) n += k != i && comes_before(g, &g->queue[i], &g->queue[k]);
        g->queue[i].priority = n;
    }
}

static void check_placed(const struct cluster *k, const struct sched_job *q, const struct job *j,
                         const struct event *ev)
{
    int gpu = 0;
    CHECK(j && j->id == q->id && ev->n_places == q->n_parts && !*j->reason_code);
    CHECK(ev->task == (q->prepare ? TASK_PREPARE : TASK_RUN));
    for (int i = 0; i < q->n_parts; i++) {
        const struct node *n = &k->nodes.node[q->part[i].node];
        CHECK_STR(ev->places[i].node, n->name);
        CHECK(ev->places[i].n_ranks == q->part[i].n_ranks);
        for (int r = 0; r < q->part[i].n_ranks && q->device == SCHED_GPUS && !q->prepare;
             r++, gpu++)
            CHECK_STR(ev->gpus[gpu], n->gpu[q->gpu[gpu]].uuid);
    }
}

static int n_shared, n_alone, n_placed;

static void compare(const struct cluster *k, struct sched_pass *p)
{
    static struct gathering g;
    static struct sched_node nodes[NODE_MAX];
    static struct event ev;
    const struct job_reason *last = NULL;
    int at = 0;
    g = (struct gathering){.k = k};
    jobs_each((struct jobs *)&k->jobs, gather, &g);
    describe_nodes(k, NOW, nodes);
    set_order(&g);
    plain_pick(g.queue, g.n, nodes, k->nodes.n, NOW);
    CHECK(pass_pick(p, k, NOW) == g.n);
    for (int i = 0; i < g.n; i++) {
        const struct sched_job *q = &g.queue[i];
        const struct job *j = jobs_find(&k->jobs, q->id);
        if (q->node >= 0) {
            check_placed(k, q, pass_verdict(p, k, at++, &ev), &ev);
            n_placed++;
            continue;
        }
        CHECK_MSG(!strcmp(j->reason_code, q->reason_code) && !strcmp(j->reason, q->reason),
                  "job %lld: %s: %s, but plainly %s: %s", (long long)j->id, j->reason_code,
                  j->reason, q->reason_code, q->reason);
        *(last == j->shared_reason ? &n_shared : &n_alone) += 1;
        last = j->shared_reason;
    }
    CHECK(!pass_verdict(p, k, at, &ev));
}

static void test_same(void)
{
    struct cluster *k = calloc(1, sizeof *k);
    if (!k) abort();
    for (int round = 0; round < 4000 && !test_failures_now; round++) {
        struct sched_pass *p = pass_create(0); /* it remembers the first job of its last pass */
        make_cluster(k);
        compare(k, p);
        pass_destroy(p);
        cluster_fini(k);
        memset(k, 0, sizeof *k);
    }
    /* The rounds are of use only if many jobs share a verdict, and many do not. */
    CHECK_MSG(n_shared > 3000 && n_alone > 3000 && n_placed > 3000, "%d shared, %d not, %d placed",
              n_shared, n_alone, n_placed);
    free(k);
}

int main(void)
{
    RUN(test_same);
    return test_done("seqd_shapes");
}
