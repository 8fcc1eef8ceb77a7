/* test_seqd_sched: runs the scheduler on random clusters. It must never start only a part of a
 * gang, and must never use more slots, memory or GPUs than there are. The reason of a waiting job
 * must name the true cause, which means that the job starts when the test removes this cause. */
#include <stdlib.h>
#include "daemon/sched/sched.h"
#include "tests/lib/test.h"

#define MAX_NODES 6
#define MAX_JOBS  12
#define UNIT      (NEED_ERRAND / 2) /* the bytes of one unit of memory */

static unsigned seed = 7;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static int by_rank(const void *a, const void *b)
{
    const struct sched_job *x = a, *y = b;
    if (x->priority != y->priority) return x->priority > y->priority ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Sorts jobs into scheduling order and fills in the verdict of every job. */
static void sched_pick(struct sched_job *jobs, int n_jobs, struct sched_node *nodes, int n_nodes,
                       int64_t now_ms)
{
    struct sched_line l = {0};
    if (n_jobs) qsort(jobs, (size_t)n_jobs, sizeof *jobs, by_rank);
    for (int i = 0; i < n_jobs; i++)
        if (!sched_barred(&jobs[i], now_ms)) sched_place(&l, &jobs[i], nodes, n_nodes);
}

static int make_nodes(struct sched_node *n)
{
    int count = below(MAX_NODES + 1);
    for (int i = 0; i < count; i++) {
        n[i] = (struct sched_node){.up = below(4) != 0, .n_slots = below(9)};
        n[i].n_reserved = n[i].n_slots ? below(n[i].n_slots + 1) : 0;
        n[i].n_preparing = below(SCHED_MAX_PREPARE + 1);
        n[i].memory_size = below(4) ? (int64_t)(1 + below(12)) * UNIT : 0;
        n[i].memory_held = below(3) ? (int64_t)below(6) * UNIT / 2 : 0;
        n[i].n_attempts = n[i].n_reserved || n[i].n_preparing || n[i].memory_held;
        n[i].alone = n[i].n_attempts && below(9) == 0;
        n[i].net = below(4) ? 1 + below(2) : 0;
        n[i].emulated = below(2);
        n[i].quarantined = below(6) == 0;
        n[i].cordoned = below(9) == 0;
        n[i].ends = below(6) == 0;
        n[i].left_ms = below(100);
        n[i].n_gpus = below(3) ? below(9) : 0;
        for (int k = 0; k < n[i].n_gpus; k++) {
            struct sched_gpu *g = &n[i].gpu[k];
            *g = (struct sched_gpu){.memory_size = 1 + below(3), .state = (uint8_t)below(6)};
            if (g->state > SCHED_GPU_UNFIT) g->state = SCHED_GPU_FREE;
            g->memory_free = below(5) ? g->memory_size : 0;
            for (int o = 0; o < n[i].n_gpus; o++) g->far[o] = (uint8_t)below(6);
        }
    }
    return count;
}

/* Makes the need of one stage, or of several stages that differ. */
static const struct need *make_need(int n_ranks, int ring)
{
    static struct need all[4096];
    static int used;
    struct need *n = &all[used++ % 4096];
    *n = (struct need){.n_stages = 1, .per_stage = ring, .rank = (1 + below(6)) * UNIT / 2};
    if (n_ranks == ring || below(2)) return n;
    n->n_stages = n_ranks / ring;
    for (int i = 0; i < n->n_stages; i++) n->stage[i] = (1 + below(6)) * UNIT / 2;
    n->rank = n->stage[0];
    for (int i = 1; i < n->n_stages; i++)
        if (n->stage[i] > n->rank) n->rank = n->stage[i];
    return n;
}

static int make_jobs(struct sched_job *j, int n_nodes)
{
    int count = below(MAX_JOBS + 1);
    for (int i = 0; i < count; i++) {
        int ring = 1 + below(4);
        j[i] = (struct sched_job){.id = i + 1,
                                  .priority = below(3),
                                  .n_ranks = ring * (1 + below(4)),
                                  .ring = ring,
                                  .prepare = below(4) == 0,
                                  .one_node = below(4) == 0,
                                  .checkpoint = below(2),
                                  .only = -1,
                                  .device = below(3) ? SCHED_SLOTS : 1 + below(2),
                                  .gpu_size = 1 + below(3),
                                  .gpu_free = below(2),
                                  .avoid_node = below(3) - 1,
                                  .avoid_gpu = below(4),
                                  .wall_ms = below(3) ? 0 : below(200),
                                  .not_before_ms = below(5) ? 0 : 2000};
        if (n_nodes && below(3) == 0) j[i].only = below(n_nodes);
        j[i].toy = j[i].only >= 0 && below(8) == 0;
        for (int k = 0; k < n_nodes; k++) {
            if (below(6) == 0) sched_add(&j[i].blamed, k);
            if (below(8) == 0) sched_add(&j[i].lacks, k);
        }
        j[i].alone = below(9) == 0;
        j[i].need = below(3) ? make_need(j[i].n_ranks, ring) : NULL;
        j[i].awaited = below(4) == 0 && !(j[i].only >= 0 && (j[i].checkpoint || j[i].toy));
        j[i].soon = below(4) == 0 && !(j[i].only >= 0 && (j[i].checkpoint || j[i].toy));
    }
    return count;
}

/* Makes an idle node with enough slots, memory and GPUs for any job. */
static struct sched_node large_node(void)
{
    struct sched_node n = {
        .up = true, .net = 1, .n_slots = 1000, .emulated = true, .n_gpus = GPU_MAX};
    for (int k = 0; k < GPU_MAX; k++) n.gpu[k].memory_size = n.gpu[k].memory_free = 100;
    return n;
}

static struct sched_job *find(struct sched_job *j, int n, int64_t id)
{
    for (int i = 0; i < n; i++)
        if (j[i].id == id) return &j[i];
    return NULL;
}

/* Checks that each rank has a GPU of its node that was free and large enough, and that no GPU is
 * given to two ranks. */
static void check_gpus(const struct sched_job *j, const struct sched_node *nodes)
{
    const uint8_t *gpu = j->gpu;
    for (int i = 0; i < j->n_parts; gpu += j->part[i++].n_ranks) {
        bool seen[GPU_MAX] = {false};
        for (int r = 0; r < j->part[i].n_ranks; r++) {
            const struct sched_gpu *g = &nodes[j->part[i].node].gpu[gpu[r]];
            CHECK(gpu[r] < nodes[j->part[i].node].n_gpus && !seen[gpu[r]]);
            CHECK(g->state == SCHED_GPU_FREE && g->memory_size >= j->gpu_size &&
                  g->memory_free >= j->gpu_free);
            seen[gpu[r]] = true;
        }
    }
}

/* Checks that either all ranks of a gang are placed or none. The nodes of the gang must be
 * connected to seqd, and every two of them must be able to connect to each other. If the job
 * requires a node for rank 0, rank 0 must be on this node. */
static void check_gang(const struct sched_job *j, const struct sched_node *nodes)
{
    int32_t n = 0;
    bool seen[MAX_NODES + 4] = {false};
    CHECK((j->node >= 0) == (j->n_parts > 0));
    if (j->node < 0) return;
    CHECK(j->part[0].node == j->node);
    for (int i = 0; i < j->n_parts; i++) {
        int k = j->part[i].node;
        CHECK(nodes[k].up && j->part[i].n_ranks > 0 && !seen[k]);
        CHECK(!nodes[k].quarantined || j->toy);
        CHECK(!nodes[k].cordoned && (!nodes[k].ends || j->wall_ms <= nodes[k].left_ms));
        if (j->n_parts > 1) CHECK(nodes[k].net && nodes[k].net == nodes[j->node].net);
        seen[k] = true;
        n += j->part[i].n_ranks;
    }
    CHECK(n == (j->prepare ? 1 : j->n_ranks));
    CHECK(j->n_parts == 1 || !j->one_node);
    if (j->device == SCHED_EMULATED)
        for (int i = 0; i < j->n_parts; i++) CHECK(nodes[j->part[i].node].emulated);
    if (j->device == SCHED_GPUS && !j->prepare) check_gpus(j, nodes);
    if (!j->prepare && j->only >= 0) CHECK(j->node == j->only);
}

static void check_sums(const struct sched_job *j, int nj, const struct sched_node *before,
                       const struct sched_node *after, int nn)
{
    int32_t placed[MAX_NODES + 4] = {0}, preparing[MAX_NODES + 4] = {0};
    int given[MAX_NODES + 4] = {0}, attempts[MAX_NODES + 4] = {0}, alone[MAX_NODES + 4] = {0};
    int64_t memory[MAX_NODES + 4] = {0};
    for (int i = 0; i < nj; i++) {
        check_gang(&j[i], before);
        for (int p = 0, first = 0; p < j[i].n_parts; first += j[i].part[p++].n_ranks) {
            int k = j[i].part[p].node;
            attempts[k]++;
            alone[k] += j[i].alone;
            memory[k] += j[i].prepare ? NEED_ERRAND
                         : j[i].need  ? need_of(j[i].need, first, j[i].part[p].n_ranks)
                                      : 0;
            if (j[i].prepare)
                preparing[k]++;
            else if (j[i].device == SCHED_GPUS)
                given[k] += j[i].part[p].n_ranks;
            else
                placed[k] += j[i].part[p].n_ranks;
        }
    }
    for (int k = 0; k < nn; k++) {
        CHECK(after[k].n_reserved == before[k].n_reserved + placed[k]);
        CHECK(placed[k] == 0 || after[k].n_reserved <= after[k].n_slots);
        CHECK(after[k].n_preparing == before[k].n_preparing + preparing[k]);
        CHECK(preparing[k] == 0 || after[k].n_preparing <= SCHED_MAX_PREPARE);
        /* A node's memory must not be exceeded. There is one exception: a preparation may be
         * placed on any idle node. */
        const int64_t held = before[k].memory_held + memory[k];
        const bool one_errand = !before[k].memory_held && memory[k] == NEED_ERRAND;
        /* memory that is reserved for a waiting job counts, too */
        CHECK(after[k].memory_held >= held);
        CHECK(!before[k].memory_size || !memory[k] || held <= before[k].memory_size || one_errand);
        CHECK(after[k].n_attempts == before[k].n_attempts + attempts[k]);
        CHECK(!before[k].alone || !attempts[k]);
        CHECK(!alone[k] || (!before[k].n_attempts && attempts[k] == 1 && after[k].alone));
        /* The number of GPUs that become held must equal the number of GPUs that were given to
         * jobs. A GPU that becomes reserved must have been free. */
        for (int g = 0; g < before[k].n_gpus; g++) {
            const int was = before[k].gpu[g].state, is = after[k].gpu[g].state;
            given[k] -= is == SCHED_GPU_HELD && was != SCHED_GPU_HELD;
            CHECK(is == was ||
                  (was == SCHED_GPU_FREE && (is == SCHED_GPU_HELD || is == SCHED_GPU_KEPT)));
        }
        CHECK(given[k] == 0);
    }
}

static int32_t free_of(const struct sched_job *j, const struct sched_node *n)
{
    int32_t free = 0;
    if (j->device == SCHED_SLOTS || (j->device == SCHED_EMULATED && n->emulated))
        free = n->n_slots - n->n_reserved;
    for (int k = 0; k < n->n_gpus && j->device == SCHED_GPUS; k++)
        free += n->gpu[k].state == SCHED_GPU_FREE && n->gpu[k].memory_size >= j->gpu_size &&
                n->gpu[k].memory_free >= j->gpu_free;
    return free;
}

/* Tries every set of nodes. Returns the smallest number of nodes on which a gang can start if
 * there is no other job. Returns 0 if it cannot start. If `whole` is set, no ring may be split
 * over two nodes. */
static int fewest_nodes(const struct sched_job *j, const struct sched_node *nodes, int nn,
                        bool whole)
{
    int best = 0;
    for (unsigned set = 1; set < 1u << nn; set++) {
        int count = 0, net = -1;
        int32_t room = 0;
        bool good = j->only < 0 || (set >> j->only & 1);
        for (int k = 0; k < nn; k++) {
            if (!(set >> k & 1)) continue;
            int32_t left = free_of(j, &nodes[k]);
            if (!nodes[k].up || left < 1 || (count && (!net || nodes[k].net != net))) good = false;
            net = nodes[k].net;
            count++;
            room += whole ? left / j->ring * j->ring : left;
            if (whole && left < j->ring) good = false;
        }
        if (!good || room < j->n_ranks || (j->one_node && count > 1)) continue;
        if (!best || count < best) best = count;
    }
    return best;
}

static int split_rings(const struct sched_job *j)
{
    int n = 0;
    for (int i = 0, rank = 0; i + 1 < j->n_parts; i++) {
        rank += j->part[i].n_ranks;
        n += rank % j->ring != 0;
    }
    return n;
}

/* Checks one job on a random cluster. It must start if and only if it can. If there are placements
 * in which no ring of the job is split, one of them must be used, and otherwise any. Among these
 * placements, the job must get one with the smallest number of nodes. */
static void test_spread(void)
{
    int n_spread = 0, n_split = 0;
    for (int round = 0; round < 40000 && !test_failures_now; round++) {
        struct sched_node n[MAX_NODES + 4] = {0};
        struct sched_job j[MAX_JOBS] = {0};
        int nn = make_nodes(n);
        if (!make_jobs(j, nn)) continue;
        j->prepare = false;
        j->not_before_ms = 0;
        j->avoid_node = -1; /* see test_avoid */
        j->checkpoint = 1;  /* test_pinned checks data that can be prepared again elsewhere */
        j->toy = j->awaited = j->soon = false;
        j->blamed = j->lacks = (struct sched_set){0}; /* see test_random */
        j->alone = false;
        j->need = NULL; /* see test_stages */
        for (int i = 0; i < nn; i++)
            n[i].quarantined = n[i].cordoned = n[i].ends = n[i].alone = false;
        int one = fewest_nodes(j, n, nn, false), whole = fewest_nodes(j, n, nn, true);
        if (one == 1) whole = 1;
        sched_pick(j, 1, n, nn, 1000);
        CHECK_MSG((j->node >= 0) == (one > 0), "%s", j->reason);
        if (j->node < 0) continue;
        CHECK_MSG(j->n_parts == (whole ? whole : one), "%d parts, %d would do", j->n_parts,
                  whole ? whole : one);
        CHECK(!whole || split_rings(j) == 0);
        n_spread += j->n_parts > 1;
        n_split += split_rings(j) > 0;
    }
    CHECK_MSG(n_spread > 500 && n_split > 100, "%d spread, %d split", n_spread, n_split);
}

/* Removes the cause that the reason names, runs the scheduler again, and checks that the job
 * starts. */
static void check_reason(const struct sched_job *all, int nj, const struct sched_job *j,
                         const struct sched_node *nodes, int nn)
{
    struct sched_job jobs[MAX_JOBS];
    struct sched_node n[MAX_NODES + 4];
    int64_t now = 1000;
    memcpy(jobs, all, sizeof jobs);
    memcpy(n, nodes, sizeof n);
    CHECK(*j->reason_code && *j->reason);
    if (!strcmp(j->reason_code, "backoff")) {
        now = j->not_before_ms;
    } else if (!strcmp(j->reason_code, "behind")) {
        /* Removes the job that the reason names. This job must then start, be stopped by a
         * different job before it, or wait for other resources. */
        long long first = 0;
        CHECK(sscanf(j->reason, "behind job %lld", &first) == 1);
        int m = 0;
        for (int i = 0; i < nj; i++)
            if (all[i].id != first) jobs[m++] = all[i];
        CHECK(m == nj - 1);
        sched_pick(jobs, m, n, nn, now);
        const struct sched_job *again = find(jobs, m, j->id);
        if (again->node < 0 && strcmp(again->reason_code, "behind"))
            CHECK(!strncmp(again->reason_code, "waiting_for_", 12));
        return;
    } else if (j->device != SCHED_SLOTS) {
        /* For all other reasons, the job must start if there is no other job and its data is on a
         * large node. */
        jobs[0] = *find(jobs, nj, j->id);
        if (jobs[0].only >= 0) n[jobs[0].only] = large_node();
        n[nn++] = large_node(); /* a second node, for a job that avoids a GPU of the first node */
        n[nn++] = large_node();
        nj = 1;
    } else {
        /* For no_node, too_large, waiting_for_slots and waiting_to_prepare, large idle nodes are
         * added. They are enough for all jobs of the queue to prepare at the same time. */
        for (int i = 0; i < MAX_JOBS / SCHED_MAX_PREPARE; i++) n[nn++] = large_node();
        /* If this job or a job before it waits for one particular node, only that node can
         * help. */
        for (int i = 0; i < nj; i++)
            if (all[i].only >= 0) {
                n[all[i].only].up = true, n[all[i].only].n_slots += 1000;
                n[all[i].only].quarantined = n[all[i].only].cordoned = false;
                n[all[i].only].ends = n[all[i].only].alone = false;
                n[all[i].only].memory_size = 0;
                n[all[i].only].n_preparing = n[all[i].only].n_attempts = -MAX_JOBS;
            }
        for (int i = 0; i < nj; i++) jobs[i].alone = false;
        if (j->alone) { /* no other job may be on its node */
            jobs[0] = *find(jobs, nj, j->id);
            jobs[0].alone = true;
            nj = 1;
        }
    }
    sched_pick(jobs, nj, n, nn, now);
    const struct sched_job *again = find(jobs, nj, j->id);
    bool moved_on = again->node >= 0 || strcmp(again->reason_code, j->reason_code);
    CHECK_MSG(moved_on, "job %lld still \"%s\"", (long long)j->id, again->reason);
    if (strcmp(j->reason_code, "backoff"))
        CHECK_MSG(again->node >= 0, "job %lld: %s, then %s", (long long)j->id, j->reason,
                  again->reason);
}

/* Tells whether the nodes of some network have at least as many slots as the job has ranks. Only
 * connected nodes that are not in `out` count. */
static bool slots_suffice(const struct sched_job *j, const struct sched_node *n, int nn,
                          const struct sched_set *out)
{
    /* the number of slots does not decide this, because stages need different amounts of memory */
    if (j->need && j->need->n_stages > 1) return false;
    for (int a = 0; a < nn; a++) {
        int32_t sum = 0;
        for (int k = 0; k < nn; k++) {
            const bool usable = n[k].up && (!n[k].quarantined || j->toy) && !n[k].cordoned &&
                                (!n[k].ends || j->wall_ms <= n[k].left_ms) && !sched_has(out, k);
            const bool near = k == a || (!j->one_node && n[k].net && n[k].net == n[a].net);
            const bool weighs = j->need && n[k].memory_size;
            if (usable && near)
                sum += weighs ? need_fits(j->need, 0, n[k].n_slots, n[k].memory_size)
                              : n[k].n_slots;
        }
        if (n[a].up && !n[a].quarantined && !n[a].cordoned &&
            (!n[a].ends || j->wall_ms <= n[a].left_ms) && !sched_has(out, a) && sum >= j->n_ranks)
            return true;
    }
    return false;
}

/* Checks nodes on which a gang has failed, or which lack the gang's files. The gang may be placed
 * on these nodes only if the other nodes are not enough. */
static void check_left_out(const struct sched_job *was, const struct sched_job *j,
                           const struct sched_node *n, int nn)
{
    bool blamed = false, lacks = false;
    struct sched_set out = was->lacks;
    for (int w = 0; w < SCHED_NODES / 64; w++) out.bits[w] |= was->blamed.bits[w];
    for (int i = 0; i < j->n_parts; i++) {
        blamed = blamed || sched_has(&was->blamed, j->part[i].node);
        lacks = lacks || sched_has(&was->lacks, j->part[i].node);
    }
    if (j->prepare || j->device != SCHED_SLOTS) return;
    /* the job can be placed nowhere else */
    if (was->only >= 0 && (was->checkpoint || was->toy)) return;
    if (blamed) CHECK_MSG(!slots_suffice(was, n, nn, &out), "on a node that failed it");
    if (lacks) CHECK_MSG(!slots_suffice(was, n, nn, &was->lacks), "on a node without its files");
    if (blamed || lacks) CHECK_MSG(!was->soon, "on a node left out, while another comes back");
    if (lacks) CHECK_MSG(!was->awaited, "on a node without its files, while another is awaited");
}

static void test_random(void)
{
    for (int round = 0; round < 20000 && !test_failures_now; round++) {
        struct sched_node before[MAX_NODES + 4] = {0}, after[MAX_NODES + 4];
        struct sched_job jobs[MAX_JOBS] = {0}, asked[MAX_JOBS];
        int nn = make_nodes(before), nj = make_jobs(jobs, nn);
        memcpy(asked, jobs, sizeof asked);
        memcpy(after, before, sizeof after);
        sched_pick(jobs, nj, after, nn, 1000);
        check_sums(jobs, nj, before, after, nn);
        for (int i = 0; i < nj; i++) {
            CHECK((jobs[i].node >= 0) == !*jobs[i].reason_code);
            check_left_out(find(asked, nj, jobs[i].id), &jobs[i], before, nn);
            if (!jobs[i].prepare && jobs[i].only >= 0 && !before[jobs[i].only].up)
                CHECK(jobs[i].node < 0);
            if (jobs[i].node < 0) check_reason(asked, nj, &jobs[i], before, nn);
        }
    }
}

/* Checks a GPU on which the job has failed. It may be used only if the other GPUs are not enough.
 * In this case it is used like any other GPU. */
static void test_avoid(void)
{
    struct sched_node idle = {.up = true, .n_gpus = 3}, n = idle;
    struct sched_job j = {.id = 1, .n_ranks = 2, .only = -1, .device = SCHED_GPUS};
    j.avoid_node = 0, j.avoid_gpu = 1;
    sched_pick(&j, 1, &n, 1, 0);
    CHECK(j.node == 0 && j.gpu[0] == 0 && j.gpu[1] == 2);
    n = idle;
    n.gpu[2].state = SCHED_GPU_HELD; /* a job that will end holds the third GPU, so the waiting job
                                      * can get it */
    sched_pick(&j, 1, &n, 1, 0);
    CHECK(j.node == -1);
    CHECK_STR(j.reason, "1/2 GPUs free on 1 node, needs 2");
    n = idle;
    n.gpu[2].state = SCHED_GPU_UNFIT;
    sched_pick(&j, 1, &n, 1, 0);
    CHECK(j.node == 0 && j.gpu[0] == 0 && j.gpu[1] == 1);
}

/* Checks a node whose version lacks one of the job's fields. It must never be used, even if there
 * is no other node. */
static void test_old(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .n_slots = 4},
                              {.name = "b", .up = false, .n_slots = 4}};
    struct sched_job j = {.id = 1, .n_ranks = 2, .only = -1, .needs = "checkpoint.changes"};
    sched_add(&j.old, 0);
    for (int prepare = 0; prepare < 2; prepare++) {
        j.prepare = prepare;
        sched_pick(&j, 1, n, 2, 0);
        CHECK(j.node == -1);
        CHECK_STR(j.reason_code, "no_node");
        CHECK_STR(j.reason,
                  "no node can take it: 0 nodes up, 1 down, 1 of an older version without "
                  "checkpoint.changes (upgrade seqw there)");
    }
    j.prepare = false;
    /* the job runs on the node on which it has failed, because the version of the second node is
     * too old */
    sched_add(&j.blamed, 1);
    n[1].up = true;
    sched_pick(&j, 1, n, 2, 0);
    CHECK(j.node == 1);
    n[1].up = false;
    j.only = 0, j.checkpoint = 7;
    sched_pick(&j, 1, n, 2, 0);
    CHECK(j.node == -1);
    CHECK_STR(j.reason, "node a, which holds its checkpoint of step 7, is of an older version "
                        "without checkpoint.changes: upgrade seqw there; to start again on another "
                        "node: seqctl restart 1");
}

