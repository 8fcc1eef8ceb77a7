/* test_seqd_rows: checks bad rows in every table. A job that cannot be read must fail with the
 * reason. All other jobs must continue. */
#include <sqlite3.h>
#include "daemon/spec/json.h"
#include "tests/lib/rest.h"

static void tamper(const char *sql)
{
    char path[128];
    sqlite3 *db;
    char *why = NULL;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(path, &db));
    CHECK_MSG(!sqlite3_exec(db, sql, NULL, NULL, &why), "%s: %s", sql, why);
    sqlite3_free(why);
    sqlite3_close(db);
}

static const struct {
    const char *sql; /* J is replaced by the job's id */
    const char *state, *says;
} faults[] = {
    {"SELECT J", "queued", ""},
    {"UPDATE jobs SET spec = json_set(spec, '$.wings', 2) WHERE id = J", "queued", ""},
    {"UPDATE jobs SET spec = json_set(spec, '$.model.wings', 2) WHERE id = J", "queued", ""},
    {"UPDATE jobs SET spec = '{\"kind\"' WHERE id = J", "failed", "not valid JSON"},
    {"UPDATE jobs SET spec = '' WHERE id = J", "failed", "not valid JSON"},
    {"UPDATE jobs SET spec = json_set(spec, '$.parallel.strategy', 'osmosis') WHERE id = J",
     "failed", "osmosis"},
    {"UPDATE jobs SET spec = json_set(spec, '$.resources.ranks', 1000000) WHERE id = J", "failed",
     "resources.ranks"},
    {"UPDATE events SET data = '{\"x' WHERE job = J", "failed", "event "},
    {"UPDATE events SET data = '[]' WHERE job = J", "failed", "not an object"},
    {"INSERT INTO events (job, epoch, at, type, data) VALUES (J, 0, 1, 13, '{}')", "failed",
     "cannot take the event done"},
    {"INSERT INTO events (job, epoch, at, type, data) VALUES (J, 0, 1, 99, '{}')", "queued", ""},
    {"INSERT INTO events (job, epoch, at, type, data) VALUES (J, 0, 1, -1, '{')", "queued", ""},
    {"DELETE FROM events WHERE job = J", "failed", "no events"},
    {"UPDATE jobs SET doc = '\"state' WHERE id = J", "queued", "\"name\":\"t\""},
    {"UPDATE jobs SET doc = '\"state', spec = '[]' WHERE id = J", "failed", "cannot be read"},
    {"UPDATE jobs SET plan = '{', result = 'x' WHERE id = J", "queued", ""},
    {"INSERT INTO metrics (job, data) VALUES (J, '[{\"step\":3},{\"step\":')", "queued", ""},
    {"INSERT INTO metrics (job, data) VALUES (J, '')", "queued", ""},
    {"INSERT INTO marks VALUES (J, 0, -5)", "queued", ""},
    {"INSERT INTO part_marks VALUES (J, 7, -1, 9223372036854775807)", "queued", ""},
    /* 77 is not a state, so the job is shown with its previous state */
    {"UPDATE jobs SET state = 77 WHERE id = J", "queued", ""},
    {"UPDATE jobs SET state = -1 WHERE id = J", "queued", ""},
    {"INSERT INTO keys VALUES ('tester key', 'print', J, 0)", "queued", ""},
};
enum { N_FAULTS = sizeof faults / sizeof *faults };

/* Tells whether the answer is one JSON document. */
static bool is_json(void)
{
    const char *body = strstr(reply, "\r\n\r\n");
    struct err e;
    char *text = body ? json_canonical(body + 4, strlen(body + 4), &e) : NULL;
    free(text);
    return text != NULL;
}

static void apply(int i, int64_t id)
{
    char sql[512], *out = sql;
    for (const char *p = faults[i].sql; *p; p++) {
        const bool is_id = *p == 'J' && (!p[1] || strchr(", )", p[1]));
        out += is_id ? sprintf(out, "%lld", (long long)id) : sprintf(out, "%c", *p);
    }
    tamper(sql);
}

static void test_every_row(void)
{
    char path[64], want[64];
    begin();
    for (int i = 0; i < N_FAULTS; i++) CHECK(post("/v1/jobs", job_json) == 201);
    close_server();
    for (int i = 0; i < N_FAULTS; i++) apply(i, i + 1);
    begin_in(false, 0);
    for (int i = 0; i < N_FAULTS; i++) {
        const bool failed = *faults[i].state == 'f';
        snprintf(path, sizeof path, "/v1/jobs/%d", i + 1);
        snprintf(want, sizeof want, "\"state\":\"%s\"", faults[i].state);
        CHECK_MSG(get(path) == 200 && is_json(), "%s: %s", faults[i].sql, reply);
        CHECK_MSG(strstr(reply, want) && strstr(reply, faults[i].says), "%s: %s", faults[i].sql,
                  reply);
        CHECK_MSG(!failed || (strstr(reply, "\"class\":\"final\"") &&
                              strstr(reply, "\"finished_at\":\"2") && strstr(reply, "\"id\":")),
                  "%s: %s", faults[i].sql, reply);
        snprintf(path, sizeof path, "/v1/jobs/%d/events", i + 1);
        CHECK_MSG(get(path) == 200 && is_json(), "%s: %s", faults[i].sql, reply);
        CHECK_MSG(!failed || strstr(reply, "\"code\":\"unreadable\""), "%s", faults[i].sql);
        snprintf(path, sizeof path, "/v1/jobs/%d/metrics", i + 1);
        CHECK_MSG(get(path) == 200 && is_json(), "%s: %s", faults[i].sql, reply);
        snprintf(path, sizeof path, "/v1/jobs/%d:cancel", i + 1);
        CHECK_MSG(post(path, "") / 100 == 2 && is_json(), "%s: %s", faults[i].sql, reply);
    }
    CHECK(get("/v1/jobs") == 200 && is_json());
    CHECK(get("/v1/jobs?state=failed") == 200 && is_json() && strstr(reply, "\"id\":4"));
    CHECK(post_with("/v1/jobs", "Idempotency-Key: key\r\n", job_json) == 422);
    CHECK(post("/v1/jobs", job_json) == 201);
    close_server();
    begin_in(false, 0); /* the failed job must still be failed, and no other job may fail */
    CHECK(get("/v1/jobs/4") == 200 && strstr(reply, "\"state\":\"failed\""));
    CHECK(get("/v1/jobs/4/events") == 200);
    const char *first = strstr(reply, "unreadable");
    CHECK(first && !strstr(first + 1, "unreadable"));
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_every_row);
    return test_done("seqd_rows");
}
