/* test_seqd_wait: tests a GET of a job that waits for a newer version, the ways in which the wait
 * can end, and its limits. */
#include "daemon/http/wait.h"
#include "tests/lib/rest.h"

static int64_t now_ms = 1000000;

static int64_t fake_clock(void *arg)
{
    return now_ms;
}

static void begin_fake(void)
{
    rest_clock = fake_clock;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
}

static void finish_fake(void)
{
    finish();
    rest_clock = NULL;
}

/* Tells whether n requests are waiting in seqd and no answer has arrived on fd. */
static bool still_waits(int fd, int n)
{
    while (waits_n(follows_waits(w.routes.follows)) != n) loop_turn(w.loop, 5);
    clear();
    for (int i = 0; i < 20; i++) {
        loop_turn(w.loop, 1);
        const ssize_t got = rest_recv(fd, reply, sizeof reply - 1);
        if (got >= 0 || errno != EAGAIN) return false;
    }
    return true;
}

static void change(const char *body)
{
    char out[512];
    snprintf(out, sizeof out,
             "PATCH /v1/jobs/1 HTTP/1.1\r\n" HEAD "If-Match: *\r\nContent-Type: application/json"
             "\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(body), body);
    CHECK(talk(out) == 200);
}

static void test_change(void)
{
    begin_fake();
    /* the job's version is already newer */
    CHECK(get("/v1/jobs/1?wait=30s&since_version=0") == 200);
    int fd = get_begin("/v1/jobs/1?wait=30s&since_version=1");
    CHECK(still_waits(fd, 1));
    change("{\"priority\":1}");
    CHECK(answer_of(fd) == 200 && strstr(reply, "\"version\":2,") && strstr(reply, "ETag: \"2-"));
    fd = get_begin("/v1/jobs/1?wait=30s&since_version=2");
    CHECK(still_waits(fd, 1));
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    CHECK(answer_of(fd) == 200 && strstr(reply, "\"state\":\"cancelled\""));
    /* The job has ended and will not change, so the request must not wait. */
    CHECK(get("/v1/jobs/1?wait=30s&since_version=3") == 304);
    CHECK(get("/v1/jobs/1?wait=30s&since_version=99") == 304);
    CHECK(get("/v1/jobs/2?wait=30s&since_version=1") == 404);
    finish_fake();
}

static void test_time(void)
{
    begin_fake();
    const int first = get_begin("/v1/jobs/1?wait=30s&since_version=1");
    const int second = get_begin("/v1/jobs/1?wait=10&since_version=1");
    CHECK(still_waits(first, 2) && still_waits(second, 2)); /* both requests must be waiting */
    now_ms += 9999;
    CHECK(still_waits(first, 2) && still_waits(second, 2));
    now_ms += 1;
    CHECK(answer_of(second) == 304 && strstr(reply, "ETag: \"1-") && !strstr(reply, "{"));
    CHECK(still_waits(first, 1));
    now_ms += 20000;
    CHECK(answer_of(first) == 304);
    CHECK(get("/v1/jobs/1?wait=0&since_version=1") == 304);
    CHECK(get("/v1/jobs/1?since_version=1") == 304 && get("/v1/jobs/1?since_version=0") == 200);
    finish_fake();
}

/* Checks requests with a tag. The answer must be 304 only if the document has exactly the same
 * bytes. */
static void test_tags(void)
{
    char out[512], tag[64] = "";
    begin_fake();
    while (get("/v1/jobs/1") == 200 && strstr(reply, "\"reason\":null")) loop_turn(w.loop, 5);
    sscanf(strstr(reply, "ETag: ") + 6, "%63[^\r]", tag);
    static const struct {
        const char *digest;
        int status;
    } rows[] = {{NULL, 304}, {"\"1-0000000000000000\"", 200}};
    for (int i = 0; i < 2; i++) {
        const int fd = dial();
        snprintf(out, sizeof out,
                 "GET /v1/jobs/1?wait=10s HTTP/1.1\r\n" HEAD "If-None-Match: %s\r\n\r\n",
                 rows[i].digest ? rows[i].digest : tag);
        send_all(fd, out, strlen(out));
        CHECK(still_waits(fd, 1));
        now_ms += 10000;
        const int status = answer_of(fd);
        CHECK_MSG(status == rows[i].status, "%d: %d", i, status);
    }
    finish_fake();
}

static void test_refused(void)
{
    static const struct {
        const char *query, *says;
    } bad[] = {
        {"wait=30s", "since_version"},
        {"wait=61s&since_version=1", "wait"},
        {"wait=2m&since_version=1", "wait"},
        {"wait=-1&since_version=1", "wait"},
        {"wait=x&since_version=1", "wait"},
        {"wait=&since_version=1", "wait"},
        {"wait=99999999999999999999&since_version=1", "wait"},
        {"wait=1s&since_version=x", "since_version"},
        {"wait=1s&since_version=-1", "since_version"},
    };
    char path[128];
    begin_fake();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "/v1/jobs/1?%s", bad[i].query);
        CHECK_MSG(get(path) == 400 && strstr(reply, bad[i].says), "%s: %s", path, reply);
    }
    finish_fake();
}

/* Checks the limit on waits. A wait above the limit must be refused. All waits within the limit
 * must be answered, even if some clients have disconnected. */
static void test_limit(void)
{
    int fd[WAIT_USER];
    rest_connections = 4 * WAIT_USER + 8;
    begin_fake();
    for (int i = 0; i < WAIT_USER; i++) fd[i] = get_begin("/v1/jobs/1?wait=30s&since_version=1");
    CHECK(still_waits(fd[WAIT_USER - 1], WAIT_USER));
    CHECK(get("/v1/jobs/1?wait=30s&since_version=1") == 429 && strstr(reply, "limit of a user"));
    CHECK(get("/v1/jobs/1") == 200);
    for (int i = 0; i < WAIT_USER / 2; i++) close(fd[i]);
    change("{\"priority\":2}");
    for (int i = WAIT_USER / 2; i < WAIT_USER; i++) CHECK(answer_of(fd[i]) == 200);
    CHECK(get("/v1/jobs/1?wait=0&since_version=2") == 304); /* there is room again */
    finish_fake();
    rest_connections = 0;
}

/* Checks a server that stops while requests wait. */
static void test_stop(void)
{
    begin_fake();
    const int fd = get_begin("/v1/jobs/1?wait=30s&since_version=1");
    CHECK(still_waits(fd, 1));
    finish_fake();
    clear();
    ssize_t n = recv(fd, reply, sizeof reply - 1, 0);
    reply_len = n > 0 ? (size_t)n : 0;
    reply[reply_len] = 0;
    CHECK_MSG(status_of() == 503, "%s", reply);
    close(fd);
}

int main(void)
{
    seqd_test_init();
    RUN(test_change);
    RUN(test_time);
    RUN(test_tags);
    RUN(test_refused);
    RUN(test_limit);
    RUN(test_stop);
    return test_done("seqd_wait");
}
