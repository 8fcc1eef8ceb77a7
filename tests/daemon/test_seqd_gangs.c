/* test_seqd_gangs: tests gangs over several simulated nodes (tests/lib/sim.h). It covers
 * placement, rendezvous, the first cause of a failure, the ends of gangs, lost nodes that connect
 * again, and a seqd that is restarted at any point. */
#include "tests/lib/sim.h"

/* Makes a job of 4 ranks on a and b, and brings it to the ASSIGN of its gangs, which is epoch
 * 2. */
static void to_run(struct gang **a, struct gang **b, int restarts)
{
    hello(A);
    hello(B);
    CHECK(submit(4, restarts) == 1);
    struct gang *p = gang_of(A, 1, 1);
    CHECK(p && p->task == TASK_PREPARE && p->n_ranks == 1);
    play_prepare(p);
    send_spool(A, p);
    settle();
    *a = gang_of(A, 1, 2);
    *b = gang_of(B, 1, 2);
    CHECK(*a && *b);
    CHECK((*a)->first == 0 && (*a)->n_local == 2 && (*a)->n_ranks == 4);
    CHECK((*b)->first == 2 && (*b)->n_local == 2 && (*b)->n_ranks == 4);
    CHECK(control_reserved(w.control, "a") == 2 && control_reserved(w.control, "b") == 2);
}

