/* test_seqd_http: tests the HTTP server over raw sockets: the form of requests, byte by byte, and
 * the limits on the number of clients. */
#include <netinet/tcp.h>
#include "tests/lib/rest.h"
#include "tests/lib/tls_client.h"

/* ---- guards ---------------------------------------------------------------------------------- */

#define SMUGGLED "GET /v1/nodes HTTP/1.1\r\n" HEAD "\r\n"

/* Bytes may contain NUL. Each case ends with a request that must not be answered. */
#define CASE(name, bytes, status)                                                                  \
    {                                                                                              \
        name, bytes, sizeof(bytes) - 1, status                                                     \
    }
#define HOST(name, bytes)                                                                          \
    {                                                                                              \
        name, bytes, sizeof(bytes) - 1, 403, true                                                  \
    }
#define POST_HEAD                                                                                  \
    "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n" BEARER "Content-Type: application/json\r\n"
#define CHUNKED          POST_HEAD "Transfer-Encoding: chunked\r\n\r\n"
#define GET_WITH(header) "GET /livez HTTP/1.1\r\nHost: localhost\r\n" header "\r\n\r\n" SMUGGLED
#define LENGTH(text)                                                                               \
    POST_HEAD "Content-Length:" text "\r\n\r\n"                                                    \
              "{}" SMUGGLED
#define ORIGIN(method, host, origin)                                                               \
    method " /v1/jobs/1:cancel HTTP/1.1\r\n" BEARER "Host: " host "\r\nOrigin: " origin            \
           "\r\n\r\n" SMUGGLED

