/* test_seqd_after: tests jobs that wait for the ends of others (`after`, `after_any`): how they
 * begin or fail, also after a restart, and the ids that are refused. */
#include <sqlite3.h>
#include "api/core/job_state.h"
#include "tests/lib/rest.h"

/* The jobs that had ended before this seqd began. */
enum { OK = 40, FAILED, CANCELLED, OTHERS };

static const char *spec_with(const char *more)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":"
             "2,\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{"
             "\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":5}%s}",
             more);
    return text;
}

static void add_ended(int id, int state, const char *owner)
{
    char doc[128];
    struct store_txn *t = store_begin();
    snprintf(doc, sizeof doc, "\"id\":%d,\"state\":\"%s\"", id,
             job_state_name((enum job_state)state));
    store_job_new(t, id, 1000, spec_with(""), NULL, doc, owner);
    store_event_add(t, &(struct store_event){id, id, 1, 1000, EV_SUBMIT, "{}"});
    store_job_set(t, id, state, doc);
    commit(t);
}

static void begin_with_jobs(void)
{
    begin();
    add_ended(OK, JOB_SUCCEEDED, "tester");
    add_ended(FAILED, JOB_FAILED, "tester");
    add_ended(CANCELLED, JOB_CANCELLED, "tester");
    add_ended(OTHERS, JOB_SUCCEEDED, "other");
    close_server();
    begin_in(false, 0);
}

/* Submits a job, and returns its id. */
static int64_t submit(const char *more)
{
    CHECK_MSG(post("/v1/jobs", spec_with(more)) == 201, "%s: %s", more, reply);
    const char *id = strstr(reply, "\"id\":");
    return id ? strtoll(id + 5, NULL, 10) : 0;
}

static int64_t submit_after(const char *field, int64_t id)
{
    char more[64];
    snprintf(more, sizeof more, ",\"%s\":[%lld]", field, (long long)id);
    return submit(more);
}

/* Waits until the job's JSON has the text. */
static void becomes(int64_t id, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    for (int i = 0; i < 500; i++) {
        CHECK(get(path) == 200);
        if (strstr(reply, text)) return;
        loop_turn(w.loop, 10);
    }
    CHECK_MSG(false, "job %lld never has %s: %s", (long long)id, text, reply);
}

static void cancel(int64_t id)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld:cancel", (long long)id);
    CHECK_MSG(post(path, "") == 202 || post(path, "") == 200, "%s", reply);
}

/* A job that waits for no other one has a reason of the nodes: none is up. */
#define FREE    "\"code\":\"no_node\""
#define WAITS   "\"code\":\"after\""
#define IS_OVER "\"state\":\"failed\""

static void test_ended_before(void)
{
    begin_with_jobs();
    becomes(submit_after("after", OK), FREE);
    becomes(submit_after("after_any", FAILED), FREE);
    becomes(submit_after("after_any", CANCELLED), FREE);
    const int64_t id = submit_after("after", FAILED);
    becomes(id, IS_OVER);
    CHECK(strstr(reply, "\"code\":\"dependency_failed\"") &&
          strstr(reply, "job 41, which was to succeed before this one, has failed"));
    becomes(submit_after("after", id), IS_OVER);
    finish();
}

/* Returns the version of the stored file, which is 2 if the seqd before must refuse it. */
static int file_version(void)
{
    char path[160];
    sqlite3 *db;
    sqlite3_stmt *st;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(path, &db) &&
          !sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL) &&
          sqlite3_step(st) == SQLITE_ROW);
    const int version = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return version;
}

static void test_ends_later(void)
{
    begin_with_jobs();
    const int64_t first = submit("");
    CHECK(file_version() == 1);
    const int64_t ok = submit_after("after", first), any = submit_after("after_any", first),
                  third = submit_after("after", ok);
    CHECK(file_version() == 2);
    becomes(ok, WAITS);
    CHECK(strstr(reply, "has succeeded"));
    becomes(any, WAITS);
    close_server();
    begin_in(false, 0);
    becomes(ok, WAITS);
    becomes(any, "has ended");
    cancel(first);
    becomes(any, FREE);
    becomes(ok, IS_OVER);
    becomes(third, IS_OVER);
    CHECK(strstr(reply, "has failed"));
    finish();
}

static int post_as(const char *user, const char *more)
{
    char token[AUTH_TOKEN_SIZE], request[4096];
    const char *body = spec_with(more);
    rest_token(user, ROLE_USER, 0, token);
    snprintf(request, sizeof request,
             "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: "
             "Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             token, strlen(body), body);
    return talk(request);
}

static void test_refused(void)
{
    static const struct {
        const char *more, *says;
    } cases[] = {
        {",\"after\":[999]", "there is no job 999"},
        {",\"after_any\":[40,999]", "after_any: there is no job 999"},
        {",\"after\":[0]", "numbers from 1 on"},
        {",\"after\":[\"40\"]", "numbers from 1 on"},
        {",\"after\":40", "a list of jobs' ids"},
        {",\"after\":[40,40,40,40,40,40,40,40,40],\"after_any\":[40,40,40,40,40,40,40,40]",
         "more than 16 jobs"},
    };
    begin_with_jobs();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_MSG(post("/v1/jobs", spec_with(cases[i].more)) == 400 && strstr(reply, cases[i].says),
                  "%s: %s", cases[i].more, reply);
    /* An operator may name any job, another user only own ones. */
    becomes(submit_after("after", OTHERS), FREE);
    CHECK(post_as("ann", ",\"after\":[43]") == 400 && strstr(reply, "there is no job 43"));
    CHECK(post_as("other", ",\"after\":[43]") == 201);
    finish();
}

/* A job for which a live job waits is not removed. */
static void test_removal(void)
{
    begin_with_jobs();
    const int64_t first = submit(""), then = submit(",\"after\":[40,44]");
    CHECK(first == 44);
    becomes(then, "waits until job 44 has succeeded");
    CHECK_MSG(talk("DELETE /v1/jobs/40 HTTP/1.1\r\n" HEAD "\r\n") == 409, "%s", reply);
    CHECK(strstr(reply, "after"));
    cancel(then);
    becomes(then, "\"state\":\"cancelled\"");
    CHECK_MSG(talk("DELETE /v1/jobs/40 HTTP/1.1\r\n" HEAD "\r\n") == 202, "%s", reply);
    CHECK(post("/v1/jobs", spec_with(",\"after_any\":[40]")) == 400);
    finish();
}

int main(void)
{
    RUN(test_ended_before);
    RUN(test_ends_later);
    RUN(test_refused);
    RUN(test_removal);
    return test_done("seqd_after");
}
