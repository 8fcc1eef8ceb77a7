/* test_seqd_withdraw: tests orders of clients that cannot be written, because the disk is full
 * without a reserve or because another process has locked the database. Each is withdrawn with its
 * fold, and the state in memory equals a replay of the store. Reports of nodes wait. */
#include <sqlite3.h>
#include <sys/wait.h>
#include "daemon/state/cluster.h"
#include "daemon/state/doc.h"
#include "tests/lib/bad_disk.h"
#include "tests/lib/sim.h"

enum { DUMP = 1 << 20 };

/* ---- another process, which locks the database when it is told to ---------------------------- */

static int to_locker, from_locker;

static void locker(int in, int out)
{
    char path[128];
    sqlite3 *db = NULL;
    for (ssize_t n; (n = read(in, path, sizeof path - 1)) > 0;) {
        path[n] = 0;
        const bool lock = *path != '-';
        bool good = !lock || !sqlite3_open(path, &db);
        good = good && !sqlite3_exec(db, lock ? "BEGIN IMMEDIATE" : "ROLLBACK", NULL, NULL, NULL);
        if (!lock) sqlite3_close(db);
        if (write(out, good ? "y" : "n", 1) != 1) break;
    }
    _exit(0);
}

static void start_locker(void)
{
    int in[2], out[2];
    CHECK(!pipe(in) && !pipe(out));
    if (!fork()) {
        close(in[1]);
        close(out[0]);
        locker(in[0], out[1]);
    }
    close(in[0]);
    close(out[1]);
    to_locker = in[1];
    from_locker = out[0];
}

