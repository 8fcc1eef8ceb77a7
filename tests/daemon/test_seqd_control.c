/* test_seqd_control: tests jobs from submit to end with a simulated node. It covers submits,
 * preparation, rendezvous, failures of every class, cancels and lost nodes. test_seqd_kept.c tests
 * the stored state. */
#include "api/core/job.h"
#include "tests/lib/one_node.h"

static void test_life(void)
{
    int n_events, n_rows;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    CHECK(a->blobs);
    CHECK_STR(state_of(1), "running");
    CHECK(a->acked == 4);
    play_train(a);
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    CHECK(!control_job(w.control, 1) && control_n_live(w.control) == 0);
    CHECK(a->forgotten && a->acked == a->n_records);
    CHECK(control_reserved(w.control, "n1") == 0);
    CHECK_STR(stored_result, "{\"loss\":1.5}");
    CHECK(strstr(stored_doc, "\"checkpoint_step\":2") && strstr(stored_doc, "\"step\":3"));
    ask(ASK_EVENTS, 1, on_count, &n_events);
    CHECK_MSG(n_events == 8, "%d events",
              n_events); /* submit assign prepared assign ready ckpt art done */
    ask(ASK_METRICS, 1, on_count, &n_rows);
    CHECK(n_rows >= 1);
    /* A report about an earlier attempt must have no effect. The node must be told that it may
     * remove the attempt. */
    a->forgotten = false;
    struct msg late = {.type = MSG_REPORT, .job = 1, .epoch = 2, .seq = a->n_records};
    late.data = a->record[a->n_records - 1].data;
    late.size = a->record[a->n_records - 1].size;
    control_link_calls.message(w.control, "n1", &late);
    CHECK(a->forgotten);
    finish();
}

static const char *stored_progress(void)
{
    static char out[256];
    ask(ASK_JOB, 1, on_row, NULL);
    const char *at = strstr(stored_doc, "\"progress\":");
    snprintf(out, sizeof out, "%s", at ? at + 11 : "none");
    const size_t n = strcspn(out, "}");
    out[strncmp(out, "null", 4) ? n + (out[n] != 0) : 4] = 0;
    return out;
}

static void flush(void)
{
    commit_flush(control_commits(w.control), (struct job *)control_job(w.control, 1));
    settle();
}

/* Checks that a job's document has its progress, which is committed like its steps. The progress
 * is reported by rank 0, or is counted in steps. It includes a speed only while the job runs.
 * Impossible numbers are dropped. */
static void test_progress(void)
{
    begin();
    struct sim_attempt *a = to_run();
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":0,\"total\":10,\"fraction\":0,"
                                 "\"rate\":null,\"tokens_s\":null,\"eta_s\":null}");
    play_start(a);
    rec_progress(a, 2, 5);
    send_spool(a);
    flush();
    CHECK_STR(stored_progress(), "{\"unit\":\"requests\",\"done\":2,\"total\":5,\"fraction\":0.4,"
                                 "\"rate\":0.5,\"tokens_s\":15,\"eta_s\":6}");
    rec_progress(a, 3, 2);
    rec_progress(a, NAN, 5);
    rec_progress(a, 0.5, 5);
    rec_progress(a, 2, -5);
    rec_progress(a, 2, INFINITY);
    struct rank_progress other = {.unit = PROGRESS_UNIT_N, .done = 3, .total = 5};
    record(a, RANK_PROGRESS, 0, &other, sizeof other, NULL);
    other.unit = 0;
    record(a, RANK_PROGRESS, 1, &other, sizeof other, NULL); /* only rank 0 may report this */
    record(a, RANK_PROGRESS, 0, &other, sizeof other - 1, NULL);
    send_spool(a);
    flush();
    CHECK(strstr(stored_progress(), "\"done\":2,\"total\":5"));
    rec_step(a, 4);
    rec_step(a, 5);
    send_spool(a);
    flush();
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":5,\"total\":10,\"fraction\":0.5,"
                                 "\"rate\":1000,\"tokens_s\":10000,\"eta_s\":0.005}");
    rec_exit(a, 0, 0, 9);
    rec_exit(a, 1, 0, 9);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting"); /* the next attempt begins from its checkpoint */
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":5,\"total\":10,\"fraction\":0.5,"
                                 "\"rate\":null,\"tokens_s\":null,\"eta_s\":null}");
    finish();
}

/* Checks the phase of a training that computes the references of its answers before its first
 * step. */
