/* test_seqd_backfill: checks that jobs start before the first in line only if they do not delay it,
 * and that the users of a priority take turns. */
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/pass.h"
#include "tests/lib/test.h"

enum { MAX_JOBS = 40 };

static struct cluster *k;
static struct sched_pass *p;
static int64_t now_ms;

static void begin(int n_nodes, int slots, int64_t backfill_ms)
{
    if (!(k = calloc(1, sizeof *k))) abort();
    cluster_init(k);
    p = pass_create(backfill_ms);
    now_ms = 1000;
    for (int i = 0; i < n_nodes; i++) {
        char name[NODE_NAME];
        snprintf(name, sizeof name, "n%d", i);
        struct node *n = node_expect(&k->nodes, name, 0);
        n->up = true;
        n->abi = WIRE_ABI;
        n->n_slots = slots;
        snprintf(n->address, sizeof n->address, "10.0.0.%d", i + 1);
    }
}

static void finish(void)
{
    pass_destroy(p);
    cluster_fini(k);
    free(k);
}

static struct job *add(int64_t id, const char *owner, int ranks, int64_t wall_s)
{
    static struct job_spec s;
    s = (struct job_spec){.kind = JOB_MERGE, .priority = 50, .text_used = 1};
    CHECK(!spec_intern(&s, "cpu", 3, &s.resources.device));
    s.resources.ranks = s.parallel.sp = ranks;
    s.limits.wall_s = wall_s;
    struct job *j = job_create(id, &s);
    if (!j) abort();
    snprintf(j->owner, sizeof j->owner, "%s", owner);
    jobs_add(&k->jobs, j);
    return j;
}

/* Carries out the ASSIGN of a job. */
static void start(struct job *j, const struct event *ev)
{
    j->state = JOB_RUNNING;
    j->task = TASK_RUN;
    j->n_places = ev->n_places;
    j->places = calloc((size_t)ev->n_places, sizeof *j->places);
    j->away_ms = calloc((size_t)ev->n_places, sizeof *j->away_ms);
    if (!j->places || !j->away_ms) abort();
    memcpy(j->places, ev->places, (size_t)ev->n_places * sizeof *j->places);
    j->started_ms = now_ms;
    jobs_note_placed(&k->jobs, j);
}

/* Runs a pass and starts its jobs. Returns the bits of their ids, where bit 0 is job 1. */
static uint64_t run_pass(void)
{
    static struct event ev;
    struct job *j;
    uint64_t started = 0;
    pass_pick(p, k, now_ms);
    for (int i = 0; (j = pass_verdict(p, k, i, &ev)); i++) {
        start(j, &ev);
        started |= UINT64_C(1) << (j->id - 1);
    }
    return started;
}

/* Four of eight slots are taken for 100 s. Job 2, the first in line, needs them all. */
static void test_before_the_first(void)
{
    begin(2, 4, 0);
    add(1, "a", 4, 100);
    CHECK(run_pass() == 1);
    add(2, "a", 8, 10);
    add(3, "a", 1, 100); /* ends when job 1 does */
    add(4, "a", 1, 101); /* would still run then */
    add(5, "a", 1, 0);   /* has no limit */
    CHECK(run_pass() == 1 << 2);
    CHECK(pass_starts_ms(p, 2) == now_ms + 100000 && !pass_starts_ms(p, 4));
    CHECK_STR(jobs_find(&k->jobs, 4)->reason_code, "behind");
    CHECK_STR(jobs_find(&k->jobs, 5)->reason_code, "behind");
    for (int i = 0; i < 4; i++) CHECK(pass_queued(p, i) == 2 + i);
    CHECK(!pass_queued(p, 4));
    finish();
}

/* As before, but the first in line leaves two slots free when it starts. */
static void test_beside_the_first(void)
{
    begin(2, 4, 0);
    add(1, "a", 4, 100);
    CHECK(run_pass() == 1);
    add(2, "a", 6, 10);
    add(3, "a", 1, 0);
    add(4, "a", 1, 500);
    add(5, "a", 1, 500); /* one too many */
    CHECK(run_pass() == (1 << 2 | 1 << 3));
    finish();
}

/* Without limits of the jobs that run, the first in line has no time, and nothing starts before it.
 * seqd --backfill-wall-s stands for the limits that are missing. */
