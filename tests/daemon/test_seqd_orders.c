/* test_seqd_orders: orders about more than 1,000 jobs. They are acknowledged with 202 when they are
 * on disk, carried out in slices, and continued after a restart. */
#include <sqlite3.h>
#include "api/core/job.h"
#include "daemon/spec/json.h"
#include "tests/lib/rest.h"

static char ann[AUTH_TOKEN_SIZE], bob[AUTH_TOKEN_SIZE];

static void on_submitted(void *arg, const struct job *j, const struct err *e)
{
    CHECK_MSG(!e, "%s", e ? e->text : "");
    ++*(int *)arg;
}

/* Submits n jobs of ann, without their plans. */
static void submit(int n)
{
    struct job_spec *s = malloc(sizeof *s);
    struct err e = {0};
    int done = 0;
    if (!s) abort();
    CHECK(!json_spec_read(job_json, strlen(job_json), JSON_FOR_PEOPLE, s, &e));
    for (int i = 0; i < n; i++) {
        const struct commit_new new = {.spec = s, .owner = "ann"};
        commit_submit(control_commits(w.control), &new, on_submitted, &done);
        while (done < i - 200) loop_turn(w.loop, 5);
    }
    while (done < n) loop_turn(w.loop, 5);
    free(s);
}

static void begin_users(int n)
{
    begin();
    rest_token("ann", ROLE_USER, 0, ann);
    rest_token("bob", ROLE_USER, 0, bob);
    submit(n);
}