static void to_ready(struct gang **a, struct gang **b, int restarts)
{
    to_run(a, b, restarts);
    play_blobs(*a), send_spool(A, *a);
    CHECK(!(*a)->blobs && !(*b)->blobs);
    play_blobs(*b), send_spool(B, *b);
    CHECK((*a)->blobs && (*b)->blobs);
    play_ready(*a), send_spool(A, *a);
    CHECK(is(1, "starting"));
    play_ready(*b), send_spool(B, *b);
    CHECK(is(1, "running"));
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_life(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    CHECK(a->acked == 4 && b->acked == 4);
    CHECK(strstr(doc(1), "\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"ranks\":2},"
                         "{\"node\":\"b\",\"first_rank\":2,\"ranks\":2}]"));
    play_run(a), send_spool(A, a);
    CHECK(is(1, "running") && !a->forgotten);
    pass(1001);
    /* the end of one part must not be acknowledged before the other part has ended, so that it is
     * reported again */
    CHECK(a->acked == a->n_records - 1);
    play_run(b), send_spool(B, b);
    CHECK(is(1, "succeeded"));
    CHECK(a->forgotten && b->forgotten && a->acked == a->n_records && b->acked == b->n_records);
    CHECK(control_reserved(w.control, "a") == 0 && control_reserved(w.control, "b") == 0);
    finish();
}

static void on_rows(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    *(int *)arg = rows->n_rows;
}

static int n_rows_of(enum store_ask ask, const int64_t n[4])
{
    int n_rows = 0;
    answered = false;
    store_read(w.store, ask, n, NULL, on_rows, &n_rows);
    while (!answered) loop_turn(w.loop, 10);
    return n_rows;
}

/* Checks the record that proves that the ring is complete. This proof must be committed before the
 * record is acknowledged. If seqd is killed between the record and the commit, it must receive the
 * record again. */
static void test_proof_is_kept(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    play_blobs(a), play_blobs(b);
    rec_step(a, 1);
    send_all(A), send_all(B);
    settle(); /* commits the event that the ring is complete; steps are committed once a second */
    CHECK(is(1, "running") && a->acked == 2);
    goodbye(A), goodbye(B);
    close_seqd();
    open_seqd();
    hello(A), hello(B);
    send_all(A), send_all(B);
    pass(1001);
    const int n_rows = n_rows_of(ASK_METRICS, (const int64_t[4]){1, 0, 9});
    CHECK_MSG(n_rows == 1, "%d rows of steps", n_rows);
    finish();
}

/* Checks a failure that may be a consequence of another failure. Until seqd has decided this, it
 * does not acknowledge the record of the failure or later records of this part, but it commits the
 * later ones. If seqd is killed before the decision, all these records are sent again. Each of
 * them must have an effect only once. */
static void test_taken_once(void)
{
    for (int order = 0; order < 2; order++) {
        struct gang *a, *b;
        begin();
        if (order == 0) { /* node b reports a missing peer before node a has reported that it is
                           * ready */
            to_run(&a, &b, 0);
            play_blobs(b), play_ready(b), rec_fail(b, 2, ERR_PEER, "rank 1 has gone");
            send_spool(B, b);
            play_blobs(a), play_ready(a);
        } else { /* rank 1, which is on node a itself, reports a missing peer before rank 0 takes a
                  * step */
            to_ready(&a, &b, 0);
            rec_fail(a, 1, ERR_PEER, "rank 2 has gone");
        }
        rec_step(a, 1);
        rec_event(a, 0, EV_CHECKPOINT, 1, "{\"path\":\"/x/step-1\"}");
        rec_event(a, 0, EV_NOTE, 1, "{\"code\":\"x\"}");
        rec_event(a, 0, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
        send_spool(A, a);
        settle();
        CHECK(is(1, "running") && job(1)->checkpoint_step == 2);
        CHECK(a->acked < a->n_records - 3);
        goodbye(A), goodbye(B);
        close_seqd();
        open_seqd();
        hello(A), hello(B);
        send_all(A), send_all(B);
        settle();
        const int64_t events[4] = {1, 0, 99, EV_CHECKPOINT}, notes[4] = {1, 0, 99, EV_NOTE};
        CHECK(n_rows_of(ASK_EVENTS, events) == 2);
        CHECK(n_rows_of(ASK_EVENTS, notes) == 1);
        CHECK(n_rows_of(ASK_METRICS, (const int64_t[4]){1, 0, 9}) == 1);
        /* If no better cause is reported, the missing peer still counts as a failure, and new
         * records are processed. */
        rec_step(a, 2);
        rec_event(a, 0, EV_CHECKPOINT, 3, "{\"path\":\"/x/step-3\"}");
        send_spool(A, a);
        CHECK(is(1, "running") && job(1)->checkpoint_step == 3);
        pass(1001);
        CHECK(is(1, "stopping") && strstr(job_err(job(1))->text, "has gone"));
        CHECK(n_rows_of(ASK_EVENTS, events) == 3);
        CHECK(n_rows_of(ASK_METRICS, (const int64_t[4]){1, 0, 9}) == 2);
        finish();
    }
}

/* Checks a node that reports late. seqd must not wait for it, because a report of rank 0 proves
 * that the ring is complete. */
static void test_late_ready(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    play_blobs(a), play_blobs(b);
    send_spool(A, a), send_spool(B, b);
    play_ready(a), play_run(a), send_spool(A, a);
    CHECK(is(1, "running"));
    CHECK(job(1)->step == 2 && job(1)->checkpoint_step == 1);
    play_ready(b), play_run(b), send_spool(B, b);
    CHECK(is(1, "succeeded"));
    finish();
}

/* Checks ranks that notice the death of a rank before that rank's node reports the death. The
 * ranks that noticed it must not be blamed. */
static void test_first_cause(void)
{
    for (int order = 0; order < 3; order++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 0);
        rec_fail(a, 0, ERR_PEER, "rank 3 has gone");
        rec_fail(a, 1, ERR_ABORTED, "rank 0 is gone");
        rec_exit(a, 0, 1, 0), rec_exit(a, 1, 1, 0);
        rec_exit(a, RANK_GANG, GANG_FAILED, 0);
        rec_exit(b, 3, 0, SIGKILL);
        rec_fail(b, 2, ERR_PEER, "rank 3 has gone");
        rec_exit(b, 2, 1, 0);
        if (order == 0) send_spool(A, a), settle(), send_spool(B, b);
        if (order == 1) send_spool(B, b), settle(), send_spool(A, a);
        if (order == 2) { /* one by one */
            int n = a->n_records;
            a->n_records = 1, send_spool(A, a), settle();
            CHECK(is(1, "running"));
            send_spool(B, b), settle();
            a->n_records = n, send_spool(A, a);
        }
        CHECK_MSG(is(1, "stopping"), "order %d", order);
        CHECK(job(1)->err_rank == 3 && !strcmp(job(1)->err_node, "b"));
        CHECK(strstr(job_err(job(1))->text, "signal 9") &&
              job(1)->err_cause == CAUSE_INFRASTRUCTURE);
        /* the slots become free when all parts have confirmed their ends */
        CHECK(control_reserved(w.control, "a") == 2);
        rec_exit(b, RANK_GANG, GANG_FAILED, 0), send_spool(B, b);
        CHECK(is(1, "starting") && job(1)->epoch == 3 && job(1)->restarts == 0);
        CHECK(a->forgotten && b->forgotten);
        finish();
    }
}

/* Checks a failed network between two nodes. No rank has died, but each node reports that a rank
 * of its peer was lost. */
static void test_partition(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, 1, 1, 0), rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    CHECK(is(1, "running"));
    rec_fail(b, 2, ERR_PEER, "rank 1 has been silent for 2.0 s");
    rec_exit(b, 2, 1, 0), rec_exit(b, 3, 1, 0);
    rec_exit(b, RANK_GANG, GANG_FAILED, 0), send_spool(B, b);
    settle();
    CHECK(job(1)->epoch == 3 && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
    CHECK(job(1)->restarts == 0 && !strcmp(job(1)->err_node, "a"));
    CHECK_STR(job_err(job(1))->text, "rank 2 has been silent for 2.0 s");
    finish();

    /* only one node reports a lost peer; after SUSPECT_MS seqd believes the report, and stops the
     * ranks of the other node */
    begin();
    to_ready(&a, &b, 0);
    w.obeys = false;
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, 1, 1, 0), rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    CHECK(is(1, "running") && !b->stopped);
    pass(SUSPECT_MS + 1001);
    CHECK(is(1, "stopping") && b->stopped);
    b->stopped = false;
    pass(6000); /* a STOP that had no effect is sent again */
    CHECK(b->stopped && control_reserved(w.control, "a") == 2);
    rec_exit(b, RANK_GANG, GANG_STOPPED, 0), send_spool(B, b);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    finish();

    begin(); /* if the agent of a node is not connected, either, that node is the cause */
    to_ready(&a, &b, 0);
    goodbye(B);
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    pass(SUSPECT_MS + 1001);
    CHECK(is(1, "stopping") && !strcmp(job(1)->err_node, "b"));
    CHECK_STR(job_err(job(1))->text, "node b is not connected: rank 2 has been silent for 2.0 s");
    finish();
}

