/* test_seqd_followers: hundreds of clients follow jobs at the same time. Each gets every event
 * once, and each takes a bounded amount of memory. */
#include <malloc.h>
#include <sys/resource.h>
#include "daemon/http/feed.h"
#include "daemon/http/row_stream.h"
#include "tests/lib/rest.h"

static char ann[AUTH_TOKEN_SIZE], bob[AUTH_TOKEN_SIZE];
static int64_t now_ms = 1000000;

static int64_t fake_clock(void *arg)
{
    return now_ms;
}

/* Starts a server for n streams. A stream takes four descriptors, because its client is here,
 * too. */
static void begin_for(int n)
{
    struct rlimit r;
    CHECK(!getrlimit(RLIMIT_NOFILE, &r));
    r.rlim_cur = r.rlim_max;
    CHECK(!setrlimit(RLIMIT_NOFILE, &r));
    rest_connections = 4 * n + 40;
    begin();
    rest_connections = 0;
    rest_token("ann", ROLE_USER, 0, ann);
    rest_token("bob", ROLE_USER, 0, bob);
}

static int ask_as(const char *token, const char *method, const char *path, const char *headers,
                  const char *body)
{
    char out[1024];
    const int fd = dial();
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s"
             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
             method, path, token, headers, strlen(body), body);
    send_all(fd, out, strlen(out));
    return fd;
}

static int follow_as(const char *token, const char *path)
{
    return ask_as(token, "GET", path, "Accept: text/event-stream\r\n", "");
}

static void submit_as(const char *token)
{
    clear();
    const int fd = ask_as(token, "POST", "/v1/jobs", "Connection: close\r\n", job_json);
    CHECK(answer_of(fd) == 201);
}

static void wait_for(int fd, const char *text)
{
    clear();
    CHECK_MSG(receive(fd, text), "%s", reply);
}

static int count_of(const char *text)
{
    int n = 0;
    for (const char *p = reply; (p = strstr(p, text)); p++) n++;
    return n;
}