/* Checks that ranks on GPUs need memory of the host, too. A node may get only as many ranks as fit
 * into its free memory. */
static void test_memory_beside(void)
{
    const int64_t gib = 1 << 30;
    struct sched_node n = {.up = true, .n_gpus = 4, .memory_size = 10 * gib};
    struct sched_job j[2] = {{.id = 1, .n_ranks = 2, .only = -1, .device = SCHED_GPUS},
                             {.id = 2, .n_ranks = 2, .only = -1, .device = SCHED_GPUS}};
    j[0].avoid_node = j[1].avoid_node = -1;
    const struct need need = {.rank = 3 * gib, .n_stages = 1};
    j[0].need = j[1].need = &need;
    sched_pick(j, 2, &n, 1, 0);
    CHECK(j[0].node == 0 && j[1].node == -1 && n.memory_held == 6 * gib);
    CHECK_STR(j[1].reason_code, "waiting_for_gpus");
    CHECK_STR(j[1].reason, "1/3 GPUs free on 1 node, needs 2; of 4 GPUs 1 lacks 3.0 GiB of the "
                           "node's memory");
    n.memory_size = 12 * gib;
    sched_pick(&j[1], 1, &n, 1, 0);
    CHECK(j[1].node == 0);
    n = (struct sched_node){.up = true, .n_gpus = 4, .memory_size = 5 * gib};
    sched_pick(&j[1], 1, &n, 1, 0);
    CHECK_STR(j[1].reason_code, "too_large");
    CHECK_STR(j[1].reason,
              "needs 2 GPUs, the largest node up has 1 (1 node up, 0 down); of 4 GPUs 3 "
              "lack 3.0 GiB of the node's memory");
    n.memory_size = 0; /* it does not say */
    sched_pick(&j[1], 1, &n, 1, 0);
    CHECK(j[1].node == 0);
}

