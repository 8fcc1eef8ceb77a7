/* test_seqd_quarantine: tests bad nodes and bad jobs with seqd's control (tests/lib/sim.h). Checks
 * the rules by which a job avoids nodes and by which nodes are quarantined, and the end of a
 * quarantine. A restarted seqd must have the same blames and quarantines. */
#include "daemon/state/quarantine.h"
#include "tests/lib/sim.h"

enum mood { GOOD, BAD, LACKS }; /* the way in which gangs on a node end */
static enum mood mood[NODES];
static int crash_status; /* exit status of ranks on bad nodes */

static void play_crash(struct gang *g)
{
    rec_exit(g, g->first, crash_status, 0);
    rec_exit(g, RANK_GANG, GANG_FAILED, 0);
}

static void play_lacks(struct gang *g)
{
    rec_fail(g, g->first, ERR_NOT_FOUND, "/x does not exist on this node");
    rec_exit(g, RANK_GANG, GANG_FAILED, 0);
}

static bool play_gang(struct sim *n, struct gang *g)
{
    if (g->over) return false;
    if (mood[n - w.node] == BAD)
        play_crash(g);
    else if (mood[n - w.node] == LACKS)
        play_lacks(g);
    else if (g->task == TASK_PREPARE)
        play_prepare(g);
    else
        play_blobs(g), play_ready(g), play_run(g);
    return true;
}

/* Runs all gangs to their ends, until no new gang starts. */
static void play(void)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < NODES; i++) {
            for (int k = 0; k < w.node[i].n_gangs; k++)
                more = play_gang(&w.node[i], &w.node[i].gang[k]) || more;
            send_all(&w.node[i]);
            settle();
        }
    }
}

/* Plays on for some seconds, so that backoffs end. */
static void play_on(int seconds)
{
    for (play(); seconds > 0; seconds -= 10) {
        pass(seconds < 10 ? seconds * 1000 : 10000);
        for (int i = 0; i < NODES; i++)
            if (w.node[i].up) heartbeat(&w.node[i]);
        play();
    }
}

static void start(enum mood a, enum mood b)
{
    begin();
    mood[0] = a, mood[1] = b, mood[2] = GOOD;
    crash_status = 127;
    hello(A), hello(B);
}

static const struct quarantined *quarantine_of(const char *node)
{
    return quarantine_find(control_cluster(w.control)->quarantine, node);
}

/* Kills seqd and starts it again, with its nodes. */
static void restart_seqd(void)
{
    bool up[NODES];
    for (int i = 0; i < NODES; i++) up[i] = w.node[i].up, w.node[i].up = false;
    close_seqd();
    open_seqd();
    for (int i = 0; i < NODES; i++)
        if (up[i]) hello(&w.node[i]), send_all(&w.node[i]);
    settle();
}