static void rec_hang(struct gang *g, int rank, int64_t reached, const char *text)
{
    struct rank_fail f = {.code = ERR_TIMEOUT, .reached = reached};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(g, RANK_FAIL, rank, &f, sizeof f, NULL);
}

/* Checks a hang. Every gang names the slowest rank of its node. The slowest of these ranks must be
 * blamed. */
static void test_hang(void)
{
    for (int first = 0; first < 2; first++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 1);
        rec_hang(a, 0, 90, "rank 0 is the slowest");
        rec_hang(b, 3, 1, "rank 3 is the slowest (its process is stopped)");
        if (first == 0) send_spool(A, a), settle(), pass(1500), send_spool(B, b);
        if (first == 1) send_spool(B, b), settle(), pass(1500), send_spool(A, a);
        rec_fail(a, 1, ERR_PEER, "rank 3 has been silent for 30 s"), send_spool(A, a);
        CHECK(is(1, "running") && !a->stopped && !b->stopped);
        pass(HANG_WAIT_MS);
        CHECK(a->stopped && b->stopped && job(1)->err_rank == 3 && !strcmp(job(1)->err_node, "b"));
        CHECK(strstr(events(1), "\nhang {") && strstr(job_err(job(1))->text, "is stopped"));
        send_spool(A, a), send_spool(B, b);
        CHECK(is(1, "starting") && job(1)->epoch == 3 && job(1)->restarts == 1);
        finish();
    }
}

/* Checks a gang that was killed together with its agent. When the agent runs again, the gang must
 * count as lost. */
static void test_gang_lost(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    goodbye(B);
    rec_exit(b, RANK_GANG, GANG_LOST, 0);
    hello(B);
    send_all(B);
    settle();
    send_all(A);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    CHECK_STR(job_err(job(1))->text, "node b: the gang died; its ranks are dead");
    finish();
}

