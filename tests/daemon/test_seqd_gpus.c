/* test_seqd_gpus: tests the GPUs of simulated nodes (tests/lib/sim.h). Checks the choice of GPUs
 * for a job, that the job keeps its GPUs over a restart of seqd, the effects of a fault, and
 * refused requests. */
#include "api/core/job.h"
#include "daemon/sched/ring.h"
#include "daemon/state/cluster.h"
#include "daemon/state/gpus.h"
#include "tests/lib/mutant.h"
#include "tests/lib/sim.h"
#include "worker/family/shape.h"

#define GIB ((int64_t)1 << 30)

/* Gives a node `count` GPUs, named "A0", "A1" and so on. All of them are healthy, and any two are
 * far from each other. */
static void give_gpus(struct sim *n, int count)
{
    n->n_gpus = count;
    for (int i = 0; i < count; i++) {
        struct gpu *g = &n->gpu[i];
        *g = (struct gpu){
            .name = "H100", .memory_size = 80 * GIB, .memory_free = 80 * GIB, .major = 9};
        snprintf(g->uuid, sizeof g->uuid, "%c%d", n->name[0] - 'a' + 'A', i);
        for (int k = 0; k < count; k++) g->far[k] = i == k ? 0 : GPU_FAR_SYSTEM;
    }
}

/* Submits a job on GPUs, which is prepared on the node where it then runs. */
static int64_t submit_gpus(struct sim *n, int ranks)
{
    const int64_t id = submit_on("cuda", ranks, 0,
                                 "{\"memory\":{\"total_bytes\":1000,\"host_bytes\":104857600}}");
    struct gang *p = gang_of(n, id, 1);
    CHECK(p && p->task == TASK_PREPARE && p->n_uuids == 0);
    if (p) play_prepare(p), send_spool(n, p);
    settle();
    return id;
}

static void play_to_running(struct sim *n, struct gang *g)
{
    play_blobs(g), send_spool(n, g);
    play_ready(g), send_spool(n, g);
    settle();
}

static bool reason_is(int64_t id, const char *code, const char *text)
{
    const struct job *j = job(id);
    const bool same = j && !strcmp(j->reason_code, code) && !strcmp(j->reason, text);
    if (j && !same) printf("  %s: %s\n", j->reason_code, j->reason);
    return same;
}

/* ---- the ring -------------------------------------------------------------------------------- */

static void test_ring(void)
{
    /* There are two boards. The first has the GPUs 0, 2, 4 and 6, and the second has the GPUs 1,
     * 3, 5 and 7. GPUs of one board are near each other. GPUs of different boards are far from
     * each other. */
    struct sched_gpu g[8] = {0};
    bool may[8];
    uint8_t out[8];
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++) g[i].far[k] = i % 2 == k % 2 ? 0 : GPU_FAR_SYSTEM;
    memset(may, 1, sizeof may);
    CHECK(ring_pick(g, may, 8, 4, out) && !memcmp(out, (uint8_t[]){0, 2, 4, 6}, 4));
    may[2] = false; /* now only the second board has four GPUs */
    CHECK(ring_pick(g, may, 8, 4, out) && !memcmp(out, (uint8_t[]){1, 3, 5, 7}, 4));
    memset(may, 1, sizeof may);
    /* the ring uses both boards and crosses between them twice */
    CHECK(ring_pick(g, may, 8, 8, out));
    CHECK(!memcmp(out, (uint8_t[]){0, 2, 4, 6, 1, 3, 5, 7}, 8));
    for (int i = 0; i < 8; i++) may[i] = i < 3;
    CHECK(!ring_pick(g, may, 8, 4, out) && ring_pick(g, may, 8, 3, out));
    CHECK(!ring_pick(g, may, 3, 4, out));
    /* Bridges connect the GPUs in a chain 0 - 2 - 1 - 3. The ring must have the order of the
     * chain, and not the order of the indices. */
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) g[i].far[k] = GPU_FAR_SYSTEM;
    g[0].far[2] = g[2].far[0] = g[2].far[1] = g[1].far[2] = g[1].far[3] = g[3].far[1] = 0;
    memset(may, 1, sizeof may);
    CHECK(ring_pick(g, may, 4, 4, out) && !memcmp(out, (uint8_t[]){0, 2, 1, 3}, 4));
}