static int n_runs(const struct sim *n)
{
    int k = 0;
    for (int i = 0; i < n->n_gangs; i++) k += n->gang[i].task == TASK_RUN;
    return k;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Checks a node that cannot start a rank. There is also a good node. Every job must succeed on the
 * good node. After three failures, the bad node must be in quarantine. */
static void test_bad_node(void)
{
    start(BAD, GOOD);
    for (int i = 1; i <= 6; i++) {
        CHECK(submit(1, 0) == i);
        play_on(20);
        CHECK_MSG(is(i, "succeeded"), "job %d: %s", i, stored);
        CHECK((quarantine_of("a") != NULL) == (i >= 3) && !quarantine_of("b"));
    }
    CHECK(n_runs(A) == 0 && A->n_gangs == 3); /* three were tried, and none after them */
    CHECK(strstr(quarantine_of("a")->reason, "3 jobs failed to start on it") &&
          strstr(quarantine_of("a")->reason, "exited with status 127"));
    CHECK(strstr(events(1), "\"blame\":\"node\"") &&
          strstr(stored, "\"class\":\"infrastructure\""));
    restart_seqd();
    CHECK(quarantine_of("a") && strstr(quarantine_of("a")->reason, "status 127"));
    finish();
}

/* Checks that blames of a node are counted over a restart of seqd. There are three blames before
 * the restart and one after it. Their jobs have ended. */
static void test_counted_over_restart(void)
{
    start(BAD, GOOD);
    for (int i = 1; i <= 3; i++) {
        CHECK(submit(1, 0) == i);
        play_on(20);
        CHECK(is(i, "succeeded") && !job(i));
        CHECK((quarantine_of("a") != NULL) == (i == 3));
        restart_seqd();
    }
    CHECK(quarantine_of("a") != NULL);
    finish();
}

/* Checks that blames that are older than an hour do not count. */
static void test_within_an_hour(void)
{
    start(BAD, GOOD);
    for (int i = 1; i <= 4; i++) {
        submit(1, 0);
        play_on(20);
        pass(QUARANTINE_MS / 2);
        heartbeat(A), heartbeat(B);
    }
    CHECK(!quarantine_of("a"));
    finish();
}

/* Checks a job that crashes on every node. The job must fail, and the blames of all nodes must be
 * withdrawn. */
static void test_bad_job(void)
{
    start(BAD, BAD);
    for (int i = 1; i <= 4; i++) {
        CHECK(submit(1, 0) == i);
        play_on(20);
        CHECK_MSG(is(i, "failed"), "job %d: %s", i, stored);
        CHECK(strstr(stored, "\"class\":\"user\""));
        CHECK(count(events(i), "rank_exit {") == 2);
        CHECK(strstr(stored, "\"node\":\"a\"") && strstr(stored, "\"node\":\"b\""));
    }
    CHECK(!quarantine_of("a") && !quarantine_of("b"));
    finish();
}

/* Checks three jobs that fail on one node before any of them is tried on a different node. The
 * node is blamed for all three failures, and is put into quarantine. When the first blame is
 * withdrawn, the quarantine must end, also in a restarted seqd. */
static void test_withdrawn(void)
{
    for (int restart = 0; restart < 2; restart++) {
        start(BAD, BAD);
        goodbye(B);
        for (int i = 1; i <= 3; i++) submit(1, 0);
        hello(B);
        for (int i = 1; i <= 3; i++) play_gang(A, gang_of(A, i, 1)), send_all(A), settle();
        CHECK(quarantine_of("a") != NULL && B->n_gangs == 3);
        if (restart) restart_seqd();
        play_gang(B, gang_of(B, 1, 2)), send_all(B), settle();
        CHECK(is(1, "failed") && !quarantine_of("a"));
        if (restart) restart_seqd();
        CHECK(!quarantine_of("a"));
        play_on(60);
        for (int i = 2; i <= 3; i++) CHECK_MSG(is(i, "failed"), "job %d: %s", i, stored);
        CHECK(!quarantine_of("a") && !quarantine_of("b"));
        finish();
    }
}

/* Checks that a node is never put into quarantine if no other node is connected. A job that fails
 * twice on this node must fail finally. */
static void test_last_node(void)
{
    start(BAD, GOOD);
    goodbye(B);
    for (int i = 1; i <= 4; i++) {
        submit(1, 0);
        play_on(20);
        CHECK(is(i, "failed") && count(events(i), "rank_exit {") == 2);
    }
    CHECK(!quarantine_of("a"));
    mood[0] = GOOD;
    submit(1, 0);
    play();
    CHECK(is(5, "succeeded"));
    finish();
}

static void add_rows(struct store *s, bool to_disk, int n)
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "gone%d", i);
        struct store_txn *t = store_begin();
        if (to_disk)
            store_quarantine_add(t, name, 1000 + i, "the test said so");
        else
            quarantine_load(control_cluster(w.control)->quarantine, name, 1000 + i,
                            "the test said so");
        store_commit(s, t, NULL, NULL);
    }
    settle();
}

/* Checks a full table of quarantines. If none of its nodes is connected, a new row must replace
 * the oldest row. */
static void test_full_table(void)
{
    start(BAD, GOOD);
    add_rows(w.store, false, NODE_MAX);
    for (int i = 1; i <= 3; i++) submit(1, 0), play_on(20);
    CHECK(quarantine_of("a") && quarantine_of("gone1") && !quarantine_of("gone0"));
    finish();
}

/* Checks the table of nodes after a restart. Nodes that run a gang must get a row before nodes
 * that are no longer connected. */
static void test_rows_of_nodes_that_are_gone(void)
{
    start(GOOD, GOOD);
    add_rows(w.store, true, NODE_MAX);
    submit(1, 0);
    settle();
    CHECK(is(1, "starting"));
    const struct sim *on = gang_of(A, 1, 1) ? A : B;
    close_seqd();
    open_seqd();
    const struct nodes *t = control_nodes(w.control);
    CHECK(t->n == NODE_MAX && node_find((struct nodes *)t, on->name));
    finish();
}

/* Checks a job while the good node is disconnected for a moment. The job must wait, so that it
 * does not fail a second time on the bad node. */
