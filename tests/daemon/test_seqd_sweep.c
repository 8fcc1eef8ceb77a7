/* test_seqd_sweep: tests the time to live of files and rows that jobs leave. The test sets the
 * clock. Data that is due must be removed, and all other data must be kept.
 * tests: needs deploy/README.md */
#include <sqlite3.h>
#include "api/core/file.h"
#include "api/core/removal.h"
#include "daemon/loop/sweep.h"
#include "tests/lib/sim.h"

#define A      (&w.node[0])
#define MINUTE 60000
#define HOUR   (60 * MINUTE)

static struct retain_policy policy;
static int n_rows;
static int64_t value;
static char shown[4096];
static bool read_done;

static void on_read(void *arg, const struct store_rows *rows, const struct err *e)
{
    CHECK(!e);
    n_rows = rows->n_rows;
    value = n_rows ? rows->row[0].n[3] : -1;
    shown[0] = 0;
    if (n_rows && rows->row[0].text[0]) snprintf(shown, sizeof shown, "%s", rows->row[0].text[0]);
    read_done = true;
}

static void ask(enum store_ask what, int64_t a, int64_t b, int64_t c, int64_t d)
{
    read_done = false;
    store_read(w.store, what, (const int64_t[4]){a, b, c, d}, NULL, on_read, NULL);
    while (!read_done) loop_turn(w.loop, 10);
}

static bool known(int64_t job)
{
    ask(ASK_JOB, job, 0, 0, 0);
    return n_rows > 0;
}

static bool goes(int64_t job, int what)
{
    ask(ASK_REMOVAL, job, what, 0, 0);
    return n_rows > 0;
}

/* Lets time pass, and then lets the sweep that is due make all its reads and commits in the store.
 * The loop runs often enough for the sweep to end before the next sweep is due. */
static void advance(int64_t ms)
{
    pass(ms);
    for (int i = 0; i < 60; i++) ask(ASK_ENDED, 0, 0, 0, 0), settle();
}

static void sweep(void)
{
    advance(SWEEP_MS);
}

/* `rules` consists of pairs of a rule and its age, and ends with NULL; rules that it does not name
 * are set to "never" */
static void begin_with(const char *const *rules)
{
    struct err e;
    for (int i = 0; i < RETAIN_N; i++) policy.keep[i] = RETAIN_NEVER;
    for (; rules && *rules; rules += 2) {
        int id = 0;
        while (strcmp(retain_rows[id].option, rules[0])) id++;
        CHECK(!retain_read(&policy, (enum retain_id)id, rules[1], &e));
    }
    begin();
    close_seqd();
    w.policy = &policy;
    open_seqd();
    hello(A);
}

static void finish_policy(void)
{
    finish();
    w.policy = NULL;
}

static int64_t ended_job(void)
{
    const int64_t id = submit(1, 0);
    play_prepare(gang_of(A, id, 1)), send_spool(A, gang_of(A, id, 1)), settle();
    struct gang *g = gang_of(A, id, 2);
    play_blobs(g), send_spool(A, g), settle();
    struct msg m = {.type = MSG_LOG, .job = id, .epoch = 2, .data = "a line\n", .size = 7};
    control_link_calls.message(w.control, A->name, &m);
    play_ready(g), play_run(g), send_spool(A, g), settle();
    CHECK(!job(id));
    return id;
}

static void test_age(void)
{
    begin_with((const char *const[]){"keep-jobs", "10m", NULL});
    const int64_t first = ended_job();
    advance(5 * MINUTE);
    const int64_t second = ended_job();
    sweep();
    CHECK(known(first) && known(second) && !goes(first, REMOVAL_JOB));
    advance(4 * MINUTE);
    sweep();
    CHECK(!known(first) && known(second));
    CHECK(goes(first, REMOVAL_JOB) && strstr(shown, "\"why\":\"ttl\""));
    advance(4 * MINUTE);
    sweep();
    CHECK(!known(second));
    finish_policy();
}

static void test_most(void)
{
    int64_t id[5];
    begin_with((const char *const[]){"keep-jobs-max", "2", NULL});
    for (int i = 0; i < 5; i++) id[i] = ended_job(), pass(1000);
    const int64_t live = submit(1, 0);
    sweep();
    for (int i = 0; i < 5; i++) CHECK_MSG(known(id[i]) == (i >= 3), "job %d", i);
    sweep();
    CHECK(known(id[3]) && known(id[4]) && known(live));
    finish_policy();
}

/* Checks that each part of a job is removed at the age that its rule sets. The job must be kept,
 * and no part may be removed twice. */