static void test_node_lost(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}");
    send_spool(A, a), settle();
    w.obeys = false;
    goodbye(B);
    pass(NODE_LOST_MS + 1001);
    CHECK(is(1, "running") && !a->stopped);
    hello(C); /* now there is a place for the job */
    pass(1001);
    CHECK(is(1, "stopping") && a->stopped);
    CHECK(!strcmp(job(1)->err_node, "b") && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    pass(1001);
    struct gang *c = gang_of(C, 1, 3);
    /* rank 0 is placed where the checkpoint is */
    CHECK(c && c->first == 2 && gang_of(A, 1, 3)->first == 0);
    /* The node connects again and still runs the lost attempt. The attempt's slots must not count
     * as free, whatever the node reports. */
    hello(B);
    settle();
    CHECK(control_reserved(w.control, "b") == 2 && !b->over);
    CHECK(submit(2, 0) == 2);
    struct gang *p = gang_of(A, 2, 1) ? gang_of(A, 2, 1) : gang_of(B, 2, 1);
    if (!p) p = gang_of(C, 2, 1);
    play_prepare(p);
    send_all(A), send_all(B), send_all(C);
    pass(1001);
    CHECK_STR(job(2)->reason_code, "waiting_for_slots");
    play_run(b), send_spool(B, b); /* only the end of its reports counts */
    settle();
    CHECK(b->forgotten &&
          control_reserved(w.control, "b") == (job(2)->n_places && *job(2)->node == 'b' ? 2 : 0));
    CHECK(is(1, "starting") && job(1)->step == 1);
    finish();
}

/* Checks a node that is given up, and a restart of seqd after that. The part of the job on this
 * node must remain fenced. */
static void test_lost_and_restarted(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    w.obeys = false;
    goodbye(B);
    pass(NODE_LOST_MS + 1001);
    hello(C);
    settle();
    CHECK(is(1, "stopping"));
    goodbye(C);
    A->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B);
    settle();
    send_all(B);
    CHECK(is(1, "stopping") && !job(1)->attempt->parts[0].ended && job(1)->attempt->parts[1].lost);
    CHECK(control_reserved(w.control, "b") == 4); /* the slots of the job and of the stale gang */
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle();
    CHECK(job(1)->state == JOB_QUEUED && control_reserved(w.control, "b") == 2);
    rec_exit(b, RANK_GANG, GANG_STOPPED, 0), send_spool(B, b);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    finish();
}

#define AWAY                                                                                       \
    "node a, which holds its checkpoint of step 1, is down; to start again on another node: "      \
    "seqctl restart 1"

static void test_waits_for_checkpoints(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    hello(C);
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, a), settle();
    goodbye(A);
    pass(NODE_LOST_MS + 1001);
    rec_fail(b, 2, ERR_PEER, "rank 1 has gone");
    send_all(B);
    pass(SUSPECT_MS + 1);
    send_all(B);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    B->up = C->up = false;
    close_seqd(),
        /* after the restart, seqd has had no session with the lost node, but must nevertheless
         * know this node */
        open_seqd();
    hello(B), hello(C);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    rec_exit(a, RANK_GANG, GANG_LOST, 0);
    hello(A);
    send_all(A);
    settle();
    CHECK(is(1, "starting") && gang_of(A, 1, 3) && gang_of(A, 1, 3)->first == 0);
    finish();
}

/* Checks a job that begins from a checkpoint by job:ID. It must be placed on the node that has the
 * checkpoint, also after a restart of seqd. While that node is not connected, the job must
 * wait. */
static void test_goes_to_its_source(void)
{
    begin();
    hello(A), hello(C);
    submit_source = "b";
    CHECK(submit(1, 0) == 1);
    submit_source = NULL;
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_MSG(strstr(job(1)->reason, "node b") && strstr(job(1)->reason, "of step 20"), "%s",
              job(1)->reason);
    A->up = C->up = false;
    close_seqd(), open_seqd();
    CHECK_STR(job(1)->source, "b");
    hello(A), hello(C);
    pass(1001);
    CHECK(is(1, "queued"));
    hello(B);
    pass(1001);
    CHECK(!is(1, "queued"));
    CHECK_STR(job(1)->node, "b");
    finish();
}

static void on_restart(void *arg, const struct job *j, const struct err *e)
{
    *(enum err_code *)arg = j ? ERR_NONE : e->code;
}

