/* test_seqd_committed: checks that REST and SSE show only state that is on disk. While the sync of
 * a commit is blocked, every GET and every stream shows the last committed state, although the
 * state in memory is newer. Also counts the commits and the pages of submits. */
#include "tests/lib/bad_disk.h"
#include "tests/lib/rest.h"

/* Largest number of pages that the log gets for one submit, on average. Six hold the row of the
 * job, its two indexes, the event, its index, and the row of the audit. A plan of 4 KiB takes
 * another one, and new pages change their parent, the first page, and the map of pages. */
#define PAGES_MAX 12

static void turn_until(bool (*is)(void))
{
    while (!is()) loop_turn(w.loop, 5);
}

static bool job_is_cancelled(void)
{
    return control_job(w.control, 1)->state == JOB_CANCELLED;
}

static bool job_is_starting(void)
{
    return control_job(w.control, 1)->state == JOB_STARTING;
}

/* Tells whether no answer has arrived on fd. Call it after a later GET was answered, because an
 * answer on fd would have arrived before that. */
static bool silent(int fd)
{
    struct pollfd p = {fd, POLLIN, 0};
    for (int i = 0; i < 5; i++) loop_turn(w.loop, 1);
    return poll(&p, 1, 0) == 0;
}

static void all_say_queued(void)
{
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(strstr(reply, "ETag: \"1-") && strstr(reply, "\"finished_at\":null"));
    CHECK(strstr(reply, "\"epoch\":0") && strstr(reply, "\"node\":\"\""));
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(get("/v1/jobs?state=queued") == 200 && strstr(reply, "\"id\":1"));
    CHECK(get("/v1/jobs?state=cancelled,starting") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/jobs/1/events") == 200 && strstr(reply, "\"type\":\"submit\""));
    CHECK(!strstr(reply, "\"type\":\"cancel\"") && !strstr(reply, "\"type\":\"assign\""));
    CHECK(get("/v1/jobs/1/logs") == 200 && !strstr(reply, "Seqd-Log-End"));
    CHECK(get("/v1/jobs/1/checkpoints") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/jobs/1/artifacts/a") == 404 && strstr(reply, "never ran"));
}

static void test_cancel_that_is_not_committed(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int stream = open_stream("/v1/jobs/1/events", NULL);
    CHECK(receive(stream, "\"type\":\"submit\""));
    int metrics = open_stream("/v1/jobs/1/metrics", NULL);
    CHECK(receive(metrics, "retry:"));
    bad_disk_hold();
    int first = post_begin("/v1/jobs/1:cancel", "", "");
    turn_until(job_is_cancelled);
    bad_disk_wait_held();
    int second = post_begin("/v1/jobs/1:cancel", "", ""); /* gets no separate answer */
    int third = post_begin("/v1/jobs/1:restart", "", "");
    all_say_queued();
    CHECK(silent(first) && silent(second) && silent(third) && silent(stream) && silent(metrics));
    bad_disk_release();
    CHECK(answer_of(first) == 202 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(answer_of(second) == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(answer_of(third) == 409 && strstr(reply, "is cancelled"));
    clear();
    CHECK(receive(stream, "event: end") && strstr(reply, "\"type\":\"cancel\""));
    CHECK(strstr(reply, "\"state\":\"cancelled\"}"));
    clear();
    CHECK(receive(metrics, "event: end"));
    close(stream);
    close(metrics);
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"cancelled\""));
    CHECK(post("/v1/jobs/1:cancel", "") == 200); /* the job has ended, so nothing changes */
    finish();
}

static void test_submit_that_is_not_committed(void)
{
    begin();
    bad_disk_hold();
    int fd = post_begin("/v1/jobs", "", job_json);
    turn_until(bad_disk_held);
    CHECK(get("/v1/jobs/1") == 404);
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/jobs/1/events") == 404);
    CHECK(get("/readyz?verbose") == 200 && strstr(reply, "\"live_jobs\":0"));
    CHECK(silent(fd));
    bad_disk_release();
    CHECK(answer_of(fd) == 201);
    CHECK(get("/v1/jobs/1") == 200);
    finish();
}

