/* test_seqd_feed: tests the events of all jobs, as pages and as streams. Checks their order,
 * filters, owners, resumed streams, gaps, and the ways in which a stream ends. */
#include <sqlite3.h>
#include "daemon/http/feed.h"
#include "tests/lib/rest.h"

static char user_a[AUTH_TOKEN_SIZE], user_b[AUTH_TOKEN_SIZE];
static int64_t id_a;

static int open_as(const char *token, const char *path, const char *headers)
{
    static char out[4096];
    const int fd = dial();
    snprintf(out, sizeof out,
             "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", path,
             token, headers);
    clear();
    send_all(fd, out, strlen(out));
    return fd;
}

static int ask_as(const char *token, const char *method, const char *path, const char *body)
{
    static char out[16384];
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s"
             "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             method, path, token, strlen(body), body);
    return talk(out);
}

#define SSE   "Accept: text/event-stream\r\n"
#define LINES "Accept: application/x-ndjson\r\n"

/* Makes job 1 of ann, job 2 of bob and job 3 of ann, whose submissions are events 1, 2 and 3. Then
 * cancels job 1, which is event 4. */
static void begin_jobs(void)
{
    begin();
    id_a = rest_token("ann", ROLE_USER, 0, user_a);
    rest_token("bob", ROLE_USER, 0, user_b);
    CHECK(ask_as(user_a, "POST", "/v1/jobs", job_json) == 201);
    CHECK(ask_as(user_b, "POST", "/v1/jobs", job_json) == 201);
    CHECK(ask_as(user_a, "POST", "/v1/jobs", job_json) == 201);
    CHECK(ask_as(user_a, "POST", "/v1/jobs/1:cancel", "") == 202);
}

