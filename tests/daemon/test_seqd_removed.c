/* test_seqd_removed: tests DELETE and the list of removals, as clients see them. */
#include "api/core/job_state.h"
#include "api/core/removal.h"
#include "daemon/loop/order.h"
#include "tests/lib/rest.h"

static int delete (const char *path)
{
    char out[512];
    const int fd = dial();
    snprintf(out, sizeof out, "DELETE %s HTTP/1.1\r\n" HEAD "\r\n", path);
    send_all(fd, out, strlen(out));
    return answer_of(fd);
}

static void test_delete(void)
{
    begin();
    CHECK(delete ("/v1/jobs/1") == 404);
    CHECK(post("/v1/jobs", job_json) == 201 && post("/v1/jobs", job_json) == 201);
    CHECK(delete ("/v1/jobs/1") == 409 && strstr(reply, "cancel it"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && get("/v1/jobs/1") == 200);
    CHECK(strstr(reply, "\"state\":\"cancelled\""));
    const int status = delete ("/v1/jobs/1");
    CHECK_MSG((status == 202 || status == 200) && strstr(reply, "\"job\":1,\"what\":\"job\""), "%s",
              reply);
    CHECK(get("/v1/jobs/1") == 404 && get("/v1/jobs/1/events") == 404);
    CHECK(get("/v1/jobs/1/metrics") == 404 && get("/v1/jobs/1/logs") == 404);
    CHECK(get("/v1/jobs/1/checkpoints") == 404 && get("/v1/jobs/1/artifacts/x") == 404);
    CHECK(post("/v1/jobs/1:cancel", "") == 404);
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"id\":2") && !strstr(reply, "\"id\":1,"));
    while (delete ("/v1/jobs/1") == 202) loop_turn(w.loop, 5); /* no node has any of its data */
    CHECK(status_of() == 200 && strstr(reply, "\"state\":\"done\""));
    CHECK(get("/v1/removals") == 200 && strstr(reply, "\"why\":\"delete\"") &&
          strstr(reply, "\"has_more\":false"));
    CHECK(get("/v1/removals?state=pending") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/removals?state=gone") == 400 && get("/v1/removals?limit=0") == 400);
    CHECK(get("/v1/jobs/2") == 200);
    finish();
}

static void test_pages(void)
{
    begin();
    for (int i = 1; i <= 3; i++) {
        char path[64];
        CHECK(post("/v1/jobs", job_json) == 201);
        snprintf(path, sizeof path, "/v1/jobs/%d:cancel", i);
        CHECK(post(path, "") == 202);
        snprintf(path, sizeof path, "/v1/jobs/%d", i);
        CHECK(delete (path) / 100 == 2);
    }
    CHECK(get("/v1/removals?limit=2") == 200 && strstr(reply, "\"job\":3") &&
          strstr(reply, "\"next_cursor\":\"2\"") && strstr(reply, "\"has_more\":true"));
    CHECK(get("/v1/removals?limit=2&cursor=2") == 200 && strstr(reply, "\"job\":1") &&
          !strstr(reply, "\"job\":2") && strstr(reply, "\"has_more\":false"));
    finish();
}