/* Checks three jobs of 242.9 MiB on a node of 400 MiB and four slots (cases/04). The first job
 * runs, the second waits for memory, and the third waits for the second to start. */
static void test_memory_of_slots(void)
{
    const int64_t mib = 1 << 20;
    struct need need = {.n_stages = 1, .rank = 2429 * mib / 10};
    struct sched_node n = {.name = "local", .up = true, .n_slots = 4, .memory_size = 400 * mib};
    struct sched_job j[4];
    for (int i = 0; i < 4; i++)
        j[i] = (struct sched_job){.id = i + 1, .n_ranks = 1, .only = -1, .need = &need};
    j[3].device = SCHED_GPUS, j[3].avoid_node = -1;
    n.n_gpus = 1;
    sched_pick(j, 4, &n, 1, 0);
    CHECK(j[0].node == 0 && j[1].node == -1 && j[2].node == -1);
    CHECK(n.memory_held == need.rank && n.n_reserved == 1 && n.n_attempts == 1);
    CHECK_STR(j[1].reason_code, "waiting_for_memory");
    CHECK_STR(j[1].reason, "needs 242.9 MiB, 157.1 MiB of node local are free");
    CHECK_STR(j[2].reason_code, "behind");
    /* jobs on every kind of device use the same host memory */
    CHECK_STR(j[3].reason_code, "behind");
    need.rank = 200 * mib;
    j[2].n_ranks = 2;
    sched_pick(&j[1], 2, &n, 1, 0);
    CHECK(j[1].node == -1 && !strcmp(j[1].reason_code, "waiting_for_memory"));
    n.memory_held = 0;
    sched_pick(&j[2], 1, &n, 1, 0);
    CHECK(j[2].node == 0 && n.memory_held == 400 * mib);
    need.rank = 200 * mib + 1; /* too much for two ranks on the only node */
    sched_pick(&j[2], 1, &n, 1, 0);
    CHECK_STR(j[2].reason_code, "too_large");
    CHECK_STR(j[2].reason,
              "needs 2 x 200.0 MiB of memory, node local, the largest that it may use, "
              "has 400.0 MiB (1 node up, 0 down)");
    n.memory_size = n.n_reserved = 0; /* it does not say */
    sched_pick(&j[2], 1, &n, 1, 0);
    CHECK(j[2].node == 0);
    j[0].prepare = true, j[0].need = NULL;
    n = (struct sched_node){.name = "local", .up = true, .n_slots = 4, .memory_size = 400 * mib};
    for (int i = 0; i < 4; i++) sched_pick(j, 1, &n, 1, 0);
    CHECK(j[0].node == -1 && n.n_preparing == 3 && n.memory_held == 3 * NEED_ERRAND);
    CHECK_STR(j[0].reason, "to prepare its data needs 128.0 MiB, 16.0 MiB of node local are free");
}

