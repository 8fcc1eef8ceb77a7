/* test_seqd_away: tests jobs whose nodes are silent. seqd marks these jobs as away and does not
 * stop them. They continue when the node is connected again. An attempt is given up only if other
 * nodes have room for the job, if the job is cancelled or suspended, or because of a peer's
 * report. These rules must also hold after a restart of seqd. */
#include "daemon/state/job_after.h"
#include "tests/lib/sim.h"

static struct gang *run_on(struct sim *n, int64_t id, int ranks)
{
    CHECK(submit(ranks, 0) == id);
    for (int i = 0; i < 3; i++) {
        struct gang *p = gang_of(&w.node[i], id, 1);
        if (p) play_prepare(p), send_spool(&w.node[i], p);
    }
    settle();
    struct gang *g = gang_of(n, id, 2);
    CHECK(g && g->n_local == ranks);
    if (g) play_blobs(g), play_ready(g), send_spool(n, g);
    CHECK(is(id, "running"));
    return g;
}

/* Lets time pass until the node's silence is long enough. */
static void lose(struct sim *n)
{
    goodbye(n);
    pass(NODE_LOST_MS + 1001);
}

static bool is_away(int64_t id, const char *node)
{
    char want[64];
    snprintf(want, sizeof want, "\"away\":{\"node\":\"%s\",\"since\":\"", node);
    return strstr(doc(id), want) && is(id, "running") && job(id)->epoch == 2;
}

static bool is_here(int64_t id)
{
    return is(id, "running") && !strstr(stored, "\"away\"");
}

/* Checks that the ranks continue to run while the node is silent, also if seqd is restarted. */
static void test_comes_back(void)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        begin();
        hello(A);
        struct gang *a = run_on(A, 1, 2);
        goodbye(A);
        pass(NODE_LOST_MS - 1001);
        CHECK(is_here(1)); /* a short outage has no effect */
        pass(2002);
        CHECK(is_away(1, "a") && !a->stopped);
        CHECK(control_reserved(w.control, "a") == 2);
        if (restarts) close_seqd(), open_seqd();
        pass(NODE_LOST_MS + 1001), pass(1001);
        CHECK(is_away(1, "a"));
        CHECK(count(events(1), "away ") == 1);
        hello(A);
        CHECK(is_here(1) && job(1)->attempts == 1);
        play_run(a), send_spool(A, a);
        CHECK(is(1, "succeeded") && count(events(1), "back ") == 1 && a->acked == a->n_records);
        finish();
    }
}

/* Checks a job for which a node that is not silent has room. */
static void test_moves(void)
{
    begin();
    hello(A);
    struct gang *a = run_on(A, 1, 2);
    lose(A);
    CHECK(is_away(1, "a"));
    hello(B);
    settle();
    CHECK(is(1, "starting") && job(1)->restarts == 0 && !strstr(stored, "\"away\""));
    CHECK_STR(job_err(job(1))->text, "node a has not been seen for 12 s");
    CHECK(job(1)->err_cause == CAUSE_INFRASTRUCTURE && job(1)->backoff_ms == 0);
    CHECK(gang_of(B, 1, 3));
    /* The node is connected again, and its old attempt has made progress. seqd must ignore this
     * progress, and must not treat the attempt's slots as free. */
    w.obeys = false;
    hello(A);
    rec_step(a, 7), rec_event(a, 0, EV_CHECKPOINT, 7, "{}"), send_spool(A, a);
    settle();
    CHECK(job(1)->step == 0 && job(1)->checkpoint_step == 0);
    CHECK(control_reserved(w.control, "a") == 2);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle();
    CHECK(control_reserved(w.control, "a") == 0 && a->forgotten);
    finish();
}

/* Checks that a job which began after another one moves although seqd has started again since, and
 * has not asked how the other one ended. */
