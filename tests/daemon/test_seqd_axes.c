/* Places of the ranks of a job's axes: ranks that talk most, which share layers or are of one ring,
 * are on one node wherever nodes have room for them, and each node has consecutive ranks. From a
 * job's spec to the ASSIGN of its attempt (daemon/loop/pass.h). */
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/pass.h"
#include "tests/lib/test.h"
#include "worker/plan/axes.h"

enum { NODES = 8 };

/* A product of axes, nodes' slots, and how many blocks of a stage's ring (sp tp ranks) and of
 * ranks that share layers (tp) are then on more than one node. */
struct way {
    struct axes axes;
    int slots[NODES]; /* 0: no further node */
    int n_nodes, split_rings, split_layers;
};

static const struct way ways[] = {
    /* All on one node: the smallest that holds them. */
    {{1, 2, 2, 2}, {16, 8, 4}, 1, 0, 0},
    {{1, 1, 8, 1}, {8}, 1, 0, 0},
    /* A stage to each node. */
    {{1, 2, 2, 2}, {4, 4}, 2, 0, 0},
    {{1, 4, 4, 2}, {8, 8, 8, 8}, 4, 0, 0},
    {{2, 2, 2, 2}, {4, 4, 4, 4}, 4, 0, 0},
    /* Two stages, or two rings, to a node. */
    {{2, 2, 2, 2}, {8, 8}, 2, 0, 0},
    {{2, 1, 2, 2}, {8, 4}, 1, 0, 0},
    {{4, 1, 2, 2}, {8, 8, 3}, 2, 0, 0},
    /* Slots that no whole ring fills stay free where others suffice. */
    {{1, 2, 2, 2}, {5, 4, 3}, 2, 0, 0},
    {{1, 3, 3, 1}, {5, 5, 5}, 3, 0, 0},
    {{2, 1, 1, 4}, {7, 7}, 2, 0, 0},
    {{1, 2, 3, 2}, {11, 7}, 2, 0, 0},
    /* Uneven nodes: rings as they fit. */
    {{1, 4, 2, 1}, {6, 2}, 2, 0, 0},
    {{2, 3, 1, 2}, {7, 4, 3}, 3, 0, 0},
    {{1, 5, 2, 2}, {13, 9}, 2, 0, 0},
    /* No node holds a ring: ranks that share layers stay together. */
    {{1, 1, 4, 2}, {4, 4}, 2, 1, 0},
    {{1, 1, 4, 4}, {6, 6, 6, 6}, 4, 1, 0},
    {{2, 1, 4, 2}, {6, 6, 6}, 3, 2, 0},
    {{1, 2, 2, 4}, {4, 4, 4, 4}, 4, 2, 0},
    {{1, 1, 2, 3}, {5, 5}, 2, 1, 0},
    /* A node holds one ring and too little is left for the others. */
    {{1, 2, 2, 2}, {7, 2}, 2, 1, 0},
    {{1, 3, 2, 2}, {6, 4, 2}, 3, 1, 0},
    /* Nor those that share layers: whatever there is. */
    {{1, 1, 1, 8}, {4, 4}, 2, 1, 1},
    {{1, 1, 2, 4}, {3, 3, 3}, 3, 1, 2},
    {{1, 2, 1, 4}, {5, 3}, 2, 1, 1},
    {{1, 1, 8, 1}, {3, 3, 3}, 3, 1, 0},
    /* Not enough for all: it waits. */
    {{1, 2, 2, 2}, {4, 3}, 0, 0, 0},
    {{2, 2, 2, 2}, {15}, 0, 0, 0},
};

static void add_node(struct cluster *k, int slots)
{
    struct node *n = &k->nodes.node[k->nodes.n++];
    *n = (struct node){.abi = WIRE_ABI, .up = true, .joined = true, .n_slots = slots};
    snprintf(n->name, sizeof n->name, "n%d", k->nodes.n);
    snprintf(n->address, sizeof n->address, "10.0.0.%d", k->nodes.n);
}

static void add_job(struct cluster *k, const struct axes *a)
{
    static struct job_spec s; /* 75 KiB: off the stack */
    s = (struct job_spec){.kind = JOB_TRAIN};
    CHECK(!spec_intern(&s, "cpu", 3, &s.resources.device));
    s.resources.ranks = axes_ranks(a);
    s.parallel.dp = a->dp;
    s.parallel.pp = a->pp == 1 ? 0 : a->pp; /* as they are left out */
    s.parallel.sp = a->sp;
    s.parallel.tp = a->tp == 1 ? 0 : a->tp;
    struct job *j = job_create(1, &s);
    if (!j) abort();
    snprintf(j->prepared_id, sizeof j->prepared_id, "data");
    jobs_add(&k->jobs, j);
}

/* The node of each rank, as the ASSIGN has it: all ranks, in order, and no node beyond its
 * slots. */
static void nodes_of(const struct way *w, const struct event *ev, int out[JOB_MAX_RANKS])
{
    int next = 0;
    for (int i = 0; i < ev->n_places; i++) {
        const struct job_place *p = &ev->places[i];
        const int node = atoi(p->node + 1) - 1;
        CHECK(p->first_rank == next && p->n_ranks >= 1 && p->n_ranks <= w->slots[node]);
        for (int o = 0; o < i; o++) CHECK(strcmp(ev->places[o].node, p->node) != 0);
        for (int r = 0; r < p->n_ranks; r++) out[next++] = node;
    }
    CHECK(next == axes_ranks(&w->axes) && ev->n_ranks == next);
}

/* Sets of ranks that stand at the same place but for `along`, on more than one node. */
static int count_split(const struct axes *a, const int node[JOB_MAX_RANKS], unsigned along)
{
    int n = 0;
    for (int r = 0; r < axes_ranks(a); r++) {
        const struct rank_set of = axes_line(a, r, along);
        bool split = false;
        for (int i = 0; i < of.n; i++) split |= node[rank_set_at(&of, i)] != node[r];
        n += split && rank_set_at(&of, 0) == r;
    }
    return n;
}

static void check_way(const struct way *w, int number)
{
    struct cluster *k = calloc(1, sizeof *k);
    struct sched_pass *p = pass_create();
    static struct event ev;
    int node[JOB_MAX_RANKS] = {0};
    if (!k) abort();
    cluster_init(k);
    for (int i = 0; i < NODES && w->slots[i]; i++) add_node(k, w->slots[i]);
    add_job(k, &w->axes);
    CHECK(pass_pick(p, k, 1000) == 1);
    const struct job *j = pass_verdict(p, k, 0, &ev);
    CHECK_MSG(!j == !w->n_nodes, "way %d: %s", number, jobs_find(&k->jobs, 1)->reason);
    if (j) {
        nodes_of(w, &ev, node);
        const int rings = count_split(&w->axes, node, AXIS_SP | AXIS_TP),
                  layers = count_split(&w->axes, node, AXIS_TP);
        CHECK_MSG(ev.task == TASK_RUN && ev.n_places == w->n_nodes && rings == w->split_rings &&
                      layers == w->split_layers,
                  "way %d: %d nodes, %d rings and %d blocks of layers split", number, ev.n_places,
                  rings, layers);
    }
    pass_destroy(p);
    cluster_fini(k);
    free(k);
}

static void test_places(void)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) check_way(&ways[i], (int)i);
}

int main(void)
{
    RUN(test_places);
    return test_done("seqd_axes");
}