static enum err_code restart(int64_t id)
{
    enum err_code code = ERR_N;
    order_restart(control_commits(w.control), id, "u", on_restart, &code);
    settle();
    return code;
}

/* Checks a node that has the checkpoint and does not connect again. The job may start on a
 * different node only after an order to restart it. A restart of seqd must not lose this order. */
static void test_restart_without_checkpoint(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    hello(C);
    /* the job runs, so it cannot be restarted */
    CHECK(restart(1) == ERR_CONFLICT && restart(9) == ERR_NOT_FOUND);
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, a), settle();
    goodbye(A);
    pass(NODE_LOST_MS + 1001);
    rec_fail(b, 2, ERR_PEER, "rank 1 has gone");
    send_all(B);
    pass(SUSPECT_MS + 1);
    send_all(B);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    CHECK(restart(1) == ERR_NONE && job(1)->checkpoint_step == 0 && !*job(1)->checkpoint_node);
    B->up = C->up = false;
    close_seqd(), open_seqd();
    CHECK(restart(1) == ERR_CONFLICT); /* there is no checkpoint left to give up */
    hello(B), hello(C);
    pass(1001);
    CHECK(!is(1, "queued") && strcmp(job(1)->node, "a") != 0);
    finish();
}

/* Checks a job whose checkpoint lies in a shared directory, when the node of rank 0 is lost. It
 * continues at the checkpoint on the other nodes if they share the directory. A restart of seqd
 * does not lose that. Otherwise it waits, and says for which nodes. */
static void test_continues_where_shared(void)
{
    for (int others = 0; others < 2; others++) {
        struct gang *a, *b;
        begin();
        A->shared = B->shared = 77;
        C->shared = others ? 77 : 78;
        to_ready(&a, &b, 0);
        hello(C);
        rec_step(a, 1);
        rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, a), settle();
        CHECK(job(1)->checkpoint_shared == 77);
        goodbye(A);
        pass(NODE_LOST_MS + 1001);
        send_all(B);
        pass(SUSPECT_MS + 1);
        B->up = C->up = false;
        close_seqd(), open_seqd();
        CHECK(job(1)->checkpoint_shared == 77);
        hello(B), hello(C), send_all(B);
        pass(NODE_LOST_MS + 1001);
        send_all(B);
        pass(1001);
        CHECK_MSG((strcmp(job(1)->node, "a") != 0) == (others == 1), "on %s: %s", job(1)->node,
                  job(1)->reason);
        CHECK(job(1)->checkpoint_step == 1);
        finish();
    }
}

/* Checks the ends of two parts, in both orders, with a restart of seqd after every record. The
 * final state of the job must always be the same. */
static void test_restart_after_each_record(void)
{
    int n_a = 9 + 2 * 1, total = 2 * n_a;
    for (int stop = 0; stop <= total && !test_failures_now; stop++) {
        struct gang *a, *b;
        begin();
        to_run(&a, &b, 0);
        bool restarted = false;
        for (int phase = 0, sent = 0; phase < 6; phase++) {
            struct sim *n = phase % 2 ? A : B; /* b first, so that the ends come in both orders */
            struct gang *g = phase % 2 ? a : b;
            if (phase / 2 == 0) play_blobs(g);
            if (phase / 2 == 1) play_ready(g);
            if (phase / 2 == 2) play_run(g);
            for (int end = g->n_records; g->n_sent < end; sent++) {
                g->n_records = g->n_sent + 1;
                bool over = g->over;
                g->over = over && g->n_records == end;
                send_spool(n, g);
                g->n_records = end;
                g->over = over;
                if (restarted || sent != stop) continue;
                settle();
                int at = g->n_sent;
                restarted = true;
                close_seqd();
                open_seqd();
                hello(A), hello(B);
                settle();
                /* Sends the records of node n up to the given one, and all records of the second
                 * node. */
                struct sim *other = n == A ? B : A;
                send_all(other);
                g->n_records = at;
                g->over = over && at == end;
                send_spool(n, g);
                g->n_records = end;
                g->over = over;
            }
        }
        CHECK_MSG(is(1, "succeeded"), "restart after record %d: %s", stop, stored);
        CHECK(a->forgotten && b->forgotten);
        CHECK(A->n_gangs == 2 && B->n_gangs == 1);
        events(1);
        CHECK_MSG(count(stored, "\n") == 7, "restart after record %d: %s", stop, stored);
        finish();
    }
}