/* Checks that the key of a job that has been removed can be used for a new job. */
static void test_key(void)
{
    static const char key[] = "Idempotency-Key: \"k1\"\r\n";
    begin();
    CHECK(post_with("/v1/jobs", key, job_json) == 201 && strstr(reply, "\"id\":1,"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && delete ("/v1/jobs/1") / 100 == 2);
    CHECK(post_with("/v1/jobs", key, job_json) == 201 && strstr(reply, "\"id\":2,"));
    finish();
}

/* ---- prune ----------------------------------------------------------------------------------- */

enum { JOBS = 40 };

static void on_nothing(void *arg, const struct job *j, const struct err *e)
{
}

static int64_t utc_now(void)
{
    return control_commits(w.control)->utc_ms();
}

/* Makes jobs. Job i ended i hours ago, in one of three ways. */
static void fill(void)
{
    for (int i = 1; i <= JOBS; i++) {
        const int64_t at = utc_now() - (int64_t)i * 3600000 - 60000;
        const int state = JOB_SUCCEEDED + i % 3;
        char doc[128];
        struct store_txn *t = store_begin();
        snprintf(doc, sizeof doc, "\"id\":%d,\"state\":\"%s\"", i,
                 job_state_name((enum job_state)state));
        store_job_new(t, i, at, "{}", NULL, doc, "u");
        store_event_add(t, &(struct store_event){i, i, 0, at, EV_SUBMIT, "{}"});
        store_metrics_add(t, i, "[{\"step\":1}]");
        store_job_set(t, i, state, doc);
        commit(t);
    }
}

/* Reads the jobs of "data" in the reply. Returns their number. */
static int listed(int64_t ids[JOBS])
{
    int n = 0;
    const char *end = strstr(reply, "\"kept\":");
    for (const char *p = strstr(reply, "\"data\":"); p && (p = strstr(p, "{\"job\":")) && p < end;
         p++)
        if (n < JOBS) ids[n++] = strtoll(p + 7, NULL, 10);
    return n;
}

static bool exists(int64_t id)
{
    char path[64];
    snprintf(path, sizeof path, "/v1/jobs/%lld", (long long)id);
    return get(path) == 200;
}

/* Marks the jobs that are listed. Returns their number. */
static int all_there(bool there[JOBS + 1])
{
    int n = 0;
    memset(there, 0, (JOBS + 1) * sizeof *there);
    CHECK(get("/v1/jobs?limit=1000") == 200 && strstr(reply, "\"next_cursor\":null"));
    for (const char *p = reply; (p = strstr(p, "{\"id\":")); p++) {
        const int64_t id = strtoll(p + 6, NULL, 10);
        CHECK(id >= 1 && id <= JOBS);
        if (id >= 1 && id <= JOBS) n += !there[id], there[id] = true;
    }
    return n;
}

/* Checks a prune with many filters, until no job is left. It must remove exactly the jobs that its
 * dry run lists. */
static void test_prune_is_its_dry_run(void)
{
    static const char *const states[] = {"", ",\"states\":[\"failed\"]",
                                         ",\"states\":[\"succeeded\",\"cancelled\"]"};
    unsigned seed = 7;
    int left = JOBS;
    begin();
    fill();
    for (int round = 0; round < 60 && left; round++) {
        char body[256];
        int64_t dry[JOBS], wet[JOBS], gone = 0;
        bool before[JOBS + 1], after[JOBS + 1];
        seed = seed * 1103515245u + 12345u;
        const int hours = round < 50 ? (int)(seed >> 16) % JOBS + 1 : 1;
        const int limit = (int)(seed >> 8) % 5 + 1;
        snprintf(body, sizeof body, "{\"older_than\":\"%dh\",\"limit\":%d%s,\"dry_run\":true}",
                 hours, limit, round < 50 ? states[seed % 3] : "");
        CHECK(all_there(before) == left);
        CHECK(post("/v1/prune", body) == 200 && strstr(reply, "\"dry_run\":true"));
        const int n = listed(dry);
        CHECK(all_there(after) == left);
        CHECK(!memcmp(before, after, sizeof before)); /* the dry run has changed nothing */
        memcpy(strstr(body, "true"), "false}", 7);
        CHECK(post("/v1/prune", body) == 202 && listed(wet) == n && n <= limit);
        CHECK(!n || !memcmp(dry, wet, (size_t)n * sizeof *dry));
        CHECK(all_there(after) == left - n);
        for (int i = 1; i <= JOBS; i++) gone += before[i] && !after[i];
        for (int i = 0; i < n; i++)
            CHECK(dry[i] >= hours && before[dry[i]] && !after[dry[i]] && !exists(dry[i]));
        CHECK(gone == n);
        left -= n;
    }
    CHECK_MSG(left < JOBS / 2, "%d left", left);
    finish();
}

static void test_prune_what(void)
{
    begin();
    fill();
    CHECK(post("/v1/prune", "{\"older_than\":\"39h\",\"what\":\"metrics\"}") == 202);
    CHECK(strstr(reply, "\"what\":\"metrics\"") && strstr(reply, "\"rows\":60"));
    while (get("/v1/removals?state=pending") == 200 && !strstr(reply, "\"data\":[]"))
        loop_turn(w.loop, 5);
    CHECK(get("/v1/jobs/40/metrics") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/removals") == 200 && strstr(reply, "\"why\":\"prune\"") &&
          strstr(reply, "\"rows\":60"));
    CHECK(get("/v1/jobs/38/metrics") == 200 && strstr(reply, "\"step\":1"));
    finish();
}

