/* test_seqd_stream: tests data that seqd sends in pieces. The stream of a log must have every byte
 * exactly once. Also tests requests for parts of an artifact. */
#include "daemon/loop/control.h"
#include "daemon/state/attempt.h"
#include "tests/lib/rest.h"

/* ---- logs ------------------------------------------------------------------------------------ */

static void add_log(int64_t epoch, int64_t offset, const char *text)
{
    struct err e;
    CHECK(logs_append(w.logs, 1, epoch, 0, offset, text, strlen(text), &e) >= 0);
    follows_logged(w.routes.follows, 1);
}

/* Opens a stream of a log by HTTP/1.0. The body has no chunks, so the text is not interrupted by
 * the borders of chunks. The body ends with the connection. */
static int open_log(const char *path, const char *last)
{
    char out[512];
    int fd = dial();
    clear();
    snprintf(out, sizeof out,
             "GET %s HTTP/1.0\r\nHost: localhost\r\n" BEARER
             "Accept: text/event-stream\r\n%s%s%s\r\n",
             path, last ? "Last-Event-ID: " : "", last ? last : "", last ? "\r\n" : "");
    send_all(fd, out, strlen(out));
    return fd;
}

/* Joins the texts of all messages and returns them. Decodes the JSON escapes that this test
 * uses. */
static const char *said(void)
{
    static char out[sizeof reply];
    size_t n = 0;
    for (const char *p = reply; (p = strstr(p, "\"text\":\"")); p++) {
        for (p += 8; *p && *p != '"'; p++) {
            if (*p != '\\') {
                out[n++] = *p;
            } else {
                p++;
                out[n++] = *p == 'n' ? '\n' : *p;
            }
        }
    }
    out[n] = 0;
    return out;
}

/* The id of the last message. */
static const char *last_id(void)
{
    static char id[64];
    const char *at = NULL;
    for (const char *p = reply; (p = strstr(p, "\nid: ")); p++) at = p + 5;
    snprintf(id, sizeof id, "%.*s", at ? (int)strcspn(at, "\n") : 0, at ? at : "");
    return id;
}

static void test_log_stream(void)
{
    static char long_line[20000];
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    int fd = open_log("/v1/jobs/1/logs?rank=0", NULL);
    CHECK(receive(fd, "retry: 3000") && status_of() == 200);
    add_log(1, 0, "one\ntwo\nthr");
    CHECK(receive(fd, "one\\ntwo\\n"));
    CHECK(!strstr(reply, "thr")); /* half a line is not sent before its end has arrived */
    CHECK_STR(last_id(), "1.8");
    add_log(1, 11, "ee\n");
    CHECK(receive(fd, "three"));
    CHECK_STR(last_id(), "1.14");
    close(fd);
    /* A client that reconnects with the last id that it saw gets the rest exactly once. */
    fd = open_log("/v1/jobs/1/logs?rank=0", "1.8");
    CHECK(receive(fd, "three"));
    CHECK_STR(said(), "three\n");
    /* This line is longer than a message, and one of its characters is split over two messages. A
     * second attempt follows. */
    memset(long_line, 'x', sizeof long_line - 1);
    memcpy(long_line + 8191, "\xe2\x82\xac", 3);
    long_line[sizeof long_line - 2] = '\n';
    add_log(1, 14, long_line);
    CHECK(receive(fd, "x\\n"));
    CHECK(!strcmp(said() + 6, long_line));
    close(fd);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    add_log(1, 14 + (int64_t)strlen(long_line), "last, without an end");
    add_log(3, 0, "of attempt three\n");
    fd = open_log("/v1/jobs/1/logs?rank=0", "1.20013");
    receive(fd, NULL);
    CHECK_STR(said(), "last, without an endof attempt three\n");
    CHECK(strstr(reply, "\"epoch\":3,\"offset\":0"));
    CHECK(strstr(reply, "event: end\ndata: {\"id\":1,\"state\":\"cancelled\"}"));
    close(fd);
    fd = open_log("/v1/jobs/1/logs?rank=0&epoch=3&offset=3", NULL); /* one attempt */
    receive(fd, NULL);
    CHECK_STR(said(), "attempt three\n");
    CHECK(strstr(reply, "event: end"));
    close(fd);
    fd = open_log("/v1/jobs/1/logs?rank=2", NULL); /* a rank without a log has an empty one */
    receive(fd, NULL);
    CHECK_STR(said(), "");
    CHECK(strstr(reply, "event: end"));
    close(fd);
    finish();
}

/* Checks a client whose stream repeatedly breaks off and is resumed, while 2000 numbered lines
 * arrive in pieces of all sizes. The client must get every line exactly once. */