/* Checks a pipeline whose four stages need 300, 100, 300 and 100 bytes. It must fit on nodes on
 * which four ranks of 300 bytes would not fit. Its ranks must be in order. */
static void test_stages(void)
{
    const struct need need = {
        .rank = 300, .n_stages = 4, .per_stage = 1, .stage = {300, 100, 300, 100}};
    struct sched_node n[3] = {{.name = "a", .up = true, .net = 2, .n_slots = 8, .memory_size = 800},
                              {.name = "b", .up = true, .net = 2, .n_slots = 8, .memory_size = 799},
                              {.name = "c", .up = true, .net = 2, .n_slots = 8, .memory_size = 99}};
    struct sched_job j = {.id = 1, .n_ranks = 4, .ring = 1, .only = -1, .need = &need};
    CHECK(need_of(&need, 1, 3) == 500 && need_of(&need, 3, 2) == 400);
    CHECK(need_fits(&need, 1, 9, 400) == 2 && need_fits(&need, 0, 9, 299) == 0);
    CHECK(need_fits(&need, 0, 9, 1100) == 5);
    sched_pick(&j, 1, n, 3, 0);
    CHECK(j.node == 0 && j.n_parts == 1 && n[0].memory_held == 800);
    sched_pick(&j, 1, n, 3, 0); /* node b has 1 byte too little for all ranks, and node c has no
                                 * room for any rank */
    CHECK_STR(j.reason, "needs 4 x 300 B, at most 799 B of node b are free");
    n[0].memory_held = 700;
    sched_pick(&j, 1, n, 3, 0);
    CHECK(j.n_parts == 2 && j.part[0].node == 1 && j.part[0].n_ranks == 3 && j.part[1].node == 0);
    CHECK(n[1].memory_held == 700 && n[0].memory_held == 800);
    n[0].memory_size = 299; /* now the job would not fit even if the nodes were idle */
    n[1].memory_held = 0, n[1].memory_size = 399;
    sched_pick(&j, 1, n, 3, 0);
    CHECK_STR(j.reason_code, "too_large");
}