static void test_lost_assign(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    unsigned char key[RANK_KEY_SIZE], nothing[RANK_KEY_SIZE] = {0};
    memcpy(key, a->key, sizeof key);
    CHECK(!memcmp(key, b->key, sizeof key) && memcmp(key, nothing, sizeof key));
    CHECK(memcmp(key, gang_of(A, 1, 1)->key, sizeof key));
    B->n_gangs = 0; /* b never received it */
    A->up = B->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B);
    settle();
    b = gang_of(B, 1, 2);
    CHECK(b && b->first == 2 && !memcmp(b->key, key, sizeof key) && A->n_assigns == 2);
    /* Documents and events, which people read, must not contain the key. */
    char hex[8];
    snprintf(hex, sizeof hex, "%02x%02x%02x", key[0], key[1], key[2]);
    CHECK(!strstr(doc(1), hex) && !strstr(events(1), hex));
    finish();
}

/* Checks the secret in a state directory. The secret must never change, and no other user may be
 * able to read it. */
static void test_secret(void)
{
    unsigned char one[SECRET_SIZE], two[SECRET_SIZE], k[4][RANK_KEY_SIZE];
    char dir[] = "/tmp/seqd-secret-XXXXXX", path[64];
    struct stat st;
    struct err e;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/secret", dir);
    mode_t old = umask(0);
    CHECK(!secret_open(dir, one, &e) && !secret_open(dir, two, &e) &&
          !memcmp(one, two, sizeof one));
    umask(old);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600 && st.st_size == SECRET_SIZE);
    for (int i = 0; i < 4; i++) secret_attempt_key(one, 1 + i / 2, 1 + i % 2, k[i]);
    for (int i = 0; i < 6; i++) CHECK(memcmp(k[i % 4], k[(i % 4 + 1 + i / 4) % 4], RANK_KEY_SIZE));
    CHECK(!chmod(path, 0644) && secret_open(dir, two, &e) == -1 && e.code == ERR_INVALID);
    CHECK(!chmod(path, 0600) && !truncate(path, 31));
    CHECK(secret_open(dir, two, &e) == -1 && e.code == ERR_CORRUPT);
    unlink(path);
    CHECK(!secret_open(dir, two, &e) && memcmp(one, two, sizeof one));
    unlink(path);
    rmdir(dir);
}

static void test_cancel(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    order_cancel(control_commits(w.control), 1, "u", on_done, NULL);
    settle();
    CHECK(a->over && b->over);
    send_spool(A, a);
    CHECK(is(1, "stopping"));
    send_spool(B, b);
    CHECK(is(1, "cancelled") && a->forgotten && b->forgotten);
    finish();
}

/* Checks that a full disk is a fault of the node, which the error must name. Other errors of files
 * are faults of the job. Ranks of the previous version report a full disk as ERR_IO. */
static void test_disk(void)
{
    static const struct {
        enum err_code code;
        const char *text;
        int cause;
        enum err_code is;
    } cases[] = {{ERR_NO_SPACE, "write /j/x", CAUSE_INFRASTRUCTURE, ERR_NO_SPACE},
                 {ERR_IO, "write /j/step-2.e2.tmp/x: No space left on device", CAUSE_INFRASTRUCTURE,
                  ERR_NO_SPACE},
                 {ERR_IO, "open /j/step-2.e2.tmp: Read-only file system", CAUSE_INFRASTRUCTURE,
                  ERR_NO_SPACE},
                 {ERR_IO, "write /j/x: Disk quota exceeded", CAUSE_INFRASTRUCTURE, ERR_NO_SPACE},
                 {ERR_IO, "read /data/tokens.bin: Input/output error", CAUSE_USER, ERR_IO}};
    for (int i = 0; i < 5; i++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 1);
        rec_fail(b, 2, cases[i].code, cases[i].text);
        rec_exit(b, RANK_GANG, GANG_FAILED, 0);
        send_spool(B, b), settle(), send_spool(A, a), settle();
        CHECK((int)job(1)->err_cause == cases[i].cause && !strcmp(job(1)->err_node, "b"));
        CHECK(job(1)->restarts == (cases[i].cause == CAUSE_USER) && job(1)->epoch == 3);
        CHECK(strstr(job_err(job(1))->text, cases[i].text));
        CHECK(job_err(job(1))->code == cases[i].is);
        CHECK((strncmp(job_err(job(1))->text, "node b: ", 8) == 0) == (i < 4));
        finish();
    }
}

