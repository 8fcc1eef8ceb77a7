/* test_seqd_attempt: checks the verdicts that follow from the reports of an attempt, without a
 * store, a clock or nodes. The job has four ranks, two on each of the nodes a and b, and b is not
 * connected. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/spooled.h"
#include "tests/lib/test.h"

#define EPOCH 7

static struct nodes nodes;

static struct job *job_of(int n_places)
{
    static struct job_spec s;
    struct event ev = {.type = EV_ASSIGN, .epoch = EPOCH, .task = TASK_RUN, .n_places = n_places};
    spec_defaults(&s);
    s.kind = JOB_TRAIN;
    s.resources.ranks = 2 * n_places;
    s.limits.init_timeout_s = 60;
    for (int i = 0; i < n_places; i++)
        ev.places[i] = (struct job_place){
            .node = {(char)('a' + i)}, .first_rank = 2 * i, .n_ranks = 2};
    ev.n_ranks = 2 * n_places;
    memcpy(ev.node, ev.places[0].node, sizeof ev.node);
    struct job *j = job_create(1, &s);
    CHECK(!job_fold(j, &(struct event){.type = EV_SUBMIT}, NULL) && !job_fold(j, &ev, NULL));
    j->attempt = attempt_create(j, 1000);
    nodes_fini(&nodes);
    node_expect(&nodes, "a", 0)->up = true;
    node_expect(&nodes, "b", 0);
    return j;
}

static void drop(struct job *j)
{
    attempt_destroy(j->attempt);
    job_destroy(j);
}

/* Passes the part's next record, which is about `rank`. Returns the verdict. */
static struct verdict tell(struct job *j, int part, int type, int rank, const void *data,
                           size_t size)
{
    const struct spooled_time t = {2000, 1000000};
    struct attempt_part *p = &j->attempt->parts[part];
    struct spooled r = {{RANK_ABI, (uint32_t)type, rank, (uint32_t)size}, data, ++p->seq};
    struct verdict v = {.type = VERDICT_NONE};
    CHECK(spooled_is_of(p, &r));
    spooled_take(j, &nodes, p, &r, &t, &v);
    return v;
}

static struct verdict tell_fail(struct job *j, int part, int rank, enum err_code code)
{
    struct rank_fail f = {.code = (int32_t)code, .text = "rank 1 is gone"};
    return tell(j, part, RANK_FAIL, rank, &f, sizeof f);
}

static struct verdict tell_exit(struct job *j, int part, int rank, int status, int signo)
{
    struct rank_exit x = {.rank = rank, .exit_status = status, .signal = signo};
    return tell(j, part, RANK_EXIT, rank, &x, sizeof x);
}

/* Checks that the ring is complete when the last rank is ready. Records that were delayed until
 * then must be processed. */
static void test_start(void)
{
    struct job *j = job_of(2);
    const struct job_attempt *a = j->attempt;
    for (int r = 0; r < 4; r++)
        CHECK(tell(j, r / 2, RANK_BLOB, r, "blob", 4).type ==
              (r == 3 ? VERDICT_BLOBS : VERDICT_NONE));
    CHECK(a->n_blobs == 4 && attempt_mark(a, &a->parts[0]) == 0 && !attempt_has_news(a));
    for (int r = 0; r < 3; r++) CHECK(tell(j, r / 2, RANK_READY, r, NULL, 0).type == VERDICT_NONE);
    struct verdict v = tell(j, 1, RANK_READY, 3, NULL, 0);
    CHECK(v.type == VERDICT_EVENT && v.ev.type == EV_READY && v.ev.n_ranks == 4);
    CHECK(attempt_mark(a, &a->parts[0]) == 4 && attempt_has_news(a));
    drop(j);
}

/* Checks that a step of rank 0 proves that a ring over two nodes is complete. On a single node,
 * every rank must report that it is ready. */
static void test_proof(void)
{
    for (int n = 1; n <= 2; n++) {
        struct job *j = job_of(n);
        struct rank_step s = {.step = 1, .tokens = 10, .step_us = 1000};
        struct spooled r = {{RANK_ABI, RANK_STEP, 0, sizeof s}, (const char *)&s, 1};
        CHECK(spooled_proves_ring(j, &r) == (n == 2));
        s.step = 0; /* steps are counted from 1, so 0 is not a step */
        CHECK(!spooled_proves_ring(j, &r));
        drop(j);
    }
}

/* Checks a report that a peer is missing. The verdict must wait for a better cause, such as a rank
 * that was killed. */
static void test_suspect(void)
{
    struct job *j = job_of(2);
    CHECK(tell_fail(j, 1, 2, ERR_PEER).type == VERDICT_NONE);
    CHECK(j->attempt->has_suspect && attempt_mark(j->attempt, &j->attempt->parts[1]) == 0);
    struct verdict v = tell_exit(j, 0, 1, 0, SIGKILL);
    CHECK(v.type == VERDICT_FAIL && v.ev.rank == 1 && !strcmp(v.ev.node, "a"));
    CHECK(v.ev.cause == CAUSE_INFRASTRUCTURE && strstr(v.ev.err.text, "was killed by signal 9"));
    drop(j);
}

/* Checks a report that a peer is missing, if no better cause is reported in time. The verdict must
 * name the node that is not connected. */
static void test_convict(void)
{
    struct job *j = job_of(2);
    struct verdict v = {.type = VERDICT_NONE};
    CHECK(tell_fail(j, 0, 0, ERR_PEER).type == VERDICT_NONE);
    attempt_tick(j, &nodes, 2000 + SUSPECT_MS - 1, &v);
    CHECK(v.type == VERDICT_NONE);
    attempt_tick(j, &nodes, 2000 + SUSPECT_MS, &v);
    CHECK(v.type == VERDICT_FAIL && v.ev.rank == 0 && !strcmp(v.ev.node, "b"));
    CHECK_STR(v.ev.err.text, "node b is not connected: rank 1 is gone");
    drop(j);
}