/* Checks two jobs of 3 GPUs. A node with 8 GPUs has memory for only 5 ranks, so it runs one of the
 * jobs at a time. */
static void test_memory_beside(void)
{
    begin();
    give_gpus(A, 8);
    A->memory_size = (600 << 20) - 1;
    hello(A);
    const int64_t one = submit_gpus(A, 3), two = submit_gpus(A, 3);
    struct gang *g = gang_of(A, one, 2);
    CHECK(g && !gang_of(A, two, 2));
    CHECK(reason_is(two, "waiting_for_gpus",
                    "2/5 GPUs free on 1 node, needs 3; of 8 GPUs 3 lack 0.1 "
                    "GiB of the node's memory"));
    play_to_running(A, g);
    play_run(g), send_spool(A, g), settle();
    CHECK(is(one, "succeeded") && gang_of(A, two, 2));
    finish();
}

/* ---- giving ---------------------------------------------------------------------------------- */

static void test_given(void)
{
    begin();
    give_gpus(A, 4);
    A->gpu[1].far[3] = A->gpu[3].far[1] = 0; /* GPUs 1 and 3 are near each other */
    hello(A);
    const int64_t id = submit_gpus(A, 2);
    struct gang *g = gang_of(A, id, 2);
    CHECK(g && g->n_uuids == 2);
    CHECK_STR(g->uuid[0], "A1");
    CHECK_STR(g->uuid[1], "A3");
    CHECK(strstr(events(id), "\"gpus\":[\"A1\",\"A3\"]"));
    CHECK(strstr(doc(id), "\"ranks\":2,\"gpus\":[\"A1\",\"A3\"]}]"));
    CHECK(gpus_holder(&control_cluster(w.control)->jobs, "a", "A1") == job(id) &&
          !gpus_holder(&control_cluster(w.control)->jobs, "a", "A0"));
    CHECK(!gpus_holder(&control_cluster(w.control)->jobs, "b", "A1"));
    /* Jobs on GPUs use no slots. */
    CHECK(control_reserved(w.control, "a") == 0);
    CHECK(submit(2, 0) == id + 1);
    play_prepare(gang_of(A, id + 1, 1)), send_spool(A, gang_of(A, id + 1, 1)), settle();
    CHECK(gang_of(A, id + 1, 2) && gang_of(A, id + 1, 2)->n_uuids == 0);
    /* Two GPUs are free. The job that waits for three GPUs does not block a job that needs
     * fewer. */
    const int64_t three = submit_gpus(A, 3);
    CHECK(reason_is(three, "waiting_for_gpus", "2/4 GPUs free on 1 node, needs 3"));
    const int64_t behind = submit_gpus(A, 1);
    CHECK(reason_is(behind, "behind",
                    "behind job 3, which is first in line; 2/4 GPUs free on 1 node"));
    play_to_running(A, g);
    play_run(g), send_spool(A, g), settle();
    CHECK(is(id, "succeeded"));
    struct gang *h = gang_of(A, three, 2), *k = gang_of(A, behind, 2);
    CHECK(h && h->n_uuids == 3 && k && k->n_uuids == 1);
    finish();
}

/* Checks that a GPU is busy while the node reports a process on it. The report is up to two
 * seconds old. The GPU must be free when the report has no process. */
static void test_busy(void)
{
    begin();
    give_gpus(A, 2);
    A->gpu[0].n_processes = 1;
    hello(A);
    const int64_t id = submit_gpus(A, 2);
    CHECK(reason_is(id, "waiting_for_gpus",
                    "1/2 GPUs free on 1 node, needs 2; of 2 GPUs 1 is used by others"));
    A->gpu[0].n_processes = 0;
    heartbeat(A), settle();
    struct gang *g = gang_of(A, id, 2);
    CHECK(g && g->n_uuids == 2);
    /* The processes of the job itself do not make its GPUs busy. */
    A->gpu[0].n_processes = A->gpu[1].n_processes = 1;
    heartbeat(A);
    play_to_running(A, g);
    play_run(g), send_spool(A, g), settle();
    CHECK(is(id, "succeeded"));
    const int64_t next = submit_gpus(A, 2); /* the processes are still there */
    CHECK(!gang_of(A, next, 2));
    A->gpu[0].n_processes = A->gpu[1].n_processes = 0;
    heartbeat(A), settle();
    CHECK(gang_of(A, next, 2) != NULL);
    finish();
}