/* Reads until no more bytes come for some turns of the loop. */
static void drain(int fd)
{
    for (int quiet = 0; quiet < 3;) {
        loop_turn(w.loop, 1);
        const ssize_t n = rest_recv(fd, reply + reply_len, sizeof reply - 1 - reply_len);
        quiet = n > 0 ? 0 : quiet + 1;
        if (n > 0) reply_len += (size_t)n;
        reply[reply_len] = 0;
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Checks as many followers of one job as a user may have. All of them get the job's next event. A
 * further one is refused, but not one of another user, and not one of an operator. */
static void test_jobs(void)
{
    static int fd[FOLLOW_USER];
    begin_for(FOLLOW_USER);
    submit_as(ann);
    submit_as(bob);
    for (int i = 0; i < FOLLOW_USER; i++) {
        fd[i] = follow_as(ann, "/v1/jobs/1/events");
        wait_for(fd[i], "\"type\":\"submit\"");
    }
    CHECK(answer_of(ask_as(ann, "GET", "/v1/jobs/1/logs",
                           "Accept: text/event-stream\r\nConnection: close\r\n", "")) == 429);
    CHECK(strstr(reply, "ann has 500 streams of jobs, the limit of a user: end one first"));
    const int other = follow_as(bob, "/v1/jobs/2/events");
    wait_for(other, "\"type\":\"submit\"");
    const int admin = follow_as(REST_TOKEN, "/v1/jobs/1/events");
    wait_for(admin, "\"type\":\"submit\"");
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    for (int i = 0; i < FOLLOW_USER; i++) {
        wait_for(fd[i], "event: end");
        CHECK(count_of("\"type\":\"cancel\"") == 1 && !strstr(reply, "\"job\":2"));
        close(fd[i]);
    }
    clear();
    drain(other);
    CHECK(!reply_len);                       /* it follows the other job */
    for (int status = 429; status == 429;) { /* there is room again */
        const int one = follow_as(ann, "/v1/jobs/1/events");
        wait_for(one, "\r\n\r\n");
        status = status_of();
        close(one);
    }
    finish();
}

/* Prints the memory of an idle follower, and checks its bound. The bound is that of the heap: the
 * connection's memory of the HTTP library is counted whole, although a part of it is never
 * touched. */
static void test_memory(void)
{
    enum { N = 200, MOST = 28 * 1024 };
    static int fd[N];
    begin_for(N);
    submit_as(ann);
    close(follow_as(ann, "/v1/jobs/1/events"));
    const struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < N; i++) {
        fd[i] = follow_as(ann, "/v1/jobs/1/events");
        wait_for(fd[i], "\"type\":\"submit\"");
    }
    const struct mallinfo2 after = mallinfo2();
    const size_t each = (after.uordblks + after.hblkhd - before.uordblks - before.hblkhd) / N;
    printf("an idle follower: %zu bytes\n", each);
    CHECK_MSG(SANITIZED || each < MOST, "%zu", each);
    for (int i = 0; i < N; i++) close(fd[i]);
    finish();
}

/* ---- all events ------------------------------------------------------------------------------ */

/* Checks feeds with the same filter, which share queries, beside feeds with other filters. Each of
 * them gets each event once, in order, also if some clients have left meanwhile. */
static void test_feeds(void)
{
    static int fd[FEED_USER], own[4];
    char mark[32];
    begin_for(2 * FEED_USER);
    for (int i = 0; i < FEED_USER; i++) {
        fd[i] = follow_as(ann, "/v1/events");
        wait_for(fd[i], "retry: 3000");
    }
    for (int i = 0; i < 4; i++) {
        own[i] = follow_as(bob, i % 2 ? "/v1/events" : "/v1/events?name=none");
        wait_for(own[i], "retry: 3000");
    }
    for (int i = 0; i < 8; i++) {
        submit_as(i % 2 ? bob : ann);
        if (i == 3) close(fd[0]);
        if (i == 5) close(fd[FEED_USER - 1]);
    }
    for (int i = 1; i < FEED_USER - 1; i++) {
        wait_for(fd[i], "\"job\":7,");
        for (int job = 1, last = -1; job < 9; job++) {
            snprintf(mark, sizeof mark, "\"job\":%d,", job);
            CHECK(count_of(mark) == job % 2);
            if (job % 2) CHECK(strstr(reply, mark) - reply > last);
            if (job % 2) last = (int)(strstr(reply, mark) - reply);
        }
    }
    for (int i = 0; i < 4; i++) {
        clear();
        while (i % 2 && !strstr(reply, "\"job\":8,")) drain(own[i]);
        drain(own[i]);
        CHECK(count_of("\"job\":") == (i % 2 ? 4 : 0));
        close(own[i]);
    }
    for (int i = 1; i < FEED_USER - 1; i++) close(fd[i]);
    finish();
}

/* ---- heartbeats ------------------------------------------------------------------------------ */

/* Checks that each stream has one heartbeat in 15 s, and that they are spread over this time. */
static void test_beats(void)
{
    enum { N = 2 * ROW_STREAM_GROUPS };
    int fd[N], n[N] = {0}, most = 0;
    rest_clock = fake_clock;
    begin_for(N);
    submit_as(ann);
    for (int i = 0; i < N; i++) {
        fd[i] = follow_as(ann, "/v1/jobs/1/events");
        wait_for(fd[i], "\"type\":\"submit\"");
    }
    for (int s = 0; s < ROW_STREAM_GROUPS; s++) {
        int now = 0;
        now_ms += ROW_STREAM_BEAT_MS / ROW_STREAM_GROUPS;
        for (int i = 0; i < 10; i++) loop_turn(w.loop, 1);
        for (int i = 0; i < N; i++) {
            clear();
            drain(fd[i]);
            n[i] += count_of(": heartbeat");
            now += count_of(": heartbeat");
        }
        if (now > most) most = now;
    }
    for (int i = 0; i < N; i++) {
        CHECK_MSG(n[i] == 1, "stream %d: %d", i, n[i]);
        close(fd[i]);
    }
    CHECK_MSG(most == 2, "%d", most);
    finish();
    rest_clock = NULL;
}

int main(void)
{
    RUN(test_jobs);
    RUN(test_memory);
    RUN(test_feeds);
    RUN(test_beats);
    return test_done("seqd_followers");
}
