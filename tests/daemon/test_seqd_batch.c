/* test_seqd_batch: tests POST /v1/jobs:batch. Either all jobs of a body are stored in one
 * transaction, or none is stored and the error names the wrong spec. Also covers keys, limits and
 * iterations of the loop. Also covers a client that disconnects, and a seqd that stops, while a
 * batch is in progress. */
#include "api/core/job.h"
#include "daemon/http/batch.h"
#include "tests/lib/bad_disk.h"
#include "tests/lib/rest.h"

#define MODEL                                                                                      \
    "\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"                           \
    "\"num_attention_heads\":4,\"intermediate_size\":128}}"
#define SPEC(name, steps)                                                                          \
    "{\"kind\":\"train\",\"name\":\"" name "\"," MODEL                                             \
    ",\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":" steps "}}"
#define THREE "{\"jobs\":[" SPEC("a", "1") "," SPEC("b", "2") "," SPEC("c", "3") "]}"
/* A spec whose model a node must describe. Until the node answers, the batch is in progress. */
#define DESCRIBED "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\"},\"input\":{\"prompt\":\"x\"}}"

static char user_a[AUTH_TOKEN_SIZE], user_b[AUTH_TOKEN_SIZE];

static void begin_users(void)
{
    begin();
    rest_token("ann", ROLE_USER, 0, user_a);
    rest_token("bob", ROLE_USER, 0, user_b);
}

/* Sends a batch without reading the answer. The parameter `who` is a token, or NULL for the
 * admin's token. */
static int batch_begin(const char *who, const char *query, const char *headers, const char *body)
{
    char *out = NULL;
    const int fd = dial(),
              n = asprintf(&out,
                           "POST /v1/jobs:batch%s HTTP/1.1\r\nHost: localhost\r\nConnection: "
                           "close\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zu\r\n%s\r\n%s",
                           query, who ? who : REST_TOKEN, strlen(body), headers, body);
    CHECK(n > 0);
    send_all(fd, out, (size_t)n);
    free(out);
    return fd;
}

static int batch(const char *body)
{
    return answer_of(batch_begin(NULL, "", "", body));
}

static int batch_as(const char *who, const char *body)
{
    return answer_of(batch_begin(who, "", "", body));
}

static int batch_with_key(const char *body)
{
    return answer_of(batch_begin(NULL, "", "Idempotency-Key: k\r\n", body));
}

/* Tells whether the rows of the answer are jobs with these ids, in this order. */
static bool rows_are(int64_t first, int n)
{
    const char *at = strstr(reply, "\"data\":[");
    for (int i = 0; at && i < n; i++) {
        char want[32];
        snprintf(want, sizeof want, "{\"id\":%lld,", (long long)first + i);
        at = strstr(at, "{\"id\":");
        if (!at || strncmp(at, want, strlen(want))) return false;
        at++;
    }
    return at && !strstr(at, "{\"id\":");
}

static bool nothing_is_stored(void)
{
    return get("/v1/jobs") == 200 && strstr(reply, "\"data\":[]") && !control_n_live(w.control);
}

/* Makes {"jobs":[SPEC, ...]}, which the caller frees. */
static char *body_of(int n)
{
    char *out;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    fprintf(f, "{\"jobs\":[");
    for (int i = 0; i < n; i++)
        fprintf(f,
                "%s{\"kind\":\"train\",\"name\":\"n%d\"," MODEL ",\"data\":{\"train\":[{"
                "\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"steps\":%d}}",
                i ? "," : "", i, i + 1);
    fprintf(f, "]}");
    fclose(f);
    return out;
}

/* ---- batches that become jobs ---------------------------------------------------------------- */