static const char generate_json[] =
    "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\"},\"input\":{\"prompt\":\"x\"},"
    "\"resources\":{\"ranks\":2}}";

/* Submits a job that has no data to prepare, so that its first attempt already holds slots. */
static void submit_generate(void)
{
    w.fetch.type = 0;
    int fd = post_begin("/v1/jobs", "", generate_json);
    wait_question();
    const struct msg m = described("auto");
    control_link_calls.message(w.control, "n1", &m);
    CHECK_MSG(answer_of(fd) == 201, "%s", reply);
}

static void test_placement_that_is_not_committed(void)
{
    begin();
    node_joins();
    submit_generate();
    /* the reason is not in its row */
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"reason\":{\"code\":"));
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"reason\":{\"code\":"));
    bad_disk_hold();
    node_joins_as("n1", 4);
    turn_until(job_is_starting);
    bad_disk_wait_held();
    all_say_queued();
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"slots_free\":4"));
    CHECK(strstr(reply, "\"memory_bytes\":8589934592,\"memory_held_bytes\":0,"));
    bad_disk_release();
    while (get("/v1/jobs/1") == 200 && !strstr(reply, "\"state\":\"starting\"")) continue;
    CHECK(strstr(reply, "\"epoch\":1") && strstr(reply, "\"node\":\"n1\""));
    CHECK(get("/v1/nodes") == 200 && strstr(reply, "\"slots_free\":2"));
    const struct job *j = jobs_find(&control_cluster(w.control)->jobs, 1);
    char want[64];
    snprintf(want, sizeof want, "\"memory_held_bytes\":%lld,", 2 * (long long)j->need->rank);
    CHECK_MSG(j->need->rank > 0 && strstr(reply, want), "%s in %s", want, reply);
    finish();
}

static bool two_wait(void)
{
    struct store_health h;
    store_health(w.store, &h);
    return h.n_waiting >= 2;
}

/* Sends two requests, and blocks the commit that has the audit row of the first one. The next
 * commit will have the audit row of the second request, and will release the answer to the first
 * one. Returns the connection of the second request. */
static int hold_the_audit(void)
{
    begin();
    bad_disk_hold();
    CHECK(post("/v1/jobs", "{}") == 400);
    const int second = post_begin("/v1/jobs", "", job_json);
    turn_until(two_wait);
    return second;
}

static void test_audit_that_is_not_committed(void)
{
    const int second = hold_the_audit(), audit = get_begin("/v1/audit");
    /* after these requests, the commit with the audit rows is in progress */
    for (int i = 0; i < 3; i++) CHECK(get("/v1/jobs") == 200);
    CHECK(silent(audit));
    bad_disk_release();
    CHECK(answer_of(audit) == 200);
    CHECK_MSG(strstr(reply, "\"status\":400}"), "%s", reply);
    CHECK(answer_of(second) == 201);
    finish();
}

/* Reads the rest of an answer after the server has ended. */
static int status_of_rest(int fd)
{
    ssize_t n;
    for (clear(); (n = recv(fd, reply + reply_len, sizeof reply - 1 - reply_len, 0)) > 0;)
        reply_len += (size_t)n;
    reply[reply_len] = 0;
    close(fd);
    return status_of();
}

/* Checks a seqd that stops while a reader of the audit waits for a commit. The commit must be
 * made, and the reader's connection must be closed. */
static void test_audit_while_seqd_stops(void)
{
    const int second = hold_the_audit(), audit = get_begin("/v1/audit");
    for (int i = 0; i < 3; i++) CHECK(get("/v1/jobs") == 200);
    CHECK(silent(audit));
    bad_disk_release();
    finish();
    CHECK_MSG(status_of_rest(audit) == 503 && strstr(reply, "seqd is stopping"), "%s", reply);
    CHECK(status_of_rest(second) == 201);
}

/* ---- commits --------------------------------------------------------------------------------- */

/* Counts calls of one kind for the log from now on. */
static void count_calls(int kind)
{
    pthread_mutex_lock(&disk.mutex);
    disk.faults = kind;
    disk.files = SQLITE_OPEN_WAL;
    disk.fail_at = disk.n_calls = 0;
    pthread_mutex_unlock(&disk.mutex);
}

