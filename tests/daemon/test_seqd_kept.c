/* test_seqd_kept: tests the state of jobs and of their logs on disk. seqd is restarted after each
 * record of a job, with a spec of a different version, and during the sync of a commit. After each
 * restart it must use the state on disk. */
#include "tests/lib/bad_disk.h"
#include "tests/lib/one_node.h"

static void tell_log(struct sim_attempt *a, int rank, int64_t offset, const char *text)
{
    struct msg m = {.type = MSG_LOG, .job = a->job, .epoch = a->epoch, .rank = rank};
    m.offset = offset;
    m.data = text;
    m.size = strlen(text);
    control_link_calls.message(w.control, "n1", &m);
}

static char listed_steps[64];

static void on_steps(void *arg, const struct store_rows *rows, const struct err *failed)
{
    char *out = arg;
    answered = true;
    *out = 0;
    for (int i = 0; i < rows->n_rows; i++)
        out += sprintf(out, "%d ", atoi(strstr(rows->row[i].text[0], "\"step\":") + 7));
}

/* Checks bytes of a log that could not be stored. seqd must request them again, because the node
 * would not send them otherwise. */
static void test_log_that_was_not_kept(void)
{
    char path[160], text[32] = "";
    struct err e;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    settle();
    snprintf(path, sizeof path, "%s/jobs/1", w.dir);
    FILE *f = fopen(path, "w"); /* a file in place of the log's directory */
    CHECK(f && !fclose(f));
    tell_log(a, 0, 0, "one\n");
    tell_log(a, 0, 4, "two\n");
    CHECK(w.n_log_acks == 0);
    CHECK(!unlink(path));
    w.now += 1000;
    loop_turn(w.loop, 0);
    CHECK(w.n_log_acks == 2 && w.log_acked == 0); /* for both ranks */
    tell_log(a, 0, 0, "one\ntwo\n");
    w.now += 1000;
    loop_turn(w.loop, 0);
    CHECK(w.n_log_acks == 3 && w.log_ack_rank == 0 && w.log_acked == 8);
    CHECK(logs_read(w.logs, 1, 2, 0, 0, text, sizeof text, &e) == 8 && !strcmp(text, "one\ntwo\n"));
    finish();
}

/* Checks that only existing checkpoints are listed. No removed step may be listed, and no step may
 * be listed twice. */