static void test_batch(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK_MSG(batch(THREE) == 201 && rows_are(2, 3), "%s", reply);
    const char *a = strstr(reply, "\"name\":\"a\""), *b = strstr(reply, "\"name\":\"b\""),
               *c = strstr(reply, "\"name\":\"c\"");
    CHECK(a && b && c && a < b && b < c && strstr(a, "\"state\":\"queued\""));
    CHECK(strstr(reply, "\"owner\":\"tester\"") && !strstr(reply, "spec_effective"));
    CHECK(get("/v1/jobs/3") == 200 && strstr(reply, "\"name\":\"b\"") &&
          strstr(reply, "\"steps\":2,") && strstr(reply, "\"plan\":{"));
    CHECK(get("/v1/jobs/4/events") == 200 && strstr(reply, "\"type\":\"submit\""));
    CHECK(get("/v1/jobs?name=c") == 200 && rows_are(4, 1)); /* the jobs have their labels */
    CHECK(get("/v1/audit") == 200 && strstr(reply, "\"POST /v1/jobs:batch\",\"status\":201}"));
    close_server();
    begin_in(false, 0); /* after a restart, the answers must be the same */
    CHECK(control_n_live(w.control) == 4);
    CHECK(get("/v1/jobs/4") == 200 && strstr(reply, "\"name\":\"c\""));
    CHECK(post("/v1/jobs", job_json) == 201 && strstr(reply, "\"id\":5,"));
    finish();
}

/* Checks a batch with one bad spec. The answer must name it, with the status that the spec would
 * get by itself. No job may be stored. */
static void test_none(void)
{
    static const struct {
        const char *spec, *pointer, *says;
    } bad[] = {
        {SPEC("x", "-1"), "/jobs/1/train/steps", "jobs[1]: train.steps is -1"},
        {"{\"kind\":\"train\",\"dta\":{}}", "/jobs/1/dta", "did you mean data?"},
        {"{}", "/jobs/1/kind", "jobs[1]: kind is missing"},
        {"{\"kind\":\"train\",\"kind\":\"train\"}", "/jobs/1", "duplicate"},
        {"{\"kind\":\"train\",\"data\":{\"train\":[{\"path\":7}]}}", "/jobs/1/data/train/0/path",
         "must be a string"},
        {"{\"kind\":\"train\",\"hardware\":{\"devices\":2}}", "/jobs/1/hardware", "leave it out"},
        {"{\"kind\":\"generate\",\"model\":{\"path\":\"job:77\"},\"input\":{\"prompt\":\"x\"}}",
         "/jobs/1/model/path", "has no such job"},
        {"7", "/jobs/1", "jobs[1] must be an object"},
        {"[]", "/jobs/1", "jobs[1] must be an object"},
        {"null", "/jobs/1", "jobs[1] must be an object"},
    };
    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char body[4096], pointer[96];
        snprintf(body, sizeof body, "{\"jobs\":[" SPEC("a", "1") ",%s," SPEC("c", "3") "]}",
                 bad[i].spec);
        snprintf(pointer, sizeof pointer, "\"errors\":[{\"pointer\":\"%s\"", bad[i].pointer);
        CHECK_MSG(batch(body) == 400, "%s: %s", bad[i].spec, reply);
        CHECK_MSG(strstr(reply, pointer) && strstr(reply, bad[i].says), "%s: %s", bad[i].spec,
                  reply);
        CHECK(strstr(reply, "application/problem+json") && nothing_is_stored());
    }
    /* One answer reports all wrong specs. It names as many of them as fit into the answer, and has
     * the number of the remaining ones. */
    CHECK(batch("{\"jobs\":[" SPEC("a", "-1") "," SPEC("b", "1") ",{}," SPEC("c", "-3") "]}") ==
          400);
    CHECK(strstr(reply, "\"detail\":\"jobs[0]: train.steps is -1") &&
          strstr(reply, "{\"pointer\":\"/jobs/2/kind\"") &&
          strstr(reply, "{\"pointer\":\"/jobs/3/train/steps\""));
    CHECK(nothing_is_stored());
    for (int n = 40; n <= BATCH_WRONG + 34; n += BATCH_WRONG - 6) {
        char many[1024] = "{\"jobs\":[{}", pointer[32], more[64];
        for (int i = 1; i < n; i++) strcat(many, ",{}");
        strcat(many, "]}");
        CHECK(batch(many) == 400);
        for (int i = 0; i < n; i++) {
            snprintf(pointer, sizeof pointer, "\"/jobs/%d/kind\"", i);
            CHECK_MSG(!strstr(reply, pointer) == (i >= BATCH_WRONG), "%d of %d", i, n);
        }
        snprintf(more, sizeof more, "{\"pointer\":\"/jobs\",\"detail\":\"and 34 more of the %d", n);
        CHECK_MSG(!strstr(reply, more) == (n <= BATCH_WRONG), "%d: %.2000s", n, reply);
    }
    /* The first job does not fit into memory, and is shown with its plan. The second job names a
     * model on a node, and there is no node. */
    CHECK(batch("{\"jobs\":[" SPEC(
              "a", "1") ",{\"kind\":\"train\"," MODEL
                        ",\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":1000000},\"train\":{"
                        "\"steps\":5},\"resources\":{\"memory_mib\":100}}]}") == 400);
    CHECK_MSG(strstr(reply, "\"code\":\"does_not_fit\"") && strstr(reply, "\"plan\":{"), "%s",
              reply);
    CHECK(strstr(reply, "jobs[1]: ") && nothing_is_stored());
    CHECK(batch("{\"jobs\":[" SPEC("a", "1") "," DESCRIBED "]}") == 503);
    CHECK(strstr(reply, "jobs[1]: ") && nothing_is_stored());
    CHECK(batch(THREE) == 201 && rows_are(1, 3)); /* the refused batch has not used an id */
    finish();
}