static void test_away_for_a_moment(void)
{
    for (int lacks = 0; lacks < 2; lacks++) {
        start(lacks ? LACKS : BAD, GOOD);
        goodbye(B);
        CHECK(submit(1, 0) == 1);
        play_on(9);
        CHECK(is(1, "queued") && A->n_gangs == 1);
        CHECK_STR(job(1)->reason,
                  "no node can take it: 0 nodes up, 1 down, 1 left out after failing this job");
        hello(B);
        play_on(10);
        CHECK(is(1, "succeeded") && A->n_gangs == 1);
        finish();
    }
}

static void to_quarantine(void)
{
    start(BAD, GOOD);
    for (int i = 1; i <= 3; i++) submit(1, 0), play_on(20);
    CHECK(quarantine_of("a") != NULL);
}

static enum err_code released;

static void on_release(void *arg, const struct job *j, const struct err *e)
{
    released = e ? e->code : ERR_NONE;
}

static void test_release(void)
{
    to_quarantine();
    order_release(control_commits(w.control), "b", on_release, NULL);
    settle();
    CHECK(released == ERR_CONFLICT);
    order_release(control_commits(w.control), "x", on_release, NULL);
    settle();
    CHECK(released == ERR_NOT_FOUND);
    released = ERR_N;
    order_release(control_commits(w.control), "a", on_release, NULL);
    settle();
    CHECK(released == ERR_NONE && !quarantine_of("a"));
    restart_seqd();
    CHECK(!quarantine_of("a"));
    /* The count of the node begins again. */
    submit(1, 0), play_on(20);
    submit(1, 0), play_on(20);
    CHECK(!quarantine_of("a"));
    submit(1, 0), play_on(20);
    CHECK(quarantine_of("a") != NULL);
    finish();
}

/* Checks the toy run of two ranks, which runs every ten minutes and ends the quarantine when it
 * succeeds. */
static void test_toy(void)
{
    to_quarantine();
    const int before = A->n_gangs;
    play_on((int)(QUARANTINE_TOY_MS / 1000) - 70);
    CHECK(A->n_gangs == before);
    play_on(80);
    CHECK(A->n_gangs == before + 1 && A->gang[before].n_ranks == 2);
    CHECK(A->gang[before].task == TASK_RUN && A->gang[before].job == 4);
    CHECK(is(4, "failed") && strstr(stored, "\"name\":\"toy run\"") && quarantine_of("a"));
    /* While a toy run waits for its node, no second toy run may be made. After a restart, seqd
     * must still know that this job is a toy run. */
    goodbye(A);
    play_on(1300);
    CHECK(submit(1, 0) == 5);
    hello(A), settle();
    pass(2000);
    CHECK(job(6) && !strcmp(job(6)->only, "a") && !job(7));
    restart_seqd();
    CHECK(job(6) && !strcmp(job(6)->only, "a"));
    mood[0] = GOOD;
    play_on(20);
    CHECK(is(6, "succeeded") && !quarantine_of("a"));
    CHECK(submit(2, 0) == 7 && submit(2, 0) == 8);
    play_on(20);
    CHECK(is(7, "succeeded") && is(8, "succeeded"));
    finish();
}

/* Checks nodes that lack the job's files. The job must avoid these nodes, and they must not be
 * blamed. When all nodes are avoided, the job must fail with the error about the files. */
static void test_files(void)
{
    start(LACKS, GOOD);
    for (int i = 1; i <= 4; i++) {
        CHECK(submit(1, 0) == i);
        play();
        CHECK_MSG(is(i, "succeeded"), "job %d: %s", i, stored);
    }
    CHECK(!quarantine_of("a") && strstr(events(1), "\"blame\":\"files\""));
    mood[1] = LACKS;
    CHECK(submit(1, 3) == 5);
    play();
    CHECK(is(5, "failed") && strstr(stored, "/x does not exist on this node"));
    CHECK(strstr(stored, "\"class\":\"final\"") && count(events(5), "rank_exit {") == 2);
    finish();
}

/* Checks a node that prepared the data, so that it has the files, and that is now disconnected.
 * While it is disconnected, the job must not fail because other nodes lack the files. */
static void test_files_of_a_node_that_is_down(void)
{
    start(GOOD, LACKS);
    goodbye(B);
    CHECK(submit(1, 0) == 1);
    play_gang(A, gang_of(A, 1, 1)), send_all(A), settle();
    CHECK(gang_of(A, 1, 2) && gang_of(A, 1, 2)->task == TASK_RUN);
    rec_exit(gang_of(A, 1, 2), RANK_GANG, GANG_LOST, 0);
    send_all(A);
    goodbye(A), hello(B);
    play_on(30);
    for (int restart = 0; restart < 2; restart++) {
        /* after a restart, seqd must still know the node */
        if (restart) restart_seqd(), play_on(30);
        CHECK(is(1, "queued"));
        CHECK_STR(job(1)->reason,
                  "no node can take it: 0 nodes up, 1 down, 1 left out after failing this job");
    }
    hello(A);
    play_on(10);
    CHECK(is(1, "succeeded"));
    finish();
}