static const struct {
    const char *name, *bytes;
    size_t size;
    int status; /* status of the only answer */
    bool host;  /* the host's name is refused, which happens only on TCP */
} hostile[] = {
    CASE("chunked and length",
         POST_HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("length and chunked",
         POST_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("two lengths", POST_HEAD "Content-Length: 0\r\nContent-Length: 44\r\n\r\n" SMUGGLED, 400),
    CASE("two equal lengths", POST_HEAD "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}" SMUGGLED,
         400),
    CASE("length with a sign", LENGTH(" +2"), 400),
    CASE("negative length", LENGTH(" -2"), 400),
    CASE("hex length", LENGTH(" 0x2"), 400),
    CASE("list of lengths", LENGTH(" 2, 2"), 400),
    CASE("length of 2^64 + 2", LENGTH(" 18446744073709551618"), 413),
    CASE("empty length", LENGTH(""), 400),
    CASE("length and blank before the colon", POST_HEAD "Content-Length : 2\r\n\r\n{}" SMUGGLED,
         400),
    CASE("two encodings",
         POST_HEAD
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("encoding list", POST_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("blank before the colon",
         POST_HEAD "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("tab before the colon", POST_HEAD "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("chunked in 1.0",
         "POST /v1/jobs HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
         "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("raw nul in a value", GET_WITH("X: a\0b"), 400),
    CASE("raw nul in a name", GET_WITH("X\0Y: a"), 400),
    CASE("raw nul in the target", "GET /livez\0x HTTP/1.1\r\nHost: localhost\r\n\r\n" SMUGGLED,
         400),
    CASE("control byte in a value", GET_WITH("X: a\001b"), 400),
    CASE("carriage return in a value", GET_WITH("X: a\rb"), 400),
    CASE("folded line", GET_WITH("X: a\r\n b"), 400),
    CASE("folded encoding", POST_HEAD "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" SMUGGLED,
         400),
    CASE("first header begins with a blank",
         "GET /livez HTTP/1.1\r\n X: a\r\nHost: localhost\r\n\r\n" SMUGGLED, 400),
    CASE("header without colon", GET_WITH("X"), 400),
    CASE("header without name", GET_WITH(": a"), 400),
    CASE("bare lf in the head", "GET /livez HTTP/1.1\nHost: localhost\n\n" SMUGGLED, 400),
    CASE("bare lf after a header", "GET /livez HTTP/1.1\r\nHost: localhost\nX: a\r\n\r\n" SMUGGLED,
         400),
    CASE("bare lf after a chunk's size", CHUNKED "2\n{}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("bare lf after a chunk", CHUNKED "2\r\n{}\n0\r\n\r\n" SMUGGLED, 400),
    CASE("bare lf after the last chunk", CHUNKED "2\r\n{}\r\n0\n\r\n" SMUGGLED, 400),
    CASE("bare lf in the trailer", CHUNKED "2\r\n{}\r\n0\r\nX: a\n\r\n" SMUGGLED, 400),
    CASE("chunk longer than it says", CHUNKED "2\r\n{}}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("chunk size with 0x", CHUNKED "0x2\r\n{}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("chunk size with a blank", CHUNKED " 2\r\n{}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("chunk size of 2^64 + 2", CHUNKED "10000000000000002\r\n{}\r\n0\r\n\r\n" SMUGGLED, 413),
    CASE("chunk without size", CHUNKED "\r\n{}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("raw nul in a chunk's extension", CHUNKED "2;a=\0\r\n{}\r\n0\r\n\r\n" SMUGGLED, 400),
    CASE("no host", "GET /livez HTTP/1.1\r\n\r\n" SMUGGLED, 400),
    CASE("two hosts", "GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\n\r\n" SMUGGLED, 400),
    CASE("a port that is a word", "GET /livez HTTP/1.1\r\nHost: localhost:evil\r\n\r\n" SMUGGLED,
         400),
    CASE("a port too large", "GET /livez HTTP/1.1\r\nHost: localhost:65536\r\n\r\n" SMUGGLED, 400),
    CASE("port 0", "GET /livez HTTP/1.1\r\nHost: localhost:0\r\n\r\n" SMUGGLED, 400),
    CASE("two ports", "GET /livez HTTP/1.1\r\nHost: localhost:1:2\r\n\r\n" SMUGGLED, 400),
    CASE("an open bracket", "GET /livez HTTP/1.1\r\nHost: [::1\r\n\r\n" SMUGGLED, 400),
    CASE("a user before the host", "GET /livez HTTP/1.1\r\nHost: a@localhost\r\n\r\n" SMUGGLED,
         400),
    HOST("rebound name", "GET /livez HTTP/1.1\r\nHost: evil.example:7433\r\n\r\n" SMUGGLED),
    HOST("almost loopback", "GET /livez HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n" SMUGGLED),
    CASE("foreign page", ORIGIN("POST", "localhost", "http://evil.example"), 403),
    CASE("page without origin", ORIGIN("POST", "localhost", "null"), 403),
    CASE("page of another port", ORIGIN("POST", "localhost:7433", "http://localhost:8080"), 403),
    CASE("page of the usual port", ORIGIN("POST", "localhost:7433", "http://localhost"), 403),
    CASE("page of another loopback name", ORIGIN("POST", "localhost:7433", "http://127.0.0.1:7433"),
         403),
    CASE("page of another port, PATCH", ORIGIN("PATCH", "localhost:7433", "http://localhost:8080"),
         403),
    CASE("page of another port, DELETE",
         ORIGIN("DELETE", "localhost:7433", "http://localhost:8080"), 403),
    CASE("two origins",
         ORIGIN("POST", "localhost:1", "http://localhost:1\r\nOrigin: http://localhost:2"), 403),
    CASE("form post",
         "POST /v1/jobs HTTP/1.1\r\n" HEAD
         "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}",
         415),
    CASE("no type", "POST /v1/jobs HTTP/1.1\r\n" HEAD "Content-Length: 2\r\n\r\n{}", 415),
    CASE("prefix of the type",
         "POST /v1/jobs HTTP/1.1\r\n" HEAD
         "Content-Type: application/jsonx\r\nContent-Length: 2\r\n\r\n{}",
         415),
    CASE("too long", POST_HEAD "Content-Length: 1048577\r\n\r\n{}" SMUGGLED, 413),
    CASE("nul in path", "GET /v1/jobs/1%00 HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("control byte", "GET /v1/%0ajobs HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("bad escape", "GET /v1/jobs/%zz HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("cut escape", "GET /v1/jobs/%4 HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("dots", "GET /v1/jobs/1/artifacts/../../x HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("coded dots", "GET /v1/jobs/1/artifacts/%2e%2e/x HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("no slash", "GET livez HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("proxy request", "GET http://evil/livez HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("two blanks", "GET  /livez HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("blank at the end", "GET /livez HTTP/1.1 \r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("no version", "GET /livez\r\n" HEAD "\r\n" SMUGGLED, 400),
    CASE("version 2.0", "GET /livez HTTP/2.0\r\n" HEAD "\r\n" SMUGGLED, 505),
    CASE("version 1.2", "GET /livez HTTP/1.2\r\n" HEAD "\r\n" SMUGGLED, 505),
    CASE("no HTTP", "\x16\x03\x01\x02\r\n\r\n" SMUGGLED, 400),
    CASE("bytes before the request", "\r\n\r\n\r\nGET /livez HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED,
         400),
    CASE("other method", "BREW /livez HTTP/1.1\r\n" HEAD "\r\n" SMUGGLED, 405),
};

/* Checks that each of these requests is answered once, with an error. The connection must then be
 * closed, so that later bytes are not read as a request. */
static void test_hostile_requests(void)
{
    begin();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        if (rest_by.by_unix && hostile[i].host) continue;
        int got = talk_n(hostile[i].bytes, hostile[i].size);
        CHECK_MSG(got == hostile[i].status, "%s: %d", hostile[i].name, got);
        CHECK_MSG(strstr(reply, "application/problem+json"), "%s: no problem: %s", hostile[i].name,
                  reply);
        CHECK_MSG(!strstr(reply, "slots"), "%s: the smuggled request was answered",
                  hostile[i].name);
        CHECK_MSG(!strstr(reply, "}HTTP/"), "%s: answered twice: %s", hostile[i].name, reply);
    }
    CHECK(get("/livez") == 200); /* the server still runs */
    CHECK(!tls_n_cut);           /* each client was told that the answer is over */
    finish();
}

#define GOOD(name, bytes, says)                                                                    \
    {                                                                                              \
        name, bytes, sizeof(bytes) - 1, says                                                       \
    }
/* Requests that look unusual but are valid. */
static const struct {
    const char *name, *bytes;
    size_t size;
    const char *says;
} sound[] = {
    GOOD("blanks around a value", "GET /livez HTTP/1.1\r\n" HEAD "X: \t a b \t\r\nY:\r\n\r\n",
         "200"),
    GOOD("bytes past ASCII", "GET /livez HTTP/1.1\r\n" HEAD "X: \xc3\xa4\r\n\r\n", "200"),
    GOOD("an empty line before", "\r\nGET /livez HTTP/1.1\r\n" HEAD "\r\n", "200"),
    GOOD("a port left out", "GET /livez HTTP/1.1\r\nConnection: close\r\nHost: localhost:\r\n\r\n",
         "200"),
    GOOD("an address of IPv6",
         "GET /livez HTTP/1.1\r\nConnection: close\r\nHost: [::1]:65535\r\n\r\n", "200"),
    GOOD("version 1.0", "GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n", "200"),
    GOOD("a page of ours",
         "POST /v1/jobs/1:cancel HTTP/1.1\r\n" BEARER
         "Connection: close\r\nHost: LOCALHOST:7433\r\n"
         "Origin: http://localhost:7433\r\n\r\n",
         "404"),
    GOOD("chunks, an extension, a trailer",
         "POST /v1/jobs HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
         "Transfer-Encoding: Chunked\r\n\r\n"
         "8;a=\"b\"\r\n{\"kind\":\r\n0A\r\n\"nonsense\"\r\n1\r\n}\r\n00\r\nX: a\r\n\r\n",
         "nonsense"),
    GOOD("no body", "POST /v1/jobs/1:cancel HTTP/1.1\r\n" HEAD "Content-Length: 0\r\n\r\n", "404"),
    GOOD("HEAD", "HEAD /livez HTTP/1.1\r\n" HEAD "\r\n", "200"),
};

static void test_sound_requests(void)
{
    begin();
    for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) {
        talk_n(sound[i].bytes, sound[i].size);
        CHECK_MSG(strstr(reply, sound[i].says), "%s: %s", sound[i].name, reply);
        /* the requests must also be answered if they are sent byte by byte */
        int fd = dial();
        for (size_t k = 0; k < sound[i].size; k++) send_all(fd, sound[i].bytes + k, 1);
        answer_of(fd);
        CHECK_MSG(strstr(reply, sound[i].says), "%s, by bytes: %s", sound[i].name, reply);
    }
    finish();
}

/* Checks that requests that are sent together are answered one after another. */
static void test_pipelined(void)
{
    static const char two[] = "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
                              "POST /v1/jobs/7:cancel HTTP/1.1\r\nHost: localhost\r\n" BEARER
                              "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
                              "GET /livez HTTP/1.1\r\n" HEAD "\r\n";
    begin();
    CHECK(talk(two) == 200);
    const char *version = strstr(reply, "\"version\""), *no = strstr(reply, "there is no job 7"),
               *ok = strstr(reply, "\"ok\"");
    CHECK_MSG(version && no && ok && version < no && no < ok, "%s", reply);
    finish();
}

/* Checks that the first value of a header is used, however many headers precede it. */
static void test_headers_kept(void)
{
    begin();
#define ACCEPTS "Accept: a/b\r\nAccept: a/b\r\nAccept: a/b\r\n"
#define KEYS    ACCEPTS ACCEPTS ACCEPTS ACCEPTS "Idempotency-Key: abc\r\nIdempotency-Key: other\r\n"
    CHECK(post_with("/v1/jobs", KEYS, job_json) == 201);
    CHECK(post_with("/v1/jobs", KEYS, job_json) == 201);
    CHECK_MSG(strstr(reply, "Idempotency-Replayed: true"), "%s", reply);
    CHECK(post_with("/v1/jobs", "Idempotency-Key: abc\r\n", job_json) == 201);
    CHECK(strstr(reply, "Idempotency-Replayed: true"));
    finish();
}

static void test_large_requests(void)
{
    begin();
    char *big = malloc(2 << 20);
    int n = sprintf(big, "GET /%0*d HTTP/1.1\r\n" HEAD "\r\n", 3000, 0);
    CHECK(talk_n(big, (size_t)n) == 414);
    n = sprintf(big, "GET /livez HTTP/1.1\r\n" HEAD "X: %0*d\r\n\r\n", 100000, 0);
    int got = talk_n(big, (size_t)n);
    CHECK_MSG(got == 431, "%d", got);
    n = sprintf(big,
                "GET /livez?a=1&b=2&c=3&d=4&e=5&f=6&g=7&h=8&i=9&j=1&k=1&l=1&m=1&n=1&o=1&p=1&q=1"
                " HTTP/1.1\r\n" HEAD "\r\n");
    CHECK(talk_n(big, (size_t)n) == 400);
    /* A chunked body without an end is read up to the limit, and then refused. */
    n = sprintf(big, "POST /v1/jobs HTTP/1.1\r\n" HEAD
                     "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 20; i++) {
        n += sprintf(big + n, "10000\r\n");
        memset(big + n, ' ', 0x10000);
        n += 0x10000;
        n += sprintf(big + n, "\r\n");
    }
    n += sprintf(big + n, "0\r\n\r\n");
    CHECK(talk_n(big, (size_t)n) == 413);
    /* A body of 1 MiB that consists of brackets is read, and refused as JSON. */
    n = sprintf(big, "POST /v1/plan HTTP/1.1\r\n" HEAD
                     "Content-Type: application/json\r\nContent-Length: 1048576\r\n\r\n");
    memset(big + n, '[', 1 << 20);
    CHECK(talk_n(big, (size_t)n + (1 << 20)) == 400 && strstr(reply, "deeper"));
    free(big);
    finish();
}

enum { DRIPS = 3000 };

/* Sends `whole`, and then `byte` repeatedly, up to DRIPS times. */
static void drip(int fd, const char *whole, char byte)
{
    char back[512];
    int sent = 0;
    send_all(fd, whole, strlen(whole));
    for (bool open = true; open && sent < DRIPS; sent += open) {
        open = rest_send(fd, &byte, 1) == 1;
        loop_turn(w.loop, 10);
        const ssize_t n = open ? rest_recv(fd, back, sizeof back) : 0;
        open = n > 0 || (n < 0 && errno == EAGAIN);
    }
    CHECK_MSG(sent < DRIPS, "dripped to the end after: %s", whole);
    close(fd);
}

/* Checks that a client that sends single bytes slowly is disconnected. Checks this in the first
 * and the second request, and in headers and in a body. */
static void test_slow_clients(void)
{
    static const char first[] = "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char *const wholes[] = {"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ",
                                         POST_HEAD "Content-Length: 3000\r\n\r\n"};
    begin_in(true, 150);
    for (int i = 0; i < 4; i++) {
        int fd = dial();
        clear();
        if (i >= 2) {
            send_all(fd, first, sizeof first - 1);
            CHECK(receive(fd, "\"ok\"}"));
        }
        drip(fd, wholes[i % 2], 'a');
    }
    CHECK(get("/livez") == 200);
    finish();
}

static void test_keep_alive(void)
{
    begin();
    int fd = dial();
    for (int i = 0; i < 20; i++) {
        static const char r[] = "GET /livez HTTP/1.1\r\nHost: 127.0.0.1:99\r\n\r\n";
        clear();
        send_all(fd, r, sizeof r - 1);
        CHECK(receive(fd, "\"ok\"}") && status_of() == 200);
    }
    close(fd);
    finish();
}

/* Checks a client that closes its sending side after its request, as `nc -N` does. It must get the
 * whole answer. */
static void test_half_closed(void)
{
    static const char ask[] = "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const size_t size = strlen(routes_document()); /* more bytes than are sent at a time */
    begin();
    for (int n = 1; n <= 2; n++) {
        int fd = dial();
        clear();
        for (int i = 0; i < n; i++) send_all(fd, ask, sizeof ask - 1);
        rest_shut(fd);
        receive(fd, NULL);
        close(fd);
        CHECK_MSG(reply_len > (size_t)n * size, "%zu of %d times %zu bytes", reply_len, n, size);
    }
    finish();
}

/* Checks a client that sends a request and does not read the answer. It must be disconnected, as a
 * silent client is. */
static void test_no_reader(void)
{
    static const char ask[] = "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\n\r\n";
    int small = 4096;
    struct pollfd p = {.events = 0};
    begin_in(true, 300);
    p.fd = dial();
    CHECK(!setsockopt(p.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    for (int i = 0; i < 400; i++) send_all(p.fd, ask, sizeof ask - 1); /* 18 MB of answers */
    for (int i = 0; i < 5000 && !(p.revents & POLLERR); i++) {
        loop_turn(w.loop, 5);
        poll(&p, 1, 5);
    }
    CHECK_MSG(p.revents & POLLERR, "it may stay for as long as it likes");
    close(p.fd);
    finish();
}

/* ---- how many -------------------------------------------------------------------------------- */

/* the largest number of connections; one address may have 8 of them, and half of them may be
 * streams, of which one token may have half */
#define LIMIT 32

/* Sends one request as the client 127.0.0.last. Returns the status of the answer. */
static int ask_from(int last, const char *path)
{
    char out[256];
    int fd = dial_from(last);
    snprintf(out, sizeof out, "GET %s HTTP/1.1\r\n" HEAD "\r\n", path);
    send_all(fd, out, strlen(out));
    return answer_of(fd);
}

/* Opens a stream of events with a token, or gets a refusal. Returns the status. */
static int follow_with(int last, int *fd, const char *token)
{
    char out[512];
    *fd = dial_from(last);
    clear();
    snprintf(out, sizeof out,
             "GET /v1/jobs/1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
             "Accept: text/event-stream\r\n\r\n",
             token);
    send_all(*fd, out, strlen(out));
    receive(*fd, status_of() == 200 ? "submit" : "\r\n\r\n");
    return status_of();
}

static int follow_from(int last, int *fd)
{
    return follow_with(last, fd, REST_TOKEN);
}

static void begin_limited(void)
{
    char out[1024];
    rest_connections = LIMIT;
    begin();
    /* uses an unused address, because the server may still count the earlier connection for a
     * moment */
    const int fd = dial_from(50);
    snprintf(out, sizeof out,
             "POST /v1/jobs HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             sizeof job_json - 1, job_json);
    send_all(fd, out, strlen(out));
    CHECK(answer_of(fd) == 201);
}

static void test_address_quarter(void)
{
    int fd[LIMIT];
    begin_limited();
    for (int i = 0; i < LIMIT / 4; i++) CHECK(follow_from(1, &fd[i]) == 200);
    CHECK(ask_from(1, "/livez") == 200 && strstr(reply, "Connection: close"));
    CHECK(ask_from(1, "/readyz") == 200);
    CHECK(ask_from(1, "/v1/jobs") == 429 && strstr(reply, "problem+json"));
    CHECK(strstr(reply, "Retry-After: "));
    CHECK(ask_from(2, "/v1/jobs") == 200); /* a client with a different address is not affected */
    close(fd[0]);
    /* the server notices immediately that the clients have disconnected */
    while (ask_from(1, "/v1/jobs") != 200) loop_turn(w.loop, 1);
    for (int i = 1; i < LIMIT / 4; i++) close(fd[i]);
    finish();
}

static void test_streams_half(void)
{
    int fd[LIMIT], extra, n = 0;
    char token[AUTH_TOKEN_SIZE];
    begin_limited();
    rest_token("tester", ROLE_ADMIN, 0, token);
    for (; n < LIMIT / 4; n++) CHECK(follow_from(1, &fd[n]) == 200);
    CHECK(follow_from(2, &extra) == 429 && strstr(reply, "half of all streams"));
    close(extra);
    for (; n < LIMIT / 2; n++) CHECK(follow_with(2, &fd[n], token) == 200);
    CHECK(follow_from(9, &extra) == 503 && strstr(reply, "streams"));
    close(extra);
    CHECK(ask_from(9, "/v1/jobs/1/events") == 200); /* a page of events is still served */
    close(fd[0]);
    for (int status = 0; status != 200; close(extra)) status = follow_from(9, &extra);
    for (int i = 1; i < LIMIT / 2; i++) close(fd[i]);
    finish();
}

/* Checks a request whose client has disconnected. Until it is answered, it must count as a
 * connection, because it still uses memory. */
static void test_left_behind(void)
{
    static const char plan[] = "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\"},"
                               "\"input\":{\"prompt\":\"x\"}}";
    const struct linger reset = {.l_onoff = 1};
    struct msg hello = {
        .type = MSG_HELLO, .abi = WIRE_ABI, .node = "n1", .memory_size = (int64_t)1 << 33};
    char out[512];
    int fd[LIMIT / 4];
    begin_limited();
    control_link_calls.up(w.control, hello.node, &hello);
    snprintf(out, sizeof out,
             "POST /v1/plan HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             sizeof plan - 1, plan);
    for (int i = 0; i < LIMIT / 4; i++) {
        w.fetch.type = 0;
        fd[i] = dial();
        send_all(fd[i], out, strlen(out));
        while (!w.fetch.type) loop_turn(w.loop, 1); /* the node is asked */
    }
    for (int i = 0; i < LIMIT / 4; i++) {
        CHECK(!setsockopt(fd[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset));
        close(fd[i]);
    }
    for (int i = 0; i < 20; i++) CHECK(ask_from(1, "/v1/jobs") == 429);
    control_link_calls.down(w.control, hello.node, "the test said so", 0);
    while (ask_from(1, "/v1/jobs") != 200) loop_turn(w.loop, 1);
    finish();
}

/* A stranger keeps a connection open, says nothing or the first bytes of a request, and connects
 * again when the server closes it. */
static int come_back(int i, int fd, int *n_closed)
{
    char byte;
    if (fd >= 0 && rest_recv(fd, &byte, 1) < 0 && errno == EAGAIN) return fd;
    if (fd >= 0) {
        close(fd);
        ++*n_closed;
    }
    fd = dial_from(11 + i % 8);
    if (i % 3 == 0) rest_send(fd, SMUGGLED, 10);
    return fd;
}

/* Checks that clients are served although strangers hold all connections, and come back as soon as
 * they are closed. The client has an address of its own, or that of strangers. */
static void test_strangers(void)
{
    int fd[2 * LIMIT], n_closed = 0;
    const int n = rest_by.cert ? 2 : 10; /* a handshake takes milliseconds */
    begin_limited();
    for (int i = 0; i < 2 * LIMIT; i++) fd[i] = -1;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < 2 * LIMIT; i++) fd[i] = come_back(i, fd[i], &n_closed);
        CHECK(ask_from(9, "/v1/jobs") == 200 && ask_from(11, "/v1/jobs") == 200);
        CHECK(ask_from(9, "/livez") == 200);
    }
    /* the client's side of TLS has not seen the end yet */
    CHECK_MSG(n_closed || rest_by.cert, "no stranger was closed");
    for (int i = 0; i < 2 * LIMIT; i++) close(fd[i]);
    finish();
}

/* Checks that a client that disconnects in the middle of a request or a stream frees its
 * connection. */
static void test_gone_clients(void)
{
    /* a handshake takes milliseconds, so the short form has fewer of them */
    const size_t step = rest_by.cert && small_tests() ? 35 : 7;
    begin_limited();
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        for (size_t n = 1; n < hostile[i].size; n += step) {
            int fd = dial();
            send_all(fd, hostile[i].bytes, n);
            close(fd);
        }
    while (ask_from(1, "/v1/jobs") != 200) loop_turn(w.loop, 1);
    int fd;
    for (int i = 0; i < 4 * LIMIT; i++) {
        while (follow_from(1, &fd) != 200) close(fd);
        close(fd);
    }
    finish();
}

/* ---- the same by other ways ------------------------------------------------------------------ */

static void handshake(int fd)
{
    int one = 1;
    CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
    tls_client(fd, TLS_PLAN, "http/1.1");
    /* some of the many handshakes may fail, because the oldest connections are replaced */
    tls_connect(fd);
}

static void say_bye(int fd)
{
    CHECK(!gnutls_bye(tls_of[fd], GNUTLS_SHUT_WR));
}

static void test_requests(void)
{
    RUN(test_hostile_requests);
    RUN(test_sound_requests);
    RUN(test_pipelined);
    RUN(test_headers_kept);
    RUN(test_large_requests);
    RUN(test_slow_clients);
    RUN(test_keep_alive);
    RUN(test_half_closed);
    RUN(test_no_reader);
}

static void test_numbers(void)
{
    RUN(test_address_quarter);
    RUN(test_streams_half);
    RUN(test_left_behind);
    RUN(test_strangers);
    RUN(test_gone_clients);
}

static void by_tls(void)
{
    char dir[] = "/tmp/seqd-tls-XXXXXX", cert[64], key[64];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(cert, sizeof cert, "%s/cert.pem", dir);
    snprintf(key, sizeof key, "%s/key.pem", dir);
    tls_fresh_cert(cert, key, 1);
    rest_by.cert = cert;
    rest_by.key = key;
    rest_by.dialed = handshake;
    rest_by.send = tls_put;
    rest_by.recv = tls_get;
    rest_by.shut = say_bye;
    test_requests();
    test_numbers();
    memset(&rest_by, 0, sizeof rest_by);
    tls_forget_all();
    nftw(dir, remove_one, 4, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    seqd_test_init();
    rest_connections = 0;
    test_requests();
    test_numbers();
    rest_connections = 0;
    rest_by.by_unix = true;
    test_requests();
    rest_by.by_unix = false;
    by_tls();
    return test_done("seqd_http");
}