static void test_reference_phase(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    CHECK_STR(job_phase(control_job(w.control, 1)), "running");
    struct rank_progress p = {
        .unit = PROGRESS_SAMPLES, .done = 3, .total = 12, .elapsed_us = 6000000};
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
    send_spool(a);
    flush();
    CHECK_STR(job_phase(control_job(w.control, 1)), "reference");
    CHECK_STR(stored_progress(), "{\"unit\":\"samples\",\"done\":3,\"total\":12,\"fraction\":0.25,"
                                 "\"rate\":0.5,\"tokens_s\":null,\"eta_s\":18}");
    p.done = p.total;
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
    send_spool(a);
    CHECK_STR(job_phase(control_job(w.control, 1)), "running");
    p.done = 5;
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
    rec_step(a, 1);
    send_spool(a);
    flush();
    CHECK_STR(job_phase(control_job(w.control, 1)), "running");
    CHECK(strstr(stored_progress(), "{\"unit\":\"steps\",\"done\":1,"));
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
    send_spool(a);
    rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK(strcmp(job_phase(control_job(w.control, 1)), "reference") !=
          0); /* its ranks have ended */
    finish();
}

static void cancel(int64_t id)
{
    got_code = ERR_INTERNAL;
    order_cancel(control_commits(w.control), id, "u", on_done, NULL);
    settle();
}

/* Checks a job that is cancelled before it began. It must show no progress, even if much of its
 * data was prepared. */
static void test_progress_of_none(void)
{
    begin();
    submit(NULL, NULL);
    hello();
    settle();
    struct rank_progress p = {.unit = PROGRESS_BYTES, .done = 4, .total = 4};
    record(&w.attempt[0], RANK_PROGRESS, 0, &p, sizeof p, NULL);
    send_spool(&w.attempt[0]);
    flush();
    CHECK(strstr(stored_progress(), "\"unit\":\"bytes\",\"done\":4"));
    cancel(1);
    rec_exit(&w.attempt[0], RANK_GANG, GANG_STOPPED, 0);
    send_spool(&w.attempt[0]);
    CHECK_STR(state_of(1), "cancelled");
    CHECK_STR(stored_progress(), "null");
    finish();
}

static void on_plan(void *arg, const struct store_rows *rows, const struct err *failed)
{
    const char *plan = rows->n_rows ? rows->row[0].text[2] : NULL;
    answered = true;
    *(bool *)arg = plan && strstr(plan, "\"form\":\"all_gather\"");
}

/* Tells whether the stored plan of job 1 is that for all_gather. */
static bool plan_gathers(void)
{
    bool gathers = false;
    ask(ASK_JOB, 1, on_plan, &gathers);
    return gathers;
}

/* Checks a job with form "auto", whose form can be chosen only when its data is prepared. The
 * order to the ranks must have the chosen form, also after a restart. */
static void test_form(void)
{
    static const char *const said[] = {
        "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\"forms\":{\"samples\":2,"
        "\"blockwise\":{\"messages\":8,\"bytes\":800000},\"all_gather\":{\"messages\":8,"
        "\"bytes\":400}}}",
        "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\"forms\":{\"samples\":2,"
        "\"blockwise\":{\"messages\":8,\"bytes\":800000},\"all_gather\":{\"messages\":16,"
        "\"bytes\":800000}}}"};
    for (int i = 0; i < 2; i++) {
        begin();
        submit(NULL, NULL);
        hello();
        settle();
        CHECK(w.form == FORM_AUTO && w.n_attempts == 1);
        record(&w.attempt[0], RANK_RESULT, 0, NULL, 0, said[i]);
        rec_exit(&w.attempt[0], 0, 0, 0);
        rec_exit(&w.attempt[0], RANK_GANG, GANG_DONE, 0);
        send_spool(&w.attempt[0]);
        settle();
        CHECK(w.form == (i ? FORM_BLOCKWISE : FORM_ALL_GATHER) && w.n_attempts == 2);
        const struct job *j = control_job(w.control, 1);
        CHECK(job_spec(j)->parallel.form == w.form);
        /* The plan that is shown must be the plan for the chosen form. */
        CHECK(plan_gathers() == !i);
        goodbye();
        close_seqd();
        open_seqd();
        j = control_job(w.control, 1);
        CHECK(j && job_spec(j)->parallel.form == w.form);
        CHECK(plan_gathers() == !i);
        finish();
    }
}

/* Checks invalid JSON in a node's report. It must count as a failure of the node. Without a valid
 * result, the job must not succeed. */