static void test_start_timeout(void)
{
    struct job *j = job_of(2);
    struct verdict v = {.type = VERDICT_NONE};
    CHECK(tell(j, 0, RANK_READY, 0, NULL, 0).type == VERDICT_NONE);
    attempt_tick(j, &nodes, 1000 + 59999, &v);
    CHECK(v.type == VERDICT_NONE);
    attempt_tick(j, &nodes, 1000 + 60000, &v);
    CHECK(v.type == VERDICT_FAIL && v.ev.type == EV_START_TIMEOUT && !strcmp(v.ev.node, "a"));
    CHECK(strstr(v.ev.err.text, "1 of 4 ranks were ready") != NULL);
    drop(j);
}

/* Checks that the attempt has succeeded when both parts have succeeded, and that a stopping job
 * has stopped when both parts have ended. */
static void test_ends(void)
{
    struct event ev;
    struct job *j = job_of(2);
    CHECK(!job_fold(j, &(struct event){.type = EV_READY}, NULL) && j->state == JOB_RUNNING);
    CHECK(tell_exit(j, 0, RANK_GANG, GANG_DONE, 0).type == VERDICT_NONE);
    CHECK(!attempt_stopped(j, 0, &ev));
    struct verdict v = tell_exit(j, 1, RANK_GANG, GANG_DONE, 0);
    CHECK(v.type == VERDICT_EVENT && v.ev.type == EV_DONE);
    drop(j);

    j = job_of(2);
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL}, NULL) && j->state == JOB_STOPPING);
    CHECK(tell_exit(j, 1, RANK_GANG, GANG_STOPPED, 0).type == VERDICT_NONE);
    CHECK(!attempt_stopped(j, 0, &ev));
    CHECK(tell_exit(j, 0, RANK_GANG, GANG_STOPPED, 0).type == VERDICT_NONE);
    CHECK(attempt_stopped(j, 0, &ev) && ev.type == EV_STOPPED && !strcmp(ev.node, "a"));
    drop(j);
}

/* Makes a running job that serves, and asks it to stop. */
static struct job *draining(enum job_event by)
{
    struct job *j = job_of(1);
    job_spec_edit(j)->kind = JOB_SERVE;
    job_spec_edit(j)->serve.drain_s = 30;
    CHECK(!job_fold(j, &(struct event){.type = EV_READY, .n_ranks = 2}, NULL));
    struct event ask = {.type = by};
    if (by == EV_WALL_LIMIT) err_set(&ask.err, ERR_WALL_LIMIT, "it has run for limits.wall_s");
    CHECK(!job_fold(j, &ask, NULL));
    CHECK(j->state == JOB_STOPPING && j->saving);
    j->attempt->save_ms = 1000;
    return j;
}

/* Checks that a job that serves has serve.drain_s for its open requests, and that one that is
 * cancelled or at limits.wall_s succeeds when they are answered. */
static void test_drain(void)
{
    struct event ev;
    struct job *j = draining(EV_CANCEL);
    CHECK(!attempt_save_late(j, 35999, 600000) && attempt_save_late(j, 36000, 600000));
    CHECK(attempt_save_late(j, 21000, 20000)); /* seqd allows less */
    j->attempt->parts[0].ended = j->attempt->parts[0].saved = true;
    CHECK(attempt_stopped(j, 40000, &ev) && ev.type == EV_DONE);
    ev.at_ms = 40000; /* set by the commit */
    CHECK(!job_fold(j, &ev, NULL) && j->state == JOB_SUCCEEDED);
    drop(j);
    j = draining(EV_WALL_LIMIT);
    j->attempt->parts[0].ended = j->attempt->parts[0].saved = true;
    CHECK(attempt_stopped(j, 40000, &ev) && ev.type == EV_DONE);
    ev.at_ms = 40000;
    CHECK(!job_fold(j, &ev, NULL) && j->state == JOB_SUCCEEDED && !job_err(j)->code);
    drop(j);
    j = draining(EV_CANCEL); /* its ranks were stopped */
    j->attempt->parts[0].ended = true;
    CHECK(attempt_stopped(j, 40000, &ev) && ev.type == EV_STOPPED && !attempt_unsaved(j, &ev));
    drop(j);
    j = draining(EV_CANCEL); /* and cancelled again */
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL}, NULL) && !j->saving);
    drop(j);
    j = draining(EV_SUSPEND); /* and then cancelled: the open requests still end */
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL}, NULL));
    CHECK(j->saving && j->target == JOB_CANCELLED);
    CHECK(!job_fold(j, &(struct event){.type = EV_CANCEL}, NULL) && !j->saving);
    drop(j);
    j = draining(EV_SUSPEND);
    j->attempt->parts[0].ended = j->attempt->parts[0].saved = true;
    CHECK(attempt_stopped(j, 40000, &ev) && ev.type == EV_STOPPED);
    ev.at_ms = 40000;
    CHECK(!job_fold(j, &ev, NULL) && j->state == JOB_SUSPENDED);
    drop(j);
}

int main(void)
{
    RUN(test_start);
    RUN(test_proof);
    RUN(test_suspect);
    RUN(test_convict);
    RUN(test_start_timeout);
    RUN(test_ends);
    RUN(test_drain);
    nodes_fini(&nodes);
    return test_done("seqd_attempt");
}