static void test_parts(void)
{
    begin_with((const char *const[]){"keep-metrics", "3m", "keep-logs", "6m", "keep-checkpoints",
                                     "9m", "keep-events", "12m", NULL});
    static const int what[] = {REMOVAL_METRICS, REMOVAL_LOGS, REMOVAL_CHECKPOINTS, REMOVAL_EVENTS};
    const int64_t id = ended_job();
    pass(1000);
    for (int i = 0; i < 4; i++) {
        CHECK_MSG(!goes(id, what[i]), "%s too early", removal_rows[what[i]].name);
        for (int k = 0; k < 3; k++) sweep();
        CHECK_MSG(goes(id, what[i]), "%s too late", removal_rows[what[i]].name);
    }
    sweep(), sweep();
    ask(ASK_METRICS, id, 0, 10, 0);
    CHECK(n_rows == 0 && known(id));
    ask(ASK_REMOVALS, 0, 100, 0, 0);
    CHECK(n_rows == 4);
    finish_policy();
}

static void test_never(void)
{
    begin_with(NULL);
    const int64_t id = ended_job();
    for (int i = 0; i < 3; i++) advance(24 * HOUR), sweep();
    CHECK(known(id));
    ask(ASK_REMOVALS, 0, 100, 0, 0);
    CHECK(n_rows == 0);
    finish_policy();
}

static int64_t submit_reader(int64_t of)
{
    char json[512];
    snprintf(
        json, sizeof json,
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":"
        "2,\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\""
        ":\"/s/jobs/%lld/artifacts/x.jsonl\"}],\"seq_len\":100},\"train\":{\"passes\":1}}",
        (long long)of);
    return submit_json(json);
}

/* Checks a job whose files a live job reads. The job must be kept until the live job has ended.
 * Jobs whose files are not read must be removed. */
static void test_in_use(void)
{
    begin_with((const char *const[]){"keep-jobs", "10m", NULL});
    const int64_t first = ended_job(), second = ended_job(), user = submit_reader(first);
    advance(11 * MINUTE);
    sweep();
    CHECK(known(first) && !known(second));
    sweep();
    CHECK(known(first));
    order_cancel(control_commits(w.control), user, "u", on_done, NULL);
    settle(), send_all(A), settle();
    CHECK(!job(user));
    sweep();
    CHECK(!known(first));
    finish_policy();
}

/* Checks a wall clock with a wrong year. If the clock is corrected within an hour, nothing may be
 * removed. */
static void test_clock(void)
{
    begin_with((const char *const[]){"keep-jobs", "10d", NULL});
    const int64_t id = ended_job();
    sweep();
    w.utc_shift = (int64_t)365 * 24 * HOUR;
    for (int i = 0; i < 10; i++) sweep();
    CHECK(known(id));
    w.utc_shift = 0;
    for (int i = 0; i < 100; i++) advance(MINUTE);
    sweep();
    CHECK(known(id));
    w.utc_shift = (int64_t)365 * 24 * HOUR; /* sets the clock a year ahead */
    sweep();
    CHECK(known(id));
    for (int i = 0; i < 60; i++) advance(MINUTE);
    sweep();
    CHECK(!known(id));
    finish_policy();
}

/* Checks that one sweep can remove more than one batch of a rule. */
static void test_many(void)
{
    enum { JOBS = 250 };
    begin_with((const char *const[]){"keep-jobs", "10m", NULL});
    for (int i = 0; i < JOBS; i++) {
        struct store_txn *t = store_begin();
        store_job_new(t, 1000 + i, fake_utc(), "{}", NULL, "\"state\":\"failed\"", "u");
        store_event_add(t, &(struct store_event){1000 + i, 1000 + i, 1, fake_utc(), EV_NOTE, "{}"});
        store_job_set(t, 1000 + i, JOB_FAILED, "\"state\":\"failed\"");
        store_commit(w.store, t, NULL, NULL);
    }
    settle();
    advance(11 * MINUTE);
    sweep();
    for (int i = 0; i < JOBS; i++) CHECK(!known(1000 + i));
    for (int i = 0; i < 2000 && (ask(ASK_REMOVALS, 0, 1, 1, 0), n_rows); i++) pass(20);
    CHECK(n_rows == 0);
    finish_policy();
}