static void tell_locker(const char *text)
{
    char answer = 0;
    CHECK(write(to_locker, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(read(from_locker, &answer, 1) == 1 && answer == 'y');
}

/* ---- faults ---------------------------------------------------------------------------------- */

enum fault { FULL, FULL_LATER, LOCKED, FAULT_N };

static enum fault fault;

/* From now on nothing can be written. With FULL_LATER the first writes of a group succeed. */
static void begin_fault(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    if (fault == LOCKED) {
        tell_locker(path);
        return;
    }
    pthread_mutex_lock(&disk.mutex);
    disk.full = fault == FULL;
    if (fault == FULL_LATER) {
        disk.faults = DISK_WRITE;
        disk.files = SQLITE_OPEN_WAL;
        disk.n_calls = 0;
        disk.fail_at = 3;
        disk.goes_on = true;
        disk.code = SQLITE_FULL;
    }
    pthread_mutex_unlock(&disk.mutex);
}

static void end_fault(void)
{
    if (fault == LOCKED)
        tell_locker("-");
    else
        bad_disk_mend();
}

/* ---- the state in memory --------------------------------------------------------------------- */

/* Cuts the progress and the last metrics out of a document, because its pace is that of this
 * attempt as seqd has seen it. */
static int64_t cut_progress(char *doc)
{
    char *from = strstr(doc, "\"progress\":"), *to = strstr(doc, "\"error\":");
    CHECK(from && to && from < to);
    memmove(from, to, strlen(to) + 1);
    return (int64_t)strlen(doc);
}

static char *dump_jobs(char *to)
{
    char spec[JSON_SPEC_SIZE];
    for (int64_t id = 1; id <= store_last_job(w.store) + 16; id++) {
        const struct job *j = control_job(w.control, id);
        if (!j) continue;
        job_spec(j); /* the copy below must not unpack a spec of its own */
        struct job fold = *j;
        fold.reason_code = fold.reason = ""; /* a pass sets it */
        CHECK(doc_job(&fold, to, DUMP / 32) > 0);
        to += cut_progress(to);
        CHECK(json_spec_write(job_spec(j), JSON_STORED, spec, sizeof spec) > 0);
        to += sprintf(to, "\n%s left %d version %lld\n", spec, j->n_left, (long long)j->version);
    }
    return to;
}

/* Writes the jobs, the cordons and the quarantines. */
static const char *dump(char *out)
{
    const struct cluster *k = control_cluster(w.control);
    const struct quarantined *q;
    char *to = dump_jobs(out);
    for (int i = 0; i < NODES; i++) {
        const struct cordon *c = cordon_find(k->cordons, w.node[i].name);
        if (c) to += sprintf(to, "%s drains %d %s\n", c->node, c->drains, c->reason);
    }
    for (int i = 0; (q = quarantine_at(k->quarantine, i)); i++)
        to += sprintf(to, "%s quarantine %lld\n", q->node, (long long)q->at_ms);
    *to = 0;
    return out;
}

static char before[DUMP], after[DUMP];

/* Restarts seqd, and lets the nodes send the unacknowledged records again. While the disk is full,
 * steps wait in memory and in the nodes' spools. */
static void check_replay(const char *name)
{
    const char *is = dump(before);
    close_seqd();
    open_seqd();
    for (int i = 0; i < NODES; i++)
        if (w.node[i].up) hello(&w.node[i]);
    settle();
    send_all(A);
    settle();
    CHECK_MSG(!strcmp(is, dump(after)), "%s, fault %d: in memory:\n%s\na replay:\n%s", name, fault,
              before, after);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static enum err_code code;
static int n_answers;

static void on_answer(void *arg, const struct job *j, const struct err *e)
{
    n_answers++;
    code = e ? e->code : ERR_NONE;
}

static void cancel_queued(struct commits *all)
{
    order_cancel(all, 2, "u", on_answer, NULL);
}

static void cancel_running(struct commits *all)
{
    order_cancel(all, 1, "u", on_answer, NULL);
}

static void suspend_queued(struct commits *all)
{
    order_suspend(all, 2, "u", on_answer, NULL);
}

static void suspend_running(struct commits *all)
{
    order_suspend(all, 1, "u", on_answer, NULL);
}

static void resume_suspended(struct commits *all)
{
    order_resume(all, 3, "u", on_answer, NULL);
}

static void edit(struct commits *all)
{
    order_edit(all, jobs_find(&all->cluster->jobs, 2),
               &(struct order_edit){"u", "{\"priority\":7,\"labels\":{\"a\":\"b\"}}"}, on_answer,
               NULL);
}

static void cordon_a(struct commits *all)
{
    order_cordon(all, &(struct cordon){.node = "a", .drains = true, .by = "u"}, on_answer, NULL);
}

static void cordon_again(struct commits *all)
{
    order_cordon(all, &(struct cordon){.node = "b", .by = "v", .reason = "other"}, on_answer, NULL);
}

static void uncordon(struct commits *all)
{
    order_uncordon(all, "b", on_answer, NULL);
}

static void release(struct commits *all)
{
    order_release(all, "c", on_answer, NULL);
}

static void many_of_one(struct commits *all)
{
    suspend_running(all);
    order_resume(all, 1, "u", on_answer, NULL);
    cancel_running(all);
    order_cancel(all, 1, "u", on_answer, NULL); /* it is cancelled already, so this waits */
}

static const struct {
    const char *name;
    void (*give)(struct commits *all);
    int n;
    bool later; /* it takes effect when it is on disk */
} orders[] = {{"cancel queued", cancel_queued, 1},   {"cancel running", cancel_running, 1},
              {"suspend queued", suspend_queued, 1}, {"suspend running", suspend_running, 1},
              {"resume", resume_suspended, 1},       {"edit", edit, 1},
              {"drain", cordon_a, 1, true},          {"cordon again", cordon_again, 1, true},
              {"uncordon", uncordon, 1, true},       {"release", release, 1, true},
              {"many of one job", many_of_one, 4}};

/* Job 1 runs on node a, job 2 is queued, and job 3 is suspended. Node b is cordoned, and c is in
 * quarantine. */
static void make_cluster(void)
{
    struct commits *all;
    begin();
    all = control_commits(w.control);
    hello(A);
    CHECK(submit(2, 0) == 1);
    play_prepare(gang_of(A, 1, 1));
    send_all(A), settle();
    play_blobs(gang_of(A, 1, 2));
    send_all(A), settle();
    play_ready(gang_of(A, 1, 2));
    rec_step(gang_of(A, 1, 2), 1);
    send_all(A), settle();
    CHECK(is(1, "running"));
    order_cordon(all, &(struct cordon){.node = "a", .by = "u"}, on_answer, NULL);
    hello(B);
    order_cordon(all, &(struct cordon){.node = "b", .by = "u", .reason = "repair"}, on_answer,
                 NULL);
    settle();
    CHECK(submit(2, 0) == 2 && submit(2, 0) == 3);
    order_suspend(all, 3, "u", on_answer, NULL);
    settle();
    CHECK(is(2, "queued") && is(3, "suspended"));
    struct store_txn *t = store_begin();
    quarantine_load(all->cluster->quarantine, "c", 5000, "for a test");
    store_quarantine_add(t, "c", 5000, "for a test");
    for (int64_t i = 1; i <= 2; i++) {
        quarantine_load_blame(all->cluster->quarantine, "c", i, 5000 + i);
        store_blame_add(t, "c", i, 5000 + i);
    }
    store_commit(w.store, t, NULL, NULL);
    settle();
}

/* Lets the time pass until n orders were answered. */
static void wait_answers(int n)
{
    while (n_answers < n) {
        w.now += 100;
        loop_turn(w.loop, 2);
    }
}

static enum err_code expected(void)
{
    return fault == LOCKED ? ERR_TIMEOUT : ERR_NO_SPACE;
}

static void withdraw_one(int i)
{
    dump(before);
    begin_fault();
    n_answers = 0;
    code = ERR_NONE;
    orders[i].give(control_commits(w.control));
    CHECK_MSG(!n_answers, "%s is answered at once", orders[i].name);
    CHECK_MSG(orders[i].later == !strcmp(before, dump(after)), "%s", orders[i].name);
    wait_answers(orders[i].n);
    CHECK_MSG(code == expected(), "%s, fault %d: %s", orders[i].name, fault, err_name(code));
    CHECK_MSG(!strcmp(before, dump(after)), "%s, fault %d: before:\n%s\nafter:\n%s", orders[i].name,
              fault, before, after);
    end_fault();
    settle();
    CHECK_MSG(!strcmp(before, dump(after)), "%s, fault %d: it came back:\n%s", orders[i].name,
              fault, after);
    check_replay(orders[i].name);
}

static void test_orders(void)
{
    make_cluster();
    for (fault = 0; fault < FAULT_N; fault++) {
        for (size_t i = 0; i < sizeof orders / sizeof *orders && !test_failures_now; i++)
            withdraw_one((int)i);
    }
    fault = FULL;
    /* afterwards each of them can be given */
    n_answers = 0;
    cancel_queued(control_commits(w.control));
    settle();
    CHECK(n_answers == 1 && code == ERR_NONE && is(2, "cancelled"));
    finish();
}

/* Checks reports of a node that come while an order of their job cannot be written. They wait, and
 * are applied to the job without the order. */
static void test_reports_wait(void)
{
    for (fault = 0; fault < FAULT_N; fault++) {
        make_cluster();
        struct gang *g = gang_of(A, 1, 2);
        begin_fault();
        n_answers = 0;
        cancel_running(control_commits(w.control));
        rec_step(g, 2);
        rec_event(g, 0, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
        send_all(A);
        CHECK(job(1)->state == JOB_STOPPING && job(1)->step == 1);
        wait_answers(1);
        CHECK(code == expected() && job(1)->state == JOB_RUNNING);
        CHECK(job(1)->step == 2 && job(1)->checkpoint_step == 2);
        CHECK(g->acked < g->n_records); /* it is not on disk */
        end_fault();
        pass(1000);
        CHECK(g->acked == g->n_records && is(1, "running"));
        check_replay("reports");
        CHECK(!gang_of(A, 1, 2)->stopped);
        finish();
    }
    fault = FULL;
}

/* Checks an event that does not come from a client and is folded on an order. The order is not
 * withdrawn any more. Both wait. */
static void test_based(void)
{
    make_cluster();
    struct commits *all = control_commits(w.control);
    struct event note = {.type = EV_NOTE, .rank = -1, .detail = "{\"code\":\"x\"}"};
    begin_fault();
    n_answers = 0;
    suspend_running(all);
    CHECK(!commit_apply(all, jobs_find(&all->cluster->jobs, 1), &note, NULL, NULL));
    cancel_running(all); /* newer than the note, so it can be withdrawn */
    wait_answers(1);
    CHECK(code == ERR_NO_SPACE && job(1)->state == JOB_STOPPING);
    CHECK(job(1)->target == JOB_SUSPENDED);
    for (int i = 0; i < 100; i++) w.now += 100, loop_turn(w.loop, 1);
    CHECK(n_answers == 1);
    end_fault();
    settle();
    CHECK(n_answers == 2 && code == ERR_NONE && strstr(events(1), "\"code\":\"x\""));
    CHECK(gang_of(A, 1, 2)->stopped || job(1)->saving || job(1)->state == JOB_SUSPENDED);
    check_replay("an event on an order");
    finish();
}

int main(void)
{
    seqd_test_init();
    start_locker();
    bad_disk_install();
    disk.quick = true;
    RUN(test_orders);
    RUN(test_reports_wait);
    RUN(test_based);
    return test_done("seqd_withdraw");
}