static void test_body(void)
{
    static const struct {
        const char *body, *says;
    } bad[] = {
        {"", "must be an object"},
        {"[]", "must be an object"},
        {"7", "must be an object"},
        {"{", "not valid JSON"},
        {"{}", "jobs is missing"},
        {"{\"jobs\":{}}", "jobs must be an array"},
        {"{\"jobs\":null}", "jobs must be an array"},
        {"{\"jobs\":\"[]\"}", "jobs must be an array"},
        {"{\"jobs\":[]}", "jobs is empty"},
        {"{\"jobs\":[" SPEC("a", "1") "],\"jobs\":[" SPEC("a", "1") "]}", "twice"},
        {"{\"jobs\":[" SPEC("a", "1") "],\"job\":1}", "unknown field \\\"job\\\""},
        {"{\"jobs\":[" SPEC("a", "1") ",]}", "not valid JSON"},
        {"{\"jobs\":[" SPEC("a", "1") "]}{}", "not valid JSON"},
        {"{\"jobs\":[" SPEC("a", "1") "]", "not valid JSON"},
        {"{\"jobs\":[" SPEC("a", "1") "}", "not valid JSON"},
        {"{\"jobs\":[{\"kind\":\"\xff\"}]}", "not valid JSON"},
        {"{\"jobs\":[{\"jobs\":[" SPEC("a", "1") "]}]}", "jobs[0]: kind is missing"},
    };
    char deep[4096] = "{\"jobs\":[{\"kind\":\"train\",\"labels\":";
    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(batch(bad[i].body) == 400 && strstr(reply, bad[i].says), "%s: %s", bad[i].body,
                  reply);
        CHECK_MSG(batch_with_key(bad[i].body) == 400, "%s: %s", bad[i].body, reply);
    }
    for (int i = 0; i < 1000; i++) strcat(deep, "[");
    CHECK_MSG(batch(deep) == 400 && strstr(reply, "not valid JSON"), "%s", reply);
    strcpy(strchr(deep + 12, '[') + 40, "\"\"");
    for (int i = 0; i < 40; i++) strcat(deep, "]");
    strcat(deep, "}]}");
    CHECK_MSG(batch(deep) == 400 && strstr(reply, "nested too deeply"), "%s", reply);
    CHECK(answer_of(batch_begin(NULL, "?dry_run=maybe", "", THREE)) == 400);
    CHECK(answer_of(batch_begin(NULL, "", "Idempotency-Key: \r\n", THREE)) == 400);
    /* a body that is larger than the limit */
    char *huge = malloc(HTTP_MAX_BODY + 1024);
    if (!huge) abort();
    memset(huge, ' ', HTTP_MAX_BODY + 1023);
    huge[HTTP_MAX_BODY + 1023] = 0;
    memcpy(huge, THREE, strlen(THREE));
    CHECK_MSG(batch(huge) == 413, "%s", reply);
    free(huge);
    CHECK(nothing_is_stored());
    finish();
}

