/* test_seqd_again: tests failures that repeat. A job that fails three times in the same way at the
 * same step has failed finally. A kill from outside is never final. Steps that an earlier attempt
 * has made do not count as progress. These rules must also hold if seqd is restarted. */
#include <signal.h>
#include "daemon/state/blame.h"
#include "tests/lib/one_node.h"

static const struct job *the_job(void)
{
    return control_job(w.control, 1);
}

static void restart(void)
{
    w.up = false;
    close_seqd();
    open_seqd();
    hello();
    settle();
}

/* Returns the next attempt, which has waited for its backoff and runs, or NULL if there is
 * none. */
static struct sim_attempt *next(void)
{
    for (int i = 0; i < 70 && the_job() && the_job()->state == JOB_QUEUED; i++)
        w.now += 1001, settle();
    struct sim_attempt *a = the_job() ? attempt_of(1, the_job()->epoch) : NULL;
    if (!a || the_job()->state != JOB_STARTING) return NULL;
    play_start(a), send_spool(a), settle();
    return a;
}

/* Lets rank 0 make `steps` steps, and then end with the exit status `status` or by the signal
 * `sign`. */
static void die(struct sim_attempt *a, int steps, int status, int signo)
{
    for (int i = 1; i <= steps; i++) rec_step(a, i);
    rec_exit(a, 0, status, signo);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    settle();
}

static struct sim_attempt *begin_run(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a), send_spool(a);
    CHECK_STR(state_of(1), "running");
    return a;
}

/* Checks the signal by which the kernel kills ranks of the previous version if they exceed the
 * limit on file sizes. */
static void test_final(void)
{
    for (int restarts = 0; restarts < 2; restarts++) {
        struct sim_attempt *a = begin_run();
        for (int i = 1; i <= 3; i++) {
            CHECK_MSG(a != NULL, "attempt %d", i);
            if (!a) break;
            die(a, 2, 0, SIGXFSZ);
            if (restarts && i < 3) restart();
            if (i < 3) a = next();
        }
        CHECK_STR(state_of(1), "failed");
        CHECK(strstr(stored_doc, "\"class\":\"final\""));
        CHECK_MSG(strstr(stored_doc, "the same failure 3 times after step 2: rank 0 (pid 99) was "
                                     "killed by signal 25"),
                  "%s", stored_doc);
        CHECK(strstr(stored_doc, "\"restarts\":0"));
        finish();
    }
}

/* Checks that a failure at a different step or by a different signal does not count as a
 * repetition. */
static void test_other_places(void)
{
    struct sim_attempt *a = begin_run();
    for (int i = 0; i < 6 && a; i++) {
        die(a, 1 + i % 3, 0, i < 3 ? SIGXFSZ : SIGXCPU);
        a = next();
    }
    CHECK(a && the_job()->state == JOB_RUNNING);
    finish();
}

/* Checks that kills from outside, and full disks, never count as the job's failures, however often
 * they happen. */
static void test_never_final(void)
{
    static const int signo[] = {SIGKILL, SIGTERM, 0};
    for (int i = 0; i < 3; i++) {
        struct sim_attempt *a = begin_run();
        for (int n = 0; n < 5 && a; n++) {
            if (!signo[i]) rec_fail(a, 0, ERR_NO_SPACE, "write /x");
            die(a, 2, signo[i] ? 0 : 1, signo[i]);
            a = next();
        }
        CHECK(a && the_job()->state == JOB_RUNNING && the_job()->restarts == 0);
        finish();
    }
}

/* Checks a kill for lack of memory. It counts only if no other job can have used the memory. */
static void test_memory(void)
{
    struct sim_attempt *a = begin_run();
    for (int i = 0; i < 4 && a; i++) {
        const struct rank_exit x = {.rank = 0, .pid = 99, .signal = SIGKILL};
        record(a, RANK_EXIT, 0, &x, sizeof x, NULL);
        struct msg m = {.type = MSG_REPORT, .job = 1, .epoch = a->epoch, .oom = true};
        m.seq = a->record[a->n_records - 1].seq;
        m.data = a->record[a->n_records - 1].data;
        m.size = a->record[a->n_records - 1].size;
        a->n_sent = a->n_records;
        control_link_calls.message(w.control, "n1", &m);
        rec_exit(a, RANK_GANG, GANG_FAILED, 0);
        send_spool(a);
        settle();
        a = next();
        /* the first kill did not count, because the job was not alone */
        CHECK((a == NULL) == (i == 3));
    }
    CHECK_STR(state_of(1), "failed");
    finish();
}

/* Checks that a checkpoint or a step does not count as progress if an earlier attempt has already
 * made it. */