static int ask_as(const char *token, const char *method, const char *path, const char *body)
{
    char out[1024];
    snprintf(
        out, sizeof out,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\n"
        "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        method, path, token, strlen(body), body);
    return talk(out);
}

/* Tells whether the order has the text, such as "\"handled\":64". */
static bool shows(int64_t id, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/orders/%lld", (long long)id);
    CHECK_MSG(get(path) == 200, "%s", reply);
    return strstr(reply, text);
}

static void wait_finished(int64_t id)
{
    while (shows(id, "\"finished_at\":null")) continue;
}

static int count(const char *state)
{
    char path[64];
    int n = 0;
    for (int64_t cursor = 0;; n++) {
        snprintf(path, sizeof path, "/v1/jobs?limit=1&state=%s&cursor=%lld", state,
                 (long long)cursor);
        CHECK(get(path) == 200);
        const char *at = strstr(reply, "\"data\":[{\"id\":");
        if (!at) return n;
        cursor = atoll(at + 14);
    }
}

/* Checks an order about more jobs than are ordered before the answer. */
static void test_many(void)
{
    begin_users(ORDERS_LIVE + 1);
    CHECK(ask_as(ann, "POST", "/v1/jobs:cancel", "{\"name\":\"t\",\"dry_run\":true}") == 200);
    CHECK(strstr(reply, "{\"matched\":1001,\"cancelled\":0}"));
    CHECK(ask_as(bob, "POST", "/v1/jobs:cancel", "{\"name\":\"t\"}") == 200);
    CHECK(strstr(reply, "{\"matched\":0,\"cancelled\":0}"));
    CHECK(ask_as(ann, "POST", "/v1/jobs:suspend", "{\"name\":\"t\"}") == 202);
    CHECK(strstr(reply, "{\"matched\":1001,\"order\":1}"));
    CHECK(strstr(reply, "Location: /v1/orders/1\r\n"));
    CHECK(ask_as(bob, "GET", "/v1/orders/1", "") == 404);
    CHECK(ask_as(ann, "GET", "/v1/orders/2", "") == 404);
    wait_finished(1);
    CHECK(shows(1, "\"order\":\"suspend\",\"by\":\"ann\",") && shows(1, "\"matched\":1001,"));
    CHECK_MSG(shows(1, "\"handled\":1001,\"suspended\":1001}"), "%s", reply);
    CHECK(get("/v1/jobs/1001") == 200 && strstr(reply, "\"state\":\"suspended\""));
    /* one job fewer is answered when it is done */
    CHECK(post("/v1/jobs/7:cancel", "") == 202);
    CHECK(ask_as(ann, "POST", "/v1/jobs:cancel", "{\"name\":\"t\"}") == 200);
    CHECK(strstr(reply, "{\"matched\":1000,\"cancelled\":1000}"));
    finish();
}

static int n_added;
static int64_t added_id;
static struct err added_err;

static void on_added(void *arg, int64_t id, const struct err *e)
{
    n_added++;
    added_id = id;
    added_err = e ? *e : (struct err){0};
}

/* Adds an order about the jobs `from` to `to`, in descending order. */
static void add(enum orders_what what, const char *who, int from, int to)
{
    const int n = to - from + 1;
    int64_t *job = calloc((size_t)n, sizeof *job);
    if (!job) abort();
    for (int i = 0; i < n; i++) job[i] = to - i;
    orders_add(w.routes.orders, &(struct orders_new){what, who, job, n}, on_added, NULL);
}

static void restart(void)
{
    close_server();
    begin_in(false, 0);
}

/* Checks that an acknowledged order is carried out after a restart: from its beginning, from its
 * middle, and not again once it is finished. */
static void test_restart(void)
{
    enum { N = 3 * ORDERS_SLICE + 5 };
    begin_users(N);
    n_added = 0;
    add(ORDERS_CANCEL, "ann", 1, N - 1);
    while (!n_added) loop_turn(w.loop, 5);
    CHECK(!added_err.code && added_id == 1);
    restart(); /* before the first slice */
    CHECK(count("queued") > 0);
    while (shows(1, "\"handled\":0,")) continue;
    restart();
    wait_finished(1);
    CHECK_MSG(shows(1, "\"handled\":196,\"cancelled\":196}"), "%s", reply);
    CHECK(count("queued") == 1 && count("cancelled") == N - 1);
    restart();
    for (int i = 0; i < 50; i++) loop_turn(w.loop, 1);
    CHECK(shows(1, "\"cancelled\":196}"));
    n_added = 0;
    add(ORDERS_SUSPEND, "ann", N, N);
    while (!n_added) loop_turn(w.loop, 5);
    CHECK(added_id == 2); /* no id is used twice */
    wait_finished(2);
    CHECK(count("suspended") == 1);
    finish();
}

/* Checks that an order counts only the jobs that accept it, and that the next slices follow. */
static void test_refused(void)
{
    enum { N = 2 * ORDERS_SLICE + 2 };
    begin_users(N);
    n_added = 0;
    add(ORDERS_CANCEL, "ann", 2, 3 * N); /* the last two thirds do not exist */
    while (!n_added) loop_turn(w.loop, 5);
    wait_finished(1);
    CHECK_MSG(shows(1, "\"handled\":389,\"cancelled\":129}"), "%s", reply);
    CHECK(count("queued") == 1);
    finish();
}

/* Checks the limits on unfinished orders, of one user and of all. */
static void test_limits(void)
{
    char user[16];
    begin_users(1);
    for (int i = 0; i < 20; i++) loop_turn(w.loop, 1);
    n_added = 0;
    for (int i = 0; i < ORDERS_USER; i++) add(ORDERS_RESUME, "ann", 1, 1);
    CHECK(!n_added); /* no order is acknowledged before its commit */
    add(ORDERS_RESUME, "ann", 1, 1);
    CHECK(n_added == 1 && added_err.code == ERR_TOO_LARGE);
    CHECK(strstr(added_err.text, "ann has 4 orders about many jobs under way"));
    for (int i = ORDERS_USER; i < ORDERS_MAX; i++) {
        snprintf(user, sizeof user, "u%d", i);
        add(ORDERS_RESUME, user, 1, 1);
    }
    add(ORDERS_RESUME, "zoe", 1, 1);
    CHECK(n_added == 2 && added_err.code == ERR_TOO_LARGE && strstr(added_err.text, "64 orders"));
    while (n_added < ORDERS_MAX + 2) loop_turn(w.loop, 5);
    wait_finished(ORDERS_MAX);
    n_added = 0;
    add(ORDERS_RESUME, "ann", 1, 1);
    while (!n_added) loop_turn(w.loop, 5);
    CHECK(!added_err.code && added_id == ORDERS_MAX + 1);
    finish();
}

/* Checks that a damaged row stops no other order, and is not carried out. */
static void test_damaged(void)
{
    static const char *const rows[] = {
        "(7, 1, 0, 'ann', 2, '1-3', 0, 0, 0)",   "(8, 1, 0, 'ann', 2, '1', 0, 0, 0)",
        "(9, 1, 0, 'ann', 2, '2-1', 0, 0, 0)",   "(10, 1, 3, 'ann', 2, '1-2', 0, 0, 0)",
        "(11, 1, 0, 'ann', 2, '1-2x', 0, 0, 0)", "(12, 1, 0, 'ann', 2, '1-2', 3, 0, 0)",
        "(13, 1, 0, 'ann', 2, '3,5', 0, 0, 0)"};
    char path[128], sql[256];
    sqlite3 *db = NULL;
    begin_users(5);
    close_server();
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(sql, sizeof sql,
                 "INSERT INTO orders (id, at, what, who, n_jobs, jobs, handled, done, finished_at) "
                 "VALUES %s",
                 rows[i]);
        CHECK_MSG(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    }
    sqlite3_close(db);
    begin_in(false, 0);
    wait_finished(13);
    CHECK(shows(13, "\"cancelled\":2}") && count("queued") == 3);
    CHECK(shows(7, "\"finished_at\":null"));
    CHECK(get("/v1/orders/10") == 404); /* a version that is newer wrote it */
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_many);
    RUN(test_restart);
    RUN(test_refused);
    RUN(test_limits);
    RUN(test_damaged);
    return test_done("seqd_orders");
}