static void test_prune_refusals(void)
{
    static const char *const bad[][2] = {
        {"", "JSON object"},
        {"[]", "JSON object"},
        {"{}", "older_than is missing"},
        {"{\"older_than\":\"5\"}", "older_than: want"},
        {"{\"older_than\":90}", "older_than: want"},
        {"{\"older_than\":\"-1d\"}", "older_than: want"},
        {"{\"older_than\":\"0d\"}", "older_than: want"},
        {"{\"older_than\":\"1d\",\"states\":[]}", "states: want"},
        {"{\"older_than\":\"1d\",\"states\":[\"running\"]}", "states: want"},
        {"{\"older_than\":\"1d\",\"states\":\"failed\"}", "states: want"},
        {"{\"older_than\":\"1d\",\"what\":\"all\"}", "what: want"},
        {"{\"older_than\":\"1d\",\"dry_run\":1}", "dry_run: want"},
        {"{\"older_than\":\"1d\",\"limit\":1001}", "limit: want"},
        {"{\"older_than\":\"1d\",\"dryrun\":true}", "unknown field"},
        {"{\"older_than\":\"1d\"} x", "one JSON object"}};
    begin();
    fill();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(post("/v1/prune", bad[i][0]) == 400 && strstr(reply, bad[i][1]), "%s: %s",
                  bad[i][0], reply);
    CHECK(get("/v1/removals") == 200 && strstr(reply, "\"data\":[]"));
    finish();
}

/* ---- while it is being removed --------------------------------------------------------------- */

/* Submits a job whose data has that path. */
static int post_from(const char *path)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
             "\"data\":{\"train\":[{\"path\":\"%s\"}],\"seq_len\":100},\"train\":{\"steps\":5}}",
             path);
    return post("/v1/jobs", text);
}

/* Gives job 40 a checkpoint and an artifact on a node that is not connected. */
static void add_products(void)
{
    static const struct {
        int type;
        const char *data;
    } events[] = {{EV_ASSIGN, "{\"node\":\"n1\",\"ranks\":1}"},
                  {EV_CHECKPOINT, "{\"step\":5,\"detail\":{\"path\":\"/x\"}}"},
                  {EV_ARTIFACT, "{\"detail\":{\"name\":\"a\",\"size\":7}}"}};
    struct store_txn *t = store_begin();
    for (int i = 0; i < 3; i++)
        store_event_add(t,
                        &(struct store_event){1000 + i, 40, 1, 5, events[i].type, events[i].data});
    commit(t);
}

/* Writes the row of a removal, so that the removal is in progress. The rows of the job are not
 * changed. */
static void order_removal(int what)
{
    struct store_txn *t = store_begin();
    store_removal_add(t, &(struct store_removal){40, utc_now(), what, "delete", ""});
    commit(t);
}

static void begin_with_products(void)
{
    rest_away = true;
    begin();
    fill();
    add_products();
    close_server();
    begin_in(false, 0); /* the ids of the new seqd continue after these jobs */
}

static void test_not_shown(void)
{
    static const char *const shown[] = {"",
                                        "/events",
                                        "/metrics",
                                        "/metrics?last=5",
                                        "/artifacts",
                                        "/checkpoints",
                                        "/checkpoints/5",
                                        "/checkpoints/5.tar",
                                        "/artifacts/a",
                                        "/checkpoints/5/files/x"};
    static const char *const named[] = {"job:40/step-5", "job:40", "job:40/artifacts/a"};
    begin_with_products();
    for (int gone = 0; gone < 2; gone++) {
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
            char path[64];
            snprintf(path, sizeof path, "/v1/jobs/40%s", shown[i]);
            CHECK_MSG((get(path) == 404) == gone, "%s: %s", path, reply);
        }
        for (size_t i = 0; i < sizeof named / sizeof *named; i++)
            CHECK_MSG(post_from(named[i]) == (gone ? 400 : 201), "%s: %s", named[i], reply);
        order_removal(REMOVAL_JOB);
    }
    CHECK(strstr(reply, "has no such job"));
    finish();
    rest_away = false;
}

/* Checks checkpoints that are being removed. They must not be shown to clients, and no job may
 * begin from them. The rest of the job must still be shown. */
static void test_checkpoints_not_shown(void)
{
    static const char *const shown[] = {"/5", "/5.tar", "/5/files/x"};
    begin_with_products();
    for (int gone = 0; gone < 2; gone++) {
        CHECK(get("/v1/jobs/40/checkpoints") == 200);
        CHECK_MSG((strstr(reply, "\"step\":5") == NULL) == gone, "%s", reply);
        for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
            char path[64];
            snprintf(path, sizeof path, "/v1/jobs/40/checkpoints%s", shown[i]);
            CHECK_MSG((get(path) == 404) == gone, "%s: %s", path, reply);
        }
        CHECK_MSG(post_from("job:40/step-5") == (gone ? 400 : 201), "%s", reply);
        CHECK_MSG(post_from("job:40") == (gone ? 400 : 201), "%s", reply);
        CHECK(!gone || strstr(reply, "has no checkpoint"));
        CHECK_MSG(post_from("job:40/artifacts/a") == 201, "%s", reply);
        CHECK(get("/v1/jobs/40/artifacts") == 200 && strstr(reply, "\"name\":\"a\""));
        CHECK(get("/v1/jobs/40/metrics") == 200 && strstr(reply, "\"step\":1"));
        order_removal(REMOVAL_CHECKPOINTS);
    }
    finish();
    rest_away = false;
}