static void test_moves_after_another(void)
{
    begin();
    hello(A);
    struct gang *a = run_on(A, 1, 2);
    play_run(a), send_spool(A, a);
    settle();
    CHECK(run_on(A, 2, 2));
    struct job_after *after = calloc(1, sizeof *after + sizeof *after->of);
    if (!after) abort();
    after->n = 1, after->of[0].job = 1;
    ((struct job *)job(2))->after = after;
    CHECK(job_after_waits(job(2)));
    lose(A);
    CHECK(is_away(2, "a"));
    hello(B);
    settle();
    /* it gives its place up, and asks for that end before it begins elsewhere */
    CHECK(is(2, "queued"));
    finish();
}

/* Checks that if no other node has room, the job keeps its place until a node has room. */
static void test_waits_for_a_place(void)
{
    begin();
    hello(A);
    run_on(A, 1, 2);
    hello(B);
    struct gang *b = run_on(B, 2, 2);
    lose(A);
    CHECK(is_away(1, "a"));
    CHECK_STR(job(1)->reason_code, "waiting_for_slots");
    CHECK(is(2, "running"));
    play_run(b), send_spool(B, b);
    settle(), pass(1001);
    CHECK(is(2, "succeeded") && is(1, "starting"));
    finish();
}

static void to_gang(struct gang **a, struct gang **b)
{
    begin();
    hello(A), hello(B);
    CHECK(submit(4, 0) == 1);
    play_prepare(gang_of(A, 1, 1)), send_all(A);
    settle();
    *a = gang_of(A, 1, 2), *b = gang_of(B, 1, 2);
    CHECK(*a && *b);
    play_blobs(*a), send_all(A), play_blobs(*b), send_all(B);
    play_ready(*a), send_all(A), play_ready(*b), send_all(B);
    CHECK(is(1, "running"));
}

/* Checks the slots that the job holds on those of its nodes that are not silent. Only the job
 * itself may use these slots again, and its part on these nodes must stop first. */
static void test_own_place(void)
{
    struct gang *a, *b;
    char node[NODE_NAME];
    to_gang(&a, &b);
    lose(B);
    CHECK(is_away(1, "b") && !a->stopped);
    /* the job's node is a, and not the silent node */
    CHECK(doc_job_node(doc(1), node) && !strcmp(node, "a"));
    w.obeys = false;
    hello(C);
    settle();
    CHECK(is(1, "stopping") && a->stopped && job(1)->attempt->parts[1].lost);
    CHECK(control_reserved(w.control, "a") == 2);
    CHECK(submit(2, 0) == 2);
    play_prepare(gang_of(A, 2, 1) ? gang_of(A, 2, 1) : gang_of(C, 2, 1)), send_all(A), send_all(C);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle(), pass(1001);
    finish();
}

/* Checks that the job does not wait for its silent node if the gang on its second node reports
 * that its peer is lost. */
static void test_peer_reports(void)
{
    struct gang *a, *b;
    to_gang(&a, &b);
    lose(B);
    CHECK(is_away(1, "b"));
    rec_fail(a, 0, ERR_PEER, "rank 2 has gone"), send_all(A);
    pass(SUSPECT_MS + 1);
    send_all(A);
    settle();
    CHECK(!is(1, "running") && job(1)->epoch == 2 && job(1)->state == JOB_QUEUED);
    CHECK_STR(job_err(job(1))->text, "node b is not connected: rank 2 has gone");
    CHECK(count(events(1), "node_lost ") == 1 && count(stored, "stopped ") == 1);
    CHECK(control_reserved(w.control, "b") == 0);
    finish();
}

static enum err_code code;

static void on_order(void *arg, const struct job *j, const struct err *e)
{
    code = e ? e->code : ERR_NONE;
}