/* Checks a job after a kill for lack of memory. It must be placed on an idle node, and no other
 * job may then be placed on that node. */
static void test_alone(void)
{
    struct sched_node n[2] = {
        {.name = "a", .up = true, .n_slots = 4, .n_reserved = 1, .n_attempts = 1},
        {.name = "b", .up = true, .n_slots = 4, .n_preparing = 1, .n_attempts = 1}};
    struct sched_job j[3] = {{.id = 1, .n_ranks = 1, .only = -1, .alone = true},
                             {.id = 2, .n_ranks = 1, .only = -1, .prepare = true},
                             {.id = 3, .n_ranks = 1, .only = -1}};
    sched_pick(j, 1, n, 2, 0);
    CHECK_STR(j[0].reason_code, "waiting_for_memory");
    CHECK_STR(j[0].reason, "the kernel ran out of memory beside it: it is to be alone on its node, "
                           "and 2 of 2 nodes run others");
    n[1].n_preparing = n[1].n_attempts = 0;
    sched_pick(j, 3, n, 2, 0);
    CHECK(j[0].node == 1 && n[1].alone && j[1].node == 0 && j[2].node == 0);
    n[0].up = false;
    sched_pick(&j[1], 2, n, 2, 0);
    CHECK(j[1].node == -1 && j[2].node == -1);
    CHECK_STR(j[2].reason,
              "0/4 slots free on 1 node, needs 1; on 1 node an attempt is alone, whose "
              "job the kernel killed for memory");
}

/* Checks a need that is read from a stored plan. */
static void test_need(void)
{
    const char *stages = "{\"a\":{\"total_bytes\":1},\"memory\":{\"total_bytes\":1000,"
                         "\"arena_bytes\":900,\"by_tensor\":[{\"bytes\":5}]},\"stages\":["
                         "{\"layers\":2,\"arena_bytes\":900},{\"arena_bytes\":300}],\"x\":[1]}";
    const char *own = "{\"memory\":{\"total_bytes\":1000,\"host_bytes\":40}}";
    struct need n;
    need_read(&n, stages, &(struct need_of){false, 2, 3});
    CHECK(n.rank == 1000 && n.device == 1000 && n.n_stages == 2 && need_of(&n, 2, 2) == 1400);
    need_read(&n, stages, &(struct need_of){false, 1, 3});
    CHECK(n.n_stages == 1 && need_of(&n, 0, 6) == 6000);
    /* the numbers of stages of the plan and of the job differ */
    need_read(&n, stages, &(struct need_of){false, 3, 1});
    CHECK(n.n_stages == 1 && n.rank == 1000);
    need_read(&n, own, &(struct need_of){true, 1, 1});
    CHECK(n.rank == 40 && n.device == 1000);
    /* memory of an emulated device is memory of the host */
    need_read(&n, own, &(struct need_of){false, 1, 1});
    CHECK(n.rank == 1040);
    static const char *const bad[] = {"",
                                      "{}",
                                      "null",
                                      "{\"memory\":7}",
                                      "{\"memory\":{\"total_bytes\":-1}}",
                                      "{\"memory\":{\"total_bytes\":\"x\"}",
                                      "[{}]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        need_read(&n, bad[i], &(struct need_of){false, 2, 1});
        CHECK_MSG(n.rank == 0 && need_of(&n, 0, 64) == 0 && need_fits(&n, 0, 9, 0) == 9, "%s",
                  bad[i]);
    }
}

/* Checks that a job that waits for GPUs does not delay jobs that need slots. Also checks that a
 * job that waits for slots does not delay jobs that need GPUs. */
static void test_two_lines(void)
{
    struct sched_node n = {.up = true, .n_slots = 4, .n_reserved = 3, .n_gpus = 2};
    struct sched_job j[4] = {{.id = 1, .n_ranks = 2, .only = -1},
                             {.id = 2, .n_ranks = 2, .only = -1, .device = SCHED_GPUS},
                             {.id = 3, .n_ranks = 1, .only = -1, .device = SCHED_GPUS},
                             {.id = 4, .n_ranks = 1, .only = -1}};
    for (int i = 0; i < 4; i++) j[i].avoid_node = -1;
    sched_pick(j, 4, &n, 1, 0);
    CHECK(j[1].node == 0 && j[0].node == -1);
    CHECK_STR(j[2].reason_code, "waiting_for_gpus");
    CHECK_STR(j[3].reason, "behind job 1, which is first in line; 1/4 slots free on 1 node");
}