static void test_dry_run(void)
{
    begin();
    CHECK(answer_of(batch_begin(NULL, "?dry_run=true", "", THREE)) == 200);
    CHECK_MSG(strstr(reply, "\"dry_run\":true,\"data\":[{\"name\":\"a\",\"kind\":\"train\","
                            "\"plan\":{"),
              "%s", reply);
    const char *b = strstr(reply, "{\"name\":\"b\"");
    CHECK(b && strstr(b, "{\"name\":\"c\"") && strstr(b, "\"memory\":"));
    CHECK(answer_of(batch_begin(NULL, "?dry_run=true", "",
                                "{\"jobs\":[" SPEC("a", "1") "," SPEC("b", "-1") "]}")) == 400);
    CHECK(strstr(reply, "\"/jobs/1/train/steps\""));
    CHECK(nothing_is_stored());
    finish();
}

/* ---- Idempotency-Key ------------------------------------------------------------------------- */

static void test_idempotency(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(batch_with_key(THREE) == 201 && rows_are(2, 3));
    CHECK(!strstr(reply, "Idempotency-Replayed"));
    CHECK(post("/v1/jobs", job_json) == 201); /* job 5 */
    for (int i = 0; i < 2; i++) {
        CHECK_MSG(batch_with_key(THREE) == 201 && rows_are(2, 3), "%s", reply);
        CHECK(strstr(reply, "Idempotency-Replayed: true\r\n"));
        CHECK(batch_with_key("{\"jobs\":[" SPEC("a", "1") "]}") == 422 &&
              strstr(reply, "with another body (job 2)"));
        CHECK(post_with("/v1/jobs", "Idempotency-Key: k\r\n", SPEC("a", "1")) == 422);
        close_server();
        begin_in(false, 0); /* the key must be known after a restart */
    }
    /* The answer has the jobs in their present state, and a removed job keeps its position. */
    CHECK(post("/v1/jobs/3:cancel", "") == 202);
    CHECK(batch_with_key(THREE) == 201 && rows_are(2, 3) && strstr(reply, "\"cancelled\""));
    CHECK(talk("DELETE /v1/jobs/3 HTTP/1.1\r\n" HEAD "\r\n") < 300);
    CHECK_MSG(batch_with_key(THREE) == 201 && rows_are(2, 3), "%s", reply);
    CHECK(strstr(reply, "{\"id\":3,\"removed\":true}"));
    CHECK(control_n_live(w.control) == 4);
    /* If a body was refused, its key may be used again. */
    static const char other[] = "Idempotency-Key: other\r\n";
    CHECK(answer_of(batch_begin(NULL, "", other, "{\"jobs\":[{}]}")) == 400);
    CHECK(answer_of(batch_begin(NULL, "", other, THREE)) == 201 && rows_are(6, 3));
    finish();
}

static void answer_question(void)
{
    const struct msg m = described("byte");
    w.fetch.type = 0;
    control_link_calls.message(w.control, "n1", &m);
}

/* Four specs name the same model directory, and the node is asked only once. */
#define MANY_DESCRIBED "{\"jobs\":[" DESCRIBED "," DESCRIBED "," DESCRIBED "," DESCRIBED "]}"