static void test_removed_checkpoints(void)
{
    int n_listed, n_told;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_event(a, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
    rec_event(a, EV_CHECKPOINT, 4, "{\"path\":\"/x/step-4\"}");
    rec_event(a, EV_CHECKPOINT_REMOVED, 2,
              "{\"path\":\"/x/step-2\",\"reason\":\"checkpoint.keep\"}");
    rec_event(a, EV_CHECKPOINT, 6, "{\"path\":\"/x/step-6\"}");
    rec_event(a, EV_CHECKPOINT, 4, "{\"path\":\"/x/step-4\"}"); /* written again */
    send_spool(a);
    settle();
    CHECK(control_job(w.control, 1)->state == JOB_RUNNING);
    ask(ASK_CHECKPOINTS, 1, on_count, &n_listed);
    ask(ASK_EVENTS, 1, on_count, &n_told);
    CHECK_MSG(n_listed == 2 && n_told == 10, "%d, %d", n_listed, n_told);
    rec_event(a, EV_CHECKPOINT_REMOVED, 4, "{}");
    /* this step is written again, too */
    rec_event(a, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
    send_spool(a);
    settle();
    ask(ASK_CHECKPOINTS, 1, on_steps, listed_steps);
    CHECK_STR(listed_steps, "6 2 ");
    finish();
}

static void on_spec(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    snprintf(arg, 8192, "%s", rows->n_rows ? rows->row[0].text[1] : "");
}

/* Checks that fields that only a different version knows are kept when this version writes the
 * spec. */
static void test_spec_of_another_version(void)
{
    static char spec[8192];
    sqlite3 *db;
    char path[128];
    begin();
    CHECK(submit(NULL, NULL) == 1);
    close_seqd();
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(path, &db) &&
          !sqlite3_exec(db, "UPDATE jobs SET spec = json_set(spec, '$.wings', 2)", 0, 0, 0));
    sqlite3_close(db);
    open_seqd();
    hello();
    settle();
    struct sim_attempt *a = attempt_of(1, 1);
    CHECK(a && a->task == TASK_PREPARE);
    play_prepare(a);
    send_spool(a);
    settle();
    ask(ASK_JOB, 1, on_spec, spec);
    CHECK(strstr(spec, "\"wings\":2") && strstr(spec, "\"steps\":10"));
    finish();
}

/* Checks a job whose end is in memory but not yet on disk. Until it is on disk, the job must be
 * kept. If the commit of an older event is answered before that, the job must not be removed, and
 * followers must not be told of the end. */
static void test_end_before_its_commit(void)
{
    begin();
    CHECK(submit(NULL, NULL) == 1);
    hello();
    settle();
    struct sim_attempt *a = attempt_of(1, 1);
    CHECK(a && a->task == TASK_PREPARE);
    play_prepare(a);
    bad_disk_hold();
    send_spool(a); /* the attempt's end is in one commit */
    bad_disk_wait_held();
    w.up = false; /* no other message arrives */
    order_cancel(control_commits(w.control), 1, "u", on_done, NULL);
    CHECK(control_job(w.control, 1)->state == JOB_CANCELLED);
    bad_disk_let_one();
    while (control_job(w.control, 1) && control_job(w.control, 1)->attempt) loop_turn(w.loop, 5);
    bad_disk_wait_held(); /* waits for the commit of the cancel */
    CHECK(control_job(w.control, 1) != NULL);
    ask(ASK_JOB, 1, on_row, NULL);
    CHECK_STR(stored_state, "queued");
    bad_disk_release();
    CHECK_STR(state_of(1), "cancelled");
    CHECK(!control_job(w.control, 1) && got_id == 1);
    finish();
}

/* Checks a seqd that is restarted after each record of a complete run. No rank may be started
 * twice, nothing may be counted twice, and the job must end as without restarts. */
static void test_restart_after_each_record(void)
{
    int n_events, total = 3 + 4 + 9; /* records of the preparation, of the start and of the run */
    for (int stop = 0; stop <= total && !test_failures_now; stop++) {
        begin();
        CHECK(submit(NULL, NULL) == 1);
        hello();
        settle();
        int sent = 0;
        bool done = false;
        while (!done) {
            struct sim_attempt *a = attempt_of(1, 2) ? attempt_of(1, 2) : attempt_of(1, 1);
            CHECK(a != NULL);
            if (!a) break;
            if (!a->n_records && a->task == TASK_PREPARE)
                play_prepare(a);
            else if (!a->n_records)
                play_start(a), play_train(a);
            int n = a->n_records;
            if (sent <= stop && sent + n > stop) { /* the restart falls into this attempt */
                a->n_records = stop - sent;
                send_spool(a);
                settle();
                goodbye();
                close_seqd();
                open_seqd();
                w.now += 500;
                a->n_records = n;
                hello();
                settle();
            }
            sent += n;
            send_spool(a);
            settle();
            done = a->task == TASK_RUN;
        }
        CHECK_STR(state_of(1), "succeeded");
        CHECK_MSG(w.n_attempts == 2, "stop %d: %d attempts", stop, w.n_attempts);
        ask(ASK_EVENTS, 1, on_count, &n_events);
        CHECK_MSG(n_events == 8, "stop %d: %d events", stop, n_events);
        CHECK_STR(stored_result, "{\"loss\":1.5}");
        CHECK(attempt_of(1, 2)->forgotten);
        finish();
    }
}

/* Checks that the commit of a result also stores the steps of the records before it, because the
 * result acknowledges these records. */
static void test_steps_before_a_result(void)
{
    char steps[64];
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_step(a, 1);
    record(a, RANK_RESULT, 0, NULL, 0, "{\"loss\":1.5}");
    send_spool(a);
    settle();
    goodbye();
    close_seqd();
    open_seqd();
    ask(ASK_METRICS, 1, on_steps, steps);
    CHECK_STR(steps, "1 ");
    finish();
}

/* Checks a job that is cancelled while it starts, and reaches a checkpoint before it has stopped.
 * The checkpoint must be stored once, although the start was never completed. */
static void test_cancel_while_starting(void)
{
    int n_before, n_after;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    a->n_records = a->n_ranks; /* blobs have come, and no rank is ready */
    send_spool(a);
    order_cancel(control_commits(w.control), 1, "u", on_done, NULL);
    settle();
    rec_event(a, EV_CHECKPOINT, 1, "{\"path\":\"/x/step-1\"}");
    send_spool(a);
    settle();
    ask(ASK_EVENTS, 1, on_count, &n_before);
    goodbye();
    close_seqd();
    open_seqd();
    hello();
    send_spool(a);
    settle();
    ask(ASK_EVENTS, 1, on_count, &n_after);
    CHECK_MSG(n_after == n_before, "%d events, then %d", n_before, n_after);
    finish();
}

static void test_logs(void)
{
    char back[64];
    begin();
    to_run();
    struct msg m = {.type = MSG_LOG, .job = 1, .epoch = 2, .rank = 1, .data = "hello ", .size = 6};
    control_link_calls.message(w.control, "n1", &m);
    /* the bytes overlap, because a new session began there */
    m.offset = 3, m.data = "lo world", m.size = 8;
    control_link_calls.message(w.control, "n1", &m);
    m.offset = 99;
    control_link_calls.message(w.control, "n1", &m); /* a gap is refused */
    /* the bytes must not be acknowledged before they are on disk */
    CHECK(w.log_acked == 0);
    w.now += 1001;
    settle();
    CHECK(w.log_acked == 11);
    struct err e;
    CHECK(logs_read(w.logs, 1, 2, 1, 0, back, sizeof back, &e) == 11);
    CHECK(!memcmp(back, "hello world", 11));
    CHECK(logs_read(w.logs, 1, 2, 0, 0, back, sizeof back, &e) == -1 && e.code == ERR_NOT_FOUND);
    CHECK(logs_last_epoch(w.logs, 1, 1) == 2);
    finish();
}

static void test_idempotency_key(void)
{
    begin();
    CHECK(submit("k", "f") == 1);
    /* routes search for the key before they submit */
    CHECK(submit("k", "f") == 0 && got_code == ERR_CONFLICT);
    CHECK(control_n_live(w.control) == 1);
    CHECK(submit("other", "f") == 3);
    finish();
}

int main(void)
{
    seqd_test_init();
    bad_disk_install();
    RUN(test_log_that_was_not_kept);
    RUN(test_removed_checkpoints);
    RUN(test_spec_of_another_version);
    RUN(test_end_before_its_commit);
    RUN(test_restart_after_each_record);
    RUN(test_steps_before_a_result);
    RUN(test_cancel_while_starting);
    RUN(test_logs);
    RUN(test_idempotency_key);
    return test_done("seqd_kept");
}