static void test_garbled(void)
{
    static const struct {
        int event; /* 0 means a result */
        const char *json;
    } said[] = {
        {0, "{\"loss\":"}, {0, "[1]"},     {0, "{} {}"}, {0, ""}, {EV_CHECKPOINT, "{\"path\""},
        {EV_EVAL, "nan"},  {EV_NOTE, "x"},
    };
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        begin();
        struct sim_attempt *a = to_run();
        play_start(a);
        if (said[i].event)
            rec_event(a, said[i].event, 1, said[i].json);
        else
            record(a, RANK_RESULT, 0, NULL, 0, said[i].json);
        for (int r = 0; r < a->n_ranks; r++) rec_exit(a, r, 0, 0);
        rec_exit(a, RANK_GANG, GANG_DONE, 0);
        send_spool(a);
        settle();
        const struct job *j = control_job(w.control, 1);
        CHECK_MSG(j && j->state != JOB_SUCCEEDED, "%s", said[i].json);
        if (j)
            CHECK_MSG(strstr(job_err(j)->text, "n1 sent") &&
                          strstr(job_err(j)->text, "is not a JSON object") &&
                          j->err_cause == CAUSE_INFRASTRUCTURE,
                      "%s: %s", said[i].json, job_err(j)->text);
        finish();
    }
}

static void test_sigkill_is_infrastructure(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_exit(a, 1, 0, SIGKILL);
    rec_fail(a, 0, ERR_ABORTED, "aborted: rank 1 died");
    rec_exit(a, 0, 1, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "stopping");
    CHECK(a->stopped &&
          control_reserved(w.control, "n1") == 2); /* no slot is free before STOPPED */
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting"); /* the first retry is immediate */
    const struct job *j = control_job(w.control, 1);
    CHECK(j->epoch == 3 && j->restarts == 0 && j->err_cause == CAUSE_INFRASTRUCTURE);
    CHECK(j->err_rank == 1 && strstr(job_err(j)->text, "signal 9"));
    finish();
}

static void test_failures_of_the_job(void)
{
    static const struct {
        enum err_code code;
        const char *state;
        int cause;
        bool stepped;
    } cases[] = {{ERR_INVALID, "failed", CAUSE_FINAL, true},
                 {ERR_NOT_FOUND, "failed", CAUSE_FINAL, true},
                 {ERR_DOES_NOT_FIT, "failed", CAUSE_FINAL, true},
                 {ERR_CORRUPT, "failed", CAUSE_FINAL, true},
                 {ERR_INTERNAL, "starting", CAUSE_USER, true},
                 {ERR_TIMEOUT, "starting", CAUSE_USER, true},
                 {ERR_INTERNAL, "starting", CAUSE_INFRASTRUCTURE, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        struct sim_attempt *a = to_run();
        play_start(a);
        if (cases[i].stepped) rec_step(a, 1);
        rec_fail(a, 1, cases[i].code, "the rank's own sentence");
        rec_exit(a, 1, 1, 0);
        rec_exit(a, RANK_GANG, GANG_FAILED, 0);
        send_spool(a);
        CHECK_STR(state_of(1), cases[i].state);
        CHECK(strstr(stored_doc, "the rank's own sentence"));
        CHECK(strstr(stored_doc, event_cause_name(cases[i].cause)));
        const struct job *j = control_job(w.control, 1);
        if (j) CHECK(j->restarts == (cases[i].cause == CAUSE_USER));
        finish();
    }
}

/* Checks a rank that reports the loss of its peer before the peer's death is known. The rank must
 * not be blamed. */
static void test_consequence_waits_for_cause(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_PEER, "rank 1 is silent");
    rec_exit(a, 0, 1, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    rec_exit(a, 1, 0, SIGKILL);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->err_rank == 1);
    CHECK(control_job(w.control, 1)->restarts == 0);
    finish();

    begin(); /* if no better cause comes, the rank's report is the cause */
    a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_PEER, "rank 1 is silent");
    rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK_STR(job_err(control_job(w.control, 1))->text, "rank 1 is silent");
    finish();
}

static void test_cancel(void)
{
    begin();
    CHECK(submit(NULL, NULL) == 1);
    cancel(1);
    CHECK(got_code == ERR_NONE);
    CHECK_STR(state_of(1), "cancelled");
    cancel(1);
    CHECK(got_code == ERR_NOT_FOUND);
    finish();

    for (int when = 0; when < 3; when++) { /* while starting, while running, and after a death */
        begin();
        struct sim_attempt *a = to_run();
        if (when) play_start(a);
        if (when == 2) rec_exit(a, 1, 0, SIGKILL);
        send_spool(a);
        cancel(1);
        CHECK(got_code == ERR_NONE);
        CHECK_STR(state_of(1), "stopping");
        CHECK(a->stopped);
        cancel(1);
        CHECK(got_code == ERR_NONE); /* a second cancel has no effect */
        a->stopped = false;
        w.now += 6000; /* a STOP that had no effect is sent again */
        settle();
        CHECK(a->stopped);
        rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
        send_spool(a);
        CHECK_STR(state_of(1), "cancelled");
        CHECK(a->forgotten);
        finish();
    }
}

