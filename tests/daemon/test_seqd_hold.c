/* test_seqd_hold: tests jobs that are asked to save and stop. Checks the orders that their node
 * gets, including an order to stop without saving. Checks the states of the jobs after that, also
 * if seqd is restarted. */
#include "api/core/job.h"
#include "tests/lib/one_node.h"

/* Changes the time limit of a job. */
static void set_wall(int64_t id, int64_t wall_s)
{
    struct job *j = (struct job *)control_job(w.control, id);
    job_spec_edit(j)->limits.wall_s = wall_s;
    job_set_facts(j);
}

static char notes[8192]; /* the data of all notes */

static void on_events(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    notes[0] = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        const size_t n = strlen(notes);
        for (int k = 0; k < 2; k++)
            if (rows->row[i].text[k] && strstr(rows->row[i].text[k], "\"code\":\"save_failed\""))
                snprintf(notes + n, sizeof notes - n, "%s\n", rows->row[i].text[k]);
    }
}

static const char *notes_of(int64_t job)
{
    ask(ASK_EVENTS, job, on_events, NULL);
    return notes;
}

static void hold(int64_t id)
{
    got_code = ERR_INTERNAL;
    order_suspend(control_commits(w.control), id, "u", on_done, NULL);
    settle();
}

static void resume(int64_t id)
{
    got_code = ERR_INTERNAL;
    order_resume(control_commits(w.control), id, "u", on_done, NULL);
    settle();
}

static struct sim_attempt *running(void)
{
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_step(a, 1);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    return a;
}

/* Plays the ranks' records after SAVE, without the last `missing` ones. */
static void play_save(struct sim_attempt *a, int64_t step, int missing)
{
    rec_step(a, step);
    rec_event(a, EV_CHECKPOINT, step, "{\"path\":\"/x/step\"}");
    for (int i = 0; i < a->n_ranks; i++) rec_exit(a, i, RANK_EXIT_SAVED, 0);
    rec_exit(a, RANK_GANG, GANG_SAVED, 0);
    a->n_records -= missing;
}

static void test_suspend_and_resume(void)
{
    begin();
    struct sim_attempt *a = running();
    hold(1);
    CHECK(got_code == ERR_NONE && a->saving && !a->stopped);
    CHECK_STR(state_of(1), "stopping");
    CHECK(strstr(stored_doc, "\"target\":\"suspended\"") &&
          strstr(stored_doc, "\"phase\":\"saving\""));
    play_save(a, 2, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "suspended");
    CHECK(a->forgotten && control_reserved(w.control, "n1") == 0 && !*notes_of(1));
    CHECK(control_job(w.control, 1)->checkpoint_step == 2);
    hold(1);
    CHECK(got_code == ERR_NONE);
    w.now += 100000;
    settle();
    CHECK_STR(state_of(1), "suspended");
    CHECK(w.n_assigns == 2);
    close_seqd(); /* the job must remain held after a restart */
    open_seqd();
    hello();
    CHECK_STR(state_of(1), "suspended");
    resume(1);
    CHECK(got_code == ERR_NONE && w.n_assigns == 3 && control_job(w.control, 1)->restarts == 0);
    CHECK_STR(state_of(1), "starting");
    resume(1); /* the second resume changes nothing */
    CHECK(got_code == ERR_NONE && w.n_assigns == 3);
    finish();
}

/* Checks a seqd that is restarted at any point of a save. seqd must send the order again, or the
 * node must send its reports again. */
static void test_restarted_in_between(void)
{
    for (int missing = 0; missing < 6; missing++) {
        begin();
        struct sim_attempt *a = running();
        hold(1);
        play_save(a, 2, missing);
        send_spool(a);
        settle();
        goodbye();
        close_seqd();
        a->saving = false;
        open_seqd();
        a->n_records += missing;
        hello();
        settle();
        if (missing) CHECK(a->saving); /* if the attempt's end is known, no order is needed */
        send_spool(a);
        CHECK_STR(state_of(1), "suspended");
        CHECK(control_job(w.control, 1)->checkpoint_step == 2 && !*notes_of(1));
        finish();
    }
}