/* Checks that after the first step a crash is blamed on the job. */
static void test_after_a_step(void)
{
    start(GOOD, GOOD);
    goodbye(B);
    CHECK(submit(1, 0) == 1);
    play_gang(A, gang_of(A, 1, 1)), send_all(A), settle();
    struct gang *g = gang_of(A, 1, 2);
    play_blobs(g), play_ready(g), rec_step(g, 1);
    send_all(A), settle();
    pass(1001); /* the step is on disk after this time */
    restart_seqd();
    CHECK(job(1)->step_epoch == 2);
    rec_exit(g, 0, 0, SIGSEGV), rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    send_all(A);
    CHECK(is(1, "failed") && strstr(stored, "\"class\":\"user\""));
    finish();
}

/* Checks that failures of the infrastructure are retried for a day after the last step, but not
 * longer. */
static void test_a_day(void)
{
    start(GOOD, GOOD);
    goodbye(B);
    CHECK(submit(1, 0) == 1);
    play_gang(A, gang_of(A, 1, 1)), send_all(A), settle();
    for (int i = 0; i < 20; i++) { /* more than 16 in succession */
        struct gang *g = gang_of(A, 1, 2 + i);
        CHECK(g != NULL);
        if (!g) break;
        play_blobs(g), play_ready(g);
        if (i == 18) rec_step(g, 1);
        if (i == 18) send_all(A), settle(), pass(20 * 3600 * (int64_t)1000), heartbeat(A);
        rec_exit(g, 0, 0, SIGKILL), rec_exit(g, RANK_GANG, GANG_FAILED, 0);
        send_all(A), settle();
        CHECK_MSG(job(1) && job(1)->state != JOB_STOPPING, "after %d failures", i + 1);
        if (i == 10) restart_seqd();
        pass(61000), heartbeat(A), settle();
    }
    struct gang *g = gang_of(A, 1, 22);
    CHECK(g && !g->over);
    if (g) play_blobs(g), play_ready(g);
    send_all(A), settle();
    pass(4 * 3600 * (int64_t)1000), heartbeat(A);
    CHECK(is(1, "running"));
    if (g) rec_exit(g, 0, 0, SIGKILL), rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    send_all(A);
    CHECK(is(1, "failed"));
    CHECK(strstr(stored, "given up 24 h after the last step or the first attempt: rank 0"));
    finish();
}

static void on_restart(void *arg, const struct job *j, const struct err *e)
{
    *(enum err_code *)arg = j ? ERR_NONE : e->code;
}

/* Checks a job whose checkpoint is on a node in quarantine. The job must wait, and the checkpoint
 * may be given up. */
static void test_checkpoint_in_quarantine(void)
{
    start(GOOD, GOOD);
    goodbye(B);
    CHECK(submit(1, 0) == 1);
    play_gang(A, gang_of(A, 1, 1)), send_all(A), settle();
    struct gang *g = gang_of(A, 1, 2);
    play_blobs(g), play_ready(g), rec_step(g, 1), rec_event(g, 0, EV_CHECKPOINT, 1, "{}");
    send_all(A), settle();
    quarantine_load(control_cluster(w.control)->quarantine, "a", 1000, "the test said so");
    hello(B);
    rec_exit(g, 0, 0, SIGKILL), rec_exit(g, RANK_GANG, GANG_FAILED, 0);
    send_all(A);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, "node a, which holds its checkpoint of step 1, is in quarantine; to "
                              "start again on another node: seqctl restart 1");
    enum err_code code = ERR_N;
    order_restart(control_commits(w.control), 1, "u", on_restart, &code);
    play_on(10);
    CHECK(code == ERR_NONE && is(1, "succeeded") && n_runs(B) == 1);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_bad_node);
    RUN(test_counted_over_restart);
    RUN(test_within_an_hour);
    RUN(test_bad_job);
    RUN(test_withdrawn);
    RUN(test_last_node);
    RUN(test_full_table);
    RUN(test_rows_of_nodes_that_are_gone);
    RUN(test_away_for_a_moment);
    RUN(test_release);
    RUN(test_toy);
    RUN(test_files);
    RUN(test_files_of_a_node_that_is_down);
    RUN(test_after_a_step);
    RUN(test_a_day);
    RUN(test_checkpoint_in_quarantine);
    return test_done("seqd_quarantine");
}