static void test_under_way(void)
{
    begin_users();
    node_joins();
    const int fd = batch_begin(user_a, "", "Idempotency-Key: k\r\n", MANY_DESCRIBED);
    wait_question();
    CHECK(answer_of(batch_begin(user_a, "", "Idempotency-Key: k\r\n", MANY_DESCRIBED)) == 409);
    CHECK(strstr(reply, "still under way") && strstr(reply, "Retry-After: "));
    CHECK(batch_as(user_a, THREE) == 429 && strstr(reply, "one at a time"));
    CHECK(strstr(reply, "Retry-After: "));
    /* a batch of a different user is not delayed */
    CHECK(batch_as(user_b, THREE) == 201 && rows_are(1, 3));
    CHECK(post("/v1/jobs", job_json) == 201);
    answer_question();
    CHECK_MSG(answer_of(fd) == 201 && rows_are(5, 4), "%s", reply);
    CHECK(!w.fetch.type); /* the node was not asked again */
    CHECK(job_spec(control_job(w.control, 8))->model.shape.tokenizer ==
          job_spec(control_job(w.control, 5))->model.shape.tokenizer);
    CHECK(batch_as(user_a, THREE) == 201);
    finish();
}

/* Checks the largest number of batches that may be in progress at once, by different users. A
 * further batch must be refused. */
static void test_many_batches(void)
{
    char token[BATCHES][AUTH_TOKEN_SIZE], user[16];
    int fd[BATCHES];
    begin_users();
    node_joins();
    for (int i = 0; i < BATCHES; i++) {
        snprintf(user, sizeof user, "user%d", i);
        rest_token(user, ROLE_USER, 0, token[i]);
        w.fetch.type = 0;
        fd[i] = batch_begin(token[i], "", "", "{\"jobs\":[" DESCRIBED "]}");
        wait_question();
    }
    CHECK(batch_as(user_a, THREE) == 429 && strstr(reply, "of other users are under way"));
    answer_question(); /* answers the question of the last batch */
    CHECK(answer_of(fd[BATCHES - 1]) == 201);
    CHECK(batch_as(user_a, THREE) == 201);
    close_server(); /* seqd stops while the remaining batches wait, and does not store their
                     * jobs */
    for (int i = 0; i < BATCHES - 1; i++) close(fd[i]);
    begin_in(false, 0);
    CHECK(control_n_live(w.control) == 4);
    finish();
}

/* Checks a client that disconnects before the node answers. All its jobs must nevertheless be
 * submitted. */