static void test_order(void)
{
    struct sched_node n[1] = {{.up = true, .n_slots = 4}};
    struct sched_job j[] = {{.id = 1, .priority = 1, .n_ranks = 2, .only = -1},
                            {.id = 2, .priority = 9, .n_ranks = 3, .only = -1},
                            {.id = 3, .priority = 1, .n_ranks = 1, .only = -1}};
    sched_pick(j, 3, n, 1, 0);
    CHECK(j[0].id == 2 && j[0].node == 0);
    CHECK(j[1].id == 1 && j[1].node == -1);
    CHECK_STR(j[1].reason_code, "waiting_for_slots");
    CHECK_STR(j[1].reason, "1/4 slots free on 1 node, needs 2");
    /* Job 3 would fit, but must not overtake job 1 for ever. */
    CHECK(j[2].id == 3 && j[2].node == -1);
    CHECK_STR(j[2].reason_code, "behind");
}

static void test_never_fits_does_not_block(void)
{
    struct sched_node n[1] = {{.up = true, .n_slots = 4}};
    struct sched_job j[] = {{.id = 1, .n_ranks = 5, .only = -1},
                            {.id = 2, .n_ranks = 4, .only = -1}};
    sched_pick(j, 2, n, 1, 0);
    CHECK_STR(j[0].reason_code, "too_large");
    CHECK(j[1].node == 0);
}

/* Checks the node of a job's data. If the node has room, the job must run on it. If not, the job
 * must run on a different node, because data can be prepared again. A job with a checkpoint must
 * wait for its node instead. */
/* Checks the limit of a user. Further jobs of the user must wait, whatever their priority, and
 * must not delay a job of a different user. */
static void test_user_limit(void)
{
    struct sched_node n = large_node();
    int32_t ann = 1, bob = 0;
    struct sched_job j[5];
    for (int i = 0; i < 5; i++)
        j[i] = (struct sched_job){.id = i + 1,
                                  .priority = 5 - i,
                                  .n_ranks = 1,
                                  .only = -1,
                                  .avoid_node = -1,
                                  .n_user = i < 3 ? &ann : &bob,
                                  .max_user = 2};
    j[0].prepare = true; /* a job that prepares data holds no slots, so the limit does not apply */
    sched_pick(j, 5, &n, 1, 0);
    CHECK(j[0].node == 0 && j[1].node == 0 && j[3].node == 0 && j[4].node == 0);
    CHECK(j[2].node == -1 && !strcmp(j[2].reason_code, "user_limit"));
    CHECK(strstr(j[2].reason, "has 2 jobs with ranks on nodes") != NULL);
    CHECK(ann == 2 && bob == 2);
}

static void test_pinned(void)
{
    const struct sched_node n[2] = {{.name = "a", .up = true, .n_slots = 4, .n_reserved = 3},
                                    {.name = "b", .up = true, .n_slots = 4}};
    struct sched_node m[2] = {n[0], n[1]};
    struct sched_job j = {.id = 1, .n_ranks = 2, .only = 0};
    sched_pick(&j, 1, m, 2, 0);
    CHECK(j.node == 1 && !j.prepare);
    m[0] = n[0], m[1] = n[1];
    m[0].n_reserved = 2;
    j = (struct sched_job){.id = 1, .n_ranks = 2, .only = 0};
    sched_pick(&j, 1, m, 2, 0);
    CHECK(j.node == 0);
    m[0] = n[0], m[1] = n[1];
    m[1].n_reserved = 3;
    j = (struct sched_job){.id = 1, .n_ranks = 2, .only = 0};
    sched_pick(&j, 1, m, 2, 0);
    CHECK(j.node == -1);
    CHECK_STR(j.reason, "1/4 slots free on 1 node that reach each other, needs 2");
    m[0] = n[0], m[1] = n[1];
    j = (struct sched_job){.id = 1, .n_ranks = 2, .only = 0, .checkpoint = 7};
    sched_pick(&j, 1, m, 2, 0);
    CHECK_STR(j.reason, "1/4 slots free on node a, which holds its checkpoint of step 7, needs 2");
}

/* Checks gangs that fill all nodes in one pass. The data of each gang is on a node that an earlier
 * gang uses. */
static void test_full_house(void)
{
    static struct sched_node n[SCHED_NODES];
    enum { GANGS = SCHED_NODES / 8 };
    static struct sched_job j[GANGS];
    int n_placed = 0;
    for (int i = 0; i < SCHED_NODES; i++)
        n[i] = (struct sched_node){.up = true, .net = 2, .n_slots = 8};
    for (int i = 0; i < GANGS; i++)
        j[i] = (struct sched_job){.id = i + 1, .n_ranks = 64, .ring = 64, .only = i};
    sched_pick(j, GANGS, n, SCHED_NODES, 0);
    for (int i = 0; i < GANGS; i++) n_placed += j[i].node >= 0;
    CHECK_MSG(n_placed == GANGS, "%d of %d gangs are placed in the first pass", n_placed, GANGS);
    for (int i = 0; i < SCHED_NODES; i++) CHECK(n[i].n_reserved == 8);
}

/* Checks job 1, which must run on the first of three nodes because of its checkpoint. Each node
 * has 4 slots, and the first node is full. Later jobs must start before job 1. They may use
 * neither the first node nor the slots that the other ranks of job 1 need. Job 1 must start when
 * the first node is free. */
static void test_held_does_not_block(void)
{
    const struct sched_node start[3] = {
        {.name = "a", .up = true, .net = 2, .n_slots = 4, .n_reserved = 4},
        {.name = "b", .up = true, .net = 2, .n_slots = 4},
        {.name = "c", .up = true, .net = 2, .n_slots = 4}};
    struct sched_node n[3];
    struct sched_job j[5] = {{.id = 1, .n_ranks = 6, .ring = 6, .only = 0, .checkpoint = 9},
                             {.id = 2, .n_ranks = 1, .only = -1},
                             {.id = 3, .n_ranks = 3, .only = -1},
                             {.id = 4, .n_ranks = 2, .only = 0, .checkpoint = 5},
                             {.id = 5, .n_ranks = 2, .only = -1}};
    struct sched_job k[5];
    memcpy(n, start, sizeof n), memcpy(k, j, sizeof k);
    sched_pick(k, 5, n, 3, 0);
    CHECK(k[0].node == -1 && k[3].node == -1); /* both jobs wait for node a */
    CHECK_STR(k[0].reason_code, "waiting_for_slots");
    CHECK(k[1].node > 0 && k[2].node > 0 && k[4].node > 0);
    CHECK(n[0].n_reserved == 4 && n[1].n_reserved + n[2].n_reserved == 6);
    CHECK(n[1].n_kept + n[2].n_kept == 2);
    struct sched_job more = {
        .id = 6, .n_ranks = 1, .only = -1}; /* it may not use a, and no other node has room */
    memcpy(n, start, sizeof n), memcpy(k, j, sizeof k);
    k[3] = more;
    sched_pick(k, 5, n, 3, 0);
    CHECK(k[4].id == 6 && k[4].node == -1);
    memcpy(n, start, sizeof n), memcpy(k, j, sizeof k);
    n[0].n_reserved = 0, n[1].n_reserved = 3, n[2].n_reserved = 3;
    sched_pick(k, 5, n, 3, 0);
    CHECK(k[0].node == 0 && k[0].n_parts == 3);
}