/* Checks jobs that are not saved: a job that does not save in time, a job that fails while it
 * saves, a job whose agent cannot save, and a job whose ranks end before they save. Each job must
 * nevertheless be suspended. Its note must give the reason, and the step of its last
 * checkpoint. */
static void test_not_saved(void)
{
    static const char *const says[] = {"it took longer than the 600 s of --save-grace",
                                       "no room on", "a version that cannot save on request",
                                       "its ranks ended before"};
    for (int i = 0; i < 4; i++) {
        begin();
        w.abi = i == 2 ? 6 : 0;
        struct sim_attempt *a = running();
        rec_event(a, EV_CHECKPOINT, 1, "{\"path\":\"/x/step\"}");
        send_spool(a);
        hold(1);
        CHECK(a->saving == (i != 2) && a->stopped == (i == 2));
        if (i == 0) {
            w.now += 599000;
            settle();
            CHECK(!a->stopped);
            w.now += 2000;
            settle();
            CHECK(a->stopped);
        }
        if (i == 1) {
            rec_fail(a, 0, ERR_IO, "no room on the disk");
            rec_exit(a, 0, 1, 0);
            rec_fail(a, 1, ERR_PEER, "rank 0 is silent");
        }
        rec_exit(a, RANK_GANG, i == 1 ? GANG_FAILED : i == 3 ? GANG_LOST : GANG_STOPPED, 0);
        send_spool(a);
        CHECK_STR(state_of(1), "suspended");
        CHECK_MSG(strstr(notes_of(1), says[i]) && strstr(notes, "checkpoint is of step 1"), "%s",
                  notes);
        CHECK(control_job(w.control, 1)->restarts == 0);
        resume(1);
        CHECK_STR(state_of(1), "starting");
        finish();
    }
}

/* Checks a job that finishes before it reads the request to save. */
static void test_done_in_between(void)
{
    begin();
    struct sim_attempt *a = running();
    hold(1);
    a->n_records = 5; /* without the record of the step */
    play_train(a);
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    CHECK_STR(stored_result, "{\"loss\":1.5}");
    hold(1);
    CHECK(got_code == ERR_NOT_FOUND);
    finish();
}

static void test_other_states(void)
{
    begin(); /* a queued job is suspended immediately */
    CHECK(submit(NULL, NULL) == 1);
    hold(1);
    CHECK_STR(state_of(1), "suspended");
    hello();
    settle();
    CHECK(w.n_assigns == 0);
    resume(1);
    CHECK(w.n_assigns == 1);
    finish();

    begin(); /* a starting job has nothing to save */
    struct sim_attempt *a = to_run();
    hold(1);
    CHECK(a->stopped && !a->saving);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "suspended");
    CHECK(!*notes_of(1));
    finish();

    begin(); /* the job is resumed while it saves, so it is queued after that and starts again */
    a = running();
    hold(1);
    resume(1);
    CHECK(got_code == ERR_NONE);
    play_save(a, 2, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    finish();

    begin(); /* the job is cancelled while it saves, so it is stopped now */
    a = running();
    hold(1);
    order_cancel(control_commits(w.control), 1, "u", on_done, NULL);
    settle();
    CHECK(a->stopped);
    hold(1);
    CHECK(got_code == ERR_CONFLICT);
    resume(1);
    CHECK(got_code == ERR_CONFLICT);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "cancelled");
    finish();
}

static struct sim_attempt *limited(int64_t wall_s)
{
    struct sim_attempt *a = to_run();
    set_wall(1, wall_s);
    play_start(a);
    rec_step(a, 1);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    return a;
}