static void test_client_gone(void)
{
    begin();
    node_joins();
    close(batch_begin(NULL, "", "Idempotency-Key: k\r\n", MANY_DESCRIBED));
    wait_question();
    answer_question();
    while (control_n_live(w.control) < 4) loop_turn(w.loop, 5);
    CHECK(batch_with_key(MANY_DESCRIBED) == 201 && rows_are(1, 4));
    CHECK(strstr(reply, "Idempotency-Replayed: true"));
    finish();
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_limits(void)
{
    begin_users();
    struct users *users = control_users(w.control);
    users->limits = (struct users_limits){.jobs = 4};
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(batch_as(user_a, THREE) == 201);
    CHECK_MSG(batch_as(user_a, THREE) == 429 && strstr(reply, "so that 1 are free"), "%s", reply);
    CHECK(strstr(reply, "Retry-After: ") && users_of(users, "ann")->n_live == 3);
    CHECK(answer_of(batch_begin(user_a, "?dry_run=true", "", THREE)) == 200);
    CHECK(batch_as(user_a, "{\"jobs\":[" SPEC("a", "1") "]}") == 201);
    CHECK(batch_as(user_a, "{\"jobs\":[" SPEC("a", "1") "]}") == 429 &&
          strstr(reply, "has 4 live jobs"));
    CHECK(batch(THREE) == 201 && batch(THREE) == 201); /* an operator has no limit */
    close_server();
    begin_in(false, 0);
    users = control_users(w.control);
    users->limits = (struct users_limits){.submits = 5};
    CHECK(batch_as(user_b, THREE) == 201); /* this batch counts as three requests */
    CHECK_MSG(batch_as(user_b, THREE) == 429 && strstr(reply, "of which 2 are free"), "%s", reply);
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(users_of(users, "bob")->n_submits == 4 && users_of(users, "bob")->n_live == 3);
    CHECK(batch_as(user_b, "{\"jobs\":[" SPEC("a", "1") "]}") == 201);
    CHECK(batch_as(user_b, "{\"jobs\":[" SPEC("a", "1") "]}") == 429 &&
          strstr(reply, "within a minute"));
    finish();
}

/* Checks that the limit on the queue counts jobs that are being committed. */
static void test_queue_limit(void)
{
    begin();
    struct commits *all = control_commits(w.control);
    all->n_new = COMMIT_MAX_LIVE - 2;
    CHECK_MSG(batch(THREE) == 429 && strstr(reply, "has room for 2 more"), "%s", reply);
    CHECK(nothing_is_stored());
    all->n_new = COMMIT_MAX_LIVE - 3;
    CHECK(batch(THREE) == 201 && all->n_new == COMMIT_MAX_LIVE - 3);
    all->n_new = COMMIT_MAX_LIVE - 3;
    CHECK(post("/v1/jobs", job_json) == 429 && strstr(reply, "the queue is full"));
    all->n_new = 0;
    finish();
}

/* ---- a thousand ------------------------------------------------------------------------------ */

/* Checks a batch while a commit is blocked. All jobs of the batch must be one request to the
 * store, and later requests must wait. No job of the batch may be shown before the batch is on
 * disk. */
static void test_one_transaction(void)
{
    char *body = body_of(BATCH_JOBS);
    struct store_health before, after = {0};
    int turns = 0;
    begin();
    const struct commits *all = control_commits(w.control);
    bad_disk_hold();
    const int first = post_begin("/v1/jobs", "", job_json);
    /* the batch is planned before it is committed */
    while (!bad_disk_held() || !all->last_job) loop_turn(w.loop, 5);
    const int fd = batch_begin(NULL, "", "", body);
    for (; all->last_job < 1 + BATCH_JOBS; turns++) {
        CHECK(all->last_job == 1); /* the ids of all jobs are reserved together */
        store_health(w.store, &before);
        loop_turn(w.loop, 5);
    }
    CHECK_MSG(turns >= BATCH_JOBS, "%d turns of the loop", turns);
    store_health(w.store, &after);
    /* the batch, and perhaps the row of the audit, if a second has not passed since it was made */
    const int n = after.n_waiting - before.n_waiting;
    CHECK_MSG(n == 1 || n == 2, "%d requests for %d jobs", n, BATCH_JOBS);
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"data\":[]"));
    bad_disk_release();
    CHECK(answer_of(first) == 201);
    CHECK_MSG(answer_of(fd) == 201 && rows_are(2, BATCH_JOBS), "%.1000s", reply);
    CHECK(control_n_live(w.control) == 1 + BATCH_JOBS && !all->n_new);
    close_server();
    begin_in(false, 0);
    CHECK(control_n_live(w.control) == 1 + BATCH_JOBS);
    free(body);
    body = body_of(BATCH_JOBS + 1);
    CHECK(batch(body) == 400 && strstr(reply, "more than 1000"));
    CHECK(control_n_live(w.control) == 1 + BATCH_JOBS);
    free(body);
    finish();
}

/* Checks a disk that has space for only a part of the batch. No job of the batch may be
 * accepted. */
static void test_full_disk(void)
{
    begin();
    bad_disk_full(true);
    CHECK_MSG(batch(THREE) == 507, "%s", reply);
    CHECK(batch(THREE) == 507);
    bad_disk_full(false);
    CHECK(nothing_is_stored());
    finish();
}

int main(void)
{
    seqd_test_init();
    bad_disk_install();
    RUN(test_batch);
    RUN(test_none);
    RUN(test_body);
    RUN(test_dry_run);
    RUN(test_idempotency);
    RUN(test_under_way);
    RUN(test_many_batches);
    RUN(test_client_gone);
    RUN(test_limits);
    RUN(test_queue_limit);
    RUN(test_one_transaction);
    RUN(test_full_disk);
    return test_done("seqd_batch");
}
