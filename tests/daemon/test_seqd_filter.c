/* test_seqd_filter: tests the selection of jobs by name, labels and state, to list them and to
 * cancel them. Also tests jobs that were stored before the index of names existed.
 *   SEQD_BENCH=1   runs no test, and measures how long pages by name, label and state of a million
 *                  jobs take */
#include <sqlite3.h>
#include "api/core/clock.h"
#include "daemon/http/filter.h"
#include "tests/lib/rest.h"

static void submit(const char *name, const char *labels)
{
    char body[1024];
    snprintf(body, sizeof body,
             "{\"kind\":\"train\",\"name\":\"%s\",\"labels\":%s,\"model\":{\"config\":{"
             "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
             "\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},"
             "\"train\":{\"steps\":5}}",
             name, labels);
    CHECK_MSG(post("/v1/jobs", body) == 201, "%s", reply);
}

/* Returns the ids of a page, such as "3 1", newest first. */
static const char *ids(const char *query)
{
    static char out[4096];
    char path[512];
    size_t n = 0;
    snprintf(path, sizeof path, "/v1/jobs?%s", query);
    if (get(path) != 200) return reply;
    *out = 0;
    for (const char *p = reply; (p = strstr(p, "{\"id\":")); p++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", n ? " " : "", atoi(p + 6));
    return out;
}

static void list_all(void)
{
    CHECK_STR(ids("name=a"), "5 3 1");
    CHECK_STR(ids("name=none"), "");
    CHECK_STR(ids("name="), ""); /* a job without a name cannot be found by its name */
    CHECK_STR(ids("label.team=x"), "4 3 2");
    CHECK_STR(ids("label.team=x&name=a"), "3");
    CHECK_STR(ids("label.team=x&label.size=l"), "4 2");
    CHECK_STR(ids("label.size=l&label.team=y"), "");
    CHECK_STR(ids("label.team=%C3%A9%22%27"), "6"); /* é"' */
    CHECK_STR(ids("name=a&state=cancelled"), "5");
    CHECK_STR(ids("name=a&state=queued,cancelled"), "5 3 1");
    CHECK_STR(ids("name=a&state=running"), "");
    CHECK_STR(ids("name=a&limit=2"), "5 3");
    CHECK(strstr(reply, "\"next_cursor\":\"3\",\"has_more\":true"));
    CHECK_STR(ids("name=a&limit=2&cursor=3"), "1");
    CHECK(strstr(reply, "\"has_more\":false"));
}

static void test_lists(void)
{
    sqlite3 *db = NULL;
    char path[128];
    begin();
    submit("a", "{}");
    submit("", "{\"team\":\"x\",\"size\":\"l\"}");
    submit("a", "{\"team\":\"x\",\"size\":\"s\"}");
    submit("b", "{\"size\":\"l\",\"team\":\"x\"}");
    submit("a", "{\"team\":\"y\"}");
    submit("b", "{\"team\":\"\\u00e9\\\"'\"}");
    CHECK(post("/v1/jobs/5:cancel", "") == 202);
    list_all();
    /* An older seqd wrote the database, and one document is damaged. */
    submit("a", "{}");
    close_server();
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db,
                       "DROP TABLE tags; DELETE FROM meta WHERE key = 'tags';"
                       "UPDATE jobs SET doc = '\"name\":\"a', state = 5 WHERE id = 7",
                       NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    begin_in(false, 0);
    list_all();
    finish();
}

static void test_refused(void)
{
    static const struct {
        const char *path, *body, *says;
    } cases[] = {
        {"/v1/jobs?label=x", NULL, "unknown query parameter"},
        {"/v1/jobs?label.=x", NULL, "unknown query parameter"},
        {"/v1/jobs?name="
         "0123456789012345678901234567890123456789012345678901234567890123"
         "0123456789012345678901234567890123456789012345678901234567890123"
         "0123456789012345678901234567890123456789012345678901234567890123"
         "0123456789012345678901234567890123456789012345678901234567890123",
         NULL, "at most 255 bytes"},
        {"/v1/jobs?label.a=&label.b=&label.c=&label.d=&label.e=&label.f=&label.g=&label.h=&label.i",
         NULL, "at most 7 labels"},
        {"/v1/jobs:cancel", "", "want an object"},
        {"/v1/jobs:cancel", "{}", "no filter"},
        {"/v1/jobs:cancel", "{\"dry_run\":true}", "no filter"},
        {"/v1/jobs:cancel", "{\"state\":\"queued\"}", "a list of states"},
        {"/v1/jobs:cancel", "{\"state\":[\"sleeping\"]}", "not one of queued"},
        {"/v1/jobs:cancel", "{\"state\":[3]}", "a list of states"},
        {"/v1/jobs:cancel", "{\"name\":3}", "name: want a string"},
        {"/v1/jobs:cancel", "{\"labels\":{\"a\":1}}", "labels: want an object"},
        {"/v1/jobs:cancel", "{\"labels\":{\"\":\"\"}}", "labels: want an object"},
        {"/v1/jobs:cancel", "{\"labels\":[]}", "labels: want an object"},
        {"/v1/jobs:cancel", "{\"name\":\"a\",\"dry_run\":1}", "dry_run: want true"},
        {"/v1/jobs:cancel", "{\"name\":\"a\",\"nmae\":\"a\"}", "unknown field"},
        {"/v1/jobs:cancel", "{\"name\":\"a\"", "byte"},
        {"/v1/jobs:cancel", "{\"name\":\"a\"}x", "byte"},
        {"/v1/jobs:cancel", "{\"name\":\"a\\u0000b\"}", "name: a text has"},
    };
    begin();
    submit("a", "{}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int status = cases[i].body ? post(cases[i].path, cases[i].body) : get(cases[i].path);
        CHECK_MSG(status == 400 && strstr(reply, cases[i].says), "case %zu: %d %s", i, status,
                  reply);
    }
    CHECK_STR(ids("state=queued"), "1");
    finish();
}

/* Cancels more jobs than fit into a group of commits. Jobs that have ended are not counted. */
static void test_cancel_many(void)
{
    enum { N = 2 * STORE_GROUP + 3 };
    begin();
    for (int i = 0; i < N; i++) submit("many", i % 2 ? "{\"odd\":\"1\"}" : "{}");
    submit("other", "{}");
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    CHECK(post("/v1/jobs:cancel", "{\"name\":\"many\",\"dry_run\":true}") == 200);
    CHECK_MSG(strstr(reply, "{\"matched\":514,\"cancelled\":0}"), "%s", reply);
    CHECK(get("/v1/jobs/2") == 200 && strstr(reply, "\"state\":\"queued\""));
    CHECK(post("/v1/jobs:cancel", "{\"name\":\"many\",\"labels\":{\"odd\":\"1\"},"
                                  "\"state\":[\"queued\",\"running\"]}") == 200);
    CHECK_MSG(strstr(reply, "{\"matched\":257,\"cancelled\":257}"), "%s", reply);
    CHECK(post("/v1/jobs:cancel", "{\"state\":[\"cancelled\"]}") == 200);
    CHECK(strstr(reply, "{\"matched\":0,\"cancelled\":0}"));
    CHECK(post("/v1/jobs:cancel", "{\"name\":\"many\"}") == 200);
    CHECK_MSG(strstr(reply, "{\"matched\":257,\"cancelled\":257}"), "%s", reply);
    CHECK_STR(ids("state=queued"), "516");
    close_server(); /* it is on disk */
    begin_in(false, 0);
    CHECK_STR(ids("state=queued"), "516");
    CHECK_STR(ids("name=many&state=cancelled&limit=1"), "515");
    finish();
}

static void time_page(const char *query)
{
    enum { N = 200 };
    int64_t each[N];
    for (int i = 0; i < N; i++) {
        int64_t us = clock_us();
        ids(query);
        each[i] = clock_us() - us;
        for (int k = i; k > 0 && each[k] < each[k - 1]; k--)
            us = each[k], each[k] = each[k - 1], each[k - 1] = us;
    }
    printf("%-50s p50 %6.2f ms  p99 %6.2f ms\n", query, (double)each[N / 2] / 1e3,
           (double)each[N - 3] / 1e3);
}

/* Measures pages over a million jobs that have ended, half of which have the same name. The index
 * is made when seqd starts. */
static void bench(void)
{
    sqlite3 *db = NULL;
    char path[128];
    begin();
    submit("a", "{}");
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    close_server();
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(
              db,
              "DELETE FROM tags; DELETE FROM meta WHERE key = 'tags';"
              "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000) "
              "INSERT INTO jobs (id, state, created_at, spec, plan, doc, result, owner) SELECT i, "
              "6 - (i % 7 = 0), created_at, spec, plan, "
              "replace(replace(replace(doc, '\"id\":1,', '\"id\":' || i || ','), '\"name\":\"a\"', "
              "'\"name\":\"' || CASE WHEN i % 2 THEN 'common' ELSE 'n' || i END || '\"'), "
              "'\"labels\":{}', '\"labels\":{\"team\":\"t' || (i % 10) || '\",\"size\":\"' || "
              "(i % 3) || '\"}'), result, owner FROM jobs, n WHERE id = 1",
              NULL, NULL, NULL) == SQLITE_OK);
    sqlite3_close(db);
    int64_t ms = clock_ms();
    begin_in(false, 0);
    printf("a start that makes the index of a million jobs: %lld ms\n",
           (long long)(clock_ms() - ms));
    close_server();
    ms = clock_ms();
    begin_in(false, 0);
    printf("the next start: %lld ms\n", (long long)(clock_ms() - ms));
    time_page("limit=100");
    time_page("limit=100&state=failed");
    time_page("limit=100&name=common");
    time_page("limit=100&name=common&cursor=500000");
    time_page("limit=100&name=common&state=failed");
    time_page("limit=10&name=common&state=queued,starting,running,stopping");
    time_page("limit=10&name=n77774");
    time_page("limit=100&label.team=t3&label.size=2");
    time_page("limit=100&name=common&label.team=t4"); /* no job has both */
    finish();
}

int main(void)
{
    if (getenv("SEQD_BENCH")) {
        bench();
        return 0;
    }
    RUN(test_lists);
    RUN(test_refused);
    RUN(test_cancel_many);
    return test_done("seqd_filter");
}