static void test_orders(void)
{
    static order_call *const call[] = {order_cancel, order_suspend};
    for (int i = 0; i < 2; i++) {
        begin();
        hello(A);
        struct gang *a = run_on(A, 1, 2);
        lose(A);
        code = ERR_N;
        call[i](control_commits(w.control), 1, "u", on_order, NULL);
        settle();
        CHECK(code == ERR_NONE && is(1, i ? "suspended" : "cancelled"));
        CHECK(count(events(1), "node_lost ") == 1);
        hello(A); /* the node comes back, and the attempt is stopped there */
        send_all(A);
        settle();
        CHECK(a->over && a->forgotten && control_reserved(w.control, "a") == 0);
        finish();
    }
}

/* Checks a seqd that is killed between an order and its effects. After the restart, seqd must
 * measure a node's silence from the start on. */
static void test_order_and_restart(void)
{
    begin();
    hello(A);
    run_on(A, 1, 2);
    lose(A);
    order_cancel(control_commits(w.control), 1, "u", on_order, NULL);
    close_seqd(); /* commits the events that wait, and acts on none of them */
    open_seqd();
    pass(1001), pass(NODE_LOST_MS + 1001);
    CHECK(is(1, "cancelled"));
    finish();
}

/* Checks a job whose checkpoint is on a node that never connects again. An order to restart the
 * job gives up the checkpoint. */
static void test_given_up(void)
{
    struct gang *a, *b;
    to_gang(&a, &b);
    rec_step(a, 1), rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_all(A), settle();
    hello(C);
    lose(A);
    CHECK(is_away(1, "a") && !b->stopped);
    CHECK(strstr(job(1)->reason, "node a, which holds its checkpoint of step 1, is down"));
    code = ERR_N;
    order_restart(control_commits(w.control), 1, "u", on_order, NULL);
    settle();
    CHECK(code == ERR_NONE && b->stopped && job(1)->checkpoint_step == 0);
    send_all(B);
    settle(), pass(1001);
    CHECK(is(1, "starting") && job(1)->epoch == 3 && strcmp(job(1)->node, "a") != 0);
    const int32_t n = job(1)->n_places;
    B->up = C->up = false;
    close_seqd(), open_seqd();
    CHECK(is(1, "starting") && job(1)->checkpoint_step == 0 && job(1)->n_places == n);
    finish();
}

/* Checks a node that connects again after its ranks have ended. Its agent reports their end. */
static void test_back_without_ranks(void)
{
    begin();
    hello(A);
    struct gang *a = run_on(A, 1, 2);
    lose(A);
    a->job = 99; /* the spool is lost */
    a->over = a->forgotten = true;
    hello(A);
    CHECK(is_away(1, "a"));
    send_all(A);
    settle();
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    CHECK_STR(job_err(job(1))->text, "the node knows no such attempt");
    finish();
}

/* Checks a job both of whose nodes are silent. It must be marked as away until both nodes are
 * connected again. */
static void test_both(void)
{
    struct gang *a, *b;
    to_gang(&a, &b);
    goodbye(A);
    pass(2000);
    lose(B);
    CHECK(is_away(1, "a"));
    hello(A);
    CHECK(is_away(1, "b"));
    hello(B);
    CHECK(is_here(1));
    play_run(a), send_all(A), play_run(b), send_all(B);
    CHECK(is(1, "succeeded"));
    finish();
}

/* Checks the day in which a job is retried. The time in which a job waits for a silent node must
 * not count. */
static void test_a_day_away(void)
{
    begin();
    hello(A);
    run_on(A, 1, 2);
    lose(A);
    pass(JOB_RETRY_MS);
    CHECK(is_away(1, "a"));
    hello(B);
    settle();
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_comes_back);
    RUN(test_moves);
    RUN(test_moves_after_another);
    RUN(test_waits_for_a_place);
    RUN(test_own_place);
    RUN(test_peer_reports);
    RUN(test_orders);
    RUN(test_order_and_restart);
    RUN(test_given_up);
    RUN(test_back_without_ranks);
    RUN(test_both);
    RUN(test_a_day_away);
    return test_done("seqd_away");
}