/* Returns the numbers of the events in the reply, such as "1 2 4". */
static const char *numbers(void)
{
    static char out[1024];
    size_t n = 0;
    *out = 0;
    for (const char *p = reply; (p = strstr(p, "{\"seq\":")); p++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", n ? " " : "", atoi(p + 7));
    return out;
}

static const char *page(const char *token, const char *query)
{
    char path[256];
    snprintf(path, sizeof path, "/v1/events?%s", query);
    CHECK_MSG(ask_as(token, "GET", path, "") == 200, "%s", reply);
    return numbers();
}

static void test_pages(void)
{
    begin_jobs();
    CHECK_STR(page(REST_TOKEN, ""), "1 2 3 4");
    CHECK(strstr(reply, "\"gaps\":[],\"next_cursor\":\"4\",\"has_more\":false"));
    CHECK(strstr(reply, "{\"seq\":4,\"job\":1,\"epoch\":0,") &&
          strstr(reply, "\"type\":\"cancel\""));
    CHECK_STR(page(REST_TOKEN, "limit=2"), "1 2");
    CHECK(strstr(reply, "\"next_cursor\":\"2\",\"has_more\":true"));
    CHECK_STR(page(REST_TOKEN, "limit=2&cursor=2"), "3 4");
    CHECK_STR(page(REST_TOKEN, "cursor=4"), "");
    CHECK(strstr(reply, "\"next_cursor\":\"4\",\"has_more\":false"));
    CHECK_STR(page(REST_TOKEN, "last=1"), "4");
    CHECK_STR(page(REST_TOKEN, "last=99"), "1 2 3 4");
    /* A page is made from the next `limit` events. It has only those of them that match the
     * filter, so it may be empty. */
    CHECK_STR(page(user_b, "limit=1"), "");
    CHECK(strstr(reply, "\"next_cursor\":\"1\",\"has_more\":true"));
    CHECK_STR(page(user_b, "limit=1&cursor=1"), "2");
    finish();
}

static void test_filters(void)
{
    begin_jobs();
    CHECK_STR(page(user_a, ""), "1 3 4");
    CHECK_STR(page(user_b, ""), "2");
    CHECK_STR(page(REST_TOKEN, "owner=ann"), "1 3 4");
    CHECK_STR(page(user_a, "owner=ann"), "1 3 4");
    CHECK(ask_as(user_a, "GET", "/v1/events?owner=bob", "") == 403);
    CHECK(ask_as(user_a, "GET", "/v1/events?owner=%27", "") == 400);
    CHECK_STR(page(REST_TOKEN, "state=cancelled"), "1 4");
    CHECK_STR(page(REST_TOKEN, "state=queued"), "2 3");
    CHECK_STR(page(REST_TOKEN, "label.node=evil"), "1 2 3 4");
    CHECK_STR(page(REST_TOKEN, "label.node=evil&label.state=x"), "");
    CHECK_STR(page(REST_TOKEN, "name=t&owner=bob"), "2");
    CHECK(ask_as(user_a, "GET", "/v1/events?state=x", "") == 400);
    CHECK(ask_as(user_a, "GET", "/v1/events?follow=1", "") == 400);
    CHECK(ask_as(user_a, "GET", "/v1/events?limit=0", "") == 400);
    CHECK(ask_as(user_a, "GET", "/v1/events?cursor=-1", "") == 400);
    finish();
}

/* Checks where a stream begins: now, after Last-Event-ID, or at the given position. A stream of
 * ann must have no event of bob. */
static void test_streams(void)
{
    begin_jobs();
    int fd = open_as(user_a, "/v1/events", SSE);
    CHECK(receive(fd, "retry: 3000\nid: 4\n\n"));
    CHECK(strstr(reply, "Content-Type: text/event-stream"));
    CHECK(post_begin("/v1/jobs", "", "{}") > 0);
    const int other = post_begin("/v1/jobs/2:cancel", "", "");
    const int own = post_begin("/v1/jobs/3:cancel", "", "");
    CHECK(receive(fd, "id: 6\ndata: {\"seq\":6,\"job\":3,"));
    CHECK_STR(numbers(), "6");
    close(fd);
    close(other);
    close(own);
    fd = open_as(user_a, "/v1/events", SSE "Last-Event-ID: 3\r\n");
    CHECK(receive(fd, "id: 6\n"));
    CHECK_STR(numbers(), "4 6");
    close(fd);
    fd = open_as(REST_TOKEN, "/v1/events?cursor=0", SSE);
    CHECK(receive(fd, "id: 6\n"));
    CHECK_STR(numbers(), "1 2 3 4 5 6");
    CHECK(!strstr(reply, "gap"));
    close(fd);
    fd = open_as(REST_TOKEN, "/v1/events?last=2", LINES);
    CHECK(receive(fd, "\"seq\":6,") && strstr(reply, "Content-Type: application/x-ndjson"));
    CHECK_STR(numbers(), "5 6");
    CHECK(strstr(reply, "\n{\"seq\":5,") && !strstr(reply, "data:"));
    close(fd);
    static const char *const bad[] = {"x", "-1", "3.1", "99999999999999999999", "\"3\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char header[128];
        snprintf(header, sizeof header, SSE "Connection: close\r\nLast-Event-ID: %s\r\n", bad[i]);
        CHECK_MSG(answer_of(open_as(user_a, "/v1/events", header)) == 400, "%s", bad[i]);
    }
    finish();
}

static void run(const char *sql)
{
    char path[128];
    sqlite3 *db;
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK_MSG(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* Replaces the chunked reply in `reply` by its body, as far as it has been received. */
static void unchunk(void)
{
    const char *p = strstr(reply, "\r\n\r\n");
    size_t n = 0;
    CHECK(p != NULL);
    for (p = p ? p + 4 : reply + reply_len; *p;) {
        char *end;
        const size_t size = strtoul(p, &end, 16), left = strlen(end);
        if (!size || left < 2) break;
        const size_t take = left - 2 < size ? left - 2 : size;
        memmove(reply + n, end + 2, take);
        n += take;
        p = end + 2 + take;
        p += strspn(p, "\r\n");
    }
    reply[reply_len = n] = 0;
}

/* Checks that events that retention has removed, or is removing, are reported as gaps. */
static void test_gaps(void)
{
    begin_jobs();
    CHECK(ask_as(user_b, "POST", "/v1/jobs/2:cancel", "") == 202);
    close_server();
    run("DELETE FROM events WHERE seq = 2; UPDATE jobs SET state = 100 WHERE id = 1");
    begin_in(false, 0);
    int fd = open_as(REST_TOKEN, "/v1/events", SSE "Last-Event-ID: 0\r\n");
    CHECK(receive(fd, "id: 5\n"));
    unchunk(); /* a gap and the event after it may arrive separately */
    CHECK_MSG(strstr(reply, "event: gap\ndata: {\"from\":1,\"to\":2}\n\nid: 3\n"), "%s", reply);
    CHECK_MSG(strstr(reply, "event: gap\ndata: {\"from\":4,\"to\":4}\n\nid: 5\n"), "%s", reply);
    close(fd);
    fd = open_as(REST_TOKEN, "/v1/events?cursor=2", LINES);
    CHECK(receive(fd, "\"seq\":5,"));
    unchunk();
    CHECK(strstr(reply, "\n{\"gap\":{\"from\":4,\"to\":4}}\n"));
    CHECK(!strstr(reply, "\"from\":1,"));
    close(fd);
    CHECK_STR(page(REST_TOKEN, ""), "3 5");
    CHECK(strstr(reply, "\"gaps\":[{\"from\":1,\"to\":2},{\"from\":4,\"to\":4}]"));
    /* The first gap may have included events of Bob. */
    CHECK_STR(page(user_b, ""), "5");
    CHECK(strstr(reply, "\"gaps\":[{\"from\":1,\"to\":2},"));
    finish();
}

/* Checks a client that reads nothing for a while. In this time there are many more events than one
 * query reads. */
static void test_slow_reader(void)
{
    enum { N = 3 * FEED_ROWS };
    begin();
    CHECK(post("/v1/jobs", job_json) == 201 && post("/v1/jobs/1:cancel", "") == 202);
    close_server();
    run("WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 384) "
        "INSERT INTO events SELECT i, 1, 0, 1, 16, json_object('text', printf('%0900d', i)) FROM "
        "n");
    _Static_assert(N == 384, "the statement names it");
    begin_in(false, 0);
    const int fd = open_as(REST_TOKEN, "/v1/events?cursor=0", SSE);
    for (int i = 0; i < 50; i++) loop_turn(w.loop, 1);
    CHECK(receive(fd, "{\"seq\":384,"));
    unchunk();
    int n = 0;
    for (const char *p = reply; (p = strstr(p, "\n\nid: ")); p++)
        CHECK_MSG(atoi(p + 6) == ++n, "%d after %d", atoi(p + 6), n);
    CHECK_MSG(n == N, "%d", n);
    close(fd);
    finish();
}

/* Checks that a stream ends, and shows nothing more, when its token is revoked. */
static void test_revoked(void)
{
    char path[64];
    begin_jobs();
    const int fd = open_as(user_a, "/v1/events", SSE);
    CHECK(receive(fd, "retry: 3000"));
    snprintf(path, sizeof path, "/v1/tokens/%lld:revoke", (long long)id_a);
    CHECK(post(path, "") == 200);
    CHECK(post("/v1/jobs/3:cancel", "") == 202);
    clear();
    CHECK(receive(fd, "0\r\n\r\n")); /* the body ends */
    CHECK_STR(numbers(), "");
    close(fd);
    finish();
}

/* Checks every kind of stream, and a request that waits, while there are no events. When the token
 * is revoked, each of them must end without waiting for an event. */
static void test_revoked_quiet(void)
{
    static const char *const path[] = {"/v1/events", "/v1/jobs/3/events", "/v1/jobs/3/metrics",
                                       "/v1/jobs/3/logs?rank=0"};
    char revoke[64];
    for (size_t i = 0; i < sizeof path / sizeof *path; i++) {
        begin_jobs();
        const int fd = open_as(user_a, path[i], SSE);
        CHECK(receive(fd, "retry: 3000"));
        snprintf(revoke, sizeof revoke, "/v1/tokens/%lld:revoke", (long long)id_a);
        CHECK(post(revoke, "") == 200);
        const int64_t at = loop_now_ms(w.loop);
        clear();
        CHECK_MSG(receive(fd, "0\r\n\r\n"), "%s", path[i]);
        CHECK_MSG(loop_now_ms(w.loop) - at < 1000, "%s", path[i]);
        close(fd);
        finish();
    }
    begin_jobs();
    const int fd = open_as(user_a, "/v1/jobs/3?wait=1s&since_version=1000", "");
    for (int i = 0; i < 20; i++) loop_turn(w.loop, 5);
    snprintf(revoke, sizeof revoke, "/v1/tokens/%lld:revoke", (long long)id_a);
    CHECK(post(revoke, "") == 200);
    clear();
    CHECK(receive(fd, "HTTP/1.1 401 "));
    close(fd);
    finish();
}

static void test_limit(void)
{
    int fd[FEED_USER];
    begin_jobs();
    for (int i = 0; i < FEED_USER; i++) {
        fd[i] = open_as(user_a, "/v1/events", SSE);
        CHECK(receive(fd[i], "retry: 3000"));
    }
    CHECK(answer_of(open_as(user_a, "/v1/events", SSE "Connection: close\r\n")) == 429);
    const int b = open_as(user_b, "/v1/events", SSE);
    CHECK(receive(b, "retry: 3000"));
    close(b);
    CHECK_STR(page(user_a, ""), "1 3 4"); /* pages do not count as streams */
    for (int i = 0; i < FEED_USER; i++) close(fd[i]);
    /* the clients have left; a new stream is accepted as soon as seqd has noticed this */
    for (int status = 429; status == 429;) {
        const int one = open_as(user_a, "/v1/events", SSE);
        receive(one, "\r\n\r\n");
        status = status_of();
        close(one);
    }
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_pages);
    RUN(test_filters);
    RUN(test_streams);
    RUN(test_gaps);
    RUN(test_slow_reader);
    RUN(test_revoked);
    RUN(test_revoked_quiet);
    RUN(test_limit);
    return test_done("seqd_feed");
}