/* Checks late starts. A node that prepares its data must not count as late. An idle node must
 * count as late, and must be named. */
static void test_preparing(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    play_blobs(a), send_spool(A, a);
    rec_event(b, 2, EV_NOTE, 0, "{\"text\":\"x\",\"code\":\"preparing\"}"), send_spool(B, b);
    for (int i = 0; i < 3; i++) {
        pass(500 * 1000);
        CHECK(is(1, "starting") && job(1)->epoch == 2);
    }
    rec_event(b, 2, EV_NOTE, 0, "{\"code\":\"prepared\"}"), send_spool(B, b);
    pass(590 * 1000);
    CHECK(is(1, "starting") && job(1)->epoch == 2);
    w.obeys = false;
    pass(20 * 1000);
    CHECK(is(1, "stopping") && job_err(job(1))->code == ERR_TIMEOUT);
    CHECK_MSG(strstr(job_err(job(1))->text,
                     "0 of 4 ranks were ready after 600 s; rank 0 on node a was not"),
              "%s", job_err(job(1))->text);
    finish();
}

/* Checks that a node can report only about its own ranks. */
static void test_not_its_rank(void)
{
    struct gang *a, *b;
    char back[16];
    struct err e;
    begin();
    w.strangers = true;
    to_run(&a, &b, 0);
    record(b, RANK_BLOB, 0, "evil", 4, NULL);
    rec_fail(b, 1, ERR_INVALID, "not mine to say");
    send_spool(B, b);
    CHECK(is(1, "starting"));
    struct msg m = {.type = MSG_LOG, .job = 1, .epoch = 2, .rank = 0, .data = "evil", .size = 4};
    control_link_calls.message(w.control, "b", &m);
    CHECK(logs_read(w.logs, 1, 2, 0, 0, back, sizeof back, &e) == -1);
    m.rank = 3, m.data = "good";
    control_link_calls.message(w.control, "b", &m);
    CHECK(logs_read(w.logs, 1, 2, 3, 0, back, sizeof back, &e) == 4);
    B->n_log_acks = A->n_log_acks = 0;
    pass(1001);
    /* the acknowledgement goes to the node that has the rank */
    CHECK(B->n_log_acks == 1 && A->n_log_acks == 0);
    finish();
}

/* ---- everything at once ---------------------------------------------------------------------- */

static unsigned seed = 11;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static void tally_job(const struct job *j, const char *node, int32_t *slots)
{
    bool placed = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    for (int i = 0; placed && j->task == TASK_RUN && i < j->n_places; i++)
        if (!strcmp(j->places[i].node, node)) *slots += j->places[i].n_ranks;
}

/* Checks the number of reserved slots. It must follow from the jobs' states, and must be at least
 * the number of ranks that run. */
static void check_slots(int64_t last_job)
{
    for (int i = 0; i < NODES; i++) {
        const struct sim *n = &w.node[i];
        int32_t promised = 0, reserved = control_reserved(w.control, n->name);
        for (int64_t id = 1; id <= last_job; id++)
            if (job(id)) tally_job(job(id), n->name, &promised);
        const struct node *known = node_find((struct nodes *)control_nodes(w.control), n->name);
        CHECK(reserved == promised + (known ? node_stale_slots(known) : 0));
        CHECK_MSG(!n->up || running(n) <= reserved, "%s runs %d ranks, %d slots are reserved",
                  n->name, running(n), reserved);
    }
}

/* the number of runs that reached their end, and the number of gangs that began on several
 * nodes */
static int n_played, n_spread;