static int64_t calls_so_far(void)
{
    pthread_mutex_lock(&disk.mutex);
    const int64_t n = disk.n_calls;
    pthread_mutex_unlock(&disk.mutex);
    return n;
}

static int64_t clock_ms = 1000;

static int64_t fake_clock(void *arg)
{
    return clock_ms;
}

/* A page takes two writes, of its header and of its bytes. */
static void test_one_commit_for_one_submit(void)
{
    enum { N = 32 };
    rest_clock = fake_clock;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    count_calls(DISK_SYNC);
    for (int i = 0; i < N; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK_MSG(calls_so_far() == N, "%lld syncs", (long long)calls_so_far());
    count_calls(DISK_WRITE);
    for (int i = 0; i < N; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK_MSG(calls_so_far() <= 2 * PAGES_MAX * N, "%.2f pages", (double)calls_so_far() / 2 / N);
    /* A refused request makes no commit. Its row and its status are there when they are read. */
    count_calls(DISK_SYNC);
    CHECK(post("/v1/jobs", "{}") == 400 && !calls_so_far());
    CHECK(get("/v1/audit?limit=2") == 200);
    CHECK_MSG(strstr(reply, "\"status\":400}") && strstr(reply, "\"made\":\"/v1/jobs/65\""), "%s",
              reply);
    /* Without a reader, they are on disk after a second. */
    count_calls(DISK_SYNC);
    CHECK(post("/v1/jobs", "{}") == 400 && !calls_so_far());
    clock_ms += 1000;
    while (!calls_so_far()) loop_turn(w.loop, 5);
    bad_disk_mend();
    finish();
    rest_clock = NULL;
}

static int n_committed;

static void count_committed(void *arg, const struct err *e)
{
    n_committed += !e;
}

static void gather_one(void)
{
    struct store_txn *t = store_begin();
    store_metrics_add(t, 1, "[]");
    store_gather(w.store, t, count_committed, NULL);
}

static int n_waiting(void)
{
    struct store_health h;
    store_health(w.store, &h);
    return h.n_waiting;
}

static void test_commit_of_many(void)
{
    enum { N = 64 };
    struct store_coming coming[N] = {{.in = NULL}}, stuck = {.in = NULL};
    rest_clock = fake_clock;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    /* requests that are on their way are waited for, and one commit has them all */
    count_calls(DISK_SYNC);
    store_expect(w.store, &stuck); /* it does not arrive */
    clock_ms += 50;
    for (int i = 0; i < N; i++) store_expect(w.store, &coming[i]);
    for (int i = 0; i < N; i++) {
        CHECK_MSG(!n_waiting(), "%d after %d", n_waiting(), i);
        store_arrived(&coming[i]);
        gather_one();
    }
    CHECK(n_waiting() == N);
    while (n_committed < N) loop_turn(w.loop, 5);
    CHECK_MSG(calls_so_far() == 1, "%lld syncs for %d", (long long)calls_so_far(), N);
    /* a request that began long ago is not waited for */
    gather_one();
    CHECK(n_waiting() == 1);
    /* a request that began a moment ago is waited for, but not for long */
    store_expect(w.store, &coming[0]);
    gather_one();
    CHECK(n_waiting() == 1);
    clock_ms += 50;
    while (n_committed < N + 2) loop_turn(w.loop, 5);
    store_arrived(&coming[0]);
    store_arrived(&stuck);
    store_arrived(&stuck);
    bad_disk_mend();
    finish();
    rest_clock = NULL;
}

int main(void)
{
    seqd_test_init();
    bad_disk_install();
    RUN(test_cancel_that_is_not_committed);
    RUN(test_submit_that_is_not_committed);
    RUN(test_placement_that_is_not_committed);
    RUN(test_audit_that_is_not_committed);
    RUN(test_audit_while_seqd_stops);
    RUN(test_one_commit_for_one_submit);
    RUN(test_commit_of_many);
    return test_done("seqd_committed");
}