/* ---- usage ----------------------------------------------------------------------------------- */

/* Checks the disk usage of a job. Removed checkpoints must not be counted. If a file was replaced,
 * only its last version must be counted. */
static void test_usage(void)
{
    static const struct {
        int type;
        const char *data;
    } events[] = {{EV_CHECKPOINT, "{\"step\":1,\"detail\":{\"path\":\"/x\",\"size\":1000}}"},
                  {EV_CHECKPOINT, "{\"step\":2,\"detail\":{\"path\":\"/y\",\"size\":500}}"},
                  {EV_CHECKPOINT_REMOVED, "{\"step\":1,\"detail\":{\"path\":\"/x\"}}"},
                  {EV_ARTIFACT, "{\"detail\":{\"name\":\"a\",\"size\":70}}"},
                  {EV_ARTIFACT, "{\"detail\":{\"name\":\"a\",\"size\":30}}"},
                  {EV_ARTIFACT, "{\"detail\":{\"name\":\"b\",\"size\":5}}"},
                  {EV_ARTIFACT, "not JSON"}};
    begin();
    fill();
    struct store_txn *t = store_begin();
    for (int i = 0; i < 7; i++)
        store_event_add(t,
                        &(struct store_event){1000 + i, 40, 1, 5, events[i].type, events[i].data});
    commit(t);
    CHECK(get("/v1/usage?limit=2") == 200);
    CHECK_MSG(strstr(reply, "{\"job\":40,\"bytes\":{\"rows\":") &&
                  strstr(reply, "\"logs\":0,\"checkpoints\":500,\"artifacts\":35,"),
              "%s", reply);
    CHECK(strstr(reply, "\"job\":39") && !strstr(reply, "\"job\":38") &&
          strstr(reply, "\"next_cursor\":\"39\"") && !strstr(reply, "\"database\":{\"bytes\":0"));
    CHECK(get("/v1/usage?limit=64&cursor=2") == 200 && strstr(reply, "\"job\":1,") &&
          strstr(reply, "\"has_more\":false"));
    CHECK(get("/v1/usage?limit=65") == 400 && get("/v1/usage?limit=0") == 400);
    finish();
}

/* ---- streams --------------------------------------------------------------------------------- */

static void test_gaps(void)
{
    begin();
    fill();
    int fd = open_stream("/v1/jobs/39/metrics", NULL);
    CHECK(receive(fd, "event: end") && !strstr(reply, "event: gap") && strstr(reply, "\"step\":1"));
    close(fd);
    CHECK(post("/v1/prune", "{\"older_than\":\"39h\",\"what\":\"metrics\"}") == 202);
    while (get("/v1/removals?state=pending") == 200 && !strstr(reply, "\"data\":[]"))
        loop_turn(w.loop, 5);
    fd = open_stream("/v1/jobs/39/metrics", NULL);
    CHECK(receive(fd, "event: end"));
    CHECK_MSG(strstr(reply, "event: gap\ndata: {\"id\":") &&
                  strstr(reply, "\"what\":\"metrics\"") && !strstr(reply, "\"step\":1"),
              "%s", reply);
    close(fd);
    fd = open_stream("/v1/jobs/39/events", NULL); /* all events still exist */
    CHECK(receive(fd, "event: end") && !strstr(reply, "event: gap"));
    close(fd);
    finish();
}

/* Checks a stream whose reader is slow, so that its job is cancelled and removed while the stream
 * is open. */
static void test_followed_and_removed(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int fd = open_stream("/v1/jobs/1/events", NULL);
    CHECK(receive(fd, "\"type\":\"submit\""));
    order_cancel(control_commits(w.control), 1, "u", on_nothing, NULL);
    removals_order(control_removals(w.control),
                   &(struct store_removal){1, utc_now(), REMOVAL_JOB, "delete", ""}, on_nothing,
                   NULL);
    CHECK(receive(fd, "event: end"));
    CHECK_MSG(strstr(reply, "\"state\":\"removed\"") ? strstr(reply, "event: gap") != NULL
                                                     : strstr(reply, "cancelled") != NULL,
              "%s", reply);
    close(fd);
    finish();
}

int main(void)
{
    json_init();
    RUN(test_delete);
    RUN(test_pages);
    RUN(test_key);
    RUN(test_not_shown);
    RUN(test_checkpoints_not_shown);
    RUN(test_usage);
    RUN(test_gaps);
    RUN(test_followed_and_removed);
    RUN(test_prune_is_its_dry_run);
    RUN(test_prune_what);
    RUN(test_prune_refusals);
    return test_done("seqd_removed");
}