/* Lets something happen to one gang of one node. */
static void random_progress(struct sim *n)
{
    struct gang *g = n->n_gangs ? &n->gang[n->n_gangs - 1 - below(n->n_gangs > 3 ? 3 : n->n_gangs)]
                                : NULL;
    if (!g || g->over || !n->up || g->n_records > SPOOL - 12) return;
    if (g->task == TASK_PREPARE) {
        play_prepare(g);
    } else if (!g->n_records) {
        n_spread += g->n_local < g->n_ranks;
        play_blobs(g);
    } else if (g->blobs && g->n_records == g->n_local) {
        play_ready(g);
    } else if (below(8) == 0) {
        int rank = g->first + below(g->n_local);
        if (below(2))
            rec_exit(g, rank, 0, SIGKILL);
        else
            rec_fail(g, rank, below(2) ? ERR_PEER : ERR_INTERNAL, "something");
        rec_exit(g, RANK_GANG, below(6) ? GANG_FAILED : GANG_LOST, 0);
    } else if (g->n_records >= 2 * g->n_local && below(3) == 0) {
        n_played++;
        play_run(g);
    }
    send_spool(n, g);
}

static void random_act(int64_t *last_job)
{
    struct sim *n = &w.node[below(NODES)];
    int what = below(40);
    if (what == 0 && *last_job < 12) *last_job = submit(1 + below(6), below(3));
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
    if (what > 8) random_progress(n);
    if (what % 4 == 0) send_all(n);
}

/* Runs random events. Checks that no slot is given twice, and that no slot in use counts as free.
 * When the faults end, every job must end and every slot must become free. */
static void test_random(void)
{
    int rounds = small_tests() ? 10 : 100;
    if (getenv("SEQD_TEST_SEED")) seed = (unsigned)atoi(getenv("SEQD_TEST_SEED"));
    for (int round = 0; round < rounds && !test_failures_now; round++) {
        int64_t last_job = 0;
        begin();
        for (int i = 0; i < NODES; i++) hello(&w.node[i]);
        bool room = true;
        for (int i = 0; i < 400 && room && !test_failures_now; i++) {
            random_act(&last_job);
            loop_turn(w.loop, 0);
            if (i % 5 == 0) settle(), check_slots(last_job);
            for (int k = 0; k < NODES; k++) room = room && w.node[k].n_gangs < GANGS / 2;
        }
        w.obeys = true;
        for (int64_t id = 1; id <= last_job; id++)
            order_cancel(control_commits(w.control), id, "u", on_done, NULL);
        for (int i = 0; i < NODES; i++)
            if (!w.node[i].up) hello(&w.node[i]);
        for (int i = 0; i < 8; i++) {
            pass(5001);
            for (int k = 0; k < NODES; k++)
                control_link_calls.message(w.control, w.node[k].name,
                                           &(struct msg){.type = MSG_HEARTBEAT}),
                    send_all(&w.node[k]);
        }
        /* time for one more EXPECT, which has the same content as the lost messages */
        pass(31000);
        for (int k = 0; k < NODES; k++) send_all(&w.node[k]);
        settle();
        CHECK_MSG(control_n_live(w.control) == 0, "round %d: %d jobs never end", round,
                  control_n_live(w.control));
        for (int i = 0; i < NODES; i++) {
            CHECK(control_reserved(w.control, w.node[i].name) == 0);
            CHECK(running(&w.node[i]) == 0);
        }
        finish();
    }
    CHECK_MSG(n_played > rounds && n_spread > rounds, "%d played, %d spread", n_played, n_spread);
}

int main(void)
{
    seqd_test_init();
    RUN(test_life);
    RUN(test_proof_is_kept);
    RUN(test_taken_once);
    RUN(test_late_ready);
    RUN(test_first_cause);
    RUN(test_partition);
    RUN(test_hang);
    RUN(test_gang_lost);
    RUN(test_node_lost);
    RUN(test_lost_and_restarted);
    RUN(test_waits_for_checkpoints);
    RUN(test_goes_to_its_source);
    RUN(test_restart_without_checkpoint);
    RUN(test_continues_where_shared);
    RUN(test_restart_after_each_record);
    RUN(test_lost_assign);
    RUN(test_secret);
    RUN(test_cancel);
    RUN(test_disk);
    RUN(test_preparing);
    RUN(test_not_its_rank);
    RUN(test_random);
    return test_done("seqd_gangs");
}
