/* test_seqd_retain_many: removes many jobs while other jobs are submitted. Exactly the jobs that
 * are due must be removed. No iteration of the loop may take long, and no submission may wait for
 * removals. The file of the database must become smaller.
 *   SEQD_BENCH=1   uses 200,000 jobs with 1,000,000 rows on a disk, removes 100,000 of the jobs,
 *                  and prints measurements */
#include <sqlite3.h>
#include <time.h>
#include "api/core/removal.h"
#include "daemon/loop/sweep.h"
#include "tests/lib/sim.h"

#define A (&w.node[0])

static bool bench;
static int n_jobs = 4000;
static struct retain_policy policy;

/* Returns the CPU time of this thread, which runs the loop. The time in which the loop waits is
 * not included. */
static int64_t thread_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t machine_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- the fixture ----------------------------------------------------------------------------- */

static void run_sql(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK_MSG(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static int64_t number(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK);
    CHECK(sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
          sqlite3_step(st) == SQLITE_ROW);
    const int64_t n = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return n;
}

/* Makes 2 * n_jobs jobs. The first half of them ended long ago. Each job has three events and two
 * rows of metrics. */
static void fill(void)
{
    char sql[4096];
    snprintf(
        sql, sizeof sql,
        "BEGIN; CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
        "FROM c WHERE i < %d) SELECT i FROM c;"
        "INSERT INTO jobs (id, state, created_at, spec, plan, doc) SELECT i, 5, 5, "
        "'{\"x\":\"' || hex(zeroblob(500)) || '\"}', hex(zeroblob(1000)), "
        "'\"state\":\"failed\",\"x\":\"' || hex(zeroblob(600)) || '\"' FROM n;"
        "INSERT INTO events (job, epoch, at, type, data) SELECT i, 1, 5, 1, '{\"node\":\"a\"}' "
        "FROM n UNION ALL SELECT i, 1, 5, 16, hex(zeroblob(100)) FROM n UNION ALL "
        "SELECT i, 1, 5, 12, '{}' FROM n;"
        "INSERT INTO metrics (job, data) SELECT i, '[{\"step\":1,\"x\":\"' || "
        "hex(zeroblob(300)) || '\"}]' FROM n UNION ALL SELECT i, hex(zeroblob(300)) FROM n;"
        "INSERT INTO ended (job, at) SELECT i, CASE WHEN i <= %d THEN 1000 ELSE 9000000000 END "
        "FROM n; INSERT INTO meta VALUES ('ended.jobs', '9223372036854775807'); COMMIT;"
        "PRAGMA wal_checkpoint(TRUNCATE)",
        2 * n_jobs, n_jobs);
    run_sql(sql);
}

/* ---- submissions ----------------------------------------------------------------------------- */

enum { SAMPLES = 1 << 18 };
static int32_t latency_us[SAMPLES];
static int n_samples;
static int64_t asked_us;
static bool waiting;

static void on_submitted(void *arg, const struct job *j, const struct err *e)
{
    CHECK(!e);
    if (n_samples < SAMPLES) latency_us[n_samples++] = (int32_t)(machine_us() - asked_us);
    waiting = false;
}

static void submit_one(void)
{
    static struct job_spec s;
    static bool made;
    static const char json[] =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"
        "\"/x\"}],\"seq_len\":100},\"train\":{\"passes\":1}}";
    struct err e;
    if (!made) CHECK(!json_spec_read(json, strlen(json), JSON_FOR_PEOPLE, &s, &e));
    if (!made) CHECK(!family_check(&s, &e));
    made = true;
    waiting = true;
    asked_us = machine_us();
    commit_submit(control_commits(w.control), &(struct commit_new){.spec = &s, .plan = "{}"},
                  on_submitted, NULL);
}

static int by_size(const void *a, const void *b)
{
    return *(const int32_t *)a - *(const int32_t *)b;
}

static void print_latency(const char *when)
{
    if (!n_samples) return;
    qsort(latency_us, (size_t)n_samples, sizeof *latency_us, by_size);
    if (bench)
        printf("  submit %s: %d, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms, most %.2f ms\n", when,
               n_samples, latency_us[n_samples / 2] / 1e3, latency_us[n_samples * 99 / 100] / 1e3,
               latency_us[(int)(n_samples * 0.999)] / 1e3, latency_us[n_samples - 1] / 1e3);
    n_samples = 0;
}

/* ---- the removal ----------------------------------------------------------------------------- */

static struct msg told[4096];
static int n_told;
static int64_t n_all_told;

static void hear(const char *name, const struct msg *m)
{
    if (m->type != MSG_REMOVE || n_told == 4096) return;
    told[n_told++] = *m;
}

static void answer_all(void)
{
    for (int i = 0; i < n_told; i++, n_all_told++) {
        const struct msg m = {
            .type = MSG_REMOVED, .job = told[i].job, .what = told[i].what, .total = 10};
        control_link_calls.message(w.control, A->name, &m);
    }
    n_told = 0;
}

static int64_t left = -1;

static void on_left(void *arg, const struct store_rows *rows, const struct err *e)
{
    CHECK(!e);
    left = rows->n_rows;
}

/* Submits jobs. Each job is submitted after the answer to the previous one. Returns when at_most
 * jobs were submitted. If `gone` is set, it also returns when no removal is pending. */
static void submit_until(int at_most, bool gone)
{
    int64_t longest_us = 0, most_cpu_us = 0, turn = 0;
    bool asking = false;
    for (int n = 0; n < at_most || gone;) {
        const int64_t from = machine_us(), cpu = thread_us();
        answer_all();
        if (!waiting && (n < at_most || gone)) submit_one(), n++;
        loop_turn(w.loop, 1);
        const int64_t us = machine_us() - from;
        if (us > longest_us) longest_us = us;
        if (thread_us() - cpu > most_cpu_us) most_cpu_us = thread_us() - cpu;
        w.now += 1 + us / 1000;
        if (!gone || ++turn % 64) continue;
        if (asking && left == 0 && n_all_told >= n_jobs) break;
        left = -1, asking = true;
        store_read(w.store, ASK_REMOVALS, (const int64_t[4]){0, 1, 1}, NULL, on_left, NULL);
    }
    while (waiting) loop_turn(w.loop, 10);
    if (bench)
        printf("  longest turn of the loop: %.1f ms, with its waits %.1f ms\n", most_cpu_us / 1e3,
               longest_us / 1e3);
}

static void begin_many(void)
{
    struct err e;
    for (int i = 0; i < RETAIN_N; i++) policy.keep[i] = RETAIN_NEVER;
    CHECK(!retain_read(&policy, RETAIN_JOBS, "10m", &e));
    begin();
    close_seqd();
    if (bench) {
        nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        snprintf(w.dir, sizeof w.dir, "/var/tmp/seqd-many-XXXXXX");
        CHECK(mkdtemp(w.dir) != NULL);
        open_seqd(), close_seqd();
    }
    fill();
    w.policy = &policy;
    w.hear = hear;
    w.now = 1000000;
    open_seqd();
    hello(A);
}

static void test_while_submitting(void)
{
    char sql[256];
    begin_many();
    const int64_t pages = number("PRAGMA page_count"), rows = number("SELECT count(*) FROM events");
    CHECK(rows == 6 * n_jobs);
    submit_until(bench ? 2000 : 50, false);
    print_latency("before");
    pass(SWEEP_MS);
    const int64_t from_us = machine_us();
    submit_until(0, true);
    const double seconds = (double)(machine_us() - from_us) / 1e6;
    print_latency("beside the removal");
    close_seqd();
    CHECK(number("SELECT count(*) FROM removals WHERE state = 3") == n_jobs);
    CHECK(number("SELECT count(*) FROM removal_nodes") == 0);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM jobs WHERE id <= %d", n_jobs);
    CHECK(number(sql) == 0);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM jobs WHERE id > %d AND id <= %d", n_jobs,
             2 * n_jobs);
    CHECK(number(sql) == n_jobs);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM events WHERE job <= %d", n_jobs);
    CHECK(number(sql) == 0);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM metrics WHERE job > %d", n_jobs);
    CHECK(number(sql) == 2 * n_jobs);
    const int64_t after = number("PRAGMA page_count"), spare = number("PRAGMA freelist_count");
    CHECK_MSG(after < pages, "%lld pages before, %lld after, %lld free", (long long)pages,
              (long long)after, (long long)spare);
    if (bench)
        printf("  %d jobs removed in %.1f s, %.0f a second; %lld MiB before, %lld after\n", n_jobs,
               seconds, n_jobs / seconds, (long long)pages >> 8, (long long)after >> 8);
    open_seqd();
    finish();
    w.policy = NULL;
}

int main(void)
{
    bench = getenv("SEQD_BENCH") != NULL;
    if (bench) n_jobs = atoi(getenv("SEQD_BENCH")) > 1 ? atoi(getenv("SEQD_BENCH")) : 100000;
    RUN(test_while_submitting);
    return test_done("seqd_retain_many");
}