/* Lets time pass, tick by tick. */
static void pass(int64_t ms)
{
    for (int64_t end = w.now + ms; w.now < end;) {
        w.now += w.now + 1000 < end ? 1000 : end - w.now;
        settle();
    }
}

/* Checks the time limit. The limit applies to the sum of the times in which attempts of the job
 * run. Time in the queue and time while suspended must not count. There must be one warning. The
 * error at the end must name the saved step. */
static void test_wall_limit(void)
{
    begin();
    struct sim_attempt *a = limited(100);
    pass(90000);
    CHECK(!a->saving);
    rec_event(a, EV_CHECKPOINT, 1, "{\"path\":\"/x/step\",\"save_ms\":4000}");
    send_spool(a);
    hold(1);
    play_save(a, 2, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "suspended");
    CHECK_MSG(control_job(w.control, 1)->ran_ms >= 90000 &&
                  control_job(w.control, 1)->ran_ms < 91000,
              "%lld", (long long)control_job(w.control, 1)->ran_ms);
    pass(500000);
    resume(1);
    a = attempt_of(1, 3);
    set_wall(1, 100);
    pass(50000); /* the job starts */
    play_start(a);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    pass(8000);
    CHECK(!a->saving);
    pass(3000);
    CHECK(a->saving && !a->stopped);
    play_save(a, 7, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "failed");
    CHECK(strstr(stored_doc, "\"code\":\"wall_limit\"") && strstr(stored_doc, "\"restarts\":0"));
    CHECK(strstr(stored_doc, "step 7 is saved: `seqctl continue 1 --set limits.wall_s"));
    finish();
}

/* Checks that the warning is given earlier if a checkpoint takes longer than a twentieth of the
 * limit. Changes of the wall clock must have no effect. */
static void test_wall_warning(void)
{
    begin();
    limited(1000);
    struct sim_attempt *a = attempt_of(1, 2);
    rec_event(a, EV_CHECKPOINT, 1, "{\"path\":\"/x/step\",\"save_ms\":200000}");
    send_spool(a);
    w.utc_shift = (int64_t)86400000 * 30;
    pass(795000);
    CHECK(!control_job(w.control, 1)->warned);
    pass(10000);
    CHECK(control_job(w.control, 1)->warned && !a->saving);
    pass(190000);
    CHECK(!a->saving);
    pass(10000);
    CHECK(a->saving);
    finish();
}

/* ---- nodes that are drained ------------------------------------------------------------------ */

static void cordon(bool drains, const char *reason)
{
    struct cordon row = {.node = "n1", .by = "op", .drains = drains};
    snprintf(row.reason, sizeof row.reason, "%s", reason);
    got_code = ERR_INTERNAL;
    order_cordon(control_commits(w.control), &row, on_done, NULL);
    settle();
}

static void uncordon(void)
{
    got_code = ERR_INTERNAL;
    order_uncordon(control_commits(w.control), "n1", on_done, NULL);
    settle();
}

static bool n1_empty(void)
{
    return cluster_is_empty(control_cluster(w.control), "n1");
}

static const char *reason_of(int64_t id)
{
    pass(1000);
    return control_job(w.control, id)->reason;
}

/* Checks a cordoned node and a drained node. On a cordoned node, running jobs continue, and queued
 * jobs wait. On a drained node, a job saves and then waits for this node, which has its
 * checkpoint. The wait must not count as a retry. A restart of seqd must change nothing. */