/* Checks a held job whose node has one free slot, which is not enough for this job. The slot must
 * not be given to a later job. */
static void test_held_node_is_closed(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .n_slots = 4, .n_reserved = 3},
                              {.name = "b", .up = true, .n_slots = 4}};
    struct sched_job j[3] = {{.id = 1, .n_ranks = 4, .only = 0, .checkpoint = 9},
                             {.id = 2, .n_ranks = 1, .only = -1},
                             {.id = 3, .n_ranks = 1, .only = -1, .device = SCHED_GPUS}};
    n[0].n_gpus = 1;
    j[2].avoid_node = -1;
    sched_pick(j, 3, n, 2, 0);
    CHECK(j[0].node == -1 && j[1].node == 1);
    CHECK(j[2].node == 0); /* the node's GPUs are a separate line */
}

/* Checks the same for GPUs: a held job whose node has too few free GPUs. A running job also holds
 * the memory of the node. */
static void test_held_for_gpus(void)
{
    struct sched_node n[2] = {
        {.name = "a", .up = true, .n_slots = 4, .n_gpus = 2, .memory_size = 8},
        {.name = "b", .up = true, .n_slots = 4, .n_gpus = 1}};
    const struct need need = {.rank = 4, .n_stages = 1};
    struct sched_job j[3] = {{.id = 1, .n_ranks = 2, .only = 0, .checkpoint = 9},
                             {.id = 2, .n_ranks = 1, .only = -1},
                             {.id = 3, .n_ranks = 1, .only = -1}};
    for (int i = 0; i < 3; i++) {
        j[i].device = SCHED_GPUS, j[i].gpu_size = j[i].gpu_free = 10, j[i].need = &need;
        j[i].avoid_node = -1;
    }
    n[0].gpu[0] = (struct sched_gpu){.memory_size = 16, .state = SCHED_GPU_HELD};
    n[0].gpu[1] = n[1].gpu[0] = (struct sched_gpu){.memory_size = 16, .memory_free = 16};
    n[0].memory_held = 4;
    sched_pick(j, 3, n, 2, 0);
    CHECK(j[0].node == -1 && j[1].node == 1 && j[2].node == -1);
    CHECK(n[0].gpu[1].state == SCHED_GPU_FREE && n[0].kept_for[1] == 1);
}

/* Checks a held job that needs more slots than its node has and than are free elsewhere. It must
 * block all later jobs. */
static void test_held_and_large(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .net = 2, .n_slots = 4, .n_reserved = 1},
                              {.name = "b", .up = true, .net = 2, .n_slots = 4, .n_reserved = 1}};
    struct sched_job j[2] = {{.id = 1, .n_ranks = 8, .ring = 8, .only = 0, .checkpoint = 9},
                             {.id = 2, .n_ranks = 1, .only = -1}};
    sched_pick(j, 2, n, 2, 0);
    CHECK(j[0].node == -1 && j[1].node == -1);
    CHECK_STR(j[1].reason_code, "behind");
}

/* Checks a held job while new small jobs arrive for every node without end. The held job must
 * start when the earlier jobs of its node end. */
static void test_held_is_not_starved(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .net = 2, .n_slots = 2, .n_reserved = 2},
                              {.name = "b", .up = true, .net = 2, .n_slots = 2}};
    for (int turn = 0; turn < 10; turn++) {
        struct sched_job j[6] = {{.id = 1, .n_ranks = 3, .ring = 3, .only = 0, .checkpoint = 9}};
        for (int i = 1; i < 6; i++)
            j[i] = (struct sched_job){.id = i + 1, .n_ranks = 1, .only = -1};
        n[0].kept_for[0] = n[1].kept_for[0] = 0;
        n[0].n_kept = n[1].n_kept = 0;
        sched_pick(j, 6, n, 2, 0);
        CHECK(n[0].n_reserved <= 2 && n[1].n_reserved <= 2);
        if (turn < 5) CHECK(j[0].node == -1 && n[0].n_reserved == 2 && n[1].n_reserved == 1);
        if (turn == 5) {
            CHECK(j[0].node == 0);
            return;
        }
        n[1].n_reserved = 0;                /* in each iteration the small jobs end */
        if (turn == 4) n[0].n_reserved = 0; /* at last, the job that ran on a ends */
    }
}

/* Checks a node on which a job has failed. The job must avoid this node at once, unless no other
 * node is connected. */
static void test_left_out(void)
{
    const struct sched_node up[2] = {{.name = "a", .up = true, .n_slots = 2},
                                     {.name = "b", .up = true, .n_slots = 4}};
    struct sched_node n[2] = {up[0], up[1]};
    struct sched_job j[2] = {{.id = 1, .n_ranks = 2, .only = -1},
                             {.id = 2, .n_ranks = 2, .only = -1}};
    sched_add(&j[0].blamed, 0);
    sched_pick(j, 2, n, 2, 0);
    CHECK(j[0].node == 1 && j[1].node == 0);
    for (int lacks = 0; lacks < 2; lacks++) {
        /* the job's data is on the node that failed it */
        struct sched_job k = {.id = 1, .n_ranks = 2, .only = 0};
        sched_add(lacks ? &k.lacks : &k.blamed, 0);
        n[0] = up[0], n[1] = up[1];
        n[1].n_reserved = 4; /* b is full, which is worth waiting for */
        sched_pick(&k, 1, n, 2, 0);
        CHECK(k.node == -1);
        CHECK_STR(k.reason_code, "waiting_for_slots");
        n[1].up = false;
        k.awaited = true; /* the node that is awaited has the files */
        sched_pick(&k, 1, n, 2, 0);
        CHECK((k.node == -1) == (lacks == 1));
        if (lacks)
            CHECK_STR(k.reason, "no node can take it: 0 nodes up, 1 down, 1 left out after "
                                "failing this job");
        n[0] = up[0];
        k.awaited = false;
        sched_pick(&k, 1, n, 2, 0);
        CHECK(k.node == 0);
    }
}

/* Checks a job whose data is on a node on which the job has failed, if there is no other node. The
 * data must not be prepared on that node again and again. */
static void test_data_left_out(void)
{
    for (int device = SCHED_SLOTS; device <= SCHED_GPUS; device++) {
        struct sched_node n[2] = {large_node(), {.name = "b", .up = true}};
        struct sched_job j = {.id = 1, .n_ranks = 2, .only = -1, .avoid_node = -1};
        j.device = device;
        j.prepare = true;
        j.data = 1;
        sched_add(&j.blamed, 0);
        sched_pick(&j, 1, n, device == SCHED_SLOTS ? 1 : 2, 0);
        CHECK_MSG(j.node == 0 && !j.prepare, "device %d: node %d, prepares %d", device, j.node,
                  j.prepare);
    }
}