static void test_without_limits(void)
{
    for (int known = 0; known < 2; known++) {
        begin(2, 4, known ? 60000 : 0);
        add(1, "a", 4, 0);
        CHECK(run_pass() == 1);
        add(2, "a", 8, 10);
        add(3, "a", 1, known ? 0 : 1);
        CHECK(run_pass() == (known ? 1 << 2 : 0));
        CHECK(pass_starts_ms(p, 2) == (known ? now_ms + 60000 : 0));
        finish();
    }
}

static void test_turns(void)
{
    static const int64_t order[] = {1, 5, 2, 6, 3, 4, 0};
    begin(1, 1, 0);
    for (int i = 1; i <= 6; i++) add(i, i < 5 ? "a" : "b", 2, 0); /* no node can take them */
    run_pass();
    for (int i = 0; i < 7; i++) CHECK(pass_queued(p, i) == order[i]);
    finish();
    begin(1, 2, 0); /* a has one job that runs, so b is first */
    add(1, "a", 1, 0), run_pass();
    add(2, "a", 2, 0), add(3, "b", 2, 0), add(4, "a", 2, 0);
    run_pass();
    CHECK(pass_queued(p, 0) == 3 && pass_queued(p, 1) == 2 && pass_queued(p, 2) == 4);
    finish();
}

/* Ends the jobs whose limit is over, and moves the time to the next end. */
static bool step(void)
{
    int64_t next = INT64_MAX;
    for (int64_t id = 1; id <= MAX_JOBS; id++) {
        struct job *j = jobs_find(&k->jobs, id);
        if (!j || j->state != JOB_RUNNING) continue;
        const int64_t end_ms = j->started_ms + j->is.wall_s * 1000;
        if (end_ms < next) next = end_ms;
    }
    if (next == INT64_MAX) return false;
    now_ms = next;
    for (int64_t id = 1; id <= MAX_JOBS; id++) {
        struct job *j = jobs_find(&k->jobs, id);
        if (!j || j->state != JOB_RUNNING) continue;
        j->ran_ms = now_ms - j->started_ms;
        if (j->ran_ms < j->is.wall_s * 1000) continue;
        jobs_remove(&k->jobs, j);
        job_destroy(j);
    }
    return true;
}

/* Random queues whose jobs run as long as their limits: a first in line never starts later than any
 * of its reservations said. */
static void test_never_later(void)
{
    unsigned seed = 5;
    int n_filled = 0, n_first = 0;
    for (int round = 0; round < 300 && !test_failures_now; round++) {
        int64_t promised[MAX_JOBS + 1] = {0}, last = 0;
        begin(1 + rand_r(&seed) % 3, 1 + rand_r(&seed) % 5, 0);
        for (int i = 1; i <= MAX_JOBS; i++)
            add(i, "a", 1 + rand_r(&seed) % 6, 1 + rand_r(&seed) % 20);
        do {
            const uint64_t started = run_pass();
            for (int64_t id = 1; id <= MAX_JOBS; id++) {
                const int64_t at_ms = pass_starts_ms(p, id);
                if (started >> (id - 1) & 1) {
                    CHECK_MSG(!promised[id] || now_ms <= promised[id],
                              "round %d: job %lld starts at %lld, not at %lld", round,
                              (long long)id, (long long)now_ms, (long long)promised[id]);
                    promised[id] = 0;
                    n_filled += id < last;
                    if (id > last) last = id;
                } else if (promised[id]) {
                    /* Check that the first in line stays first until it starts. */
                    CHECK_MSG(at_ms, "round %d: job %lld is not first any more", round,
                              (long long)id);
                }
                if (!(started >> (id - 1) & 1) && at_ms) {
                    CHECK(!promised[id] || at_ms <= promised[id]);
                    promised[id] = at_ms;
                    n_first++;
                }
            }
        } while (step());
        finish();
    }
    CHECK_MSG(n_filled > 300 && n_first > 300, "%d filled, %d first", n_filled, n_first);
}

int main(void)
{
    RUN(test_before_the_first);
    RUN(test_beside_the_first);
    RUN(test_without_limits);
    RUN(test_turns);
    RUN(test_never_later);
    return test_done("seqd_backfill");
}