static void test_no_progress(void)
{
    struct sim_attempt *a = begin_run();
    int hours = 0;
    for (; hours < 40 && a; hours++) {
        die(a, 2, 0, SIGKILL);
        CHECK(the_job() == NULL || the_job()->farthest.step == 2);
        if (hours == 3 && the_job()) restart();
        w.now += 3600000;
        a = next();
    }
    CHECK_MSG(hours == 25, "it was tried for %d hours", hours);
    CHECK_STR(state_of(1), "failed");
    CHECK(strstr(stored_doc, "given up 24 h after"));
    finish();
}

/* Checks that the day in which a job is retried begins again after a new step. */
static void test_progress(void)
{
    struct sim_attempt *a = begin_run();
    for (int hours = 0; hours < 30 && a; hours++) {
        die(a, 1 + hours / 20, 0, SIGKILL);
        w.now += 3600000;
        a = next();
    }
    CHECK(a && the_job()->state == JOB_RUNNING && the_job()->farthest.step == 2);
    finish();
}

/* Checks that a product counts as progress only once for each name, and an evaluation only once
 * for each step. */
static void test_products(void)
{
    static const struct {
        enum job_event type;
        int64_t step;
        const char *detail;
        bool further;
    } row[] = {
        {EV_ARTIFACT, 0, "{\"name\":\"a\"}", true},
        {EV_ARTIFACT, 0, "{\"size\":3,\"name\":\"a\",\"sha256\":\"x\"}", false},
        {EV_ARTIFACT, 0, "{\"name\":\"b\"}", true},
        {EV_EVAL, 5, "{\"loss\":1}", true},
        {EV_EVAL, 5, "{\"loss\":1}", false},
        {EV_EVAL, 6, "{\"loss\":1}", true},
        {EV_VERIFIED, 0, "{}", true},
        {EV_VERIFIED, 0, "{}", false},
        {EV_CHECKPOINT, 4, "{}", true},
        {EV_CHECKPOINT, 4, "{}", false},
        {EV_STEP, 4, "", false},
        {EV_STEP, 7, "", true},
    };
    begin_run();
    struct job *j = (struct job *)the_job();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct event ev = {.type = row[i].type, .step = row[i].step, .rank = 0};
        ev.at_ms = fake_utc() + 1000 * (int64_t)(i + 1);
        snprintf(ev.detail, sizeof ev.detail, "%s", row[i].detail);
        CHECK(!job_fold(j, &ev, NULL));
        CHECK_MSG((j->stepped_ms == ev.at_ms) == row[i].further, "row %zu", i);
        CHECK(j->step_epoch == j->epoch);
    }
    finish();
}

/* Checks a serve job, which fails often. It has failed finally if no attempt has answered a request
 * or has had its model loaded for 10 minutes. Else the job is placed again, also after a day. */
static void test_served(void)
{
    static const struct {
        double answered;
        int64_t ready_ms;
        bool loaded, again, restarts; /* restarts: seqd does, after that time */
    } row[] = {{0, 0, true, false, false},          {0, 599000, true, false, false},
               {1, 0, true, true, false},           {0, 600000, true, true, false},
               {0, 600000, false, false, false},    {0, 600000, true, true, true},
               {0, JOB_RETRY_MS, true, true, false}};
    const char *const train = spec_text_json;
    spec_text_json =
        "{\"kind\":\"serve\",\"model\":{\"config\":{\"hidden_size\":64,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
        "\"data\":{\"seq_len\":300},\"resources\":{\"ranks\":2}}";
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        begin();
        hello();
        CHECK(submit(NULL, NULL) == 1);
        settle();
        struct sim_attempt *a = attempt_of(1, 1);
        CHECK(a && a->task == TASK_RUN);
        if (a) play_start(a), send_spool(a), settle();
        for (int n = 0; n < 5 && a; n++) {
            if (row[i].loaded) rec_serving(a), send_spool(a);
            if (row[i].answered > 0) rec_progress(a, row[i].answered, 0), send_spool(a);
            w.now += row[i].ready_ms;
            settle();
            if (row[i].restarts) restart();
            die(a, 0, 0, SIGXFSZ);
            a = next();
        }
        CHECK_MSG((a != NULL) == row[i].again, "row %zu: %s", i, state_of(1));
        finish();
    }
    spec_text_json = train;
}

int main(void)
{
    seqd_test_init();
    RUN(test_final);
    RUN(test_other_places);
    RUN(test_never_final);
    RUN(test_memory);
    RUN(test_no_progress);
    RUN(test_progress);
    RUN(test_products);
    RUN(test_served);
    return test_done("seqd_again");
}