static void test_memory(void)
{
    char plan[128];
    begin();
    give_gpus(A, 2);
    A->gpu[0].memory_size = 24 * GIB;
    hello(A);
    snprintf(plan, sizeof plan, "{\"a\":{\"total_bytes\":1},\"memory\":{\"total_bytes\":%lld}}",
             (long long)(24 * GIB - GPU_RESERVE + 1)); /* one byte more than the small GPU has */
    const int64_t two = submit_on("cuda", 2, 0, plan);
    CHECK(reason_is(two, "too_large",
                    "needs 2 GPUs, the largest node up has 1 (1 node up, 0 down); of 2 GPUs 1 has "
                    "less than 24.0 GiB"));
    const int64_t one = submit_on("cuda", 1, 0, plan);
    struct gang *p = gang_of(A, one, 1);
    play_prepare(p), send_spool(A, p), settle();
    CHECK(gang_of(A, one, 2) && !strcmp(gang_of(A, one, 2)->uuid[0], "A1"));
    finish();
}

/* Checks that memory that is in use counts as not available, even if no process computes on the
 * GPU. */
static void test_memory_free(void)
{
    begin();
    give_gpus(A, 1);
    A->gpu[0].memory_free = 999;
    hello(A);
    const int64_t id = submit_gpus(A, 1); /* its plan needs 1000 bytes */
    CHECK(!gang_of(A, id, 2) && strstr(job(id)->reason, "1 is used by others"));
    A->gpu[0].memory_free++;
    heartbeat(A);
    pass(1001);
    CHECK(gang_of(A, id, 2) != NULL);
    finish();
}

/* Checks that data is prepared on the node that has the GPUs. If the node loses these GPUs, the
 * data must be prepared again on a node with GPUs. */
static void test_where_prepared(void)
{
    begin();
    give_gpus(B, 2);
    hello(A);
    hello(B);
    const int64_t id = submit_on("cuda", 2, 0, "{}");
    CHECK(!gang_of(A, id, 1) && gang_of(B, id, 1));
    B->gpu[0].health = B->gpu[1].health = GPU_ECC; /* meanwhile */
    heartbeat(B);
    give_gpus(C, 2);
    hello(C);
    play_prepare(gang_of(B, id, 1)), send_spool(B, gang_of(B, id, 1)), settle();
    struct gang *again = gang_of(C, id, 2);
    CHECK(again && again->task == TASK_PREPARE);
    play_prepare(again), send_spool(C, again), settle();
    CHECK(gang_of(C, id, 3) && gang_of(C, id, 3)->n_uuids == 2);
    finish();
}

static void test_over_nodes(void)
{
    begin();
    give_gpus(A, 2);
    give_gpus(B, 3);
    hello(A);
    hello(B);
    const int64_t id = submit_on("cuda", 4, 0, "{}");
    struct sim *first = gang_of(A, id, 1) ? A : B;
    play_prepare(gang_of(first, id, 1)), send_spool(first, gang_of(first, id, 1)), settle();
    struct gang *a = gang_of(A, id, 2), *b = gang_of(B, id, 2);
    CHECK(a && b && a->n_uuids == a->n_local && b->n_uuids == b->n_local);
    CHECK(a && b && a->n_local + b->n_local == 4 && a->uuid[0][0] == 'A' && b->uuid[0][0] == 'B');
    CHECK(gpus_holder(&control_cluster(w.control)->jobs, "b", b->uuid[0]) == job(id));
    finish();
}

