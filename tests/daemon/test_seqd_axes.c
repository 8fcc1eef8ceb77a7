/* test_seqd_axes: checks the nodes of a job's ranks along its axes. Ranks that share layers, and
 * ranks of one ring, exchange more messages than other ranks. They must be placed on one node if a
 * node has room for them. Each node has consecutive ranks. For each case, the test makes a job's
 * spec, and checks the ASSIGN of its attempt (daemon/loop/pass.h). */
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/pass.h"
#include "tests/lib/test.h"
#include "worker/plan/axes.h"

enum { NODES = 8 };

/* The axes of a job and the slots of the nodes, with the expected result. split_rings is the
 * number of rings (of sp * tp ranks each) that are on more than one node. split_layers is the
 * number of sets of ranks that share layers (of tp ranks each) that are on more than one node. */
struct way {
    struct axes axes;
    int slots[NODES]; /* 0 after the last node */
    int n_nodes, split_rings, split_layers;
};

static const struct way ways[] = {
    /* All ranks are on the smallest node that can hold them. */
    {{1, 2, 2, 2}, {16, 8, 4}, 1, 0, 0},
    {{1, 1, 8, 1}, {8}, 1, 0, 0},
    /* Each node has one stage. */
    {{1, 2, 2, 2}, {4, 4}, 2, 0, 0},
    {{1, 4, 4, 2}, {8, 8, 8, 8}, 4, 0, 0},
    {{2, 2, 2, 2}, {4, 4, 4, 4}, 4, 0, 0},
    /* Each node has two stages or two rings. */
    {{2, 2, 2, 2}, {8, 8}, 2, 0, 0},
    {{2, 1, 2, 2}, {8, 4}, 1, 0, 0},
    {{4, 1, 2, 2}, {8, 8, 3}, 2, 0, 0},
    /* If the nodes have room for all rings without splitting one, slots of a node that are too few
     * for a ring remain free. */
    {{1, 2, 2, 2}, {5, 4, 3}, 2, 0, 0},
    {{1, 3, 3, 1}, {5, 5, 5}, 3, 0, 0},
    {{2, 1, 1, 4}, {7, 7}, 2, 0, 0},
    {{1, 2, 3, 2}, {11, 7}, 2, 0, 0},
    /* Nodes of different sizes get as many rings as fit. */
    {{1, 4, 2, 1}, {6, 2}, 2, 0, 0},
    {{2, 3, 1, 2}, {7, 4, 3}, 3, 0, 0},
    {{1, 5, 2, 2}, {13, 9}, 2, 0, 0},
    /* No node can hold a ring, so the ranks that share layers are kept together. */
    {{1, 1, 4, 2}, {4, 4}, 2, 1, 0},
    {{1, 1, 4, 4}, {6, 6, 6, 6}, 4, 1, 0},
    {{2, 1, 4, 2}, {6, 6, 6}, 3, 2, 0},
    {{1, 2, 2, 4}, {4, 4, 4, 4}, 4, 2, 0},
    {{1, 1, 2, 3}, {5, 5}, 2, 1, 0},
    /* One node can hold one ring, and too few slots are left for the other rings. */
    {{1, 2, 2, 2}, {7, 2}, 2, 1, 0},
    {{1, 3, 2, 2}, {6, 4, 2}, 3, 1, 0},
    /* No node can hold the ranks that share layers either, so any slots are used. */
    {{1, 1, 1, 8}, {4, 4}, 2, 1, 1},
    {{1, 1, 2, 4}, {3, 3, 3}, 3, 1, 2},
    {{1, 2, 1, 4}, {5, 3}, 2, 1, 1},
    {{1, 1, 8, 1}, {3, 3, 3}, 3, 1, 0},
    /* There are too few slots for all ranks, so the job waits. */
    {{1, 2, 2, 2}, {4, 3}, 0, 0, 0},
    {{2, 2, 2, 2}, {15}, 0, 0, 0},
};

static void add_node(struct cluster *k, int slots)
{
    struct msg hello = {.abi = WIRE_ABI, .n_slots = slots};
    const int number = k->nodes.n + 1;
    snprintf(hello.node, sizeof hello.node, "n%d", number);
    snprintf(hello.address, sizeof hello.address, "10.0.0.%d", number);
    CHECK(node_up(&k->nodes, &hello, 0));
}

static void add_job(struct cluster *k, const struct axes *a)
{
    static struct job_spec s; /* its 75 KiB are too many for the stack */
    s = (struct job_spec){.kind = JOB_TRAIN};
    CHECK(!spec_intern(&s, "cpu", 3, &s.resources.device));
    s.resources.ranks = axes_ranks(a);
    s.parallel.dp = a->dp;
    s.parallel.pp = a->pp == 1 ? 0 : a->pp; /* a value of 1 is left out of a spec */
    s.parallel.sp = a->sp;
    s.parallel.tp = a->tp == 1 ? 0 : a->tp;
    struct job *j = job_create(1, &s);
    if (!j) abort();
    snprintf(j->prepared_id, sizeof j->prepared_id, "data");
    jobs_add(&k->jobs, j);
}

/* Finds the node of each rank in the ASSIGN. Checks that the ASSIGN has all ranks in order, and
 * that no node has more ranks than slots. */
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

/* Counts the sets of ranks that are on more than one node. A set consists of ranks whose positions
 * differ only along the axes in `along`. */
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
    struct sched_pass *p = pass_create(0);
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
