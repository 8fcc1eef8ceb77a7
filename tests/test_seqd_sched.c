/* The scheduler on random clusters: never a part of a gang, never more than there is, and a reason
 * that, when what it names is mended, starts the job. */
#include <stdlib.h>
#include "daemon/sched.h"
#include "tests/test.h"

#define MAX_NODES 6
#define MAX_JOBS  12

static unsigned seed = 7;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static int make_nodes(struct sched_node *n)
{
    int count = below(MAX_NODES + 1);
    for (int i = 0; i < count; i++) {
        n[i] = (struct sched_node){.up = below(4) != 0, .n_slots = below(9)};
        n[i].n_reserved = n[i].n_slots ? below(n[i].n_slots + 1) : 0;
        n[i].n_preparing = below(SCHED_MAX_PREPARE + 1);
    }
    return count;
}

static int make_jobs(struct sched_job *j)
{
    int count = below(MAX_JOBS + 1);
    for (int i = 0; i < count; i++)
        j[i] = (struct sched_job){.id = i + 1,
                                  .priority = below(3),
                                  .n_ranks = 1 + below(10),
                                  .prepare = below(4) == 0,
                                  .only = -1,
                                  .not_before_ms = below(5) ? 0 : 2000};
    return count;
}

static struct sched_job *find(struct sched_job *j, int n, int64_t id)
{
    for (int i = 0; i < n; i++)
        if (j[i].id == id) return &j[i];
    return NULL;
}

static void check_sums(const struct sched_job *j, int nj, const struct sched_node *before,
                       const struct sched_node *after, int nn)
{
    for (int k = 0; k < nn; k++) {
        int32_t placed = 0, preparing = 0;
        for (int i = 0; i < nj; i++) {
            if (j[i].node != k) continue;
            CHECK(before[k].up);
            placed += j[i].prepare ? 0 : j[i].n_ranks;
            preparing += j[i].prepare;
        }
        CHECK(after[k].n_reserved == before[k].n_reserved + placed);
        CHECK(placed == 0 || after[k].n_reserved <= after[k].n_slots);
        CHECK(after[k].n_preparing == before[k].n_preparing + preparing);
        CHECK(preparing == 0 || after[k].n_preparing <= SCHED_MAX_PREPARE);
    }
}

/* Mends what the reason names and asks again. */
static void check_reason(const struct sched_job *all, int nj, const struct sched_job *j,
                         const struct sched_node *nodes, int nn)
{
    struct sched_job jobs[MAX_JOBS];
    struct sched_node n[MAX_NODES + 3];
    int64_t now = 1000;
    memcpy(jobs, all, sizeof jobs);
    memcpy(n, nodes, sizeof n);
    CHECK(*j->reason_code && *j->reason);
    if (!strcmp(j->reason_code, "backoff")) {
        now = j->not_before_ms;
    } else if (!strcmp(j->reason_code, "behind")) {
        /* The job in front goes away, and so on until none is in front. */
        long long first = 0;
        CHECK(sscanf(j->reason, "behind job %lld", &first) == 1);
        int m = 0;
        for (int i = 0; i < nj; i++)
            if (all[i].id != first) jobs[m++] = all[i];
        CHECK(m == nj - 1);
        sched_pick(jobs, m, n, nn, now);
        const struct sched_job *again = find(jobs, m, j->id);
        if (again->node < 0 && strcmp(again->reason_code, "behind"))
            CHECK(!strcmp(again->reason_code, "waiting_for_slots"));
        return;
    } else {
        /* no_node, too_large, waiting_for_slots, waiting_to_prepare: large idle nodes join, enough
         * of them for every job of the queue to prepare at once. */
        for (int i = 0; i < MAX_JOBS / SCHED_MAX_PREPARE; i++)
            n[nn++] = (struct sched_node){.up = true, .n_slots = 1000};
    }
    sched_pick(jobs, nj, n, nn, now);
    const struct sched_job *again = find(jobs, nj, j->id);
    bool moved_on = again->node >= 0 || strcmp(again->reason_code, j->reason_code);
    CHECK_MSG(moved_on, "job %lld still \"%s\"", (long long)j->id, again->reason);
    if (strcmp(j->reason_code, "backoff")) CHECK(again->node >= 0);
}

static void test_random(void)
{
    for (int round = 0; round < 20000 && !test_failures_now; round++) {
        struct sched_node before[MAX_NODES + 3] = {0}, after[MAX_NODES + 3];
        struct sched_job jobs[MAX_JOBS] = {0}, asked[MAX_JOBS];
        int nn = make_nodes(before), nj = make_jobs(jobs);
        memcpy(asked, jobs, sizeof asked);
        memcpy(after, before, sizeof after);
        sched_pick(jobs, nj, after, nn, 1000);
        check_sums(jobs, nj, before, after, nn);
        for (int i = 0; i < nj; i++) {
            CHECK((jobs[i].node >= 0) == !*jobs[i].reason_code);
            if (jobs[i].node < 0) check_reason(asked, nj, &jobs[i], before, nn);
        }
    }
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

/* A job runs where its data lies: the other node is free and does not count. */
static void test_pinned(void)
{
    struct sched_node n[2] = {{.name = "a", .up = true, .n_slots = 4, .n_reserved = 3},
                              {.name = "b", .up = true, .n_slots = 4}};
    struct sched_job j = {.id = 1, .n_ranks = 2, .only = 0};
    sched_pick(&j, 1, n, 2, 0);
    CHECK(j.node == -1);
    CHECK_STR(j.reason, "1/4 slots free on node a, which holds its data, needs 2");
    n[0].n_reserved = 2;
    sched_pick(&j, 1, n, 2, 0);
    CHECK(j.node == 0);
}

int main(void)
{
    RUN(test_random);
    RUN(test_order);
    RUN(test_never_fits_does_not_block);
    RUN(test_pinned);
    return test_done("seqd_sched");
}