static void test_drain(void)
{
    begin();
    struct sim_attempt *a = running();
    cordon(false, "a new kernel");
    CHECK(got_code == ERR_NONE);
    CHECK(submit(NULL, NULL) == 2);
    pass(5000);
    CHECK(!a->saving && !a->stopped && !n1_empty());
    CHECK_MSG(strstr(reason_of(2), "cordoned: a new kernel"), "%s", reason_of(2));
    CHECK_STR(state_of(1), "running");
    cordon(true, "a new kernel");
    pass(1000);
    CHECK(a->saving && !a->stopped);
    CHECK_STR(state_of(1), "stopping");
    CHECK(strstr(stored_doc, "\"target\":\"queued\""));
    play_save(a, 2, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "queued");
    CHECK(n1_empty() && control_job(w.control, 1)->restarts == 0);
    CHECK(control_job(w.control, 1)->n_failures == 0);
    for (int life = 0; life < 2; life++) {
        const int n = w.n_assigns;
        pass(3000);
        CHECK(w.n_assigns == n);
        CHECK_MSG(strstr(reason_of(1), "node n1, which holds its checkpoint of step 2, is drained: "
                                       "a new kernel"),
                  "%s", reason_of(1));
        if (life) break;
        goodbye();
        close_seqd();
        open_seqd();
        hello();
    }
    uncordon();
    CHECK(got_code == ERR_NONE && attempt_of(1, 3));
    uncordon(); /* the second uncordon changes nothing */
    CHECK(got_code == ERR_NONE);
    CHECK_STR(state_of(1), "starting");
    finish();
}

/* Checks that the checkpoint of a job that waits for a drained node can be given up. */
static void test_drain_and_restart(void)
{
    begin();
    struct sim_attempt *a = running();
    cordon(true, "");
    pass(1000);
    play_save(a, 2, 0);
    send_spool(a);
    settle();
    order_restart(control_commits(w.control), 1, "u", on_done, NULL);
    settle();
    CHECK(got_code == ERR_NONE && !*control_job(w.control, 1)->checkpoint_node);
    CHECK_MSG(strstr(reason_of(1), "no node can take it") && strstr(reason_of(1), "1 drained"),
              "%s", reason_of(1));
    struct cordon none = {.node = "n9"};
    order_cordon(control_commits(w.control), &none, on_done, NULL);
    settle();
    CHECK(got_code == ERR_NOT_FOUND);
    finish();
}

static void leaving(int64_t in_s, int64_t margin_s)
{
    struct msg m = {.type = MSG_LEAVING, .margin_s = margin_s};
    if (in_s) m.end_s = fake_utc() / 1000 + in_s;
    control_link_calls.message(w.control, "n1", &m);
    settle();
}

/* Checks a node that has an end time. It must be drained without an order, some time before its
 * end, even if the wall clock is changed. Before that, it must get no job whose time limit is
 * later than its end. */
static void test_leaving(void)
{
    begin();
    struct sim_attempt *a = running();
    CHECK(submit(NULL, NULL) == 2 && submit(NULL, NULL) == 3);
    pass(1000);
    leaving(600, 60);
    set_wall(2, 3600);
    set_wall(3, 100);
    for (int id = 2; id <= 3; id++) {
        struct sim_attempt *p = attempt_of(id, 1);
        play_prepare(p);
        send_spool(p);
        settle();
    }
    CHECK_MSG(strstr(reason_of(2), "1 ends before limits.wall_s"), "%s", reason_of(2));
    CHECK(attempt_of(3, 2) && !attempt_of(2, 2));
    w.utc_shift = (int64_t)86400000 * 30;
    pass(500000);
    CHECK(!a->saving);
    pass(40000);
    CHECK(a->saving);
    uncordon();
    CHECK(got_code == ERR_CONFLICT);
    play_save(a, 2, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "queued");
    CHECK_MSG(strstr(reason_of(1), "is drained: the node ends in"), "%s", reason_of(1));
    leaving(0, 0); /* now the node does not end any more */
    pass(2000);
    CHECK(attempt_of(1, 3));
    finish();
}

int main(void)
{
    RUN(test_suspend_and_resume);
    RUN(test_restarted_in_between);
    RUN(test_not_saved);
    RUN(test_done_in_between);
    RUN(test_other_states);
    RUN(test_wall_limit);
    RUN(test_wall_warning);
    RUN(test_drain);
    RUN(test_drain_and_restart);
    RUN(test_leaving);
    return test_done("seqd_hold");
}