static void test_no_line_lost(void)
{
    static char all[65536], got[65536];
    size_t n = 0, n_got = 0, sent = 0;
    char id[64] = "0.0", want[64];
    unsigned seed = 7;
    for (int i = 0; i < 2000; i++) n += (size_t)snprintf(all + n, sizeof all - n, "line %d\n", i);
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    while (n_got < n) {
        int fd = open_log("/v1/jobs/1/logs", id);
        receive(fd, "retry: 3000");
        for (int k = rand_r(&seed) % 4; k >= 0 && sent < n; k--) {
            char piece[1500];
            size_t m = 1 + (size_t)rand_r(&seed) % (sizeof piece - 1);
            if (m > n - sent) m = n - sent;
            snprintf(piece, sizeof piece, "%.*s", (int)m, all + sent);
            add_log(1, (int64_t)sent, piece);
            sent += m;
        }
        size_t whole = sent; /* the number of bytes of all complete lines so far */
        while (whole > n_got && all[whole - 1] != '\n') whole--;
        snprintf(want, sizeof want, "id: 1.%zu\n", whole);
        if (whole > n_got) CHECK(receive(fd, want));
        close(fd);
        const char *text = said();
        memcpy(got + n_got, text, strlen(text));
        n_got += strlen(text);
        if (*last_id()) snprintf(id, sizeof id, "%s", last_id());
    }
    CHECK(n_got == n && !memcmp(got, all, n));
    finish();
}

/* ---- ranges ---------------------------------------------------------------------------------- */

#define FILE_SIZE (WIRE_CHUNK + 1000)
static char file[FILE_SIZE];

/* Answers fetches as the node until the client has its reply. */
static void serve_file(int fd)
{
    for (bool open = true; open;) {
        struct pollfd p = {fd, POLLIN, 0};
        loop_turn(w.loop, 1);
        if (w.fetch.type) {
            struct msg m = {.type = MSG_FETCHED, .request = w.fetch.request, .total = FILE_SIZE};
            int64_t left = FILE_SIZE - w.fetch.offset;
            m.offset = w.fetch.offset;
            if (left > 0) {
                m.data = file + w.fetch.offset;
                m.size = left < WIRE_CHUNK ? (size_t)left : WIRE_CHUNK;
            }
            w.fetch.type = 0;
            control_link_calls.message(w.control, "n1", &m);
        }
        if (poll(&p, 1, 0) <= 0) continue;
        ssize_t n = recv(fd, reply + reply_len, sizeof reply - 1 - reply_len, 0);
        if (n > 0) reply_len += (size_t)n;
        open = n > 0;
    }
    reply[reply_len] = 0;
}

static int get_range(const char *header)
{
    char out[256];
    int fd = dial();
    clear();
    w.fetch.type = 0;
    snprintf(out, sizeof out, "GET /v1/jobs/1/artifacts/f HTTP/1.1\r\n" HEAD "%s\r\n", header);
    send_all(fd, out, strlen(out));
    serve_file(fd);
    close(fd);
    return status_of();
}

static void test_ranges(void)
{
    static const struct {
        const char *header;
        int status;
        int64_t from, to;
    } cases[] = {
        {"", 200, 0, FILE_SIZE},
        {"Range: bytes=0-\r\n", 206, 0, FILE_SIZE},
        {"Range: bytes=0-0\r\n", 206, 0, 1},
        {"Range: bytes=7-11\r\n", 206, 7, 12},
        {"Range: bytes=65530-65545\r\n", 206, 65530, 65546}, /* across a chunk */
        {"Range: bytes=66000-\r\n", 206, 66000, FILE_SIZE},
        {"Range: bytes=66000-99999999\r\n", 206, 66000, FILE_SIZE},
        {"Range: bytes=-10\r\n", 206, FILE_SIZE - 10, FILE_SIZE},
        {"Range: bytes=-999999999\r\n", 206, 0, FILE_SIZE},
        {"Range: bytes=66536-\r\n", 416, 0, 0},
        {"Range: bytes=999999999999-\r\n", 416, 0, 0},
        {"Range: bytes=-0\r\n", 416, 0, 0},
        {"Range: bytes=5-2\r\n", 200, 0, FILE_SIZE}, /* an invalid range is ignored */
        {"Range: bytes=1-2,5-6\r\n", 200, 0, FILE_SIZE},
        {"Range: bytes=-\r\n", 200, 0, FILE_SIZE},
        {"Range: lines=1-2\r\n", 200, 0, FILE_SIZE},
        {"Range: bytes=99999999999999999999-\r\n", 200, 0, FILE_SIZE},
        {"Range: bytes=5-\r\nIf-Range: \"x\"\r\n", 200, 0, FILE_SIZE},
    };
    for (size_t i = 0; i < sizeof file; i++) file[i] = (char)('a' + i * 7 % 26);
    begin();
    node_joins();
    CHECK(post("/v1/jobs", job_json) == 201);
    wait_placed();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[96];
        CHECK_MSG(get_range(cases[i].header) == cases[i].status, "%s: %d", cases[i].header,
                  status_of());
        const int64_t size = cases[i].to - cases[i].from;
        const char *body = strstr(reply, "\r\n\r\n");
        snprintf(want, sizeof want, "Content-Range: bytes %lld-%lld/%d\r\n",
                 (long long)cases[i].from, (long long)cases[i].to - 1, FILE_SIZE);
        if (cases[i].status == 206) CHECK_MSG(strstr(reply, want), "%s", cases[i].header);
        if (cases[i].status == 416) CHECK(strstr(reply, "Content-Range: bytes */66536\r\n"));
        if (cases[i].status == 416) continue;
        CHECK(strstr(reply, "Accept-Ranges: bytes\r\n"));
        CHECK_MSG(body && reply + reply_len - body - 4 == size, "%s", cases[i].header);
        CHECK(body && !memcmp(body + 4, file + cases[i].from, (size_t)size));
    }
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_log_stream);
    RUN(test_no_line_lost);
    RUN(test_ranges);
    return test_done("seqd_stream");
}