static void test_emulated(void)
{
    begin();
    hello(A);
    B->emulated = true;
    hello(B);
    const int64_t id = submit_on("emulated", 2, 0, "{}");
    CHECK(gang_of(B, id, 1) && !gang_of(A, id, 1));
    play_prepare(gang_of(B, id, 1)), send_spool(B, gang_of(B, id, 1)), settle();
    CHECK(gang_of(B, id, 2) && gang_of(B, id, 2)->n_uuids == 0);
    CHECK(control_reserved(w.control, "b") == 2);
    finish();
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Starts a job on the GPUs A0 and A1 of a node with 4 GPUs. Returns when it runs. */
static struct gang *to_running(int64_t *id)
{
    begin();
    give_gpus(A, 4);
    hello(A);
    *id = submit_gpus(A, 2);
    struct gang *g = gang_of(A, *id, 2);
    CHECK(g && !strcmp(g->uuid[0], "A0") && !strcmp(g->uuid[1], "A1"));
    play_to_running(A, g);
    CHECK(is(*id, "running"));
    return g;
}

static void again(struct sim *n, struct gang *g)
{
    send_spool(n, g); /* the gang stopped as it was told to */
    settle();
    pass(1001);
}

static void test_unfit(void)
{
    static const struct {
        int health, xid;
        int64_t ecc;
        const char *says;
    } all[] = {{GPU_XID, 79, 0, "GPU A1 of rank 1 on node a: the driver reported Xid 79"},
               {GPU_ECC, 0, 2, "2 uncorrectable memory errors"},
               {GPU_LOST, 0, 0, "it is gone"},
               {GPU_MIG, 0, 0, "MIG"}};
    for (int i = 0; i < 4; i++) {
        int64_t id;
        struct gang *g = to_running(&id);
        A->gpu[1].health = all[i].health;
        A->gpu[1].xid = all[i].xid;
        A->gpu[1].ecc_errors = all[i].ecc;
        heartbeat(A), settle();
        CHECK(g->stopped);
        again(A, g);
        CHECK_MSG(strstr(events(id), all[i].says), "%s", events(id));
        CHECK(strstr(events(id), "\"class\":\"infrastructure\",\"rank\":1"));
        CHECK(job(id)->restarts == 0 && job(id)->n_failures == 1);
        struct gang *h = gang_of(A, id, 3);
        CHECK(h && strcmp(h->uuid[0], "A1") && strcmp(h->uuid[1], "A1"));
        finish();
    }
}

/* Checks a driver that does not answer. Its GPUs must get no new rank, but the ranks that run on
 * them must not be stopped. */
static void test_silent(void)
{
    int64_t id;
    struct gang *g = to_running(&id);
    for (int i = 0; i < 4; i++) A->gpu[i].health = GPU_SILENT;
    heartbeat(A), settle();
    CHECK(!g->stopped && is(id, "running"));
    const int64_t next = submit_on("cuda", 1, 0, "{}");
    CHECK(reason_is(next, "too_large",
                    "needs 1 GPU, the largest node up has 0 (1 node up, 0 down); of 4 GPUs 4 are "
                    "unfit"));
    finish();
}

/* Checks a GPU that disappears while seqd is down. */
static void test_gone_at_hello(void)
{
    int64_t id;
    struct gang *g = to_running(&id);
    close_seqd();
    A->gpu[0] = A->gpu[3], A->n_gpus = 3;
    open_seqd();
    hello(A), settle();
    CHECK(g->stopped);
    again(A, g);
    CHECK(strstr(events(id), "GPU A0 of rank 0 on node a: it is gone"));
    CHECK(gang_of(A, id, 3) && gang_of(A, id, 3)->n_uuids == 2);
    finish();
}

/* Checks a rank that reports a device error itself. The job must be tried on a second GPU. If the
 * second GPU fails, too, the failure must count as the job's failure. */
static void test_device_error(void)
{
    int64_t id;
    struct gang *g = to_running(&id);
    rec_fail(g, 0, ERR_DEVICE, "attn_fwd: an illegal address");
    rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    again(A, g);
    CHECK(job(id)->restarts == 0);
    CHECK_STR(job(id)->avoid_gpu, "A0");
    g = gang_of(A, id, 3);
    CHECK(g && !strcmp(g->uuid[0], "A1") && !strcmp(g->uuid[1], "A2"));
    close_seqd(); /* after the restart, seqd reads from the log of events which GPU to avoid */
    open_seqd();
    CHECK_STR(job(id)->avoid_gpu, "A0");
    CHECK_STR(job(id)->avoid_node, "a");
    hello(A);
    play_to_running(A, g);
    rec_fail(g, 1, ERR_DEVICE, "attn_fwd: an illegal address");
    rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    again(A, g);
    CHECK(is(id, "failed")); /* limits.restarts is 0 */
    CHECK(strstr(doc(id), "\"class\":\"user\""));
    finish();
}

/* Checks that the failed GPU is used again if there is no other GPU. */
static void test_nothing_else(void)
{
    begin();
    give_gpus(A, 2);
    hello(A);
    const int64_t id = submit_gpus(A, 2);
    struct gang *g = gang_of(A, id, 2);
    play_to_running(A, g);
    rec_fail(g, 0, ERR_DEVICE, "a launch failed");
    rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    again(A, g);
    CHECK(gang_of(A, id, 3) && gang_of(A, id, 3)->n_uuids == 2);
    finish();
}

/* ---- restarts and lost nodes ----------------------------------------------------------------- */

static void test_restart(void)
{
    int64_t id;
    struct gang *g = to_running(&id);
    close_seqd();
    open_seqd();
    CHECK(gpus_holder(&control_cluster(w.control)->jobs, "a", "A0") == job(id));
    const int64_t next = submit_on("cuda", 3, 0, "{}");
    hello(A), settle();
    CHECK(!g->stopped && is(id, "running"));
    play_prepare(gang_of(A, next, 1)), send_spool(A, gang_of(A, next, 1)), settle();
    CHECK(reason_is(next, "waiting_for_gpus", "2/4 GPUs free on 1 node, needs 3"));
    CHECK(strstr(doc(id), "\"gpus\":[\"A0\",\"A1\"]"));
    play_run(g), send_spool(A, g), settle();
    CHECK(is(id, "succeeded") && gang_of(A, next, 2) != NULL);
    finish();
}

/* Checks a seqd that ends after it has committed an ASSIGN. The node must get the ASSIGN again,
 * with the GPUs that it had. */
static void test_lost_assign(void)
{
    begin();
    give_gpus(A, 4);
    hello(A);
    const int64_t id = submit_gpus(A, 2);
    struct gang *g = gang_of(A, id, 2);
    CHECK(g != NULL);
    A->n_gangs--; /* the ASSIGN never arrived */
    close_seqd();
    open_seqd();
    hello(A), settle();
    g = gang_of(A, id, 2);
    CHECK(g && g->n_uuids == 2 && !strcmp(g->uuid[0], "A0") && !strcmp(g->uuid[1], "A1"));
    finish();
}

/* Checks a node that was given up, and whose job now runs on a different node. When the node
 * connects again, its old gang still uses its GPUs. */
static void test_node_lost(void)
{
    int64_t id;
    struct gang *g = to_running(&id);
    give_gpus(B, 2);
    hello(B);
    goodbye(A);
    pass(1000);
    pass(10001);
    CHECK(strstr(events(id), "has not been seen"));
    struct gang *p = gang_of(B, id, 3);
    CHECK(p && p->task == TASK_PREPARE);
    play_prepare(p), send_spool(B, p), settle();
    CHECK(gang_of(B, id, 4) && gang_of(B, id, 4)->n_uuids == 2);
    w.obeys = false;
    hello(A), settle();
    const int64_t next = submit_on("cuda", 4, 0, "{}");
    p = gang_of(A, next, 1);
    CHECK(p != NULL);
    if (p) play_prepare(p), send_spool(A, p), settle();
    CHECK(!gang_of(A, next, 2)); /* all GPUs of A are healthy, and none is free */
    w.obeys = true;
    rec_exit(g, RANK_GANG, GANG_STOPPED, 0);
    send_spool(A, g), settle();
    CHECK(gang_of(A, next, 2) && gang_of(A, next, 2)->n_uuids == 4);
    finish();
}

/* ---- refused --------------------------------------------------------------------------------- */

static const char *refused(const struct nodes *t, const char *device, int ranks)
{
    static struct job_spec s;
    static struct err e;
    e = (struct err){0};
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    CHECK(!spec_intern(&s, device, strlen(device), &s.resources.device));
    s.resources.ranks = ranks;
    return gpus_refuse(t, &s, &e) ? e.text : "";
}

static void test_refused(void)
{
    static struct nodes t;
    struct gpus_offer o;
    CHECK_STR(refused(&t, "cuda", 1), ""); /* no node is known */
    node_expect(&t, "n1", 0)->up = true;
    node_expect(&t, "n2", 0);
    CHECK_STR(refused(&t, "cpu", 1), "");
    CHECK_STR(
        refused(&t, "cuda", 1),
        "resources.device \"cuda\": no node has a GPU (2 known: n1, n2): use \"cpu\", or see why "
        "in the log of seqw there");
    CHECK(strstr(refused(&t, "emulated", 1), "no node takes it"));
    t.node[0].emulated = true;
    CHECK_STR(refused(&t, "emulated", 1), "");
    t.node[1].n_gpus = 3; /* the node is disconnected, but may connect again */
    for (int i = 0; i < 3; i++)
        t.node[1].gpu[i] = (struct gpu){.memory_size = (20 + 10 * i) * GIB, .name = "X"};
    CHECK_STR(refused(&t, "cuda", 3), "");
    CHECK_STR(refused(&t, "cuda", 4),
              "resources.ranks 4: a rank takes a GPU, and all nodes together have 3 (n2: 3)");
    /* The plan may use only memory that every rank has. This is the memory of the smallest of the
     * n largest GPUs. */
    gpus_offer(&t, 2, &o);
    CHECK(o.memory_size == 30 * GIB && gpus_limit(&o) == 29 * GIB && o.n_gpus == 3);
    CHECK_STR(o.node, "n2");
    gpus_offer(&t, 3, &o);
    CHECK(o.memory_size == 20 * GIB);
    gpus_offer(&t, 4, &o);
    CHECK(o.memory_size == 0 && gpus_limit(&o) == 0 && o.per_node == 3);
    t.node[0].n_gpus = 2;
    gpus_offer(&t, 4, &o);
    CHECK(o.per_node == 2);
    gpus_offer(&(struct nodes){.n = 0}, 1, &o);
    CHECK(o.per_node == 0);
    nodes_fini(&t);
}

/* ---- everything at once ---------------------------------------------------------------------- */

static unsigned seed = 5;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static int n_faults, n_given, n_played;

static void random_health(struct sim *n)
{
    static const int some[] = {GPU_OK, GPU_OK, GPU_OK, GPU_XID, GPU_ECC, GPU_LOST};
    struct gpu *g = &n->gpu[below(n->n_gpus)];
    const int before = g->health;
    g->health = some[below(6)];
    n_faults += before == GPU_OK && g->health != GPU_OK;
    if (n->up) heartbeat(n);
}

static void random_progress(struct sim *n)
{
    struct gang *g = n->n_gangs ? &n->gang[n->n_gangs - 1 - below(n->n_gangs > 3 ? 3 : n->n_gangs)]
                                : NULL;
    if (!g || g->over || !n->up || g->n_records > SPOOL - 12) return;
    if (g->task == TASK_PREPARE)
        play_prepare(g);
    else if (!g->n_records)
        play_blobs(g), n_given += g->n_uuids;
    else if (g->blobs && g->n_records == g->n_local)
        play_ready(g);
    else if (below(6) == 0)
        rec_fail(g, g->first, ERR_DEVICE, "something"), rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    else if (g->n_records >= 2 * g->n_local && below(3) == 0)
        play_run(g), n_played++;
    send_spool(n, g);
}

static void random_act(int64_t *last_job)
{
    struct sim *n = &w.node[below(NODES)];
    const int what = below(40);
    if (what == 0 && *last_job < 12)
        *last_job = below(3) ? submit_on("cuda", 1 + below(5), below(3), "{}") : submit(1, 0);
    if (what == 1 && *last_job)
        order_cancel(control_commits(w.control), 1 + below((int)*last_job), "u", on_done, NULL);
    if (what == 2 && n->up) goodbye(n);
    if (what >= 3 && what < 6 && !n->up) hello(n), send_all(n);
    if (what == 6) w.now += below(6000);
    if (what == 7) w.obeys = !w.obeys;
    if (what == 8 && below(3) == 0) {
        close_seqd();
        open_seqd();
        for (int i = 0; i < NODES; i++)
            if (w.node[i].up) hello(&w.node[i]), send_all(&w.node[i]);
    }
    if (what == 9) random_health(n);
    if (what > 9) random_progress(n);
    if (what % 4 == 0) send_all(n);
}

/* Checks random events. No GPU may be given to two gangs. No unfit GPU may be given to a gang.
 * check_gpus tests this at every ASSIGN. When the faults end, every job must end and every GPU
 * must become free. */
static void test_random(void)
{
    const int rounds = small_tests() ? 10 : 60;
    if (getenv("SEQD_TEST_SEED")) seed = (unsigned)atoi(getenv("SEQD_TEST_SEED"));
    for (int round = 0; round < rounds && !test_failures_now; round++) {
        int64_t last_job = 0;
        bool room = true;
        begin();
        for (int i = 0; i < NODES; i++) give_gpus(&w.node[i], 1 + i), hello(&w.node[i]);
        for (int i = 0; i < 400 && room && !test_failures_now; i++) {
            random_act(&last_job);
            loop_turn(w.loop, 0);
            if (i % 5 == 0) settle();
            for (int k = 0; k < NODES; k++) room = room && w.node[k].n_gangs < GANGS / 2;
        }
        w.obeys = true;
        for (int64_t id = 1; id <= last_job; id++)
            order_cancel(control_commits(w.control), id, "u", on_done, NULL);
        for (int i = 0; i < NODES; i++)
            if (!w.node[i].up) hello(&w.node[i]);
        for (int i = 0; i < 8; i++) {
            pass(5001);
            for (int k = 0; k < NODES; k++) heartbeat(&w.node[k]), send_all(&w.node[k]);
        }
        pass(31000);
        for (int k = 0; k < NODES; k++) send_all(&w.node[k]);
        settle();
        CHECK_MSG(control_n_live(w.control) == 0, "round %d: %d jobs never end", round,
                  control_n_live(w.control));
        for (int i = 0; i < NODES; i++)
            for (int k = 0; k < w.node[i].n_gpus; k++)
                CHECK(!gpus_holder(&control_cluster(w.control)->jobs, w.node[i].name,
                                   w.node[i].gpu[k].uuid));
        finish();
    }
    CHECK_MSG(n_faults > rounds && n_given > 2 * rounds && n_played > rounds / 2,
              "%d faults, %d given, %d played", n_faults, n_given, n_played);
}

/* Checks attempts that seqd counts as ended while their ranks still run. Until a rank has ended,
 * its GPU, or its slot if it has no GPU, must not count as free. The agent reports which ranks
 * have a GPU. An agent of the previous version does not report this, so seqd looks it up in the
 * job. */
static int slots_of_the_stale(void)
{
    begin();
    give_gpus(A, 2);
    hello(A);
    const int64_t id = submit_gpus(A, 1);
    goodbye(A);
    const struct wire_attempt list[] = {{77, 1, 2, 2}, {78, 1, 1, 0}, {id, 9, 4, 0}};
    struct msg m = {
        .type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 8, .n_attempts = 3, .attempts = list};
    memcpy(m.instance, A->instance, sizeof m.instance);
    snprintf(m.node, sizeof m.node, "%s", A->name);
    m.gpus = A->gpu, m.n_gpus = A->n_gpus;
    control_link_calls.up(w.control, A->name, &m);
    const int n_stale = node_find((struct nodes *)&control_cluster(w.control)->nodes, "a")->n_stale;
    const int slots = (int)control_reserved(w.control, "a");
    finish();
    return n_stale == 3 ? slots : -n_stale;
}

static void test_stale(void)
{
    const int slots = slots_of_the_stale();
    CHECK_MSG(slots == 1, "%d slots", slots);
}

#ifdef SEQD_MUTANTS
/* Checks the injected fault, which the simulator's schedules find too seldom. */
static void test_mutant(void)
{
    mutant_choose(MUTANT_STALE_FREE);
    mutant_report(MUTANT_STALE_FREE, slots_of_the_stale() != 1, "slots of a node that came back");
    mutant_choose(MUTANT_NONE);
    verify_blind(MUTANT_STALE_FREE);
}
#endif

int main(void)
{
    seqd_test_init();
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_ring);
    RUN(test_memory_beside);
    RUN(test_given);
    RUN(test_busy);
    RUN(test_memory);
    RUN(test_memory_free);
    RUN(test_where_prepared);
    RUN(test_over_nodes);
    RUN(test_emulated);
    RUN(test_unfit);
    RUN(test_silent);
    RUN(test_gone_at_hello);
    RUN(test_device_error);
    RUN(test_nothing_else);
    RUN(test_restart);
    RUN(test_lost_assign);
    RUN(test_node_lost);
    RUN(test_refused);
    RUN(test_stale);
    RUN(test_random);
    return test_done("seqd_gpus");
}