/* Connects a node with this name, on which nothing runs. */
static void hello_as(const char *name)
{
    struct msg m = {.type = MSG_HELLO, .abi = WIRE_ABI, .n_slots = 4};
    snprintf(m.node, sizeof m.node, "%s", name);
    w.up = true;
    control_link_calls.up(w.control, name, &m);
}

static void test_node_lost(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    goodbye();
    w.now += NODE_LOST_MS - 1001;
    settle();
    CHECK_STR(state_of(1), "running"); /* a short outage has no effect */
    w.now += 3000;
    settle();
    /* a long silence changes nothing, either, if there is no other node */
    CHECK_STR(state_of(1), "running");
    CHECK(job_away(control_job(w.control, 1)) == 0);
    hello();
    settle();
    CHECK(w.n_expected == 1 && job_away(control_job(w.control, 1)) < 0);
    play_train(a);
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    /* If the job has been placed on a different node in the meantime, seqd no longer expects the
     * old attempt. */
    finish();
    begin();
    a = to_run();
    play_start(a);
    send_spool(a);
    goodbye();
    w.now += NODE_LOST_MS + 2000;
    settle();
    hello_as("n2");
    settle();
    CHECK(control_job(w.control, 1)->restarts == 0);
    CHECK(attempt_of(1, 3) && attempt_of(1, 3)->task == TASK_PREPARE);
    hello();
    settle();
    CHECK(w.n_expected == 0);
    play_train(a); /* reports of the old attempt are ignored */
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(a->forgotten);
    finish();
}

/* Checks a replay of the log that takes longer than a node may be silent, and longer than a start
 * may take. These times must not begin before the loop's first tick, which is after the replay. */
static void test_long_replay(void)
{
    for (int ready = 0; ready < 2; ready++) {
        begin();
        struct sim_attempt *a = to_run();
        if (ready) play_start(a), send_spool(a);
        CHECK_STR(state_of(1), ready ? "running" : "starting");
        w.up = false;
        close_seqd();
        open_seqd();
        w.now += 2 * NODE_LOST_MS +
                 job_spec(control_job(w.control, 1))->limits.init_timeout_s * 1000;
        settle();
        w.now += 1001;
        settle();
        CHECK_STR(state_of(1), ready ? "running" : "starting");
        hello();
        settle();
        CHECK(w.n_expected == 1);
        if (!ready) play_start(a);
        send_spool(a);
        CHECK_STR(state_of(1), "running");
        CHECK(control_job(w.control, 1)->epoch == 2);
        finish();
    }
}

/* Checks a job that is restarted on a second node. The prepared data is only on the first node, so
 * the second node must prepare the data before it runs the job. */
static void test_other_node_prepares_again(void)
{
    begin();
    to_run();
    goodbye();
    w.now += NODE_LOST_MS + 2000;
    settle();
    hello_as("n2");
    settle();
    struct sim_attempt *a = attempt_of(1, 3);
    CHECK(a && a->task == TASK_PREPARE);
    CHECK_STR(control_job(w.control, 1)->node, "n2");
    finish();
}

static void test_short_outage(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    settle();
    goodbye();
    w.now += 3000;
    settle();
    play_train(a);
    hello();
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    CHECK(w.n_assigns == 2);
    finish();
}

static void test_unknown_attempt(void)
{
    begin();
    struct sim_attempt *a = to_run();
    rec_exit(a, RANK_GANG, GANG_UNKNOWN, 0);
    a->record[0].seq = 0; /* the record comes from no spool */
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->epoch == 3);
    CHECK(control_job(w.control, 1)->restarts == 0);
    finish();
}

/* Checks Ctrl-C in seqd --dev, after which seqw stops its gangs. The job must not count as failed,
 * and must resume later. */
static void test_stopped_by_agent(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_ABORTED, "rank 0 stopped, as told");
    rec_exit(a, 0, 1, 0);
    rec_exit(a, 1, 1, 0);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->restarts == 0);
    CHECK(control_job(w.control, 1)->err_cause == CAUSE_INFRASTRUCTURE);
    finish();
}