static void run_sql(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK_MSG(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void note_audit(const char *user)
{
    struct store_txn *t = store_begin();
    store_audit_add(t, &(struct store_audit){.at_ms = fake_utc(),
                                             .user = user,
                                             .address = "127.0.0.1",
                                             .action = "POST /v1/jobs"});
    store_commit(w.store, t, NULL, NULL);
}

static int audited(void)
{
    ask(ASK_AUDIT, 0, 100, 0, 0);
    return n_rows;
}

/* Checks that old rows of the audit are removed. The newest row must be kept, so that its seq is
 * not used a second time. */
static void test_audit(void)
{
    begin_with((const char *const[]){"keep-audit", "10m", NULL});
    note_audit("ann"), note_audit("bob");
    sweep();
    CHECK(audited() == 2);
    advance(8 * MINUTE);
    note_audit("carl");
    sweep(), sweep();
    CHECK(audited() == 1);
    advance(20 * MINUTE);
    sweep();
    CHECK(audited() == 1);
    finish_policy();
}

/* Checks a database of the versions 0.1 and 0.2, which did not store the time when a job ended. */
static void test_older(void)
{
    begin_with((const char *const[]){"keep-jobs", "10m", NULL});
    const int64_t first = ended_job();
    advance(8 * MINUTE);
    const int64_t second = ended_job();
    close_seqd();
    run_sql("DROP TABLE ended; DELETE FROM meta WHERE key LIKE 'ended.%'");
    A->up = false;
    open_seqd(), hello(A);
    advance(2 * MINUTE);
    sweep(), sweep();
    CHECK(!known(first) && known(second));
    finish_policy();
}

static bool has_log(int64_t job, int epoch)
{
    return logs_size(w.logs, job, epoch, 0) > 0;
}

/* Checks that, while a job is live, the logs of its older attempts are removed and the logs of the
 * newest attempts are kept. */
static void test_epochs(void)
{
    begin_with((const char *const[]){"keep-epochs", "3", NULL});
    const int64_t id = submit(1, 0);
    play_prepare(gang_of(A, id, 1)), send_spool(A, gang_of(A, id, 1)), settle();
    for (int epoch = 2; epoch < 8; epoch++) {
        for (int i = 0; i < 200 && !gang_of(A, id, epoch); i++) pass(1000);
        struct gang *g = gang_of(A, id, epoch);
        CHECK(g != NULL);
        if (!g) break;
        struct msg m = {.type = MSG_LOG, .job = id, .epoch = epoch, .data = "a line\n", .size = 7};
        control_link_calls.message(w.control, A->name, &m);
        rec_exit(g, 0, 0, SIGKILL);
        rec_exit(g, RANK_GANG, GANG_STOPPED, 0);
        send_spool(A, g), settle();
    }
    CHECK(job(id) && has_log(id, 7) && has_log(id, 6));
    for (int i = 0; i < 200 && has_log(id, 4); i++) loop_turn(w.loop, 10);
    CHECK(!has_log(id, 2) && !has_log(id, 3) && !has_log(id, 4) && has_log(id, 5));
    finish_policy();
}

static struct retain_policy default_policy(void)
{
    struct retain_policy p;
    for (int i = 0; i < RETAIN_N; i++)
        if (retain_read(&p, (enum retain_id)i, retain_rows[i].fallback, NULL)) abort();
    return p;
}

static void test_words(void)
{
    struct retain_policy p = default_policy();
    struct err e;
    CHECK(p.keep[RETAIN_METRICS] == (int64_t)30 * 24 * HOUR && p.keep[RETAIN_EPOCHS] == 16);
    CHECK(!retain_read(&p, RETAIN_JOBS, "12h", &e) && p.keep[RETAIN_JOBS] == 12 * HOUR);
    CHECK(!retain_read(&p, RETAIN_JOBS, "45s", &e) && p.keep[RETAIN_JOBS] == 45000);
    CHECK(!retain_read(&p, RETAIN_JOBS, "never", &e) && p.keep[RETAIN_JOBS] == RETAIN_NEVER);
    CHECK(!retain_read(&p, RETAIN_JOBS_MAX, "7", &e) && p.keep[RETAIN_JOBS_MAX] == 7);
    static const char *const bad[] = {"",    "0d", "-1d",  "5",      "5w",
                                      "5dd", "d",  "1e3d", " never", "99999999999d"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(retain_read(&p, RETAIN_JOBS, bad[i], &e) && strstr(e.text, "--keep-jobs"), "%s",
                  bad[i]);
    }
    CHECK(retain_read(&p, RETAIN_JOBS_MAX, "7d", &e) && retain_read(&p, RETAIN_EPOCHS, "0", &e));
}

/* Checks that deploy/README.md has every row, word for word. */
static void test_document(void)
{
    char *text = file_read("deploy/README.md", 1 << 20, NULL, NULL), want[512];
    for (int i = 0; text && i < RETAIN_N; i++) {
        const struct retain_row *r = &retain_rows[i];
        snprintf(want, sizeof want, "| `--%s` | %s | %s |", r->option, r->fallback, r->sentence);
        CHECK_MSG(strstr(text, want), "deploy/README.md lacks: %s", want);
    }
    CHECK(text != NULL);
    free(text);
}

int main(void)
{
    RUN(test_words);
    RUN(test_document);
    RUN(test_age);
    RUN(test_most);
    RUN(test_parts);
    RUN(test_never);
    RUN(test_in_use);
    RUN(test_clock);
    RUN(test_many);
    RUN(test_audit);
    RUN(test_older);
    RUN(test_epochs);
    return test_done("seqd_sweep");
}