static void test_quarantine(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .n_slots = 2, .quarantined = true},
                              {.name = "b", .up = true, .n_slots = 1}};
    struct sched_job j[3] = {{.id = 1, .n_ranks = 2, .only = -1},
                             {.id = 2, .n_ranks = 1, .only = -1, .prepare = true},
                             {.id = 3, .n_ranks = 2, .only = 0, .toy = true}};
    sched_pick(j, 3, n, 2, 0);
    CHECK_STR(j[0].reason,
              "needs 2 slots, the largest node up has 1 (1 node up, 0 down, 1 in quarantine)");
    CHECK(j[1].node == 1 && j[2].node == 0);
    struct sched_job held = {.id = 4, .n_ranks = 1, .only = 0, .checkpoint = 3};
    n[0].n_reserved = 0;
    sched_pick(&held, 1, n, 2, 0);
    CHECK_STR(held.reason,
              "node a, which holds its checkpoint of step 3, is in quarantine; to start "
              "again on another node: seqctl restart 4");
    struct sched_job toy = {.id = 5, .n_ranks = 1, .only = -1, .toy = true};
    sched_pick(&toy, 1, n, 2, 0);
    CHECK(toy.node == -1);
    n[1].up = false;
    j[0].node = 0;
    sched_pick(j, 1, n, 2, 0);
    CHECK_STR(j[0].reason, "no node can take it: 0 nodes up, 1 down, 1 in quarantine");
}

static void check_parts(const struct sched_job *j, int n, const uint8_t (*want)[2])
{
    CHECK_MSG(j->n_parts == n, "%d parts: %s", j->n_parts, j->reason);
    for (int i = 0; i < n && i < j->n_parts; i++)
        CHECK_MSG(j->part[i].node == want[i][0] && j->part[i].n_ranks == want[i][1],
                  "part %d: %d ranks on node %d", i, j->part[i].n_ranks, j->part[i].node);
}

/* Checks two rings of 4. If nodes have 5, 4 and 3 free slots, the first two nodes must get one
 * ring each, although 5 + 3 slots are enough for both rings. If they have 6, 1 and 1 free slots,
 * exactly one ring must be split. */
static void test_rings(void)
{
    struct sched_node n[3] = {{.up = true, .net = 2, .n_slots = 3},
                              {.up = true, .net = 2, .n_slots = 5},
                              {.up = true, .net = 2, .n_slots = 4}};
    struct sched_job j = {.id = 1, .n_ranks = 8, .ring = 4, .only = -1};
    sched_pick(&j, 1, n, 3, 0);
    check_parts(&j, 2, (const uint8_t[][2]){{1, 4}, {2, 4}});
    struct sched_node m[3] = {{.up = true, .net = 2, .n_slots = 1},
                              {.up = true, .net = 2, .n_slots = 6},
                              {.up = true, .net = 2, .n_slots = 1}};
    sched_pick(&j, 1, m, 3, 0);
    check_parts(&j, 3, (const uint8_t[][2]){{1, 6}, {0, 1}, {2, 1}});
    CHECK(m[0].n_reserved == 1 && m[1].n_reserved == 6 && m[2].n_reserved == 1);
}

/* Checks two nodes that cannot connect to each other. A job must not be placed on both. The reason
 * must count only nodes that could help. */
static void test_reach(void)
{
    struct sched_node n[3] = {{.name = "a", .up = true, .net = 1, .n_slots = 4},
                              {.name = "b", .up = true, .net = 2, .n_slots = 3, .n_reserved = 1},
                              {.name = "c", .up = true, .net = 2, .n_slots = 3}};
    struct sched_job j = {.id = 1, .n_ranks = 6, .only = -1};
    sched_pick(&j, 1, n, 3, 0);
    CHECK_STR(j.reason_code, "waiting_for_slots");
    CHECK_STR(j.reason, "5/6 slots free on 2 nodes that reach each other, needs 6");
    j.n_ranks = 7;
    sched_pick(&j, 1, n, 3, 0);
    CHECK_STR(j.reason_code, "too_large");
    CHECK_STR(j.reason,
              "needs 7 slots, the nodes up that reach each other have 6 (3 nodes up, 0 down)");
    j.n_ranks = 5;
    j.one_node = true;
    sched_pick(&j, 1, n, 3, 0);
    CHECK_STR(j.reason_code, "too_large");
    CHECK_STR(j.reason,
              "needs 5 slots on one node (parallel.transport is shm), the largest node up "
              "has 4 (3 nodes up, 0 down)");
    j.one_node = false;
    sched_pick(&j, 1, n, 3, 0);
    check_parts(&j, 2, (const uint8_t[][2]){{2, 3}, {1, 2}});
}

/* Checks that a job waits until rank 0 can be placed on the node with the checkpoints, and that
 * the reason names this node. The other ranks may be placed anywhere. */
static void test_checkpoint_node(void)
{
    struct sched_node n[2] = {{.name = "a", .net = 1, .n_slots = 2},
                              {.name = "b", .up = true, .net = 1, .n_slots = 8}};
    struct sched_job j = {.id = 1, .n_ranks = 4, .only = 0, .checkpoint = 12};
    sched_pick(&j, 1, n, 2, 0);
    CHECK_STR(j.reason_code, "no_node");
    CHECK_STR(j.reason, "node a, which holds its checkpoint of step 12, is down; to start again "
                        "on another node: seqctl restart 1");
    n[0].up = true;
    n[0].n_reserved = 2;
    sched_pick(&j, 1, n, 2, 0);
    CHECK_STR(j.reason,
              "0/2 slots free on node a, which holds its checkpoint of step 12: rank 0 needs one "
              "there");
    n[0].n_reserved = 1;
    sched_pick(&j, 1, n, 2, 0);
    check_parts(&j, 2, (const uint8_t[][2]){{0, 1}, {1, 3}});
}

int main(void)
{
    RUN(test_random);
    RUN(test_spread);
    RUN(test_avoid);
    RUN(test_old);
    RUN(test_memory_beside);
    RUN(test_memory_of_slots);
    RUN(test_stages);
    RUN(test_alone);
    RUN(test_need);
    RUN(test_two_lines);
    RUN(test_order);
    RUN(test_never_fits_does_not_block);
    RUN(test_user_limit);
    RUN(test_pinned);
    RUN(test_full_house);
    RUN(test_held_does_not_block);
    RUN(test_held_node_is_closed);
    RUN(test_held_for_gpus);
    RUN(test_held_and_large);
    RUN(test_held_is_not_starved);
    RUN(test_left_out);
    RUN(test_data_left_out);
    RUN(test_quarantine);
    RUN(test_rings);
    RUN(test_reach);
    RUN(test_checkpoint_node);
    return test_done("seqd_sched");
}