static void test_start_timeout(void)
{
    begin();
    struct sim_attempt *a = to_run();
    w.now += 601 * 1000;
    control_link_calls.message(w.control, "n1", &(struct msg){.type = MSG_HEARTBEAT});
    settle();
    CHECK_STR(state_of(1), "stopping");
    CHECK(a->stopped);
    finish();
}

/* Checks that a committed ASSIGN whose message was lost with the session is sent again. */
static void test_lost_assign(void)
{
    begin();
    struct sim_attempt *a = to_run();
    CHECK(a == &w.attempt[1]);
    w.n_attempts = 1; /* the node has never received it */
    goodbye();
    close_seqd();
    open_seqd();
    hello();
    settle();
    CHECK(attempt_of(1, 2) != NULL && w.n_expected == 1);
    CHECK(control_job(w.control, 1)->epoch == 2);
    finish();
}

/* Checks that the delay before a retry is measured by the monotonic clock, so that setting the
 * wall clock does not change the delay. */
static void test_backoff_and_the_wall_clock(void)
{
    for (int restarted = 0; restarted < 2; restarted++)
        for (int set = -1; set <= 1; set++) {
            begin();
            for (int epoch = 2; epoch < 5; epoch++) { /* the third failure waits for 2 s */
                struct sim_attempt *a = epoch == 2 ? to_run() : attempt_of(1, epoch);
                CHECK(a != NULL);
                rec_exit(a, 0, 0, SIGKILL);
                rec_exit(a, RANK_GANG, GANG_FAILED, 0);
                send_spool(a);
                settle();
                if (epoch == 3) {
                    w.now += 1001;
                    settle();
                }
            }
            /* Every attempt gets the day on which the job was submitted, and not the day on which
             * the attempt begins. */
            const int64_t created_ms = control_job(w.control, 1)->created_ms;
            CHECK_MSG(created_ms >= 1000 && w.submitted_s == created_ms / 1000, "%lld of %lld",
                      (long long)w.submitted_s, (long long)created_ms);
            CHECK_STR(state_of(1), "queued");
            CHECK(control_job(w.control, 1)->n_failures == 3);
            w.utc_shift = set * 3600000LL; /* by -1, 0 or 1 hour */
            if (restarted) {
                goodbye();
                close_seqd();
                open_seqd();
                hello();
                settle();
            }
            w.now += 1001;
            settle();
            const bool over = restarted && set > 0; /* by the wall clock, the delay is over */
            CHECK_STR(state_of(1), over ? "starting" : "queued");
            CHECK(over || strstr(control_job(w.control, 1)->reason, "waits 1.0 s more"));
            w.now += 1001;
            settle();
            CHECK_STR(state_of(1), "starting");
            finish();
        }
}

static void test_damaged_reports(void)
{
    begin();
    struct sim_attempt *a = to_run();
    struct rank_msg head = {RANK_ABI, RANK_STEP, 0, 4};
    struct msg m = {.type = MSG_REPORT, .job = 1, .epoch = 2, .seq = 1, .data = &head, .size = 3};
    control_link_calls.message(w.control, "n1", &m); /* the record is shorter than its head */
    m.size = sizeof head;
    control_link_calls.message(w.control, "n1", &m); /* the message claims 4 bytes but has none */
    head.size = 0;
    for (uint32_t type = 0; type < 20;
         type++) { /* sends every type without its payload, and unknown types */
        head.type = type;
        head.rank = (int32_t)type - 3;
        m.seq = type + 1;
        control_link_calls.message(w.control, "n1", &m);
    }
    const char *state = state_of(1);
    CHECK(!strcmp(state, "starting"));
    CHECK(a->epoch == 2);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_life);
    RUN(test_progress);
    RUN(test_reference_phase);
    RUN(test_progress_of_none);
    RUN(test_form);
    RUN(test_garbled);
    RUN(test_sigkill_is_infrastructure);
    RUN(test_failures_of_the_job);
    RUN(test_consequence_waits_for_cause);
    RUN(test_cancel);
    RUN(test_node_lost);
    RUN(test_long_replay);
    RUN(test_other_node_prepares_again);
    RUN(test_short_outage);
    RUN(test_unknown_attempt);
    RUN(test_stopped_by_agent);
    RUN(test_start_timeout);
    RUN(test_lost_assign);
    RUN(test_backoff_and_the_wall_clock);
    RUN(test_damaged_reports);
    return test_done("seqd_control");
}
